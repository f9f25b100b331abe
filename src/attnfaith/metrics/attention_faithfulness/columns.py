"""Columns of rows of numbers: reading, checking, masking, and functions of their rows.

Shapes: N instances, T tokens of one instance. A column may be a list, tuple, array, tensor or column of a table. None as a
row and None as a value mean undefined.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from numbers import Real
from types import MappingProxyType

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
        raise InputError(f"{name} is a {kind}: give a list with one {unit} per instance") from None


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


def paired(columns: Mapping[str, Sequence], faults: Mapping[str, Callable] = MappingProxyType({})) -> list[tuple | None]:
    """Return the rows of columns, by their names, side by side: a tuple of arrays [T] float64 per instance; None, for
    undefined, where a row is None, empty or holds a NaN.

    faults: name -> a function that says what is wrong with a defined row, "" for nothing. InputError for such a row, and
    where columns differ in their number of rows, or the rows of an instance in length.
    """
    counts = {name: len(rows) for name, rows in columns.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"the columns differ in their number of rows: {counts}; give one row of each per instance")
    instances = []
    for place, rows in enumerate(zip(*columns.values(), strict=True)):
        arrays = {
            name: np.array([np.nan] if row is None else row, np.float64) for name, row in zip(columns, rows, strict=True)
        }
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1 and not any(row is None for row in rows):
            sizes = " and ".join(f"{name} has {length} values" for name, length in lengths.items())
            raise InputError(f"row {place}: {sizes}; give one for each of the same items")
        if any(not array.size or np.isnan(array).any() for array in arrays.values()):
            instances.append(None)
            continue
        for name, array in arrays.items():
            fault = faults[name](array) if name in faults else ""
            if fault:
                raise InputError(f"row {place}: {name} {fault}")
        instances.append(tuple(arrays.values()))
    return instances


def by_row(function: Callable, columns: Mapping[str, Sequence], faults: Mapping = MappingProxyType({})) -> np.ndarray:
    """Return function(row of each column) of every instance, [N] float64; NaN where undefined. See `paired`."""
    return np.array([np.nan if rows is None else function(*rows) for rows in paired(columns, faults)], np.float64)
