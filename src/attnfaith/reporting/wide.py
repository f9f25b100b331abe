"""Tables that people paste: mean ± std over seeds, such as a row for each encoder, a column for each measure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from attnfaith.reporting import render, sections
from attnfaith.reporting.blocks import Grid
from attnfaith.reporting.cells import CELL, Cell, measure_label, quantity_label
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.tables import as_text, over_seeds, short_number
from attnfaith.support.errors import cut
from attnfaith.support.escaping import csv_frame, latex, markdown, markdown_table


NUMBERS = "numbers"
"""The table of what cells are compared by: the mean over texts of each number that their sections give per text."""
KINDS = tuple(name for name in CELL if name not in ("texts", "training_texts", "seed"))
"""What tells kinds of models and data apart, in the words of a heading."""
ALIGNED = "alignment_by_measure.error_rate"
"""The same of pairs of sentences with gold links, by measure."""
TAU = "tau attention–"
ABSENT, UNDEFINED = "–", "undefined"
FORMATS = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "text": ".txt"}
SPREAD = re.compile(r"[-+0-9.e]+ ± [-+0-9.e]+(?= \(|$)")


@dataclass(frozen=True, eq=False)
class Wide:
    """A wide table. name: of its files. rows, column: what names its rows and columns. long: a row for each number that is
    there, with n_seeds, n_undefined (seeds whose number is NaN; they do not enter), mean and std (n - 1; NaN of one seed).
    """

    name: str
    title: str
    rows: tuple[str, ...]
    column: str
    long: pd.DataFrame

    @cached_property
    def heads(self) -> list[tuple[str, ...]]:
        """What names each row, in order of first appearance."""
        return list(dict.fromkeys(self.long[list(self.rows)].itertuples(index=False, name=None)))

    @cached_property
    def names(self) -> list[str]:
        """What names each column of numbers."""
        return list(dict.fromkeys(self.long[self.column]))

    @cached_property
    def numbers(self) -> dict[tuple, dict]:
        """{(*row, column): n_seeds, n_undefined, mean, std}."""
        return {(*(row[key] for key in self.rows), row[self.column]): row for row in self.long.to_dict("records")}

    @cached_property
    def seeds(self) -> int:
        """How many seeds most numbers rest on."""
        return Counter(self.long["n_seeds"]).most_common(1)[0][0]

    @property
    def note(self) -> str:
        """What the numbers are."""
        several = (
            f"mean ± standard deviation (n - 1) over {self.seeds} seeds" if self.seeds > 1 else "one seed, so no spread"
        )
        said = [f"{self.title}: {several}."]
        written = [self.written(key) for key in self.numbers]
        if any("(n = " in text for text in written):
            said.append("(n = …): another number of seeds.")
        if any(" of " in text for text in written):
            said.append("(… of …): seeds where it is defined; the others are left out.")
        if len(self.numbers) < len(self.heads) * len(self.names):
            said.append(f"{ABSENT}: not measured.")
        return " ".join(said)

    def written(self, key: tuple) -> str:
        """One number: "0.512 ± 0.012", without a spread of one seed, "undefined", "–" where nothing was measured."""
        row = self.numbers.get(key)
        if row is None:
            return ABSENT
        defined = row["n_seeds"] - row["n_undefined"]
        if not defined:
            return UNDEFINED
        shown = short_number(row["mean"]) + (f" ± {short_number(row['std'])}" if defined > 1 else "")
        if row["n_undefined"]:
            return f"{shown} ({defined} of {row['n_seeds']})"
        return shown if row["n_seeds"] == self.seeds else f"{shown} (n = {row['n_seeds']})"

    @property
    def headings(self) -> list[str]:
        return [*self.rows, *(label(self.column, name) for name in self.names)]

    @property
    def lines(self) -> list[list[str]]:
        """All of it as text."""
        named = [[label(key, value) for key, value in zip(self.rows, head, strict=True)] for head in self.heads]
        return [
            [*words, *(self.written((*head, name)) for name in self.names)]
            for words, head in zip(named, self.heads, strict=True)
        ]

    @property
    def grid(self) -> Grid:
        """As a page shows it."""
        return Grid(self.title, tuple(self.headings), tuple(map(tuple, self.lines)), len(self.rows), self.note)

    def text(self) -> str:
        table = pd.DataFrame(self.lines, columns=self.headings).set_index(list(self.rows))
        return f"{as_text(table, None)}\n\n{self.note}\n"

    def markdown(self) -> str:
        numeric = [False] * len(self.rows) + [True] * len(self.names)
        return f"{markdown_table([self.headings, *self.lines], numeric=numeric)}\n{markdown(self.note)}\n"

    def latex(self) -> str:
        """For \\usepackage{booktabs}."""
        head, *lines = (" & ".join(map(latex_text, line)) + r" \\" for line in (self.headings, *self.lines))
        parts = [f"% {' '.join(self.note.split())}", rf"\begin{{tabular}}{{{'l' * len(self.rows)}{'r' * len(self.names)}}}"]
        parts += [r"\toprule", head, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
        return "\n".join(parts) + "\n"

    def csv(self) -> str:
        """Numbers in full, three columns each: mean, std and n; NaN undefined, nothing where nothing was measured."""
        parts = [dict(zip(self.rows, head, strict=True)) for head in self.heads]
        for entry, head in zip(parts, self.heads, strict=True):
            for name in self.names:
                row = self.numbers.get((*head, name))
                values = ("", "", "") if row is None else (row["mean"], row["std"], row["n_seeds"] - row["n_undefined"])
                entry |= {f"{name} {what}": value for what, value in zip(("mean", "std", "n"), values, strict=True)}
        return csv_frame(pd.DataFrame(parts, dtype=object))

    def formatted(self, kind: str) -> str:
        """In one of FORMATS."""
        return {"markdown": self.markdown, "latex": self.latex, "csv": self.csv, "text": self.text}[kind]()


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
            named = {**cell.heading, "quantity": "tau" if measure else name, "measure": measure}
            mean = float(defined.mean()) if len(defined) else np.nan
            rows.append({**named, "n": len(defined), "n_undefined": len(values) - len(defined), "mean": mean})
    return pd.DataFrame(rows, columns=[*CELL, "quantity", "measure", "n", "n_undefined", "mean"])


def statistics(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Every table that a wide one can be made of, by name."""
    made = {NUMBERS: numbers_table(cells)}
    for section in sections.registry().values():
        made |= {name: table for name, table in render.frames(section, cells).items() if {"n", "seed"} <= set(table.columns)}
    return made


