"""Jobs on Daft: a column of a data frame."""

from __future__ import annotations

from typing import Any

import daft
import pyarrow as pa

from .jobs import Config, Map
from .jobs.metadata import begin, parquet_files
from .jobs.parts import check_rows


def map_rows(frame: Any, config: Config, *, workers: int = 1) -> Any:
    """The `daft.DataFrame` with the columns of a job, computed by at most `workers` instances at the same time."""
    job = Map(config)
    columns = [name for name in (config.id, config.source) if name]
    before = pa.schema([(name, frame.schema()[name].dtype.to_arrow_dtype()) for name in columns])
    new = [field for field in job.schema(before) if field.name not in columns]
    kind = daft.DataType.from_arrow_type(pa.struct(new))

    @daft.cls(max_concurrency=workers)
    class Rows:
        @daft.method.batch(return_dtype=kind)  # type: ignore[untyped-decorator, unused-ignore]
        def compute(self, *values: Any) -> Any:
            table = pa.table(dict(zip(columns, (each.to_arrow() for each in values), strict=True)))
            return job(table).select([field.name for field in new]).to_struct_array().combine_chunks()

    made = Rows().compute(*(frame[name] for name in columns))
    frame = frame.with_column("_simdformer", made)
    for field in new:
        frame = frame.with_column(field.name, frame["_simdformer"][field.name])
    return frame.exclude("_simdformer")


def run(source: str, destination: str, config: Config, *, workers: int = 1) -> None:
    """Computes a directory of Parquet files into another one. Daft writes no metadata of columns, so the entries of the
    job are in `_simdformer.json` alone. The same call again computes the rows whose number (`Config.id`) is not there.

    Errors: `OptionError` without `Config.id`; `MixtureError` before the first row; those of Daft.
    """
    config.require_id("Daft continues by row number")
    check_rows(source, config)
    begin(destination, config, source)
    rows = daft.read_parquet(f"{source}/**/*.parquet")
    if parquet_files(destination):
        written = daft.read_parquet(f"{destination}/**/*.parquet").select(config.id)
        rows = rows.join(written, on=config.id, how="anti")
    map_rows(rows, config, workers=workers).write_parquet(destination)
