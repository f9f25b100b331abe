"""Frames, grids of the page and sentences, made from a section's declaration and cells."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.html import Grid, differing, number_with_interval
from attnfaith.reporting.spec import SUMMARY, Row, Section, Table, per_cell
from attnfaith.reporting.tables import format_number, short_number
from attnfaith.support.errors import counted


WHOLE = "summary"
"""The table that holds every number per text."""


# ---------- tables


@per_cell
def rows(cell: Cell, table: Table) -> list[Row]:
    """The rows of a table on one cell, computed once; without the columns that name the cell."""
    return list(table.rows(cell))


def frame(table: Table, cells: Sequence[Cell]) -> pd.DataFrame:
    """The table of these cells, each row with the columns that name its cell first."""
    lines = [{**cell.heading, **row} for cell in cells for row in rows(cell, table)]
    return pd.DataFrame(lines) if lines else pd.DataFrame(columns=[*CELL, *table.headings])


def summary(cells: Sequence[Cell], sections: Iterable[Section]) -> pd.DataFrame:
    """`summary` of the sections: a row for each number per text of each cell.

    n: texts with a value; n_undefined: the others, which are in no number. mean with ci_low and ci_high, median,
    share_beyond of the bound that `beyond` names: each with its 95 % interval over texts (`stats.interval_of`).
    """
    sections = list(sections)
    lines = [{**cell.heading, **row} for cell in cells for section in sections for row in section.summary(cell).values()]
    return pd.DataFrame(lines, columns=[*CELL, *SUMMARY])


def frames(section: Section, cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """The section's own tables of those cells that it applies to, by file name, without tables that have no row."""
    cells = [cell for cell in cells if section.applies(cell)]
    tables = {table.name: frame(table, cells) for table in section.tables}
    return {name: table for name, table in tables.items() if len(table)}


def grids(section: Section, tables: Mapping[str, pd.DataFrame], cells: Sequence[Cell]) -> list[Grid]:
    """The section's tables on the page: its rows of `summary`, and its own. tables: all frames by name."""
    grids = []
    if section.caption and WHOLE in tables:
        summary = tables[WHOLE][tables[WHOLE]["section"] == section.name]
        grids += [summary_grid(section, summary)] if len(summary) else []
    own = [table for table in section.tables if table.name in tables and (table.caption or table.grid)]
    return grids + [grid(table, tables[table.name], cells) for table in own]


def summary_grid(section: Section, table: pd.DataFrame) -> Grid:
    """The section's rows of `summary` as the page shows them."""
    keys, bounds = differing(table, CELL), table["beyond"].any()
    medians = bounds or not table["mean"].between(0, 1).all()
    lines = []
    for row in table.to_dict("records"):
        line = [*(str(row[key]) for key in keys), section.quantity(row["quantity"]).label]
        line += [f"{row['n']:,}", f"{row['n_undefined']:,}", number_with_interval(row, "mean")]
        line += [_number(row["median"])] if medians else []
        share = row["share_beyond"]
        line += ["–" if np.isnan(share) else f"{share:.1%} {row['beyond']}"] if bounds else []
        lines.append(tuple(line))
    columns = [*keys, "mean over texts of", "texts", "undefined", "mean [95 % interval]"]
    columns += ["median"] * medians + ["beyond"] * bounds
    return Grid(section.caption, tuple(columns), tuple(lines), len(keys) + 1, section.note, f"tables/{WHOLE}")


def _number(value: object) -> str:
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return "–"
    return f"{int(value):,}" if float(value).is_integer() and abs(value) > 1 else format_number(value)


def grid(table: Table, frame: pd.DataFrame, cells: Sequence[Cell]) -> Grid:
    """The page's form of a table's frame."""
    if table.grid is not None:
        return table.grid(frame, cells)
    keys, heads = differing(frame, CELL), list(table.headings)[: table.heads]
    columns = {
        name: (heading, None) if isinstance(heading, str) else heading
        for name, heading in table.headings.items()
        if name in heads or (name in frame and frame[name].notna().any())
    }

    def text(row: Row, name: str) -> str:
        heading, words = columns[name]
        if words:
            return words(row)
        return number_with_interval(row, name) if "[95 %" in heading else _number(row[name])

    lines = [(*(str(row[key]) for key in keys), *(text(row, name) for name in columns)) for row in frame.to_dict("records")]
    headings = (*keys, *(heading for heading, _ in columns.values()))
    return Grid(table.caption, headings, tuple(lines), len(keys) + len(heads), table.note, f"tables/{table.name}")


# ---------- sentences


def sentences(section: Section, cell: Cell) -> list[str]:
    """The section's sentences on a cell; none where it does not apply."""
    if not section.applies(cell):
        return []
    if section.sentences:
        return list(section.sentences(cell))
    rows = section.summary(cell)
    names = section.lead(cell) if callable(section.lead) else section.lead
    return [_sentence(section, rows[name]) for name in names if name in rows]


def _sentence(section: Section, row: Row) -> str:
    start = f"{section.caption or section.tables[0].caption}: {section.quantity(row['quantity']).label}"
    if not row["n"]:
        return f"{start} is undefined for all texts ({row['n_undefined']:,})."
    beyond = f", {row['beyond']} in {row['share_beyond']:.0%} of them" if row["beyond"] else ""
    undefined = f" Left out because it is undefined: {row['n_undefined']:,}." if row["n_undefined"] else ""
    number = f"{short_number(row['mean'])}{interval_in_words(row)}"
    return f"{start} {number} on average over {counted(row['n'])}{beyond}.{undefined}"


def interval_in_words(row: Row) -> str:
    """ " (95 % interval 0.100 to 0.150)" of a row with ci_low and ci_high, for behind the number; "" where undefined."""
    low, high = row["ci_low"], row["ci_high"]
    return "" if np.isnan(low) else f" (95 % interval {low:.3f} to {high:.3f})"
