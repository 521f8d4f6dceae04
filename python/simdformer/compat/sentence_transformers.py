"""The names of sentence-transformers: `SentenceTransformer`, `CrossEncoder`, and `util` for comparing vectors::

    from simdformer.compat.sentence_transformers import SentenceTransformer, util

    model = SentenceTransformer("all-MiniLM-L6-v2")
    embeddings = model.encode(["How are you?", "The cat sleeps."])
    print(util.cos_sim(embeddings, embeddings))

Arrays are those of numpy; `convert_to_tensor` needs torch. What compares vectors gives a tensor if torch is installed, as
sentence-transformers does, and an array of numpy if it is not. `batch_size` changes no result and is ignored: a batch has no
padding. As torch does, a model uses all processors of the process, unless ``SIMDFORMER_NUM_THREADS`` or ``OMP_NUM_THREADS``
says otherwise. A text that is too long is cut as there; here a `simdformer.CutWarning` says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..embedder import Embedder, Precision
from ..errors import InputError, MissingPackageError
from ..reranker import Reranker

__all__ = ["CrossEncoder", "SentenceTransformer", "quantize_embeddings", "util"]

Array = npt.NDArray[Any]


class SentenceTransformer:
    """sentence-transformers' class for vectors of texts, over an `Embedder`."""

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str],
        *,
        device: str | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        truncate_dim: int | None = None,
        backend: str = "torch",
        similarity_fn_name: str | None = None,
        **others: Any,
    ) -> None:
        _cpu(device)
        if similarity_fn_name is not None:
            _similarity_functions(similarity_fn_name)
        _only({name: value for name, value in others.items() if name not in _IGNORED})
        if backend != "torch":
            raise NotImplementedError(f"backend={backend!r}: not supported")
        self._embedder = Embedder(model_name_or_path, threads=_threads())
        self.prompts = dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.truncate_dim = truncate_dim
        self.similarity_fn_name = similarity_fn_name or _similarity_name(self._embedder.path)

    @property
    def device(self) -> str:
        """Always ``cpu``."""
        return "cpu"

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, special ones included. A longer text is cut. It can be set."""
        return self._embedder.max_tokens

    @max_seq_length.setter
    def max_seq_length(self, tokens: int | None) -> None:
        before = self._embedder
        # The weights are shared.
        self._embedder = Embedder(before.path, threads=before.threads, max_tokens=tokens)

    def get_max_seq_length(self) -> int | None:
        """`max_seq_length`."""
        return self.max_seq_length

    def encode(
        self,
        sentences: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        **others: Any,
    ) -> Any:
        """The vectors of `sentences`, ``[sentences, dimensions]``, or of one, ``[dimensions]``."""
        del batch_size
        _cpu(device)
        _only({name: value for name, value in others.items() if name not in _IGNORED})
        if output_value != "sentence_embedding":
            raise NotImplementedError(f"output_value={output_value!r}: not supported")
        name = prompt_name if prompt_name is not None else self.default_prompt_name
        if prompt is None and name in self.prompts:
            name, prompt = None, self.prompts[str(name)]
        vectors = self._embedder.embed(
            sentences,
            normalize=normalize_embeddings,
            dim=truncate_dim if truncate_dim is not None else self.truncate_dim,
            prompt=prompt,
            prompt_name=None if prompt is not None else name,
            precision=precision,
            progress=bool(show_progress_bar),
        )
        if convert_to_tensor:
            return _tensor(vectors)
        if convert_to_numpy or isinstance(sentences, str):
            return vectors
        return [*vectors]

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """As `encode`, with the prompt ``query`` if the model has one."""
        return self._encode_with("query", sentences, options)

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """As `encode`, with the prompt ``document`` if the model has one."""
        return self._encode_with("document", sentences, options)

    def _encode_with(self, name: str, sentences: str | Sequence[str], options: dict[str, Any]) -> Any:
        if "prompt" in options or "prompt_name" in options:
            return self.encode(sentences, **options)
        if name not in self.prompts and not self._embedder.has_prompt(name):
            return self.encode(sentences, **options)
        return self.encode(sentences, prompt_name=name, **options)

    def similarity(self, embeddings1: npt.ArrayLike, embeddings2: npt.ArrayLike) -> Any:
        """The cosine of each vector with each other one, or the dot product if `similarity_fn_name` or the model says so: a
        tensor if torch is installed, else an array."""
        return _similarity_functions(self.similarity_fn_name)[0](embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: npt.ArrayLike, embeddings2: npt.ArrayLike) -> Any:
        """As `similarity`, of each pair."""
        return _similarity_functions(self.similarity_fn_name)[1](embeddings1, embeddings2)

    def get_sentence_embedding_dimension(self) -> int:
        """The number of dimensions of a vector."""
        return self._embedder.dim if self.truncate_dim is None else self.truncate_dim

    get_embedding_dimension = get_sentence_embedding_dimension


class CrossEncoder:
    """sentence-transformers' class for scores of pairs, over a `Reranker`."""

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str],
        num_labels: int | None = None,
        max_length: int | None = None,
        activation_fn: object = None,
        device: str | None = None,
        **others: Any,
    ) -> None:
        _cpu(device)
        _only({"max_length": max_length, "activation_fn": activation_fn})
        _only({name: value for name, value in others.items() if name not in _IGNORED})
        if num_labels not in (None, 1):
            raise NotImplementedError(f"num_labels={num_labels}: not supported")
        self._reranker = Reranker(model_name_or_path, threads=_threads())

    def predict(
        self,
        sentences: Any,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: object = None,
        apply_softmax: bool = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
    ) -> Any:
        """The score of each pair of texts, ``[pairs]``, or of one pair."""
        del batch_size, show_progress_bar
        _only({"activation_fn": activation_fn, "apply_softmax": apply_softmax or None})
        single = len(sentences) == 2 and isinstance(sentences[0], str)
        pairs: list[Any] = [sentences] if single else [*sentences]
        for index, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2:
                expected, found = "a pair of texts", repr(pair)[:200]
                message = f"sentences: expected {expected}, found {found} at index {index}"
                raise InputError(message, argument="sentences", expected=expected, found=found, index=index)
        scores = np.zeros(len(pairs), np.float32)
        # The pairs of a query are computed together.
        queries: dict[str, list[int]] = {}
        for index, pair in enumerate(pairs):
            queries.setdefault(pair[0], []).append(index)
        for query, rows in queries.items():
            scores[rows] = self._reranker.score(query, [pairs[index][1] for index in rows])
        if convert_to_tensor:
            return _tensor(scores[0] if single else scores)
        if single:
            return scores[0]
        return scores if convert_to_numpy else [*scores]

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The documents with ``corpus_id`` and ``score``, the best first."""
        _only({name: value for name, value in options.items() if name not in _IGNORED})
        ranking = self._reranker.rank(query, documents, top_k)
        rows: list[dict[str, Any]] = [
            {"corpus_id": one.index, "score": np.float32(one.score)} for one in ranking
        ]
        if return_documents:
            for row, one in zip(rows, ranking, strict=True):
                row["text"] = one.text
        return rows


class _Util:
    """The functions of ``sentence_transformers.util`` that compare vectors. They give tensors if torch is installed, else
    arrays."""

    @staticmethod
    def cos_sim(a: npt.ArrayLike, b: npt.ArrayLike) -> Any:
        """The cosine of each row of `a` with each row of `b`, ``[rows of a, rows of b]``."""
        return _tensor_or_array(_unit(a) @ _unit(b).T)

    @staticmethod
    def dot_score(a: npt.ArrayLike, b: npt.ArrayLike) -> Any:
        """The dot product of each row of `a` with each row of `b`."""
        return _tensor_or_array(_rows(a) @ _rows(b).T)

    @staticmethod
    def pairwise_cos_sim(a: npt.ArrayLike, b: npt.ArrayLike) -> Any:
        """The cosine of each row of `a` with the same row of `b`."""
        return _tensor_or_array((_unit(a) * _unit(b)).sum(axis=1))

    @staticmethod
    def pairwise_dot_score(a: npt.ArrayLike, b: npt.ArrayLike) -> Any:
        """The dot product of each row of `a` with the same row of `b`."""
        return _tensor_or_array((_rows(a) * _rows(b)).sum(axis=1))

    @staticmethod
    def normalize_embeddings(embeddings: npt.ArrayLike) -> Any:
        """The rows, each divided by its length."""
        return _tensor_or_array(_unit(embeddings))

    @staticmethod
    def semantic_search(
        query_embeddings: npt.ArrayLike,
        corpus_embeddings: npt.ArrayLike,
        query_chunk_size: int = 100,
        corpus_chunk_size: int = 500_000,
        top_k: int = 10,
        score_function: Callable[[Any, Any], Any] | None = None,
    ) -> list[list[dict[str, int | float]]]:
        """For each query the best `top_k` rows of the corpus: ``corpus_id`` and ``score``."""
        del corpus_chunk_size
        compare = score_function or _Util.cos_sim
        queries, corpus = _rows(query_embeddings), _rows(corpus_embeddings)
        found: list[list[dict[str, int | float]]] = []
        for start in range(0, len(queries), max(query_chunk_size, 1)):
            scores = np.asarray(compare(queries[start : start + max(query_chunk_size, 1)], corpus))
            for row in scores:
                order = np.argsort(-row, kind="stable")[:top_k]
                found.append([{"corpus_id": int(i), "score": float(row[i])} for i in order])
        return found


util = _Util()
"""``sentence_transformers.util``: `cos_sim`, `dot_score`, the same of pairs, `normalize_embeddings`, `semantic_search`."""


def _similarity_functions(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What compares all vectors, and what compares pairs of them."""
    if name == "cosine":
        return util.cos_sim, util.pairwise_cos_sim
    if name == "dot":
        return util.dot_score, util.pairwise_dot_score
    raise NotImplementedError(f"similarity_fn_name={name!r}: not supported")


