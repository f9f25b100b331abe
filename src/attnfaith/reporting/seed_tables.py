"""Tables that people paste: mean ± std over seeds, such as a row for each encoder, a column for each measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, FINGERPRINTS, KINDS, Cell, ReportError, differing_keys, readable
from attnfaith.reporting.sections import alignment
from attnfaith.reporting.sections.agreement import TAU
from attnfaith.reporting.tables import Grid, over_seeds, short_number
from attnfaith.stats import mean
from attnfaith.support.errors import cut
from attnfaith.support.escaping import csv_frame


KEYS = (*CELL, "quantity", "measure")
"""What can name rows and columns."""
BY_MEASURE = "Kendall's τ of attention, or alignment error rate"
ALIGNED = "alignment_error_"
ABSENT, UNDEFINED = "–", "undefined"
FORMATS = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "text": ".txt"}


@dataclass(frozen=True, eq=False)
class SeedTable:
    """A table of means over seeds. name: of its files. grid: for reading, of numbers as "0.512 ± 0.012". numbers: a row for
    each number, in full, with n_seeds and n_undefined (seeds whose number is NaN; they do not enter), mean and std (n - 1;
    NaN of a single seed).
    """

    name: str
    grid: Grid
    numbers: pd.DataFrame

    def formatted(self, kind: str) -> str:
        """The table in one of FORMATS."""
        return csv_frame(self.numbers) if kind == "csv" else self.grid.formatted(kind)


def numbers_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """The mean over texts of each number per text of each cell: what names the cell, quantity, measure ("" of a number of no
    measure), n, mean. Of pairs of sentences with gold links a measure's number is its alignment error rate over all.
    """
    rows = []
    for cell in cells:
        judged = alignment.WHOLE.rows_of(cell) if alignment.SECTION.applies(cell) else []
        measured = {f"{ALIGNED}{row['measure']}": (row["n"], row["error_rate"]) for row in judged}
        for name, values in sections.numbers(cell).items():
            measured.setdefault(name, (int((~np.isnan(values)).sum()), mean(values[~np.isnan(values)])))
        for name, (n, number) in measured.items():
            measure = next((name.removeprefix(start) for start in (TAU, ALIGNED) if name.startswith(start)), "")
            rows.append({**cell.heading, "quantity": name, "measure": measure, "n": n, "mean": number})
    return pd.DataFrame(rows, columns=[*CELL, "quantity", "measure", "n", "mean"])


def seed_table(cells: Sequence[Cell], rows: Sequence[str], column: str, where: Mapping[str, str] | None = None) -> SeedTable:
    """Return the means over texts of cells of several seeds as a table.

    rows, column: what names them: encoder, projection, dataset and other columns of a heading, measure, quantity. where:
    {key: what it must be}, such as {"projection": "softmax"}.

    Raises ReportError for a name that is not there, and where a place of the table would hold two numbers.
    """
    table, where, named = numbers_table(cells), dict(where or {}), {column, *rows}
    for key in (*named, *where):
        if key not in KEYS:
            raise ReportError(f"the table has no {cut(key, 60)!r} to name rows or columns by; choose from {', '.join(KEYS)}")
    if len(named) <= len(rows):
        raise ReportError(f"rows {', '.join(rows)} and columns {column}: name one key or more for rows, another here")
    for key, wanted in where.items():
        values = table[key].astype(str)
        if wanted not in set(values):
            raise ReportError(f"no number has {key} {cut(wanted, 60)!r}; there are {', '.join(dict.fromkeys(values))[:300]}")
        table = table[values == wanted]
    table = table[table["measure"] != ""].assign(quantity="") if "measure" in named else table.assign(measure="")
    if table.empty:
        raise ReportError("no number is left for the table: measure the runs first")
    title = BY_MEASURE if "measure" in named else "Mean over texts"
    chosen = ", ".join(f"{key} {wanted}" for key, wanted in where.items())
    return _over_seeds(table, "table", f"{title} ({chosen})" if chosen else title, rows, column)


def _over_seeds(table: pd.DataFrame, name: str, title: str, rows: Sequence[str], column: str) -> SeedTable:
    """Raises ReportError where a place of the table would hold two numbers."""
    keys = [*rows, column]
    if "seed" in keys:  # a number for each
        table = pd.concat([over_seeds(part).assign(seed=str(seed)) for seed, part in table.groupby("seed", sort=False)])
    else:
        table = over_seeds(table)
    long = table[table["statistic"] == "mean"].reset_index(drop=True)
    for place, group in long.groupby(keys, sort=False):
        if len(group) > 1:
            differing = [key for key in KEYS if key in group and group[key].nunique() > 1]
            values = ", ".join(dict.fromkeys(group[differing[0]].astype(str)))
            raise ReportError(
                f"{len(group)} numbers would stand at {', '.join(map(str, place))}: they differ in {', '.join(differing)} "
                f"({cut(values)}); add it to the rows, or choose one with --where {differing[0]}=…"
            )
    seeds = int(long["n_seeds"].mode().iloc[-1])  # that most numbers rest on, of equally many the larger
    texts = long.assign(text=[_text(row, seeds) for row in long.to_dict("records")])
    texts[keys] = pd.DataFrame(
        {key: long[key].astype(str).map(readable if key in ("measure", "quantity") else str) for key in keys}
    )
    wide = texts.set_index(keys)["text"].unstack(sort=False).fillna(ABSENT).reset_index()
    spread = f"mean ± standard deviation (n - 1) over {seeds} seeds" if seeds > 1 else "one seed, so no spread"
    note = f"{title}: {spread}. (n = …): another number of seeds where it is defined. {ABSENT}: not measured."
    grid = Grid(title, tuple(wide), tuple(wide.itertuples(index=False, name=None)), len(rows), note)
    return SeedTable(name, grid, long[[*keys, "mean", "std", "n_seeds", "n_undefined"]])


def _text(row: Mapping, seeds: int) -> str:
    """ "0.512 ± 0.012", without a spread of a single seed and with the number of seeds where it is not the usual one."""
    defined = row["n_seeds"] - row["n_undefined"]
    if not defined:
        return UNDEFINED
    text = short_number(row["mean"]) + (f" ± {short_number(row['std'])}" if defined > 1 else "")
    return text if defined == seeds else f"{text} (n = {defined})"


def overview(cells: Sequence[Cell]) -> list[SeedTable]:
    """The tables of a study or of a few seeds, a row for each kind of model: numbers by measure, and all others."""
    rows = differing_keys(cells, KINDS) or ["dataset", "encoder"]
    table = numbers_table(cells)
    versions = table.groupby([*rows, "quantity"])[[*FINGERPRINTS]].nunique() > 1
    rows += [name for name in FINGERPRINTS if versions[name].any()]  # of one data set, such as with words and without
    measured, others = table[table["measure"] != ""].assign(quantity=""), table[table["measure"] == ""]
    parts = ((measured, "agreement", BY_MEASURE, "measure"), (others, "numbers", "Mean over texts", "quantity"))
    return [_over_seeds(part, name, title, rows, column) for part, name, title, column in parts if len(part)]
