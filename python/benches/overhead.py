"""What a call and the import cost: needs an idle machine and a build with --release.

    python python/benches/overhead.py models/fr-en

A call without rows has the whole cost of the binding and none of the model: at most 5 us with one thread. With more threads
a call is handed to a thread of the pool, which a Rust program pays for, too. The import: at most 5 ms, without numpy. All are
the least of several.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import simdformer

IMPORT = """
import sys, time
started = time.perf_counter()
import simdformer
elapsed = time.perf_counter() - started
assert "numpy" not in sys.modules and "pyarrow" not in sys.modules
print(1e3 * elapsed)
"""


def per_call(translator: simdformer.Translator, rows: simdformer.Ragged, calls: int) -> float:
    """Microseconds of a call."""
    times = []
    for _ in range(50):
        started = time.perf_counter()
        for _ in range(calls):
            translator.generate(rows.ids, rows.offsets)
        times.append((time.perf_counter() - started) / calls)
    return 1e6 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    given = parser.parse_args()
    ragged = simdformer.Ragged
    for threads in (1, 2):
        translator = simdformer.Translator(given.model, threads=threads)
        print(f"{threads} threads, a call without rows: {per_call(translator, ragged.from_rows([]), 500):.1f} us")
        one = ragged.from_rows(translator.encode(["il fait froid"]).to_list())
        print(f"{threads} threads, a call with one sentence: {per_call(translator, one, 20):.1f} us")
    command = [sys.executable, "-c", IMPORT]
    times = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(10)]
    print(f"import: {min(times):.2f} ms")


if __name__ == "__main__":
    main()
