"""The sections of a report: every `Section` that a module of this folder holds under a name of its own."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.figures import Drawing
from attnfaith.reporting.spec import Section


@functools.cache
def registry() -> dict[str, Section]:
    """Every section by its name, in the order of the page."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Section)]
    return {section.name: section for section in sorted(declared, key=lambda section: (section.place, section.name))}


def of_cell(cell: Cell) -> list[Section]:
    """The sections whose columns the cell holds."""
    return [section for section in registry().values() if section.applies(cell)]


def numbers(cell: Cell) -> dict[str, np.ndarray]:
    """The numbers per text by which a cell is compared with others, [N] float64, NaN where undefined."""
    return {
        name: values
        for section in of_cell(cell)
        if section.compared
        for name, values in section.numbers(cell).items()
        if any(fnmatchcase(name, pattern) for pattern in section.compared)
    }


def frames(cells: Sequence[Cell], names: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
    """Every table of the named sections, of all unless some are named, that has rows, by file name."""
    chosen = [registry()[name] for name in (registry() if names is None else names)]
    tables = {name: table for section in chosen for name, table in render.frames(section, cells).items()}
    summary = render.summary(cells, chosen)
    return tables | ({render.WHOLE: summary} if len(summary) else {})


def figures(cell: Cell) -> Iterator[tuple[str, Drawing]]:
    """The name of each section with a figure of the cell, and its declaration."""
    for section in of_cell(cell):
        if section.figure and section.figure.when(cell):
            yield section.name, section.figure
