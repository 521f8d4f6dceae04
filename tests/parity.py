"""Compare local checkpoint directories with transformers, live, tensor by tensor.

Usage: python tests/parity.py [--simdformer PROGRAM] [--lengths 1,7,40] [--new-tokens 16] DIR...

For each directory: random sources and targets of these lengths go through `simdformer generate --logits` and through transformers
in float64, each sentence alone. Encoder outputs and teacher-forced logits must agree within 2e-5 of the largest
magnitude of each tensor, greedy sequences and those of four beams must be the same, and scores of beams within 1e-5 of
transformers' beam search, sums in float64.
A model that only encodes is compared in its hidden states. Of one that reads features these are random, as many frames
as the model has positions and fewer; its sequences are compared with timestamps and without. Without --simdformer the program is built first.

Needs torch and transformers, see golden/requirements.txt. Nothing is downloaded and nothing in DIR is run.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, SeamlessM4TForTextToText, SeamlessM4Tv2ForTextToText
from transformers import UMT5ForConditionalGeneration
from transformers.generation import utils as generation
from transformers.models.fsmt import modeling_fsmt

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import whisper

# Its own goes through float32, which does not hold the least float64.
modeling_fsmt.fill_with_neg_inf = lambda t: torch.full_like(t, torch.finfo(t.dtype).min)

BOUND, SCORE = 2e-5, 1e-5


def exact_scores():
    """Let beam search take log-probabilities and their sums in float64: as written it rounds both to float32, whatever the
    model is in. Nothing else of it changes."""
    text = textwrap.dedent(inspect.getsource(generation.GenerationMixin._beam_search))
    single = ["dtype=torch.float,", "dtype=torch.float32,"]
    assert [text.count(dtype) for dtype in single] == [2, 1], "another version of transformers"
    for dtype in single:
        text = text.replace(dtype, "dtype=torch.float64,")
    namespace = vars(generation) | {}
    exec(text, namespace)
    generation.GenerationMixin._beam_search = namespace["_beam_search"]


exact_scores()


def load(folder):
    """The model in float64 and whether it decodes."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    text = {"seamless_m4t": SeamlessM4TForTextToText, "seamless_m4t_v2": SeamlessM4Tv2ForTextToText}
    names = config.architectures or []
    decodes = config.is_encoder_decoder and not any(name.endswith("EncoderModel") for name in names)
    if any(name.endswith("EncoderModel") for name in names):
        import transformers

        kind = getattr(transformers, names[0])
    elif config.model_type == "whisper":
        kind = AutoModelForSpeechSeq2Seq
    elif decodes:
        kind = text.get(config.model_type, AutoModelForSeq2SeqLM)
    else:
        kind = AutoModel
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True)
    if isinstance(model, UMT5ForConditionalGeneration):
        # Version 5 scales its logits whatever the file says; the published models do not.
        model.config.tie_word_embeddings = False
    return model.eval().double(), decodes


def ids(generator, length, vocab, end):
    sentence = torch.randint(4, vocab, (length,), generator=generator).tolist()
    return sentence[: length - 1] + [end] if end is not None and length > 1 else sentence


def first(value):
    return value[0] if isinstance(value, list) else value