def wide_table(
    cells: Sequence[Cell],
    rows: Sequence[str],
    column: str,
    value: str = NUMBERS,
    where: Mapping[str, str] | None = None,
) -> Wide:
    """Numbers of cells of several seeds as a wide table.

    rows, column: what names them: encoder, projection, dataset and other columns of a heading, measure, quantity, and those
    of the table. value: TABLE.STATISTIC such as performance.roc_auc; the table `numbers` by default. where: {key: what it
    must be}, such as {"projection": "softmax"}; "class" is "overall" unless it is named.

    Raises ReportError for a name that is not there, and where a place of the table would hold two numbers.
    """
    if value == NUMBERS and "measure" in (column, *rows) and all(cell.of_sequences for cell in cells):
        value = ALIGNED
    table, statistic = _chosen(cells, value)
    if "pair" in table.columns and "measure" in {column, *rows, *(where or {})}:
        table = table[table["pair"].str.startswith("attention–")]
        table = table.assign(measure=table["pair"].str.removeprefix("attention–"))
        table = table[["measure", *(name for name in table.columns if name != "measure")]]
    keys = [str(name) for name in table.columns[: table.columns.get_loc("n")]]
    for name in (*rows, column, *(where or {})):
        if name not in keys:
            raise ReportError(
                f"the table has no {cut(name, 60)!r} to name rows or columns by; choose from {', '.join(keys)}"
            )
    if len(set(rows)) < len(rows) or column in rows or not rows:
        raise ReportError(
            f"rows {', '.join(rows) or 'none'} and columns {column}: name one key or more for rows, another here"
        )
    wanted = {**({"class": "overall"} if "class" in keys and "class" not in {column, *rows} else {}), **(where or {})}
    for name, given in wanted.items():
        known = table[name].astype(str)
        if not (known == given).any():
            raise ReportError(f"no number has {name} {cut(given, 60)!r}; there are {', '.join(dict.fromkeys(known))[:300]}")
        table = table[known == given]
    if column == "measure" or "measure" in rows:
        table = table[table["measure"] != ""]
    elif value == NUMBERS and "quantity" in (column, *rows):
        name = table["quantity"].where(table["measure"] == "", TAU + table["measure"])
        table = table.assign(quantity=name, measure="")
    if table.empty:
        raise ReportError("no number is left for the table: measure the runs first, or choose another --value")
    table = table[[*keys, *dict.fromkeys(("n", statistic))]]
    if "seed" in (column, *rows):  # a number for each
        long = pd.concat([over_seeds(part).assign(seed=str(seed)) for seed, part in table.groupby("seed", sort=False)])
    else:
        long = over_seeds(table)
    long = long[long["statistic"] == statistic].reset_index(drop=True)
    _check_one_number(long, rows, column, keys)
    said = ", ".join(f"{name} {given}" for name, given in (where or {}).items())
    plain = "Kendall's τ of attention" if "measure" in (column, *rows) else "Mean over texts"
    title = {NUMBERS: plain, ALIGNED: "Alignment error rate"}.get(value, value.replace(".", ", ")) + (
        f" ({said})" if said else ""
    )
    return Wide("table", title, tuple(rows), column, long)


