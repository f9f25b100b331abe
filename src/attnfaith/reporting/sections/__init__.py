"""The sections of a report: every `Section` that a module of this folder holds under a name of its own."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.render import Drawing
from attnfaith.reporting.spec import Section


@functools.cache
def known() -> dict[str, Section]:
    """Every section by its name, in the order of the page."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Section)]
    return {section.name: section for section in sorted(declared, key=lambda section: (section.place, section.name))}


def of_cell(cell: Cell) -> list[Section]:
    """Those whose columns the cell holds."""
    return [section for section in known().values() if section.applies(cell)]


def numbers(cell: Cell) -> dict[str, np.ndarray]:
    """The numbers per text by which a cell is compared with others, [N] float64, NaN where undefined."""
    parts = [render.numbers(section, cell) for section in of_cell(cell) if section.compared]
    return {name: values for part in parts for name, values in part.items()}


def frames(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Every table that at least one of the cells has rows in, by file name."""
    return {name: df for section in known().values() for name, df in render.frames(section, cells).items()}


def drawings(cell: Cell) -> Iterator[Drawing]:
    """Every figure of a cell, drawn one after the other."""
    for section in of_cell(cell):
        yield from render.drawings(section, cell)


def of_figures(cell: Cell) -> dict[str, str]:
    """The section of each figure of a cell, by their names."""
    return {kind.name: section.name for section in of_cell(cell) for kind in render.kinds(section, cell)}


def figure_words(cell: Cell, name: str) -> tuple[str, str]:
    """Alternative text and caption of one of the cell's figures, without drawing it. KeyError for one it does not have."""
    for section in of_cell(cell):
        for kind in render.kinds(section, cell):
            if kind.name == name:
                return kind.words(cell, render.numbers(section, cell))
    raise KeyError(name)
