"""Streams of the recordings of tests/real/recordings.py with the real weights of Whisper tiny.en: is the final text that of
the whole recording, how late are words, and how many stable words change.

    python tests/real/streaming.py MODEL RECORDINGS [NAME...]

MODEL is a directory as whisper_tiny_en.py makes it. Needs the example `streaming` of simdformer-speech, built for release.
DELAYS is the list of delays, in seconds (0.5,1,2; inf for final text only). KEEP names a folder for the output of the example,
which is not run again if it is there.

The latency of a word is the time at which it first is in the stable prefix or final, counting the arrival of audio and the CPU
time of computing on one thread, minus its end in the recording. Words are those of the reference that the final text has,
in the alignment with the fewest edits. A stable word changes if the final text does not have it at its place.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = os.environ.get("EXAMPLE", str(ROOT / "target/release/examples/streaming"))
DELAYS = os.environ.get("DELAYS", "0.5,1,2").split(",")


def words(text):
    return re.findall(r"[a-z0-9']+", text.lower().replace("\u2019", "'"))


def matches(a, b):
    for i, j, count in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        yield from ((i + k, j + k) for k in range(count))


def aligned(a, b):
    """Pairs of equal words in an alignment with the fewest edits."""
    distance = np.zeros((len(a) + 1, len(b) + 1), int)
    distance[:, 0], distance[0] = range(len(a) + 1), range(len(b) + 1)
    for i, word in enumerate(a, 1):
        row, above = distance[i], distance[i - 1]
        for j, other in enumerate(b, 1):
            row[j] = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (word != other))
    i, j, pairs = len(a), len(b), []
    while i and j:
        if a[i - 1] == b[j - 1] and distance[i, j] == distance[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
            continue
        step = np.argmin([distance[i - 1, j - 1], distance[i - 1, j], distance[i, j - 1]])
        i, j = i - (step != 2), j - (step != 1)
    return pairs


def events(model, path, delay, keep):
    kept = keep / f"{path.stem}-{float(delay)}.jsonl"
    if not kept.exists():
        done = subprocess.run([EXAMPLE, model, delay, path], capture_output=True, text=True, check=True)
        kept.write_text(done.stdout)
    *lines, end = [json.loads(line) for line in kept.read_text().splitlines()]
    return lines, end


def measure(lines, about):
    """Latencies in seconds, and the numbers of words that became stable and of those that changed."""
    final = [words(line["text"]) for line in lines if line["final"]]
    final = [word for segment in final for word in segment]
    seen, stable, changed, done, before = {}, 0, 0, 0, []
    for line in lines:
        if line["final"]:
            count = len(words(line["text"]))
            for i in range(done, done + count):
                seen.setdefault(i, line["at"])
            done, before = done + count, before[count:]
            continue
        now = words(line["stable"])
        same = next((i for i, (a, b) in enumerate(zip(before, now)) if a != b), min(len(before), len(now)))
        # What the final text has from here on; a stable prefix may be longer or shorter than it.
        rest = final[done : done + len(now) + 10]
        kept = dict(matches(now, rest))
        for i, place in kept.items():
            seen.setdefault(done + place, line["at"])
        stable += len(now) - same
        changed += sum(i not in kept for i in range(same, len(now)))
        before = now
    spoken = [(word, entry["end"]) for entry in about["words"] or [] for word in words(entry["word"])]
    pairs = aligned([word for word, _ in spoken], final)
    return [seen[j] - spoken[i][1] for i, j in pairs], stable, changed


def main():
    model, recordings, *names = sys.argv[1:]
    paths = sorted(path for path in Path(recordings).glob("*.wav") if not names or path.stem in names)
    assert paths, "no recordings"
    unequal = []
    print("| delay | recording | s | CPU s | tentative texts | CPU s of one | latency, median | 95 % | stable words | changed |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        keep = Path(os.environ.get("KEEP", folder))
        for delay in DELAYS:
            every, costs, totals = [], [], np.zeros(5)
            for path in paths:
                lines, end = events(model, path, delay, keep)
                if not end["equal"]:
                    unequal.append((path.stem, delay))
                found, stable, changed = measure(lines, json.loads(path.with_suffix(".json").read_text()))
                cost = [line["cost"] for line in lines if "cost" in line]
                every += found
                costs += cost
                counts = [end["seconds"], end["cpu"], end["updates"], stable, changed]
                totals += counts
                row(delay, path.stem, counts, cost, found)
            row(delay, "all", totals, costs, every)
    print("final text unlike the offline text:", *unequal or ["none"])
    assert not unequal


def row(delay, name, counts, costs, latencies):
    seconds, cpu, updates, stable, changed = counts
    cost = f"{np.median(costs):.2f}" if costs else ""
    late = [f"{np.percentile(latencies, part):.2f}" if latencies else "" for part in (50, 95)]
    share = f"{changed / stable:.3f}" if stable else ""
    print(f"| {delay} | {name} | {seconds:.0f} | {cpu:.0f} | {updates:.0f} | {cost} | {' | '.join(late)} | {stable:.0f} | {share} |", flush=True)


main()
