"""One number for all rows of a directory of Parquet files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from simdformer.jobs import metadata
from simdformer.jobs.verification import row_bytes


def digest(folder: Path, columns: tuple[str, ...] = ("id", "translation")) -> tuple[int, int, str]:
    """Rows, different row numbers, and SHA-256 of the columns in the order of the row numbers."""
    table = pa.concat_tables(
        [
            pq.read_table(file, columns=list(columns)).replace_schema_metadata()
            for file in metadata.parquet_files(folder)
        ]
    ).sort_by(columns[0])
    sha = hashlib.sha256()
    for row in zip(*(row_bytes(table.column(name)) for name in columns), strict=True):
        sha.update(repr(row).encode())
    return table.num_rows, len(set(table.column(columns[0]).to_pylist())), sha.hexdigest()
