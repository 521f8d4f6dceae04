"""`Config` and `Map`: nulls, equal sources, slices, bad rows, and bits that do not depend on the table around a row."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from simdformer import Embedder, InputError, IsaError, OptionError, Translator, available_isas
from simdformer.jobs import Config, Map, RowError
from simdformer.jobs.worker import worker


def table_of(sentences: list[str], count: int) -> Any:
    return pa.table({"id": range(count), "text": [sentences[row % len(sentences)] for row in range(count)]})


def test_a_row_has_its_translation_and_a_null_has_none(demo_model: str, sentences: list[str]) -> None:
    texts: list[str | None] = [*sentences[:5], None, sentences[0], "", sentences[7]]
    result = Map(Config(demo_model))(pa.table({"text": texts, "other": range(9)}))
    alone = Translator(demo_model)
    expected = [None if text is None else alone.translate(text) for text in texts]
    assert result.column("translation").to_pylist() == expected
    assert result.column("other").to_pylist() == list(range(9))
    assert result.column_names == ["text", "other", "translation"]


def test_an_empty_table_gets_the_columns(demo_model: str) -> None:
    empty = pa.table({"text": pa.array([], pa.string())})
    job = Map(Config(demo_model, errors="column"))
    assert job(empty).schema.names == ["text", "translation", "error"]
    assert job(empty).num_rows == 0
    assert job.schema(empty.schema) == job(pa.table({"text": ["je"]})).schema
    assert job.record_batch(pa.record_batch({"text": pa.array([], pa.string())})).num_rows == 0
    assert job(pa.table({"text": pa.nulls(3)})).column("translation").to_pylist() == [None] * 3


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_columns_of_strings_of_any_type(demo_model: str, sentences: list[str], kind: Any) -> None:
    texts = pa.array([*sentences[:3], None], pa.string()).cast(kind)
    found = Map(Config(demo_model))(pa.table({"text": texts})).column("translation")
    expected = [*Translator(demo_model).translate(sentences[:3]), None]
    assert found.to_pylist() == expected


def test_equal_sources_are_computed_once(demo_model: str, sentences: list[str], monkeypatch: Any) -> None:
    config = Config(demo_model)
    engine, seen = worker(config), []
    compute = engine.compute

    def counts(found: Any, streams: Any) -> Any:
        seen.append(len(found))
        return compute(found, streams)

    monkeypatch.setattr(engine, "compute", counts)
    texts = [sentences[row % 10] for row in range(100)]
    result = Map(config)(pa.table({"text": texts})).column("translation").to_pylist()
    assert seen == [10]
    assert result == Translator(demo_model).translate(texts)


@pytest.fixture(scope="module")
def rows(demo_model: str) -> list[list[int]]:
    """The token ids of the held-out sentences."""
    lines = (Path(demo_model) / "held_out.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["source_ids"] for line in lines]


def test_ids_have_the_tokens_and_scores_of_the_translator(demo_model: str, rows: list[list[int]]) -> None:
    table = pa.table({"source_ids": pa.array(rows[:60], pa.list_(pa.uint32()))})
    result = Map(Config(demo_model, task="generate", score="score"))(table)
    expected = Translator(demo_model).generate(rows[:60], scores=True)
    assert result.column("target_ids").to_pylist() == expected.tokens.to_list()
    assert expected.scores is not None
    assert result.column("score").to_numpy().tobytes() == expected.scores.tobytes()
    assert result.schema.field("target_ids").type == pa.list_(pa.uint32())


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.uint32()),
        pa.large_list(pa.int64()),
        pa.list_(pa.int32()),
        pa.list_(pa.uint64()),
        pa.list_(pa.int16()),
    ],
)
def test_lists_of_any_type_sliced_and_with_nulls(demo_model: str, rows: list[list[int]], kind: Any) -> None:
    job = Map(Config(demo_model, task="generate", score="score"))
    values = [rows[0], None, rows[1], rows[0], rows[2], None, rows[3]]
    table = pa.table({"source_ids": pa.array(values, kind)})
    expected = Translator(demo_model).generate(rows[:4]).tokens.to_list()
    by_row = [expected[0], None, expected[1], expected[0], expected[2], None, expected[3]]
    assert job(table).column("target_ids").to_pylist() == by_row
    for first in range(7):
        assert job(table.slice(first, 3)).column("target_ids").to_pylist() == by_row[first : first + 3]
    assert job(table.slice(1, 1)).column("score").to_pylist() == [None]
    assert job(table.slice(7)).num_rows == 0
    fixed = pa.array([rows[0][:4], None, rows[1][:4]], pa.list_(pa.uint32(), 4))
    assert job(pa.table({"source_ids": fixed})).column("target_ids").to_pylist()[1] is None


def test_bad_rows_are_reported_and_change_no_other(demo_model: str, rows: list[list[int]]) -> None:
    config = Config(demo_model, task="generate", score="score", id="id", errors="column")
    bad: dict[int, tuple[list[int | None], str]] = {
        2: ([5, None], "found None at position 1"),
        5: ([-1, 0], "found -1 at position 0"),
        6: ([1 << 40], "found 1099511627776"),
        9: ([4_000_000_000, 0], "4000000000"),
        10: ([-1, 0], "found -1 at position 0"),
    }
    values = [bad[row][0] if row in bad else list(rows[row]) for row in range(14)]
    table = pa.table({"id": range(100, 114), "source_ids": pa.array(values, pa.list_(pa.int64()))})
    result = Map(config)(table)
    expected = Translator(demo_model).generate(rows[:14]).tokens.to_list()
    for row, (tokens, score, error) in enumerate(
        zip(*(result.column(name).to_pylist() for name in ("target_ids", "score", "error")), strict=True)
    ):
        if row in bad:
            assert tokens is None and score is None and bad[row][1] in error
        else:
            assert tokens == expected[row] and score is not None and error is None
    with pytest.raises(RowError, match="row 2 with id = 102: expected token ids from 0") as caught:
        Map(Config(demo_model, task="generate", id="id"))(table)
    assert (caught.value.row, caught.value.id) == (2, 102)
    assert pickle.loads(pickle.dumps(caught.value)).id == 102


def test_equal_lists_are_computed_once(demo_model: str, rows: list[list[int]], monkeypatch: Any) -> None:
    config = Config(demo_model, task="generate")
    engine, seen = worker(config), []
    compute = engine.compute

    def counts(found: Any, streams: Any) -> Any:
        seen.append(len(found))
        return compute(found, streams)

    monkeypatch.setattr(engine, "compute", counts)
    values = [rows[row * row % 10] for row in range(50)]
    result = Map(config)(pa.table({"source_ids": values})).column("target_ids").to_pylist()
    assert seen == [len({row * row % 10 for row in range(50)})]
    assert result == Translator(demo_model).generate(values).tokens.to_list()


def test_slices_chunks_and_batches_change_no_result(demo_model: str, sentences: list[str]) -> None:
    whole, job, numbers = table_of(sentences, 300), Map(Config(demo_model)), random.Random(7)
    expected = job(whole).column("translation").to_pylist()
    for _ in range(4):
        cuts = sorted(numbers.sample(range(1, 300), 5))
        pieces = [whole.slice(first, last - first) for first, last in zip([0, *cuts], [*cuts, 300], strict=True)]
        chunked = pa.concat_tables(pieces)
        assert job(chunked).column("translation").to_pylist() == expected
        assert [text for piece in pieces for text in job(piece).column("translation").to_pylist()] == expected
    batches = [job.record_batch(batch) for batch in whole.to_batches(max_chunksize=77)]
    assert [text for batch in batches for text in batch.column("translation").to_pylist()] == expected


@pytest.mark.parametrize("sessions", [1, 2, 3, 4])
def test_sessions_have_the_results_of_one(
    demo_model: str, sentences: list[str], rows: list[list[int]], sessions: int
) -> None:
    table = pa.table({"text": sentences[:200], "source_ids": rows[:200]})
    for task, score in (("translate", ""), ("generate", "score")):
        one = Map(Config(demo_model, task=task, score=score, threads=1, sessions=1))(table)  # type: ignore[arg-type]
        several = Map(
            Config(demo_model, task=task, score=score, threads=sessions % 3 + 1, sessions=sessions)  # type: ignore[arg-type]
        )(table)
        assert several.drop_columns(["text"]).equals(one.drop_columns(["text"]))


def test_vectors_are_those_of_the_embedder(encoder: str, sentences: list[str]) -> None:
    texts: list[str | None] = ["How are you?", None, "Comment vas-tu ?", "How are you?", *sentences[:20]]
    for options in ({}, {"normalize": False, "dim": 4, "slots": 3}):
        config = Config(encoder, task="embed", options=options)
        table = pa.table({"text": texts})
        vectors = Map(config)(table).column("embedding")
        calls = {name: value for name, value in options.items() if name != "slots"}
        expected = Embedder(encoder).embed([text or "" for text in texts], **calls)  # type: ignore[arg-type]
        assert vectors.type == pa.list_(pa.float32(), expected.shape[1])
        assert vectors.to_pylist() == [None if text is None else row.tolist() for text, row in zip(texts, expected)]
        pieces = [Map(config)(table.slice(row, 5)).column("embedding").to_pylist() for row in range(0, len(texts), 5)]
        assert [row for piece in pieces for row in piece] == vectors.to_pylist()
        assert Map(config).schema(table.schema) == Map(config)(table).schema


@pytest.mark.parametrize("task", ["translate", "generate"])
def test_threads_and_sampling_by_row_number(
    demo_model: str, sentences: list[str], rows: list[list[int]], task: Any
) -> None:
    whole = table_of(sentences, 120).append_column("source_ids", pa.array(rows[:120]))
    results, options = set(), {"sample": True, "seed": 5, "top_k": 20}
    for threads, sessions in ((1, 1), (2, 2), (3, 1), (2, 4)):
        config = Config(
            demo_model, task=task, target="result", id="id", threads=threads, sessions=sessions, options=options
        )
        job = Map(config)
        results.add(str(job(whole).column("result").to_pylist()))
        order = random.Random(threads).sample(range(120), 120)
        shuffled = job(whole.take(order)).sort_by("id")
        results.add(str(shuffled.column("result").to_pylist()))
    assert len(results) == 1
    other = Map(Config(demo_model, task=task, target="result", id="id", options={**options, "seed": 6}))
    assert str(other(whole).column("result").to_pylist()) not in results
    with pytest.raises(OptionError, match="id: expected a column of row numbers"):
        Map(Config(demo_model, options={"sample": True}))
    with pytest.raises(InputError, match="at least 0, found -1"):
        Map(config)(pa.table({"id": [-1], "text": ["je"], "source_ids": [[0]]}))


def test_a_wrong_table_is_an_error_that_says_what_it_has(demo_model: str) -> None:
    job = Map(Config(demo_model))
    with pytest.raises(InputError, match=r"expected a column 'text', found \['words'\]"):
        job(pa.table({"words": ["je"]}))
    with pytest.raises(InputError, match="expected strings, found int64"):
        job(pa.table({"text": [1]}))
    with pytest.raises(InputError, match="expected no column 'translation'"):
        job(pa.table({"text": ["je"], "translation": ["i"]}))
    with pytest.raises(InputError, match="expected pyarrow.Table, found builtins.list"):
        job(["je"])


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("task", {"task": "summarize"}),
        ("errors", {"errors": "ignore"}),
        ("threads", {"threads": 0}),
        ("sessions", {"sessions": True}),
        ("sessions", {"task": "embed", "sessions": 2}),
        ("score", {"task": "embed", "score": "score"}),
        ("finish", {"task": "embed", "finish": "finish"}),
        ("num_return", {"options": {"num_return": 2, "beams": 2}}),
        ("source, target, score, finish, id", {"source": "a", "target": "a"}),
        ("options", {"options": {"beams": {1}}}),
        ("options", {"options": {"temperature": float("nan")}}),
    ],
)
def test_a_wrong_field_is_named(demo_model: str, field: str, values: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        Config(demo_model, **values)
    assert caught.value.option == field


def test_a_config_is_small_and_equal_after_pickling(demo_model: str) -> None:
    config = Config(
        demo_model,
        id="id",
        threads=2,
        isa="avx2",
        dtype="int8",
        errors="column",
        options={"beams": 4, "max_new_tokens": 64, "target_lang": "en"},
    )
    data = pickle.dumps(config)
    assert len(data) <= 500
    assert pickle.loads(data) == config and hash(pickle.loads(data)) == hash(config)
    assert Config.from_json(config.json()) == config
    assert len(pickle.dumps(Map(config))) <= 600
    with pytest.raises(TypeError):
        config.options["beams"] = 5  # type: ignore[index]


def test_another_instruction_set_is_an_error_before_the_first_row(demo_model: str, sentences: list[str]) -> None:
    absent = next(isa for isa in ("neon", "avx512", "avx2") if isa not in available_isas())
    with pytest.raises(IsaError):
        Map(Config(demo_model, isa=absent))(pa.table({"text": ["je"]}))
    table, results = pa.table({"text": sentences[:50]}), set()
    for isa in available_isas():
        results.add(str(Map(Config(demo_model, isa=isa))(table).column("translation").to_pylist()))
    assert len(results) == 1


def test_a_worker_that_is_forced_to_another_set_refuses_the_job(demo_model: str) -> None:
    found = available_isas()
    code = (
        "import sys, pyarrow; from simdformer import IsaError; from simdformer.jobs import Config, Map\n"
        "try: Map(Config(sys.argv[1], isa=sys.argv[2]))(pyarrow.table({'text': ['je']}))\n"
        "except IsaError as error: print(error.expected, error.found)\n"
        "else: print('computed')"
    )
    for forced, expected in ((found[0], f"{found[-1]} {found[0]}"), (found[-1], "computed"), ("", "computed")):
        ran = subprocess.run(
            [sys.executable, "-c", code, demo_model, found[-1]],
            env={**os.environ, "SIMDFORMER_ISA": forced},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == (expected if len(found) > 1 else "computed")


def _translations(config: Config, texts: list[str]) -> list[str]:
    found: list[str] = Map(config)(pa.table({"text": texts})).column("translation").to_pylist()
    return found


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_kind(demo_model: str, sentences: list[str], method: str) -> None:
    config = Config(demo_model)
    expected = _translations(config, sentences[:40])
    with multiprocessing.get_context(method).Pool(2) as pool:
        halves = pool.starmap_async(_translations, [(config, sentences[:20]), (config, sentences[20:40])]).get(60)
    assert [text for half in halves for text in half] == expected


def test_threads_share_one_model(demo_model: str, sentences: list[str]) -> None:
    config = Config(demo_model, threads=1)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: _translations(config, [text])[0], sentences[:40]))
        workers = set(pool.map(lambda _: id(worker(config)), range(8)))
    assert found == _translations(config, sentences[:40])
    assert len(workers) == 1


def test_pandas_keeps_the_index(demo_model: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["je suis étudiant", None]}, index=[5, 9])
    result = Map(Config(demo_model)).pandas(frame)
    assert list(result.index) == [5, 9]
    assert result.loc[5, "translation"] == "i am a student" and pandas.isna(result.loc[9, "translation"])


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the peak of the resident memory from /proc")
def test_the_memory_of_a_worker_is_known_and_holds(demo_model: str, sentences: list[str]) -> None:
    config = Config(demo_model)
    code = (
        "import sys, pyarrow, json; from simdformer.jobs import Config, Map;"
        "texts = json.loads(sys.stdin.read());"
        "Map(Config.from_json(sys.argv[1]))(pyarrow.table({'text': texts}));"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    arguments = [sys.executable, "-c", code, config.json()]
    found = subprocess.run(arguments, input=json.dumps(sentences), capture_output=True, text=True, check=True)
    resident, planned = int(found.stdout) << 10, config.bytes(64)
    assert 0 < config.bytes(32) < planned < config.bytes(128) == config.bytes(512)
    print(f"{resident >> 20} MiB resident, {planned >> 20} MiB planned")
    assert resident <= planned


def test_the_import_opens_nothing() -> None:
    code = "import simdformer.jobs.worker as w, sys; assert not w._OPEN; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
