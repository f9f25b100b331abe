"""The numbers of Meister et al. (2021) beside what the paper prints, and of what it left open: (a) ties, (b) what needs no
training, (c) attention held fixed, (d) two ways to remove a state, (e) agreement without ties, (f) sparsegen as a
temperature, (g) entmax. Of (c), (d) and (g) the numbers stand in `projections`.

A row for each model x projection (or lambda, alpha) x measure. n: texts with a value, summed over the n_seeds seeds that
have one; n_undefined: the others. A number is the mean over seeds of the mean over texts; <name>_ci_low, <name>_ci_high: its
95 % interval over seeds and texts. Slopes are per decade of 1 / (1 - lambda), by which sparsegen sharpens scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.cells import Cell

from ..shared import read_published
from .models import Levels, Model, Panel, is_adversary, is_plain, minus, models, moves_at_all, rank_correlation, slope
from .numbers import AGREEMENTS, DETACHED, INPUTS, MEASURES, null_of


KEYS = ["dataset", "encoder", "alignment", "projection", "training", "statistic"]
OTHERS = ("accuracy", "support_share", "entropy", "hidden_to_input_entropy", "tokens_that_differ")
STATISTICS = {name: name for name in OTHERS} | {f"entropy of {name}": f"entropy_{name}" for name in INPUTS}
STATISTICS |= {f"tau attention–{name}": f"tau_{name}" for name in (*MEASURES, *DETACHED)}
"""What is shown of each projection, and the number that it is the mean of. hidden_to_input_entropy: of g_h(x), how evenly a
state depends on the tokens (Table 1). leave_one_out_reproject_hidden projects the other scores again, beside which the
published D_y(h) stands, and leave_one_out_hidden renormalises the other weights (Table 6). _detached: with attention held
fixed in the gradient, so that tau of states is 1 under an affine read-out.
"""
Published = Mapping[tuple, float]


def published_means(path: Path | None) -> Published:
    """The published numbers by KEYS, "" where a field is empty; none without a path.

    Raises StudyError for a file that is no such table, or that holds a number twice.
    """
    if path is None:
        return {}
    table = read_published(path, [*KEYS, "mean", "source"], ["mean"]).fillna(dict.fromkeys(KEYS, ""))
    if (repeated := table.duplicated(KEYS)).any():
        raise StudyError(f"published: {path} holds a number twice: {table.loc[repeated, KEYS].iloc[0].to_dict()}")
    return table.set_index(KEYS)["mean"].to_dict()


def tables(cells: Sequence[Cell], published: Published) -> dict[str, pd.DataFrame]:
    """The tables by name; without those that would have no rows."""
    plain = list(filter(is_plain, cells))  # variants have no part in the paper's tables, nor in the draws of their intervals
    kinds = {projections: plain, sweeps: plain, with_adversaries: [*plain, *filter(is_adversary, cells)]}
    kinds |= dict.fromkeys((ties, against_nulls, scores, effect_kept), cells)
    rows = {make.__name__: [row for model in models(part) for row in make(model)] for make, part in kinds.items()}
    for name in ("projections", "sweeps", "with_adversaries"):
        rows[name] = [_beside(row, published) for row in rows[name]]
    frames = {name: pd.DataFrame(of_table) for name, of_table in rows.items() if of_table}
    if published and "against_nulls" in frames:
        frames["published_against_nulls"] = published_against_nulls(frames["against_nulls"], published)
    return frames


def _beside(row: dict, published: Published) -> dict:
    """A row with the published number. The paper names no projection of its accuracies, which stand beside softmax, nor of
    its adversaries, which stand beside each of the same training.
    """
    training, projection = row.get("training", ""), row["projection"]
    if training or (row["statistic"], projection) == ("accuracy", "softmax"):
        projection = ""
    key = (row["dataset"], row["encoder"], row["alignment"], projection, training, row["statistic"])
    return row | {"published": published.get(key, np.nan), "difference": row["mean"] - published.get(key, np.nan)}


def projections(model: Model) -> Iterator[dict]:
    """Tables 1, 3 and 6, and the numbers of Figures 2 and 3: the STATISTICS of each projection."""
    levels = model.projections()
    for statistic, number in STATISTICS.items():
        yield from _rows(levels, levels(number), statistic)


def sweeps(model: Model) -> Iterator[dict]:
    """Table 2: Kendall's tau-b, over the lambdas of each seed, of lambda with the entropy of the importance of inputs."""
    levels = model.lambdas()
    for name in INPUTS:
        if (panel := levels(f"entropy_{name}")) is not None:
            row = {**model.heading, "projection": "sparsegen sweep", "statistic": f"lambda–entropy of {name}"}
            seeds = pd.Series(rank_correlation(levels.x, panel.by_seed.T))
            counts = {"n_lambdas": int((panel.n > 0).sum()), "n_seeds": int(seeds.count())}
            yield row | counts | {"mean": seeds.mean(), "sd_over_seeds": seeds.std()}


