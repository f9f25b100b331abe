"""Is attention needed, and is it stable? Wiegreffe & Pinter's comparisons between the models of a study.

Models are told apart by the identity of their cells alone: a base is trained for classification under learned attention; one
with the projection "uniform" has uniform attention; other seeds of the base are retrained; adversaries and guided models
have an objective of their own, and an adversary's base has its seed. Texts are matched by `instance_id`.

Source: Wiegreffe & Pinter (2019), "Attention is not not Explanation"; frozen adversaries: Meister et al. (2021), Table 5.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import CELL, Cell, match
from attnfaith.stats import bootstrap_interval, ratio


LEARNED, UNIFORM, RETRAINED = "learned attention", "uniform attention", "other seeds"
SCORES = ("accuracy", "f1_class_1", "roc_auc")
FAMILY = ["dataset", "texts", "training_texts", "split", "vectors", "encoder", "alignment"]
"""Identity columns in which cells that are compared agree: the same texts in the same word vectors, and kind of model."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "models_by_kind", "attention_needed" and "trade_off", see the functions of these names."""
    if not cells:
        return Analysis()
    return Analysis(
        {
            "models_by_kind": models_by_kind(cells),
            "attention_needed": attention_needed(cells),
            "trade_off": trade_off(cells),
        }
    )


def model_of(cell: Cell) -> str:
    """The kind of model of a cell, its seed apart: "learned attention", "uniform attention", or its objective."""
    if cell.heading["objective"] != "classification":
        return str(cell.heading["objective"])
    return UNIFORM if cell.heading["projection"] == "uniform" else LEARNED


def is_adversary(cell: Cell) -> bool:
    """Whether the model was trained to attend otherwise than another one."""
    return cell.identity.objective == "adversarial"


def _family(cell: Cell, *more: str) -> tuple:
    return tuple(cell.heading[name] for name in (*FAMILY, *more))


def bases(cells: Sequence[Cell]) -> list[Cell]:
    """The base models: of the learned, unguided models those whose seed an adversary has; without any, all of them."""
    learned = [cell for cell in cells if model_of(cell) == LEARNED]
    attacked = {_family(cell, "seed") for cell in cells if is_adversary(cell)}
    return [cell for cell in learned if _family(cell, "seed") in attacked] or learned


