"""`Translator`: text in, text out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, overload

from . import _simdformer
from .errors import ClosedError, InputTypeError
from .model_path import model_path
from .options import TranslatorOptions, thread_count


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
        self, texts: str, *, split: bool = True, stream: int = 0
    ) -> str: ...
    @overload
    def translate(
        self, texts: Sequence[str], *, split: bool = True, stream: int = 0
    ) -> list[str]: ...
    def translate(
        self, texts: str | Sequence[str], *, split: bool = True, stream: int = 0
    ) -> str | list[str]:
        """The translation of a text, or of each text of a list, in order.

        A text is divided into sentences, and what stands between them is kept. With ``split=False`` each text is one
        sentence, whatever is in it. With sampling, sentence ``i`` of the call draws from random stream
        ``stream + i``.
        """
        native = self._open()
        if isinstance(texts, str):
            return native.translate([texts], split, stream)[0]
        return native.translate(_texts(texts), split, stream)

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
