"""Two sessions of one process, and two processes, against one: needs two idle cores and a build with --release.

    python python/benches/scaling.py models/fr-en --rows 20000 --rounds 3

Prints the median ratio of the rows per second; at least 1.9 is expected of both.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import simdformer


def sources(model: str, rows: int) -> list[list[int]]:
    lines = (Path(model) / "held_out.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["source"] for line in lines]
    found = simdformer.Translator(model).encode(texts).to_list()
    return [found[row % len(found)] for row in range(rows)]


def timed(translator: simdformer.Translator, rows: list[list[int]]) -> float:
    ragged = simdformer.Ragged.from_rows(rows)
    started = time.perf_counter()
    translator.generate(ragged)
    return time.perf_counter() - started


def serve(model: str, rows: list[list[int]], pipe: Connection) -> None:
    translator = simdformer.Translator(model, threads=1)
    timed(translator, rows[:100])
    pipe.send("ready")
    while pipe.recv() == "go":
        pipe.send(timed(translator, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = sources(given.model, given.rows)
    one, two = (simdformer.Translator(given.model, threads=count, sessions=count) for count in (1, 2))
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for half in (rows[::2], rows[1::2]):
        pipe, theirs = context.Pipe()
        children.append(context.Process(target=serve, args=(given.model, half, theirs)))
        children[-1].start()
        assert pipe.recv() == "ready"
        pipes.append(pipe)
    timed(one, rows[:100]), timed(two, rows[:100])
    ratios: dict[str, list[float]] = {"two sessions": [], "two processes": []}
    for _ in range(given.rounds):
        alone, sessions = timed(one, rows), timed(two, rows)
        for pipe in pipes:
            pipe.send("go")
        processes = max(pipe.recv() for pipe in pipes)
        ratios["two sessions"].append(alone / sessions)
        ratios["two processes"].append(alone / processes)
        print(f"one: {given.rows / alone:.0f} rows/s, two sessions: {given.rows / sessions:.0f}, two processes: {given.rows / processes:.0f}")
    for pipe, child in zip(pipes, children, strict=True):
        pipe.send("end")
        child.join()
    for name, values in ratios.items():
        print(f"{name}: median {statistics.median(values):.2f} times one")


if __name__ == "__main__":
    main()