def run(program, folder, lines, *options):
    answer = subprocess.run(
        [program, "generate", "--model", folder, *options], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if answer.returncode:
        sys.exit(f"{folder}: generate: {answer.stderr.strip()}")
    return [json.loads(line) for line in answer.stdout.splitlines()]


def difference(found, expected):
    """The largest, as a share of the largest magnitude."""
    if found.shape != expected.shape:
        return float("inf")
    return float((found.double() - expected).abs().max() / expected.abs().max())


def stripped(row, eos):
    """Without what fills up after the end: the pad, or the end itself where the pad is 0."""
    ends = [i for i, token in enumerate(row) if token in eos]
    return row[: ends[0] + 1] if ends else row


def compare(program, folder, lengths, new_tokens):
    model, decodes = load(folder)
    worst, wrong = measure(program, folder, model, decodes, lengths, new_tokens)
    told = ", ".join(f"{what} within {error:.1e}" for what, error in worst.items())
    print(f"{folder}: {'WRONG: ' + '; '.join(wrong) if wrong else 'the same'} ({told})", flush=True)
    return not wrong


def measure(program, folder, model, decodes, lengths, new_tokens):
    """The largest errors, and what is wrong."""
    if model.config.model_type == "whisper":
        return listen(program, folder, model, lengths, new_tokens)
    config = model.config.get_text_config(encoder=True)
    generator = torch.Generator().manual_seed(0)
    settings = model.generation_config if decodes else model.config
    eos = first(settings.eos_token_id) if decodes else None
    limit = getattr(config, "max_position_embeddings", None) or 10**9
    # RoBERTa's number includes rows that are no positions.
    lengths = sorted({min(n, limit - 4) for n in lengths})
    source_vocab = getattr(config, "src_vocab_size", None) or config.vocab_size
    sources = [ids(generator, n, source_vocab, eos) for n in lengths]
    requests = [{"input_ids": source} for source in sources]
    if decodes:
        start, vocab = settings.decoder_start_token_id, model.get_output_embeddings().weight.shape[0]
        for request, n in zip(requests, reversed(lengths)):
            request["decoder_input_ids"] = [start, *ids(generator, n, vocab, None)][:n]
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "out.safetensors")
        run(program, folder, map(json.dumps, requests), "--logits", path, *(["--score"] if decodes else []))
        found = load_file(path)
    worst = {"encoder": 0.0}
    for i, request in enumerate(requests):
        x = torch.tensor([request["input_ids"]])
        mask = torch.ones_like(x)
        if not decodes:
            out = model(input_ids=x, attention_mask=mask).last_hidden_state[0]
            worst["encoder"] = max(worst["encoder"], difference(found[f"encoder.{i}"], out))
            continue
        y = torch.tensor([request["decoder_input_ids"]])
        # FSMT has a causal mask only without a cache.
        out = model(input_ids=x, attention_mask=mask, decoder_input_ids=y, use_cache=False)
        memory = difference(found[f"encoder.{i}"], out.encoder_last_hidden_state[0])
        worst["encoder"] = max(worst["encoder"], memory)
        worst["logits"] = max(worst.get("logits", 0.0), difference(found[f"logits.{i}"], out.logits[0]))
    wrong = [f"{what} off by {error:.1e}" for what, error in worst.items() if not error <= BOUND]
    if decodes:
        wrong += searches(program, folder, model, sources, new_tokens, worst)
    return worst, wrong


