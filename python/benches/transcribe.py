"""Speed of transcription beside faster-whisper and whisper.cpp, in one process, the models loaded before.

    python python/benches/transcribe.py RECORDINGS MODEL CT2 [--threads 1] [--shape tiny|base|small] [--names NAME,...]

RECORDINGS is what tests/real/recordings.py wrote. MODEL and CT2 are the directories of Whisper tiny.en as it is published and
as CTranslate2 reads it, which tests/real/whisper_tiny_en.py makes. `base` and `small` have random weights of those shapes, and
each window then has 30 seconds and 64 tokens, for all engines. Needs a build with --release, faster-whisper 1.2,
and transformers; whisper.cpp is measured if pywhispercpp is installed, with weights of q8_0.

All engines decode in int8; --dtype is ours. For tiny.en the mean of the word error rates is beside the seconds, and the rate of
each recording is below them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import struct
import tempfile
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import simdformer

# Width, heads and layers.
SHAPES = {"base": (512, 8, 6), "small": (768, 12, 12)}
TOKENS = 64
Recordings = list[tuple[str, npt.NDArray[np.float32]]]
Texts = list[str]


def samples(path: Path) -> npt.NDArray[np.float32]:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def random_model(shape: str, like: Path, folder: Path) -> tuple[Path, Path]:
    """A model of random weights, as it is published and as CTranslate2 reads it."""
    import torch
    from ctranslate2.converters import TransformersConverter
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    width, heads, layers = SHAPES[shape]
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
             (("layers", layers), ("attention_heads", heads), ("ffn_dim", 4 * width))}
    config = WhisperConfig.from_pretrained(like, d_model=width, num_hidden_layers=layers, **sizes)
    torch.manual_seed(0)
    place, converted = folder / shape, folder / f"{shape}-ct2"
    WhisperForConditionalGeneration(config).save_pretrained(place)
    for file in like.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, place)
    copied = ["tokenizer.json", "preprocessor_config.json"]
    TransformersConverter(str(place), copy_files=copied).convert(str(converted))
    return place, converted


def ggml_model(place: Path, file: Path) -> None:
    """Writes a directory as it is published in whisper.cpp's format, with matrices of q8_0."""
    from safetensors.numpy import load_file
    from transformers import WhisperFeatureExtractor, WhisperTokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    config = json.loads((place / "config.json").read_text())
    filters = np.asarray(WhisperFeatureExtractor.from_pretrained(place).mel_filters, np.float32).T
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokenizer = WhisperTokenizer.from_pretrained(place)
    vocabulary = sorted((index, token) for token, index in tokenizer.get_vocab().items() if index < 50257)
    words = [bytes(letters.get(letter, 63) for letter in token) for _, token in vocabulary]
    numbers = (config["vocab_size"], config["max_source_positions"], config["d_model"], config["encoder_attention_heads"],
               config["encoder_layers"], config["max_target_positions"], config["d_model"], config["decoder_attention_heads"],
               config["decoder_layers"], config["num_mel_bins"])
    renamed = [("model.", ""), (".layers.", ".blocks."), ("embed_tokens", "token_embedding"),
               ("embed_positions.weight", "positional_embedding"), ("encoder_attn_layer_norm", "cross_attn_ln"),
               ("self_attn_layer_norm", "attn_ln"), ("final_layer_norm", "mlp_ln"), ("encoder_attn", "cross_attn"),
               ("self_attn", "attn"), ("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"),
               ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln")]
    with file.open("wb") as out:
        # A file of ftype 7 (q8_0), version 2 of the quantization.
        out.write(struct.pack("<12i", 0x67676D6C, *numbers, 2007))
        out.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        out.write(struct.pack("<i", len(words)))
        for word in words:
            out.write(struct.pack("<i", len(word)) + word)
        for name, tensor in load_file(place / "model.safetensors").items():
            if name == "proj_out.weight":
                continue
            for old, new in renamed:
                name = name.replace(old, new)
            if "conv" in name and name.endswith("bias"):
                tensor = tensor.reshape(-1, 1)
            kind, data = 0, tensor.astype(np.float32)
            if "conv" in name and tensor.ndim == 3:
                kind, data = 1, tensor.astype(np.float16)
            elif tensor.ndim == 2 and name.endswith("weight"):
                blocks = data.reshape(-1, 32)
                scale = np.abs(blocks).max(1, keepdims=True) / 127
                values = np.rint(np.divide(blocks, scale, where=scale > 0, out=np.zeros_like(blocks))).astype(np.int8)
                kind, data = 8, np.hstack([scale.astype("<f2").view(np.int8).reshape(-1, 2), values])
            encoded = name.encode()
            out.write(struct.pack("<3i", tensor.ndim, len(encoded), kind))
            out.write(struct.pack(f"<{tensor.ndim}i", *tensor.shape[::-1]) + encoded + np.ascontiguousarray(data).tobytes())


def engines(
    place: Path, converted: Path, ggml: Path | None, dtype: str, threads: int, beams: int, fixed: bool
) -> dict[str, Callable[[Recordings], Texts]]:
    """What is measured: functions from recordings to texts. `fixed`: each window has the same length and text length."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    own: dict[str, Any] = {"beams": beams}
    their: dict[str, Any] = {"beam_size": beams, "language": "en"}
    if fixed:
        own |= {"temperatures": [0.0], "timestamps": False, "max_new_tokens": TOKENS, "vad": False}
        own |= {name: False for name in ("no_speech_threshold", "logprob_threshold", "compression_ratio_threshold")}
        own |= {"condition_on_previous_text": False}
        their |= {"temperature": [0.0], "without_timestamps": True, "max_new_tokens": TOKENS}
        their |= {"no_speech_threshold": None, "log_prob_threshold": None, "compression_ratio_threshold": None}
    one = simdformer.Transcriber(place, threads=threads, dtype=dtype, **own)
    many = simdformer.Transcriber(place, threads=threads, dtype=dtype, batched=True, **own)
    peer = WhisperModel(str(converted), device="cpu", compute_type="int8", cpu_threads=threads)
    pipeline = BatchedInferencePipeline(peer)

    def ours(transcriber: simdformer.Transcriber) -> Callable[[Recordings], Texts]:
        return lambda all: [transcriber.transcribe_all(audio, 16000).text for _, audio in all]

    def theirs(model: Any, **more: Any) -> Callable[[Recordings], Texts]:
        def run(all: Recordings) -> Texts:
            found = (model.transcribe(audio, **their, **more)[0] for _, audio in all)
            return ["".join(segment.text for segment in segments) for segments in found]

        return run

    sequential: dict[str, Any] = {"condition_on_previous_text": False} if fixed else {}
    # Without speech in the sense of its detector, the windows of random models are given.
    clips: dict[str, Any] = {"vad_filter": False} if fixed else {}
    measured = {"ours": ours(one), "ours, batched": ours(many), "faster-whisper": theirs(peer, **sequential)}
    if fixed:

        def cut(all: Recordings) -> Texts:
            texts = []
            for _, audio in all:
                spans = [{"start": at / 16000, "end": min(at + 480_000, len(audio)) / 16000} for at in range(0, len(audio), 480_000)]
                found, _ = pipeline.transcribe(audio, clip_timestamps=spans, **clips, **their)
                texts.append("".join(segment.text for segment in found))
            return texts

        measured["faster-whisper, batched"] = cut
    else:
        measured["faster-whisper, batched"] = theirs(pipeline)
    if ggml is not None:
        from pywhispercpp.model import Model

        options: dict[str, Any] = {"n_threads": threads, "language": "en", "print_progress": False, "print_realtime": False}
        if fixed:
            options |= {"temperature_inc": 0.0, "max_tokens": TOKENS, "no_context": True, "no_timestamps": True, "entropy_thold": 99.0}
        if beams > 1:
            cpp = Model(str(ggml), params_sampling_strategy=1, redirect_whispercpp_logs_to=None, **options)
            cpp._params.beam_search = {"beam_size": beams, "patience": -1.0}
        else:
            cpp = Model(str(ggml), redirect_whispercpp_logs_to=None, **options)
        measured["whisper.cpp"] = lambda all: ["".join(s.text for s in cpp.transcribe(audio)) for _, audio in all]
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("ct2", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", choices=["tiny", *SHAPES], default="tiny")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--names", default="human,read-us,words,pauses")
    parser.add_argument("--dtype", default="int8,output=int8")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    paths = [given.recordings / f"{name}.wav" for name in given.names.split(",")]
    recordings = [(path.stem, samples(path)) for path in paths]
    expected = [json.loads(path.with_suffix(".json").read_text())["text"] for path in paths]
    seconds = sum(len(audio) for _, audio in recordings) / 16000
    fixed = given.shape != "tiny"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place, converted = (given.model, given.ct2) if not fixed else random_model(given.shape, given.model, folder)
        ggml = None
        if importlib.util.find_spec("pywhispercpp") is None:
            print("whisper.cpp: pywhispercpp is not installed")
        else:
            ggml = folder / "model.bin"
            ggml_model(place, ggml)
        print(f"{given.shape}, {seconds:.0f} s of sound, {given.threads} threads, median of {given.rounds} rounds\n")
        print("| beams | what | s | times ours | WER |\n|---|---|---|---|---|", flush=True)
        for beams in given.beams:
            measured = engines(place, converted, ggml, given.dtype, given.threads, beams, fixed)
            times: dict[str, list[float]] = {what: [] for what in measured}
            texts: dict[str, Texts] = {}
            for _ in range(given.rounds):
                for what, run in measured.items():
                    started = time.perf_counter()
                    texts[what] = run(recordings)
                    times[what].append(time.perf_counter() - started)
            base = statistics.median(times["ours"])
            rates = {what: [] if fixed else error_rates(expected, texts[what]) for what in measured}
            for what, all in times.items():
                median, mean = statistics.median(all), f"{statistics.mean(rates[what]):.3f}" if rates[what] else ""
                print(f"| {beams} | {what} | {median:.2f} | {median / base:.2f} | {mean} |", flush=True)
            for what, each in rates.items():
                shown = (f"{name} {rate:.3f}" for (name, _), rate in zip(recordings, each, strict=False))
                print(f"{what}, {beams} beams: {', '.join(shown)}\n" if each else "", end="", flush=True)


def error_rates(expected: Texts, found: Texts) -> list[float]:
    """The word error rate of each recording, after transformers' normalization of English."""
    import jiwer
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    normalize = EnglishTextNormalizer({})
    pairs = [(normalize(want).strip(), normalize(got).strip()) for want, got in zip(expected, found, strict=True)]
    return [jiwer.wer(want, got) if got else 1.0 for want, got in pairs]


if __name__ == "__main__":
    main()
