"""Convert checkpoints of this folder by ctranslate2's own converters, and write what ctranslate2 answers.

Usage: python ctranslate2_directories.py            the goldens: `ctranslate2/NAME`
       python ctranslate2_directories.py --all DIR  every family in f32, f16, bf16, int16 and int8: `DIR/NAME-DTYPE`
       python ctranslate2_directories.py --check DIR PROGRAM  compare what `simdformer` answers from these directories

Each folder holds `model.bin`, `config.json` and vocabularies as the converters write them. Token `i` is named `t<i>`, except
special tokens. `expected.safetensors` is what ctranslate2 computes in float32 from this folder: for each sentence i of the
checkpoint's own `expected.safetensors` (or `sources.json`) `greedy.{i}`, at most 14 ids after the decoder start, the end
token not included, and `score.{i}`, the log-probabilities of the tokens of `greedy.{i}`, the end token included if it came
first. Of an encoder `encoder.{i}` [source length, width] in place of them. Of Whisper both, from `features.{i}`, with the
prefix of the checkpoint.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import ctranslate2
from ctranslate2.converters import transformers as loaders

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_NEW_TOKENS = 14

# Name: checkpoint. The names are those of the families; the last part of a path is not always one.
CHECKPOINTS = {
    "marian": "search/marian_a",
    "marian_odd": "marian_odd",
    "bart": "search/bart_a",
    "mbart": None,
    "m2m_100": "search/m2m_a",
    "pegasus": "families/pegasus",
    "t5": "families/t5",
    "t5_v1_1": "families/t5_v1_1",
    "mt5": "families/mt5",
    "umt5": "families/umt5",
    "whisper": "families/whisper",
    "whisper_english": "families/whisper_english",
    "bert": "families/bert",
    "distilbert": "families/distilbert_classifier",
    "roberta": "families/roberta",
    "xlm_roberta": "families/xlm_roberta_classifier",
    "camembert": "families/camembert",
}
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "int16": "int16", "int8": "int8"}
GOLDENS = ["marian-f32", "bart-int16", "t5_v1_1-int8", "whisper-f16", "camembert-bf16"]


class Tokens:
    """What the converters ask a tokenizer for."""

    unk_token = "<unk>"
    additional_special_tokens = []
    special_tokens_map = {}
    num_madeup_words = 0

    def __init__(self, config, generation):
        size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
        names = [f"t{i}" for i in range(max(size, config.vocab_size))]
        one = lambda id: id[0] if isinstance(id, list) else id
        self.start = None
        for name, id in [
            ("<s>", getattr(config, "bos_token_id", None)),
            ("</s>", getattr(config, "eos_token_id", None)),
            ("<pad>", getattr(config, "pad_token_id", None)),
        ]:
            if id is not None and one(id) < len(names):
                names[one(id)] = name
        if config.model_type == "whisper":
            for name, id in [
                ("<|endoftext|>", generation.eos_token_id),
                ("<|startoftranscript|>", generation.decoder_start_token_id),
                ("<|notimestamps|>", getattr(generation, "no_timestamps_token_id", None)),
                ("<|startofprev|>", getattr(generation, "prev_sot_token_id", None)),
                *getattr(generation, "lang_to_id", {}).items(),
                *((f"<|{task}|>", id) for task, id in getattr(generation, "task_to_id", {}).items()),
            ]:
                if id is not None:
                    names[one(id)] = name
            if hasattr(generation, "lang_to_id"):
                names[one(generation.eos_token_id) - 1] = ""
                names[69] = "<|nospeech|>"
        self.names = names
        self.bos_token, self.eos_token, self.pad_token = "<s>", "</s>", "<pad>"
        self.unk_token = next(name for name in names if name.startswith("t"))
        self.unk_token_id = names.index(self.unk_token)

    def get_vocab(self):
        return {name: id for id, name in enumerate(self.names)}

    def convert_ids_to_tokens(self, id):
        return self.names[id]

    def convert_tokens_to_ids(self, token):
        return self.names.index(token)


class Converter(loaders.TransformersConverter):
    """The converter for a checkpoint without a tokenizer."""

    def load_tokenizer(self, tokenizer_class, path, **kwargs):
        from transformers import AutoConfig, GenerationConfig

        generation = None
        if os.path.exists(os.path.join(path, "generation_config.json")):
            generation = GenerationConfig.from_pretrained(path)
        self.tokens = Tokens(AutoConfig.from_pretrained(path), generation)
        return self.tokens

    def load_model(self, model_class, path, **kwargs):
        model = super().load_model(model_class, path, **kwargs)
        # Versions of transformers later than that of the converters have no such keys.
        for key, value in [("normalize_before", model.config.model_type in ("mbart", "pegasus")),
                           ("normalize_embedding", model.config.model_type not in ("pegasus",)),
                           ("position_embedding_type", "absolute")]:
            if not hasattr(model.config, key):
                setattr(model.config, key, value)
        if model.config.model_type in ("t5", "mt5", "umt5"):
            # This key says whether the logits are scaled, and is always true in later versions.
            model.config.tie_word_embeddings = getattr(model.config, "scale_decoder_outputs", False)
        return model


def mbart(folder):
    """A random mBART in `folder`, which has no golden."""
    from transformers import MBartConfig, MBartForConditionalGeneration

    import golden

    config = MBartConfig(
        vocab_size=89, d_model=24, encoder_layers=2, decoder_layers=1, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=41, decoder_ffn_dim=35, max_position_embeddings=40,
        scale_embedding=True, decoder_start_token_id=2, forced_eos_token_id=None, tie_word_embeddings=True,
        activation_function="gelu", tokenizer_class="MBart50Tokenizer",
    )
    torch.manual_seed(5)
    model = MBartForConditionalGeneration(config).eval()
    golden.fill(model, 5, "model.decoder.layer_norm", sinusoidal=False)
    model.save_pretrained(folder)
    sources = golden.ids(6, [7, 1, 21, 2, 13], 3, 89, last=(2,))
    with open(os.path.join(folder, "sources.json"), "w") as file:
        json.dump(sources, file)


def zero_pad(source, folder):
    """A copy of a Marian checkpoint with zeros as the embedding of the pad token, as every published one has them. The
    converter leaves this row out."""
    shutil.copytree(source, folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if name.endswith("shared.weight"):
            tensor[-1] = 0
    save_file(tensors, path, metadata={"format": "pt"})


def convert(name, dtype, output, cache):
    """Write the directory `output`; returns the folder of the checkpoint."""
    folder = os.path.join(cache, name)
    source = os.path.join(HERE, CHECKPOINTS[name] or "")
    if os.path.exists(folder):
        pass
    elif name == "mbart":
        mbart(folder)
    elif name.startswith("marian"):
        zero_pad(source, folder)
    else:
        folder = source
    converter = Converter(folder)
    converter.convert(output, quantization=DTYPES[dtype], force=True)
    return folder, converter.tokens


def sources(folder):
    """The sentences of a checkpoint, or its features."""
    listed = os.path.join(folder, "sources.json")
    if os.path.exists(listed):
        with open(listed) as file:
            return json.load(file), {}
    with safe_open(os.path.join(folder, "expected.safetensors"), "np") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    kind = "input_ids" if "input_ids.0" in tensors else "features"
    count = sum(key.startswith(kind + ".") for key in tensors)
    return [tensors[f"{kind}.{i}"] for i in range(count)], tensors


def answers(output, folder, tokens):
    """What ctranslate2 computes from `output` in float32."""
    sentences, tensors = sources(folder)
    ids = {token: id for id, token in enumerate(tokens.names)}
    texts = lambda list: [tokens.names[id] for id in list]
    found = {}
    with open(os.path.join(output, "model.bin"), "rb") as file:
        specification = file.read(32)
    if b"WhisperSpec" in specification:
        model = ctranslate2.models.Whisper(output, compute_type="float32", intra_threads=1)
        for i, features in enumerate(sentences):
            prefix = tensors.get(f"prefix.{i}", np.zeros(0, np.int64)).tolist()
            start = ids["<|startoftranscript|>"]
            input = ctranslate2.StorageView.from_array(np.ascontiguousarray(features.T[None], np.float32))
            found[f"encoder.{i}"] = np.array(model.encode(input, to_cpu=True))[0]
            # At most half of this length are new tokens.
            result = model.generate(input, [[start, *prefix]], beam_size=1, max_length=2 * MAX_NEW_TOKENS)[0]
            found[f"greedy.{i}"] = np.array(result.sequences_ids[0], np.int64)
        return found
    if b"EncoderSpec" in specification:
        model = ctranslate2.Encoder(output, compute_type="float32", intra_threads=1)
        for i, sentence in enumerate(sentences):
            result = model.forward_batch([list(map(int, sentence))])
            found[f"encoder.{i}"] = np.array(result.last_hidden_state)[0]
        return found
    model = ctranslate2.Translator(output, compute_type="float32", intra_threads=1)
    for i, sentence in enumerate(sentences):
        source = texts(map(int, sentence))
        result = model.translate_batch([source], beam_size=1, max_decoding_length=MAX_NEW_TOKENS,
                                       min_decoding_length=0, return_scores=True)[0]
        target = result.hypotheses[0]
        found[f"greedy.{i}"] = np.array([ids[token] for token in target], np.int64)
        score = model.score_batch([source], [target])[0]
        found[f"score.{i}"] = np.array(score.log_probs, np.float32)
    return found


def write(name, dtype, output, cache):
    folder, tokens = convert(name, dtype, output, cache)
    found = answers(output, folder, tokens)
    path = os.path.join(output, "expected.safetensors")
    save_file(found, path)
    os.chmod(path, 0o644)
    return folder


def generate(program, folder, lines, *options, features=None):
    """The answers of `simdformer generate`, one for each line."""
    command = [program, "generate", "--model", folder, "--max-new-tokens", str(MAX_NEW_TOKENS), *options]
    if features is not None:
        command += ["--features", features]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{folder}: {run.stderr.strip()}")
    return [json.loads(line)["sequences"] for line in run.stdout.splitlines()]


def hidden(program, folder, lines, target, *options, features=None):
    """The encoder outputs that `simdformer generate --logits` writes."""
    command = [program, "generate", "--model", folder, "--logits", target, "--max-new-tokens", "1", *options]
    if features is not None:
        command += ["--features", features]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{folder}: {run.stderr.strip()}")
    with safe_open(target, "np") as file:
        return [file.get_tensor(f"encoder.{i}") for i in range(len(lines))]


def plain_checkpoint(folder, target):
    """A copy of a checkpoint whose generation settings are those that ctranslate2 keeps."""
    shutil.copytree(folder, target)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    path = os.path.join(target, "generation_config.json")
    if config["model_type"] == "whisper":
        with open(path) as file:
            settings = json.load(file)
        # The option of ctranslate2, which is no setting of a directory.
        settings["max_initial_timestamp_index"] = 50
    else:
        settings = {key: config[key] for key in ("decoder_start_token_id", "eos_token_id") if config.get(key) is not None}
        if config["model_type"] == "marian":
            settings["bad_words_ids"] = [[config["pad_token_id"]]]
    with open(path, "w") as file:
        json.dump(settings, file)
    return config


def check(directory, program):
    """One row for each directory: what is equal to the checkpoint, and to ctranslate2 in float32."""
    failed = 0
    for name in CHECKPOINTS:
        for dtype in DTYPES:
            output = os.path.join(directory, f"{name}-{dtype}")
            with open(os.path.join(output, "checkpoint.txt")) as file:
                folder = file.read()
            sentences, tensors = sources(folder)
            with safe_open(os.path.join(output, "expected.safetensors"), "np") as file:
                expected = {key: file.get_tensor(key) for key in file.keys()}
            with tempfile.TemporaryDirectory() as scratch:
                original = os.path.join(scratch, "original")
                config = plain_checkpoint(folder, original)
                features, lines = None, []
                if config["model_type"] != "whisper":
                    lines = [{"input_ids": list(map(int, sentence))} for sentence in sentences]
                else:
                    features = os.path.join(scratch, "features.safetensors")
                    save_file({f"features.{i}": np.ascontiguousarray(x, np.float32) for i, x in enumerate(sentences)}, features)
                    prefix = lambda i: tensors.get(f"prefix.{i}", np.zeros(0, np.int64)).tolist()
                    lines = [{"decoder_input_ids": prefix(i)} for i in range(len(sentences))]
                row = []
                whole = ["--weights", "f32"] if dtype == "int8" else []
                found = os.path.join(scratch, "hidden.safetensors")
                if "encoder.0" in expected:
                    outputs = hidden(program, output, lines, found, *whole, features=features)
                    error = max(
                        np.abs(mine - expected[f"encoder.{i}"]).max() / np.abs(expected[f"encoder.{i}"]).max()
                        for i, mine in enumerate(outputs)
                    )
                    row.append(f"hidden {error:.1e}")
                    failed += not error < 2e-5
                    if dtype == "f32":
                        theirs = hidden(program, original, lines, found, features=features)
                        error = max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(outputs, theirs))
                        row.append(f"hidden of the checkpoint {error:.1e}")
                        failed += not error < 2e-5
                if "greedy.0" in expected:
                    mine = generate(program, output, lines, "--beams", "1", *whole, features=features)
                    eos = config["eos_token_id"]
                    skip = [len(line.get("decoder_input_ids", [])) for line in lines]
                    bare = lambda list, n: [id for id in list[n:] if id != eos]
                    theirs = [expected[f"greedy.{i}"].tolist() for i in range(len(lines))]
                    # ctranslate2 does not run a sentence of nothing but its begin and its end.
                    ends = [set(line.get("input_ids", [-1])) <= {eos, config.get("bos_token_id")} for line in lines]
                    if features is not None:
                        theirs = [[id for id in list if id != eos] for list in theirs]
                    equal = sum(bare(a[0], n) == b or end for a, b, n, end in zip(mine, theirs, skip, ends))
                    row.append(f"greedy of ctranslate2 {equal}/{len(lines)}")
                    failed += equal != len(lines)
                    beams = ["--beams", "4", "--num-return-sequences", "4"]
                    for kind, options in [("greedy", ["--beams", "1"]), ("beams", beams)]:
                        if dtype in ("f32", "int8"):
                            weights = ["--weights", "int8"] if dtype == "int8" else []
                            a = generate(program, output, lines, *options, features=features)
                            b = generate(program, original, lines, *options, *weights, features=features)
                            equal = sum(x == y for x, y in zip(a, b))
                            row.append(f"{kind} of the checkpoint {equal}/{len(lines)}")
                            failed += dtype == "f32" and equal != len(lines)
                print(f"{name} {dtype}: {'; '.join(row)}", flush=True)
    return failed


def main(arguments):
    if arguments[:1] == ["--check"]:
        [_, directory, program] = arguments
        sys.exit(check(directory, program) > 0)
    torch.set_num_threads(1)
    if arguments[:1] == ["--all"]:
        [_, target] = arguments
        cache = os.path.join(target, "checkpoints")
        os.makedirs(cache, exist_ok=True)
        for name in CHECKPOINTS:
            for dtype in DTYPES:
                output = os.path.join(target, f"{name}-{dtype}")
                folder = write(name, dtype, output, cache)
                with open(os.path.join(output, "checkpoint.txt"), "w") as file:
                    file.write(folder)
                print(name, dtype, os.path.getsize(os.path.join(output, "model.bin")), flush=True)
        return
    target = os.path.join(HERE, "ctranslate2")
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    with tempfile.TemporaryDirectory() as cache:
        for golden in GOLDENS:
            name, dtype = golden.rsplit("-", 1)
            write(name, dtype, os.path.join(target, golden), cache)


if __name__ == "__main__":
    main(sys.argv[1:])
