"""What the classes over native objects share: closing, ``with``, an error after that, and what they were opened with."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from .errors import ClosedError, InputTypeError

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


def strings(texts: Sequence[str], argument: str) -> list[str]:
    """A list of strings; numpy's and Arrow's strings are converted."""
    found: list[Any] = getattr(texts, "to_pylist", lambda: list(texts))()
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise InputTypeError(
                f"{argument}: expected strings, found {text!r} at index {index}",
                argument=argument,
                expected="strings",
                found=repr(text),
                index=index,
            )
    return found


def megabytes(count: int) -> str:
    """Bytes for a reader."""
    return f"{count / 1e6:.1f} MB"
