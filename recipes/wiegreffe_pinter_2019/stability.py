"""Is attention needed, and is it stable? Wiegreffe & Pinter's comparisons between the models of a study.

Models are told apart by the identity of their cells alone: a base model is trained for classification under learned
attention; one with the projection "uniform" has uniform attention; other seeds of the base are retrained; "adversarial(...)"
and "guided(...)" stand in `objective`. An adversary's base has its seed. Instances are matched by `instance_id`, never by
their position; those that only one of two cells holds are counted and compared with nothing.

Source: Wiegreffe & Pinter (2019), "Attention is not not Explanation"; frozen adversaries: Meister et al. (2021), Table 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cells import CELL, Cell, match
from attnfaith.stats import bootstrap_interval, percentile_interval, ratio


if TYPE_CHECKING:
    pass

LEARNED, UNIFORM, RETRAINED = "learned attention", "uniform attention", "other seeds"
BINS = np.linspace(0, 1, 5)
BIN_NAMES = ("[0, .25)", "[.25, .5)", "[.5, .75)", "[.75, 1]")
SCORES = ("accuracy", "f1_class_1", "roc_auc")
TEXTS = ("dataset", "texts", "training_texts", "split", "vectors")
"""Identity columns in which cells that are compared agree: the same texts in the same word vectors."""
FAMILY = (*TEXTS, "encoder", "alignment")


def model_of(cell: Cell) -> str:
    """What kind of model a cell is, its seed apart: "learned attention", "uniform attention", or its objective."""
    if cell.heading["objective"] != "classification":
        return str(cell.heading["objective"])
    return UNIFORM if cell.heading["projection"] == "uniform" else LEARNED


def is_adversary(cell: Cell) -> bool:
    """Whether the model was trained to attend otherwise than another one."""
    return cell.identity.objective == "adversarial"


def is_guided(cell: Cell) -> bool:
    """Whether the model was trained under another one's attention."""
    return cell.identity.objective == "guided"


def _key(cell: Cell, columns: Sequence[str]) -> tuple:
    return tuple(cell.heading[name] for name in columns)


def bases(cells: Sequence[Cell]) -> list[Cell]:
    """The base models: of the learned, unguided models those whose seed an adversary has; without any, all of them."""
    learned = [cell for cell in cells if model_of(cell) == LEARNED]
    attacked = {(*_key(cell, FAMILY), cell.heading["seed"]) for cell in cells if is_adversary(cell)}
    attacked_models = [cell for cell in learned if (*_key(cell, FAMILY), cell.heading["seed"]) in attacked]
    return attacked_models or learned


# ------------------------------------------------------------------------------- models beside a base, text by text


@dataclass(frozen=True)
class Comparison:
    """Models of one kind beside their base, instance by instance of the base.

    others: the S models. unmatched: instances of the base that one of them does not hold.
    """

    base: Cell
    name: str
    others: tuple[Cell, ...]

    @cached_property
    def by_model(self) -> dict[str, np.ndarray]:
        """jsd (nats), tvd and same_class (0 or 1) of each model, [S, N]; NaN where undefined: an empty text, unmatched."""
        distances = [_compare(self.base, other) for other in self.others]
        return {name: np.stack([values[name] for values in distances]) for name in ("jsd", "tvd", "same_class")}

    @property
    def unmatched(self) -> int:
        return int(np.isnan(self.by_model["tvd"]).any(axis=0).sum())

    @cached_property
    def jsd(self) -> np.ndarray:
        """Median over the models of the JSD of attentions in nats, [N]."""
        return _over_models(self.by_model["jsd"], np.nanmedian)

    @cached_property
    def tvd(self) -> np.ndarray:
        """Mean over the models of the TVD of predictions, [N]: for two classes the mean change of p."""
        return _over_models(self.by_model["tvd"], np.nanmean)

    @cached_property
    def same_class(self) -> np.ndarray:
        """Share of the models that predict the base's class, [N]."""
        return _over_models(self.by_model["same_class"], np.nanmean)


def _over_models(values: np.ndarray, take: Callable) -> np.ndarray:
    """`take` over the models that have a value, [S, N] -> [N]; NaN where none has."""
    defined = ~np.isnan(values).all(axis=0)
    values_of_texts = np.full(values.shape[1], np.nan)
    values_of_texts[defined] = take(values[:, defined], axis=0)
    return values_of_texts


