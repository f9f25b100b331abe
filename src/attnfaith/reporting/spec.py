"""How a report's sections are declared; `render` makes frames, the page and its sentences of the declarations.

A section names the columns of a record that it reads and its numbers per text. Each number has rows in the generic table
`summary`, read as its `Quantity` declares. A section has tables of its own only for what that table cannot show. N: texts
of a cell.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import wraps
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.reporting.cells import Cell, measure_label, quantity_label, split_cells
from attnfaith.reporting.figures import Drawing
from attnfaith.reporting.html import Grid
from attnfaith.stats import estimate, mean


Row = Mapping[str, object]


# ---------- numbers


def per_cell(make: Callable) -> Callable:
    """Compute a function of a cell (and of further arguments) once: tables, figures and sentences share its result."""
    cached: WeakKeyDictionary[Cell, dict] = WeakKeyDictionary()

    @wraps(make)
    def remembered(cell: Cell, *more: object):
        results = cached.setdefault(cell, {})
        if more not in results:
            results[more] = make(cell, *more)
        return results[more]

    return remembered


def cells_of(record: "pa.Table | Sequence[Cell]") -> Sequence[Cell]:
    """The cells of a record; cells as they are."""
    return split_cells(record) if isinstance(record, pa.Table) else record


def counts(values: np.ndarray) -> dict[str, int]:
    """How many of the values [N] are defined, n, and how many are not, n_undefined."""
    undefined = int(np.isnan(values).sum())
    return {"n": len(values) - undefined, "n_undefined": undefined}


def plain(**numbers: np.ndarray) -> dict[str, float]:
    """The mean of each of several arrays [N], NaN left out and NaN of nothing, without an interval."""
    return {name: mean(values[~np.isnan(values)]) for name, values in numbers.items()}


def main(name: str, values: np.ndarray, interval: Callable | None = None) -> dict[str, float]:
    """A mean with its interval in the columns ci_low and ci_high: the number that a table is about."""
    return dict(zip((name, "ci_low", "ci_high"), estimate(name, values, interval=interval).values(), strict=True))


@dataclass(frozen=True)
class Quantity:
    """How a number per text is read.

    label: {} stands for what a pattern such as "tau *" leaves open. below, above: a bound; `summary` has the share of the
    texts beyond it. interval: of the mean, where it is not `stats.interval_of`.
    """

    label: str = ""
    below: float | None = None
    above: float | None = None
    interval: Callable[[np.ndarray], tuple[float, float]] | None = None

    @property
    def beyond(self) -> str:
        """The bound in words, such as "below 0.05"; "" without a bound."""
        if self.below is not None:
            return f"below {self.below:g}"
        return "" if self.above is None else f"above {self.above:g}"

    def summary(self, values: np.ndarray) -> dict[str, float]:
        """The numbers of a row of `summary`, of values [N] with NaN undefined."""
        row = counts(values) | main("mean", values, self.interval) | estimate("median", values, np.median)
        defined = values[~np.isnan(values)] if self.beyond else np.zeros(0)
        return row | estimate("share_beyond", defined > self.above if self.below is None else defined < self.below)


ENDS = ("", "_ci_low", "_ci_high")
SUMMARY = ("section", "quantity", "beyond", "n", "n_undefined", "mean", "ci_low", "ci_high")
SUMMARY += tuple(f"{name}{end}" for name in ("median", "share_beyond") for end in ENDS)


# ---------- declarations


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """A table of all cells that have its rows.

    name: of its files. rows: of one cell, each {column: value}, without the columns that name the cell; all have the same
    columns. headings: of the page, {column: heading, or heading and a function of the row that words it}; a number
    under "… [95 % interval]" has that of ci_low and ci_high, and other undefined numbers are a dash. heads: how many of
    them name a row. caption: on the page; "" of a table in files only. grid: the page's form of the frame, where `headings`
    do not declare it.
    """

    name: str
    rows: Callable[[Cell], Iterable[Row]]
    headings: Mapping[str, "str | tuple[str, Callable[[Row], str]]"] = field(default_factory=dict)
    heads: int = 1
    caption: str = ""
    note: str = ""
    grid: Callable[[pd.DataFrame, Sequence[Cell]], Grid] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Section:
    """The part of a report about one experiment.

    name: by which a study asks for it. place: on the page, small first, within the chapter, "measures" or "interventions",
    that holds its sentences and figure. needs: columns that a cell must hold; one_of: of these at least one. uses: patterns
    of further columns of one number per text that it reads.
    per_text: numbers per text, {name: [N] float64}, NaN undefined; without it the columns that `quantities` names.
    compared: patterns of the numbers that cells are compared by. quantities: how they are read, by name or pattern.
    caption, note: of the rows of `summary` on the page; "" where tables of its own show them.
    lead: names of the numbers that have a sentence on the page, or a function of the cell that gives them. sentences: a
    function of the cell that makes others.
    """

    name: str
    place: int = 100
    chapter: str = "measures"
    needs: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    per_text: Callable[[Cell], dict[str, np.ndarray]] | None = None
    compared: tuple[str, ...] = ("*",)
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    caption: str = ""
    note: str = ""
    tables: tuple[Table, ...] = ()
    figure: Drawing | None = None
    lead: "tuple[str, ...] | Callable[[Cell], Iterable[str]]" = ()
    sentences: Callable[[Cell], Iterable[str]] | None = None

    def applies(self, cell: Cell) -> bool:
        """Whether the cell holds what the section needs."""
        return cell.has(*self.needs) and (not self.one_of or any(map(cell.has, self.one_of)))

    def reads(self, column: str) -> bool:
        """Whether a column is one that the section reads."""
        return any(fnmatchcase(column, pattern) for pattern in (*self.needs, *self.one_of, *self.uses))

    def numbers(self, cell: Cell) -> dict[str, np.ndarray]:
        """Its numbers per text of a cell, {name: [N] float64}; {} where it does not apply."""
        if not self.applies(cell):
            return {}
        if self.per_text:
            return self.per_text(cell)
        return {name: cell.column(name) for name in self.quantities if cell.has(name)}

    def quantity(self, name: str) -> Quantity:
        """How a number of its is read."""
        for pattern, quantity in self.quantities.items():
            if fnmatchcase(name, pattern):
                start, _, end = pattern.partition("*")
                rest = measure_label(name.removeprefix(start).removesuffix(end))
                return replace(quantity, label=quantity.label.format(rest).strip() or quantity_label(name))
        return Quantity(quantity_label(name))

    def summary(self, cell: Cell) -> dict[str, Row]:
        """Its rows of `summary` on one cell by quantity, computed once, without the columns that name the cell."""
        return _summary(cell, self)


@per_cell
def _summary(cell: Cell, section: Section) -> dict[str, Row]:
    rows = {}
    for name, values in section.numbers(cell).items():
        quantity = section.quantity(name)
        rows[name] = {"section": section.name, "quantity": name, "beyond": quantity.beyond, **quantity.summary(values)}
    return rows
