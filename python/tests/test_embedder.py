"""`Embedder` and `Reranker`: the numbers of transformers, arrays, precisions, threads, fork, pickling."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdformer
from simdformer import Embedder, Reranker

GOLDEN = Path(__file__).resolve().parents[2] / "text" / "tests" / "golden" / "encoders"


def expected(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / name / "expected.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def embedder(encoder: str) -> Embedder:
    return Embedder(encoder)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [row["text"] for row in expected("bert")]


def test_vectors_are_those_of_transformers(embedder: Embedder) -> None:
    rows = expected("bert")
    found = embedder.embed([row["text"] for row in rows], normalize=False)
    assert found.shape == (len(rows), embedder.dim) and found.dtype == np.float32
    for vector, row in zip(found, rows, strict=True):
        assert np.abs(vector - np.array(row["vector"])).max() <= 2e-6, row["text"]


def test_a_vector_does_not_depend_on_the_others(encoder: str, texts: list[str]) -> None:
    together = Embedder(encoder, slots=4).embed(texts)
    for threads in (1, 2):
        embedder = Embedder(encoder, threads=threads, slots=3)
        alone = np.stack([embedder.embed(text) for text in texts])
        assert alone.tobytes() == together.tobytes()
        assert embedder.encode(texts[::-1])[::-1].tobytes() == together.tobytes()


def test_normalize_dim_and_out(embedder: Embedder, texts: list[str]) -> None:
    full = embedder.embed(texts, normalize=False)
    unit = embedder.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(unit, full / np.linalg.norm(full, axis=1, keepdims=True), atol=1e-6)
    assert embedder.embed(texts, normalize=False, dim=3).tobytes() == full[:, :3].tobytes()
    np.testing.assert_allclose(np.linalg.norm(embedder.embed(texts, dim=3), axis=1), 1, atol=1e-6)
    out = np.zeros_like(unit)
    assert embedder.embed(texts, out=out) is out and out.tobytes() == unit.tobytes()
    assert embedder.embed([]).shape == (0, embedder.dim)
    assert embedder.embed(texts[3]).shape == (embedder.dim,)


def test_prompts_are_written_before_texts(embedder: Embedder) -> None:
    with_prompt = embedder.embed("lives in the old house", prompt="query: ")
    assert with_prompt.tobytes() == embedder.embed("query: lives in the old house").tobytes()
    assert embedder.count_tokens(["a", ""], prompt="query: ")[0] > embedder.count_tokens(["a"])[0]
    with pytest.raises(simdformer.OptionError) as raised:
        embedder.embed("a", prompt_name="nothing")
    assert raised.value.found == "nothing"


@pytest.mark.peers
def test_precisions_are_those_of_sentence_transformers(
    embedder: Embedder, texts: list[str]
) -> None:
    quantization = pytest.importorskip("sentence_transformers.util.quantization")
    vectors = embedder.embed(texts)
    ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    for precision in ("int8", "uint8", "binary", "ubinary"):
        theirs = quantization.quantize_embeddings(vectors, precision, ranges=ranges)
        ours = embedder.embed(texts, precision=precision, ranges=ranges)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_precisions(embedder: Embedder, texts: list[str]) -> None:
    vectors = embedder.embed(texts)
    bits = embedder.embed(texts, precision="ubinary")
    np.testing.assert_array_equal(bits, np.packbits(vectors > 0, axis=1))
    assert (embedder.embed(texts, precision="binary") == (bits.astype(np.int16) - 128)).all()
    codes = embedder.embed(texts, precision="uint8")
    assert codes.min() == 0 and codes.max() == 255 and codes.dtype == np.uint8
    assert (embedder.embed(texts, precision="int8") == (codes.astype(np.int16) - 128)).all()


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"texts": [1]}, TypeError, "index 0"),
    ({"texts": ["a"], "dim": 0}, ValueError, "from 1 to 6"),
    ({"texts": ["a"], "dim": 7}, ValueError, "found 7"),
    ({"texts": ["a"], "precision": "int4"}, ValueError, "int4"),
    ({"texts": ["a"], "precision": "int8", "ranges": [1.0]}, ValueError, "dimensions"),
    ({"texts": ["a"], "precision": "int8", "ranges": [[1.0], [2.0]]}, ValueError, "dimensions"),
    ({"texts": ["a"], "precision": "int8", "ranges": [[1.0] * 6] * 3}, ValueError, "3 rows"),
    ({"texts": ["a"], "precision": "int8", "ranges": [[1.0] * 6, [0.0] * 6]}, ValueError, "range"),
    ({"texts": ["a"], "out": np.zeros((2, 6), np.float32)}, ValueError, "shape"),
    ({"texts": ["a"], "out": np.zeros((1, 6))}, ValueError, "float64"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), WRONG)
def test_wrong_calls_name_what_is_wrong(
    embedder: Embedder, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as raised:
        embedder.embed(**arguments)
    assert isinstance(raised.value, simdformer.SimdformerError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)


def test_a_text_that_is_too_long_is_named(encoder: str) -> None:
    embedder = Embedder(encoder)
    long = "the old house " * 40
    assert embedder.embed(long).shape == (6,)


def test_a_model_without_a_classifier_is_no_reranker(encoder: str, demo_model: str) -> None:
    with pytest.raises(simdformer.CheckpointError, match="classifier"):
        Reranker(encoder)
    with pytest.raises(simdformer.SimdformerError):
        Reranker(demo_model)


def test_scores_are_those_of_transformers(cross_encoder: str) -> None:
    # The others are too long, and have a score only when they are cut.
    rows = [row for row in expected("bert_cross") if "score" in row]
    for threads in (1, 2):
        reranker = Reranker(cross_encoder, threads=threads)
        queries = {row["query"] for row in rows}
        for query in queries:
            own = [row for row in rows if row["query"] == query]
            texts = [row["text"] for row in own]
            outputs = reranker.score(query, texts, raw=True)
            assert np.abs(outputs - np.array([row["score"] for row in own])).max() <= 2e-6
            assert reranker.activation == "Sigmoid"
            found = reranker.score(query, texts)
            np.testing.assert_allclose(found, 1 / (1 + np.exp(-outputs)), rtol=1e-6)
            ranking = reranker.rank(query, texts)
            assert [one.score for one in ranking] == sorted(map(float, found), reverse=True)
            assert all(one.text == texts[one.index] for one in ranking)
            assert reranker.rank(query, texts, top_k=2) == ranking[:2]


def test_objects_are_closed_pickled_and_printed(encoder: str, cross_encoder: str) -> None:
    texts = ["a", "the old house"]
    with Embedder(encoder, threads=2) as embedder, Reranker(cross_encoder) as reranker:
        assert "6 dimensions" in repr(embedder) and "MB" in repr(reranker)
        for one in (embedder, reranker):
            assert len(pickle.dumps(one)) <= 500
        vectors = embedder.embed(texts)
        again = pickle.loads(pickle.dumps(embedder))
        assert again.embed(texts).tobytes() == vectors.tobytes() and again.threads == 2
        scores = pickle.loads(pickle.dumps(reranker)).score("a", texts)
        assert scores.tobytes() == reranker.score("a", texts).tobytes()
    for call in (lambda: embedder.embed("a"), lambda: reranker.rank("a", ["b"])):
        with pytest.raises(simdformer.ClosedError):
            call()
    assert "closed" in repr(embedder) and "closed" in repr(reranker)


def test_threads_share_an_embedder(embedder: Embedder, texts: list[str]) -> None:
    vectors = embedder.embed(texts).tobytes()
    found: list[bytes] = []

    def work() -> None:
        found.extend(embedder.embed(texts).tobytes() for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [vectors] * 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("threads", [1, 2])
def test_after_a_fork(encoder: str, texts: list[str], threads: int) -> None:
    embedder = Embedder(encoder, threads=threads)
    vectors = embedder.embed(texts).tobytes()
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        found = pool.map_async(_embed, [(embedder, texts)] * 4).get(60)
    assert found == [vectors] * 4


def _embed(arguments: tuple[Embedder, list[str]]) -> bytes:
    embedder, texts = arguments
    return embedder.embed(texts).tobytes()


def test_progress_counts_texts(embedder: Embedder, texts: list[str]) -> None:
    counts: list[int] = []
    embedder.embed(texts, progress=counts.append)
    assert counts[-1] == len(texts)
