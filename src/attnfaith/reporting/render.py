"""Frames, grids of the page and sentences, made from a section's declaration and cells."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Formatter
from types import SimpleNamespace

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.html import CLASS_COLUMN, Grid, differing, number_with_interval
from attnfaith.reporting.spec import SUMMARY, Row, Section, Table, per_cell
from attnfaith.reporting.tables import format_number
from attnfaith.support.errors import counted


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,199}")
WHOLE = "summary"
"""The table that holds every number per text."""


def file_name(name: str) -> str:
    """The name itself, where a file can be called so; what a record names may be anything.

    Raises ReportError for any other name, such as one that leads out of the report's folder.
    """
    if not _FILE_NAME.fullmatch(name):
        raise ReportError(
            f"no file is called {name[:80]!r}: names of tables and figures are letters, digits, _ . = and -, 200 at most, "
            "and start with a letter or digit; rename the column of the record that this comes from"
        )
    return name


# ---------- tables


@per_cell
def rows(cell: Cell, table: Table) -> list[Row]:
    """The rows of a table on one cell, computed once; without the columns that name the cell."""
    return list(table.rows(cell))


def frame(table: Table, cells: Sequence[Cell]) -> pd.DataFrame:
    """The table of these cells, each row with the columns that name its cell first."""
    lines = [{**cell.heading, **row} for cell in cells for row in rows(cell, table)]
    if lines:
        return pd.DataFrame(lines)
    return pd.DataFrame(columns=[*CELL, *table.headings]).astype(
        dict.fromkeys(["seed", *list(table.headings)[table.heads :]], float)
    )


def summary(cells: Sequence[Cell], sections: Iterable[Section]) -> pd.DataFrame:
    """`summary` of the sections: a row for each number per text of each cell, and, where a section asks for it, for the
    texts of each predicted class.

    n: texts with a value; n_undefined: the others, which are in no number. mean with ci_low and ci_high, median,
    share_beyond of the bound that `beyond` names: each with its 95 % interval over texts (`stats.interval_of`).
    """
    sections = list(sections)
    lines = [{**cell.heading, **row} for cell in cells for section in sections for row in section.summary(cell)]
    return pd.DataFrame(lines, columns=[*CELL, *SUMMARY])


def frames(section: Section, cells: Sequence[Cell], *, study: bool = False) -> dict[str, pd.DataFrame]:
    """The section's own tables of those cells that it applies to, by file name, without tables that have no row.

    study: whether a study asks, which makes some tables in its own way.
    """
    cells = [cell for cell in cells if section.applies(cell)]
    tables = {table.name: frame(table, cells) for table in section.tables if cells and (table.studies or not study)}
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
    keys = differing(table, CELL)
    classes = [CLASS_COLUMN] if (table["class"] != "overall").any() else []
    medians = ["median"] if not table["mean"].between(0, 1).all() or table["beyond"].any() else []
    bounds = ["beyond"] if table["beyond"].any() else []
    lines = []
    for row in table[(table["n"] > 0) | (table["class"] == "overall")].to_dict("records"):
        words = [section.quantity(row["quantity"]).label, *([row["class"]] if classes else [])]
        numbers = [f"{row['n']:,}", f"{row['n_undefined']:,}", number_with_interval(row, "mean")]
        numbers += [_number(row["median"])] if medians else []
        beyond = np.isnan(row["share_beyond"])
        numbers += ["–" if beyond else f"{row['share_beyond']:.1%} {row['beyond']}"] if bounds else []
        lines.append((*(str(row[key]) for key in keys), *words, *numbers))
    columns = (*keys, "mean over texts of", *classes, "texts", "undefined", "mean [95 % interval]", *medians, *bounds)
    return Grid(section.caption, columns, tuple(lines), len(keys) + 1 + len(classes), section.note, f"tables/{WHOLE}")


def _number(value: object) -> str:
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return "–"
    return (
        f"{int(value):,}"
        if isinstance(value, int) or (float(value).is_integer() and abs(value) > 1)
        else format_number(value)
    )


def grid(table: Table, frame: pd.DataFrame, cells: Sequence[Cell]) -> Grid:
    """The page's form of a table's frame."""
    if table.grid is not None:
        return table.grid(frame, cells)
    frame = frame if table.page_rows is None else table.page_rows(frame)
    keys = differing(frame, CELL)
    heads = list(table.headings)[: table.heads]
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
    return list(section.sentences(cell)) if callable(section.sentences) else list(_filled(section, cell))


def _filled(section: Section, cell: Cell) -> Iterator[str]:
    words = {row["quantity"]: _in_words(row) for row in section.summary(cell) if row["class"] == "overall"}
    counted_undefined = False
    for text in section.sentences:
        names = [name.partition(".")[0] for _, name, _, _ in Formatter().parse(text) if name]
        if not names or not set(names) <= set(words):
            continue
        first = words[names[0]]
        if not first.n:
            label = section.quantity(names[0]).label
            yield f"{label[0].upper()}{label[1:]}: undefined for all texts ({first.n_undefined:,})."
            continue
        yield text.format_map(words) + ("" if counted_undefined else left_out(first.n_undefined))
        counted_undefined = counted_undefined or first.n_undefined > 0


def left_out(count: int) -> str:
    """A sentence, for behind another, on texts where a number is undefined; "" without any."""
    return f" Left out because it is undefined: {count:,}." if count else ""


def _in_words(row: Row) -> SimpleNamespace:
    words = {"share": row["share_beyond"], "texts": counted(row["n"]), "interval": interval_in_words(row)}
    return SimpleNamespace(**words, **{name: row[name] for name in ("mean", "median", "n", "n_undefined")})


def interval_in_words(row: Row) -> str:
    """ " (95 % interval 0.100 to 0.150)" of a row with ci_low and ci_high, for behind the number; "" where undefined."""
    if np.isnan(row.get("ci_low", np.nan)):
        return ""
    return f" (95 % interval {row['ci_low']:.3f} to {row['ci_high']:.3f})"
