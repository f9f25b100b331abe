"""What is given to the metric as columns of rows of numbers, checked before anything is computed from it.

Shapes: N instances, T tokens of one instance. Lists, tuples, arrays, tensors and columns of tables are taken; what can be
read only once, texts, mappings and whatever else holds no numbers is refused with the column and the row.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from numbers import Real

import numpy as np


SHOWN = 40  # letters of a value that an error repeats


class InputError(ValueError):
    """What was given cannot be computed from. The message says what it was, where, and what to give."""


def short(value: object) -> str:
    """A value as an error shows it, cut."""
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN:
        return f"a whole number of {value.bit_length()} bits"
    try:
        shown = " ".join(repr(value).split())
    except (RecursionError, ValueError):  # lists in lists in lists; numbers in them of too many digits
        return _kind(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}… ({type(value).__name__})"


def check_share(share: object, meaning: str) -> None:
    """Raises InputError unless share is a number above 0 and at most 1; meaning: of what it is a share."""
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share <= 1:
        raise InputError(f"share is {short(share)}; give {meaning}, above 0 and at most 1")


def number_rows(column: object, name: str) -> list[np.ndarray | None]:
    """N rows of numbers (T,) in float64; None where a row is None, NaN where a value is.

    Raises InputError naming the column, and the row, that is none.
    """
    return [
        None if row is None else _row(row, name, place) for place, row in enumerate(items(column, name, "row of numbers"))
    ]


def numbers(column: object, name: str) -> np.ndarray:
    """One number per instance, [N] in float64, NaN where it is None. Raises InputError as `number_rows`."""
    values = items(column, name, "number")
    return np.array([_number(item, name, f"row {place}") for place, item in enumerate(values)], np.float64)


def masked(columns: Mapping[str, list], mask: object) -> dict[str, list]:
    """The columns with those tokens alone that a mask, N rows of 0 and 1, keeps.

    Raises InputError for a mask of another number of rows or values, or with anything but 0 and 1.
    """
    kept = number_rows(mask, "mask")
    cut = {}
    for name, rows in columns.items():
        if len(kept) != len(rows):
            raise InputError(f"mask has {len(kept)} rows and {name} {len(rows)}: give one per instance")
        cut[name] = []
        for place, (row, keep) in enumerate(zip(rows, kept, strict=True)):
            if keep is None or not np.isin(keep, (0, 1)).all():
                raise InputError(f"row {place}: mask holds something else than 0 and 1; 1 keeps a token, 0 leaves it out")
            if row is not None and len(row) != len(keep):
                raise InputError(f"row {place}: mask has {len(keep)} values and {name} {len(row)}; give one per token")
            cut[name].append(None if row is None else row[keep == 1])
    return cut


def check_padding(columns: Mapping[str, list], first: str, second: str) -> None:
    """Raises InputError where rows look padded: all of one length, and most end in tokens that are 0 in both columns while
    no row has such a token elsewhere. Sparse attention has them between others, and importance beside them.
    """
    pairs = [(x, y) for x, y in zip(columns[first], columns[second], strict=True) if x is not None and y is not None]
    lengths = {len(row) for pair in pairs for row in pair}
    if len(pairs) < 2 or len(lengths) != 1 or 0 in lengths:
        return
    zero = np.array([(x == 0) & (y == 0) for x, y in pairs])
    at_end = np.logical_and.accumulate(zero[:, ::-1], axis=1)[:, ::-1]
    padded = int(at_end[:, -1].sum())
    if 2 * padded > len(pairs) and not (zero & ~at_end).any():
        raise InputError(
            f"{padded} of {len(pairs)} rows end in zeros in both {first} and {second}, and all have {lengths.pop()} values: "
            "padding would count as tokens. Give mask, 1 on tokens and 0 on padding, or rows without padding; where these "
            "zeros are tokens, a mask of ones"
        )


def items(column: object, name: str, what: str) -> list:
    """What a column holds, one item per instance."""
    if isinstance(column, Iterator):
        raise InputError(f"{name} is {_kind(column)}, which can be read only once: give list({name})")
    refused = isinstance(column, str | bytes | bytearray | Mapping | Set) or not hasattr(column, "__len__")
    values = None if refused else _plain(column)
    if refused or getattr(values, "ndim", 1) == 0 or not isinstance(values, list | tuple | np.ndarray | Sequence):
        raise InputError(f"{name} is {_kind(column)}: give a list with one {what} per instance")
    return list(values)


def _row(row: object, name: str, place: int) -> np.ndarray:
    """One row (T,) in float64."""
    where = f"row {place}: {name}"
    if isinstance(row, str | bytes | bytearray | Mapping | Set | Iterator) or not hasattr(row, "__len__"):
        raise InputError(f"{where} is {short(row)}; give a list of numbers, or None where there is none")
    values = _plain(row)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(f"{where} has {values.ndim} axes; a row is one-dimensional")
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64)
    try:
        return np.array([_number(value, name, f"row {place}") for value in values], np.float64)
    except TypeError as error:
        raise InputError(f"{where} is {_kind(row)}; give a list of numbers, or None where there is none") from error


def _number(value: object, name: str, where: str) -> float:
    if value is None:
        return np.nan
    value = _plain(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, list | tuple | np.ndarray):
        raise InputError(f"{where}: {name} holds a list within the row; a row is one-dimensional")
    if not isinstance(value, Real | np.bool_):
        raise InputError(f"{where}: {name} holds {short(value)}; give numbers")
    try:
        return float(value)
    except OverflowError as error:
        raise InputError(f"{where}: {name} holds {short(value)}, larger than any float; give numbers up to 1e308") from error


def _plain(values: object) -> object:
    """Tensors, series and columns of tables as arrays or lists; all else as it is."""
    if hasattr(values, "detach"):  # a tensor, of any device and precision
        values = values.detach().cpu()
        return values.double().numpy() if values.is_floating_point() else values.numpy()
    if hasattr(values, "to_pylist"):  # a column of Arrow
        return values.to_pylist()
    if hasattr(values, "to_numpy"):  # of pandas, polars
        return values.to_numpy()
    return values


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
