"""Jobs on Spark: `mapInArrow`, and restarts by row number."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from .jobs import Config, Map, metadata
from .jobs.parts import check_rows


def map_rows(frame: Any, config: Config) -> Any:
    """The `pyspark.sql.DataFrame` with the columns of a job. Token ids are `int`: Spark has no unsigned integers.

    Spark starts a Python process for each core, so `Config.threads` is 1, and gives it 10,000 rows of a partition at a
    time (`spark.sql.execution.arrow.maxRecordsPerBatch`). The workers need the interpreter of the driver: set
    `PYSPARK_PYTHON`. The entries of the job are metadata of the result column, which the Parquet files keep.
    """
    entries = metadata.texts(config)
    # An executor with another model under this path is an error.
    job = Map(config, entries["simdformer.fingerprint"])
    schema = job.schema(to_arrow_schema(frame.schema))
    schema = pa.schema([field.with_type(_signed(field.type)) for field in schema])

    def compute(batches: Any) -> Any:
        for batch in batches:
            if len(batch):
                yield job.record_batch(batch).cast(schema)

    result = frame.mapInArrow(compute, from_arrow_schema(schema))
    return result.withMetadata(config.target, entries)


def run(source: str, destination: str, config: Config) -> None:
    """Computes a directory of Parquet files into another one, in the active Spark session or a new one.

    After an interruption the same call computes the rows whose number (`Config.id`) is not in the destination. Spark's
    output committer makes the files of a task visible when the task has ended, so no attempt leaves a part of its rows.

    Errors: `OptionError` without `Config.id`; `MixtureError` before the first row; those of Spark.
    """
    config.require_id("Spark continues by row number")
    session = SparkSession.builder.getOrCreate()
    check_rows(source, config)
    metadata.begin(destination, config, source)
    rows = session.read.parquet(source)
    if metadata.parquet_files(destination):
        written = session.read.parquet(destination).select(config.id)
        rows = rows.join(written, on=config.id, how="left_anti")
    map_rows(rows, config).write.mode("append").parquet(destination)


def _signed(kind: pa.DataType) -> pa.DataType:
    """The type with which Spark reads a result: lists of ids as `int`, vectors as lists."""
    if pa.types.is_list(kind) and kind.value_type == pa.uint32():
        return pa.list_(pa.int32())
    return pa.list_(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind
