"""How often the verdict errs on models whose deciding words are known, by the number of texts.

A model's attention is good where its average precision against the deciding words is at least .8, wrong below .5, and
between otherwise. The verdict does not see these words here: the rule is judged on what it knows of any model.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.verdicts import losses
from attnfaith.verdict import GOOD_PRECISION, OUTCOMES, POOR_PRECISION, Losses, judge, mean_interval

from ..pages import analysis


SIZES = (100, 200, 500)
SAMPLES = 60
"""Samples of each size and model, drawn without replacement from its texts."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "verdict_models", one row a model, and "verdict_calibration", one row for each quality and number of texts."""
    read = [losses(cell) for cell in cells]
    models = pd.DataFrame([_model(cell, of) for cell, of in zip(cells, read, strict=True)])
    results = {"verdict_models": lambda _: models}
    results["verdict_calibration"] = lambda _: calibration(models["attention_is"], read)
    return analysis(cells, {}, results)


def _model(cell: Cell, of: Losses) -> dict[str, object]:
    """What is known of a model, and the verdict on all of its texts.

    uses_evidence: whether it loses more without the deciding words than without as many random ones (95 % interval).
    """
    hidden = _without_evidence(of)
    verdict = judge(hidden)
    precision, gap = float(np.nanmean(of.precision)), of.evidence - of.evidence_random
    return {
        "evidence": cell.settings.get("recipe", {}).get("name", ""),
        "encoder": cell.heading["encoder"],
        "seed": cell.heading["seed"],
        "n": verdict.n,
        "accuracy": float((of.predicted == of.labels).mean()),
        "average_precision": precision,
        "uses_evidence": bool(mean_interval(gap[~np.isnan(gap)]).low > 0),
        "attention_is": "good" if precision >= GOOD_PRECISION else "wrong" if precision < POOR_PRECISION else "between",
        "rho": verdict.ratio.value,
        "rho_ci_low": verdict.ratio.low,
        "rho_ci_high": verdict.ratio.high,
        "verdict": verdict.outcome,
    }


def calibration(qualities: Sequence[str], models: Sequence[Losses]) -> pd.DataFrame:
    """For models of each quality and samples of each size: the share of samples with each outcome, in 0..1."""
    rows = []
    for quality in ("good", "between", "wrong"):
        chosen = [of for name, of in zip(qualities, models, strict=True) if name == quality]
        for size in SIZES:
            outcomes = [judge(sample).outcome for of in chosen for sample in samples(of, size)]
            shares = {outcome: outcomes.count(outcome) / len(outcomes) if outcomes else np.nan for outcome in OUTCOMES}
            rows.append({"attention_is": quality, "texts": size, "models": len(chosen), "samples": len(outcomes), **shares})
    return pd.DataFrame(rows)


def samples(of: Losses, size: int) -> list[Losses]:
    """SAMPLES samples of a model's texts, without what is known of the deciding words; none where it has fewer texts."""
    count, generator = len(of.predicted), np.random.default_rng(0)
    if count < size:
        return []
    return [_take(_without_evidence(of), generator.permutation(count)[:size]) for _ in range(SAMPLES)]


def _take(of: Losses, rows: np.ndarray) -> Losses:
    arrays = {name: values for name, values in vars(of).items() if isinstance(values, np.ndarray)}
    return replace(of, **{name: values[rows] for name, values in arrays.items() if len(values)})


def _without_evidence(of: Losses) -> Losses:
    nothing = np.full(len(of.predicted), np.nan)
    return replace(of, precision=nothing, evidence=nothing, evidence_random=nothing)
