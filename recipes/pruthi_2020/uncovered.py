"""Which tests of attention tell a model that was trained to hide what it uses from an honest one?

Models come in pairs: of one identity but for the weight of the penalty on attention to impermissible words, 0 in the honest
one, above in the deceiving one. Every test gives one number per text, and the area under the ROC curve (AUC) is the
probability that a text of the deceiving model looks more suspicious than one of the honest model, in the direction that was
declared beforehand. 1: without an error. .5: it tells nothing. Below: it takes the honest model for the deceiving one.

A model that is less sure of itself changes most of these numbers, deceit or not. The matched AUC compares texts of about the
same confidence alone: those in one stratum of the log-odds of the predicted class, STRATUM wide. Strata and not nearest
neighbours: no pair depends on the order of the texts, and every text that has a partner counts. What difference is left
within strata stands in the table of the models, and the control `confidence` should come out near .5.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from attnfaith.record import Identity
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections.performance import per_text as correctness
from attnfaith.stats import UNKNOWN, Estimate, holm, over_seeds_and_texts, ratio

from .. import shared
from ..interventions.attention_tests import AttentionTest, shared_tests, values
from ..shared import Twins, interval_figure, mean_of_means, panels, twins


STRATUM = 0.25
"""Width of a stratum of log-odds: the probabilities .5 and .562, or .95 and .961."""
FEWEST_TEXTS = 20
"""Least number of texts of each model for an AUC: below, a separation without an error can be chance."""
UNCOVERS, MISLED = "uncovers", "misled"
ESTIMATE = ("auc", "ci_low", "ci_high", "p_value")
COMPARISON = ("n_seeds", *ESTIMATE, "p_holm", "verdict")
COLUMNS = (
    *(*shared.KIND, "test", "label", "kind", "over", "seed", "n_honest", "n_deceiving", "n_undefined_honest"),
    *("n_undefined_deceiving", "mean_honest", "mean_deceiving", *COMPARISON, "share_matched"),
    *(f"matched_{name}" for name in COMPARISON),
)
MODELS = (
    *(*shared.KIND, "n_seeds", "n_texts", "accuracy_honest", "accuracy_deceiving", "hidden_honest", "hidden_deceiving"),
    *("confidence_honest", "confidence_deceiving", "imbalance", "imbalance_matched", "share_matched"),
)


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "uncovered" and "uncovered_models", see `uncovered_table` and `models_table`, with a figure of each data set."""
    table = uncovered_table(cells)
    return Analysis({"uncovered": table, "uncovered_models": models_table(cells)}, figures=figures(table))


def honest_twin(identity: Identity) -> Identity:
    """The model that was trained in the same way but for the penalty on attention to impermissible words."""
    return replace(identity, impermissible_mass=0.0, impermissible_heads=None)


@dataclass(frozen=True)
class Separation:
    """The AUC of a number [S, N] of deceiving models against that of honest ones, ties counting one half.

    estimate: its mean over seeds, with the interval over seeds and texts and the p-value of .5; the jackknife leaves out all
    numbers of a text together (Obuchowski 1997). n_seeds: those with FEWEST_TEXTS numbers or more of each model that have a
    partner; others have no AUC. partnered: share of the numbers that have a partner to be compared with.
    """

    estimate: Estimate
    n_seeds: int
    partnered: float


def separation(suspicion: Sequence[np.ndarray], strata: Sequence[np.ndarray] | None = None) -> Separation:
    """suspicion, strata: of the deceiving and of the honest models, [S, N] each; only pairs of one stratum count."""
    areas, left_out, partners = [], [], 0
    for seed, (deceiving, honest) in enumerate(zip(*suspicion, strict=True)):
        pairs = ~np.isnan(deceiving)[:, None] & ~np.isnan(honest)[None]
        if strata is not None:
            pairs &= strata[0][seed][:, None] == strata[1][seed][None]
        wins = pairs * ((deceiving[:, None] > honest) + (deceiving[:, None] == honest) / 2)
        partnered = pairs.any(1).sum(), pairs.any(0).sum()
        partners += sum(partnered)
        if min(partnered) >= FEWEST_TEXTS:
            areas.append(wins.sum() / pairs.sum())
            left_out.append(
                ratio(*(table.sum() - table.sum(0) - table.sum(1) + table.diagonal() for table in (wins, pairs)))
            )
    estimate = UNKNOWN
    if areas:
        estimate = over_seeds_and_texts(np.array(areas), np.mean(left_out, axis=0), chance=0.5, bounds=(0.0, 1.0))
    return Separation(estimate, len(areas), ratio(partners, np.sum(~np.isnan(suspicion))).item())


