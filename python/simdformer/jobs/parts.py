"""Parquet files in, Parquet files out, one part at a time: what Dask and plain processes run.

A part is some consecutive row groups of one file. It is written under a temporary name and renamed when it is complete,
so a file that exists is complete: a restart skips it, and two attempts at one part leave the same file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from . import metadata
from .config import Config
from .map import Map
from .metadata import filesystem, footer, parquet_files, writing

#: The rows of a part, unless the caller says otherwise: the row groups of a file are counted until they have so many.
PART_ROWS = 100_000
#: The rows of one call of `Map`. More find more equal sources, and take more memory.
BATCH_ROWS = 8_192


@dataclass(frozen=True)
class Part:
    """Row groups `first` to `last - 1` of a file, and the path of its result below the directory of the job."""

    file: str
    first: int
    last: int
    output: str
    #: Size and time of the file when the job began.
    state: tuple[int, int]


def parts(source: str | os.PathLike[str], part_rows: int = PART_ROWS) -> list[Part]:
    """The parts of all Parquet files under a directory, or of one file. They do not depend on the workers.

    Errors: `FileNotFoundError` if there is no Parquet file.
    """
    system, root = filesystem(source)
    files = parquet_files(source)
    if not files:
        raise FileNotFoundError(f"{os.fspath(source)}: expected Parquet files, found none")
    found: list[Part] = []
    for file in files:
        state, groups = _state(system, file), footer(system, file)
        stem = (file[len(root) :].strip("/") or file.rsplit("/", 1)[-1]).removesuffix(".parquet")
        first, rows = 0, 0
        for group in range(groups.num_row_groups):
            rows += groups.row_group(group).num_rows
            if rows >= part_rows or group + 1 == groups.num_row_groups:
                found.append(Part(file, first, group + 1, f"{stem}-{first:05}-{group + 1:05}.parquet", state))
                first, rows = group + 1, 0
        if not groups.num_row_groups:
            found.append(Part(file, 0, 0, f"{stem}-00000-00000.parquet", state))
    return found


def exists(part: Part, destination: str | os.PathLike[str]) -> bool:
    """Whether the result of a part is there."""
    system, root = filesystem(destination)
    return bool(system.get_file_info(f"{root}/{part.output}").type == pafs.FileType.File)


def write_part(config: Config, source: str, destination: str, part: Part, batch_rows: int = BATCH_ROWS) -> int:
    """Computes one part and writes its file, unless it is there. Returns the number of its rows.

    Errors: those of `Map`; `OSError`.
    """
    if exists(part, destination):
        return 0
    (read, _), rows = filesystem(source), 0
    job = Map(config)
    with pq.ParquetFile(part.file, filesystem=read) as file, writing(destination, part.output) as (write, temporary):
        groups = list(range(part.first, part.last))
        schema = job.schema(file.schema_arrow)
        with pq.ParquetWriter(temporary, schema, filesystem=write) as writer:
            for batch in file.iter_batches(batch_rows, row_groups=groups):
                writer.write_table(job(pa.Table.from_batches([batch])).cast(schema))
                rows += len(batch)
        if _state(read, part.file) != part.state:
            raise OSError(f"{part.file}: expected a file that stays, found another one: it changed while the job ran")
        metadata.check_manifest(destination, config)
    return rows


def _state(system: Any, file: str) -> tuple[int, int]:
    """Size and time of a file."""
    info = system.get_file_info(file)
    return int(info.size or 0), int(info.mtime_ns or 0)


def check_rows(source: str | os.PathLike[str], config: Config) -> None:
    """Raises the error that the job would have for the columns of a source, before anything is written. Opens the model.

    Errors: `FileNotFoundError` without Parquet files; `InputError` for a column that is missing or has another type.
    """
    system, _ = filesystem(source)
    files, known, job = parquet_files(source), list[Any](), Map(config)
    if not files:
        raise FileNotFoundError(f"{os.fspath(source)}: expected Parquet files, found none")
    for file in files:
        schema = footer(system, file).schema.to_arrow_schema().remove_metadata()
        if schema not in known:
            known.append(schema)
            job.check_schema(schema, file)


def remove_temporary(destination: str | os.PathLike[str]) -> None:
    """Deletes what killed workers left. Only for a job that has ended: the files of one that runs look the same."""
    system, root = filesystem(destination)
    for each in system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=True)):
        if each.is_file and each.base_name.startswith("_temporary-"):
            system.delete_file(each.path)
