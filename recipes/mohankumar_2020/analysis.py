"""Mohankumar et al.'s numbers beside ours, and their claims of the diverse and the orthogonal LSTM, each with a verdict.

Source: Mohankumar et al. (2020), Towards Transparent and Explainable Attention Models.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting import attention_tests
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.published import join_published, read_published
from attnfaith.reporting.sections.conicity import per_text
from attnfaith.reporting.sections.performance import performance_table
from attnfaith.stats import LEVEL, holm


KEYS = ("dataset", "model", "encoder", "statistic")
PUBLISHED = (*KEYS, "value", "by", "source")
CONICITY = "conicity_absolute"
MARGIN = 0.03
"""An accuracy that falls by no more is comparable. The paper gives no margin; by its own numbers it falls by up to .025 on
the data sets here.
"""
CLAIMS = {
    "accuracy is comparable": "accuracy",
    "states are more diverse": "conicity",
    "permuted weights change the prediction more": "permutation",
    "without its largest weight the decision changes more often": "erasure_flip",
    "fewer tokens flip the decision": "minimal_flip_set",
    "attention agrees more with gradients": "tau_gradient",
    "attention agrees more with integrated gradients": "tau_integrated_gradients",
    "less attention on punctuation": "punctuation",
}
"""What the paper says of its models, and the test that asks. Its own tests: the smallest share of tokens in attention's
order, here the exact smallest set; Pearson's correlation and JSD with gradients, here Kendall's tau.
"""
COPIED = (
    *("dataset", "encoder", "objective", "intervention", "test", "n_seeds", "n_texts", "mean_plain", "mean_changed"),
    *("difference", "ci_low", "ci_high", "p_value", "p_holm"),
)
HOLDS, AGAINST, UNTOLD, ONE_SEED, UNDEFINED = "holds", "goes against it", "cannot be told", "one seed", "undefined"


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "beside_published" and "claims", see the functions of these names. Raises StudyError for published numbers that are
    none.
    """
    published = read_published(settings.published, PUBLISHED, ["value"]) if settings.published else None
    if not cells:
        return Analysis()
    made = {} if published is None else {"beside_published": beside_published(cells, published)}
    if "interventions" in settings.tables:
        made["claims"] = claims(settings.tables["interventions"])
    return Analysis(made)


def claims(interventions: pd.DataFrame) -> pd.DataFrame:
    """A row for each claim, data set and intervention that was measured, by the rows of `interventions_table`.

    difference, ci_low, ci_high: changed - plain LSTM, 95 % over seeds and texts. p_holm: corrected by Holm for the claims of
    one intervention on one data set, which were made before anything was measured here. verdict: "holds" and "goes against
    it" where p_holm is at most .05; of accuracy, which is no test, "holds" where the interval lies above -MARGIN, "goes
    against it" where it lies below. Else "cannot be told"; "one seed", which speaks of two models; "undefined".
    """
    asked = interventions[interventions["test"].isin(CLAIMS.values())].reset_index(drop=True)
    tests = asked["kind"] == "test"
    asked["p_holm"] = np.nan
    for _, family in asked[tests].groupby(["dataset", "encoder", "objective"], dropna=False):
        asked.loc[family.index, "p_holm"] = holm(family["p_value"])
    asked["verdict"] = [_verdict(row) for row in asked.to_dict("records")]
    words = {test: claim for claim, test in CLAIMS.items()}
    asked.insert(0, "claim", asked["test"].map(words))
    order = asked["test"].map({test: place for place, test in enumerate(words)})
    return asked.iloc[np.argsort(order, kind="stable")][["claim", *COPIED, "verdict"]].reset_index(drop=True)


def _verdict(row: Mapping[str, object]) -> str:
    if np.isnan(row["difference"]):
        return UNDEFINED
    if row["n_seeds"] < 2:
        return ONE_SEED
    if row["kind"] == "price":
        return HOLDS if row["ci_low"] > -MARGIN else AGAINST if row["ci_high"] < -MARGIN else UNTOLD
    if row["p_holm"] > LEVEL:
        return UNTOLD
    return HOLDS if row["difference"] * attention_tests.named(row["test"]).suspect < 0 else AGAINST


def beside_published(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each published number of a data set that was measured: our mean over n_seeds seeds, and the difference.

    conicity_absolute: mean over the texts that have it, 0..1. Measured is NaN where nothing was, as are statistics that are
    of the authors' own making (attention on rationales, Pearson's correlations).
    """
    rows = pd.DataFrame([row for cell in cells for row in _measured(cell)])
    measured = rows.groupby(list(KEYS), as_index=False)["value"].agg(measured="mean", n_seeds="size")
    joined = join_published(published[published["dataset"].isin(set(measured["dataset"]))], measured, list(KEYS))
    return joined[[*KEYS, "published", "measured", "difference", "n_seeds", "by", "source"]]


def model_of(cell: Cell) -> str:
    """ "vanilla", "diversity" or "orthogonal"; "other" for what the paper has not."""
    of = cell.identity
    if of.encoder == "orthogonal_lstm":
        return "other" if of.diversity else "orthogonal"
    if of.encoder != "lstm":
        return "other"
    return "diversity" if of.diversity else "vanilla"


def _measured(cell: Cell) -> Iterator[dict]:
    known = {"dataset": cell.identity.dataset, "model": model_of(cell), "encoder": cell.identity.encoder}
    yield {**known, "statistic": "accuracy", "value": performance_table([cell])["accuracy"].item()}
    if CONICITY in cell.table.column_names:
        yield {**known, "statistic": CONICITY, "value": pd.Series(per_text(cell)[CONICITY]).mean()}
