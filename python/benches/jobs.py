"""A job in one process against the command `simdformer`, on the same rows, in turn.

    cargo build --release -p simdformer-cli && pip install ./python[jobs]
    python python/benches/jobs.py --command target/release/simdformer --model models/fr-en --rows 20000 --rounds 5

Prints the rows per second of both, and the median ratio of the job to the command: of the time of the clock, and of CPU
time, which a busy machine changes less. "rows alone" leaves out the start of Python and the imports, about half a second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

JOB = """
import sys, time
from simdformer.jobs import Config, run
begin, cpu = time.monotonic(), time.process_time()
run(sys.argv[1], sys.argv[2], Config(sys.argv[3], threads=1))
print(time.monotonic() - begin, time.process_time() - cpu)
"""


def timed(arguments: list[str]) -> tuple[float, float, str]:
    """Seconds of the clock, seconds of CPU, and the output of a program."""
    before, begin = os.times(), time.monotonic()
    ran = subprocess.run(arguments, check=True, capture_output=True, text=True)
    seconds, after = time.monotonic() - begin, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, ran.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = (Path(options.model) / "held_out.jsonl").read_text("utf-8").splitlines()
    sentences = [json.loads(line)["source"] for line in lines]
    count = len(sentences)
    # Different texts: each second sentence belongs to another first one in each round through the list.
    texts = [f"{sentences[row % count]} {sentences[(row // count * 7 + row) % count]}" for row in range(options.rows)]
    with tempfile.TemporaryDirectory() as folder:
        table, lines_file = Path(folder) / "rows.parquet", Path(folder) / "rows.jsonl"
        pq.write_table(pa.table({"text": texts}), table)
        lines_file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
        command = [options.command, "translate", "--model", options.model, "--threads", "1", "--format", "jsonl"]
        command += ["--column", "text", "--file", str(lines_file), "--output"]
        ratios: dict[str, list[float]] = {"clock": [], "CPU": [], "clock, rows alone": [], "CPU, rows alone": []}
        for number in range(options.rounds):
            seconds, cpu, _ = timed([*command, f"{folder}/{number}.jsonl"])
            job = [sys.executable, "-c", JOB, str(table), f"{folder}/{number}", options.model]
            job_seconds, job_cpu, printed = timed(job)
            alone, alone_cpu = map(float, printed.split())
            found = (seconds / job_seconds, cpu / job_cpu, seconds / alone, cpu / alone_cpu)
            for values, ratio in zip(ratios.values(), found, strict=True):
                values.append(ratio)
            print(
                f"command {options.rows / seconds:.0f} rows/s ({options.rows / cpu:.0f} per CPU second), "
                f"job {options.rows / job_seconds:.0f} rows/s ({options.rows / job_cpu:.0f})"
            )
        found_rows = pa.concat_tables(pq.read_table(file) for file in sorted(Path(folder, "0").glob("*.parquet")))
        written = [json.loads(line)["translation"] for line in Path(folder, "0.jsonl").read_text("utf-8").splitlines()]
        same = sum(a == b for a, b in zip(found_rows.column("translation").to_pylist(), written, strict=True))
        print(f"equal translations: {same} of {options.rows}")
        for name, values in ratios.items():
            print(f"job / command, {name}: median {statistics.median(values):.3f} of {len(values)}")


if __name__ == "__main__":
    main()
