"""`Embedder`: texts in, vectors out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from . import _simdformer
from .errors import InputError, OptionError
from .model_path import model_path
from .native_object import ModelObject, megabytes, strings, text_or_texts, warn_of_cut_sources
from .options import thread_count, token_count
from .progress import Progress, progress_bar

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
"""The form of the numbers of a vector, as sentence-transformers names it."""

_Signed = Literal["int8", "binary"]
_Unsigned = Literal["uint8", "ubinary"]
_Array = npt.NDArray[Any]


class Embedder(ModelObject[_simdformer.Embedder]):
    """Computes a vector for each text: sentence-transformers, E5, BGE, GTE and other encoders.

    `model` is a directory with a checkpoint, or the name of a model of the Hugging Face hub; its pooling, prompts and
    further modules are those of its files. `threads`, `isa` and `dtype` are those of `Translator`. With
    ``truncate=False`` a text that is too long is an error; otherwise it is cut, and a `CutWarning` says so. `max_tokens` is
    the most tokens of a text, special ones included (what the model's files say). `slots` is the number of texts that are
    computed together.

    An embedder can be shared by threads, pickled, used after a fork, and closed by ``with``. The vector of a text does
    not depend on the other texts of a call, nor on `threads`.

    >>> embedder = Embedder(encoder)
    >>> embedder.embed(["How are you?", "Comment vas-tu ?"]).shape
    (2, 6)
    >>> embedder.embed("How are you?").dtype
    dtype('float32')
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        isa: str | None = None,
        dtype: str | None = None,
        truncate: bool = True,
        max_tokens: int | None = None,
        slots: int = 32,
    ) -> None:
        self._path = model_path(model)
        self._threads = thread_count(threads)
        self._isa, self._dtype = isa, dtype
        self._truncate, self._slots = bool(truncate), slots
        self._max_tokens = None if max_tokens is None else token_count(max_tokens)
        self._native = _simdformer.Embedder(
            self._path,
            isa=isa,
            dtype=dtype,
            threads=self._threads,
            truncate=self._truncate,
            max_tokens=self._max_tokens,
            slots=slots,
        )

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        normalize: bool = True,
        dim: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        precision: Literal["float32"] = "float32",
        ranges: npt.ArrayLike | None = None,
        out: _Array | None = None,
        progress: Progress = False,
    ) -> npt.NDArray[np.float32]: ...
    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        normalize: bool = True,
        dim: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        precision: _Signed,
        ranges: npt.ArrayLike | None = None,
        out: _Array | None = None,
        progress: Progress = False,
    ) -> npt.NDArray[np.int8]: ...
    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        normalize: bool = True,
        dim: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        precision: _Unsigned,
        ranges: npt.ArrayLike | None = None,
        out: _Array | None = None,
        progress: Progress = False,
    ) -> npt.NDArray[np.uint8]: ...
    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        normalize: bool = True,
        dim: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        precision: Precision,
        ranges: npt.ArrayLike | None = None,
        out: _Array | None = None,
        progress: Progress = False,
    ) -> _Array: ...
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        normalize: bool = True,
        dim: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        precision: Precision = "float32",
        ranges: npt.ArrayLike | None = None,
        out: _Array | None = None,
        progress: Progress = False,
    ) -> _Array:
        """The vectors of `texts`, ``[texts, dim]``, or of one text, ``[dim]``, without a copy.

        With `normalize` they have length 1, so that their dot product is the cosine; without it they are what the
        modules of the model give. `dim` keeps only so many leading dimensions, which suits models that were trained
        for it (Matryoshka). `prompt` is written before each text; `prompt_name` is the name of a prompt of the model.

        `precision` is that of sentence-transformers' ``quantize_embeddings``: ``int8`` and ``uint8`` divide the range
        of each dimension into 256 steps, ``binary`` and ``ubinary`` store the signs of eight dimensions in a byte.
        `ranges`, ``[2, dim]``, has the least and the greatest value of each dimension; without it those of this call
        are used, and vectors of another call cannot be compared with them.

        `out` receives the vectors and is returned: an array of the shape and the dtype of the result.

        Numbers that are NaN or infinite raise a `NotFiniteError` with the index of the text.
        """
        native = self._open()
        single = isinstance(texts, str)
        rows = text_or_texts(texts, "texts")
        name = "f32" if precision == "float32" else precision
        limits = None
        if ranges is not None:
            limits = np.ascontiguousarray(ranges, np.float32)
            if limits.ndim != 2:
                raise InputError(
                    f"ranges: expected 2 dimensions, found {limits.ndim}",
                    argument="ranges",
                    expected=2,
                    found=limits.ndim,
                )
        with progress_bar(progress, len(rows), "texts") as bar:
            flat, width, cut = native.embed(
                rows, normalize, dim, (prompt_name, prompt), name, limits, bar
            )
        warn_of_cut_sources(cut, len(rows), "texts", self.max_tokens)
        vectors: _Array = flat if single else flat.reshape(len(rows), width)
        return vectors if out is None else _filled(out, vectors)

    encode = embed
    """The name that sentence-transformers has for `embed`."""

    def count_tokens(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> npt.NDArray[np.uint32]:
        """The number of tokens of each text with its prompt, special ones included, before it is cut."""
        return self._open().count_tokens(strings(texts, "texts"), (prompt_name, prompt))

    def has_prompt(self, name: str) -> bool:
        """Whether the model has a prompt of this name."""
        try:
            self.count_tokens([], prompt_name=name)
        except OptionError:
            return False
        return True

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a text, special ones included; None if there is no limit."""
        return self._open().max_tokens

    @property
    def dim(self) -> int:
        """The number of dimensions of a vector."""
        return self._open().width

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._threads, self._isa, self._dtype, self._truncate, self._max_tokens, self._slots)
        return _opened, (type(self), self._path, *arguments)

    def __repr__(self) -> str:
        if self._native is None:
            return f"Embedder({self._path!r}, closed)"
        plan = f"{self._native.width} dimensions, weights of {megabytes(self._native.model_bytes)}"
        return f"Embedder({self._path!r}, threads={self._threads}): {plan}"


def _opened(
    kind: type[Embedder],
    path: str,
    threads: int,
    isa: str | None,
    dtype: str | None,
    truncate: bool,
    max_tokens: int | None,
    slots: int,
) -> Embedder:
    return kind(
        path,
        threads=threads,
        isa=isa,
        dtype=dtype,
        truncate=truncate,
        max_tokens=max_tokens,
        slots=slots,
    )


def _filled(out: _Array, vectors: _Array) -> _Array:
    if out.shape != vectors.shape:
        raise InputError(
            f"out: expected the shape {vectors.shape}, found {out.shape}",
            argument="out",
            expected=vectors.shape,
            found=out.shape,
        )
    if out.dtype != vectors.dtype:
        raise OptionError(
            f"out: expected {vectors.dtype}, found {out.dtype}",
            option="out",
            expected=str(vectors.dtype),
            found=str(out.dtype),
        )
    out[...] = vectors
    return out
