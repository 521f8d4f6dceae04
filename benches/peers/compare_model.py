"""Time whole models, ours and the peers', in turn, and print one table of ratios.

Usage: python compare_model.py {--models DIR | --sentences DIR} [--threads 1] [--rounds 3] [--write ../results/MACHINE.tsv]

With --models, DIR is what make_marian_base.py wrote: Transformer-base with random weights. Every engine translates sources
of 32 tokens into exactly 64 new ones, and encodes. With --sentences, DIR is what make_minilm.py wrote: every engine makes
the vectors of ragged sentences, candle among them, as it comes and at its best; each has the setting that is its fastest
over all rounds. A ratio is the median over the rounds of ours over theirs, in tokens per second, so above 1 we are faster.
Run it where nothing else runs.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

import results

# As the bench names them, with the options that ask for them.
FORMS = {
    "f32": ["--weights", "f32"],
    "int8": ["--weights", "int8"],
    "int8,output=int8": ["--weights", "int8,output=int8"],
    "int8 with keys and values in f32": ["--weights", "int8", "--cache", "f32"],
    "int8,output=int8 with keys and values in f32": ["--weights", "int8,output=int8", "--cache", "f32"],
}
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def lines(command, cwd=ROOT, **environment):
    env = os.environ | environment
    out = subprocess.run(command, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def vectors(a):
    """The table of sentence vectors."""
    folder, threads = os.path.abspath(a.sentences), str(a.threads)
    ours = ["cargo", "bench", "-q", "--bench", "model", "--", "--sentences", folder, "--threads", threads]
    candle = ["cargo", "bench", "-q", "--bench", "sentences"]
    candle_threads = {"RAYON_NUM_THREADS": threads}
    # A folder of its own, or each round would compile both again.
    native = candle_threads | {"RUSTFLAGS": "-C target-cpu=native", "CARGO_TARGET_DIR": "target/native"}
    commands = [
        (ours, ROOT, {}),
        (ours + ["--weights", "int8"], ROOT, {}),
        ([sys.executable, str(HERE / "sentences.py"), folder, "--threads", threads, "--runs", "1"], ROOT, {}),
        (candle + ["--", folder], ROOT / "embedding" / "candle", candle_threads),
        (candle + ["--features", "avx512", "--", folder], ROOT / "embedding" / "candle", native),
    ]
    rates = {}
    for round_ in range(a.rounds):
        print(f"round {round_ + 1} of {a.rounds}", file=sys.stderr, flush=True)
        for command, cwd, environment in commands:
            for row in lines(command, cwd, **environment):
                if "allocations" in row:
                    memory = f"{row['plan_bytes'] / 2**20:.1f} MiB, {row['allocations']} allocations"
                    row["setting"] += f"; {memory}"
                rates.setdefault(row["engine"], {}).setdefault(row["setting"], []).append(row["rate"])
    lengths = sorted(map(len, json.load(open(os.path.join(folder, "sentences.json")))["ids"]))
    told = f"{len(lengths)} sentences ({lengths[0]} to {lengths[-1]} tokens, median {lengths[len(lengths) // 2]})"
    best = {}
    for engine, settings in rates.items():
        best[engine] = max(settings, key=lambda setting: statistics.median(settings[setting]))
    ours, bytes_ = (rates[engine][best[engine]] for engine in ("simdformer", "simdformer, int8"))
    table = [
        f"{datetime.date.today()}: the vectors of {told}, BERT of MiniLM-L6's shape (384 wide, 6 layers, 12 heads, "
        f"1536), random weights, mean and length 1, f32 where nothing else is said; tokens per second without padding, medians of {a.rounds} rounds, "
        "each engine in the fastest of its settings. Sorted is by length; a padded batch is as long as its longest sentence. "
        "Ours takes the sentences as they come. ONNX Runtime runs the graph that its own optimizer fuses and, in a row of "
        "its own, the graph as torch exports it, with all that a session optimises by itself; in eight bits both through its "
        "dynamic quantisation, a scale for each column. Where sessions of ours share "
        "the work, the allocation is the pool's that hands it out. candle is "
        "measured as it comes, and compiled for this CPU with the AVX-512 of its GEMM, which no feature of candle names.",
        "",
        "| engine | setting | tok/s | ours, f32, over theirs | ours, int8, over theirs |",
        "|---|---|---|---|---|",
    ]
    for engine in sorted(best, key=lambda engine: -statistics.median(rates[engine][best[engine]])):
        theirs = rates[engine][best[engine]]
        ratios = (statistics.median(x / y for x, y in zip(rate, theirs)) for rate in (ours, bytes_))
        told = " | ".join("" if engine.startswith("simdformer") else f"{ratio:.2f}" for ratio in ratios)
        table.append(f"| {engine} | {best[engine]} | {statistics.median(theirs):.0f} | {told} |")
    return "Sentence vectors", table


def translation(a):
    """The table of encoding and decoding."""
    threads = str(a.threads)
    rates, ratios, memory = {}, {}, {}
    for round_ in range(a.rounds):
        print(f"round {round_ + 1} of {a.rounds}", file=sys.stderr, flush=True)
        ours = {}
        for options in FORMS.values():
            bench = ["cargo", "bench", "-q", "--bench", "model", "--", "--json", "--threads", threads, *options]
            for row in lines(bench):
                key = (row["what"], tuple(row["shape"]))
                ours[key] = row["rate"]
                rates.setdefault(("simdformer", *key), []).append(row["rate"])
                memory[key] = f"{row['plan_bytes'] / 2**20:.1f} MiB, {row['allocations']} allocations"
        for (what, shape), rate in ours.items():
            for forms in list(FORMS)[1:]:
                same = (what.replace(forms, "f32", 1), shape)
                if same[0] != what and same in ours:
                    ratios.setdefault(("simdformer, f32", what, shape), []).append(rate / ours[same])
                    rates.setdefault(("simdformer, f32", what, shape), []).append(ours[same])
        for what in ("encode", "decode"):
            peers = [sys.executable, str(HERE / "peers.py"), what, "--threads", threads, "--models", a.models]
            for row in lines(peers + ["--runs", "3"]):
                # Peers compute no scores in greedy search; ours with scores is measured against the same.
                whats = [row["what"]]
                if " int8" in row["what"]:
                    whats += [row["what"].replace("int8", forms, 1) for forms in list(FORMS)[2:]]
                for what_ours in whats + [what + ", with scores" for what in whats]:
                    key = (what_ours, tuple(row["shape"]))
                    if key not in ours:
                        continue
                    rates.setdefault((row["engine"], *key), []).append(row["rate"])
                    ratios.setdefault((row["engine"], *key), []).append(ours[key] / row["rate"])
    table = [
        f"{datetime.date.today()}: Transformer-base, random weights; tokens per second, medians of {a.rounds} "
        "rounds. Weights are in the form that is named; `int8` leaves the output as it is, since greedy search finds its "
        "largest element from bytes anyway, `int8,output=int8` does not; both keep keys and values in f16 unless the row says "
        "f32. What CTranslate2 encodes is followed by a step of "
        "decoding, which it cannot do without. Memory is our workspace, planned and never exceeded, beside the model's weights; allocations are "
        "those of a whole run.",
        "",
        "| work | batch, source, target | simdformer | memory | peer | peer tok/s | ours over theirs |",
        "|---|---|---|---|---|---|---|",
    ]
    for (engine, what, shape), values in sorted(ratios.items(), key=lambda item: (item[0][1], item[0][2], item[0][0])):
        ours = statistics.median(rates["simdformer", what, shape])
        theirs = statistics.median(rates[engine, what, shape])
        size = ", ".join(map(str, shape))
        table.append(
            f"| {what} | {size} | {ours:.0f} | {memory[what, shape]} | {engine} | {theirs:.0f} "
            f"| {statistics.median(values):.2f} |"
        )
    return "Whole model", table


def main():
    parser = argparse.ArgumentParser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--models")
    what.add_argument("--sentences")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write")
    a = parser.parse_args()
    name, table = vectors(a) if a.sentences else translation(a)
    text = "\n".join(table) + "\n"
    print(text)
    if a.write:
        results.put(a.write, results.title(name, a.threads), text)


if __name__ == "__main__":
    main()
