"""What the classes over a native object share: closing, ``with``, and an error after that."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from .errors import ClosedError, InputTypeError

Native = TypeVar("Native")
Self = TypeVar("Self", bound="NativeObject[Any]")


class NativeObject(Generic[Native]):
    """An object of the native module, and its end."""

    _native: Native | None

    def close(self) -> None:
        """Frees the memory. Every later call raises `ClosedError`."""
        self._native = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> Native:
        native = self._native
        if native is None:
            name = type(self).__name__
            raise ClosedError(f"expected an open {name}, found one that was closed")
        return native


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
