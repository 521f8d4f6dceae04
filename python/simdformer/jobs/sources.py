"""From a column to the sources that are computed: each different one once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..errors import InputError

#: The largest id of a token.
MOST = int(np.iinfo(np.uint32).max)


@dataclass(frozen=True)
class Texts:
    """Sources of a column of strings."""

    #: The sources.
    values: list[str]
    #: For each row of the column the index of its source, null for a null.
    rows: Any

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Ids:
    """Sources of a column of lists of token ids."""

    #: Token ids of all sources end to end, `[tokens]`.
    ids: NDArray[np.uint32]
    #: Where each source begins, and the end of the last one, `[sources + 1]`.
    offsets: NDArray[np.int64]
    #: For each row of the column the index of its source, null for a null.
    rows: Any
    #: The sources that are no lists of token ids, and why; in `ids` their wrong ids are 0.
    wrong: dict[int, str]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def texts(column: Any, distinct: bool) -> Texts:
    """The sources of a column of strings of any Arrow type. Equal ones are one source if `distinct`.

    Errors: `InputError` if the column has another type.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not any(is_kind(kind) for is_kind in strings) and not pa.types.is_null(kind):
        raise _column("strings", column.type)
    array = pa.array([], pa.large_string())
    if len(column):
        array = _one(column.cast(pa.large_string()))
    if distinct:
        encoded = array.dictionary_encode()
        return Texts(encoded.dictionary.to_pylist(), encoded.indices.cast(pa.int64()))
    valid = array.drop_null()
    return Texts(valid.to_pylist(), _positions(array))


def ids(column: Any, distinct: bool) -> Ids:
    """The sources of a column of lists of integers: list, large list or list of a fixed size, sliced or not.

    A list with a null, or with a number that is no `uint32`, is one of the `wrong` sources.

    Errors: `InputError` if the column has another type.
    """
    kind = column.type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if pa.types.is_null(kind):
        column = column.cast(pa.large_list(pa.uint32()))
    elif not any(is_kind(kind) for is_kind in lists) or not pa.types.is_integer(kind.value_type):
        raise _column("lists of integers", kind)
    # Chunks and slices are gone after `take`, and so are the ids of null rows.
    array = _one(column)
    valid = array.drop_null().cast(pa.large_list(array.type.value_type))
    valid = pa.concat_arrays([valid]) if valid.offset else valid
    starts = valid.offsets.to_numpy().astype(np.int64)
    values = valid.values.slice(int(starts[0]), int(starts[-1] - starts[0])) if len(starts) else valid.values
    starts = starts - starts[0] if len(starts) else np.zeros(1, np.int64)
    flat, wrong = _numbers(values, starts)
    rows = _positions(array)
    if distinct:
        flat, starts, order, wrong = _distinct(flat, starts, wrong)
        rows = pa.array(order, pa.int64()).take(rows)
    return Ids(flat, starts, rows, wrong)


def _numbers(values: Any, starts: NDArray[np.int64]) -> tuple[NDArray[np.uint32], dict[int, str]]:
    """The values as `uint32`, and the lists that have others, whose values are 0."""
    wrong: dict[int, str] = {}
    if not len(values):
        return np.zeros(0, np.uint32), wrong
    unfit = pc.or_kleene(pc.less(values, pa.scalar(0, values.type)), _above(values))
    unfit = pc.fill_null(unfit, True).to_numpy(zero_copy_only=False)
    if not unfit.any():
        return values.cast(pa.uint32()).to_numpy().copy(), wrong
    for position in np.flatnonzero(unfit).tolist():
        row = int(np.searchsorted(starts, position, side="right")) - 1
        found = values[position].as_py()
        place = position - int(starts[row])
        wrong.setdefault(row, f"expected token ids from 0 to {MOST}, found {found} at position {place}")
    values = pc.if_else(pa.array(unfit), pa.scalar(0, values.type), values)
    return values.cast(pa.uint32()).to_numpy().copy(), wrong


def _above(values: Any) -> Any:
    """Where a value is larger than every token id."""
    if values.type.bit_width <= 32 and values.type != pa.uint32():
        return pa.array(np.zeros(len(values), bool))
    return pc.greater(values.cast(pa.int64() if values.type != pa.uint64() else pa.uint64()), MOST)


def _distinct(
    flat: NDArray[np.uint32], starts: NDArray[np.int64], wrong: dict[int, str]
) -> tuple[NDArray[np.uint32], NDArray[np.int64], list[int], dict[int, str]]:
    """Equal lists once, in the order of their first rows; for each row the index of its list."""
    data, begins = flat.tobytes(), (starts * 4).tolist()
    first: dict[object, int] = {}
    order = [
        first.setdefault(("wrong", row) if row in wrong else data[begins[row] : begins[row + 1]], len(first))
        for row in range(len(begins) - 1)
    ]
    if len(first) == len(order):
        return flat, starts, order, wrong
    places = np.unique(np.array(order, np.int64), return_index=True)[1] if order else np.zeros(0, np.int64)
    lengths = np.diff(starts)[places]
    parts = [flat[starts[place] : starts[place + 1]] for place in places.tolist()]
    once = np.concatenate(parts) if parts else flat
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return once, offsets, order, {order[row]: text for row, text in wrong.items()}


def _one(column: Any) -> Any:
    """A chunked array as one array."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _positions(array: Any) -> Any:
    """For each row the number of rows before it that are not null; null for a null."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid)


def _column(expected: str, found: Any) -> InputError:
    message = f"source column: expected {expected}, found {found}"
    return InputError(message, argument="source column", expected=expected, found=str(found))
