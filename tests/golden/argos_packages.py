"""Compare packages of Argos Translate with `argostranslate` itself: sentences, texts of several sentences, pivots.

Usage: python argos_packages.py PROGRAM    the command `simdformer`

Needs argostranslate, ctranslate2, sacremoses, subword-nmt, sentencepiece and numpy; stanza is not imported. The packages have the demo model
`models/fr-en`, written by ctranslate2's own specification, as a model from French to English and, for the second half of a
pivot, as one from English to Spanish: its source vocabulary has English words at the places of French ones, so it knows the
words and writes nonsense. A package with `bpe.model` has the words of the vocabulary without `▁`, and codes that are learned from
the sentences; both sides have the abbreviations of a list in the package. Argos divides texts by a model that it downloads; here both sides divide them after a point or a
question mark.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "models", "fr-en")
ABBREVIATIONS = ["M", "Mme", "No #NUMERIC_ONLY#"]


def tensors(path):
    """The f32 tensors of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, about in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            found[name] = np.frombuffer(data[begin + first : begin + last], np.float32).reshape(about["shape"]).copy()
    return found


def positions(rows, width):
    """The table of Marian: sines, then cosines."""
    angles = np.arange(rows)[:, None] / np.power(10000, 2 * (np.arange(width) // 2) / width)
    return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1).astype(np.float32)


def exchange(tokens, ids):
    """The tokens of a source of English words: each has the place of a French one."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(DEMO, "target.spm"))
    english = [piece for piece in map(pieces.id_to_piece, range(pieces.get_piece_size())) if piece in ids]
    english = [piece for piece in english if piece.startswith("▁")]
    french = [token for token in ids if token.startswith("▁") and token not in english]
    found = list(tokens)
    for one, other in zip(english, french):
        found[ids[one]], found[ids[other]] = other, one
    return found


def words_of_moses(tokens):
    """The tokens of a vocabulary of BPE: what begins a word of SentencePiece is a whole word, what does not is a part."""
    return [
        token if token.startswith("<") else token[1:].replace("'", "&apos;") if token.startswith("▁") else f"{token}@@"
        for token in tokens
    ]


def convert(folder, quantization, english=False, bpe=False):
    """The demo model as a directory of CTranslate2, of an `english` source or a French one, of pieces of `bpe` codes."""
    import ctranslate2
    from ctranslate2.specs import common_spec

    with open(os.path.join(DEMO, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(DEMO, "vocab.json")) as file:
        ids = json.load(file)
    weights = tensors(os.path.join(DEMO, "model.safetensors"))
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config["encoder_layers"], config["decoder_layers"]),
        config["encoder_attention_heads"],
        pre_norm=False,
        activation=common_spec.Activation.SWISH,
    )
    table = weights["model.shared.weight"]

    def linear(to, *names):
        to.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
        to.bias = np.concatenate([weights[f"{name}.bias"] for name in names])

    def norm(to, name):
        to.gamma, to.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = table
        stack.scale_embeddings = float(np.sqrt(config["d_model"]))
        stack.position_encodings.encodings = positions(config["max_position_embeddings"], config["d_model"])
        for index, layer in enumerate(stack.layer):
            path = f"model.{side}.layers.{index}"
            own = layer.self_attention
            linear(own.linear[0], *(f"{path}.self_attn.{part}_proj" for part in "qkv"))
            linear(own.linear[1], f"{path}.self_attn.out_proj")
            norm(own.layer_norm, f"{path}.self_attn_layer_norm")
            if side == "decoder":
                cross = layer.attention
                linear(cross.linear[0], f"{path}.encoder_attn.q_proj")
                linear(cross.linear[1], f"{path}.encoder_attn.k_proj", f"{path}.encoder_attn.v_proj")
                linear(cross.linear[2], f"{path}.encoder_attn.out_proj")
                norm(cross.layer_norm, f"{path}.encoder_attn_layer_norm")
            linear(layer.ffn.linear_0, f"{path}.fc1")
            linear(layer.ffn.linear_1, f"{path}.fc2")
            norm(layer.ffn.layer_norm, f"{path}.final_layer_norm")
    spec.decoder.projection.weight = table
    # The token that begins a target is never written.
    bias = np.array(weights["final_logits_bias"], np.float32).reshape(-1)
    bias[config["pad_token_id"]] = -1e9
    spec.decoder.projection.bias = bias
    tokens = [f"t{index}" for index in range(config["vocab_size"])]
    for token, index in ids.items():
        tokens[index] = token
    if bpe:
        tokens = words_of_moses(tokens)
    spec.register_source_vocabulary(exchange(tokens, ids) if english else tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = True
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.decoder_start_token = "<pad>"
    spec.validate()
    spec.optimize(quantization=quantization)
    os.makedirs(folder)
    spec.save(folder)


def package(place, source, target, quantization, prefix=None, codes=None):
    """A package file, with pieces of SentencePiece or of BPE `codes`."""
    name = f"translate-{source}_{target}"
    folder = os.path.join(place, name)
    english = source == "en"
    convert(os.path.join(folder, "model"), quantization, english, codes is not None)
    if codes is None:
        pieces = "target.spm" if english else "source.spm"
        shutil.copy(os.path.join(DEMO, pieces), os.path.join(folder, "sentencepiece.model"))
    else:
        for file, text in (("bpe.model", codes), ("nonbreaking_prefixes.txt", "\n".join(ABBREVIATIONS))):
            with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                out.write(text)
    metadata = {
        "package_version": "1.0", "argos_version": "1.5", "from_code": source, "from_name": source,
        "to_code": target, "to_name": target,
    }
    if prefix:
        metadata["target_prefix"] = prefix
    with open(os.path.join(folder, "metadata.json"), "w") as file:
        json.dump(metadata, file)
    path = os.path.join(place, f"{source}_{target}.argosmodel")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for root, _, files in os.walk(folder):
            for one in files:
                full = os.path.join(root, one)
                archive.write(full, os.path.relpath(full, place))
    return path


def argos(place, packages, source, target, texts):
    """What argostranslate answers."""
    home = os.path.join(place, "home")
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(os.path.join(home, "packages"))
    program = f"""
import json, re, sys, types
sys.modules["stanza"] = types.ModuleType("stanza")
import sacremoses.tokenize
from argostranslate import package, sbd, translate
sacremoses.tokenize.nonbreaking_prefixes.words = lambda language: {ABBREVIATIONS!r}
def split(self, text):
    return [part for part in re.split(r"(?<=[.?])\\s+", text) if part]
sbd.MiniSBDSentencizer.split_sentences = split
for path in {packages!r}:
    package.install_from_path(path)
texts = json.load(sys.stdin)
json.dump([translate.translate(text, {source!r}, {target!r}) for text in texts], sys.stdout)
"""
    settings = {
        "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home,
        "ARGOS_PACKAGES_DIR": os.path.join(home, "packages"), "ARGOS_COMPUTE_TYPE": "float32",
    }
    run = subprocess.run([sys.executable, "-c", program], input=json.dumps(texts), capture_output=True, text=True,
                         env={**os.environ, **settings})
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout)


def simdformer(program, packages, texts):
    """What this project answers, in f32."""
    command = [program, "translate", "--weights", "f32", "--quiet", "--capitals", "false", "--model", packages[0]]
    for second in packages[1:]:
        command += ["--pivot", second]
    run = subprocess.run([*command, *texts], capture_output=True, text=True)
    if not run.stdout:
        raise RuntimeError(run.stderr)
    return run.stdout.splitlines()


def compare_bpe(program, quantization, sentences):
    """Packages with `bpe.model`, whose codes make the words of the sentences whole: how many translations differ."""
    from subword_nmt.learn_bpe import learn_bpe

    texts = []
    for index, sentence in enumerate(sentences):
        # Marks that Moses normalizes, divides and escapes, and that the vocabulary has: what it lacks, Argos leaves out or
        # replaces, and simdformer copies.
        frame = ["{}", "{}.", "{}\u00a0?", "{} ?"][index % 4]
        apostrophe = "'’"[index % 2]
        texts.append(frame.format(re.sub(r" *[.?!]+$", "", sentence)).replace("' ", apostrophe))
    learned = io.StringIO()
    learn_bpe(io.StringIO("\n".join(sentences).replace("'", "&apos;")), learned, 3000, 1)
    with tempfile.TemporaryDirectory() as place:
        first = package(place, "fr", "en", quantization, codes=learned.getvalue())
        theirs = argos(place, [first], "fr", "en", texts)
        ours = simdformer(program, [first], texts)
    unequal = [(text, a, b) for text, a, b in zip(texts, ours, theirs, strict=True) if a != b]
    print(f"{quantization or 'float32'}: with bpe.model: {len(texts) - len(unequal)} of {len(texts)} equal")
    print(*(f"  {text!r}\n    {a!r}\n    {b!r}\n" for text, a, b in unequal[:3]), end="")
    return len(unequal)


def main(program):
    with open(os.path.join(DEMO, "held_out.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][:60]
    sentences = [row.get("source", row.get("fr")) for row in rows]
    # The end of each sentence is that of its text.
    ended = [re.sub(r"[\s.?!]*$", "", sentence, count=1) + " ." for sentence in sentences]
    joined = [" ".join(ended[index : index + 3]) for index in range(0, 60, 3)]
    different = 0
    for quantization in (None, "int8"):
        with tempfile.TemporaryDirectory() as place:
            first = package(place, "fr", "en", quantization)
            second = package(place, "en", "es", quantization)
            for what, packages, texts in [
                ("sentences", [first], sentences),
                ("texts of three sentences", [first], joined),
                ("through a pivot", [first, second], sentences),
            ]:
                target = "en" if len(packages) == 1 else "es"
                theirs = argos(place, packages, "fr", target, texts)
                ours = simdformer(program, packages, texts)
                unequal = [(text, a, b) for text, a, b in zip(texts, ours, theirs, strict=True) if a != b]
                print(f"{quantization or 'float32'}: {what}: {len(texts) - len(unequal)} of {len(texts)} equal")
                for text, a, b in unequal[:3]:
                    print(f"  {text!r}\n    {a!r}\n    {b!r}")
                different += len(unequal)
        with tempfile.TemporaryDirectory() as place:
            with_prefix = package(place, "fr", "en", quantization, prefix="▁she")
            theirs = argos(place, [with_prefix], "fr", "en", sentences)
            ours = simdformer(program, [with_prefix], sentences)
            # Argos finds the prefix at the begin of the text only if it is spelled as its token. Here it is no part of a text.
            theirs = [" ".join(word for word in text.split() if word != "she") for text in theirs]
            equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
            print(f"{quantization or 'float32'}: with a target prefix: {equal} of {len(ours)} equal")
            print(*(f"  {text!r}\n    {a!r}\n    {b!r}\n" for text, a, b in zip(sentences, ours, theirs) if a != b), end="")
            different += len(ours) - equal
        different += compare_bpe(program, quantization, sentences)
    sys.exit(different > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
