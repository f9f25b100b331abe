"""How evenly attention, each importance measure and the inputs of a state share out a text: numbers and table.

Per text and scores: entropy over its maximum (0 one token has all, 1 all tokens the same), the number of tokens above zero
and the share at zero. "hidden_to_input" stands for g_h(x), how far each encoder state depends on each input: one
distribution over the tokens for every state, from the columns of `importance/gradient_hidden_to_input`. Source: Meister et
al. (2021), sections 3 and 4.
"""

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, share_of_zeros, support_size
from attnfaith.metrics.attention_faithfulness.divergences import flatten
from attnfaith.reporting.blocks import Grid, differing, number_with_interval
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.tables import _cells, _frame, format_number
from attnfaith.stats import bootstrap_intervals, mean


INPUTS_OF_STATES = "hidden_to_input"
TABLE_COLUMNS = (
    *CELL,
    "scores",
    "n",
    "n_undefined",
    "entropy_mean",
    "entropy_std",
    "ci_low",
    "ci_high",
    "support_mean",
    "support_share",
    "zeros_share",
    "own_share_mean",
    "n_states_undefined",
)
_known: WeakKeyDictionary[Cell, dict[str, np.ndarray]] = WeakKeyDictionary()


def instance_dispersion(cell: Cell) -> dict[str, np.ndarray]:
    """Every number on dispersion that the cell holds per instance, [N] float64, NaN where undefined; computed once.

    For "attention" and each of the cell's measures: "entropy <scores>", entropy over its maximum, 0..1, undefined below two
    tokens and where all scores are zero; "support <scores>", tokens above zero; "zeros <scores>", share of tokens at zero,
    0..1. A text with a negative score is undefined in that measure. Where the cell has the columns, "entropy
    hidden_to_input" and "own hidden_to_input": mean over the states p of a text of the entropy of g_{h_p}, and of the share
    g_{h_p}(x_p) of a state's own input, both 0..1, over the states where they are defined.
    """
    if cell not in _known:
        _known[cell] = _computed(cell)
    return _known[cell]


def _computed(cell: Cell) -> dict[str, np.ndarray]:
    found = {}
    for name in ("attention", *cell.measures):
        scores = [None if (row < 0).any() else row for row in cell.scores(name)]
        found[f"entropy {name}"] = normalised_entropy(scores)
        found[f"support {name}"] = support_size(scores)
        found[f"zeros {name}"] = share_of_zeros(scores)
    for kind in ("entropy", "own"):
        if (column := f"{INPUTS_OF_STATES}_{kind}") in cell.table.column_names:
            found[f"{kind} {INPUTS_OF_STATES}"] = _means_of_defined(records.rows(cell.table, column))
    return found


def _means_of_defined(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of the numbers of each row that are not NaN, [N]; NaN where there is none."""
    flat, lengths = flatten(rows, INPUTS_OF_STATES)
    owner, defined = np.repeat(np.arange(len(lengths)), lengths), ~np.isnan(flat)
    sums = np.bincount(owner[defined], weights=flat[defined], minlength=len(lengths))
    counts = np.bincount(owner[defined], minlength=len(lengths))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def dispersion_table(record: "pa.Table | Sequence[Cell]", *, seed: int = 0) -> pd.DataFrame:
    """How evenly each cell's scores are spread over the tokens of a text.

    One row per cell x scores: "attention", every importance measure, and "hidden_to_input" where the cell holds it.

    n: instances with a defined entropy; n_undefined: the others (fewer than two tokens, all scores zero). entropy_mean,
    entropy_std: of entropy / log T, in 0..1, population standard deviation over instances. ci_low, ci_high: 95 % bootstrap
    interval of the mean over instances (`seed` fixes the draws). support_mean: mean number of tokens above zero, and
    support_share, zeros_share: mean share of tokens above zero and at zero, all three over texts with tokens.

    For "hidden_to_input" the entropy of an instance is the mean over its states, as is the share of a state's own input,
    own_share_mean, in 0..1; n_states_undefined counts states without an entropy (a text of one token, or a state that
    depends on none), which enter no mean. The support is not known there, nor the own share elsewhere: NaN.

    Source: Meister et al. (2021), Table 1.
    """
    return _frame([row for cell in _cells(record) for row in _rows(cell, seed)], TABLE_COLUMNS)


def entropies(cell: Cell) -> dict[str, np.ndarray]:
    """The entropies of `instance_dispersion`, [N], by the name of their scores."""
    found = instance_dispersion(cell)
    return {name.removeprefix("entropy "): values for name, values in found.items() if name.startswith("entropy ")}


def _rows(cell: Cell, seed: int) -> list[dict]:
    found, of = instance_dispersion(cell), entropies(cell)
    rows = []
    for name, (low, high) in zip(of, bootstrap_intervals(np.stack([*of.values()], axis=1), seed=seed), strict=True):
        entropy, support, zeros, own = (_defined(found, f"{kind} {name}") for kind in ("entropy", "support", "zeros", "own"))
        undefined_states = np.nan
        if name == INPUTS_OF_STATES:
            undefined_states = sum(int(np.isnan(row).sum()) for row in records.rows(cell.table, f"{name}_entropy"))
        rows.append(
            {
                **cell.heading,
                "scores": name,
                "n": len(entropy),
                "n_undefined": len(cell) - len(entropy),
                "entropy_mean": mean(entropy),
                "entropy_std": float(entropy.std()) if len(entropy) else np.nan,
                "ci_low": low,
                "ci_high": high,
                "support_mean": mean(support),
                "support_share": mean(1 - zeros),
                "zeros_share": mean(zeros),
                "own_share_mean": mean(own),
                "n_states_undefined": undefined_states,
            }
        )
    return rows


def _defined(found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    values = found.get(name, np.empty(0))
    return values[~np.isnan(values)]


def scores_label(name: str) -> str:
    """The name of a row's scores for reading."""
    return "inputs of a state" if name == INPUTS_OF_STATES else measure_label(name)


def dispersion_grid(df: pd.DataFrame) -> Grid:
    """What the page shows of `dispersion_table`."""
    keys = differing(df, CELL)
    known = {"support_mean": "tokens above zero", "zeros_share": "share at zero", "own_share_mean": "own token"}
    shown = {name: words for name, words in known.items() if df[name].notna().any()}
    rows = [
        (
            *(str(row[name]) for name in keys),
            scores_label(row["scores"]),
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            number_with_interval(row, "entropy_mean"),
            format_number(row["entropy_std"]),
            *(_or_dash(row[name]) for name in shown),
        )
        for row in df.to_dict("records")
    ]
    note = (
        "How evenly the tokens of a text share attention or importance: entropy over its maximum, 0 where one token has all "
        "and 1 where all have the same. Undefined: texts of fewer than two tokens or with all scores zero; they are in no "
        "mean of the entropy. Tokens above zero: mean number per text; share at zero: mean share of a text's tokens."
    )
    if "own_share_mean" in shown:
        note += (
            " Inputs of a state: how far each encoder state depends on each token, mean over the states of a text; own "
            "token: the share that a state owes to the token at its own place. –: not known for these scores."
        )
    columns = (*keys, "scores", "texts", "undefined", "mean entropy [95 % interval]", "std", *shown.values())
    return Grid("Dispersion of attention and importance", columns, tuple(rows), len(keys) + 1, note, "tables/dispersion")


def _or_dash(value: float) -> str:
    return "–" if np.isnan(value) else format_number(value)
