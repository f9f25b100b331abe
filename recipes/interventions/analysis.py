"""What makes attention more faithful, by which test, and at what price in accuracy?

An intervention is what training or the model was given beyond a plain one: a penalty, an orthogonal encoder, a sparse or
uniform projection, an attention learning rate of its own, erased words. Each model is set beside its plain twin of the same
seed, which has none of these, by every test of attention on the same texts (`attention_tests`): better is away from what the
test was declared to suspect. The price is the difference in accuracy.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pandas as pd

from attnfaith.record import Identity, labelled
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.stats import holm, over_seeds_of_texts
from attnfaith.support.escaping import Markdown, markdown_table

from .. import shared
from ..pages import analysis, interval_figures, shown_number
from ..shared import CORRECT, Twins, as_table, first, twins
from . import attention_tests


BETTER, WORSE, PRICE = "better", "worse", "accuracy"
PLAIN = {
    stated.name: stated.default
    for stated in fields(Identity)
    if stated.name.startswith(("impermissible_", "diversity", "word_tying", "masked_"))
    or stated.name in ("attention_rate", "random_erasure")
}
COLUMNS = (
    *(*shared.KIND, "intervention", "test", "label", "kind", "n_seeds", "n_texts", "n_left_out", "mean_plain"),
    *("mean_changed", "difference", "ci_low", "ci_high", "p_value", "p_holm", "verdict"),
)

PAGE = {"data": "{dataset}", "model": "{encoder}", "intervention": "{intervention}", "seeds": "{n_seeds}"}
PAGE |= {name: f"{{{name}}}" for name in ("tests", BETTER, WORSE, shared.UNTOLD)} | {"accuracy, plain": "{mean_plain}"}
PAGE |= {"change of accuracy [95 %]": "{difference} [{ci_low}, {ci_high}]", "price": "{verdict}"}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "interventions" and "interventions_summary", see the functions, for the page too, with a figure of each data set."""
    table = interventions_table(cells)
    if not len(table):
        return Analysis({"interventions": table})
    results = {"interventions": lambda _: table, "interventions_summary": lambda _: summary_table(table)}
    own = analysis(cells, {"interventions_summary": PAGE}, results)
    return replace(own, texts={**own.texts, "by_test.md": by_test(table)}, figures=figures(table))


def plain_twin(identity: Identity) -> Identity:
    """The model without any intervention. A model that was trained for something else than its task is its own."""
    if identity.objective != "classification":
        return identity
    encoder = "lstm" if identity.encoder == "orthogonal_lstm" else identity.encoder
    return replace(identity, **PLAIN, encoder=encoder, projection="softmax", projection_parameter=None)


def intervention_label(identity: Identity) -> str:
    """Such as "sparsemax", "orthogonal_lstm", "diversity 0.5, sparsegen(0.5)"; "" of a plain model."""
    twin = plain_twin(identity)
    parts = [identity.encoder] if identity.encoder != twin.encoder else []
    _, _, trained = identity.objective_label.partition("(")
    parts += [trained.removesuffix(")")] if identity.objective == "classification" and trained else []
    if identity.projection != twin.projection:
        parts.append(labelled(identity.projection, identity.projection_parameter))
    return ", ".join(parts)


def interventions_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """What each intervention changes, a row per kind of model, intervention and test; the last row of each is the price.

    n_texts: texts with a number in both models, summed over seeds; n_left_out: those that only one of them has, or that are
    undefined. mean_plain, mean_changed: over these texts and then seeds. difference: changed - plain, in the unit of the
    test, with its 95 % interval over seeds and texts and the p_value of no difference. p_holm: corrected by Holm for all
    tests of the intervention, and of the price for all prices. verdict: "better" or "worse" where it is at most .05, else
    `shared.verdict`. Models whose plain twin is not among the cells are in no row.
    """
    rows = [row for pair in twins(cells, plain_twin) for row in _rows(pair)]
    prices = [row for row in rows if row["kind"] == "price"]
    for row, p_holm in zip(prices, holm([row["p_value"] for row in prices]), strict=True):
        row["p_holm"] = p_holm
    for row in rows:
        good = -attention_tests.named(row["test"]).suspect if row["kind"] == "test" else 1
        row["verdict"] = shared.verdict(good * row["difference"], row["p_holm"], row["n_seeds"], BETTER, WORSE)
    return pd.DataFrame(rows, columns=COLUMNS)


