"""Time this library and the other engines on the same work, in turn, and print one table of ratios.

Usage: python compare.py [gemm] [argmax] [attention] [norm] [--threads 1] [--rounds 5] [--quick] [--write ../results/MACHINE.tsv]

A round runs `cargo bench --bench roofline` and then `peers.py`, one family at a time; a ratio is the median over the
rounds of theirs over ours within a round, so that what drifts over minutes cancels. Above 1 we are faster. Times are
medians over the rounds; `of limit` is our fraction of what the machine can do in the same seconds. Run it where nothing
else runs, with the Python that has requirements.txt.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys

import results

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Family: arguments for our bench, and which of our kernels does what the peers call by another name.
FAMILIES = {
    "gemm": (["gemm/bias|gemm/matrixmultiply"], {"gemm/bias": "linear f32", "gemm/matrixmultiply": "linear f32"}),
    "argmax": (["--exact", "pruned_argmax"], {"pruned_argmax": "largest of linear f32"}),
    "attention": (
        ["attention"],
        {
            "attention": "attention f32",
            "attention/causal": "attention f32 causal",
            "attention/padded": "attention f32, last quarter padded",
            "attention/decode": "attention f32",
        },
    ),
    "norm": (
        ["--exact", "add_layer_norm|softmax|log_softmax|gelu|silu"],
        {
            "add_layer_norm": "add + layer_norm",
            "softmax": "softmax",
            "log_softmax": "log_softmax",
            "gelu": "gelu",
            "silu": "silu",
        },
    ),
}
# Peers that our own bench measures.
IN_PROCESS = {"gemm/matrixmultiply": "matrixmultiply"}
# One engine, whichever of its libraries does the work.
NAMES = {"torch-mkl": "PyTorch", "torch-sdpa": "PyTorch", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
# Another precision is another work.
OTHER_WORK = {"linear bf16"}


def lines(command):
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"compare: {' '.join(map(str, command))} ended with {result.returncode}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def ours(family, options):
    arguments, _ = FAMILIES[family]
    command = ["cargo", "bench", "--quiet", "--bench", "roofline", "--", "--json", "--threads", str(options.threads)]
    # Peers repeat one thing and nothing between; ours takes turns with the limits, and only a longer turn finds its
    # operands in the caches as theirs does.
    command += ["--rounds", "3", "--slice", "0.02"] if options.quick else ["--rounds", "7", "--slice", "0.1"]
    return lines(command + arguments)


def theirs(family, options):
    command = [sys.executable, HERE / "peers.py", family, "--threads", str(options.threads)]
    command += ["--runs", "3", "--floor", "0.01" if options.quick else "0.05"]
    return lines(command)


def measure(options):
    """{(what, shape): {engine: {round: seconds}}}, and the fractions of our kernels."""
    times, fractions = {}, {}
    for number in range(options.rounds):
        for family in options.families:
            print(f"round {number + 1} of {options.rounds}: {family}", file=sys.stderr)
            _, names = FAMILIES[family]
            for row in ours(family, options):
                if row["kernel"] not in names:
                    continue
                key = (names[row["kernel"]], row["shape"])
                engine = IN_PROCESS.get(row["kernel"], "simdformer")
                times.setdefault(key, {}).setdefault(engine, {})[number] = row["seconds"]
                if engine == "simdformer":
                    fractions.setdefault(key, []).append((row["fraction"], row["limit_of"]))
            for row in theirs(family, options):
                if row["what"] in OTHER_WORK:
                    continue
                key = (row["what"], "x".join(map(str, row["shape"])))
                engine = NAMES.get(row["engine"], row["engine"])
                times.setdefault(key, {}).setdefault(engine, {})[number] = row["seconds"]
    return times, fractions


def duration(seconds):
    for scale, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * scale < 1000:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def table(times, fractions):
    engines = []
    for by_engine in times.values():
        engines += [engine for engine in by_engine if engine not in engines + ["simdformer"]]
    rows = [["work", "shape", "simdformer", "of limit"] + [f"{engine} / ours" for engine in engines]]
    for key, by_engine in times.items():
        mine = by_engine.get("simdformer")
        # Nothing to compare with, on one side or the other.
        if not mine or len(by_engine) < 2:
            continue
        fraction = statistics.median(fraction for fraction, _ in fractions[key])
        limits = [limit for _, limit in fractions[key]]
        limit = max(set(limits), key=limits.count)
        row = [*key, duration(statistics.median(mine.values())), f"{fraction:.2f} {limit}"]
        for engine in engines:
            other = by_engine.get(engine, {})
            ratios = [seconds / mine[number] for number, seconds in other.items() if number in mine]
            if not ratios:
                row.append("")
                continue
            row.append(f"{statistics.median(ratios):.2f} ({duration(statistics.median(other.values()))})")
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows)


def versions():
    found = []
    for package in ("torch", "onnxruntime"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    rustc = subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True).stdout.split()
    return ", ".join(found + [f"rustc {rustc[1]}"] if len(rustc) > 1 else found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; all by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that it runs")
    parser.add_argument("--write", type=pathlib.Path, help="also put the table into its section of this file")
    options = parser.parse_args()
    unknown = [family for family in options.families if family not in FAMILIES]
    if unknown or options.rounds < 1 or options.threads < 1:
        parser.error(f"unknown family {unknown[0]}" if unknown else "rounds and threads must be at least 1")
    options.families = options.families or list(FAMILIES)

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    if not load < 0.5:
        print(f"compare: the load of this machine is {load:.1f}: nothing below is to be relied on", file=sys.stderr)
    subprocess.run(["cargo", "bench", "--quiet", "--bench", "roofline", "--no-run"], cwd=ROOT, check=True)
    times, fractions = measure(options)
    now = datetime.datetime.now(datetime.timezone.utc)
    text = "\n".join(
        [
            f"{now:%Y-%m-%d %H:%M} UTC, rounds: {options.rounds}, load at start: {load:.1f}; {versions()}",
            "",
            table(times, fractions),
        ]
    )
    print(text)
    if options.write:
        results.put(options.write, results.title("Kernels", options.threads), text)


if __name__ == "__main__":
    main()
