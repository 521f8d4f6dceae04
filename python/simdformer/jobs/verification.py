"""Computes rows of a finished job again, and compares every byte."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import OptionError
from . import metadata
from .config import Config
from .map import Map
from .parts import BATCH_ROWS


@dataclass(frozen=True)
class Difference:
    """A row whose stored result is not the computed one."""

    file: str
    #: The index of the row in the file.
    row: int
    column: str
    #: What was computed now.
    expected: object
    #: What the file has.
    found: object


@dataclass(frozen=True)
class FailedRow:
    """A row that cannot be computed."""

    file: str
    #: The index of the row in the file.
    row: int
    reason: str


@dataclass(frozen=True)
class Verification:
    """What `verify` found."""

    #: All rows of the directory.
    rows: int
    #: The rows that were computed again.
    checked: int
    #: The results that differ, in the order of files and rows.
    differences: list[Difference]
    #: The rows that have no result, in the order of files and rows. What a file has for one is a difference, too, unless it
    #: is a null, and with `errors="column"` the same text.
    failed: list[FailedRow]


def verify(destination: str | os.PathLike[str], config: Config, *, sample: float = 1.0, seed: int = 0) -> Verification:
    """Computes a random part of the rows again, and compares each result with the stored one, byte by byte.

    `sample` is the probability with which a row is chosen, more than 0 and at most 1; equal seeds choose equal rows.
    The files must have the source column, and for sampling the column of row numbers.

    Errors: `MixtureError` if the directory was written with another model or other options; `OptionError` for a
    `sample` outside its range.
    """
    if not 0 < sample <= 1:
        message = f"sample: expected more than 0 and at most 1, found {sample}"
        raise OptionError(message, option="sample", expected="more than 0 and at most 1", found=sample)
    metadata.check(destination, config)
    system, _ = metadata.filesystem(destination)
    job, generator = Map(config), np.random.default_rng(seed)
    names = job.names()
    needed = [name for name in (config.id, config.source) if name]
    rows, checked = 0, 0
    differences: list[Difference] = []
    failed: list[FailedRow] = []
    for path in metadata.parquet_files(destination):
        with pq.ParquetFile(path, filesystem=system) as file:
            first = rows
            for batch in file.iter_batches(BATCH_ROWS, columns=[*needed, *names]):
                chosen = np.flatnonzero(generator.random(len(batch)) < sample)
                stored = pa.Table.from_batches([batch]).take(chosen)
                computed, reasons = job.compute(stored.select(needed))
                before = rows - first
                for index, reason in enumerate(reasons.to_pylist()):
                    if reason is not None:
                        failed.append(FailedRow(path, before + int(chosen[index]), reason))
                for name in names:
                    for index, expected, found in _differences(computed[name], stored.column(name)):
                        differences.append(Difference(path, before + int(chosen[index]), name, expected, found))
                rows += len(batch)
                checked += len(chosen)
    return Verification(rows, checked, differences, failed)


def _differences(computed: Any, stored: Any) -> list[tuple[int, object, object]]:
    """Index, computed and stored value of each row that differs."""
    pairs = enumerate(zip(row_bytes(computed), row_bytes(stored.cast(computed.type)), strict=True))
    wrong = [index for index, (expected, found) in pairs if expected != found]
    return [(index, computed[index].as_py(), stored[index].as_py()) for index in wrong]


def row_bytes(column: Any) -> list[bytes | None]:
    """The bytes of each row of a column of strings, numbers or lists of numbers; `None` for a null."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [None if text is None else text.encode() for text in column.to_pylist()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        values = kind.value_type.to_pandas_dtype()
        rows = (None if row is None else row.values for row in column)
        return [None if row is None else row.to_numpy(zero_copy_only=False).astype(values).tobytes() for row in rows]
    number = kind.to_pandas_dtype()
    return [None if value is None else np.array(value, number).tobytes() for value in column.to_pylist()]
