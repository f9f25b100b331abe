"""Columns of rows of numbers: reading, checking, masking, and one flat array for all rows.

Shapes: N instances, T tokens of one instance, V values of all rows together. A column may be a list, tuple, array, tensor or
column of a table. None as a row and None as a value mean undefined.
"""

from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from numbers import Real

import numpy as np


SHOWN = 40  # letters of a value that an error repeats
NO_NUMBERS = (str, bytes, bytearray, Mapping, Set)


class InputError(ValueError):
    """The input cannot be computed from. The message names the column and the row, and says what to give."""


def short(value: object) -> str:
    """Return a value as an error shows it: one line, cut to SHOWN letters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({type(value).__name__})"


def check_share(share: object, meaning: str) -> None:
    """Raise InputError unless share is a number above 0 and at most 1. meaning: what it is a share of."""
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share <= 1:
        raise InputError(f"share is {short(share)}; give {meaning}, above 0 and at most 1")


def items(column: object, name: str, unit: str) -> list:
    """Return the N items of a column; unit: what an item is, for the error."""
    try:
        return list(None if isinstance(column, NO_NUMBERS) else _plain(column))
    except TypeError:
        kind = type(column).__name__
        raise InputError(f"{name} is of type {kind}: give a list with one {unit} per instance") from None


def number_rows(column: object, name: str) -> list[np.ndarray | None]:
    """Return N rows of numbers, each [T] float64; None where a row is None, NaN where a value is."""
    rows = items(column, name, "row of numbers")
    return [None if row is None else _number_row(row, name, place) for place, row in enumerate(rows)]


def numbers(column: object, name: str) -> np.ndarray:
    """Return one number per instance, [N] float64; NaN where it is None."""
    values = items(column, name, "number")
    return np.array([_number_row([value], name, place)[0] for place, value in enumerate(values)], np.float64)


def _number_row(row: object, name: str, place: int) -> np.ndarray:
    try:
        values = [_plain(value) for value in (None if isinstance(row, NO_NUMBERS) else _plain(row))]
        array = np.asarray([np.nan if value is None else value for value in values] or np.empty(0))
    except (ValueError, TypeError, OverflowError):  # no row; rows of different lengths; numbers that do not fit
        array = np.array(None)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise InputError(f"row {place}: {name} is {short(row)}; give a list of numbers, or None where there is none")
    return array.astype(np.float64)


def _plain(values: object) -> object:
    """Arrays, tensors and columns of tables as lists of Python's numbers; everything else as it is."""
    for method in ("tolist", "to_pylist", "to_list"):  # numpy, torch, pandas; Arrow; polars
        if hasattr(values, method):
            return getattr(values, method)()
    return values.values.tolist() if hasattr(values, "iloc") else values


def without_padding(columns: Mapping[str, list], mask: object, zero: Sequence[str]) -> Mapping[str, list]:
    """Return the columns cut to their tokens.

    mask: N rows of 1 on tokens and 0 on padding; "none" where zeros are tokens; None: without padding. zero: names of the
    columns that must all be 0 on padding; without a mask they are checked.
    """
    if mask is None and zero:
        _check_padding(zero[0], [columns[name] for name in zero])
    if isinstance(mask, str) and mask != "none":
        raise InputError(f'mask is {short(mask)}; give rows of 1 on tokens and 0 on padding, or "none"')
    if mask is None or isinstance(mask, str):
        return columns
    masks = number_rows(mask, "mask")
    cut = {name: [] for name in columns}
    for name, rows in columns.items():
        if len(masks) != len(rows):
            raise InputError(f"mask has {len(masks)} rows and {name} {len(rows)}: give one per instance")
        for place, (row, keep) in enumerate(zip(rows, masks, strict=True)):
            if keep is None or not np.isin(keep, (0, 1)).all():
                raise InputError(f"row {place}: mask holds something else than 0 and 1; 1 keeps a token, 0 leaves it out")
            if row is not None and len(row) != len(keep):
                raise InputError(f"row {place}: mask has {len(keep)} values and {name} {len(row)}; give one per token")
            cut[name].append(None if row is None else row[keep == 1])
    return cut


def _check_padding(name: str, columns: list[list]) -> None:
    """Raise InputError where rows of one length may be padded: one begins or ends in a token that is 0 in all columns."""
    if len({len(row) for row in columns[0] if row is not None and len(row)}) != 1:
        return
    for place, rows in enumerate(zip(*columns, strict=True)):
        for end, word in ((0, "begins"), (-1, "ends")):
            if all(row is not None and len(row) and row[end] == 0 for row in rows):
                raise InputError(
                    f"row {place}: {name} {word} in exact zeros and all rows have {len(rows[0])} values, so padding would "
                    "count as tokens. Give mask= with 1 on tokens and 0 on padding, or rows without padding; where zeros "
                    'are tokens, as in sparse attention, give mask="none"'
                )


class Layout:
    """Where N rows lie in a flat array. lengths: [N]; starts: [N] first place of each row; owner: [V] row of each value."""

    def __init__(self, lengths: np.ndarray):
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def owner(self) -> np.ndarray:
        return np.repeat(np.arange(len(self)), self.lengths)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over each row, [N] float64."""
        return np.bincount(self.owner, weights=values, minlength=len(self))

    def max(self, values: np.ndarray) -> np.ndarray:
        """Return the largest value of each row, [N] float64; NaN of an empty row."""
        largest, filled = np.full(len(self), np.nan), np.flatnonzero(self.lengths)
        if len(filled):
            largest[filled] = np.maximum.reduceat(values, self.starts[filled])
        return largest

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the rows of a flat array."""
        return np.split(values, self.starts[1:]) if len(self) else []


def flatten(rows: Sequence, name: str) -> tuple[np.ndarray, Layout]:
    """Return one ragged column as a flat float64 array [V] and its layout; None becomes one NaN."""
    arrays = [np.asarray((np.nan,) if row is None else row, np.float64) for row in rows]
    for place, array in enumerate(arrays):
        if array.ndim != 1:
            raise InputError(f"row {place}: {name} has {array.ndim} axes; a row is one-dimensional")
    return np.concatenate([np.empty(0), *arrays]), Layout(np.array([*map(len, arrays)], np.int64))


def flatten_pair(x: Sequence, y: Sequence, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray, Layout]:
    """Return two ragged columns as flat float64 arrays [V] and their layout; where either row is None, both become one NaN.

    Raises InputError where the columns differ in their number of rows, or a pair of rows in length.
    """
    if len(x) != len(y):
        raise InputError(f"{names[0]} has {len(x)} rows and {names[1]} has {len(y)}: give one row of each per instance")
    pairs = [(None, None) if a is None or b is None else (a, b) for a, b in zip(x, y, strict=True)]
    (x_values, layout), (y_values, y_layout) = (
        flatten([pair[side] for pair in pairs], name) for side, name in enumerate(names)
    )
    for place in np.flatnonzero(layout.lengths != y_layout.lengths):
        raise InputError(
            f"row {place}: {names[0]} has {layout.lengths[place]} values and {names[1]} has {y_layout.lengths[place]}; "
            "both must hold one value for each of the same items"
        )
    return x_values, y_values, layout


def check_values(values: np.ndarray, layout: Layout, name: str, allowed: np.ndarray, rule: str) -> None:
    """Raise InputError for the first value [V] that is not allowed [V]; NaN passes."""
    for place in np.flatnonzero(~allowed & ~np.isnan(values)):
        raise InputError(f"row {layout.owner[place]}: {name} holds {values[place]:g}; {rule}")
