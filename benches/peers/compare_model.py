"""Time whole models, ours and the peers', in turn, and print one table of ratios.

Usage: python compare_model.py --models DIR [--threads 1] [--rounds 3] [--write ../RESULTS.md]

DIR is what make_marian_base.py wrote: Transformer-base with random weights. Every engine translates sources of 32
tokens into exactly 64 new ones, and encodes; a ratio is the median over the rounds of ours over theirs, in tokens per
second, so above 1 we are faster. Run it where nothing else runs.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

import results

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def lines(command):
    out = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write")
    a = parser.parse_args()
    threads = str(a.threads)
    rates, ratios, memory = {}, {}, {}
    for round_ in range(a.rounds):
        print(f"round {round_ + 1} of {a.rounds}", file=sys.stderr, flush=True)
        ours = {}
        for row in lines(["cargo", "bench", "-q", "--bench", "model", "--", "--json", "--threads", threads]):
            key = (row["what"], tuple(row["shape"]))
            ours[key] = row["rate"]
            rates.setdefault(("simdformer", *key), []).append(row["rate"])
            memory[key] = f"{row['plan_bytes'] / 2**20:.1f} MiB, {row['allocations']} allocations"
        for what in ("encode", "decode"):
            peers = [sys.executable, str(HERE / "peers.py"), what, "--threads", threads, "--models", a.models]
            for row in lines(peers + ["--runs", "3"]):
                # Peers compute no scores in greedy search; ours with scores is measured against the same.
                for what_ours in (row["what"], row["what"] + ", with scores"):
                    key = (what_ours, tuple(row["shape"]))
                    if key not in ours:
                        continue
                    rates.setdefault((row["engine"], *key), []).append(row["rate"])
                    ratios.setdefault((row["engine"], *key), []).append(ours[key] / row["rate"])
    table = [
        f"{datetime.date.today()}: Transformer-base, f32, random weights; tokens per second, medians of {a.rounds} "
        "rounds. Memory is our workspace, planned and never exceeded, beside the model's weights; allocations are "
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
    text = "\n".join(table) + "\n"
    print(text)
    if a.write:
        results.put(a.write, results.title("Whole model", a.threads), text)


if __name__ == "__main__":
    main()
