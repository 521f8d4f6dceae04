"""`Reranker`: scores of texts together with a query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _simdformer
from .errors import OptionError
from .model_path import model_path
from .native_object import ModelObject, megabytes, string, strings, warn_of_cut_sources
from .options import thread_count
from .progress import Progress, progress_bar


@dataclass(frozen=True, slots=True)
class Ranked:
    """A text of a ranking."""

    index: int
    """The index of the text."""
    score: float
    """Its score."""
    text: str
    """The text."""


class Reranker(ModelObject[_simdformer.Reranker]):
    """Scores texts together with a query: cross-encoders with one score.

    The arguments are those of `Embedder`; `prompt` is written before each query, `prompt_name` is the name of a prompt
    of the model. A reranker can be shared by threads, pickled, used after a fork, and closed by ``with``.

    >>> reranker = Reranker(cross_encoder)
    >>> ranking = reranker.rank("How are you?", ["fine", "the old house", "a white car"], top_k=2)
    >>> len(ranking), ranking[0].score >= ranking[1].score
    (2, True)
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        isa: str | None = None,
        dtype: str | None = None,
        truncate: bool = True,
        slots: int = 32,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> None:
        self._path = model_path(model)
        self._threads = thread_count(threads)
        self._settings = (isa, dtype, bool(truncate), slots, prompt_name, prompt)
        self._native = _simdformer.Reranker(
            self._path,
            isa=isa,
            dtype=dtype,
            threads=self._threads,
            truncate=bool(truncate),
            slots=slots,
            prompt_name=prompt_name,
            prompt=prompt,
        )

    def score(
        self,
        query: str,
        texts: Sequence[str],
        *,
        raw: bool = False,
        progress: Progress = False,
    ) -> npt.NDArray[np.float32]:
        """The score of each text, ``[texts]``, float32. With `raw` it is the output of the classifier, without the
        activation of the model.

        A score that is NaN raises a `NotFiniteError`. A pair that is too long is cut, and a `CutWarning` says so; with
        ``truncate=False`` it is a `LimitError`."""
        outputs, values, _ = self._scores(query, texts, progress)
        return outputs if raw else values

    def rank(
        self,
        query: str,
        texts: Sequence[str],
        top_k: int | None = None,
        *,
        raw: bool = False,
        progress: Progress = False,
    ) -> list[Ranked]:
        """The best `top_k` texts, or all, the best first. Texts of the same score keep their order. Where the
        activation rounds two scores to the same number, the output of the classifier decides."""
        if top_k is not None and top_k < 0:
            raise OptionError(
                f"top_k: expected at least 0, found {top_k}", option="top_k", expected=0, found=top_k
            )
        outputs, values, rows = self._scores(query, texts, progress)
        order: list[int] = np.argsort(-outputs, kind="stable")[:top_k].tolist()
        scores = outputs if raw else values
        return [Ranked(index, float(scores[index]), rows[index]) for index in order]

    def _scores(
        self, query: str, texts: Sequence[str], progress: Progress
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], list[str]]:
        """The outputs of the classifier, the same after the activation, and the texts."""
        native, rows = self._open(), strings(texts, "texts")
        with progress_bar(progress, len(rows), "texts") as bar:
            outputs, values, cut = native.score(string(query, "query"), rows, bar)
        warn_of_cut_sources(cut, len(rows), "texts")
        return outputs, values, rows

    @property
    def activation(self) -> str:
        """What is applied to the output of the classifier: ``Identity``, ``Sigmoid`` or ``Tanh``."""
        return self._open().activation

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (type(self), self._path, self._threads, *self._settings)

    def __repr__(self) -> str:
        if self._native is None:
            return f"Reranker({self._path!r}, closed)"
        plan = f"weights of {megabytes(self._native.model_bytes)}"
        return f"Reranker({self._path!r}, threads={self._threads}): {plan}"


def _opened(
    kind: type[Reranker],
    path: str,
    threads: int,
    isa: str | None,
    dtype: str | None,
    truncate: bool,
    slots: int,
    prompt_name: str | None,
    prompt: str | None,
) -> Reranker:
    return kind(
        path,
        threads=threads,
        isa=isa,
        dtype=dtype,
        truncate=truncate,
        slots=slots,
        prompt_name=prompt_name,
        prompt=prompt,
    )
