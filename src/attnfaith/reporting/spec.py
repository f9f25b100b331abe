"""What a report says of one experiment, declared once; `render` makes frames, files, the page and its sentences of it.

A section names the columns of a record that it uses, its numbers per text, its tables, figures and sentences. A table names
its rows (`by`), the summaries in them (`columns`), and what of both people read: all that has a heading. N: texts of a cell.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial, wraps
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.reporting.blocks import CLASS_COLUMN, Grid, number_with_interval
from attnfaith.reporting.cells import Cell, split_cells
from attnfaith.reporting.tables import format_number
from attnfaith.stats import estimate


if TYPE_CHECKING:
    from attnfaith.reporting.figures import Kind

Row = Mapping[str, object]
OWN, MAIN = "{name}_", ""
"""What precedes ci_low and ci_high in the names of an interval's columns: the number's name; nothing for the main one."""
WEIGHT_EDGES = (0.25, 0.5, 0.75)
WEIGHT_BINS = ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")


@dataclass(frozen=True, eq=False)
class Case:
    """What some rows of a table are about, such as one ranking or one measure of a cell.

    values: {name: [N] float64}, NaN undefined. keys: what the rows are called, by column. given: numbers that stand in each
    of the rows as they are, by column; those that no column of the table declares follow its columns.
    """

    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    keys: Mapping[str, object] = field(default_factory=dict)
    given: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Column:
    """A column as it is given: `Case.keys` or `Case.given`.

    name: in files. heading: on the page, "" of a column that only files have. words: what the page writes, given the row.
    dash: on the page in place of a number that is undefined, since it does not apply. optional: on the page only where it
    says something of some row, else with a dash.
    """

    name: str
    heading: str = ""
    words: Callable[[Row], str] | None = None
    dash: bool = False
    optional: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is in files."""
        return (self.name,)

    def numbers(self, case: Case, members: np.ndarray) -> dict[str, float]:
        """What it says of some texts of a case, members [N] bool; {} of what the case does not hold."""
        return {}

    def text(self, row: Row) -> str:
        """What the page writes."""
        if self.words:
            return self.words(row)
        return "–" if (self.dash or self.optional) and pd.isna(row[self.name]) else self._plain(row)

    def _plain(self, row: Row) -> str:
        value = row[self.name]
        return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else format_number(value)


@dataclass(frozen=True, eq=False)
class Key(Column):
    """Names a row: `Case.keys`."""

    def groups(self, cell: Cell, case: Case) -> list[tuple[str | None, np.ndarray]]:
        """The parts of a case that have rows of their own: name, None where the case has it, and members [N] bool."""
        return [(None, np.ones(len(cell), bool))]

    def _plain(self, row: Row) -> str:
        return str(row[self.name])


@dataclass(frozen=True, eq=False)
class Classes(Key):
    """A row for all texts, "overall", and for those of each predicted class."""

    name: str = "class"
    heading: str = CLASS_COLUMN

    def groups(self, cell: Cell, case: Case) -> list[tuple[str | None, np.ndarray]]:
        return cell.classes


@dataclass(frozen=True, eq=False, kw_only=True)
class Bins(Key):
    """A row for the texts of each bin of the values `of`; a text where they are undefined is in none.

    edges: inner ones, each in the bin above it. labels: of all bins, one more than edges. whole: of a row of all texts,
    before the bins; "" for none.
    """

    of: str
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    whole: str = ""

    def groups(self, cell: Cell, case: Case) -> list[tuple[str | None, np.ndarray]]:
        place = bin_of(case.values[self.of], self.edges)
        whole = [(self.whole, np.ones(len(cell), bool))] if self.whole else []
        return [*whole, *((label, place == number) for number, label in enumerate(self.labels))]


def per_cell(make: Callable[..., object]) -> Callable[..., object]:
    """A function of a cell, and maybe of words, that is computed once for each: tables, figures and sentences ask for the
    same numbers.
    """
    known: WeakKeyDictionary[Cell, dict] = WeakKeyDictionary()

    @wraps(make)
    def remembered(cell: Cell, *words: str) -> object:
        of_cell = known.setdefault(cell, {})
        if words not in of_cell:
            of_cell[words] = make(cell, *words)
        return of_cell[words]

    return remembered


