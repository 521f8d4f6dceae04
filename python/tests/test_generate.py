"""`Translator.generate`: ids in, ids out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdformer
from simdformer import Finish, Ragged, Translator, TranslatorOptions


@pytest.fixture(scope="module")
def held_out(demo_model: str) -> list[dict[str, Any]]:
    lines = (Path(demo_model) / "held_out.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def sources(held_out: list[dict[str, Any]]) -> Ragged:
    return Ragged.from_rows([row["source_ids"] for row in held_out])


def test_gives_the_ids_of_the_trained_model(
    translator: Translator, held_out: list[dict[str, Any]], sources: Ragged
) -> None:
    found = translator.generate(sources.ids, sources.offsets)
    assert found.tokens.to_list() == [row["greedy_ids"] for row in held_out]
    assert found.scores is None and found.errors == []
    assert set(found.finish.tolist()) == {Finish.END}


def test_the_end_token_may_be_forced_at_the_maximum_length(
    translator: Translator, demo_model: str, sources: Ragged, tmp_path: Path
) -> None:
    def last(model: Translator, forced: bool | None) -> list[int]:
        options = TranslatorOptions(max_new_tokens=2, forced_eos=forced)
        tokens = model.generate(sources[:9], options=options).tokens
        assert [len(row) for row in tokens] == [2] * 9
        return [int(row[-1]) for row in tokens]

    free = shutil.copytree(demo_model, tmp_path / "free")
    for file in (free / "config.json", free / "generation_config.json"):
        settings = json.loads(file.read_text("utf-8"))
        end = settings.pop("forced_eos_token_id")
        file.write_text(json.dumps(settings), "utf-8")
    # The checkpoint decides, unless the option does.
    other = Translator(free)
    assert last(translator, None) == last(translator, True) == last(other, True) == [end] * 9
    written = last(translator, False)
    assert end not in written
    assert last(other, None) == last(other, False) == written


def test_every_form_of_rows_is_the_same(translator: Translator, sources: Ragged) -> None:
    pa = pytest.importorskip("pyarrow")
    few = sources[5:25]
    expected = translator.generate(few).tokens
    lists = few.to_list()
    forms: list[Any] = [
        lists,
        [np.array(row) for row in lists],
        pa.array(lists, pa.list_(pa.int32())),
        pa.array([[1], *lists], pa.large_list(pa.uint32()))[1:],
        pa.chunked_array([lists[:3], lists[3:]], pa.list_(pa.int64())),
    ]
    for form in forms:
        assert translator.generate(form).tokens == expected
    assert translator.generate(few.ids, few.offsets.astype(np.int32)).tokens == expected
    assert expected.to_arrow().to_pylist() == expected.to_list()
    assert Ragged.from_arrow(pa.array(expected)) == expected


def test_several_sequences_with_their_scores(translator: Translator, sources: Ragged) -> None:
    few = sources[:10]
    found = translator.generate(few, beams=4, num_return=3)
    assert found.scores is not None and found.scores.shape == (10, 3)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    best = translator.generate(few, beams=4)
    assert best.tokens == found.tokens[::3]
    assert best.scores is not None and np.array_equal(best.scores, found.scores[:, 0])


def test_samples_depend_on_their_stream_alone(translator: Translator, sources: Ragged) -> None:
    options = simdformer.TranslatorOptions(sample=True, temperature=2.0)
    few = sources[:12]
    every = translator.generate(few, options=options, seed=7)
    streams = np.array([9, 2, 4])
    some = Ragged.from_rows([few[int(row)] for row in streams])
    part = translator.generate(some, options=options, seed=7, streams=streams)
    assert part.tokens.to_list() == [every.tokens[int(row)].tolist() for row in streams]
    assert translator.generate(few, options=options, seed=8).tokens != every.tokens


def test_a_prefix_comes_first(translator: Translator, sources: Ragged) -> None:
    few = sources[:8]
    free = translator.generate(few).tokens
    prefix = [row[:2] for row in free]
    forced = translator.generate(few, prefix=prefix).tokens
    assert [[*head, *row] for head, row in zip(prefix, forced, strict=True)] == free.to_list()


def test_a_refused_row_does_not_refuse_the_call(translator: Translator, sources: Ragged) -> None:
    good = sources[:4].to_list()
    bad: list[list[int]] = [[], [7_000_000], [5] * 4000]
    rows = [bad[0], good[0], bad[1], good[1], good[2], bad[2], good[3]]
    found = translator.generate(rows, errors="column", scores=True)
    assert [type(error).__name__ for error in found.errors] == [
        "InputError",
        "NoneType",
        "TokenError",
        "NoneType",
        "NoneType",
        "LimitError",
        "NoneType",
    ]
    alone = translator.generate(good, scores=True)
    kept = [1, 3, 4, 6]
    assert [found.tokens[row].tolist() for row in kept] == alone.tokens.to_list()
    assert found.scores is not None and np.isnan(found.scores[[0, 2, 5]]).all()
    assert np.array_equal(found.scores[kept], alone.scores)
    assert found.finish[0] == Finish.REFUSED
    with pytest.raises(simdformer.TokenError) as raised:
        translator.generate([good[0], bad[1]])
    assert (raised.value.index, raised.value.found) == (1, 7_000_000)


def test_no_rows(translator: Translator) -> None:
    found = translator.generate([], scores=True)
    assert len(found) == 0 and len(found.tokens) == 0


def test_out_receives_the_result(translator: Translator, sources: Ragged) -> None:
    few = sources[:5]
    expected = translator.generate(few).tokens
    out = Ragged.of_checked(np.zeros(200, np.uint32), np.zeros(9, np.int64))
    found = translator.generate(few, out=out).tokens
    assert found == expected and found.ids.base is out.ids
    with pytest.raises(simdformer.InputError, match="out.ids"):
        translator.generate(few, out=Ragged.of_checked(np.zeros(3, np.uint32), out.offsets))


def test_progress_counts_rows(translator: Translator, sources: Ragged) -> None:
    counts: list[int] = []
    translator.generate(sources, progress=counts.append)
    assert counts[-1] == len(sources) and counts == sorted(counts)
