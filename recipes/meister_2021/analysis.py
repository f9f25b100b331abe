"""Is sparse attention more interpretable? What Meister et al. (2021) print, beside ours, and what needs no training.

A model is an encoder with its alignment; its levels are softmax and the lambdas of sparsegen (0 for sparsemax). Numbers of
texts are those of `numbers`; intervals are over seeds and texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, readable

from ..pages import INTERVAL, analysis, read_published
from ..shared import Models, Number, answer, as_table, first, heading, kinds, paired, pick, row_of, values
from .numbers import INPUTS, MEASURES, STATES, cut_tau, of_cell


KEYS = ["dataset", "encoder", "alignment", "projection", "statistic"]
MODEL = {"encoder": "{encoder} + {alignment}"}
SIDES = {"accuracy": "accuracy", "entropy of a state's gradient": "hidden_to_input_entropy"}
SIDES |= {f"τ {readable(name)}": f"tau_{name}" for name in MEASURES}
PAGES = {
    "side_by_side": MODEL
    | {"projection": "{projection}", "seeds": "{n_seeds}"}
    | {label: f"{{{name}}} ± {{{name}_std}} / {{{name}_published}}" for label, name in SIDES.items()},
    "sweep": MODEL | {"measure": "{measure}", "λ–entropy: τ": "{tau} ± {tau_std} / {published}", "seeds": "{n_seeds}"},
    "claims": MODEL
    | {"claim": "{claim}", "measure": "{measure}", "seeds": "{n_seeds}"}
    | {"difference [95 %]": INTERVAL, "verdict": "{verdict}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "side_by_side", "sweep" and "claims", see the functions of these names, and each as the page shows it."""
    published = read_published(settings.published, [*KEYS, "training", "mean", "source"], ["mean"])
    by_table = {"side_by_side": side_by_side, "sweep": sweep}
    results = {name: lambda cells, table=table: table(cells, published) for name, table in by_table.items()}
    return analysis(cells, PAGES, results | {"claims": claims})


def number(name: str) -> Number:
    return pick(of_cell, name)


def levels(cells: Sequence[Cell], objective: str = "classification") -> list[dict[object, Models]]:
    """The kinds of each model on each data set by level: "softmax", or the lambda."""
    groups: dict[object, dict[object, Models]] = {}
    for models in kinds([cell for cell in cells if cell.identity.objective == objective]):
        identity = first(models).identity
        levels = {"softmax": "softmax", "sparsemax": 0.0, "sparsegen": identity.projection_parameter}
        level = levels.get(identity.projection)
        if level is not None:
            model = replace(identity, seed=0, projection="softmax", projection_parameter=None)
            groups.setdefault(model, {})[level] = models
    return list(groups.values())


@as_table
def side_by_side(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """Tables 1, 3 and 6, a row for each model at softmax and sparsemax: each of SIDES as the mean over seeds and texts, its
    standard deviation over seeds (_std) and the published number. The paper names no projection of its accuracies.
    """
    theirs = published[published["training"].isna()].fillna({"projection": "softmax"}).set_index(KEYS)["mean"].to_dict()
    for model in levels(cells):
        for level in [level for level in ("softmax", 0.0) if level in model]:
            numbers = {name: number(name) for name in SIDES.values()}
            row = row_of(model[level], numbers, lambda name: (-1, 1) if name.startswith("tau_") else (0, 1))
            for name in SIDES.values():
                statistic = f"tau attention–{name.removeprefix('tau_')}" if name.startswith("tau_") else name
                row[f"{name}_published"] = theirs.get((*(row[part] for part in KEYS[:-1]), statistic), np.nan)
            yield row


@as_table
def sweep(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """Table 2: Kendall's tau-b of lambda and the mean entropy of the importance of inputs, over the lambdas of each seed."""
    theirs = published.set_index(["dataset", "encoder", "alignment", "statistic"])["mean"].to_dict()
    for model in levels(cells):
        knobs = sorted(level for level in model if level != "softmax")
        if len(knobs) < 3:
            continue
        seeds = sorted(set.intersection(*({*model[knob]} for knob in knobs)))
        for measure in INPUTS:
            sides = [_of({seed: model[knob][seed] for seed in seeds}, f"entropy_{measure}") for knob in knobs]
            taus = pd.Series([kendalltau(knobs, means).statistic for means in np.nanmean(sides, axis=2).T])
            row = heading(model[knobs[0]]) | {"measure": readable(measure)}
            row |= {"n_lambdas": len(knobs), "n_seeds": len(seeds)}
            key = (row["dataset"], row["encoder"], row["alignment"], f"lambda–entropy of {measure}")
            yield row | {"tau": taus.mean(), "tau_std": taus.std(), "published": theirs.get(key, np.nan)}


@as_table
def claims(cells: Sequence[Cell]) -> pd.DataFrame:
    """What the paper says as a difference per text, a row for each model, claim and measure (`shared.answer`): "yes" where
    it is shown. What is compared with softmax attention cut to the same support changes by ties alone; attention at random
    places and the untrained model need no training.
    """
    untrained = {_model(model): model for model in levels(cells, "untrained")}
    for model in levels(cells):
        if {"softmax", 0.0} <= set(model):
            for claim, measure, numbers in differences(model, untrained.get(_model(model), {})):
                yield heading(model[0.0]) | {"claim": claim, "measure": readable(measure)} | answer(numbers)


def differences(model: dict[object, Models], untrained: dict[object, Models]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Claim, measure, and the numbers [S, N] whose mean is above 0 where the claim holds."""
    pair = paired(model["softmax"], model[0.0])
    dense, sparse = pair.values(number("hidden_to_input_entropy"))
    yield "sparse attention lowers the entropy of a state's gradient by less than .05", "", sparse - dense + 0.05
    dense, sparse = pair.values(number("accuracy"))
    yield "sparse attention costs less than .02 of accuracy", "", sparse - dense + 0.02
    for name in INPUTS:
        dense, sparse = pair.values(number(f"tau_{name}"))
        cut = values(pair.changed, lambda cell, name=name: cut_tau(cell, pair.plain[cell.identity.seed], name), pair.texts)
        yield "agrees less with inputs under sparsemax than under softmax", name, dense - sparse
        yield "and less than softmax attention cut to the same support", name, cut - sparse
    for name, inputs in zip(STATES, INPUTS, strict=True):
        sparse = _of(model[0.0], f"tau_{name}")
        yield "sparse attention agrees better with states than with inputs", name, sparse - _of(model[0.0], f"tau_{inputs}")
        yield "and better than the same weights at random places", name, sparse - _of(model[0.0], f"random_tau_{name}")
        if (before := paired(untrained.get(0.0, {}), model[0.0])) is not None:
            drawn, trained = before.values(number(f"tau_{name}"))
            yield "and better than before training", name, trained - drawn


def _of(models: Models, name: str) -> np.ndarray:
    return values(models, number(name))


def _model(model: dict[object, Models]) -> tuple[str, str, str]:
    row = heading(first(model))
    return row["dataset"], row["encoder"], row["alignment"]
