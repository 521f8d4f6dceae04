"""Translation beside the Python package of CTranslate2: the same rows of ids, base size with random weights, f32 and int8.

    python benches/peers/make_marian_base.py /tmp/base         # needs torch, transformers and ctranslate2
    python python/benches/translate.py /tmp/base --threads 1

Rows have 4 to 60 source tokens; each target has exactly --target tokens, so that both do the same work. CTranslate2 gets the
batch size with which it is fastest here; this package takes all rows. CTranslate2's int8 rounds the output matrix, too, so ours is
measured as `int8`, whose output matrix is f32, and as `int8,output=int8`. Rounds alternate; the median of the ratios is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import ctranslate2
import numpy as np

import simdformer

VOCABULARY = 32_000


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--target", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--kind", choices=("f32", "int8", "both"), default="both")
    given = parser.parse_args()
    draw = np.random.default_rng(3)
    rows = [[*draw.integers(2, VOCABULARY - 1, draw.integers(3, 60)).tolist(), 0] for _ in range(given.rows)]
    names = [[f"t{id}" for id in row[:-1]] for row in rows]
    length = simdformer.TranslatorOptions(min_new_tokens=given.target, max_new_tokens=given.target)
    kinds = {"f32": ["f32"], "int8": ["int8", "int8,output=int8"]}
    for dtype in kinds["f32"] + kinds["int8"] if given.kind == "both" else kinds[given.kind]:
        kind = dtype.partition(",")[0]
        ours = simdformer.Translator(f"{given.models}/hf", dtype=dtype, threads=given.threads)
        theirs = ctranslate2.Translator(
            f"{given.models}/ct2_{kind}",
            inter_threads=1,
            intra_threads=given.threads,
            compute_type="float32" if kind == "f32" else "int8",
        )

        def run_ours(translator: simdformer.Translator = ours) -> object:
            return translator.generate(rows, beams=given.beams, options=length)

        def run_theirs(size: int, translator: ctranslate2.Translator = theirs) -> object:
            lengths = {"min_decoding_length": given.target, "max_decoding_length": given.target}
            return translator.translate_batch(names, beam_size=given.beams, max_batch_size=size, **lengths)

        run_ours()
        # The first call of each size allocates.
        best = min((16, 32, 64), key=lambda size: (run_theirs(size), seconds(lambda: run_theirs(size)))[1])
        ratios = []
        for _ in range(given.rounds):
            mine, other = seconds(run_ours), seconds(lambda: run_theirs(best))
            ratios.append(other / mine)
            rates = [given.rows * given.target / each for each in (mine, other)]
            print(f"{dtype}: {rates[0]:.0f} tok/s, CTranslate2 {rates[1]:.0f} tok/s in batches of {best}")
        print(f"{dtype}, {given.threads} threads, {given.beams} beams: median {statistics.median(ratios):.2f} times CTranslate2")


if __name__ == "__main__":
    main()
