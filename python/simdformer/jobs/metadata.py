"""What identifies a result: the entries that travel in Parquet files, and the comparison before a restart.

========================== ================================================================================
`simdformer.fingerprint`   SHA-256 of the fingerprint of the model and its tokenizer, the options of the job, and for
                           texts, which the package divides into sentences and tokens, its version
`simdformer.isa`           the instruction set that computed the rows; all sets give the same bits
`simdformer.version`       the version of the package
`simdformer.options`       the fields of `Config` without path, threads and sessions, as canonical JSON
========================== ================================================================================

Two files with one fingerprint have the result of one computation, whoever made them. The entries are in the key-value
metadata of the footer; Spark keeps metadata of columns only, so there they are at the result column. A job also writes
them to `_simdformer.json` in its directory before the first row, which engines ignore as they do `_SUCCESS`.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ..errors import SimdformerError
from .config import Config, canonical
from .worker import version, worker

PREFIX = "simdformer."
#: The file in the directory of a job.
MANIFEST = "_simdformer.json"
#: Where Spark keeps the metadata of columns.
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
#: Fields of `Config` that change no result.
_FREE = ("path", "threads", "sessions")


class MixtureError(SimdformerError, ValueError):
    """A directory has rows of another computation. Fields: `file`; `key`, the entry that differs; `expected`;
    `found`, `None` if the file has no such entry."""

    file: str
    key: str
    expected: str
    found: str | None


def texts(config: Config) -> dict[str, str]:
    """The entries of a job. Opens the model."""
    return dict(_texts(config))


def entries(config: Config) -> dict[bytes, bytes]:
    """The entries of a job, as the metadata of an Arrow schema. Opens the model."""
    return {key.encode(): value.encode() for key, value in _texts(config).items()}


@lru_cache(maxsize=64)
def _texts(config: Config) -> Mapping[str, str]:
    engine = worker(config)
    options = {key: value for key, value in json.loads(config.json()).items() if key not in _FREE}
    decisive = {key: value for key, value in options.items() if key not in ("isa", "options")}
    decisive["model"] = engine.fingerprint()
    decisive["options"] = {key: value for key, value in options.get("options", {}).items() if key != "slots"}
    if config.task != "generate":
        decisive["version"] = version()
    identity = canonical(decisive)
    return {
        "simdformer.fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "simdformer.isa": engine.isa(),
        "simdformer.version": version(),
        "simdformer.options": canonical(options),
    }


def filesystem(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """The file system of a path or of an address such as `s3://bucket/rows`, and the path there."""
    text = os.fspath(path)
    if "://" in text:
        system, inner = pafs.FileSystem.from_uri(text)
        return system, str(inner)
    return pafs.LocalFileSystem(), os.path.abspath(text)


def parquet_files(path: str | os.PathLike[str]) -> list[str]:
    """The Parquet files under a directory, or the one file, sorted. Names that begin with `_` or `.` are no data."""
    system, root = filesystem(path)
    info = system.get_file_info(root)
    if info.type == pafs.FileType.File:
        return [root]
    selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
    found = [each.path for each in system.get_file_info(selector) if each.is_file]
    inside = [(file, file[len(root) :].strip("/").split("/")) for file in found if file.endswith(".parquet")]
    return sorted(file for file, names in inside if not any(name[0] in "_." for name in names))


def stored(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each Parquet file of a directory with its entries, and the manifest if there is one."""
    system, root = filesystem(path)
    manifest = read_manifest(path)
    if manifest:
        yield f"{root}/{MANIFEST}", manifest

    def entries(file: str) -> tuple[str, dict[str, str]]:
        return file, file_entries(system, file) or manifest

    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(entries, parquet_files(path))


def file_entries(system: Any, file: str) -> dict[str, str]:
    """The entries in one Parquet file; empty if it has none."""
    found: Mapping[bytes, bytes] = pq.read_metadata(file, filesystem=system).metadata or {}
    values = {key.decode(): value.decode() for key, value in found.items() if key.startswith(PREFIX.encode())}
    if not values and _SPARK in found:
        for column in json.loads(found[_SPARK])["fields"]:
            values.update({k: v for k, v in column["metadata"].items() if k.startswith(PREFIX)})
    return values


def read_manifest(path: str | os.PathLike[str]) -> dict[str, str]:
    """The manifest of a directory; empty if it has none."""
    system, root = filesystem(path)
    if system.get_file_info(f"{root}/{MANIFEST}").type != pafs.FileType.File:
        return {}
    with system.open_input_stream(f"{root}/{MANIFEST}") as file:
        values: dict[str, str] = json.loads(file.read())
    return values


def check(path: str | os.PathLike[str], config: Config, layout: Mapping[str, str] | None = None) -> None:
    """Compares every file of a directory with the job that is about to write there.

    `layout` are further entries of the manifest, for example how the rows are divided into files.

    Errors: `MixtureError` names the first file that another computation wrote.
    """
    expected = {**texts(config), **{PREFIX + key: value for key, value in (layout or {}).items()}}
    keys = [PREFIX + key for key in (layout or {})]
    for file, found in stored(path):
        if found.get("simdformer.fingerprint") != expected["simdformer.fingerprint"]:
            causes = ("options", "version")
            differs = (PREFIX + key for key in causes if found.get(PREFIX + key) != expected[PREFIX + key])
            _differs(
                file,
                next(differs, "simdformer.fingerprint") if found else "simdformer.fingerprint",
                expected,
                found,
            )
        if config.isa is not None and found.get("simdformer.isa") != expected["simdformer.isa"]:
            _differs(file, "simdformer.isa", expected, found)
        for key in keys if file.endswith(MANIFEST) else ():
            if found.get(key) != expected[key]:
                _differs(file, key, expected, found)


def begin(path: str | os.PathLike[str], config: Config, layout: Mapping[str, str] | None = None) -> None:
    """Compares a directory as `check` does, then writes the manifest, if there is none.

    Errors: those of `check`; `OSError`.
    """
    check(path, config, layout)
    if read_manifest(path):
        return
    values = {**texts(config), **{PREFIX + key: value for key, value in (layout or {}).items()}}
    system, root = filesystem(path)
    system.create_dir(root, recursive=True)
    temporary = f"{root}/_temporary-{uuid.uuid4().hex}"
    with system.open_output_stream(temporary) as file:
        file.write((json.dumps(values, sort_keys=True, indent=1) + "\n").encode())
    system.move(temporary, f"{root}/{MANIFEST}")


def config_of(path: str | os.PathLike[str], model: str, **changes: Any) -> Config:
    """The configuration that wrote a directory, for a model at the path `model`. `changes` are fields of `Config`.

    Errors: `MixtureError` if no file says with which options it was written.
    """
    for _, found in stored(path):
        if "simdformer.options" in found:
            written: dict[str, Any] = json.loads(found["simdformer.options"])
            written |= {"path": model, **changes}
            return Config(**written)
    _differs(os.fspath(path), "simdformer.options", {"simdformer.options": "the options of a job"}, {})
    raise AssertionError  # not reached


def _differs(file: str, key: str, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    there = found.get(key)
    message = f"{file}: {key}: expected {expected[key]}, found {'no such entry' if there is None else there}"
    raise MixtureError(message, file=file, key=key, expected=expected[key], found=there)
