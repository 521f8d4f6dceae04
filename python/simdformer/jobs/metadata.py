"""What identifies a result: the entries that travel in Parquet files, and the comparison before a restart.

========================== ================================================================================
`simdformer.fingerprint`   SHA-256 of the fingerprint of the model and its tokenizer, the options of the job, and for
                           texts, which the package divides into sentences and tokens, its version
`simdformer.isa`           the instruction set that computed the rows; all sets give the same bits
`simdformer.version`       the version of the package
`simdformer.options`       the fields of `Config` without path, threads and sessions, as canonical JSON
`simdformer.sources`       in the manifest: SHA-256 of each source file, as JSON
========================== ================================================================================

Two files with one fingerprint have the result of one computation, whoever made them. The entries are in the key-value
metadata of the footer; Spark keeps metadata of columns only, so there they are at the result column. A job also writes
them to the manifest `_simdformer.json` in its directory before the first row, which engines ignore as they do
`_SUCCESS`. A directory without rows belongs to no job: the manifest of one that failed is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ..errors import SimdformerError
from .config import Config, canonical
from .worker import version, worker

PREFIX = "simdformer."
#: The file in the directory of a job.
MANIFEST = "_simdformer.json"
#: The entry with the files of the source.
SOURCES = PREFIX + "sources"
#: Bytes of a source file that are read at a time.
_BLOCK = 1 << 20
#: Where Spark keeps the metadata of columns.
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
#: Fields of `Config` that change no result.
_FREE = ("path", "threads", "sessions")


class DamagedFileError(SimdformerError, ValueError):
    """A file of a job is not whole. Fields: `file`."""

    file: str


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
    """Each Parquet file of a directory with its entries, and before them the manifest. Nothing, if there are no rows."""
    system, root = filesystem(path)
    files, manifest = parquet_files(path), read_manifest(path)
    if manifest and files:
        yield f"{root}/{MANIFEST}", manifest

    def entries(file: str) -> tuple[str, dict[str, str]]:
        return file, file_entries(system, file) or manifest

    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(entries, files)


def file_entries(system: Any, file: str) -> dict[str, str]:
    """The entries in one Parquet file; empty if it has none."""
    found: Mapping[bytes, bytes] = footer(system, file).metadata or {}
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
    with system.open_input_stream(f"{root}/{MANIFEST}", compression=None) as file:
        text = file.read()
    try:
        values = json.loads(text)
        if isinstance(values, dict) and all(isinstance(value, str) for value in values.values()):
            return values
    except ValueError:
        pass
    raise DamagedFileError(f"{root}/{MANIFEST}: expected the entries of a job, found other bytes", file=MANIFEST)


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


def check_manifest(path: str | os.PathLike[str], config: Config) -> None:
    """Compares the manifest of a directory with the job that writes there: another job may have begun meanwhile, or this
    process may have another model than the one that began.

    Errors: `MixtureError`.
    """
    found, key = read_manifest(path), "simdformer.fingerprint"
    if found and found.get(key) != texts(config)[key]:
        _differs(f"{os.fspath(path)}/{MANIFEST}", key, texts(config), found)


def check_fingerprint(config: Config, expected: str) -> None:
    """Compares the model of this process with that of a job.

    Errors: `MixtureError`.
    """
    key, found = "simdformer.fingerprint", texts(config)
    if found[key] != expected:
        _differs(config.path, key, {key: expected}, found)


def begin(
    path: str | os.PathLike[str],
    config: Config,
    source: str | os.PathLike[str],
    layout: Mapping[str, str] | None = None,
) -> None:
    """Compares a directory as `check` does, and the files of the source with those that its rows were made of. Then writes
    the manifest. New files may be added to a source; none may change or go.

    Errors: those of `check`; `MixtureError` if rows were made of other files; `OSError`.
    """
    check(path, config, layout)
    _, root = filesystem(path)
    sources, rows = source_files(source), bool(parquet_files(path))
    manifest = read_manifest(path)
    if rows:
        expected = {SOURCES: "the files of the source, which rows were made of"}
        if SOURCES not in manifest:
            _differs(f"{root}/{MANIFEST}", SOURCES, expected, manifest)
        for name, digest in json.loads(manifest[SOURCES]).items():
            if sources.get(name) != digest:
                file = f"{os.fspath(source).rstrip('/')}/{name}"
                there = {SOURCES: sources[name]} if name in sources else {}
                _differs(file, SOURCES, {SOURCES: digest}, there)
    values = {**texts(config), **{PREFIX + key: value for key, value in (layout or {}).items()}}
    values[SOURCES] = canonical(sources)
    if rows:
        # The instruction set of the first run.
        values = {**values, **{key: value for key, value in manifest.items() if key != SOURCES}}
    if values != manifest:
        with writing(path, MANIFEST) as (system, temporary), system.open_output_stream(temporary) as file:
            file.write((json.dumps(values, sort_keys=True, indent=1) + "\n").encode())


def source_files(source: str | os.PathLike[str]) -> dict[str, str]:
    """SHA-256 of each Parquet file of a source, by its path below it."""
    system, root = filesystem(source)

    def digest(file: str) -> tuple[str, str]:
        found = hashlib.sha256()
        with system.open_input_stream(file, compression=None) as stream:
            while block := stream.read(_BLOCK):
                found.update(block)
        return file[len(root) :].strip("/") or file.rsplit("/", 1)[-1], found.hexdigest()

    with ThreadPoolExecutor(8) as pool:
        return dict(pool.map(digest, parquet_files(source)))


@contextmanager
def writing(directory: str | os.PathLike[str], name: str) -> Iterator[tuple[Any, str]]:
    """The file system and a temporary path for the file `name` of a directory. At the end of the block the file there gets
    its name, after an error it is deleted: a file that exists is whole. On a local disk file and directory are synced.
    """
    system, root = filesystem(directory)
    folder, _, last = f"{root}/{name}".rpartition("/")
    temporary = f"{folder}/_temporary-{uuid.uuid4().hex}-{last}"
    system.create_dir(folder, recursive=True)
    local = isinstance(system, pafs.LocalFileSystem)
    try:
        yield system, temporary
        if local:
            _sync(temporary)
        system.move(temporary, f"{folder}/{last}")
        if local and os.name == "posix":
            _sync(folder)
    except BaseException:
        if system.get_file_info(temporary).type == pafs.FileType.File:
            system.delete_file(temporary)
        raise


def _sync(path: str) -> None:
    """Writes a file, or the names of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def footer(system: Any, file: str) -> Any:
    """The metadata of a Parquet file."""
    try:
        return pq.read_metadata(file, filesystem=system)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        message = f"{file}: expected a whole Parquet file, found a damaged one ({reason})"
        raise DamagedFileError(message, file=file) from error


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