def uncovered_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Which tests tell deceiving models from honest ones: a row per pair of kinds and test for each seed, and for all seeds.

    kind: "test", or "control" of what is no test of attention. over: "texts" of the two models of one seed, or "seeds and
    texts" (seed "all"). n_honest, n_deceiving: texts with a number, summed over seeds; n_undefined_...: those without.
    mean_...: of the numbers, over texts and then seeds. auc: of all texts; matched_auc: of those of about the same
    confidence; share_matched: numbers that have a partner of that kind. ci_low, ci_high, p_value, n_seeds: `Separation`.
    p_holm: corrected by Holm for all tests of the pair, those of the matched ones by themselves. verdict, of all seeds:
    "uncovers", or "misled" for an AUC below .5, where p_holm is at most .05; else `shared.verdict`. A control has none.
    """
    rows = [row for pair in twins(cells, honest_twin) for row in _of_pair(pair)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _of_pair(pair: Twins) -> list[dict[str, object]]:
    strata = _strata(pair)
    rows = [row for name, test in shared_tests(pair).items() for row in _rows(pair, strata, name, test)]
    asked = [row for row in rows if row["kind"] == "test" and row["seed"] == "all"]
    for row in rows:
        row |= {"verdict": "", "matched_verdict": ""}
    for start in ("", "matched_"):
        corrected = holm([row[f"{start}p_value"] for row in asked])
        for row, p_holm in zip(asked, corrected, strict=True):
            word = shared.verdict(row[f"{start}auc"] - 0.5, p_holm, row[f"{start}n_seeds"], UNCOVERS, MISLED)
            row |= {f"{start}p_holm": p_holm, f"{start}verdict": word}
    return rows


def _strata(pair: Twins) -> list[np.ndarray]:
    """The stratum of each text, by the confidence of the deceiving and of the honest models, [S, N] int each."""
    return [np.floor(np.nan_to_num(odds) / STRATUM).astype(np.int64) for odds in values(pair, "confidence")[::-1]]


def _rows(pair: Twins, strata: Sequence[np.ndarray], name: str, test: AttentionTest) -> Iterator[dict[str, object]]:
    """A test's row of each seed, and of all."""
    numbers, held = values(pair, name), pair.values(lambda cell: np.zeros(len(cell)))
    for place, seed in enumerate([*pair.plain, "all"]):
        part = slice(None) if seed == "all" else [place]
        row = {**pair.heading, "test": name, "label": test.label, "kind": test.kind}
        row |= {"over": "seeds and texts" if seed == "all" else "texts", "seed": str(seed)}
        for side, of_side, read in zip(("honest", "deceiving"), numbers, held, strict=True):
            defined = ~np.isnan(of_side[part])
            undefined = ~np.isnan(read[part]) & ~defined
            row |= {f"n_{side}": int(defined.sum()), f"n_undefined_{side}": int(undefined.sum())}
            row[f"mean_{side}"] = mean_of_means(of_side[part])
        suspicion = [test.suspect * of_side[part] for of_side in numbers[::-1]]
        matched = separation(suspicion, [stratum[part] for stratum in strata])
        for start, result in (("", separation(suspicion)), ("matched_", matched)):
            names = [f"{start}{column}" for column in ESTIMATE]
            row |= {f"{start}n_seeds": result.n_seeds, **dict(zip(names, result.estimate, strict=True))}
        yield row | {"share_matched": matched.partnered}


def models_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """The two models of each pair, means over texts and then seeds, and how far matching made them alike.

    n_texts: of one seed. hidden_...: attention on the words to be hidden. confidence_...: log-odds of the predicted class.
    imbalance: their difference, deceiving - honest, over the standard deviation within models, mean over seeds;
    imbalance_matched: the same over the pairs of texts of one stratum. share_matched: texts that have a partner of the other
    model in their stratum.
    """
    rows = []
    for pair in twins(cells, honest_twin):
        row = {**pair.heading, "n_seeds": len(pair.plain), "n_texts": len(pair.texts)}
        numbers = {name: values(pair, test) for name, test in (("hidden", "impermissible"), ("confidence", "confidence"))}
        numbers["accuracy"] = pair.values(lambda cell: correctness(cell)["correct"])
        for name, sides in numbers.items():
            row |= {f"{name}_honest": mean_of_means(sides[0]), f"{name}_deceiving": mean_of_means(sides[1])}
        confidence, strata = numbers["confidence"][::-1], _strata(pair)
        gaps = np.array([_gaps(*texts) for texts in zip(*confidence, *strata, strict=True)])
        row |= dict(zip(("imbalance", "imbalance_matched"), gaps.mean(0), strict=True))
        rows.append(row | {"share_matched": separation(confidence, strata).partnered})
    return pd.DataFrame(rows, columns=MODELS)


def _gaps(deceiving: np.ndarray, honest: np.ndarray, *strata: np.ndarray) -> tuple[float, float]:
    """The difference in standard deviations over all pairs of texts [N], and over those of one stratum."""
    pairs = ~np.isnan(deceiving)[:, None] & ~np.isnan(honest)[None]
    matched = pairs & (strata[0][:, None] == strata[1][None])
    spread = np.sqrt((np.nanvar(deceiving) + np.nanvar(honest)) / 2)
    differences = np.nan_to_num(deceiving[:, None] - honest[None])
    return tuple(ratio((differences * part).sum(), part.sum() * spread).item() for part in (pairs, matched))


def figures(table: pd.DataFrame) -> dict:
    """Of each data set, the AUC of all tests with its interval, a panel for each kind of model."""
    table = table[table["seed"] == "all"].sort_values("kind", ascending=False, kind="stable")
    penalty = table["objective"].str.removeprefix("classification(").str.removesuffix(")")
    table = table.assign(series=penalty, value=table["auc"], stands=table["verdict"].isin([UNCOVERS, MISLED]))
    return {
        f"{dataset}-uncovered": interval_figure(
            panels(part, ("objective",)),
            "Which tests tell a deceiving model from an honest one?",
            f"{dataset} · AUC, 95 % intervals over seeds and texts",
            int(part["n_deceiving"].max() / max(1, part["n_seeds"].max())),
            reference=0.5,
            note="1: uncovers without an error; .5: tells nothing; below: misled. Full: the verdict stands",
        )
        for dataset, part in table.groupby("dataset", sort=False)
    }
