"""What "Is Sparse Attention more Interpretable?" (Meister et al., 2021) left open, asked of the records of a study.

(a) how far ties alone lower tau-b; (b) what attention at random places and models without training reach; (c) gradients with
attention held fixed; (d) two ways to remove a state; (e) agreement that ties do not limit; (f) sparsegen as a temperature;
(g) entmax as another knob. Each is a table and a figure; a question whose cells are missing has none. `claims` judges what
the paper says, and summary.md puts both into words.

Tables have one row per model x projection (or lambda, alpha) x measure; a model is what shares data set, split, encoder,
alignment and word vectors. n: texts with a value, summed over the n_seeds seeds that have one; n_undefined: the others.
A number is the mean over seeds of the mean over texts; <name>_ci_low, <name>_ci_high: its 95 % interval over seeds and
texts, see `numbers`. Slopes are per decade of 1 / (1 - lambda), the factor by which sparsegen sharpens scores.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import Cell
from attnfaith.stats import Panel

from . import claims
from .models import Model, by_projection, interval_columns, level_columns, levels_of, models
from .numbers import (
    INPUTS,
    MEASURES,
    RANDOM_SUPPORT,
    STATES,
    agreement_of_cut,
    agreement_without_ties,
    any_token_differs,
    ceiling,
    correct,
    entropy,
    mean_importance,
    random_support_tau,
    support,
    support_share,
    tau,
    tau_between,
    tau_of_ties_alone,
    tau_over_ceiling,
    tied_pairs,
    tokens_that_differ,
)
from .sweep import attention_rate, entmax_alpha, is_untrained, score_scale, sparsegen_lambda
from .tables import read_published
from .trends import rank_correlation, sharpness, slope, trend


RANDOM, UNTRAINED = "random places", "untrained model"
SHAPE: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "support": (support, ()),
    "support_share": (support_share, ()),
    "entropy": (entropy, ("attention",)),
    "accuracy": (correct, ()),
    **{f"tau_{measure}": (tau, (measure,)) for measure in INPUTS},
    **{f"tau_over_ceiling_{measure}": (tau_over_ceiling, (measure,)) for measure in INPUTS},
}
"""What a knob may move, by column name: tokens with weight, their share, normalised entropy of attention, accuracy, tau."""

NOTHING = np.full(1, np.nan)
"""Draws of a statistic that is undefined."""


def tables(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> dict[str, pd.DataFrame]:
    """The tables of the questions that the cells can answer, and `claims`; {} without cells. published: the published
    numbers with columns table, dataset, encoder, alignment, projection, training, statistic, mean, std; those of table 6 are
    held against the nulls in `question_b_published`. Raises ValueError where they are no such table.
    """
    if not cells:
        return {}
    read_published(published)
    groups = models(cells)
    answers = {name: pd.DataFrame(row for model in groups for row in rows(model)) for name, rows in QUESTIONS.items()}
    if published is not None and len(answers["question_b_nulls"]):
        answers["question_b_published"] = published_against_nulls(answers["question_b_nulls"], published)
    return {name: table for name, table in answers.items() if len(table)} | {"claims": claims.claims(groups, published)}


# ------------------------------------------------------------------------------------------------ rows of a table

Levels = Sequence[tuple[dict[str, object], Sequence[Cell]]]
"""What names a row beside its model, and the cells of all seeds that it describes."""


def _projections(model: Model) -> Levels:
    """The plain cells by projection, lambda beside, NaN where there is none."""
    groups = by_projection(model.plain)
    knobs = {name: sparsegen_lambda(cells[0]) for name, cells in groups.items()}
    return [({"projection": name, "lambda": _number(knobs[name])}, cells) for name, cells in groups.items()]


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _sweep(cells: Sequence[Cell]) -> Levels:
    """Cells by lambda, those that have one."""
    return [({"lambda": value}, part) for value, part in levels_of(cells, sparsegen_lambda).items()]


def _panels(model: Model, levels: Levels) -> Callable[..., Panel | None]:
    return lambda number, *arguments, **partners: model.panel([cells for _, cells in levels], number, *arguments, **partners)


def _rows(model: Model, levels: Levels, panels: dict[str, Panel | None], **more: object) -> Iterator[dict]:
    """One row for each level at which the first panel has a value; none where that panel is not there."""
    if next(iter(panels.values())) is not None:
        for (head, _), row in zip(levels, level_columns(panels, len(levels)), strict=True):
            if row["n"]:
                yield {**model.heading, **head, **more, **row}


def _difference(first: Panel | None, second: Panel | None) -> Panel | None:
    return None if first is None or second is None else first.minus(second)


def _paired(first: Panel | None, second: Panel | None) -> tuple[Panel | None, Panel | None, Panel | None]:
    """Two panels over the texts where both have a value, and their difference; nothing where one is not there."""
    if first is None or second is None:
        return None, None, None
    return first.where(second), second.where(first), first.minus(second)


def _moves(name: str, x: np.ndarray, panel: Panel | None) -> dict[str, float]:
    """Slope and rank correlation (Kendall) of a number with a knob, over the means of its filled levels."""
    row = {}
    for statistic, take in (("slope", slope), ("kendall", rank_correlation)):
        estimate = (np.nan, NOTHING) if panel is None else trend(take, x, panel)
        row |= interval_columns(name + statistic, *estimate)
    return row


def _moves_at_all(panel: Panel | None) -> bool:
    return panel is not None and panel.filled.sum() > 1


def _counted(panel: Panel) -> dict[str, int]:
    return {
        "n_levels": int(panel.filled.sum()),
        "n_seeds": int(panel.n_seeds.max()),
        "n": int(panel.n[panel.filled].sum()),
        "n_undefined": int(panel.n_undefined[panel.filled].sum()),
    }


def _in_words(low: float, high: float) -> str:
    """ "falls", "rises", or "unclear" where the interval of a slope holds 0."""
    return "falls" if high < 0 else "rises" if low > 0 else "unclear"


# ------------------------------------------------------------------------------------------------------ the questions


def tie_ceiling(model: Model) -> Iterator[dict]:
    """(a) tau, the ceiling that ties put on it, tau over the ceiling, share of tied pairs of attention, and of inputs
    tau_ties_alone: the tau of the same seed's softmax model, its attention cut to the support that this projection has in
    the same text. (A state's importance follows its weight, so that cutting attention alone would say nothing there.)
    """
    levels = _projections(model)
    take = _panels(model, levels)
    for measure in MEASURES:
        panels = {
            "tau": take(tau, measure),
            "ceiling": take(ceiling, measure),
            "tau_over_ceiling": take(tau_over_ceiling, measure),
            "tau_ties_alone": _of_inputs(take, measure, tau_of_ties_alone, model),
            "tied_pairs": take(tied_pairs),
        }
        yield from _rows(model, levels, panels, measure=measure)


def tie_ceiling_of_cells(model: Model) -> Iterator[dict]:
    """(a) tau, its ceiling, tau over the ceiling and the share of tied pairs of attention of every single cell, variants and
    untrained models too: means over the n texts where tau is defined, without intervals.
    """
    for cell in model.cells:
        for measure in MEASURES:
            if (plain := tau(cell, measure)) is None or not (known := ~np.isnan(plain)).any():
                continue
            numbers = {
                "tau": plain,
                "ceiling": ceiling(cell, measure),
                "tau_over_ceiling": tau_over_ceiling(cell, measure),
                "tied_pairs": tied_pairs(cell),
            }
            row = {**cell.heading, "measure": measure, "n": int(known.sum()), "n_undefined": int((~known).sum())}
            yield row | {name: float(values[known].mean()) for name, values in numbers.items()}


def _of_inputs(take: Callable, measure: str, number: Callable, model: Model, *arguments: str) -> Panel | None:
    """A number of the softmax model cut to the support of the cells; None for the importance of states."""
    return take(number, measure, *arguments, partners=model.dense) if measure in INPUTS else None


def fall(model: Model) -> Iterator[dict]:
    """(a) How tau moves over the lambdas, and what is left of its fall without ties: left_after_ceiling, slope of tau over
    its ceiling / slope of tau; left_beyond_ties, 1 - slope of tau_ties_alone / slope of tau. Both NaN unless the interval of
    the slope of tau lies below 0; beyond 0..1 where the corrected number rises, or falls faster.

    Dividing by the ceiling is the harsher correction: of the pairs it keeps more join a chosen token and one left out, which
    are easier to put in order, so that it rises with sparsity even where the relation stays as it is. Cutting the attention
    of a softmax model keeps relation and importance and changes ties alone.
    """
    levels = _sweep(model.plain)
    take, x = _panels(model, levels), sharpness(head["lambda"] for head, _ in levels)
    for measure in MEASURES:
        plain = take(tau, measure)
        if not _moves_at_all(plain):
            continue
        over, alone = take(tau_over_ceiling, measure), _of_inputs(take, measure, tau_of_ties_alone, model)
        slopes = _moves("tau_", x, plain)
        row = {**model.heading, "measure": measure, **_counted(plain), **slopes}
        row |= _moves("tau_over_ceiling_", x, over) | _moves("tau_ties_alone_", x, alone)
        falls = slopes["tau_slope_ci_high"] < 0
        row |= _share("left_after_ceiling", x, over if falls else None, plain, lambda share: share)
        yield row | _share("left_beyond_ties", x, alone if falls else None, plain, lambda share: 1 - share)


def _share(
    name: str, x: np.ndarray, part: Panel | None, whole: Panel, read: Callable[[np.ndarray], np.ndarray]
) -> dict[str, float]:
    """Slope of a part over the slope of the whole, as `read` takes it, with its interval; NaN without a part."""
    if part is None:
        return interval_columns(name, np.nan, NOTHING)
    with np.errstate(divide="ignore", invalid="ignore"):
        value, draws = (read(np.divide(*pair)) for pair in zip(trend(slope, x, part), trend(slope, x, whole), strict=True))
    return interval_columns(name, float(value), draws)


def nulls(model: Model) -> Iterator[dict]:
    """(b) tau of the trained model beside what needs no training, over the texts where both are defined.

    "random places": the text's own weights at random places, so that support and weights are the same; held against the
    importance of inputs, or against the importance of states under those very weights, held fixed in the gradient
    (null_measure); for the gradient norm of states its tau is then 1 under an affine read-out. "untrained model": the same
    projection and seed before training. difference: trained - null, text by text; exceeds: "yes" where its interval lies
    above 0, "no" elsewhere.
    """
    levels = _projections(model)
    take = _panels(model, levels)
    untrained = by_projection(cell for cell in model.cells if is_untrained(cell) and score_scale(cell) is None)
    other = [untrained.get(head["projection"], []) for head, _ in levels]
    for measure in MEASURES:
        trained = take(tau, measure)
        null_measure = RANDOM_SUPPORT[measure].removeprefix("importance_")
        ways = {
            RANDOM: (null_measure, take(random_support_tau, measure)),
            UNTRAINED: (measure, model.panel(other, tau, measure)),
        }
        for way, (against, null) in ways.items():
            mine, theirs, difference = _paired(trained, null)
            panels = {"tau": mine, "null_tau": theirs, "difference": difference}
            for row in _rows(model, levels, panels, measure=measure, null=way, null_measure=against):
                yield row | {"exceeds": "yes" if row["difference_ci_low"] > 0 else "no"}


def published_against_nulls(measured: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """(b) Each published correlation of Table 6 beside the nulls measured for its projection and model.

    exceeds: "yes" where the published mean lies above the interval of the null's mean, "no" elsewhere. published_std is the
    spread that the paper states; it is no interval of the mean.
    """
    keys = ["dataset", "encoder", "alignment", "projection", "measure"]
    wanted = published[(published["table"].astype(str) == "6") & published["statistic"].str.startswith("tau attention–")]
    wanted = wanted.assign(measure=wanted["statistic"].str.removeprefix("tau attention–"))
    wanted = wanted.rename(columns={"mean": "published", "std": "published_std"})[[*keys, "published", "published_std"]]
    numbers = ["null_measure", "n_seeds", "n", "n_undefined", "null_tau", "null_tau_ci_low", "null_tau_ci_high"]
    others = ["texts", "training_texts", "split", "vectors"]
    joined = wanted.merge(measured[[*keys, *others, "null", *numbers]], on=keys)
    joined = joined[[*keys, *others, "null", *numbers, "published", "published_std"]]
    joined["difference"] = joined["published"] - joined["null_tau"]
    joined["exceeds"] = np.where(joined["published"] > joined["null_tau_ci_high"], "yes", "no")
    return joined


def detached(model: Model) -> Iterator[dict]:
    """(c) tau with the norm of the gradient that flows through attention (tau) and with attention held fixed (tau_detached);
    difference: held fixed - through. Of states held fixed it is 1 by construction under an affine read-out.
    """
    levels = _projections(model)
    take = _panels(model, levels)
    for place, ending in (("inputs", ""), ("states", "_hidden")):
        through, held = take(tau, f"gradient_norm{ending}"), take(tau, f"gradient_norm_detached{ending}")
        own, fixed, difference = _paired(through, held)
        panels = {"tau": own, "tau_detached": fixed, "difference": _negative(difference)}
        yield from _rows(model, levels, panels, place=place)


def _negative(panel: Panel | None) -> Panel | None:
    return None if panel is None else Panel(-panel.values, panel.held)


def removal(model: Model) -> Iterator[dict]:
    """(d) A state removed by renormalising the other weights against projecting the other scores again: tau of attention
    with either, difference (re-projecting - renormalising), mean importance (TVD, 0..1) of either over tokens, share of
    tokens and of texts (any token) where the two importances differ by more than .0001, and tau between the two.
    """
    levels = _projections(model)
    take = _panels(model, levels)
    ways = STATES[1:]
    again, renormalised, difference = _paired(*(take(tau, measure) for measure in reversed(ways)))
    panels = {
        "tau_renormalise": renormalised,
        "tau_reproject": again,
        "difference": difference,
        "importance_renormalise": take(mean_importance, ways[0]),
        "importance_reproject": take(mean_importance, ways[1]),
        "tokens_that_differ": take(tokens_that_differ, *ways),
        "texts_that_differ": take(any_token_differs, *ways),
        "tau_between": take(tau_between, *ways),
    }
    yield from _rows(model, levels, panels)


def without_ties(model: Model) -> Iterator[dict]:
    """(e) tau beside two agreements that ties do not limit: the overlap of the fifth of tokens of largest attention (fewer
    where the support is smaller) with as many of largest importance, and the average precision of importance against the
    support, undefined where all tokens have weight. <name>_chance: what random importance reaches on the same texts;
    <name>_above_chance: (value - chance) / (1 - chance), 0 at chance and 1 at best, taken text by text. <name>_cut: that of
    the softmax model, its attention cut as in (a), with the importance of inputs: what a smaller support does by itself.
    """
    levels = _projections(model)
    take = _panels(model, levels)
    for measure in MEASURES:
        panels = {"tau": take(tau, measure)}
        for which in ("overlap", "auprc"):
            for part in ("value", "chance", "above_chance"):
                name = which if part == "value" else f"{which}_{part}"
                panels[name] = take(agreement_without_ties, measure, which, part)
            panels[f"{which}_cut"] = _of_inputs(take, measure, agreement_of_cut, model, which)
        yield from _rows(model, levels, panels, measure=measure)


def without_ties_trend(model: Model) -> Iterator[dict]:
    """(e) How each of the three moves over the lambdas: slope, rank correlation, and in a word: "falls", "rises" or, where
    the interval of the slope holds 0, "unclear". beyond_cut_slope: the slope of its difference to the softmax model cut to
    the same support, on the texts where both are defined.
    """
    levels = _sweep(model.plain)
    take, x = _panels(model, levels), sharpness(head["lambda"] for head, _ in levels)
    for measure in MEASURES:
        panels = {"tau": (take(tau, measure), _of_inputs(take, measure, tau_of_ties_alone, model))}
        for which in ("overlap", "auprc"):
            own = take(agreement_without_ties, measure, which, "above_chance")
            panels[f"{which}_above_chance"] = own, _of_inputs(take, measure, agreement_of_cut, model, which)
        for name, (own, cut) in panels.items():
            if _moves_at_all(own):
                row = {**model.heading, "measure": measure, "agreement": name, **_counted(own), **_moves("", x, own)}
                row["moves"] = _in_words(row["slope_ci_low"], row["slope_ci_high"])
                yield row | _moves("beyond_cut_", x, _difference(own, cut))


def _variants(model: Model) -> dict[tuple[str, float], list[Cell]]:
    """Sparsegen cells by scale of scores ("free" or the standard deviation) and learning rate of attention."""
    variants: dict[tuple[str, float], list[Cell]] = {}
    for cell in model.cells:
        trained = cell.identity.objective == "classification"
        if trained and sparsegen_lambda(cell) is not None:
            scale = score_scale(cell)
            variants.setdefault(("free" if scale is None else f"{scale:g}", attention_rate(cell)), []).append(cell)
    return {key: cells for key, cells in sorted(variants.items(), key=lambda item: (item[0][0] != "free", item[0]))}


def temperature(model: Model) -> Iterator[dict]:
    """(f) The sweep of lambda with a free and a fixed scale of scores and with attention learning at another rate; models
    with one of these alone are left out. support: tokens with weight.

    effective_lambda: the lambda at which the sweep of fixed scale and the same rate has the same mean entropy of attention,
    read between its levels on the axis of log 1 / (1 - lambda). Scores of standard deviation s behave about as those of the
    fixed scale 1 at 1 - (1 - lambda) / s. NaN outside of that sweep, where its entropy does not fall throughout, and where
    it is missing.
    """
    variants = _variants(model)
    if len(variants) < 2:
        return
    for (scale, rate), cells in variants.items():
        levels, reference = _sweep(cells), _fixed(variants, scale, rate)
        effective = None if reference is None else _effective(model, levels, _sweep(reference))
        places = {head["lambda"]: place for place, (head, _) in enumerate(levels)}
        for row in _rows(model, levels, _shape(model, levels), scale=scale, attention_rate=rate):
            value, draws = (np.nan, NOTHING) if effective is None else (part[places[row["lambda"]]] for part in effective)
            yield row | interval_columns("effective_lambda", 1 - 10**-value, 1 - 10**-draws)


def _shape(model: Model, levels: Levels) -> dict[str, Panel | None]:
    take = _panels(model, levels)
    return {name: take(number, *arguments) for name, (number, arguments) in SHAPE.items()}


def _fixed(variants: dict, scale: str, rate: float) -> list[Cell] | None:
    """The sweep of fixed scale that a free one is held against."""
    if scale != "free":
        return None
    return next((cells for (other, own), cells in variants.items() if other != "free" and own == rate), None)


def _effective(model: Model, levels: Levels, reference: Levels) -> tuple[np.ndarray, np.ndarray]:
    """`sharpness` of the effective lambda of each level [X], and in each draw [X, D]."""
    own, fixed = (_panels(model, part)(entropy, "attention") for part in (levels, reference))
    x = sharpness(head["lambda"] for head, _ in reference)
    draws = [_read(*pair, x) for pair in zip(own.draws.T, fixed.draws.T, strict=True)]
    return _read(own.means, fixed.means, x), np.array(draws).T


def _read(values: np.ndarray, curve: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Where a falling curve over x takes the values; NaN outside of it, and everywhere where it does not fall throughout."""
    if len(curve) < 2 or not (np.diff(curve) < 0).all():
        return np.full(len(values), np.nan)
    return np.interp(-values, -curve, x, left=np.nan, right=np.nan)


def undone(model: Model) -> Iterator[dict]:
    """(f) How each number moves with lambda in each variant, and of the entropy of attention of a free sweep: kept, the
    slope of its effective lambda on lambda, both on the axis of log 1 / (1 - lambda), over the n_kept lambdas that have one
    and the seeds that the sweep of fixed scale has too. 1: the scores have the same scale whatever lambda is, so that lambda
    does all it can; 0: the model undoes it by larger or smaller scores. Unlike the slope of the entropy it does not depend
    on how large the scores are. NaN below two such lambdas.
    """
    variants = _variants(model)
    if len(variants) < 2:
        return
    for (scale, rate), cells in variants.items():
        levels, reference = _sweep(cells), _fixed(variants, scale, rate)
        x = sharpness(head["lambda"] for head, _ in levels)
        for name, panel in _shape(model, levels).items():
            if not _moves_at_all(panel):
                continue
            head = {**model.heading, "scale": scale, "attention_rate": rate, "statistic": name}
            row = head | _counted(panel) | _moves("", x, panel)
            yield row | _kept(model, cells, reference if name == "entropy" else None)


def _kept(model: Model, cells: Sequence[Cell], reference: Sequence[Cell] | None) -> dict[str, float]:
    seeds = {cell.heading["seed"] for cell in reference or ()}
    levels = _sweep([cell for cell in cells if cell.heading["seed"] in seeds])
    if not levels:
        return {"n_kept": 0, **interval_columns("kept", np.nan, NOTHING)}
    x = sharpness(head["lambda"] for head, _ in levels)
    value, draws = _effective(model, levels, _sweep(reference))
    known = ~np.isnan(value)
    return {"n_kept": int(known.sum()), **interval_columns("kept", float(slope(x, value)), slope(x[known], draws[known]))}


def _alphas(model: Model) -> Levels:
    """The plain cells by alpha; () where softmax and sparsemax, its ends, are all there is."""
    groups = levels_of(model.plain, entmax_alpha)
    return [({"alpha": alpha}, cells) for alpha, cells in groups.items()] if set(groups) - {1.0, 2.0} else []


def entmax(model: Model) -> Iterator[dict]:
    """(g) The statistics of (f) against alpha of entmax: 1 is softmax, 2 sparsemax."""
    levels = _alphas(model)
    if levels:
        yield from _rows(model, levels, _shape(model, levels))


def entmax_trend(model: Model) -> Iterator[dict]:
    """(g) Slope (per unit of alpha) and rank correlation of each with alpha."""
    if len(levels := _alphas(model)) < 2:
        return
    x = np.array([head["alpha"] for head, _ in levels])
    for name, panel in _shape(model, levels).items():
        if _moves_at_all(panel):
            row = _moves("", x, panel)
            words = _in_words(row["slope_ci_low"], row["slope_ci_high"])
            yield {**model.heading, "statistic": name, **_counted(panel), **row, "moves": words}


QUESTIONS: dict[str, Callable[[Model], Iterator[dict]]] = {
    "question_a_tie_ceiling": tie_ceiling,
    "question_a_cells": tie_ceiling_of_cells,
    "question_a_fall": fall,
    "question_b_nulls": nulls,
    "question_c_detached": detached,
    "question_d_removal": removal,
    "question_e_without_ties": without_ties,
    "question_e_trend": without_ties_trend,
    "question_f_temperature": temperature,
    "question_f_undone": undone,
    "question_g_entmax": entmax,
    "question_g_trend": entmax_trend,
}
