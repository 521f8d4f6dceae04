"""Where a model is: a directory, or a name of the Hugging Face hub."""

from __future__ import annotations

import os
import re

from .errors import InputTypeError, MissingPackageError, ModelNotFoundError

# `name` or `owner/name`, as the hub allows them.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def model_path(model: str | os.PathLike[str]) -> str:
    """The directory of a model. A name of the hub is downloaded by ``huggingface_hub``, if that package is installed;
    what it has in its cache is used if every file of the model is there and whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     model_path(directory) == directory
    True
    """
    if not isinstance(model, (str, os.PathLike)):
        raise InputTypeError(
            f"model: expected a directory or the name of a model, found {model!r}",
            argument="model",
            expected="a directory or the name of a model",
            found=repr(model),
        )
    path = os.fspath(model)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if os.path.exists(path) or not _NAME.fullmatch(path):
        return path
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise ModelNotFoundError(
            f"{path}: expected a directory, found none; with the package huggingface_hub "
            "(pip install simdformer[hub]) the name of a model of the hub works too",
            path=path,
        ) from MissingPackageError("huggingface_hub is not installed", found="huggingface_hub")
    from .hub_cache import snapshot

    try:
        return snapshot(path)
    except ModelNotFoundError:
        raise
    except Exception as error:
        raise ModelNotFoundError(
            f"{path}: expected a directory or a model of the hub, found neither: {error}",
            path=path,
        ) from error
