"""A text that fails is reported where its result would be: every method, every kind of bad or odd input, both modes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import simdformer
from simdformer import (
    Batcher,
    ClosedError,
    CutWarning,
    Embedder,
    Finish,
    InputTypeError,
    LimitError,
    Model,
    NotFiniteError,
    Reranker,
    SimdformerError,
    TokenError,
    Translator,
)
from simdformer.jobs import Config, Map, RowError, run, verify

LONG = "je " * 130


class Frame:
    """As pandas and polars: it has columns, and iterates over their names."""

    columns = ("text",)

    def __iter__(self) -> Any:
        return iter(self.columns)


# What is no list of texts.
NO_TEXTS: dict[str, Callable[[], Any]] = {
    "a dictionary": lambda: {"il fait froid": 1},
    "an ordered dictionary": lambda: OrderedDict(a=1),
    "keys": lambda: {"a": 1}.keys(),
    "values in no list": lambda: {"a": "b"}.items(),
    "a set": lambda: {"a", "b"},
    "a frozen set": lambda: frozenset("ab"),
    "a data frame": Frame,
    "a table": lambda: pa.table({"text": ["a"]}),
    "a record batch": lambda: pa.record_batch({"text": ["a"]}),
    "a number": lambda: 3,
    "None": lambda: None,
    "bytes": lambda: b"abc",
    "a bytearray": lambda: bytearray(b"abc"),
    "a memoryview": lambda: memoryview(b"abc"),
    "an array without a dimension": lambda: np.array("a"),
    "an object": object,
}
# What is in the place of a text.
NO_TEXT: dict[str, Any] = {
    "None": None,
    "bytes": b"abc",
    "a number": 7,
    "a list": ["a"],
    "a list of characters": [["a"]],
    "NaN": float("nan"),
    "half a character": "a\ud800",
    "the other half": "\udfff",
    "halves in the wrong order": "\udc00\ud800",
    "a row": np.array(["a"]),
}

Method = Callable[[Any], Any]


def list_methods(model: str, encoder: str, cross_encoder: str) -> dict[str, Method]:
    """Every method that takes texts."""
    translator, embedder, reranker = Translator(model), Embedder(encoder), Reranker(cross_encoder)
    return {
        "translate": translator.translate,
        "translate, sentences": lambda texts: translator.translate(texts, split=False),
        "translate, column": lambda texts: translator.translate(texts, errors="column"),
        "translate, sentences, column": lambda texts: translator.translate(texts, split=False, errors="column"),
        "translate, scores": lambda texts: translator.translate(texts, scores=True),
        "translate_iter": lambda texts: list(translator.translate_iter(texts)),
        "translate_iter, column": lambda texts: list(translator.translate_iter(texts, errors="column")),
        "encode": translator.encode,
        "encode, cut": lambda texts: translator.encode(texts, truncate=True),
        "embed": embedder.embed,
        "count_tokens": embedder.count_tokens,
        "rerank": lambda texts: reranker.rank("a", texts),
        "rerank, scores": lambda texts: reranker.score("a", texts),
    }


def text_methods(model: str, cross_encoder: str) -> dict[str, Method]:
    """Every method that takes one text."""
    translator, reranker = Translator(model), Reranker(cross_encoder)
    batcher, raw = Batcher(translator), Model(model)

    async def all_pieces(text: Any) -> str:
        return "".join([piece async for piece in batcher.astream(text)])

    return {
        "translate_document": translator.translate_document,
        "translate_document, column": lambda text: translator.translate_document(text, errors="column"),
        "stream": lambda text: list(translator.stream(text)),
        "align, source": lambda text: translator.align(text, "a"),
        "align, target": lambda text: translator.align("a", text),
        "submit": lambda text: batcher.submit(text).result(60),
        "Batcher.stream": lambda text: list(batcher.stream(text)),
        "asubmit": lambda text: asyncio.run(batcher.asubmit(text)),
        "astream": lambda text: asyncio.run(all_pieces(text)),
        "query": lambda text: reranker.score(text, ["a"]),
        "Model.encode": raw.encode,
        "Model.parts": raw.parts,
    }


def test_what_is_no_text_is_a_type_error_with_its_index(
    demo_model: str, encoder: str, cross_encoder: str
) -> None:
    checked = 0
    for name, method in list_methods(demo_model, encoder, cross_encoder).items():
        for kind, make in NO_TEXTS.items():
            with pytest.raises(InputTypeError) as caught:
                method(make())
            assert caught.value.argument and caught.value.found, (name, kind)
            checked += 1
        for (kind, wrong), place in itertools.product(NO_TEXT.items(), (0, 1, 3)):
            texts: list[Any] = ["il fait froid"] * 3
            texts.insert(place, wrong)
            for given in (texts, tuple(texts), iter(texts)):
                with pytest.raises(InputTypeError) as caught:
                    method(given)
                # Of an iterator the first window is read.
                assert caught.value.index == place, (name, kind, place)
                checked += 1
    for name, method in text_methods(demo_model, cross_encoder).items():
        for kind, wrong in NO_TEXT.items():
            other = "document" in name and isinstance(wrong, bytes)
            if other or name.startswith("align") and not isinstance(wrong, str):
                # A row of ids is allowed, too, and the bytes of a document with their format.
                with pytest.raises((SimdformerError, TypeError)):
                    method(wrong)
            else:
                with pytest.raises(InputTypeError) as caught:
                    method(wrong)
            checked += 1
    assert checked >= 1490


def test_lists_of_other_packages_are_texts(translator: Translator, encoder: str) -> None:
    expected = ["it is cold", "i am a student"]
    texts = ["il fait froid", "je suis étudiant"]
    lists: list[Any] = [
        texts, tuple(texts), np.array(texts), np.array(texts, object), pa.array(texts), pa.chunked_array([texts]),
        pa.array(texts, pa.large_string()), pa.array(texts).dictionary_encode(), iter(texts), dict(enumerate(texts)).values(),
    ]  # fmt: skip
    for given in lists:
        if type(given).__name__ in ("list_iterator", "dict_values"):
            assert translator.translate(list(given)) == expected
        else:
            assert translator.translate(given) == expected, type(given)
            assert len(Embedder(encoder).embed(given)) == 2


COPIED = ["\t", "\u00a0", "\0", "🙂", "👩‍🚀", " ", "…", "12:30", "\ufeff", "\r\n", "\u2003\u3000", "%", "—", "3.5 + 4"]


def one_text_methods(model: str) -> dict[str, Callable[[str], str]]:
    """Every method that translates a text, and its translation."""
    translator = Translator(model)
    batcher = Batcher(translator)

    async def all_pieces(text: str) -> str:
        return "".join([piece async for piece in batcher.astream(text)])

    def column(text: str, split: bool) -> str:
        found = translator.translate([text], split=split, errors="column")
        if found.errors[0] is not None:
            raise found.errors[0]
        assert found.texts[0] is not None
        return found.texts[0]

    def in_iterator(text: str) -> str:
        [found] = translator.translate_iter([text], errors="column", split=False)
        if isinstance(found, SimdformerError):
            raise found
        return str(found)

    def job(text: str) -> str:
        row = Map(Config(model, errors="column"))(pa.table({"text": [text]})).to_pylist()[0]
        assert (row["translation"] is None) == (row["error"] is not None)
        if row["error"]:
            raise SimdformerError(row["error"])
        return str(row["translation"])

    def document(text: str) -> str:
        found = translator.translate_document(text, errors="column")
        if found.errors:
            raise found.errors[0]
        assert isinstance(found.text, str)
        return found.text

    return {
        "translate": translator.translate,
        "translate, sentences": lambda text: translator.translate(text, split=False),
        "translate, column": lambda text: column(text, True),
        "translate, sentences, column": lambda text: column(text, False),
        "translate_iter": lambda text: next(iter(translator.translate_iter([text]))),
        "translate_iter, column": in_iterator,
        "translate_document": translator.translate_document,
        "translate_document, column": document,
        "stream": lambda text: "".join(translator.stream(text)),
        "submit": lambda text: batcher.submit(text).result(60),
        "Batcher.stream": lambda text: "".join(batcher.stream(text)),
        "asubmit": lambda text: asyncio.run(batcher.asubmit(text)),
        "astream": lambda text: asyncio.run(all_pieces(text)),
        "job": job,
    }


SENTENCE_METHODS = ("translate, sentences", "translate, sentences, column", "translate_iter, column", "stream", "submit", "Batcher.stream", "asubmit", "astream")


def test_what_has_no_letters_is_copied_and_what_fails_raises(
    demo_model: str, refusing_model: str, overflowing_model: str
) -> None:
    """Each model x each method x each text."""
    checked = 0
    models: list[tuple[str, type[SimdformerError] | None]] = [
        (demo_model, None), (refusing_model, TokenError), (overflowing_model, NotFiniteError),
    ]  # fmt: skip
    for model, kind in models:
        for name, method in one_text_methods(model).items():
            of_job = name == "job"
            for text in COPIED:
                assert method(text) == text, (model, name, text)
                checked += 1
            for before, after in (("", ""), ("\ufeff", ""), ("", " 🙂"), (" ", " ")):
                text = before + "il fait froid" + after
                if kind is None:
                    assert "it is cold" in method(text), (name, text)
                else:
                    with pytest.raises(SimdformerError if of_job else kind) as caught:
                        method(text)
                    assert of_job or caught.value.reason, (name, text)
                checked += 1
            if name in SENTENCE_METHODS:
                with pytest.raises(LimitError) as long:
                    method(LONG)
                assert (long.value.found, long.value.expected, long.value.limit) == (131, 128, "source_tokens")
                assert long.value.reason == "131 tokens, the model takes 128"
                checked += 1
    assert checked >= 700


def test_every_failure_of_a_list_has_its_index(refusing_model: str) -> None:
    translator = Translator(refusing_model)
    texts = ["je suis étudiant", "il fait froid", "🙂", "il fait froid. je suis étudiant.", "la maison"]
    for split in (True, False):
        with pytest.raises(TokenError) as caught:
            translator.translate(texts, split=split)
        assert (caught.value.index, caught.value.found, caught.value.expected) == (1, 5000, 2318)
        found = translator.translate(texts, split=split, errors="column", scores=True)
        assert [text is None for text in found.texts] == [False, True, False, True, False]
        assert [error is not None and error.index for error in found.errors] == [False, 1, False, 3, False]
        assert found.finish.tolist() == [Finish.END, Finish.REFUSED, Finish.END, Finish.REFUSED, Finish.END]
        assert found.scores is not None and np.isnan(found.scores).tolist() == [False, True, False, True, False]
        assert found.texts[0] == Translator(refusing_model).translate(texts[0])
        got = []
        with pytest.raises(TokenError) as caught:
            for text in translator.translate_iter(texts[:1] * 5 + texts, split=split, window=2):
                got.append(text)
        assert caught.value.index == 6 and len(got) == 6
        placed = list(translator.translate_iter(texts, split=split, window=2, errors="column"))
        assert [isinstance(one, TokenError) and one.index for one in placed] == [False, 1, False, 3, False]
    error = translator.translate(texts, errors="column").errors[3]
    assert error is not None and error.sentence == 0 and error.source == "il fait froid."
    document = translator.translate_document("# la maison\n\nje suis. il fait froid.\n\nil fait froid\n", "markdown", errors="column")
    assert [(error.index, error.sentence, error.source) for error in document.errors] == [
        (1, 1, "il fait froid."), (2, 0, "il fait froid"),
    ]  # fmt: skip
    assert "il fait froid." in document.text and document.finish == Finish.REFUSED
    with pytest.raises(TokenError):
        translator.translate_document("il fait froid")


def test_a_stream_that_fails_midway_raises(demo_model: str, overflowing_model: str) -> None:
    with pytest.raises(NotFiniteError):
        list(Translator(overflowing_model).stream("je suis étudiant"))
    stream = Translator(demo_model).stream("je suis étudiant")
    assert stream.finish is None and "".join(stream) == "i am a student" and stream.finish == Finish.END


def test_scores_and_weights_that_are_nan_raise(overflowing_model: str) -> None:
    translator = Translator(overflowing_model)
    with pytest.raises(NotFiniteError) as caught:
        translator.score(["la maison", "je"], ["the house", "i"])
    assert caught.value.index == 0
    with pytest.raises(NotFiniteError):
        translator.align("la maison", "the house")
    with pytest.raises(NotFiniteError):
        translator.generate(translator.encode(["la maison"]))


def test_what_reached_the_maximum_length_is_visible(demo_model: str) -> None:
    translator = Translator(demo_model, max_new_tokens=2)
    batcher, text = Batcher(translator), "la vieille maison blanche est belle"

    async def all_pieces() -> str:
        return "".join([piece async for piece in batcher.astream(text)])

    calls: dict[str, Callable[[], Any]] = {
        "translate": lambda: translator.translate(text),
        "translate, sentences": lambda: translator.translate([text], split=False),
        "translate_iter": lambda: list(translator.translate_iter([text])),
        "translate_document": lambda: translator.translate_document(text),
        "stream": lambda: list(translator.stream(text)),
        "submit": lambda: batcher.submit(text).result(60),
        "Batcher.stream": lambda: list(batcher.stream(text)),
        "asubmit": lambda: asyncio.run(batcher.asubmit(text)),
        "astream": lambda: asyncio.run(all_pieces()),
        "job": lambda: Map(Config(demo_model, options={"max_new_tokens": 2}))(pa.table({"text": [text]})),
    }
    for name, call in calls.items():
        with pytest.warns(CutWarning, match="maximum length") as seen:
            call()
        # A coroutine is called by its loop.
        assert seen[0].filename == __file__ or name in ("asubmit", "astream"), (name, seen[0].filename)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translator.translate([text], errors="column").finish.tolist() == [Finish.LENGTH]
        assert translator.translate_document(text, errors="column").finish == Finish.LENGTH
        future = batcher.submit(text)
        assert future.exception(60) is None and future.finish == Finish.LENGTH
        config = Config(demo_model, options={"max_new_tokens": 2}, finish="finish", score="score")
        row = Map(config)(pa.table({"text": [text]})).to_pylist()[0]
        assert row["finish"] == "length" and row["score"] < 0


def test_encode_says_that_it_cuts(demo_model: str, refusing_model: str) -> None:
    translator = Translator(demo_model)
    for call in (
        lambda: translator.encode(["je", LONG]),
        lambda: translator.score(["je", LONG], ["i", "i"]),
        lambda: translator.score([LONG], ["i"]),
        lambda: translator.align(LONG, "i"),
        lambda: Model(demo_model).encode(LONG),
        lambda: Model(demo_model).parts(LONG),
        lambda: list(translator.stream(LONG)),
    ):
        with pytest.raises(LimitError) as caught:
            call()
        assert (caught.value.expected, caught.value.found) == (128, 131)
    with pytest.raises(LimitError) as caught:
        translator.encode(["je", LONG])
    assert caught.value.index == 1
    with pytest.warns(CutWarning, match=r"1 of 2, the first is texts\[1\]"):
        assert translator.encode(["je", LONG], truncate=True).lengths().tolist() == [2, 128]
    cutting = Translator(demo_model, truncate=True)
    for call in (
        lambda: cutting.encode([LONG]),
        lambda: cutting.score([LONG], ["i"]),
        lambda: cutting.translate(LONG, split=False),
        lambda: list(cutting.stream(LONG)),
        lambda: Batcher(cutting).submit(LONG).result(60),
        lambda: list(Batcher(cutting).stream(LONG)),
    ):
        with pytest.warns(CutWarning):
            call()
    assert cutting.translate(LONG, split=False, errors="column").truncated.tolist() == [True]


def test_what_a_special_token_is_written_with_is_text(translator: Translator) -> None:
    ends, unknown = translator.encode([""]).ids.tolist(), "<pad></s>"
    for text in ("</s>", "a </s> b", "<pad>", "</s></s>", "</s>je suis étudiant", unknown):
        row = translator.encode([text])[0].tolist()
        assert row[-1:] == ends and row.count(ends[0]) == 1 and len(row) >= 2, (text, row)
        assert translator.score([text], [text]).offsets[1] > 1
    assert translator.encode(["\ufeffje suis"]).ids.tolist() == translator.encode(["je suis"]).ids.tolist()


def test_a_broken_tokenizer_is_an_error_of_the_constructor(demo_model: str, tmp_path: Path) -> None:
    import shutil

    names = ["source.spm", "target.spm", "vocab.json", "tokenizer_config.json"]
    for number, (name, content) in enumerate(itertools.product(names, (b"", b"\x00\xff", b"{", b"[1]"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file in ["config.json", "generation_config.json", "model.safetensors", *names]:
            shutil.copy(Path(demo_model) / file, folder / file)
        (folder / name).write_bytes(content)
        for kind in (Translator, Model):
            with pytest.raises(simdformer.CheckpointError, match=name):
                kind(folder)
    # Without any, ids are translated.
    for file in names:
        (folder / file).unlink()
    assert len(Translator(folder).generate([[6, 11, 0]]).tokens) == 1


def test_an_embedder_that_may_not_cut_refuses(encoder: str, cross_encoder: str) -> None:
    long = "house " * 2000
    with pytest.raises(LimitError) as caught:
        Embedder(encoder, truncate=False).embed(["a", long])
    assert caught.value.index == 1 and caught.value.found > caught.value.expected
    with pytest.raises(LimitError):
        Reranker(cross_encoder, truncate=False).score("a", [long])
    with pytest.warns(CutWarning, match=r"texts\[1\]"):
        Embedder(encoder).embed(["a", long])
    with pytest.warns(CutWarning):
        Reranker(cross_encoder).score("a", [long])
    short = Embedder(encoder, max_tokens=4)
    assert short.max_tokens == 4
    with pytest.warns(CutWarning):
        cut = short.embed("the house is old and white")
    assert not np.array_equal(cut, Embedder(encoder).embed("the house is old and white"))
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(simdformer.OptionError):
            Embedder(encoder, max_tokens=wrong)  # type: ignore[arg-type]


def test_jobs_report_failed_rows(refusing_model: str, overflowing_model: str, tmp_path: Path) -> None:
    table = pa.table({"text": ["je suis étudiant", "il fait froid", None, "🙂", "il fait froid"]})
    for model, failed in ((refusing_model, [1, 4]), (overflowing_model, [0, 1, 4])):
        with pytest.raises(RowError) as caught:
            Map(Config(model))(table)
        assert caught.value.row == failed[0] and caught.value.reason
        rows = Map(Config(model, errors="column", finish="finish"))(table).to_pylist()
        assert [index for index, row in enumerate(rows) if row["error"] is not None] == failed
        assert all(rows[index]["translation"] is None for index in failed)
        assert rows[2]["translation"] is None and rows[3]["translation"] == "🙂"
        expected = "refused" if model == refusing_model else "not_finite"
        assert {rows[index]["finish"] for index in failed} == {expected}
    # Rows that another version has written: the source stands in the place of the translation.
    import pyarrow.parquet as pq

    config, folder = Config(refusing_model, errors="column"), tmp_path / "rows"
    (tmp_path / "source").mkdir()
    pq.write_table(table.slice(0, 2), tmp_path / "source" / "rows.parquet")
    run(tmp_path / "source", folder, config)
    found = verify(folder, config)
    assert not found.differences and [row.row for row in found.failed] == [1]
    [file] = [path for path in folder.iterdir() if path.suffix == ".parquet"]
    old = pq.read_table(file)
    wrong = old.set_column(old.column_names.index("translation"), "translation", [["i am a student", "il fait froid"]])
    wrong = wrong.set_column(old.column_names.index("error"), "error", pa.array([None, None], pa.string()))
    pq.write_table(wrong.replace_schema_metadata(old.schema.metadata), file)
    found = verify(folder, config)
    assert [row.row for row in found.failed] == [1]
    assert {(each.row, each.column) for each in found.differences} == {(1, "translation"), (1, "error")}


TEXT = "la vieille maison blanche est belle et il fait froid"


def test_what_was_submitted_keeps_its_batcher(translator: Translator) -> None:
    expected = translator.translate(TEXT, split=False)

    async def alone() -> tuple[str, str]:
        whole = await Batcher(translator).asubmit(TEXT)
        return whole, "".join([piece async for piece in Batcher(translator).astream(TEXT)])

    before = threading.active_count()
    for _ in range(5):
        assert "".join(Batcher(translator).stream(TEXT)) == expected
        assert Batcher(translator).submit(TEXT).result(60) == expected
        future = Batcher(translator).submit(TEXT)
        gc.collect()
        assert future.result(60) == expected
        assert asyncio.run(alone()) == (expected, expected)
    end = time.monotonic() + 60
    while threading.active_count() > before:
        gc.collect()
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_batcher_that_is_stopped_ends_with_closed_error(translator: Translator) -> None:
    async def tasks(batcher: Batcher) -> list[Any]:
        started = [asyncio.ensure_future(batcher.asubmit(TEXT)) for _ in range(40)]
        pieces = [asyncio.ensure_future(collect(batcher)) for _ in range(10)]
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.close, False)
        return await asyncio.gather(*started, *pieces, return_exceptions=True)

    async def collect(batcher: Batcher) -> str:
        return "".join([piece async for piece in batcher.astream(TEXT)])

    expected = translator.translate(TEXT, split=False)
    closed = 0
    for wait in (False, True):
        batcher = Batcher(translator, slots=1)
        futures = [batcher.submit(TEXT) for _ in range(50)]
        streams = [batcher.stream(TEXT) for _ in range(20)]
        batcher.close(wait=wait)
        for future in futures:
            error = future.exception(60)
            assert not future.cancelled() and (error is None or isinstance(error, ClosedError))
            assert not wait or error is None
            closed += error is not None
            assert error is not None or future.result() == expected
        for stream in streams:
            try:
                assert "".join(stream) == expected
            except ClosedError:
                closed += 1
    found = asyncio.run(tasks(Batcher(translator, slots=1)))
    for one in found:
        assert one == expected or isinstance(one, ClosedError), one
    assert closed > 20 and sum(isinstance(one, ClosedError) for one in found) > 10


def test_the_queue_is_bounded(translator: Translator) -> None:
    most = 0
    with Batcher(translator, slots=2, capacity=4) as batcher:

        async def submit(number: int) -> str:
            nonlocal most
            found = await batcher.asubmit(TEXT)
            most = max(most, len(batcher))
            return found

        async def all_tasks() -> list[str]:
            return await asyncio.gather(*(submit(number) for number in range(60)))

        assert len(set(asyncio.run(all_tasks()))) == 1
        futures = []
        for _ in range(60):
            futures.append(batcher.submit(TEXT))
            most = max(most, len(batcher))
        assert len({future.result(60) for future in futures}) == 1
        assert 0 < most <= 4
        # What runs when a sentence is done may submit: it does not wait for itself.
        again: list[Any] = []
        for _ in range(8):
            batcher.submit(TEXT).add_done_callback(lambda _: again.append(batcher.submit("je suis étudiant")))
        end = time.monotonic() + 60
        while len(again) < 8:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert {one.result(60) for one in again} == {"i am a student"}

        async def cancelled() -> None:
            started = [asyncio.ensure_future(batcher.asubmit(TEXT)) for _ in range(30)]
            await asyncio.sleep(0.01)
            for one in started[::2]:
                one.cancel()
            found = await asyncio.gather(*started, return_exceptions=True)
            assert all(isinstance(one, str) for one in found[1::2])

        asyncio.run(cancelled())
        assert batcher.submit("je suis étudiant").result(60) == "i am a student"
    for wrong in (0, -1, True, "4"):
        with pytest.raises(simdformer.OptionError):
            Batcher(translator, capacity=wrong)  # type: ignore[arg-type]
    waiting = Batcher(translator, slots=1, capacity=1)
    results: list[object] = []

    def submits() -> None:
        try:
            for _ in range(1000):
                waiting.submit(TEXT)
        except ClosedError as error:
            results.append(error)

    threads = [threading.Thread(target=submits) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    waiting.close(wait=False)
    for thread in threads:
        thread.join(60)
    assert len(results) == 3


def _texts(count: int) -> Iterable[str]:
    return (f"il fait froid {number}" for number in range(count))


def test_an_iterator_is_read_once(translator: Translator) -> None:
    assert len(translator.translate(list(_texts(3)))) == 3
    assert len(list(translator.translate_iter(_texts(3)))) == 3


def test_vectors_and_scores_that_are_nan_raise(encoder: str, cross_encoder: str, tmp_path: Path) -> None:
    import json
    import shutil
    import struct

    def poisoned(directory: str, name: str) -> str:
        folder = tmp_path / name
        shutil.copytree(directory, folder)
        data = bytearray((folder / "model.safetensors").read_bytes())
        (size,) = struct.unpack_from("<Q", data)
        for tensor, place in json.loads(data[8 : 8 + size]).items():
            if tensor.endswith("LayerNorm.weight"):
                first, last = place["data_offsets"]
                data[8 + size + first : 8 + size + last] = np.full((last - first) // 4, 3e38, np.float32).tobytes()
        (folder / "model.safetensors").write_bytes(data)
        return str(folder)

    embedding = poisoned(encoder, "embedding")
    with pytest.raises(NotFiniteError) as caught:
        Embedder(embedding).embed(["the house", "a"])
    assert caught.value.index == 0
    with pytest.raises(NotFiniteError):
        Reranker(poisoned(cross_encoder, "scoring")).rank("the house", ["a"])
    rows = Map(Config(embedding, task="embed", errors="column"))(pa.table({"text": ["the house"]})).to_pylist()
    assert rows[0]["embedding"] is None and "NaN" in rows[0]["error"]


def test_sentence_transformers_has_a_length_and_threads(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import sys
    import types

    from simdformer.compat.sentence_transformers import SentenceTransformer, util

    for name in ("SIMDFORMER_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    model = SentenceTransformer(encoder)
    assert model._embedder.threads == len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert SentenceTransformer(encoder)._embedder.threads == 1
    text = "the house is old and white and the house is beautiful"
    before, whole = model.max_seq_length, model.encode(text)
    assert before == model.get_max_seq_length() and before is not None
    model.max_seq_length = 5
    with pytest.warns(CutWarning, match="5 tokens"):
        cut = model.encode(text)
    assert model.max_seq_length == 5 and not np.array_equal(cut, whole)
    model.max_seq_length = None
    assert model.max_seq_length == before and np.array_equal(model.encode(text), whole)
    vectors = model.encode(["a", "the house"])
    assert isinstance(model.similarity(vectors, vectors), np.ndarray)
    # With torch it gives tensors: here a module that marks them.
    torch = types.ModuleType("torch")
    torch.from_numpy = lambda array: ("tensor", array)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    calls = (model.similarity, model.similarity_pairwise, util.cos_sim, util.dot_score, util.pairwise_cos_sim)
    for call in calls:
        kind, found = call(vectors, vectors)
        assert kind == "tensor" and found.flags["C_CONTIGUOUS"]