def beside(base: Cell, cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """What a base is held against: its other seeds, uniform attention of its seed, and each adversary of its seed."""
    groups: dict[str, list[Cell]] = {RETRAINED: [], UNIFORM: []}
    for cell in [cell for cell in cells if _family(cell) == _family(base)]:
        name, same_seed = model_of(cell), cell.heading["seed"] == base.heading["seed"]
        if name == LEARNED and not same_seed and cell.heading["projection"] == base.heading["projection"]:
            groups[RETRAINED].append(cell)
        elif (name == UNIFORM or is_adversary(cell)) and same_seed:
            groups.setdefault(name, []).append(cell)
    adversaries = [name for name in groups if name not in (RETRAINED, UNIFORM)]
    names = [RETRAINED, UNIFORM, *sorted(adversaries, key=lambda name: _order(groups[name][0]))]
    return {name: groups[name] for name in names if groups[name]}


def _order(adversary: Cell) -> tuple:
    of = adversary.identity
    return of.adversary_frozen, of.adversary_divergence, of.adversary_weight


def distances(base: Cell, other: Cell) -> dict[str, np.ndarray]:
    """JSD of attentions (nats), TVD of predictions and whether the class is the same, [N of the base]; NaN unmatched."""
    rows, others = match(base, other)
    measured = {
        "jsd": jensen_shannon_divergence([base.attention[i] for i in rows], [other.attention[i] for i in others]),
        "tvd": total_variation_distance(base.probs[rows], other.probs[others]),
        "same_class": base.predicted[rows] == other.predicted[others],
    }
    table = {name: np.full(len(base), np.nan) for name in measured}
    for name, values in measured.items():
        table[name][rows] = values
    return table


def trade_off(cells: Sequence[Cell]) -> pd.DataFrame:
    """How far attention can move at which cost in predictions: mean TVD and mean JSD for each kind of model beside a base.

    One row per kind: every adversary (weight is its lambda, `divergence` the one it was trained to raise, `frozen` whether
    only its attention could move), and as points of reference "other seeds" and "uniform attention". jsd_mean in nats,
    tvd_mean in 0..1: per text the mean over the pairs of base and model, then over n texts, with a 95 % bootstrap interval
    over texts; n_undefined: texts without a value. same_class: share of predictions of the base's class. n_seeds: bases.
    n_pairs: pairs of base and model. accuracy, f1_class_1: means over the models, with the sample standard deviation.
    """
    groups: dict[tuple, list[tuple[Cell, list[Cell]]]] = {}
    for base in bases(cells):
        for name, others in beside(base, cells).items():
            groups.setdefault((*_family(base, "projection"), name), []).append((base, others))
    rows = []
    for key, members in groups.items():
        pairs = [(base, other) for base, others in members for other in others]
        frames = [pd.DataFrame(distances(*pair), index=pair[0].instance_ids) for pair in pairs]
        values = pd.concat(frames).groupby(level=0, sort=False).mean()
        models = {id(other): other for _, other in pairs}.values()
        identity = pairs[0][1].identity
        row = dict(zip((*FAMILY, "projection", "model"), key, strict=True))
        row |= {"weight": np.nan, "divergence": "", "frozen": ""}
        if is_adversary(pairs[0][1]):
            row |= {"weight": identity.adversary_weight, "divergence": identity.adversary_divergence}
            row |= {"frozen": "yes" if identity.adversary_frozen else "no"}
        row |= {"n_seeds": len(members), "n_pairs": len(pairs)}
        row |= {"n": int(values["jsd"].notna().sum()), "n_undefined": int(values["jsd"].isna().sum())}
        for name in ("jsd", "tvd"):
            defined = values[name].dropna().to_numpy()
            row |= {f"{name}_mean": defined.mean() if len(defined) else np.nan}
            row |= dict(zip((f"{name}_ci_low", f"{name}_ci_high"), bootstrap_interval(defined), strict=True))
        row |= {"jsd_median": values["jsd"].median(), "same_class": values["same_class"].mean()}
        scores = pd.DataFrame([classification_scores(cell.probs, cell.labels) for cell in models])
        for name in SCORES[:2]:
            row |= {name: scores[name].mean(), f"{name}_std": scores[name].std()}
        rows.append(row)
    return pd.DataFrame(rows)


def models_by_kind(cells: Sequence[Cell]) -> pd.DataFrame:
    """Mean, sample standard deviation, least and greatest over seeds of each kind of model's scores.

    One row per kind and statistic: accuracy, F1 of class 1, ROC-AUC, and jsd_mean and tvd_mean, the distance to the base of
    the same seed, for adversaries and uniform attention. n_seeds seeds, n_undefined of them without a value.
    """
    base_of = {_family(cell, "seed"): cell for cell in bases(cells)}
    rows = []
    for cell in cells:
        scores = classification_scores(cell.probs, cell.labels)
        row = {**cell.heading, "model": model_of(cell)} | {name: scores[name] for name in SCORES}
        row |= {"jsd_mean": np.nan, "tvd_mean": np.nan}
        base = base_of.get(_family(cell, "seed"))
        if base is not None and (is_adversary(cell) or model_of(cell) == UNIFORM):
            row |= {f"{name}_mean": np.nanmean(distances(base, cell)[name]) for name in ("jsd", "tvd")}
        rows.append(row)
    keys = [name for name in (*CELL, "model") if name not in ("seed", "objective")]
    long = pd.DataFrame(rows).melt(keys, [*SCORES, "jsd_mean", "tvd_mean"], var_name="statistic", value_name="value")
    values = long.groupby([*keys, "statistic"], sort=False)["value"]
    table = values.agg(n_seeds="size", n="count", mean="mean", std="std", min="min", max="max").reset_index()
    table.insert(table.columns.get_loc("n_seeds") + 1, "n_undefined", table["n_seeds"] - table["n"])
    return table[table["n"] > 0].drop(columns="n").reset_index(drop=True)


def attention_needed(cells: Sequence[Cell]) -> pd.DataFrame:
    """Does learned attention classify better than uniform attention of the same encoder and seed?

    One row per pair and score: learned, uniform, difference (learned - uniform) with the 95 % interval of a paired bootstrap
    over the n texts that both hold and that have a label; n_undefined: the other texts of the learned model.
    """
    uniform = {_family(cell, "seed"): cell for cell in cells if model_of(cell) == UNIFORM}
    rows = []
    for cell in cells:
        other = uniform.get(_family(cell, "seed"))
        if model_of(cell) != LEARNED or other is None:
            continue
        mine, theirs = match(cell, other)
        labelled = ~np.isnan(cell.labels[mine])
        mine, theirs = mine[labelled], theirs[labelled]
        labels, pair = cell.labels[mine], (cell.probs[mine], other.probs[theirs])
        first, second = (classification_scores(probs, labels) for probs in pair)
        draws = resampled_scores(pair, labels)
        for name in SCORES:
            lost = draws[0][name] - draws[1][name]
            lost = lost[np.isfinite(lost)]
            low, high = np.quantile(lost, (0.025, 0.975)) if len(lost) else (np.nan, np.nan)
            row = {**cell.heading, "statistic": name, "n": len(mine), "n_undefined": len(cell) - len(mine)}
            row |= {"learned": first[name], "uniform": second[name], "difference": first[name] - second[name]}
            rows.append(row | {"ci_low": low, "ci_high": high})
    return pd.DataFrame(rows)


def resampled_scores(models: Sequence[np.ndarray], labels: np.ndarray, draws: int = 1000) -> list[dict[str, np.ndarray]]:
    """The scores of models on bootstrap samples of the texts, the same samples for each: paired.

    models: class probabilities [N, C] each. labels: [N], none missing. Returns for each model {score: [draws]}, NaN where a
    sample leaves the score undefined (F1 without class 1; ROC-AUC of one class, or of more than two).
    """
    n = len(labels)
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=draws) if n else np.zeros((draws, 0))
    return [_weighted_scores(probs, labels, weights.astype(np.float64)) for probs in models]


def _weighted_scores(probs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    decisions = probs.argmax(axis=1)
    hits = weights @ ((decisions == 1) & (labels == 1))
    marked = weights @ ((decisions == 1).astype(float) + (labels == 1))
    scores = {"accuracy": ratio(weights @ (decisions == labels), weights.sum(axis=1)), "f1_class_1": ratio(2 * hits, marked)}
    # Mann-Whitney: of the pairs, those where class 1 has the larger probability, ties counting one half
    order = np.argsort(probs[:, 1], kind="stable")
    starts = np.flatnonzero(np.diff(probs[order, 1], prepend=-1.0))
    if probs.shape[1] != 2 or len(starts) == 0:
        return scores | {"roc_auc": np.full(len(weights), np.nan)}
    positive, negative = (np.add.reduceat((weights * (labels == c))[:, order], starts, axis=1) for c in (1, 0))
    below = np.cumsum(negative, axis=1) - negative / 2
    return scores | {"roc_auc": ratio((positive * below).sum(axis=1), positive.sum(axis=1) * negative.sum(axis=1))}