def _similarity_name(folder: str) -> str:
    """What the files of a model say."""
    file = Path(folder) / "config_sentence_transformers.json"
    found = json.loads(file.read_text("utf-8")).get("similarity_fn_name") if file.is_file() else None
    return "cosine" if found is None else str(found)


def quantize_embeddings(
    embeddings: npt.ArrayLike,
    precision: Literal["float32", "int8", "uint8", "binary", "ubinary"],
    ranges: npt.ArrayLike | None = None,
    calibration_embeddings: npt.ArrayLike | None = None,
) -> Array:
    """Vectors in fewer bits; see `Embedder.embed`."""
    vectors = np.asarray(embeddings, np.float32)
    if precision == "float32":
        return vectors
    if precision in ("binary", "ubinary"):
        bits = np.packbits(vectors > 0, axis=-1)
        signed: Array = (bits.astype(np.int16) - 128).astype(np.int8)
        return bits if precision == "ubinary" else signed
    if precision not in ("int8", "uint8"):
        raise ValueError(f"precision: expected one of {Precision}, found {precision!r}")
    if ranges is None:
        known = vectors if calibration_embeddings is None else np.asarray(calibration_embeddings)
        ranges = np.vstack((known.min(axis=0), known.max(axis=0)))
    least, most = np.asarray(ranges, np.float32)
    steps = (most - least) / 255
    codes: Array = np.floor((vectors - least) / np.where(steps == 0, 1, steps)).clip(0, 255)
    return codes.astype(np.uint8) if precision == "uint8" else (codes - 128).astype(np.int8)


