"""What the modules of this package share: the types of CTranslate2, and the error of an option that is not supported."""

from __future__ import annotations

from typing import Any, NoReturn

DTYPES = {
    "default": None,
    "auto": None,
    "float32": "f32",
    "int8": "int8",
    "int8_float32": "int8",
    "bfloat16": "bf16",
    "float16": "f16",
}
"""The dtype of each ``compute_type``; None is that of the checkpoint."""


def unsupported(option: str, value: object) -> NoReturn:
    """Raises the error of an option."""
    raise NotImplementedError(f"{option}={value!r} is not supported")


def only_supported(options: dict[str, tuple[Any, bool]]) -> None:
    """An error that names the first option whose value is not supported.

    >>> only_supported({"beam_size": (5, True), "patience": (2, False)})
    Traceback (most recent call last):
    NotImplementedError: patience=2 is not supported
    """
    for option, (value, is_supported) in options.items():
        if not is_supported:
            unsupported(option, value)


def dtype_of(compute_type: str) -> str | None:
    """The dtype of a ``compute_type``, or an error that names it."""
    if compute_type not in DTYPES:
        unsupported("compute_type", compute_type)
    return DTYPES[compute_type]
