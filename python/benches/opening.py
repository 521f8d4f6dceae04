"""How long a model takes to open from two directories, in turn: a checkpoint, and the same converted by CTranslate2.

Usage: python opening.py FIRST SECOND [DTYPE]

Both need tokenizers of one kind, which are opened, too.
"""

from __future__ import annotations

import sys
import time

import simdformer

RUNS = 7


def seconds(path: str, dtype: str | None) -> float:
    begin = time.perf_counter()
    simdformer.Model(path, dtype=dtype)
    return time.perf_counter() - begin


def main(first: str, second: str, dtype: str | None = None) -> None:
    times = [(seconds(first, dtype), seconds(second, dtype)) for _ in range(RUNS)]
    one, other = (min(column) for column in zip(*times, strict=True))
    middle = sorted(b / a for a, b in times)[RUNS // 2]
    print(f"{first} {one:.3f} s, {second} {other:.3f} s, median ratio {middle:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
