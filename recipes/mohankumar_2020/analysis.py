"""Mohankumar et al.'s numbers beside ours, and their claims of the diverse and the orthogonal LSTM, each with a verdict.

Source: Mohankumar et al. (2020), Towards Transparent and Explainable Attention Models.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import performance
from attnfaith.stats import holm

from ..interventions import analysis as interventions
from ..interventions.attention_tests import named
from ..pages import analysis, beside_published, only_measured, read_published
from ..shared import UNTOLD, verdict


KEYS = ("dataset", "model", "encoder", "statistic")
CONICITY = "conicity_absolute"
MARGIN = 0.03
"""An accuracy that falls by no more is comparable. The paper gives no margin; by its own numbers it falls by up to .025 on
the data sets here.
"""
CLAIMS = {
    "accuracy": "accuracy is comparable",
    "conicity": "states are more diverse",
    "permutation": "permuted weights change the prediction more",
    "erasure_flip": "without its largest weight the decision changes more often",
    "minimal_flip_set": "fewer tokens flip the decision",
    "tau_gradient": "attention agrees more with gradients",
    "tau_integrated_gradients": "attention agrees more with integrated gradients",
    "punctuation": "less attention on punctuation",
}
"""The test that asks, and the paper's claim. Its own tests: the smallest share of tokens in attention's order, here the
exact smallest set; Pearson's correlation and JSD with gradients, here Kendall's tau.
"""
COLUMNS = (
    *("claim", "dataset", "encoder", "objective", "intervention", "test", "n_seeds", "n_texts", "mean_plain"),
    *("mean_changed", "difference", "ci_low", "ci_high", "p_value", "p_holm", "verdict"),
)
HOLDS, AGAINST = "holds", "goes against it"
PAGES = {
    "beside_published": {"data": "{dataset}", "model": "{model}", "number": "{statistic}"}
    | {"published": "{published}", "measured": "{measured}", "by": "{by}", "seeds": "{n_seeds}"},
    "claims": {"claim": "{claim}", "data": "{dataset}", "intervention": "{intervention}", "seeds": "{n_seeds}"}
    | {"difference [95 %]": "{difference} [{ci_low}, {ci_high}]", "verdict": "{verdict}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "beside_published", "claims", and what `interventions.analysis` makes.

    conicity_absolute: mean over the texts that have it, 0..1. Statistics of the authors' own making are not measured.
    """
    published = read_published(settings.published, (*KEYS, "value", "by", "source"), ["value"])
    if not cells:
        return Analysis()
    tests = interventions.tables(cells, settings)
    results = {
        "beside_published": lambda cells: beside_published(published, cells, _measured, KEYS),
        "claims": lambda _: claims(tests.tables["interventions"]),
    }
    own = analysis(cells, PAGES, results, {"beside_published": only_measured})
    return Analysis({**tests.tables, **own.tables}, {**own.grids, **tests.grids}, tests.texts | own.texts, tests.figures)


def claims(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each claim, data set and intervention that was measured, by the rows of `interventions_table`.

    difference, ci_low, ci_high: changed - plain LSTM, 95 % over seeds and texts. p_holm: corrected by Holm for the claims of
    one intervention on one data set, which were made before anything was measured here. verdict: "holds" and "goes against
    it" where p_holm is at most .05; of accuracy, which is no test, "holds" where the interval lies above -MARGIN, "goes
    against it" where it lies below; else `shared.verdict`.
    """
    claimed = table[table["test"].isin(CLAIMS)].reset_index(drop=True)
    claimed["p_holm"] = np.nan
    for _, family in claimed[claimed["kind"] == "test"].groupby(["dataset", "encoder", "objective"], dropna=False):
        claimed.loc[family.index, "p_holm"] = holm(family["p_value"])
    claimed["verdict"] = [_verdict(row) for row in claimed.to_dict("records")]
    claimed["claim"] = claimed["test"].map(CLAIMS)
    order = np.argsort(claimed["test"].map(list(CLAIMS).index), kind="stable")
    return claimed.iloc[order][list(COLUMNS)].reset_index(drop=True)


def _verdict(row: Mapping[str, object]) -> str:
    effect = row["difference"]
    if row["kind"] == "test":
        return verdict(-effect * named(row["test"]).suspect, row["p_holm"], row["n_seeds"], HOLDS, AGAINST)
    word = HOLDS if row["ci_low"] > -MARGIN else AGAINST if row["ci_high"] < -MARGIN else UNTOLD
    return verdict(effect, 0, row["n_seeds"], word, word)


def model_of(cell: Cell) -> str:
    """ "vanilla", "diversity" or "orthogonal"; "other" for what the paper has not."""
    names = {("lstm", False): "vanilla", ("lstm", True): "diversity", ("orthogonal_lstm", False): "orthogonal"}
    return names.get((cell.identity.encoder, bool(cell.identity.diversity)), "other")


def _measured(cell: Cell) -> Iterator[dict]:
    row = {"dataset": cell.identity.dataset, "model": model_of(cell), "encoder": cell.identity.encoder}
    yield {**row, "statistic": "accuracy", "value": performance.TABLE.frame([cell])["accuracy"].item()}
    if CONICITY in cell.table.column_names:
        yield {**row, "statistic": CONICITY, "value": pd.Series(cell.column(CONICITY)).mean()}
