"""The interventions on attention, and on texts, that a report knows, one module each, found in PLUGINS.

A module has NEEDS (columns a cell must hold), `instance_statistics(cell)` -> {name: [N]}, `tables(cells)` -> {name: frame},
`figures(cell)` -> {name: figure}, `describe_figure(cell, name)` -> (alternative text, caption), `grids(tables)` -> what the
page shows of its tables, `sentences(cell)`, and where a page shows more, `page_part(cell, n_examples)` -> HTML that is safe.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.reporting import adversary, erasure, permutation, saliency
from attnfaith.reporting.blocks import Grid
from attnfaith.reporting.cells import Cell


if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLUGINS = (permutation, adversary, erasure, saliency)


def of_cell(cell: Cell) -> list:
    """The modules whose columns the cell holds."""
    return [plugin for plugin in PLUGINS if set(plugin.NEEDS) <= set(cell.table.column_names)]


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """Every number per instance that the cell's interventions give, [N] float64, NaN where undefined."""
    return {name: values for plugin in of_cell(cell) for name, values in plugin.instance_statistics(cell).items()}


def tables(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Every table of the interventions that at least one cell holds, by file name."""
    return {name: table for plugin in PLUGINS for name, table in plugin.tables(cells).items()}


def figures(cell: Cell) -> "dict[str, tuple[Figure, str, str]]":
    """Figure, alternative text and caption of each figure of the cell's interventions, by file name."""
    return {
        name: (figure, *plugin.describe_figure(cell, name))
        for plugin in of_cell(cell)
        for name, figure in plugin.figures(cell).items()
    }


def grids(tables: Mapping[str, pd.DataFrame]) -> list[Grid]:
    """What the page shows of the tables."""
    return [grid for plugin in PLUGINS for grid in plugin.grids(tables)]


def sentences(cell: Cell) -> list[str]:
    """What the numbers of the cell's interventions say."""
    return [sentence for plugin in of_cell(cell) for sentence in plugin.sentences(cell)]


def page_parts(cell: Cell, n_examples: int) -> list[str]:
    """The HTML that interventions show beside tables and figures."""
    return [plugin.page_part(cell, n_examples) for plugin in of_cell(cell) if hasattr(plugin, "page_part")]