@as_table
def summary_table(table: pd.DataFrame) -> pd.DataFrame:
    """How many tests of each intervention come to each verdict, and its price: the difference in accuracy."""
    for _, part in table.groupby([*shared.KIND, "intervention"], sort=False, dropna=False):
        tests, price = part[part["kind"] == "test"], part[part["kind"] == "price"].iloc[0]
        row = {name: price[name] for name in (*shared.KIND, "intervention", "n_seeds")} | {"tests": len(tests)}
        row |= {name: int((tests["verdict"] == name).sum()) for name in (BETTER, WORSE, shared.UNTOLD)}
        yield row | {name: price[name] for name in ("mean_plain", "difference", "ci_low", "ci_high", "verdict")}


def by_test(table: pd.DataFrame) -> str:
    """What each intervention changes in each test, with its interval, in Markdown; bold where it is better or worse."""

    def cell(row: pd.Series) -> str:
        text = "{} [{}, {}]".format(*(shown_number(row[name]) for name in ("difference", "ci_low", "ci_high")))
        return f"**{text}**" if row["verdict"] in (BETTER, WORSE) else text

    table = table.assign(text=table.apply(cell, axis=1), test=table["label"])
    wide = table.pivot_table("text", ["dataset", "test"], "intervention", "first", sort=False).reset_index().fillna("—")
    rows = [[dataset, test, *map(Markdown, texts)] for dataset, test, *texts in wide.to_numpy().tolist()]
    return markdown_table([["data", *wide.columns[1:]], *rows], numeric=[False] * len(wide.columns))


def _rows(pair: Twins) -> list[dict[str, object]]:
    heading = {**pair.heading, "intervention": intervention_label(first(pair.changed).identity)}
    rows = []
    for name, test in attention_tests.shared_tests(pair).items():
        if test.kind == "test":
            row = {**heading, "test": name, "label": test.label, "kind": "test"}
            rows.append(row | _difference(pair, *attention_tests.values(pair, name), test.most))
    for row, p_holm in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
        row["p_holm"] = p_holm
    price = {**heading, "test": PRICE, "label": f"price: {PRICE}", "kind": "price"}
    return [*rows, price | _difference(pair, *pair.values(CORRECT), 1.0)]


def _difference(pair: Twins, plain: np.ndarray, changed: np.ndarray, most: float) -> dict[str, float]:
    """The paired difference of a number per text, plain and changed [S, N], NaN undefined; most: the largest there can
    be.
    """
    defined = ~np.isnan(changed - plain)
    read_by_one = np.logical_or(*(~np.isnan(side) for side in pair.values(lambda cell: np.zeros(len(cell)))))
    estimate = over_seeds_of_texts(changed - plain, bounds=(-most, most))
    return {
        "n_seeds": int((defined.sum(1) >= 2).sum()),
        "n_texts": int(defined.sum()),
        "n_left_out": int((read_by_one & ~defined).sum()),
        "mean_plain": shared.mean_of_means(np.where(defined, plain, np.nan)),
        "mean_changed": shared.mean_of_means(np.where(defined, changed, np.nan)),
        **dict(zip(("difference", "ci_low", "ci_high", "p_value"), estimate, strict=True)),
    }


def figures(table: pd.DataFrame) -> dict:
    """Of each data set, what each intervention changes in each test, a panel for each kind of plain model."""
    stands = table["verdict"].isin([BETTER, WORSE])
    return interval_figures(
        table.assign(series=table["intervention"], value=table["difference"], stands=stands, n=table["n_texts"]),
        "interventions",
        "changed − plain model, 95 % intervals over seeds and texts",
        ("objective", "projection"),
        title="What makes attention more faithful, by which test?",
        reference=0.0,
        note="full: better or worse; hollow: cannot be told",
    )
