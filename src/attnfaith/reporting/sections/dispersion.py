"""How evenly attention, each importance measure and the inputs of a state share out a text.

Per text and scores: entropy over its maximum (0 one token has all, 1 all tokens the same), the number of tokens above zero
and the share at zero. "hidden_to_input" stands for g_h(x), how far each encoder state depends on each input: one
distribution over the tokens for every state, from the columns of `importance/gradient_hidden_to_input`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.columns import flatten
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, share_of_zeros, support_size
from attnfaith.reporting.blocks import number_with_interval
from attnfaith.reporting.cells import Cell, measure_label, one_cell
from attnfaith.reporting.figures import RANGES, Drawn, draw_ranges
from attnfaith.reporting.render import frame
from attnfaith.reporting.spec import Case, Column, Deviation, Key, Mean, Section, Table, cells_of, counts, per_cell
from attnfaith.reporting.style import mean_in_words, note, own_style, titled_figure
from attnfaith.stats import bootstrap_intervals


if TYPE_CHECKING:
    from matplotlib.figure import Figure

INPUTS_OF_STATES = "hidden_to_input"


@per_cell
def instance_dispersion(cell: Cell) -> dict[str, np.ndarray]:
    """Every number on dispersion that the cell holds per instance, [N] float64, NaN where undefined; computed once.

    For "attention" and each of the cell's measures: "entropy <scores>", entropy over its maximum, 0..1, undefined below two
    tokens and where all scores are zero; "support <scores>", tokens above zero; "zeros <scores>", share of tokens at zero,
    0..1. A text with a negative score is undefined in that measure. Where the cell has the columns, "entropy
    hidden_to_input" and "own hidden_to_input": mean over the states p of a text of the entropy of g_{h_p}, and of the share
    g_{h_p}(x_p) of a state's own input, both 0..1, over the states where they are defined.
    """
    values = {}
    for name in ("attention", *cell.measures):
        scores = [None if (row < 0).any() else row for row in cell.scores(name)]
        values[f"entropy {name}"] = normalised_entropy(scores)
        values[f"support {name}"] = support_size(scores)
        values[f"zeros {name}"] = share_of_zeros(scores)
    for kind in ("entropy", "own"):
        if (column := f"{INPUTS_OF_STATES}_{kind}") in cell.table.column_names:
            values[f"{kind} {INPUTS_OF_STATES}"] = _means_of_defined(records.rows(cell.table, column))
    return values


def _means_of_defined(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of the numbers of each row that are not NaN, [N]; NaN where there is none."""
    values, layout = flatten(rows, INPUTS_OF_STATES)
    defined = ~np.isnan(values)
    counts = layout.sum(defined)
    return np.where(counts > 0, layout.sum(np.where(defined, values, 0)) / np.maximum(counts, 1), np.nan)


def entropies(cell: Cell) -> dict[str, np.ndarray]:
    """The entropies of `instance_dispersion`, [N], by the name of their scores."""
    numbers = instance_dispersion(cell)
    return {name.removeprefix("entropy "): values for name, values in numbers.items() if name.startswith("entropy ")}


def _cases(cell: Cell, seed: int) -> Iterator[Case]:
    numbers, of = instance_dispersion(cell), entropies(cell)
    # all together: undefined texts are drawn with the others and left out of a mean
    bounds = bootstrap_intervals(np.stack([*of.values()], axis=1), seed=seed)
    for (name, entropy), (low, high) in zip(of.items(), bounds, strict=True):
        values = {kind: numbers[key] for kind in ("support", "zeros", "own") if (key := f"{kind} {name}") in numbers}
        if "zeros" in values:
            values["above_zero"] = 1 - values["zeros"]
        undefined_states = np.nan
        if name == INPUTS_OF_STATES:
            undefined_states = sum(int(np.isnan(row).sum()) for row in records.rows(cell.table, f"{name}_entropy"))
        given = {"ci_low": low, "ci_high": high, "n_states_undefined": undefined_states}
        yield Case({"entropy": entropy, **values}, {"scores": name}, given)


def scores_label(name: str) -> str:
    """The name of a row's scores for reading."""
    return "inputs of a state" if name == INPUTS_OF_STATES else measure_label(name)


def _note(df: pd.DataFrame) -> str:
    note = (
        "How evenly the tokens of a text share attention or importance: entropy over its maximum, 0 where one token has all "
        "and 1 where all have the same. Undefined: texts of fewer than two tokens or with all scores zero; they are in no "
        "mean of the entropy. Tokens above zero: mean number per text; share at zero: mean share of a text's tokens."
    )
    if df["own_share_mean"].notna().any():
        note += (
            " Inputs of a state: how far each encoder state depends on each token, mean over the states of a text; own "
            "token: the share that a state owes to the token at its own place. –: not known for these scores."
        )
    return note


def _table(seed: int = 0) -> Table:
    return Table(
        name="dispersion",
        cases=partial(_cases, seed=seed),
        by=(Key("scores", "scores", lambda row: scores_label(row["scores"])),),
        columns=(
            *counts("entropy"),
            Mean(
                "entropy_mean",
                "mean entropy [95 % interval]",
                lambda row: number_with_interval(row, "entropy_mean"),
                of="entropy",
                interval=None,
            ),
            Deviation("entropy_std", "std", of="entropy"),
            Column("ci_low"),
            Column("ci_high"),
            Mean("support_mean", "tokens above zero", of="support", interval=None, optional=True),
            Mean("support_share", of="above_zero", interval=None),
            Mean("zeros_share", "share at zero", of="zeros", interval=None, optional=True),
            Mean("own_share_mean", "own token", of="own", interval=None, optional=True),
            Column("n_states_undefined"),
        ),
        caption="Dispersion of attention and importance",
        note=_note,
    )


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
    return frame(_table(seed), cells_of(record))


@own_style
def dispersion_by_scores(record: "pa.Table | Cell") -> "Figure":
    """Entropy over its maximum in single texts: a line for attention, for each measure and for the inputs of states.

    Dot: mean; thick: the middle half of the texts; thin: 90 % of them. Texts without an entropy are not drawn and are
    counted.

    Raises ValueError where the record holds more than one cell.
    """
    cell = one_cell(record)
    of = entropies(cell)
    figure = titled_figure("How evenly attention and importance are spread", cell, 9.0, 1.3 + 0.34 * len(of))
    labelled = {scores_label(name): values for name, values in of.items()}
    axes = draw_ranges(
        figure, labelled, (-0.02, 1.02), "entropy of a text over its maximum (0: one token has all, 1: all have the same)"
    )
    if all(np.isnan(values).all() for values in of.values()):
        note(axes, "no text has two tokens")
    return figure


def _figure_words(cell: Cell) -> tuple[str, str]:
    parts = [f"{scores_label(scores)}: {mean_in_words(values, 2)}" for scores, values in entropies(cell).items()]
    alt = f"Range of the entropy over its maximum in single texts, one line each. {'; '.join(parts)}."
    caption = f"How evenly attention and importance are spread over the tokens of single texts ({RANGES})."
    return alt, caption


TABLE = _table()
SECTION = Section(
    name="dispersion",
    source="Meister et al. (2021), sections 3 and 4",
    place=40,
    needs=("attention",),
    uses=("importance_*", "hidden_to_input_entropy", "hidden_to_input_own"),
    per_text=instance_dispersion,
    tables=(TABLE,),
    figures=(Drawn("dispersion_by_scores", figure=dispersion_by_scores, describe=_figure_words),),
)
