"""What a record says, as frames of pandas: of measures, of tokens, of texts, and in short."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, Cell, pair_name
from attnfaith.reporting.render import rows
from attnfaith.reporting.sections.agreement import TABLE
from attnfaith.stats import estimate


def agreement(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row for each cell and measure of importance: what the report's table of agreement says of all texts, and the
    median.
    """
    names = ("tau_mean", "tau_median", "ci_low", "ci_high", "n", "n_undefined", "tie_ceiling")
    lines = []
    for cell in cells:
        overall = {row["pair"]: row for row in rows(TABLE, cell) if row["class"] == "overall"}
        for measure in cell.measures:
            row = {**overall[pair_name("attention", measure)], "tau_median": _median(cell.tau("attention", measure))}
            lines.append({**_head(cell, cells), "measure": measure, **{name: row[name] for name in names}})
    return pd.DataFrame(lines, columns=[*_heads(cells), "measure", *names])


def scores(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row for each token of each text."""
    parts = []
    for cell in cells:
        lengths = cell.lengths
        columns = {
            "instance_id": np.repeat(np.array(cell.instance_ids, dtype=object), lengths),
            "position": np.concatenate([np.arange(length) for length in lengths]),
            "token": cell.table.column("tokens").combine_chunks().flatten().to_pylist(),
            **{name: np.concatenate(cell.scores(name)) for name in ("attention", *cell.measures)},
        }
        parts.append(pd.DataFrame({**_head(cell, cells), **columns}))
    return pd.concat(parts, ignore_index=True)


def per_text(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row for each text, with every number that cells are compared by."""
    parts = []
    for cell in cells:
        columns = {
            "instance_id": cell.instance_ids,
            "label": pd.array([None if np.isnan(label) else int(label) for label in cell.labels], "Int64"),
            "predicted": cell.predicted,
            "probability": cell.probs[np.arange(len(cell)), cell.predicted],
            "n_tokens": cell.lengths,
            "truncated": cell.table.column("truncated").to_numpy(),
            **sections.numbers(cell),
        }
        parts.append(pd.DataFrame({**_head(cell, cells), **columns}))
    return pd.concat(parts, ignore_index=True)


def summary(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row for each cell and number of its texts: mean with interval, median, and over how many."""
    lines = []
    for cell in cells:
        for name, values in sections.numbers(cell).items():
            defined = values[~np.isnan(values)]
            mean, low, high = estimate("", defined).values()
            counts = {"n": len(defined), "n_undefined": len(values) - len(defined)}
            row = {"quantity": name, "mean": mean, "ci_low": low, "ci_high": high, "median": _median(values), **counts}
            lines.append({**_head(cell, cells), **row})
    names = ("quantity", "mean", "ci_low", "ci_high", "median", "n", "n_undefined")
    return pd.DataFrame(lines, columns=[*_heads(cells), *names])


def _median(values: np.ndarray) -> float:
    defined = values[~np.isnan(values)]
    return np.median(defined) if len(defined) else np.nan


def _heads(cells: Sequence[Cell]) -> list[str]:
    """What tells several cells apart."""
    return [name for name in CELL if len({str(cell.heading[name]) for cell in cells}) > 1]


def _head(cell: Cell, cells: Sequence[Cell]) -> dict[str, object]:
    return {name: cell.heading[name] for name in _heads(cells)}