def _compare(base: Cell, other: Cell) -> dict[str, np.ndarray]:
    """JSD of attentions, TVD of predictions and whether the class is the same, each [N of the base], NaN unmatched."""
    rows, others = match(base, other)
    measured = {
        "jsd": jensen_shannon_divergence([base.attention[i] for i in rows], [other.attention[i] for i in others]),
        "tvd": total_variation_distance(base.probs[rows], other.probs[others]),
        "same_class": base.predicted[rows] == other.predicted[others],
    }
    distances = {name: np.full(len(base), np.nan) for name in measured}
    for name, values in measured.items():
        distances[name][rows] = values
    return distances


def comparisons_of(base: Cell, cells: Sequence[Cell]) -> list[Comparison]:
    """What a base is held against: its other seeds, uniform attention of its seed, and each adversary of its seed."""
    family = [cell for cell in cells if _key(cell, FAMILY) == _key(base, FAMILY)]
    seed = base.heading["seed"]
    groups: dict[str, list[Cell]] = {}
    for cell in family:
        name, same_seed = model_of(cell), cell.heading["seed"] == seed
        if name == LEARNED and not same_seed and cell.heading["projection"] == base.heading["projection"]:
            groups.setdefault(RETRAINED, []).append(cell)
        elif (name == UNIFORM or is_adversary(cell)) and same_seed:
            groups.setdefault(name, []).append(cell)
    order = sorted(groups, key=lambda name: (name != RETRAINED, name != UNIFORM, *_settings_order(groups[name][0])))
    return [Comparison(base, name, tuple(groups[name])) for name in order]


def adversary_settings(cell: Cell) -> dict[str, object]:
    """Weight, divergence and whether only attention was free, of an adversary's objective; NaN and "" for other models."""
    identity = cell.identity
    if not is_adversary(cell):
        return {"weight": np.nan, "divergence": "", "frozen": ""}
    frozen = "yes" if identity.adversary_frozen else "no"
    return {"weight": identity.adversary_weight, "divergence": identity.adversary_divergence, "frozen": frozen}


def _settings_order(cell: Cell) -> tuple:
    settings = adversary_settings(cell)
    weight = -1.0 if np.isnan(settings["weight"]) else settings["weight"]
    return settings["frozen"], settings["divergence"], weight, model_of(cell)


# -------------------------------------------------------------------------------------------------------- tables


def seed_variance(base: Cell, others: Sequence[Cell], name: str = RETRAINED) -> pd.DataFrame:
    """How far the attention of other models lies from a base's, by the base's largest weight and predicted class.

    One row per class x bin: class "overall", "0", ... as the base predicts; bin "all" and four of width .25 of the base's
    largest weight. n, n_undefined: instances with and without a value. jsd_mean, jsd_median (nats, 0..ln 2): over instances,
    of the median over `others`. tvd_mean (0..1): over instances, of the mean over `others` of the TVD over all classes.
    same_class: share of predictions of the base's class. 95 % bootstrap intervals over instances. n_models: how many others.
    n_unmatched: instances of the base that some of the others lack.

    Raises ValueError where a cell holds none of the base's instances, or other tokens for one of them.
    """
    return pd.DataFrame(_by_bin(Comparison(base, name, tuple(others))))


def _by_bin(comparison: Comparison) -> list[dict]:
    base = comparison.base
    largest = np.array([row.max() if len(row) else np.nan for row in base.attention], dtype=np.float64)
    bins = np.where(np.isnan(largest), -1, np.minimum(np.nan_to_num(largest) * 4, 3).astype(int))
    rows = []
    for class_name, members in base.classes:
        for bin_name, inside in [("all", True), *((name, bins == number) for number, name in enumerate(BIN_NAMES))]:
            taken = members & inside
            rows.append(
                {
                    **base.heading,
                    "against": comparison.name,
                    "n_models": len(comparison.others),
                    "class": class_name,
                    "bin": bin_name,
                    "n_unmatched": comparison.unmatched,
                    **_distances(comparison.jsd[taken], comparison.tvd[taken], comparison.same_class[taken]),
                }
            )
    return rows


def _distances(jsd: np.ndarray, tvd: np.ndarray, same_class: np.ndarray) -> dict[str, float]:
    defined = ~np.isnan(jsd)
    summary = {"n": int(defined.sum()), "n_undefined": int((~defined).sum())}
    for name, values in (("jsd", jsd), ("tvd", tvd)):
        values = values[~np.isnan(values)]
        low, high = bootstrap_interval(values)
        summary[f"{name}_mean"] = float(values.mean()) if len(values) else np.nan
        summary |= {f"{name}_ci_low": low, f"{name}_ci_high": high}
    summary["jsd_median"] = float(np.median(jsd[defined])) if defined.any() else np.nan
    known = same_class[~np.isnan(same_class)]
    return summary | {"same_class": float(known.mean()) if len(known) else np.nan}


