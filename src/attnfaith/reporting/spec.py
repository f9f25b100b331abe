"""How a report's sections are declared, and what is made of the declarations: frames, tables of the page and sentences.

A section names the columns of a record that it reads and its numbers per text. Each number has rows in the generic table
`summary`, read as its `Quantity` declares. A section has tables of its own only for what that table cannot show. N: texts
of a cell.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import CELL, Cell, name_class, per_cell, readable
from attnfaith.reporting.charts import Chart
from attnfaith.reporting.html import DECLARED
from attnfaith.reporting.tables import Grid, differing, format_number, number_with_interval, percent, short_number
from attnfaith.stats import estimate
from attnfaith.support.errors import counted


Row = Mapping[str, object]
WHOLE = "summary"
"""The table that holds every number per text."""
ENDS = ("", "_ci_low", "_ci_high")
SUMMARY = ("section", "quantity", "beyond", "n", "n_undefined", "mean", "ci_low", "ci_high")
SUMMARY += tuple(f"{name}{end}" for name in ("median", "share_beyond") for end in ENDS)
CLASS_COLUMN = "class"
"""The column of predicted classes; the page writes their names beside their numbers."""
MEASURES = ("measure", "scores", "rival", "pair")
"""The columns of names of measures; the page has their labels."""
MOST_CLASSES = 12  # with rows of their own in the tables of the page


def counts(values: np.ndarray) -> dict[str, int]:
    """How many of the values [N] are defined, n, and how many are not, n_undefined."""
    undefined = int(np.isnan(values).sum())
    return {"n": len(values) - undefined, "n_undefined": undefined}


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """A table of all cells that have its rows.

    name: of its files. rows: of one cell, each {column: value}, without the columns that name the cell. headings: of the
    page, by column; a number under "… [95 % interval]" has that of ci_low and ci_high, and other undefined numbers are a
    dash. words: functions of a row that word a column. heads: how many columns name a row. caption, note: on the page;
    caption "" of a table in files only. across: of a table whose statistics stand one below the other and whose cells side
    by side, the statistics that every cell has in words; those of a class are "<start>class_<number>", with the start in
    words.
    """

    name: str
    rows: Callable[[Cell], Iterable[Row]]
    headings: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)
    heads: int = 1
    caption: str = ""
    note: str = ""
    across: Mapping[str, str] = field(default_factory=dict)

    @per_cell
    def rows_of(self, cell: Cell) -> list[Row]:
        """The rows of one cell, computed once; without the columns that name the cell."""
        return list(self.rows(cell))

    def frame(self, cells: Sequence[Cell]) -> pd.DataFrame:
        """The table of these cells, each row with the columns that name its cell first."""
        lines = [{**cell.heading, **row} for cell in cells for row in self.rows_of(cell)]
        return pd.DataFrame(lines) if lines else pd.DataFrame(columns=[*CELL, *self.headings])

    def grid(self, frame: pd.DataFrame, cells: Sequence[Cell]) -> Grid:
        """The table for reading. Of many classes it has the MOST_CLASSES that are predicted most often."""
        names, note = cells[0].class_names if len({cell.class_names for cell in cells}) == 1 else (), self.note
        frequent: set[str] = set()
        if self.across or CLASS_COLUMN in self.headings:
            predicted = Counter(range(max(cell.probs.shape[1] for cell in cells)))
            predicted.update(number for cell in cells for number in cell.predicted.tolist())
            frequent = {str(number) for number, _ in predicted.most_common(MOST_CLASSES)}
            if len(frequent) < len(predicted):
                note += (
                    f" Of {len(predicted)} classes the {len(frequent)} predicted most often are shown; the files hold all."
                )
        keys, stem = differing(frame, CELL), f"tables/{self.name}"
        if self.across:
            columns = [" · ".join(str(row[key]) for key in keys) or "value" for row in frame.to_dict("records")]
            lines = [
                (statistic(name, self.across, names), *map(format_number, frame[name]))
                for name in frame
                if name in self.across or ("class_" in name and name.rpartition("_")[2] in frequent)
            ]
            return Grid(self.caption, ("", *columns), tuple(lines), 1, note, stem)
        heads = list(self.headings)[: self.heads]
        columns = [name for name in self.headings if name in heads or (name in frame and frame[name].notna().any())]

        def text(row: Row, name: str) -> str:
            if name in self.words:
                return self.words[name](row)
            if name == CLASS_COLUMN:
                return name_class(row[name], names)
            if name in MEASURES:
                return " – ".join(map(readable, row[name].split("–")))
            return number_with_interval(row, name) if "[95 %" in self.headings[name] else _number(row[name])

        lines = [
            (*(str(row[key]) for key in keys), *(text(row, name) for name in columns))
            for row in frame.to_dict("records")
            if row.get(CLASS_COLUMN, "overall") in ("overall", *frequent)
        ]
        headings = (*keys, *(self.headings[name] for name in columns))
        return Grid(self.caption, headings, tuple(lines), len(keys) + len(heads), note, stem)


def statistic(name: str, words: Mapping[str, str], class_names: tuple[str, ...]) -> str:
    """A statistic in words, such as "F1, class 0 negative" of "f1_class_0"."""
    start, of_class, number = name.partition("class_")
    return words.get(start, start) + name_class(number, class_names) if of_class else words.get(name, name)


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | np.integer) else format_number(value, "–")


@dataclass(frozen=True, eq=False, kw_only=True)
class Section:
    """The part of a report about one experiment.

    name: by which a study asks for it. place: on the page, small first, within the chapter, "measures" or "interventions",
    that holds its sentences and chart. needs: columns that a cell must hold; one_of: of these at least one. uses: patterns
    of further columns of one number per text that it reads.
    per_text: numbers per text, {name: [N] float64}, NaN undefined; without it the columns that `quantities` names.
    compared: patterns of the numbers that cells are compared by. quantities: how they are read, by name or pattern.
    caption, note: of the rows of `summary` on the page; "" where tables of its own show them.
    chart: of a cell; None where it has none. lead: names of the numbers that have a sentence on the page, or a function of
    the cell that gives them. words: a function of the cell that makes other sentences.
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
    chart: Callable[[Cell], Chart | None] = lambda cell: None
    lead: "tuple[str, ...] | Callable[[Cell], Iterable[str]]" = ()
    words: Callable[[Cell], Iterable[str]] | None = None

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
                rest = readable(name.removeprefix(start).removesuffix(end))
                return replace(quantity, label=quantity.label.format(rest).strip() or readable(name))
        return Quantity(readable(name))

    @per_cell
    def summary(self, cell: Cell) -> dict[str, Row]:
        """Its rows of `summary` on one cell by quantity, computed once, without the columns that name the cell."""
        rows = {}
        for name, values in self.numbers(cell).items():
            quantity = self.quantity(name)
            rows[name] = {"section": self.name, "quantity": name, "beyond": quantity.beyond, **quantity.summary(values)}
        return rows

    @per_cell
    def chart_of(self, cell: Cell) -> Chart | None:
        """Its chart of a cell, made once; None where it does not apply or nothing is drawn."""
        chart = self.chart(cell) if self.applies(cell) else None
        return chart if chart and chart.bars else None

    def frames(self, cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
        """Its own tables of those cells that it applies to, by file name, without tables that have no row."""
        cells = [cell for cell in cells if self.applies(cell)]
        tables = {table.name: table.frame(cells) for table in self.tables}
        return {name: table for name, table in tables.items() if len(table)}

    def grids(self, tables: Mapping[str, pd.DataFrame], cells: Sequence[Cell]) -> list[Grid]:
        """Its tables on the page: its rows of `summary`, and its own. tables: all frames by name."""
        grids = []
        if self.caption and WHOLE in tables and (tables[WHOLE]["section"] == self.name).any():
            grids.append(self._summary_grid(tables[WHOLE][tables[WHOLE]["section"] == self.name]))
        own = [table for table in self.tables if table.name in tables and table.caption]
        return grids + [table.grid(tables[table.name], cells) for table in own]

    def _summary_grid(self, table: pd.DataFrame) -> Grid:
        keys, bounds = differing(table, CELL), table["beyond"].any()
        medians = bounds or not table["mean"].dropna().between(0, 1).all()
        lines = []
        for row in table.to_dict("records"):
            line = [*(str(row[key]) for key in keys), self.quantity(row["quantity"]).label]
            line += [_number(row["n"]), _number(row["n_undefined"]), number_with_interval(row, "mean")]
            line += [_number(row["median"])] if medians else []
            share = row["share_beyond"]
            line += ["–" if np.isnan(share) else f"{percent(share, 1)} {row['beyond']}"] if bounds else []
            lines.append(tuple(line))
        columns = [*keys, "mean over texts of", "texts", "undefined", "mean [95 % interval]"]
        columns += ["median"] * medians + ["beyond"] * bounds
        return Grid(self.caption, tuple(columns), tuple(lines), len(keys) + 1, self.note, f"tables/{WHOLE}")

    def sentences(self, cell: Cell) -> list[str]:
        """Its sentences on a cell; none where it does not apply."""
        if not self.applies(cell):
            return []
        if self.words:
            return list(self.words(cell))
        rows = self.summary(cell)
        names = self.lead(cell) if callable(self.lead) else self.lead
        return [self._sentence(rows[name]) for name in names if name in rows]

    def _sentence(self, row: Row) -> str:
        start = f"{self.caption or self.tables[0].caption}: {self.quantity(row['quantity']).label}"
        if not row["n"]:
            return f"{start} is undefined for all texts ({row['n_undefined']:,})."
        beyond = f", {row['beyond']} in {percent(row['share_beyond'])} of them" if row["beyond"] else ""
        undefined = f" Left out because it is undefined: {row['n_undefined']:,}." if row["n_undefined"] else ""
        number = f"{short_number(row['mean'])}{interval_in_words(row)}"
        return f"{start} {number} on average over {counted(row['n'])}{beyond}.{undefined}"


def section(name: str, **code) -> Section:
    """The section that DECLARED describes. code: the fields that are functions and tables."""
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in DECLARED["sections"][name].items()}
    fields["quantities"] = {key: Quantity(**parts) for key, parts in fields.get("quantities", {}).items()}
    return Section(name=name, **{**fields, **code})


def table(name: str, **code) -> Table:
    """The table that DECLARED describes. code: the fields that are functions."""
    return Table(name=name, **DECLARED["tables"].get(name, {}), **code)


def interval_in_words(row: Row) -> str:
    """ " (95 % interval 0.100 to 0.150)" of a row with ci_low and ci_high, for behind the number; "" where undefined."""
    low, high = row["ci_low"], row["ci_high"]
    return "" if np.isnan(low) else f" (95 % interval {short_number(low)} to {short_number(high)})"


def summary(cells: Sequence[Cell], sections: Sequence[Section]) -> pd.DataFrame:
    """`summary` of the sections: a row for each number per text of each cell.

    n: texts with a value; n_undefined: the others, which are in no number. mean with ci_low and ci_high, median,
    share_beyond of the bound that `beyond` names: each with its 95 % interval over texts, by `Quantity`.
    """
    lines = [{**cell.heading, **row} for cell in cells for section in sections for row in section.summary(cell).values()]
    return pd.DataFrame(lines, columns=[*CELL, *SUMMARY])
