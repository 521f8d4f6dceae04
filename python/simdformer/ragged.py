"""`Ragged`: rows of different lengths in two arrays, the layout of a list column of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from .errors import InputError, InputTypeError, MissingPackageError

if TYPE_CHECKING:
    import pyarrow as pa

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


class Ragged:
    """Rows of token ids: row ``i`` is ``ids[offsets[i]:offsets[i + 1]]``.

    `ids` is uint32, ``[tokens]``; `offsets` is int64, ``[rows + 1]``, and does not decrease. This is the layout of a
    list column of Arrow, so that neither direction needs a loop.

    >>> rows = Ragged.from_rows([[6, 11, 0], [], [8, 0]])
    >>> len(rows), rows[2].tolist(), rows.to_list()
    (3, [8, 0], [[6, 11, 0], [], [8, 0]])
    >>> rows[1:].to_list()
    [[], [8, 0]]
    """

    __slots__ = ("ids", "offsets")

    ids: Ids
    """The ids of all rows, uint32, ``[tokens]``."""
    offsets: Offsets
    """Where each row begins in `ids`, int64, ``[rows + 1]``."""

    def __init__(self, ids: npt.ArrayLike, offsets: npt.ArrayLike) -> None:
        self.ids = token_ids(ids, "ids")
        self.offsets = row_offsets(offsets, len(self.ids))

    @classmethod
    def of_checked(cls, ids: Ids, offsets: Offsets) -> Ragged:
        """Two arrays that are known to be uint32 and int64 and to belong together: nothing is checked or copied."""
        rows = cls.__new__(cls)
        rows.ids, rows.offsets = ids, offsets
        return rows

    @classmethod
    def from_rows(cls, rows: Sequence[npt.ArrayLike]) -> Ragged:
        """The rows of a list of lists or of arrays."""
        arrays = [token_ids(row, f"row {index}") for index, row in enumerate(rows)]
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(row) for row in arrays], out=offsets[1:])
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, np.uint32), offsets)

    @classmethod
    def from_arrow(cls, column: Any) -> Ragged:
        """The rows of a list column of Arrow: a ``pyarrow.ListArray``, a chunked one, or any object that exports one by
        ``__arrow_c_array__``. A null row is an error."""
        pyarrow = _pyarrow()
        if isinstance(column, pyarrow.ChunkedArray):
            column = column.combine_chunks()
        if not isinstance(column, pyarrow.Array):
            column = pyarrow.array(column)
        if column.null_count:
            raise InputError(
                f"column: expected rows without null, found {column.null_count} nulls",
                argument="column",
                expected="rows without null",
                found=f"{column.null_count} nulls",
            )
        offsets = column.offsets.to_numpy().astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        # A slice of a column begins in the middle of its values.
        ids = column.values.slice(first, last - first).to_numpy(zero_copy_only=False)
        return cls(ids, offsets - first)

    def to_arrow(self) -> pa.Array:
        """A ``pyarrow.LargeListArray`` of uint32 over the same memory."""
        pyarrow = _pyarrow()
        return pyarrow.LargeListArray.from_arrays(pyarrow.array(self.offsets), pyarrow.array(self.ids))

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The Arrow PyCapsule interface, so that ``pyarrow.array(rows)`` and ``polars.Series(rows)`` copy nothing."""
        capsules: tuple[object, object] = self.to_arrow().__arrow_c_array__(requested_schema)
        return capsules

    def to_list(self) -> list[list[int]]:
        """A list of a list for each row."""
        ids, offsets = self.ids.tolist(), self.offsets.tolist()
        return [ids[start:end] for start, end in zip(offsets, offsets[1:], strict=False)]

    def lengths(self) -> Offsets:
        """The number of ids of each row, int64, ``[rows]``."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> Ids | Ragged:
        rows = len(self)
        if isinstance(index, slice):
            start, stop, step = index.indices(rows)
            if step != 1:
                return Ragged.from_rows([self[row] for row in range(start, stop, step)])
            stop = max(start, stop)
            first, last = self.offsets[start], self.offsets[stop]
            return Ragged.of_checked(self.ids[first:last], self.offsets[start : stop + 1] - first)
        if not -rows <= index < rows:
            raise IndexError(f"row {index} of {rows}")
        row = index % rows
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.ids, other.ids) and np.array_equal(self.offsets, other.offsets)

    __hash__ = None  # type: ignore[assignment]  # arrays can change

    def __reduce__(self) -> tuple[type[Ragged], tuple[Ids, Offsets]]:
        return Ragged, (self.ids, self.offsets)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.ids)} ids)"


_UINT32, _INT64 = np.dtype(np.uint32), np.dtype(np.int64)


def rows_of(rows: Any, offsets: npt.ArrayLike | None, argument: str) -> tuple[Ids, Offsets]:
    """The arrays of rows in any of the accepted forms. The native module checks the values of the offsets.

    A `Ragged`; ids with `offsets`; a column of Arrow; a list of rows.
    """
    if offsets is not None:
        if (
            type(rows) is np.ndarray
            and type(offsets) is np.ndarray
            and rows.dtype is _UINT32
            and offsets.dtype is _INT64
            and rows.ndim == offsets.ndim == 1
        ):
            return rows, offsets
        ids = token_ids(rows, argument)
        return ids, row_offsets(offsets, len(ids))
    if isinstance(rows, Ragged):
        return rows.ids, rows.offsets
    found: Any = rows
    if hasattr(found, "__arrow_c_array__") or hasattr(found, "__arrow_c_stream__"):
        found = Ragged.from_arrow(found)
    elif isinstance(rows, np.ndarray) and found.ndim != 2:
        raise _refused("offsets", f"the offsets of the rows of {argument}", "None")
    elif isinstance(found, (str, bytes, Mapping, Set)) or not hasattr(found, "__iter__"):
        raise InputTypeError(
            f"{argument}: expected rows of ids, found {type(found).__name__}",
            argument=argument,
            expected="rows of ids",
            found=type(found).__name__,
        )
    else:
        found = Ragged.from_rows(list(found))
    return found.ids, found.offsets


def token_ids(ids: npt.ArrayLike, argument: str) -> Ids:
    """`ids` as a contiguous uint32 array, ``[tokens]``: the same memory if it is one already.

    Other whole numbers are converted if each is from 0 to 2**32 - 1.
    """
    try:
        found = np.asarray(ids)
    except (ValueError, TypeError) as error:
        raise _refused(argument, "one row of whole numbers", str(error)) from error
    if found.ndim != 1:
        raise _refused(argument, "one dimension", f"the shape {found.shape}")
    if found.dtype != np.uint32:
        if found.size and found.dtype.kind not in "iu":
            expected = "whole numbers (uint32)"
            raise InputTypeError(
                f"{argument}: expected {expected}, found {found.dtype}",
                argument=argument,
                expected=expected,
                found=str(found.dtype),
            )
        if found.size and (int(found.min()) < 0 or int(found.max()) >= 2**32):
            worst = int(found.min()) if int(found.min()) < 0 else int(found.max())
            raise _refused(argument, "ids from 0 to 4294967295", str(worst))
    return np.ascontiguousarray(found, np.uint32)


def row_offsets(offsets: npt.ArrayLike, ids: int) -> Offsets:
    """`offsets` as int64, ``[rows + 1]``, from 0 to the number of `ids`, not decreasing."""
    found = np.asarray(offsets)
    if found.ndim != 1 or found.size == 0:
        raise _refused("offsets", "one dimension and at least one element", f"the shape {found.shape}")
    if found.dtype.kind not in "iu":
        raise InputTypeError(
            f"offsets: expected whole numbers (int64 or int32), found {found.dtype}",
            argument="offsets",
            expected="whole numbers (int64 or int32)",
            found=str(found.dtype),
        )
    found = np.ascontiguousarray(found, np.int64)
    if found[0] != 0 or found[-1] != ids:
        ends = f"{found[0]} to {found[-1]}"
        raise _refused("offsets", f"offsets from 0 to the {ids} ids", ends)
    steps = np.diff(found)
    if found.size > 1 and int(steps.min()) < 0:
        row = int(np.argmin(steps >= 0))
        raise _refused("offsets", "offsets that do not decrease", f"{found[row]}, {found[row + 1]} at row {row}")
    return found


def _refused(argument: str, expected: str, found: str) -> InputError:
    return InputError(
        f"{argument}: expected {expected}, found {found}",
        argument=argument,
        expected=expected,
        found=found,
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackageError("pyarrow is not installed: pip install pyarrow", found="pyarrow") from error
    return pyarrow