def cells_of(record: "pa.Table | Sequence[Cell]") -> Sequence[Cell]:
    """The cells of a record; cells as they are."""
    return split_cells(record) if isinstance(record, pa.Table) else record


@per_cell
def largest_weights(cell: Cell) -> np.ndarray:
    """The largest weight of each text, [N] float64 in 0..1; NaN of a text without tokens."""
    return np.array([row.max() if len(row) else np.nan for row in cell.attention], dtype=np.float64)


def bin_of(values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """The bin of each value [N], counted from 0, between inner edges, each in the bin above it; -1 of NaN."""
    return np.where(np.isnan(values), -1, np.searchsorted(edges, values, side="right"))


@dataclass(frozen=True, eq=False)
class Count(Column):
    """How many texts have the values `of`, or have none."""

    of: str = ""
    undefined: bool = False

    def numbers(self, case: Case, members: np.ndarray) -> dict[str, float]:
        if self.of not in case.values:
            return {}
        return {self.name: int((np.isnan(case.values[self.of][members]) == self.undefined).sum())}

    def _plain(self, row: Row) -> str:
        return "–" if np.isnan(row[self.name]) else f"{int(row[self.name]):,}"


def counts(of: str, what: str = "texts") -> tuple[Count, Count]:
    """The two columns that stand before the numbers of a table; what: what is counted."""
    return Count("n", what, of=of), Count("n_undefined", "undefined", of=of, undefined=True)


@dataclass(frozen=True, eq=False)
class Number(Column):
    """A summary of the defined values `of` some texts; NaN of none, and where the case does not hold them.

    interval: what precedes ci_low and ci_high in the names of its 95 % interval (`stats.interval_of`); None without one.
    """

    of: str = ""
    interval: str | None = OWN
    statistic: Callable[[np.ndarray], float] = np.mean

    @property
    def names(self) -> tuple[str, ...]:
        if self.interval is None:
            return (self.name,)
        start = self.interval.format(name=self.name)
        return self.name, f"{start}ci_low", f"{start}ci_high"

    def numbers(self, case: Case, members: np.ndarray) -> dict[str, float]:
        if self.of not in case.values:
            return {}
        values = case.values[self.of][members]
        values = self._seen(values[~np.isnan(values)])
        if self.interval is None:
            return {self.name: float(self.statistic(values)) if len(values) else np.nan}
        return dict(zip(self.names, estimate("", values, self.statistic).values(), strict=True))

    def _seen(self, values: np.ndarray) -> np.ndarray:
        return values

    def _plain(self, row: Row) -> str:
        return number_with_interval(row, self.name) if self.interval == MAIN else format_number(row[self.name])


Mean = partial(Number, statistic=np.mean)
Median = partial(Number, statistic=np.median)
Deviation = partial(Number, statistic=np.std, interval=None)  # of the population
Largest = partial(Number, statistic=np.max, interval=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Share(Number):
    """The share of texts whose value lies below, or above, a bound, 0..1."""

    below: float | None = None
    above: float | None = None

    def _seen(self, values: np.ndarray) -> np.ndarray:
        return (values < self.below if self.above is None else values > self.above).astype(np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """A table of all cells that have what it is about: a row for each case of a cell and each group of its texts.

    name: of its files. cases: of one cell. by: what names a row, after what names the cell. columns: what the row says.
    caption: on the page; "" of a table that only files have. note: below it on the page, or what says it of the frame.
    page_rows: which rows of the frame the page shows. page_order: names of the columns there, where it is not that of the
    files. frame, grid: what makes the frame of the cells, or the page's form of it, where no declaration does.
    studies: False where a study makes it in its own way.
    """

    name: str
    by: tuple[Key, ...] = ()
    columns: tuple[Column, ...] = ()
    cases: Callable[[Cell], Iterable[Case]] | None = None
    caption: str = ""
    note: "str | Callable[[pd.DataFrame], str]" = ""
    page_rows: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    page_order: tuple[str, ...] = ()
    frame: Callable[[Sequence[Cell]], pd.DataFrame] | None = None
    grid: Callable[[pd.DataFrame, Sequence[Cell]], Grid] | None = None
    studies: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of its files after those that name the cell."""
        return tuple(name for column in (*self.by, *self.columns) for name in column.names)


@dataclass(frozen=True, eq=False)
class Sentence:
    """What the first row of a cell's table says.

    text, and after it left_out where some texts are undefined; nothing in their place where no text is defined. Each is a
    format string over `row`, `interval` (the words for that of the main number, empty where it is undefined), `texts` and
    `undefined` (how many are defined and undefined).
    """

    table: Table
    text: str
    nothing: str
    left_out: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Section:
    """What a report says of one experiment.

    name: by which a study asks for it. source: the paper it follows, "" for none. place: on the page, small first, within
    the chapter, "measures" (of what is there) or "interventions" (on it), that holds its sentences and figures.
    needs: columns that a cell must hold; one_of: of these one at least. uses: patterns of all others that it reads.
    per_text: numbers per text, {name: [N] float64}, NaN undefined. compared: whether cells are compared by them.
    figures: its kinds of figures, or those of a cell. sentences: on a cell, of one table's first row, or what says them.
    across: sentences on several cells, from the first table's frame. conventions: words on how sentences are put.
    part: HTML that is safe, of a cell and a number of examples; "" for none.
    """

    name: str
    source: str = ""
    place: int = 100
    chapter: str = "measures"
    needs: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    per_text: Callable[[Cell], dict[str, np.ndarray]] | None = None
    compared: bool = False
    tables: tuple[Table, ...] = ()
    figures: "tuple[Kind, ...] | Callable[[Cell], Sequence[Kind]]" = ()
    sentences: "Sentence | Callable[[Cell], Iterable[str]] | None" = None
    across: Callable[[pd.DataFrame], Sequence[str]] | None = None
    conventions: str = ""
    part: Callable[[Cell, int], str] | None = None

    def applies(self, cell: Cell) -> bool:
        """Whether the cell holds what the section needs."""
        names = set(cell.table.column_names)
        return set(self.needs) <= names and (not self.one_of or bool(names & set(self.one_of)))

    def columns(self, names: Iterable[str]) -> list[str]:
        """Those of a record's columns whose values the section depends on: their code must agree in cells side by side."""
        patterns = (*self.needs, *self.one_of, *self.uses)
        return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]

    @property
    def table(self) -> Table:
        """The first table, which sentences are about."""
        return self.tables[0]


def summary_section(
    name: str,
    numbers: Callable[[Cell], dict[str, np.ndarray]] | None,
    columns: tuple[Column, ...],
    *,
    caption: str,
    note: str,
    table: str = "",
    by: tuple[Key, ...] = (Classes(),),
    cases: Callable[[Cell], Iterable[Case]] | None = None,
    page_rows: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
    sentences: "Mapping[str, str] | Callable[[Cell], Iterable[str]] | None" = None,
    **options: object,
) -> Section:
    """Declare a section of one table, of the same name unless `table` gives one, which summarises numbers per text.

    numbers: `Section.per_text`, by which cells are compared. cases: of the table; one case with these numbers unless given.
    sentences: fields of a `Sentence` on the table, or a function. options: further fields of `Section`.
    """

    def one_case(cell: Cell) -> list[Case]:
        return [Case(numbers(cell))]

    summary = Table(
        name=table or name,
        cases=cases or one_case,
        by=by,
        columns=columns,
        caption=caption,
        note=note,
        page_rows=page_rows,
    )
    if isinstance(sentences, Mapping):
        sentences = Sentence(summary, **sentences)
    options.update(per_text=numbers, compared=numbers is not None, tables=(summary,), sentences=sentences)
    return Section(name=name, **options)


def summary_cases(
    numbers: Callable[[Cell], Mapping[str, Mapping[str, np.ndarray]]], key: str
) -> Callable[[Cell], Iterator[Case]]:
    """A case for each entry of {name: {number: [N]}}; key: the column that holds its name."""

    def cases(cell: Cell) -> Iterator[Case]:
        for name, values in numbers(cell).items():
            yield Case(values, {key: name})

    return cases
