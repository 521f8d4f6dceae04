"""`Translator`: text in, text out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from . import _simdformer
from .errors import ClosedError, InputError, InputTypeError, OptionError, SimdformerError
from .generated import Generated
from .model_path import model_path
from .options import TranslatorOptions, thread_count
from .progress import Progress, progress_bar
from .ragged import Ragged, rows_of


class Translator:
    """Translates, summarizes or rewrites texts with an encoder-decoder model.

    `model` is a directory with a checkpoint, or the name of a model of the Hugging Face hub. `threads` is the number of
    threads of a call (`thread_count`). `isa` names an instruction set, and an `IsaError` is raised if this machine
    lacks it; `dtype` is one of ``f32, bf16, f16, int8, int8x16``. Further keywords are those of `TranslatorOptions`.

    A translator can be shared by threads, pickled (its path and options are), used after a fork, and closed by
    ``with``. Its results depend on the text, the model and the options alone: not on the other texts of a call, nor
    on `threads`.

    >>> translator = Translator(demo_model)
    >>> translator.translate("je suis étudiant")
    'i am a student'
    >>> translator.translate(["je suis étudiant", "il fait froid"])
    ['i am a student', 'it is cold']
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        isa: str | None = None,
        dtype: str | None = None,
        options: TranslatorOptions | None = None,
        **changes: Any,
    ) -> None:
        values = {} if options is None else options.to_dict()
        self._options = TranslatorOptions(**{**values, **changes})
        self._path = model_path(model)
        self._threads = thread_count(threads)
        self._isa, self._dtype = isa, dtype
        self._native: _simdformer.Translator | None = _simdformer.Translator(
            self._path, isa=isa, dtype=dtype, threads=self._threads, options=self._options.to_dict()
        )

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a Sequence[str], too
        self, texts: str, *, split: bool = True, stream: int = 0, progress: Progress = False
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        split: bool = True,
        stream: int = 0,
        progress: Progress = False,
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        split: bool = True,
        stream: int = 0,
        progress: Progress = False,
    ) -> str | list[str]:
        """The translation of a text, or of each text of a list, in order.

        A text is divided into sentences, and what stands between them is kept. With ``split=False`` each text is one
        sentence, whatever is in it. With sampling, sentence ``i`` of the call draws from random stream
        ``stream + i``. `progress` counts sentences.
        """
        native = self._open()
        if isinstance(texts, str):
            return native.translate([texts], split, stream, None)[0]
        with progress_bar(progress, None, "sentences") as bar:
            return native.translate(_texts(texts), split, stream, bar)

    def generate(
        self,
        ids: Any,
        offsets: npt.ArrayLike | None = None,
        *,
        beams: int | None = None,
        num_return: int | None = None,
        max_new_tokens: int | None = None,
        scores: bool = False,
        prefix: Any = None,
        target_lang: str | None = None,
        seed: int | None = None,
        streams: npt.ArrayLike | None = None,
        errors: Literal["raise", "column"] = "raise",
        out: Ragged | None = None,
        options: TranslatorOptions | None = None,
        progress: Progress = False,
    ) -> Generated:
        """Ids in, ids out, without strings: rows of source ids, each with its end token.

        `ids` and `offsets` are uint32, ``[tokens]``, and int64, ``[rows + 1]``: row ``i`` is
        ``ids[offsets[i]:offsets[i + 1]]``. Without `offsets`, `ids` is a `Ragged`, a list column of Arrow, or a list
        of rows.

        `prefix` holds target ids that must come first, one row for each source. `streams` is the random stream of
        each source, its index if it is None: with the id of a row, samples do not depend on the batch. `options`
        replaces further options of the translator for this call; the keywords come first.

        With ``errors="column"`` a source that the model refuses is reported in `Generated.errors`, and the others are
        run; with ``errors="raise"`` the first one is raised before anything is run. `out` receives the ids and the
        offsets, and its arrays are those of the result; they must be large enough.

        >>> found = translator.generate([[6, 11, 0], [8, 0]], scores=True)
        >>> len(found.tokens), found.scores.dtype
        (2, dtype('float32'))
        """
        native = self._open()
        changes = None
        if (
            beams is not None
            or num_return is not None
            or max_new_tokens is not None
            or seed is not None
            or target_lang is not None
            or options is not None
        ):
            changes = {} if options is None else options.to_dict()
            keywords = {
                "beams": beams,
                "num_return": num_return,
                "max_new_tokens": max_new_tokens,
                "seed": seed,
                "target_lang": target_lang,
            }
            changes.update((name, value) for name, value in keywords.items() if value is not None)
        if errors not in ("raise", "column"):
            expected = '"raise" or "column"'
            raise OptionError(
                f"errors: expected {expected}, found {errors!r}",
                option="errors",
                expected=expected,
                found=errors,
            )
        rows = rows_of(ids, offsets, "ids")
        prefixes = None if prefix is None else rows_of(prefix, None, "prefix")
        numbers = None if streams is None else _streams(streams)
        skips = errors == "column"
        if progress is False:
            found = native.generate(rows, changes, prefixes, numbers, scores, skips, None)
        else:
            with progress_bar(progress, len(rows[1]) - 1, "rows") as bar:
                found = native.generate(rows, changes, prefixes, numbers, scores, skips, bar)
        tokens, ends, values, finish, refused, sequences = found
        column: list[SimdformerError | None] = []
        if skips:
            column = [None] * len(finish)
            for index, error in refused:
                if isinstance(error, SimdformerError):
                    column[index] = error
        shaped = values if sequences == 1 else values.reshape(-1, sequences)
        result = Ragged.of_checked(tokens, ends) if out is None else _fill(out, tokens, ends)
        present = scores or len(values) == 0 or not np.isnan(values).all()
        return Generated(result, shaped if present else None, finish, column, sequences)

    @property
    def options(self) -> TranslatorOptions:
        """The options that were given."""
        return self._options

    @property
    def path(self) -> str:
        """The directory of the model."""
        return self._path

    @property
    def threads(self) -> int:
        """The number of threads of a call."""
        return self._threads

    @property
    def isa(self) -> str:
        """The instruction set that the weights are packed for."""
        return self._open().isa

    def close(self) -> None:
        """Frees the memory. Every later call raises `ClosedError`."""
        self._native = None

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._path, self._threads, self._isa, self._dtype, self._options.to_dict())
        return _open, (type(self), *arguments)

    def __repr__(self) -> str:
        return f"Translator({self._path!r}, threads={self._threads}, {self._options!r})"

    def _open(self) -> _simdformer.Translator:
        if self._native is None:
            raise ClosedError("expected an open Translator, found one that was closed")
        return self._native