def trade_off(base_cells: Sequence[Cell], cells: Sequence[Cell]) -> pd.DataFrame:
    """How far attention can move at which cost in predictions: mean TVD and mean JSD for each kind of model beside a base.

    One row per kind: every adversary (weight is its lambda, `divergence` the one it was trained to raise, `frozen` whether
    only its attention could move), and as points of reference "other seeds" and "uniform attention". jsd_mean in nats,
    tvd_mean in 0..1: per instance the mean over the pairs of base and model, then over n instances, with a 95 % bootstrap
    interval over instances; n_undefined: instances without a value. n_seeds: bases. n_pairs: pairs of base and model.
    accuracy, f1_class_1: means over the models, with the sample standard deviation (NaN for one).
    """
    groups: dict[tuple, list[Comparison]] = {}
    for base in base_cells:
        for comparison in comparisons_of(base, cells):
            groups.setdefault((*_key(base, FAMILY), base.heading["projection"], comparison.name), []).append(comparison)
    rows = []
    for key, comparisons in groups.items():
        values = {
            name: _over_pairs(
                [(comparison.base.instance_ids, row) for comparison in comparisons for row in comparison.by_model[name]]
            )
            for name in ("jsd", "tvd", "same_class")
        }
        models = list({id(other): other for comparison in comparisons for other in comparison.others}.values())
        scores = pd.DataFrame([_scores(cell) for cell in models])
        row = dict(zip((*FAMILY, "projection", "model"), key, strict=True)) | adversary_settings(comparisons[0].others[0])
        row |= {"n_seeds": len(comparisons), "n_pairs": sum(len(comparison.others) for comparison in comparisons)}
        row |= _distances(**values)
        for name in ("accuracy", "f1_class_1"):
            row |= {name: scores[name].mean(), f"{name}_std": scores[name].std()}
        rows.append(row)
    return pd.DataFrame(rows)


def _over_pairs(parts: Sequence[tuple[Sequence[str], np.ndarray]]) -> np.ndarray:
    """Mean per instance over pairs of models, matched by instance id; NaN where no pair has a value."""
    names = {name: place for place, name in enumerate(dict.fromkeys(name for ids, _ in parts for name in ids))}
    values = np.full((len(parts), len(names)), np.nan)
    for number, (ids, row) in enumerate(parts):
        values[number, [names[name] for name in ids]] = row
    return _over_models(values, np.nanmean)


def _scores(cell: Cell) -> dict[str, float]:
    scores = classification_scores(cell.probs, cell.labels)
    return {name: scores[name] for name in SCORES}


def models_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """How well each model classifies: accuracy, F1 of class 1 and ROC-AUC with 95 % bootstrap intervals over instances.

    One row per cell. model: "learned attention", "uniform attention" or the objective. n: instances with a label.
    jsd_mean, tvd_mean: distance to the base of the same seed, for adversaries and uniform attention; NaN for others.
    """
    base_of = {(*_key(cell, FAMILY), cell.heading["seed"]): cell for cell in bases(cells)}
    rows = []
    for cell in cells:
        labelled = ~np.isnan(cell.labels)
        row = {**cell.heading, "model": model_of(cell), "n": int(labelled.sum()), "n_undefined": int((~labelled).sum())}
        draws = resampled_scores([cell.probs[labelled]], cell.labels[labelled])[0]
        for name, value in _scores(cell).items():
            low, high = map(float, percentile_interval(draws[name]))
            row |= {name: value, f"{name}_ci_low": low, f"{name}_ci_high": high}
        base = base_of.get((*_key(cell, FAMILY), cell.heading["seed"]))
        near = base is not None and (is_adversary(cell) or model_of(cell) == UNIFORM)
        comparison = Comparison(base, "", (cell,)) if near else None
        row |= {
            name: np.nanmean(getattr(comparison, name[:3])) if comparison else np.nan for name in ("jsd_mean", "tvd_mean")
        }
        rows.append(row)
    return pd.DataFrame(rows)


