"""What makes attention more faithful, by which test, and at what price in accuracy?

An intervention is what training or the model was given beyond a plain one: a penalty, an orthogonal encoder, a sparse or
uniform projection, an attention learning rate of its own, erased words. Each model is set beside its plain twin of the same
seed: the same in all else, with none of these. Compared is what every test of attention says of the same texts
(`attention_tests`): better is away from what the test was declared to suspect. The price is the difference in accuracy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.record import PENALTY_FIELDS, Identity
from attnfaith.record.identity import projection_label
from attnfaith.reporting import attention_tests
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.comparison_figures import tiles
from attnfaith.reporting.pairings import KEYS, Pairing, mean_of_means, pairings
from attnfaith.reporting.sections.performance import per_text as correctness
from attnfaith.reporting.spec import Section, Table
from attnfaith.stats import LEVEL, UNKNOWN, holm, over_seeds_and_texts


if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRICE = "accuracy"
BETTER, WORSE, UNTOLD, ONE_SEED, UNDEFINED = "better", "worse", "cannot be told", "one seed", "undefined"
PLAIN_ENCODERS = {"orthogonal_lstm": "lstm"}
PLAIN_PROJECTION = "softmax"
PLAIN = {
    stated.name: stated.default
    for stated in fields(Identity)
    if stated.name in (*PENALTY_FIELDS, "attention_rate", "random_erasure", "score_scale")
}
COLUMNS = (
    *(*KEYS, "intervention", "test", "label", "kind", "n_seeds", "n_texts", "n_left_out", "mean_plain", "mean_changed"),
    *("difference", "ci_low", "ci_high", "p_value", "p_holm", "verdict"),
)


def plain_twin(identity: Identity) -> Identity:
    """The model without any intervention. A model that was trained for something else than its task is its own."""
    if identity.objective != "classification":
        return identity
    encoder = PLAIN_ENCODERS.get(identity.encoder, identity.encoder)
    return replace(identity, **PLAIN, encoder=encoder, projection=PLAIN_PROJECTION, projection_parameter=None)


def intervention_label(identity: Identity) -> str:
    """Such as "sparsemax", "orthogonal_lstm", "diversity 0.5, sparsegen(0.5)"; "" of a plain model."""
    twin, heading = plain_twin(identity), identity.heading
    parts = [identity.encoder] if identity.encoder != twin.encoder else []
    _, _, trained = identity.objective_label.partition("(")
    parts += [trained.removesuffix(")")] if identity.objective == "classification" and trained else []
    if identity.projection != twin.projection:
        parts.append(projection_label(identity.projection, identity.projection_parameter))
    parts += [str(heading["alignment"])] if identity.score_scale is not None else []
    return ", ".join(parts)


def interventions_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """What each intervention changes, a row per kind of model, intervention and test; the last row of each is the price.

    n_texts: texts with a number in both models, summed over seeds; n_left_out: those that only one of them has, or that are
    undefined. mean_plain, mean_changed: over these texts and then seeds. difference: changed - plain, in the unit of the
    test. ci_low, ci_high: its 95 % interval over seeds and texts, of one seed over texts (`stats.over_seeds_and_texts`).
    p_value: of no difference; p_holm: corrected by Holm for all tests of the intervention; the price is no test. verdict:
    "better" or "worse" where p_holm (of the price, p_value) is at most .05, so that the interval is without 0; else "cannot
    be told", which is not "equal". One seed has no verdict: it speaks of two models. Models whose plain twin is not among
    the cells are in no row.
    """
    frames = [_of_pairing(pairing) for pairing in pairings(cells, plain_twin)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=COLUMNS)


def _of_pairing(pairing: Pairing) -> pd.DataFrame:
    table = pd.DataFrame(list(_rows(pairing))).reindex(columns=COLUMNS)
    tests = table["kind"] == "test"
    table["p_holm"] = np.where(tests, holm(table["p_value"].where(tests)), np.nan)
    table["verdict"] = [_verdict(row) for row in table.to_dict("records")]
    return table


def _rows(pairing: Pairing) -> Iterator[dict[str, object]]:
    fixed = {**pairing.heading, "intervention": intervention_label(pairing.identity)}
    for name, kind in pairing.tests.items():
        if kind == "test":
            test = {"test": name, "label": attention_tests.named(name).label, "kind": kind}
            yield fixed | test | _difference(pairing, *pairing.numbers(name))
    price = {"test": PRICE, "label": f"price: {PRICE}", "kind": "price"}
    yield fixed | price | _difference(pairing, *pairing.values(lambda cell: correctness(cell)["correct"]))


def _difference(pairing: Pairing, plain: np.ndarray, changed: np.ndarray) -> dict[str, float]:
    """The paired difference of a number per text, plain and changed [S, N], NaN undefined."""
    differences = changed - plain
    defined = ~np.isnan(differences)
    known = np.flatnonzero(defined.sum(1) >= 2)
    estimate = UNKNOWN
    if len(known):
        totals = np.where(defined, differences, 0)[known]
        counts = defined[known].sum(1, keepdims=True)
        left_out = (totals.sum(1, keepdims=True) - totals) / (counts - defined[known])
        estimate = over_seeds_and_texts((totals.sum(1) / counts[:, 0]), left_out.mean(0))
    return {
        "n_seeds": len(known),
        "n_texts": int(defined.sum()),
        "n_left_out": int((np.logical_or(*pairing.held) & ~defined).sum()),
        "mean_plain": mean_of_means(np.where(defined, plain, np.nan)),
        "mean_changed": mean_of_means(np.where(defined, changed, np.nan)),
        "difference": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "p_value": estimate.p_value,
    }


def _verdict(row: Mapping[str, object]) -> str:
    if np.isnan(row["difference"]):
        return UNDEFINED
    if row["n_seeds"] < 2:
        return ONE_SEED
    price = row["kind"] == "price"
    if (row["p_value"] if price else row["p_holm"]) > LEVEL:
        return UNTOLD
    good = 1 if price else -attention_tests.named(row["test"]).suspect
    return BETTER if good * row["difference"] > 0 else WORSE


def figures(tables: Mapping[str, pd.DataFrame]) -> "dict[str, Figure]":
    """Of each data set, what each intervention changes in each test."""
    table = tables.get("interventions", pd.DataFrame(columns=COLUMNS))
    return {
        f"{dataset}-interventions": tiles(
            part,
            "What makes attention more faithful, by which test?",
            f"{dataset} · changed − plain model, paired over seeds and texts",
            "bold on blue: better; bold on orange: worse; grey: cannot be told",
        )
        for dataset, part in table.groupby("dataset", sort=False)
    }


SECTION = Section(
    name="interventions",
    place=96,
    needs=("probs", "attention", "label"),
    uses=attention_tests.USES,
    tables=(Table(name="interventions", frame=interventions_table, over_seeds=True),),
    across_figures=figures,
    reported=False,
)