def listen(program, folder, model, lengths, new_tokens):
    config, settings = model.config, model.generation_config
    generator = torch.Generator().manual_seed(0)
    # The whole, which is all that the library itself takes; odd and even numbers of frames below it.
    frames = [2 * config.max_source_positions, *(min(2 * n - 1, 2 * config.max_source_positions) for n in lengths)]
    lengths = [min(n, config.max_target_positions) for n in [*lengths, lengths[0]]]
    sounds = [whisper.features(generator, n, config.num_mel_bins) for n in frames]
    start = settings.decoder_start_token_id
    targets = [[start, *ids(generator, n, config.vocab_size, None)][:n] for n in lengths]
    memories = [whisper.memory(model, x) for x in sounds]
    worst, wrong = {"encoder": 0.0, "logits": 0.0}, []
    with tempfile.TemporaryDirectory() as scratch:
        path, out = (os.path.join(scratch, name) for name in ("in.safetensors", "out.safetensors"))
        save_file({f"features.{i}": x.contiguous() for i, x in enumerate(sounds)}, path)
        lines = [json.dumps({"decoder_input_ids": target}) for target in targets]
        run(program, folder, lines, "--features", path, "--logits", out, "--score")
        found = load_file(out)
        for i, (memory, target) in enumerate(zip(memories, targets)):
            worst["encoder"] = max(worst["encoder"], difference(found[f"encoder.{i}"], memory))
            expected = whisper.logits(model, memory, target)
            worst["logits"] = max(worst["logits"], difference(found[f"logits.{i}"], expected))
        wrong += [f"{what} off by {error:.1e}" for what, error in worst.items() if not error <= BOUND]
        prefixes = [[]] * len(sounds)
        if hasattr(settings, "lang_to_id"):
            heard = [model.detect_language(encoder_outputs=whisper.outputs(m)).item() for m in memories]
            prefixes = [[language, settings.task_to_id["transcribe"]] for language in heard]
        stamped = getattr(settings, "no_timestamps_token_id", None)
        # Lines that say nothing begin as the checkpoint says.
        lines = ["{}"] * len(sounds)
        for timed in [False] if stamped is None else [False, True]:
            for beams in (1, 4):
                options = ["--beams", str(beams), "--max-new-tokens", str(new_tokens), "--features", path]
                options += ["--num-return-sequences", str(beams), *(["--timestamps"] if timed else [])]
                answers = run(program, folder, lines, *options)
                for i, (memory, prefix, answer) in enumerate(zip(memories, prefixes, answers)):
                    prefix = prefix + ([stamped] if stamped is not None and not timed else [])
                    prompt = [start, *prefix]
                    rows, scores = whisper.search(
                        model, memory, prompt, timed, num_beams=beams, num_return_sequences=beams, max_new_tokens=new_tokens
                    )
                    what = f"{beams} beams, sound {i}{', with times' if timed else ''}"
                    expected = [prefix + row for row in rows]
                    if answer["sequences"] != expected:
                        wrong.append(f"{what}: {answer['sequences'][0]}, expected {expected[0]}")
                    elif beams > 1:
                        error = max(abs(a - b) for a, b in zip(answer["scores"], scores))
                        worst["scores"] = max(worst.get("scores", 0.0), error)
                        if not error <= SCORE:
                            wrong.append(f"{what}: scores off by {error:.1e}")
    return worst, wrong


def searches(program, folder, model, sources, new_tokens, worst):
    worst["scores"] = 0.0
    wrong, settings = [], model.generation_config
    eos = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    lines = [json.dumps({"input_ids": source}) for source in sources]
    for beams in (1, 4):
        options = ["--beams", str(beams), "--max-new-tokens", str(new_tokens), "--num-return-sequences", str(beams)]
        answers = run(program, folder, lines, *options)
        for i, (source, answer) in enumerate(zip(sources, answers)):
            x = torch.tensor([source])
            out = model.generate(
                x,
                attention_mask=torch.ones_like(x),
                num_beams=beams,
                num_return_sequences=beams,
                max_new_tokens=new_tokens,
                do_sample=False,
                return_dict_in_generate=True,
                output_scores=True,
            )
            expected = [stripped(row[1:].tolist(), eos) for row in out.sequences]
            if answer["sequences"] != expected:
                wrong.append(f"{beams} beams, sentence {i}: {answer['sequences'][0]}, expected {expected[0]}")
            elif beams > 1:
                pairs = zip(answer["scores"], out.sequences_scores.tolist())
                error = max(abs(a - b) for a, b in pairs)
                worst["scores"] = max(worst["scores"], error)
                if not error <= SCORE:
                    wrong.append(f"scores of sentence {i} off by {error:.1e}")
    return wrong


def built():
    """The command `simdformer`, built from this repository."""
    build = ["cargo", "build", "--quiet", "--release", "-p", "simdformer-cli"]
    subprocess.run(build, cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "simdformer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simdformer", help="the program; built from this repository without it")
    parser.add_argument("--lengths", default="1,7,40")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("directories", nargs="+", metavar="DIR")
    arguments = parser.parse_args()
    program = arguments.simdformer or built()
    lengths = [int(n) for n in arguments.lengths.split(",")]
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with torch.no_grad():
        good = [compare(program, folder, lengths, arguments.new_tokens) for folder in arguments.directories]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