def with_adversaries(model: Model) -> Iterator[dict]:
    """Table 5: adversaries beside their base, the model of the same seed and projection."""
    for levels in model.adversaries():
        for name in ("jsd", "accuracy"):
            yield from _rows(levels, levels(name), name)
        bases = model.at(levels.heads[0]["projection"])
        yield from _rows(levels, minus(levels("accuracy"), bases("accuracy")), "accuracy_difference")


def _rows(levels: Levels, panel: Panel | None, statistic: str) -> Iterator[dict]:
    """The mean of a number, its interval and its standard deviation over seeds, for each level that has it."""
    if panel is not None:
        spread = pd.DataFrame(panel.by_seed).std(axis=1)[panel.n > 0]
        for row, sd in zip(levels.rows({"mean": panel}, statistic=statistic), spread, strict=True):
            yield {name.removeprefix("mean_"): value for name, value in row.items()} | {"sd_over_seeds": sd}


def ties(model: Model) -> Iterator[dict]:
    """(a, e) Slopes over the lambdas of the AGREEMENTS with the importance of inputs, of tau over the ceiling that ties put
    on it, and of tau_ties_alone (see `of_cut`). Tau over its ceiling rises with sparsity even where the relation stays as it
    is: of the pairs left more join a chosen token and one left out, which are easier to put in order.
    """
    levels = model.lambdas()
    for measure in INPUTS:
        if moves_at_all(tau := levels(f"tau_{measure}")):
            row = levels.counted(tau) | {"measure": measure}
            row |= levels.trend("tau_ties_alone", slope, levels(f"cut_tau_{measure}"))
            for name in ("tau_over_ceiling", *AGREEMENTS):
                row |= levels.trend(name, slope, levels(f"{name}_{measure}"))
            yield row


def against_nulls(model: Model) -> Iterator[dict]:
    """(b) tau of the trained model beside what needs no training, over the texts where both are defined: its own weights at
    random places (see `null_of`), held fixed in the gradient, so that tau is 1 for the gradient norm of states under an
    affine read-out; and the same projection and seed before training. exceeds: the interval of the difference is above 0.
    """
    levels = model.projections()
    untrained = Levels(model, levels.heads, [model.at(head["projection"], trained=False).cells[0] for head in levels.heads])
    for measure in MEASURES:
        tau = levels(f"tau_{measure}")
        for null, against, panel in (
            ("random places", null_of(measure).removeprefix("importance_"), levels(f"random_tau_{measure}")),
            ("untrained model", measure, untrained(f"tau_{measure}")),
        ):
            if tau is not None and panel is not None:
                panels = {"tau": tau.where(panel), "null_tau": panel.where(tau), "difference": tau.minus(panel)}
                for row in levels.rows(panels, measure=measure, null=null, null_measure=against):
                    yield row | {"exceeds": "yes" if row["difference_ci_low"] > 0 else "no"}


def published_against_nulls(measured: pd.DataFrame, published: Published) -> pd.DataFrame:
    """(b) Each published tau beside the nulls measured for its projection and model. exceeds: it is above their interval."""
    table6 = pd.Series(published, name="published").rename_axis(KEYS).reset_index().drop(columns="training")
    table6 = table6.assign(measure=table6.pop("statistic").str.removeprefix("tau attention–"))
    joined = table6.merge(measured.filter(regex="^(?!tau|difference|lambda|exceeds)"))
    exceeds = np.where(joined["published"] > joined["null_tau_ci_high"], "yes", "no")
    return joined.assign(difference=joined["published"] - joined["null_tau"], exceeds=exceeds)


def scores(model: Model) -> Iterator[dict]:
    """(f) The sweep with a free and a fixed scale of scores and with attention learning at another rate."""
    for (scale, rate), cells in model.variants().items():
        levels = model.lambdas(cells)
        panels = {name: levels(name) for name in ("support_share", "entropy", "accuracy")}
        yield from levels.rows(panels, scale=scale, attention_rate=rate)


def effect_kept(model: Model) -> Iterator[dict]:
    """(f) How much of the effect of lambda free scores keep beside those of a fixed scale and the same rate."""
    variants = model.variants()
    for (scale, rate), cells in variants.items():
        for (other, own_rate), fixed in variants.items():
            if scale == "free" != other and rate == own_rate and (kept := model.lambdas(cells).kept(fixed)):
                yield {**model.heading, "scale": scale, "attention_rate": rate, "statistic": "entropy", **kept}
