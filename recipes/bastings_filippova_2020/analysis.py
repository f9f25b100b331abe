"""Attention or saliency? Over models and data sets, which measure shows what a model used?

From the cells that hold tests of explanations (`reporting.sections.saliency`): each measure by each test, held against one
that is named beforehand, and what is left of it in a model that was trained with tokens erased, to which a shortened text is
nothing new.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.sections import saliency

from ..any_classifier import analysis as any_classifier
from ..pages import INTERVAL, analysis
from ..shared import KIND, as_table, kinds


SHOWN_TESTS = ("comprehensiveness", "sufficiency", "average_precision")
SHOWN = (
    *("attention", "attention_norm", "exact_contribution", "gradient_norm", "gradient", "gradient_x_input", "lrp"),
    *("absolute_gradient_x_input", "absolute_lrp", "integrated_gradients", "occlusion", "leave_one_out", "random"),
)
"""Measures that the page shows."""
PAGES = {
    "saliency_ranking": {"data": "{dataset}", "encoder": "{encoder}", "test": "{test}", "measure": "{measure}"}
    | {"mean [95 %]": INTERVAL, "less the rival": "{to_rival} [{to_rival_ci_low}, {to_rival_ci_high}]"}
    | {"verdict": "{verdict}"},
    "saliency_twins": {"encoder": "{encoder}", "test": "{test}", "measures": "{n_measures}", "τ": "{tau}"}
    | {"attention, plain": "{attention_plain}", "attention, erased": "{attention_erased}"},
}


@per_cell
def per_text(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """The results {test: {measure: [N]}} of `saliency.scores`, of the tests that are looked at here."""
    return {test: results for test, results in saliency.scores(cell).items() if test in SHOWN_TESTS}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "saliency_ranking" and "saliency_twins", of the cells that were tested."""
    cells = [cell for cell in cells if saliency.SECTION.applies(cell)]
    better = {name: test.better for name, test in saliency.TESTS.items()}
    measures = any_classifier.ranking(kinds(cells), per_text, better)
    results = {"saliency_ranking": lambda _: measures, "saliency_twins": lambda _: twins(measures)}
    whole = lambda table: table[table["measure"].isin(SHOWN) & ~table["objective"].str.contains("erased")]  # noqa: E731
    return analysis(cells, PAGES, results, {"saliency_ranking": whole})


@as_table
def twins(measures: pd.DataFrame) -> pd.DataFrame:
    """One row per test and kind of model of which some were trained with tokens erased, to which a shortened text is
    nothing new. tau: Kendall's tau-b, over the n_measures that both have, of their means in these and in the plain models;
    attention_plain, attention_erased: the means of attention.
    """
    names = [name for name in KIND if name not in ("objective", "training_texts")]
    for key, part in measures.groupby([*names, "test"], sort=False, dropna=False):
        sides = dict(tuple(part.groupby(part["objective"].str.contains("erased").map({False: "plain", True: "erased"}))))
        if len(sides) < 2:
            continue
        means = pd.DataFrame({name: side.set_index("measure")["mean"] for name, side in sides.items()}).dropna()
        row = dict(zip((*names, "test"), key, strict=True)) | {"n_seeds": int(part["n_seeds"].min())}
        row |= {"n_measures": len(means), "tau": kendalltau(means["plain"], means["erased"]).statistic}
        yield row | {f"attention_{name}": means.loc["attention", name] for name in ("plain", "erased")}
