"""A progress bar on request: ``progress=True`` needs the package tqdm, and any function that takes a count works."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from .errors import MissingPackageError

Progress = bool | Callable[[int], object]
"""True for a bar of tqdm, or a function that is called with the number of finished rows, at most every 50 ms."""


@contextmanager
def progress_bar(
    progress: Progress, total: int | None, unit: str
) -> Generator[Callable[[int], object] | None]:
    """A function that takes the number of finished rows; None without progress."""
    if progress is False or progress is None:
        yield None
        return
    if progress is not True:
        yield progress
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        message = "progress=True needs tqdm: pip install simdformer[progress]"
        raise MissingPackageError(message, found="tqdm") from error
    bar: Any
    with tqdm(total=total, unit=unit) as bar:
        yield lambda done: bar.update(done - bar.n)