def _chosen(cells: Sequence[Cell], value: str) -> tuple[pd.DataFrame, str]:
    """The table and the statistic that a value names."""
    made = statistics(cells)
    name, _, statistic = value.partition(".")
    if name not in made:
        raise ReportError(f"no table {cut(name, 60)!r}; choose from {', '.join(made)}, as in performance.accuracy")
    table = made[name]
    after = table.columns[table.columns.get_loc("n") :]
    known = [str(column) for column in after if pd.api.types.is_numeric_dtype(table[column])]
    if name == NUMBERS and not statistic:
        statistic = "mean"
    if statistic not in known:
        raise ReportError(f"table {name} has no number {cut(statistic, 60)!r}; choose from {', '.join(known)}")
    return table, statistic


def _check_one_number(long: pd.DataFrame, rows: Sequence[str], column: str, keys: Sequence[str]) -> None:
    for place, group in long.groupby([*rows, column], sort=False):
        if len(group) > 1:
            other = [name for name in keys if name not in ("seed", column, *rows) and group[name].nunique() > 1]
            values = ", ".join(dict.fromkeys(group[other[0]].astype(str))) if other else ""
            raise ReportError(
                f"{len(group)} numbers would stand at {', '.join(map(str, place))}: they differ in "
                f"{', '.join(other)} ({cut(values)}); add it to the rows, or choose one with --where {other[0]}=…"
            )


def overview(cells: Sequence[Cell]) -> list[Wide]:
    """The tables of a study or of a few seeds, a row for each kind of model: agreement by measure, then others."""
    rows = [name for name in KINDS if len({str(cell.heading[name]) for cell in cells}) > 1] or ["dataset", "encoder"]
    if cells and all(cell.of_sequences for cell in cells):
        aligned = any(ALIGNED.partition(".")[0] in render.frames(section, cells) for section in sections.registry().values())
        return [wide_table(cells, rows, column) for column in (*(["measure"] if aligned else []), "quantity")]
    table, made = numbers_table(cells), []
    varied = [name for name in ("texts", "training_texts") if len({cell.heading[name] for cell in cells}) > 1]
    for column, held in (("measure", table["measure"] != ""), ("quantity", table["measure"] == "")):
        if held.any():
            long = over_seeds(table[held].drop(columns="n_undefined"))
            long = long[long["statistic"] == "mean"].reset_index(drop=True)
            named = rows
            if long.duplicated([*rows, column]).any():  # one data set in two versions
                named = [*rows, *varied]
            said = {"measure": ("agreement", "Kendall's τ of attention"), "quantity": ("numbers", "Mean over texts")}
            made.append(Wide(*said[column], tuple(named), column, long))
    return made
