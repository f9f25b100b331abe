"""Do kinds of word vectors and projections differ? Every number per text, paired over texts and over seeds."""

from collections.abc import Sequence

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..shared import paired_comparison


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "comparisons", see `paired_comparison`."""
    compared = [paired_comparison(cells, factor) for factor in ("vectors", "projection") if cells]
    compared = [table for table in compared if len(table)]
    return Analysis({"comparisons": pd.concat(compared, ignore_index=True)} if compared else {})
