"""Where a model is: a directory, or a name of the Hugging Face hub."""

from __future__ import annotations

import os
import re

from .errors import InputTypeError, MissingPackageError, ModelNotFoundError

# `name` or `owner/name`, as the hub allows them.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def model_path(model: str | os.PathLike[str]) -> str:
    """The directory of a model. A name of the hub is downloaded by ``huggingface_hub``, if that package is installed.

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
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelNotFoundError(
            f"{path}: expected a directory, found none; with the package huggingface_hub "
            "(pip install simdformer[hub]) the name of a model of the hub works too",
            path=path,
        ) from MissingPackageError("huggingface_hub is not installed", found="huggingface_hub")
    try:
        return str(snapshot_download(path, ignore_patterns=_IGNORED))
    except Exception as error:
        raise ModelNotFoundError(
            f"{path}: expected a directory or a model of the hub, found neither: {error}",
            path=path,
        ) from error


# Weights in formats that are not read.
_IGNORED = ["*.h5", "*.msgpack", "*.onnx", "*.ot", "onnx/*", "openvino/*", "flax_model*", "tf_model*"]
