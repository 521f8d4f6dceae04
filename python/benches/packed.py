"""How fast a packed model opens, and how much memory eight processes take that map one file of weights.

    python benches/peers/make_marian_base.py /tmp/base         # needs torch, transformers and ctranslate2
    simdformer pack --model /tmp/base/hf --weights int8 /tmp/base_packed
    python python/benches/packed.py /tmp/base_packed

Linux only: the memory is the proportional set size, in which a page that n processes map counts as 1/n in each.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from pathlib import Path

import simdformer

ROWS = [[*range(5, 25), 0]] * 4


def open_once(path: str, dtype: str) -> float:
    started = time.perf_counter()
    # The model is opened when something of it is needed first.
    size = simdformer.Model(path, dtype=dtype).bytes
    elapsed = time.perf_counter() - started
    assert size > 0
    return 1e3 * elapsed


def megabytes(process: int) -> float:
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1e3


def translating_child(path: str, dtype: str) -> tuple[int, int]:
    """A process that has translated and waits; the pipe whose end lets it go."""
    ready, write = os.pipe()
    read, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done)
        simdformer.Translator(path, dtype=dtype, threads=1).generate(ROWS, max_new_tokens=8)
        os.write(write, b"!")
        os.read(read, 1)
        os._exit(0)
    # So that a child that fails ends the pipe.
    os.close(read)
    os.close(write)
    assert os.read(ready, 1) == b"!"
    os.close(ready)
    return child, done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the directory that `simdformer pack` wrote")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--processes", type=int, default=8)
    given = parser.parse_args()
    # Imports what a model needs.
    open_once(given.model, given.dtype)
    times = [open_once(given.model, given.dtype) for _ in range(12)]
    print(f"opens in {statistics.median(times):.2f} ms, at most {max(times):.2f}")
    children = []
    for count in range(1, given.processes + 1):
        children.append(translating_child(given.model, given.dtype))
        if count in (1, given.processes):
            print(f"{count} processes: {sum(megabytes(child) for child, _ in children):.0f} MB")
    for child, done in children:
        os.write(done, b"!")
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