# Options that change no result here: where a model is looked for, and how much is computed at once.
_IGNORED = {
    "batch_size",
    "cache_folder",
    "chunk_size",
    "convert_to_numpy",
    "convert_to_tensor",
    "local_files_only",
    "model_card_data",
    "num_workers",
    "show_progress_bar",
    "trust_remote_code",
}


def _cpu(device: str | None) -> None:
    if device not in (None, "cpu"):
        raise NotImplementedError(f"device={device!r}: not supported")


def _only(options: dict[str, Any]) -> None:
    """An error that names the options that are set and not supported."""
    names = [name for name, value in options.items() if value is not None]
    if names:
        raise NotImplementedError(f"{', '.join(names)}: not supported")


def _rows(vectors: npt.ArrayLike) -> Array:
    found = np.asarray(vectors)
    return found[None] if found.ndim == 1 else found


def _unit(vectors: npt.ArrayLike) -> Array:
    """The rows, each divided by its length."""
    rows = _rows(vectors)
    unit: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _threads() -> int | None:
    """All processors of the process; None, which is what the environment says, if it says a number."""
    if any(os.environ.get(name) for name in ("SIMDFORMER_NUM_THREADS", "OMP_NUM_THREADS")):
        return None
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _tensor(array: Any) -> Any:
    try:
        import torch
    except ImportError as error:
        message = "convert_to_tensor=True needs torch"
        raise MissingPackageError(message, found="torch") from error
    return torch.from_numpy(np.asarray(array))


def _tensor_or_array(array: Any) -> Any:
    """A tensor if torch is installed, as in sentence-transformers, else the array."""
    try:
        import torch
    except ImportError:
        return array
    return torch.from_numpy(np.ascontiguousarray(array))
