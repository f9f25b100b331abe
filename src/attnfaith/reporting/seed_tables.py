"""Tables that people paste: mean ± std over seeds, such as a row for each encoder, a column for each measure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from attnfaith.reporting import render, sections
from attnfaith.reporting.cells import CELL, FINGERPRINTS, Cell, measure_label, quantity_label
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.html import Grid
from attnfaith.reporting.tables import as_text, over_seeds, short_number
from attnfaith.support.errors import cut
from attnfaith.support.escaping import csv_frame, latex, markdown, markdown_table


NUMBERS = "numbers"
"""The table of the mean over texts of each number by which cells are compared."""
KINDS = tuple(name for name in CELL if name not in (*FINGERPRINTS, "seed"))
"""Columns of a heading that distinguish kinds of models and data."""
ALIGNED = "alignment_by_measure.error_rate"
"""The same of pairs of sentences with gold links, by measure."""
TAU = "tau attention–"
ABSENT, UNDEFINED = "–", "undefined"
FORMATS = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "text": ".txt"}
SPREAD = re.compile(r"[-+0-9.e]+ ± [-+0-9.e]+(?= \(|$)")


@dataclass(frozen=True, eq=False)
class SeedTable:
    """A table of means over seeds.

    name: of its files. rows, column: the keys that name its rows and columns. long: a row for each number, with n_seeds,
    n_undefined (seeds whose number is NaN; they do not enter), mean and std (n - 1; NaN of a single seed).
    """

    name: str
    title: str
    rows: tuple[str, ...]
    column: str
    long: pd.DataFrame

    def wide(self, values: str | list[str]) -> pd.DataFrame:
        """Values of `long` with a row for each of `rows` and a column for each of `column`, in order of first appearance."""
        keys = self.long[list(self.rows)].drop_duplicates()
        table = self.long.pivot(index=list(self.rows), columns=self.column, values=values)
        table = table.reindex(list(keys.itertuples(index=False, name=None)) if len(self.rows) > 1 else keys[self.rows[0]])
        return table.reindex(columns=self.long[self.column].drop_duplicates(), level=1 if isinstance(values, list) else None)

    @cached_property
    def seeds(self) -> int:
        """How many seeds most numbers rest on; of equally many the larger."""
        return int(self.long["n_seeds"].mode().iloc[-1])

    @cached_property
    def text_table(self) -> pd.DataFrame:
        """Numbers as "0.512 ± 0.012", without a spread of a single seed, "undefined", or "–" where nothing was measured."""
        texts = self.long.assign(text=[self._text(row) for row in self.long.to_dict("records")])
        table = replace(self, long=texts).wide("text").fillna(ABSENT).reset_index()
        for key in self.rows:
            table[key] = [label(key, value) for value in table[key]]
        return table.set_axis([*self.rows, *(label(self.column, name) for name in table.columns[len(self.rows) :])], axis=1)

    def _text(self, row: Mapping) -> str:
        defined = row["n_seeds"] - row["n_undefined"]
        if not defined:
            return UNDEFINED
        text = short_number(row["mean"]) + (f" ± {short_number(row['std'])}" if defined > 1 else "")
        if row["n_undefined"]:
            return f"{text} ({defined} of {row['n_seeds']})"
        return text if row["n_seeds"] == self.seeds else f"{text} (n = {row['n_seeds']})"

    @property
    def note(self) -> str:
        """The title, the number of seeds and the signs in the table, in words."""
        spread = f"mean ± standard deviation (n - 1) over {self.seeds} seeds" if self.seeds > 1 else "one seed, so no spread"
        texts = " ".join(self.text_table.iloc[:, len(self.rows) :].to_numpy().ravel())
        remarks = {
            "(n = …): another number of seeds.": "(n = " in texts,
            "(… of …): seeds where it is defined; the others are left out.": " of " in texts,
            f"{ABSENT}: not measured.": ABSENT in texts,
        }
        return " ".join([f"{self.title}: {spread}.", *(remark for remark, holds in remarks.items() if holds)])

    @property
    def grid(self) -> Grid:
        """The table as a page shows it."""
        table = self.text_table
        return Grid(self.title, tuple(table), tuple(table.itertuples(index=False, name=None)), len(self.rows), self.note)

    def formatted(self, kind: str) -> str:
        """The table in one of FORMATS. latex: for booktabs. csv: numbers in full, three columns each: mean, std and n; NaN
        undefined, nothing where nothing was measured.
        """
        table, count = self.text_table, len(self.rows)
        if kind == "text":
            return f"{as_text(table.set_index(list(self.rows)), None)}\n\n{self.note}\n"
        if kind == "markdown":
            numeric = [place >= count for place in range(table.shape[1])]
            return f"{markdown_table([list(table), *table.to_numpy().tolist()], numeric=numeric)}\n{markdown(self.note)}\n"
        if kind == "latex":
            table = table.map(latex_text).rename(columns=latex_text)
            columns = "l" * count + "r" * (table.shape[1] - count)
            return f"% {' '.join(self.note.split())}\n" + table.to_latex(index=False, escape=False, column_format=columns)
        numbers = replace(self, long=self.long.assign(n=self.long["n_seeds"] - self.long["n_undefined"]).astype(object))
        wide = numbers.wide(["mean", "std", "n"])
        wide = wide[[(part, name) for name in wide.columns.unique(1) for part in ("mean", "std", "n")]]
        missing = wide["n"].isna()
        wide = wide.where(~pd.concat(dict.fromkeys(("mean", "std", "n"), missing), axis=1), "")
        return csv_frame(wide.set_axis([f"{name} {part}" for part, name in wide.columns], axis=1).reset_index())


def label(key: str, value: object) -> str:
    """A value of a key for reading."""
    if key == "measure":
        return measure_label(str(value))
    return quantity_label(str(value)) if key in ("quantity", "statistic") else str(value)


def latex_text(text: str) -> str:
    """Text that LaTeX sets as it is; a number with its spread in mathematics."""
    if SPREAD.match(text):
        spread, *rest = text.split(" (", 1)
        spread = re.sub(r"e([-+])0?(\d+)", r" \\times 10^{\1\2}", spread.replace("±", r"\pm"))
        return f"${spread}$" + "".join(f" ({latex(part)}" for part in rest)
    return latex(text)


# ------------------------------------------------------------------------------------------------ from cells


def numbers_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """The mean over texts of each number per text of each cell: what names the cell, quantity, measure ("" of a number of no
    measure), n, n_undefined, mean.
    """
    rows = []
    for cell in cells:
        for name, values in sections.numbers(cell).items():
            defined = values[~np.isnan(values)]
            measure = name.removeprefix(TAU) if name.startswith(TAU) else ""
            heading = {**cell.heading, "quantity": "tau" if measure else name, "measure": measure}
            mean = float(defined.mean()) if len(defined) else np.nan
            rows.append({**heading, "n": len(defined), "n_undefined": len(values) - len(defined), "mean": mean})
    return pd.DataFrame(rows, columns=[*CELL, "quantity", "measure", "n", "n_undefined", "mean"])


def seed_table(
    cells: Sequence[Cell],
    rows: Sequence[str],
    column: str,
    value: str = NUMBERS,
    where: Mapping[str, str] | None = None,
) -> SeedTable:
    """Return numbers of cells of several seeds as a table.

    rows, column: what names them: encoder, projection, dataset and other columns of a heading, measure, quantity, and those
    of the table. value: TABLE.STATISTIC such as performance.roc_auc; the table `numbers` by default. where: {key: what it
    must be}, such as {"projection": "softmax"}; "class" is "overall" unless it is named.

    Raises ReportError for a name that is not there, and where a place of the table would hold two numbers.
    """
    where = dict(where or {})
    if value == NUMBERS and "measure" in (column, *rows) and all(cell.of_sequences for cell in cells):
        value = ALIGNED
    table, statistic = _chosen(cells, value)
    if "pair" in table.columns and "measure" in {column, *rows, *where}:
        table = table[table["pair"].str.startswith("attention–")]
        table.insert(0, "measure", table["pair"].str.removeprefix("attention–"))
    keys = [str(name) for name in table.columns[: table.columns.get_loc("n")]]
    for name in (*rows, column, *where):
        if name not in keys:
            raise ReportError(
                f"the table has no {cut(name, 60)!r} to name rows or columns by; choose from {', '.join(keys)}"
            )
    if len(set(rows)) < len(rows) or column in rows or not rows:
        raise ReportError(
            f"rows {', '.join(rows) or 'none'} and columns {column}: name one key or more for rows, another here"
        )
    overall = {"class": "overall"} if "class" in keys and "class" not in (column, *rows) else {}
    for name, wanted in (overall | where).items():
        values = table[name].astype(str)
        if wanted not in set(values):
            raise ReportError(
                f"no number has {name} {cut(wanted, 60)!r}; there are {', '.join(dict.fromkeys(values))[:300]}"
            )
        table = table[values == wanted]
    if "measure" in (column, *rows):
        table = table[table["measure"] != ""]
    elif value == NUMBERS and "quantity" in (column, *rows):
        names = table["quantity"].where(table["measure"] == "", TAU + table["measure"])
        table = table.assign(quantity=names, measure="")
    if table.empty:
        raise ReportError("no number is left for the table: measure the runs first, or choose another --value")
    plain = "Kendall's τ of attention" if "measure" in (column, *rows) else "Mean over texts"
    title = {NUMBERS: plain, ALIGNED: "Alignment error rate"}.get(value, value.replace(".", ", "))
    title += f" ({', '.join(f'{name} {wanted}' for name, wanted in where.items())})" if where else ""
    return _over_seeds(table[[*keys, *dict.fromkeys(("n", statistic))]], "table", title, rows, column, statistic)


def _chosen(cells: Sequence[Cell], value: str) -> tuple[pd.DataFrame, str]:
    """The table and the statistic that a value names."""
    tables = {NUMBERS: numbers_table(cells)}
    for section in sections.registry().values():
        frames = render.frames(section, cells).items()
        tables |= {name: table for name, table in frames if {"n", "seed"} <= set(table.columns)}
    name, _, statistic = value.partition(".")
    if name not in tables:
        raise ReportError(f"no table {cut(name, 60)!r}; choose from {', '.join(tables)}, as in performance.accuracy")
    statistics = tables[name].iloc[:, tables[name].columns.get_loc("n") :].select_dtypes("number").columns
    statistic = statistic or ("mean" if name == NUMBERS else "")
    if statistic not in statistics:
        raise ReportError(f"table {name} has no number {cut(statistic, 60)!r}; choose from {', '.join(statistics)}")
    return tables[name], statistic


def _over_seeds(
    table: pd.DataFrame, name: str, title: str, rows: Sequence[str], column: str, statistic: str = "mean"
) -> SeedTable:
    """Raises ReportError where a place of the table would hold two numbers."""
    keys = [key for key in table.columns[: table.columns.get_loc("n")] if key not in ("seed", column, *rows)]
    if "seed" in (column, *rows):  # a number for each
        long = pd.concat([over_seeds(part).assign(seed=str(seed)) for seed, part in table.groupby("seed", sort=False)])
    else:
        long = over_seeds(table)
    long = long[long["statistic"] == statistic].reset_index(drop=True)
    for place, group in long.groupby([*rows, column], sort=False):
        if len(group) > 1:
            differing = [key for key in keys if group[key].nunique() > 1]
            values = ", ".join(dict.fromkeys(group[differing[0]].astype(str))) if differing else ""
            raise ReportError(
                f"{len(group)} numbers would stand at {', '.join(map(str, place))}: they differ in {', '.join(differing)} "
                f"({cut(values)}); add it to the rows, or choose one with --where {differing[0]}=…"
            )
    return SeedTable(name, title, tuple(rows), column, long)


def overview(cells: Sequence[Cell]) -> list[SeedTable]:
    """The tables of a study or of a few seeds, a row for each kind of model: agreement by measure, then others."""
    rows = [name for name in KINDS if len({str(cell.heading[name]) for cell in cells}) > 1] or ["dataset", "encoder"]
    if cells and all(cell.of_sequences for cell in cells):
        aligned = any(ALIGNED.partition(".")[0] in render.frames(section, cells) for section in sections.registry().values())
        return [seed_table(cells, rows, column) for column in (*(["measure"] if aligned else []), "quantity")]
    table = numbers_table(cells)
    varied = [name for name in FINGERPRINTS if len({cell.heading[name] for cell in cells}) > 1]
    parts = {
        ("agreement", "Kendall's τ of attention", "measure"): table[table["measure"] != ""],
        ("numbers", "Mean over texts", "quantity"): table[table["measure"] == ""],
    }
    tables = []
    for (name, title, column), part in parts.items():
        if len(part):
            twice = part.duplicated([*rows, column, "seed"]).any()  # one data set in two versions
            tables.append(_over_seeds(part, name, title, [*rows, *(varied if twice else [])], column))
    return tables
