"""The sections of a report: every `Section` that a module of this folder holds under a name of its own, and one of all other
numbers that a record holds for each text.
"""

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.spec import WHOLE, Section, section, summary


__all__ = ["COLUMNS", "frames", "numbers", "of_cell", "registry"]


def _scalar_columns(cell: Cell) -> dict[str, np.ndarray]:
    """The scalar columns of a cell that are no common column of records and that no other section reads, [N]."""
    others = [section for section in registry().values() if section is not COLUMNS]
    fields = [part for part in cell.table.schema if pa.types.is_floating(part.type) or pa.types.is_integer(part.type)]
    names = {part.name: None for part in fields if part.name not in (*records.COLUMNS, *records.IDENTITY_COLUMNS)}
    return {name: cell.column(name) for name in names if not any(section.reads(name) for section in others)}


COLUMNS = section("columns", per_text=_scalar_columns)


@functools.cache
def registry() -> dict[str, Section]:
    """Every section by its name, in the order of the page."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Section)]
    ordered = sorted([*declared, COLUMNS], key=lambda section: (section.place, section.name))
    return {section.name: section for section in ordered}


def of_cell(cell: Cell) -> list[Section]:
    """The sections whose columns the cell holds."""
    return [section for section in registry().values() if section.applies(cell)]


def numbers(cell: Cell) -> dict[str, np.ndarray]:
    """The numbers per text by which a cell is compared with others, [N] float64, NaN where undefined."""
    return {
        name: values
        for section in of_cell(cell)
        for name, values in section.numbers(cell).items()
        if any(fnmatchcase(name, pattern) for pattern in section.compared)
    }


def frames(cells: Sequence[Cell], names: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
    """Every table of the named sections that has rows, by file name. names: None for all sections."""
    chosen = [registry()[name] for name in (registry() if names is None else names)]
    tables = {name: table for section in chosen for name, table in section.frames(cells).items()}
    whole = summary(cells, chosen)
    return tables | ({WHOLE: whole} if len(whole) else {})
