"""One table in, the same table with results out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError, OptionError, SimdformerError
from ..native_object import warn_of_cut
from . import metadata, sources
from .config import Config
from .worker import worker


class RowError(SimdformerError, ValueError):
    """A row that cannot be computed, with `errors="raise"`. Fields: `row`, its index in the table; `id`, its row
    number, or `None` without a column of them; `reason`."""

    row: int
    id: int | None
    reason: str


class Map:
    """Adds the columns of a job to an Arrow table. This is what every engine runs.

    The table has `rows` rows and at least the source column; it comes back with `rows` rows, all its columns in
    their order, and the result column, the columns of the score and of why a row ended if the configuration names them,
    and with `errors="column"` the column `error`. A null source has a null result. Sources that are equal within a table are computed once. The
    schema carries the metadata of :mod:`~simdformer.jobs.metadata`, which a Parquet file keeps.

    The bits of a row do not depend on the table around it. Sampling draws from the random stream of the row number.

    Pickled, it is its `Config`. The model is opened with the first rows, once per process. With `fingerprint`, the entry
    `simdformer.fingerprint` of a job, a worker that has another model under this path raises `MixtureError`.

    >>> import pyarrow
    >>> from simdformer.jobs import Config, Map
    >>> job = Map(Config(demo_model, task="generate", score="score"))
    >>> job(pyarrow.table({"source_ids": [[1635, 509, 1107, 229, 13, 0]]})).column("target_ids").to_pylist()
    [[2230, 554, 1938, 300, 13, 0]]

    Errors: `InputError` for a missing column, a column of another type, or a name that exists already; `RowError`
    for a row that cannot be computed; `IsaError` on a machine without the instruction set of the configuration.
    """

    def __init__(self, config: Config, fingerprint: str | None = None) -> None:
        if config.samples() and not config.id:
            message = "id: expected a column of row numbers, since sampling draws by row number, found none"
            raise OptionError(message, option="id", expected="a column of row numbers", found=None)
        self.config = config
        self.fingerprint = fingerprint

    def __repr__(self) -> str:
        return f"Map({self.config!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config, self.fingerprint)

    def __call__(self, table: Any) -> Any:
        """`pyarrow.Table` to `pyarrow.Table`."""
        columns, reasons = self.compute(table)
        self._raise(table, reasons)
        for name, values in columns.items():
            table = table.append_column(name, values)
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata.entries(self.config)})

    def compute(self, table: Any) -> tuple[dict[str, Any], Any]:
        """The new columns of a table, and for each row why it has no result, or null: nothing is raised for a row."""
        config = self.config
        engine = worker(config)
        if self.fingerprint is not None:
            metadata.check_fingerprint(config, self.fingerprint)
        if not isinstance(table, pa.Table):
            kind = f"{type(table).__module__}.{type(table).__qualname__}"
            raise _input("table", "pyarrow.Table", kind)
        for name in self.names():
            if name in table.column_names:
                raise _input("table", f"no column {name!r}, which is the result's", "one")
        streams = self._streams(table) if config.samples() else None
        column = self._column(table, config.source)
        find = sources.ids if config.task == "generate" else sources.texts
        found: sources.Ids | sources.Texts = find(column, distinct=streams is None)
        if streams is not None:
            streams = streams[column.is_valid().to_numpy(zero_copy_only=False)]
        results = engine.compute(found, streams)
        if results.cut and not config.finish:
            warn_of_cut(
                f"{results.cut} of {len(found)} results reached the maximum length or are those of a cut source; "
                "a column `finish` tells which, max_new_tokens changes it"
            )
        reasons = pa.array(results.errors, pa.string())
        columns = (results.values, results.scores, results.finish, reasons)
        named = zip((config.target, config.score, config.finish, "error"), columns, strict=True)
        new = {name: values.take(found.rows) for name, values in named if name in self.names()}
        return new, reasons.take(found.rows)

    def record_batch(self, batch: Any) -> Any:
        """`pyarrow.RecordBatch` to `pyarrow.RecordBatch`, for Spark's `mapInArrow`."""
        table = self(pa.Table.from_batches([batch])).combine_chunks()
        batches = table.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)

    def pandas(self, frame: Any) -> Any:
        """`pandas.DataFrame` to `pandas.DataFrame`; the index stays."""
        table = self(pa.Table.from_pandas(frame, preserve_index=False)).to_pandas()
        table.index = frame.index
        return table

    def schema(self, schema: Any) -> Any:
        """The schema of the result for tables of this `pyarrow.Schema`. Opens the model."""
        return self(schema.empty_table()).schema

    def check_schema(self, schema: Any, file: str) -> None:
        """Raises the error of the columns of a table with this `pyarrow.Schema`, which names the file. Opens the model.

        Errors: `InputError`.
        """
        try:
            self.schema(schema)
            if self.config.id:
                self._column(schema.empty_table(), self.config.id)
        except InputError as error:
            raise InputError(f"{file}: {error}", **vars(error)) from error

    def names(self) -> list[str]:
        """The names of the new columns."""
        config = self.config
        return [
            config.target,
            *([config.score] if config.score else []),
            *([config.finish] if config.finish else []),
            *(["error"] if config.errors == "column" else []),
        ]

    def _raise(self, table: Any, reasons: Any) -> None:
        """Raises for the first row whose source could not be computed."""
        if self.config.errors != "raise" or reasons.null_count == len(reasons):
            return
        row = pc.index(reasons.is_valid(), True).as_py()
        reason = reasons[row].as_py()
        number = self._column(table, self.config.id)[row].as_py() if self.config.id else None
        place = f"row {row}" if number is None else f"row {row} with {self.config.id} = {number}"
        raise RowError(f"{place}: {reason}", row=row, id=number, reason=reason)

    def _column(self, table: Any, name: str) -> Any:
        if name not in table.column_names:
            raise _input("table", f"a column {name!r}", str(table.column_names))
        return table.column(name)

    def _streams(self, table: Any) -> Any:
        """The random stream of each row: its row number, `[rows]`."""
        column = self._column(table, self.config.id)
        if not pa.types.is_integer(column.type) or column.null_count:
            found = f"{column.type} with {column.null_count} nulls"
            raise _input(self.config.id, "integers without nulls", found)
        numbers = column.to_numpy()
        if len(numbers) and numbers.min() < 0:
            raise _input(self.config.id, "row numbers of at least 0", str(numbers.min()))
        return numbers.astype(np.uint64)


def _input(argument: str, expected: str, found: str) -> InputError:
    message = f"{argument}: expected {expected}, found {found}"
    return InputError(message, argument=argument, expected=expected, found=found)