def over_seeds(models: pd.DataFrame) -> pd.DataFrame:
    """Mean, sample standard deviation, least and greatest over seeds of each kind of model's scores.

    One row per kind and score: n_seeds seeds, n_undefined of them without a value. std is NaN for one seed.
    """
    keys = [name for name in (*CELL, "model") if name not in ("seed", "objective")]
    long = models.melt(keys, [*SCORES, "jsd_mean", "tvd_mean"], var_name="statistic", value_name="value")
    values = long.groupby([*keys, "statistic"], sort=False)["value"]
    table = values.agg(n_seeds="size", n="count", mean="mean", std="std", min="min", max="max").reset_index()
    table.insert(table.columns.get_loc("n_seeds") + 1, "n_undefined", table["n_seeds"] - table["n"])
    return table[table["n"] > 0].drop(columns="n").reset_index(drop=True)


def is_attention_needed(cells: Sequence[Cell]) -> pd.DataFrame:
    """Does learned attention classify better than uniform attention of the same encoder and seed?

    One row per pair and score: learned, uniform, difference (learned - uniform) with the 95 % interval of a paired bootstrap
    over the n instances that both hold and that have a label; n_undefined: the other instances of the learned model. Without
    a pair, no rows.
    """
    uniform = {(*_key(cell, FAMILY), cell.heading["seed"]): cell for cell in cells if model_of(cell) == UNIFORM}
    rows = []
    for cell in cells:
        other = uniform.get((*_key(cell, FAMILY), cell.heading["seed"]))
        if model_of(cell) != LEARNED or other is None:
            continue
        mine, theirs = match(cell, other)
        labelled = ~np.isnan(cell.labels[mine])
        mine, theirs = mine[labelled], theirs[labelled]
        pair = [cell.probs[mine], other.probs[theirs]]
        draws = resampled_scores(pair, cell.labels[mine])
        scores = [classification_scores(probs, cell.labels[mine]) for probs in pair]
        for name in SCORES:
            low, high = map(float, percentile_interval(draws[0][name] - draws[1][name]))
            rows.append(
                {
                    **cell.heading,
                    "statistic": name,
                    "n": len(mine),
                    "n_undefined": len(cell) - len(mine),
                    "learned": scores[0][name],
                    "uniform": scores[1][name],
                    "difference": scores[0][name] - scores[1][name],
                    "ci_low": low,
                    "ci_high": high,
                }
            )
    return pd.DataFrame(rows)


def resampled_scores(
    models: Sequence[np.ndarray], labels: np.ndarray, *, seed: int = 0, draws: int = 1000
) -> list[dict[str, np.ndarray]]:
    """The scores of models on bootstrap samples of the instances, the same samples for each: paired.

    models: class probabilities [N, C] each. labels: [N], none missing. Returns for each model {score: [draws]}, NaN where a
    sample leaves the score undefined (F1 without class 1; ROC-AUC of one class, or of more than two).
    """
    n = len(labels)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws) if n else np.zeros((draws, 0))
    return [_weighted_scores(probs, labels, weights.astype(np.float64)) for probs in models]


def _weighted_scores(probs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    decisions = probs.argmax(axis=1)
    total = weights.sum(axis=1)
    hits = weights @ ((decisions == 1) & (labels == 1))
    marked = weights @ ((decisions == 1).astype(float) + (labels == 1))
    scores = {"accuracy": ratio(weights @ (decisions == labels), total), "f1_class_1": ratio(2 * hits, marked)}
    if probs.shape[1] != 2:
        return scores | {"roc_auc": np.full(len(weights), np.nan)}
    # Mann-Whitney: of the pairs, those where class 1 has the larger probability, ties counting one half
    order = np.argsort(probs[:, 1], kind="stable")
    starts = np.flatnonzero(np.diff(probs[order, 1], prepend=-1.0))
    if len(starts) == 0:
        return scores | {"roc_auc": np.full(len(weights), np.nan)}
    positive, negative = (np.add.reduceat((weights * (labels == c))[:, order], starts, axis=1) for c in (1, 0))
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return scores | {"roc_auc": ratio((positive * below).sum(axis=1), pairs)}


def tables(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Every table of the protocol, by file name; one without rows is left out."""
    models = models_table(cells)
    base_cells = bases(cells)
    pairs = [pair for base in base_cells for pair in comparisons_of(base, cells)]
    made = {
        "models": models,
        "models_by_kind": over_seeds(models),
        "attention_needed": is_attention_needed(cells),
        "seed_variance": pd.DataFrame([row for pair in pairs for row in _by_bin(pair)]),
        "trade_off": trade_off(base_cells, cells),
    }
    return {name: table for name, table in made.items() if len(table)}