def _open(
    kind: type[Translator],
    path: str,
    threads: int,
    isa: str | None,
    dtype: str | None,
    options: dict[str, Any],
) -> Translator:
    return kind(path, threads=threads, isa=isa, dtype=dtype, **options)


def _texts(texts: Sequence[str]) -> list[str]:
    """A list of strings; numpy's and Arrow's strings are converted."""
    found = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise InputTypeError(
                f"texts: expected strings, found {text!r} at index {index}",
                argument="texts",
                expected="strings",
                found=repr(text),
                index=index,
            )
    return found


def _streams(streams: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    found = np.asarray(streams)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InputTypeError(
            f"streams: expected one whole number for each source, found {found.dtype} of shape {found.shape}",
            argument="streams",
            expected="one whole number for each source",
            found=f"{found.dtype} of shape {found.shape}",
        )
    # A negative number is a stream, too: its 64 bits.
    return np.ascontiguousarray(found.astype(np.uint64, casting="unsafe"))


def _fill(out: Ragged, ids: npt.NDArray[np.uint32], offsets: npt.NDArray[np.int64]) -> Ragged:
    """Copies a result to the arrays of `out`, and returns the parts of them that it fills."""
    for argument, array, needed in (("ids", out.ids, len(ids)), ("offsets", out.offsets, len(offsets))):
        if len(array) < needed:
            raise InputError(
                f"out.{argument}: expected at least {needed} elements, found {len(array)}",
                argument=f"out.{argument}",
                expected=needed,
                found=len(array),
            )
    out.ids[: len(ids)] = ids
    out.offsets[: len(offsets)] = offsets
    return Ragged.of_checked(out.ids[: len(ids)], out.offsets[: len(offsets)])
