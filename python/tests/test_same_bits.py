"""One digest: over partitions, threads, sessions and slots, and against the command in Rust."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simdformer import Ragged, Translator, TranslatorOptions

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"beams": 4, "num_return": 2},
    "sample": {"sample": True, "temperature": 1.5, "seed": 3, "num_return": 2},
}


@pytest.fixture(scope="module")
def sources(demo_model: str) -> Ragged:
    """1,000 sources of one to forty tokens."""
    lines = (Path(demo_model) / "held_out.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line)["source_ids"] for line in lines]
    chosen = random.Random(5)
    longer = [row[:-1] * chosen.randint(1, 3) for row in rows]
    rows += [row[: chosen.randint(1, 39)] + [0] for row in longer]
    rows += [chosen.sample(row[:-1], len(row) - 1) + [0] for row in rows]
    return Ragged.from_rows((rows * 1000)[:1000])


def run(translator: Translator, sources: Ragged, order: list[int], cuts: list[int]) -> str:
    """The digest of all results in the order of the sources, computed in parts."""
    ids: list[bytes] = [b""] * len(sources)
    edges = [0, *sorted(cuts), len(order)]
    for start, end in zip(edges, edges[1:], strict=False):
        rows = order[start:end]
        part = Ragged.from_rows([sources[row] for row in rows])
        found = translator.generate(part, scores=True, streams=np.array(rows, np.uint64))
        assert found.scores is not None
        count = found.num_return
        scores = found.scores.reshape(len(rows), count)
        for place, row in enumerate(rows):
            tokens = [found.tokens[count * place + k].tobytes() for k in range(count)]
            ids[row] = b"|".join(tokens) + scores[place].tobytes()
    return hashlib.sha256(b"/".join(ids)).hexdigest()


def partitions(rows: int) -> st.SearchStrategy[tuple[int, int, int, int, list[int]]]:
    return st.tuples(
        st.integers(1, 3),
        st.integers(1, 4),
        st.sampled_from([1, 3, 32, 64]),
        st.integers(0, 2**32),
        st.lists(st.integers(0, rows), max_size=6),
    )


def check(demo_model: str, sources: Ragged, search: str, examples: int) -> None:
    options = SEARCHES[search]
    expected = run(Translator(demo_model, **options), sources, list(range(len(sources))), [])

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(partitions(len(sources)))
    def one_digest(case: tuple[int, int, int, int, list[int]]) -> None:
        threads, sessions, slots, seed, cuts = case
        order = list(range(len(sources)))
        random.Random(seed).shuffle(order)
        with Translator(
            demo_model, threads=threads, sessions=sessions, slots=slots, **options
        ) as translator:
            assert run(translator, sources, order, cuts) == expected, case

    started = time.perf_counter()
    one_digest()
    print(f"{search}: {examples} examples, one digest, {time.perf_counter() - started:.1f} s")


@pytest.mark.parametrize("search", list(SEARCHES))
def test_one_digest_for_some_partitions(demo_model: str, sources: Ragged, search: str) -> None:
    check(demo_model, sources[::10], search, 8)


@pytest.mark.slow
def test_one_digest_for_200_partitions(demo_model: str, sources: Ragged) -> None:
    check(demo_model, sources, "greedy", 120)
    check(demo_model, sources, "beam", 40)
    check(demo_model, sources, "sample", 40)


ROOT = Path(__file__).resolve().parents[2]


def command(demo_model: str, sources: Ragged, arguments: list[str]) -> list[dict[str, Any]]:
    """What `simdformer generate` of this repository writes, a line for each source."""
    lines = "".join(json.dumps({"input_ids": row.tolist()}) + "\n" for row in sources)
    program = ["cargo", "run", "-q", "--release", "-p", "simdformer-cli", "--"]
    found = subprocess.run(
        [*program, "generate", "--model", demo_model, *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        input=lines,
    )
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "arguments"),
    [
        ({}, []),
        ({"beams": 4}, ["--beams", "4"]),
        ({"sample": True, "seed": 3, "top_k": 0}, ["--sample", "--seed", "3", "--top-k", "0"]),
    ],
)
def test_the_command_in_rust_gives_the_same(
    demo_model: str, sources: Ragged, search: dict[str, Any], arguments: list[str]
) -> None:
    lines = command(demo_model, sources, arguments)
    found = Translator(demo_model, **search).generate(sources, scores=True)
    assert found.scores is not None and len(lines) == len(sources) == 1000
    assert [line["sequences"][0] for line in lines] == found.tokens.to_list()
    scores = np.array([line["scores"][0] for line in lines], np.float32)
    assert np.array_equal(scores, found.scores)


def test_options_of_a_call_are_those_of_the_object(demo_model: str, sources: Ragged) -> None:
    few = sources[:20]
    for options in SEARCHES.values():
        own = Translator(demo_model, **options).generate(few)
        call = Translator(demo_model).generate(few, options=TranslatorOptions(**options))
        assert own.tokens == call.tokens
