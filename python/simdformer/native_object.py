"""What the classes over native objects share: closing, ``with``, an error after that, and what they were opened with."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, TypeVar

from .errors import ClosedError, CutWarning, InputTypeError

Self = TypeVar("Self", bound="Closing")


class Closing:
    """An object that ``with`` closes."""

    def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


Native = TypeVar("Native")


class NativeObject(Closing, Generic[Native]):
    """An object of the native module, and its end."""

    _native: Native | None

    def close(self) -> None:
        """Frees the memory. Every later call raises `ClosedError`."""
        self._native = None

    def _open(self) -> Native:
        native = self._native
        if native is None:
            name = type(self).__name__
            raise ClosedError(f"expected an open {name}, found one that was closed")
        return native


class _WithIsa(Protocol):
    @property
    def isa(self) -> str: ...


NativeModel = TypeVar("NativeModel", bound=_WithIsa)


class ModelObject(NativeObject[NativeModel]):
    """A native object over the model of a directory."""

    _path: str
    _threads: int

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


def strings(texts: Iterable[str], argument: str) -> list[str]:
    """A list of strings: of a list, a tuple, an iterator, a column of numpy, Arrow, pandas or polars. What has no order, or
    would give something else than its texts, is an `InputTypeError`: a set, a dictionary, a table, one string."""
    given: Any = texts
    each = text_iterator(given, argument)
    found: list[Any] = given.to_pylist() if hasattr(given, "to_pylist") else list(each)
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise _not_strings(argument, "strings", text, index)
        _check_characters(text, argument, index)
    return found


def text_iterator(texts: Iterable[str], argument: str) -> Iterator[str]:
    """An iterator over what may be texts in order: no set, no dictionary, no table, no string."""
    given: Any = texts
    # A table and a data frame would give the names of their columns.
    unfit = isinstance(given, (str, bytes, bytearray, memoryview, Mapping, Set)) or hasattr(given, "columns")
    if unfit:
        raise _not_strings(argument, "a list of strings", given)
    try:
        return iter(given)
    except TypeError as error:
        raise _not_strings(argument, "a list of strings", given) from error


def string(text: object, argument: str, expected: str = "a string") -> str:
    """One string."""
    if not isinstance(text, str):
        raise _not_strings(argument, expected, text)
    _check_characters(text, argument, None)
    return text


def text_or_texts(texts: object, argument: str) -> list[str]:
    """One string, or a list of strings."""
    if isinstance(texts, str):
        return [string(texts, argument)]
    if isinstance(texts, Iterable) and not isinstance(texts, (bytes, bytearray, memoryview)):
        return strings(texts, argument)
    raise _not_strings(argument, "a string or a list of strings", texts)


def _not_strings(argument: str, expected: str, found: object, index: int | None = None) -> InputTypeError:
    shown = repr(found)
    if len(shown) > 200:
        shown = f"{type(found).__module__}.{type(found).__qualname__}"
    place = "" if index is None else f" at index {index}"
    return InputTypeError(
        f"{argument}: expected {expected}, found {shown}{place}",
        argument=argument,
        expected=expected,
        found=shown,
        index=index,
    )


def _check_characters(text: str, argument: str, index: int | None) -> None:
    """An error if a surrogate is alone: it is half of a character, and no other program would read it."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"half a character, {text[error.start]!r}, at position {error.start}"
        place = "" if index is None else f" of index {index}"
        raise InputTypeError(
            f"{argument}: expected characters, found {found}{place}",
            argument=argument,
            expected="characters",
            found=found,
            index=index,
        ) from error


def warn_of_cut(message: str) -> None:
    """A `CutWarning` at the call of this package."""
    depth = 2
    # The first frame that is not of this package.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("simdformer"):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, CutWarning, stacklevel=depth)


def warn_of_cut_sources(cut: Sequence[int], total: int, argument: str, most: int | None = None) -> None:
    """A `CutWarning` that names the texts of a call which were cut."""
    if cut:
        limit = "" if most is None else f" of {most} tokens"
        first = f", the first is {argument}[{cut[0]}]" if total > 1 else ""
        warn_of_cut(f"{argument}: cut at the limit{limit}: {len(cut)} of {total}{first}")


def megabytes(count: int) -> str:
    """Bytes for a reader."""
    return f"{count / 1e6:.1f} MB"
