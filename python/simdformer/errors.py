"""The exceptions. Each is a `SimdformerError` and a class of Python, has fields, and can be pickled.

| exception | also a | raised when |
|---|---|---|
| `ModelNotFoundError` | `FileNotFoundError` | a directory or one of its files is missing |
| `CheckpointError` | `ValueError` | a file of a checkpoint is invalid or not supported |
| `OptionError` | `ValueError` | an option is outside its range, or has no effect |
| `OptionTypeError` | `TypeError` | an option is of another type |
| `LanguageError` | `ValueError` | the model lacks a language, or needs one |
| `LimitError` | `ValueError` | a request is beyond the limits that were planned |
| `TokenError` | `ValueError` | a token id is outside the vocabulary |
| `InputError` | `ValueError` | an array or a text does not have the layout that the call needs |
| `InputTypeError` | `TypeError` | an argument is of another type |
| `NotFiniteError` | `ArithmeticError` | the scores of a source are NaN or infinite |
| `DocumentError` | `ValueError` | a document is not of its format |
| `AudioError` | `ValueError` | a recording cannot be read, or has another format |
| `AudioNotFoundError` | `FileNotFoundError` | a recording is missing |
| `HandleError` | `LookupError` | a source or a hypothesis was released, or belongs to another session |
| `IsaError` | `RuntimeError` | this machine lacks an instruction set |
| `MemoryPlanError` | `MemoryError` | the system cannot allocate the planned memory |
| `ForkError` | `RuntimeError` | an object cannot be used in a child of a fork |
| `ClosedError` | `RuntimeError` | the object was closed |
| `BusyError` | `RuntimeError` | another thread computes with a `Session` |
| `MissingPackageError` | `ImportError` | a function needs a package that is not installed |
| `CancelledError` | `RuntimeError` | another thread ended the call |
| `InternalError` | `RuntimeError` | a bug of this package |

`CutWarning` is a `UserWarning`: a call has used a part of a text or of a recording, or its result may lack its end.
"""

from __future__ import annotations

# The package imports this module and nothing else: `typing` takes longer to import than all of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SimdformerError(Exception):
    """The base of all exceptions of this package.

    The message is the only positional argument. Keyword arguments become attributes:

    >>> error = LimitError("beams: expected at most 4, found 5", limit="beams", expected=4, found=5)
    >>> error.limit, error.expected, error.found
    ('beams', 4, 5)
    >>> import pickle
    >>> pickle.loads(pickle.dumps(error)).found
    5
    """

    expected: Any = None
    """What the call needs, if one value says it."""
    found: Any = None
    """What it was given."""
    index: int | None = None
    """The index of the row or the text of the call that is refused, if one is; of a document, that of the paragraph."""
    sentence: int | None = None
    """The index of the sentence that failed among those of its text."""
    source: str | None = None
    """The sentence that failed, if its text has several."""
    reason: str | None = None
    """Why the text or the sentence failed, without its place."""

    def __init__(self, message: str = "", /, **fields: Any) -> None:
        super().__init__(message)
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way works too, but tblib, which Dask and Ray use, needs a method.
        return _restore, (type(self), str(self), dict(self.__dict__))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def _restore(kind: type[SimdformerError], message: str, fields: dict[str, Any]) -> SimdformerError:
    return kind(message, **fields)


class CheckpointError(SimdformerError, ValueError):
    """A file of a checkpoint is invalid or not supported."""

    setting: str | None = None
    """What does not fit: a file and the key in it, or the name of a setting."""


class ModelNotFoundError(CheckpointError, FileNotFoundError):
    """A directory or one of its files is missing."""

    path: str | None = None
    """The path that is missing."""


class OptionError(SimdformerError, ValueError):
    """An option is outside its range, or has no effect."""

    option: str | None = None
    """The name of the option."""


class OptionTypeError(OptionError, TypeError):
    """An option is of another type."""


class LanguageError(SimdformerError, ValueError):
    """The model lacks a language, or needs one."""

    option: str | None = None
    """The name of the option."""
    nearest: list[str] | None = None
    """Languages of the model."""


class LimitError(SimdformerError, ValueError):
    """A request is beyond the limits that were planned."""

    limit: str | None = None
    """The name of the limit."""


class TokenError(SimdformerError, ValueError):
    """A token id is outside the vocabulary: `expected` is its size, `found` the id."""

    position: int | None = None
    """The position of the token in its row."""


class InputError(SimdformerError, ValueError):
    """An array or a text does not have the layout that the call needs."""

    argument: str | None = None
    """The name of the argument."""


class InputTypeError(InputError, TypeError):
    """An argument is of another type."""


class NotFiniteError(SimdformerError, ArithmeticError):
    """The scores of a source are NaN or infinite."""


class DocumentError(SimdformerError, ValueError):
    """A document is not of its format."""


class AudioError(SimdformerError, ValueError):
    """A recording cannot be read, or has another format."""

    path: str | None = None
    """The path of the recording, if it could not be opened."""
    seconds: float | None = None
    """The time that was decoded before the damage."""


class AudioNotFoundError(AudioError, FileNotFoundError):
    """A recording is missing."""


class HandleError(SimdformerError, LookupError):
    """A source or a hypothesis was released, or belongs to another session."""


class IsaError(SimdformerError, RuntimeError):
    """This machine lacks an instruction set."""

    available: list[str] | None = None
    """The instruction sets of this machine."""


class MemoryPlanError(SimdformerError, MemoryError):
    """The system cannot allocate the planned memory."""

    bytes: int | None = None
    """The bytes that were requested."""


class ForkError(SimdformerError, RuntimeError):
    """An object cannot be used in a child of a fork."""


class ClosedError(SimdformerError, RuntimeError):
    """The object was closed."""


class BusyError(SimdformerError, RuntimeError):
    """Another thread computes with a `Session`."""


class MissingPackageError(SimdformerError, ImportError):
    """A function needs a package that is not installed: `found` is its name."""


class CancelledError(SimdformerError, RuntimeError):
    """Another thread ended the call."""


class InternalError(SimdformerError, RuntimeError):
    """A bug of this package."""


class CutWarning(UserWarning):
    """A call has used a part of a text or of a recording, or its result reached the maximum length and may lack its end."""
