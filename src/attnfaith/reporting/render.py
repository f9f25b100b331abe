"""From a section's declaration and cells to frames, what the page shows of them, figures and sentences."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from attnfaith.errors import counted
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.figures import Kind
from attnfaith.reporting.spec import Case, Row, Section, Sentence, Table


if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,199}")
_known_rows: WeakKeyDictionary[Cell, dict[Table, list[dict]]] = WeakKeyDictionary()


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


def numbers(section: Section, cell: Cell) -> dict[str, np.ndarray]:
    """The section's numbers per text of a cell, {name: [N] float64}; {} where it has none or does not apply."""
    return section.per_text(cell) if section.per_text and section.applies(cell) else {}


# ------------------------------------------------------------------------------------------------- tables


def rows(table: Table, cell: Cell) -> list[dict]:
    """The rows of a declared table on one cell, computed once; without what names the cell."""
    known = _known_rows.setdefault(cell, {})
    if table not in known:
        known[table] = [row for case in table.cases(cell) for row in _rows_of_case(table, cell, case)]
    return known[table]


def _rows_of_case(table: Table, cell: Cell, case: Case) -> Iterator[dict]:
    for groups in product(*(key.groups(cell, case) for key in table.by)):
        members = np.ones(len(cell), bool)
        row = {**case.keys, **case.given}
        for key, (label, inside) in zip(table.by, groups, strict=True):
            members &= inside
            if label is not None:
                row[key.name] = label
        for column in table.columns:
            row |= column.numbers(case, members)
        yield row


def frame(table: Table, cells: Sequence[Cell]) -> pd.DataFrame:
    """The table of these cells, each row with what names its cell first; typed columns and no row where there is none."""
    if table.frame is not None:
        return table.frame(cells)
    return _framed([{**cell.heading, **row} for cell in cells for row in rows(table, cell)], table)


def _framed(entries: list[dict], table: Table) -> pd.DataFrame:
    names = [*CELL, *table.names]
    extra = sorted({name for row in entries for name in row} - set(names), key=_by_number)
    if entries:
        return pd.DataFrame(entries, columns=[*names, *extra])
    text = {*CELL, *(key.name for key in table.by)} - {"seed"}
    return pd.DataFrame(columns=names).astype({name: np.float64 for name in names if name not in text})


def _by_number(name: str) -> tuple[str, int]:
    """Class 2 comes before class 10."""
    start, _, number = name.rpartition("_")
    return (start, int(number)) if number.isdecimal() else (name, -1)


def frames(section: Section, cells: Sequence[Cell], *, study: bool = False) -> dict[str, pd.DataFrame]:
    """The section's tables of those cells that it applies to, by file name, without those that have no row.

    study: only what a study does not make in its own way. Raises ReportError for a name that no file can have.
    """
    cells = [cell for cell in cells if section.applies(cell)]
    if not cells:
        return {}
    made = {file_name(table.name): frame(table, cells) for table in section.tables if table.studies or not study}
    return {name: df for name, df in made.items() if len(df)}


def grid(table: Table, df: pd.DataFrame, cells: Sequence[Cell]) -> Grid:
    """What the page shows of a table's frame."""
    if table.grid is not None:
        return table.grid(df, cells)
    df = df if table.page_rows is None else table.page_rows(df)
    return declared_grid(table, df, differing(df, CELL))


def declared_grid(table: Table, df: pd.DataFrame, keys: Sequence[str]) -> Grid:
    """The rows of a frame under the headings that are declared, each after what names its cell: columns `keys`."""
    shown = [column for column in (*table.by, *table.columns) if column.heading]
    shown = [column for column in shown if not column.optional or df[column.name].notna().any()]
    if table.page_order:
        shown.sort(key=lambda column: table.page_order.index(column.name))
    lines = [(*(str(row[key]) for key in keys), *(column.text(row) for column in shown)) for row in df.to_dict("records")]
    heads = len(keys) + sum(column in table.by for column in shown)
    note = table.note if isinstance(table.note, str) else table.note(df)
    headings = (*keys, *(column.heading for column in shown))
    return Grid(table.caption, headings, tuple(lines), heads, note, f"tables/{table.name}")


def grids(section: Section, made: Mapping[str, pd.DataFrame], cells: Sequence[Cell]) -> list[Grid]:
    """What the page shows of the frames that are the section's."""
    shown = [table for table in section.tables if table.name in made and (table.caption or table.grid)]
    return [grid(table, made[table.name], cells) for table in shown]


# ------------------------------------------------------------------------------------------------ figures


class Drawing(NamedTuple):
    """A figure with its file name, alternative text and caption."""

    name: str
    figure: "Figure"
    alt: str
    caption: str


def kinds(section: Section, cell: Cell) -> Sequence[Kind]:
    """The section's figures of a cell, not drawn yet; none where it does not apply.

    Raises ReportError for a name that no file can have.
    """
    if not section.applies(cell):
        return []
    declared = list(section.figures(cell) if callable(section.figures) else section.figures)
    for kind in declared:
        file_name(kind.name)
    return declared


def drawings(section: Section, cell: Cell) -> Iterator[Drawing]:
    """The section's figures of a cell, drawn one after the other; none where it does not apply."""
    for kind in kinds(section, cell):
        of_text = numbers(section, cell)
        yield Drawing(kind.name, kind.draw(cell, of_text), *kind.words(cell, of_text))


# ---------------------------------------------------------------------------------------------- sentences


def sentences(section: Section, cell: Cell) -> list[str]:
    """What the section's numbers say of a cell; nothing where it does not apply."""
    said = section.sentences if section.applies(cell) else None
    if isinstance(said, Sentence):
        return _said(said, next(iter(rows(said.table, cell)), None))
    return list(said(cell)) if said else []


def _said(sentence: Sentence, row: Row | None) -> list[str]:
    if row is None:
        return []
    parts = [sentence.text if row["n"] else sentence.nothing]
    if row["n"] and row["n_undefined"] and sentence.left_out:
        parts.append(sentence.left_out)
    words = {"texts": counted(int(row["n"])), "undefined": counted(int(row["n_undefined"]))}
    return [" ".join(parts).format(row=row, interval=interval_in_words(row), **words)]


def interval_in_words(row: Row) -> str:
    """ " (95 % interval 0.100 to 0.150)" of a row with ci_low and ci_high, for behind the number; "" where undefined."""
    if np.isnan(row.get("ci_low", np.nan)):
        return ""
    return f" (95 % interval {row['ci_low']:.3f} to {row['ci_high']:.3f})"
