"""Tables 1, 2, 3, 5 and 6 of Meister et al. (2021), from records, beside the published numbers.

Only cells of the paper's kind enter the paper's tables (`sweep.is_of_the_paper`): trained on labels at one rate, scores of
a free scale, under softmax, sparsemax, sparsegen or uniform attention; Table 5 adds adversaries. `sparsity_sweep` holds
every cell. What a cell lacks the columns for is left out.

Columns that the paper's tables share:

* n, n_undefined: texts with and without a value, over all seeds: three seeds of 100 texts make 300
* mean: over seeds, of the mean over texts. ci_low, ci_high: its 95 % bootstrap interval over seeds and texts
  (`numbers`)
* std: standard deviation over texts (population), mean over seeds. sd_over_seeds: sample standard deviation over seeds, NaN
  for one. n_seeds: seeds that have a value
* published, published_std: what the paper prints, NaN where it prints nothing. difference: mean - published
* inside_seed_spread: whether the published value lies within mean +- 2 sd_over_seeds: "yes" or "no"; "one seed" where the
  spread is not known; "not published"; "undefined" where nothing was measured. Published values are rounded to two or three
  digits, and no allowance is made for that

Source: Meister, Lazov, Augenstein & Cotterell (2021), Is Sparse Attention more Interpretable?
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.cells import Cell, pair_name
from attnfaith.stats import Panel, correlations

from .models import Model, models
from .numbers import (
    INPUTS,
    STATES,
    accuracy_difference,
    attention_divergence,
    correct,
    entropy,
    over_states,
    prediction_change,
    support,
    support_share,
    tau,
)
from .sweep import attention_rate, entmax_alpha, is_adversary, is_of_the_paper, score_scale, sparsegen_lambda
from .trends import sharpness


HIDDEN_TO_INPUT = "hidden_to_input_entropy"
PUBLISHED = ("table", "dataset", "encoder", "alignment", "projection", "training", "statistic", "mean", "std")
SWEEP = "sparsegen sweep"
SHARED = ("n", "n_undefined", "mean", "ci_low", "ci_high", "std", "sd_over_seeds", "n_seeds")
OF_THE_PAPER = ("published", "published_std", "difference", "inside_seed_spread")

Published = Mapping[tuple, tuple[float, float]]


# ------------------------------------------------------------------------------------------------ published numbers


def read_published(published: pd.DataFrame | None) -> Published:
    """(mean, std) of each published number by (table, dataset, encoder, alignment, projection, training, statistic), texts.

    An empty field is "". Raises StudyError where a column is missing, a value is no number, or a number comes twice.
    """
    if published is None:
        return {}
    if missing := [name for name in PUBLISHED if name not in published.columns]:
        raise StudyError(f"published numbers: columns {missing} are missing; needed: {', '.join(PUBLISHED)}")
    for name in ("mean", "std"):
        if not pd.api.types.is_numeric_dtype(published[name]):
            raise StudyError(f"published numbers: the column '{name}' holds a value that is no number")
    keys = list(PUBLISHED[:-2])
    text = published[keys].astype(object).where(published[keys].notna(), "").astype(str)
    if (repeated := text.duplicated()).any():
        raise StudyError(f"a published number comes twice: {text[repeated].iloc[0].to_dict()}; keep one of the two")
    values = zip(published["mean"].astype(float), published["std"].astype(float), strict=True)
    return dict(zip(text.itertuples(index=False, name=None), values, strict=True))


def with_published(
    row: Mapping, known: Published, table: int, statistic: str, *, projection: str = "", training: str = ""
) -> dict:
    """A row and, behind it, the published number of its data set and model, under the given names of the paper's table."""
    key = (str(table), row["dataset"], row["encoder"], row["alignment"], projection, training, statistic)
    value, std = known.get(key, (np.nan, np.nan))
    difference = row["mean"] - value
    if np.isnan(value):
        inside = "not published"
    elif np.isnan(row["mean"]):
        inside = "undefined"
    elif np.isnan(row["sd_over_seeds"]):
        inside = "one seed"
    else:
        inside = "yes" if abs(difference) <= 2 * row["sd_over_seeds"] else "no"
    return {**row, "published": value, "published_std": std, "difference": difference, "inside_seed_spread": inside}


def _frame(rows: Sequence[Mapping]) -> pd.DataFrame:
    """Rows as a table: what identifies a row, the shared columns in one order, what is published, and the rest."""
    table = pd.DataFrame(rows)
    if not len(table):
        return table
    first = list(table.columns[: table.columns.get_loc("n")])
    middle = [name for name in (*SHARED, *OF_THE_PAPER) if name in table.columns]
    return table[[*first, *middle, *(name for name in table.columns if name not in (*first, *middle))]]


# --------------------------------------------------------------------------------------------- models and their levels


def paper_models(cells: Sequence[Cell]) -> list[Model]:
    """The models of the paper's cells: variants have no part in them, not even in the draws of an interval."""
    return models([cell for cell in cells if is_of_the_paper(cell)])


def levels(model: Model) -> dict[str, list[Cell]]:
    """The paper's cells of a model by projection: softmax, sparsegen from dense to sparse, uniform; one cell a seed."""
    by_name: dict[str, list[Cell]] = {}
    for cell in model.plain:
        if is_of_the_paper(cell):
            by_name.setdefault(str(cell.heading["projection"]), []).append(cell)
    return by_name


def spread(values: Sequence[float]) -> dict[str, float]:
    """mean, sd_over_seeds and n_seeds of one number per seed; NaN ones are left out."""
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values)]
    return {
        "mean": float(values.mean()) if len(values) else np.nan,
        "sd_over_seeds": float(values.std(ddof=1)) if len(values) > 1 else np.nan,
        "n_seeds": len(values),
    }


def _columns_of_levels(panel: Panel) -> Iterator[dict | None]:
    """The shared columns of each level of a panel; None where no cell of the level has the columns."""
    for values, held, n, low, high in zip(panel.values, panel.held, panel.n, *panel.intervals(), strict=True):
        seeds = [row[~np.isnan(row)] for row in values]
        seeds = [row for row in seeds if len(row)]
        columns = {"n": int(n), "n_undefined": int(held.sum() - n), **spread([row.mean() for row in seeds])}
        columns |= {"ci_low": float(low), "ci_high": float(high)}
        columns["std"] = float(np.mean([row.std() for row in seeds])) if seeds else np.nan
        yield columns if held.any() else None


def _rows(model: Model, groups: Mapping[str, list[Cell]], number: Callable, *arguments, **other) -> dict[str, dict]:
    """What identifies a row, and the shared columns of a number, by the name of each group that has it."""
    panel = model.panel(list(groups.values()), number, *arguments, **other) if groups else None
    if panel is None:
        return {}
    return {
        name: {**model.heading, "projection": str(cells[0].heading["projection"]), **columns}
        for (name, cells), columns in zip(groups.items(), _columns_of_levels(panel), strict=True)
        if columns is not None
    }


# --------------------------------------------------------------------------------------------------- the paper's tables


def meister_table1(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Normalised entropy of g_h(x), how evenly an encoder state depends on the tokens: 0 on one alone, 1 on all alike.

    One row per model and projection. mean, ci and std are over texts, of the mean over a text's states: each text weighs the
    same. mean_over_states, std_over_states: over all states of all texts, mean over seeds; n_states, n_states_undefined: how
    many, over all seeds. Other columns: see the module.
    """
    known, rows = read_published(published), []
    for model in paper_models(cells):
        groups = levels(model)
        for name, row in _rows(model, groups, over_states, HIDDEN_TO_INPUT).items():
            states = [np.concatenate(records.rows(cell.table, HIDDEN_TO_INPUT)) for cell in _with_states(groups[name])]
            defined = [values[~np.isnan(values)].astype(np.float64) for values in states]
            count = sum(len(values) for values in defined)
            row["n_states"], row["n_states_undefined"] = count, sum(len(values) for values in states) - count
            filled = [values for values in defined if len(values)]
            row["mean_over_states"] = float(np.mean([values.mean() for values in filled])) if filled else np.nan
            row["std_over_states"] = float(np.mean([values.std() for values in filled])) if filled else np.nan
            rows.append(with_published(row, known, 1, HIDDEN_TO_INPUT, projection=name))
    return _frame(rows)


def _with_states(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if HIDDEN_TO_INPUT in cell.table.column_names]


AGAINST = ("lambda", "-log10(1 - lambda)", "support size", "support share")
OF_THE_SWEEP = ("entropy of gradient_norm", "entropy of leave_one_out", "entropy of attention", "support size")


def meister_table2(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Correlation, over the cells of a sweep, of lambda with the entropy of g_y(x) and of D_y(x), the sign in words.

    Cells are those that lie on the axis of lambda: sparsegen, and sparsemax as lambda = 0; softmax and uniform attention lie
    on none. One row per model, `of` and `against`. of: normalised entropy of gradient_norm or leave_one_out, means over the
    texts of a cell; beside them that of attention, and its mean support size. against: lambda; -log10(1 - lambda), which
    orders cells alike and spaces them by the temperature that sparsegen is; mean support size; mean share of tokens in the
    support. The last two grow as lambda falls, where training does not undo the temperature.

    n, n_undefined: cells with a value on both sides, and those without; n_lambdas; n_seeds. kendall (tau-b), spearman,
    pearson: over all cells, with 95 % bootstrap intervals (`statistics.correlations`; drawn are the cells). mean,
    sd_over_seeds: of Kendall's tau-b of each seed's own sweep. in_words: the direction of Kendall's tau-b, and whether it is
    towards sparser attention, which is asked of the mean support. published (Kendall; with lambda and gradient_norm only)
    and what follows: see the module.
    """
    known, rows = read_published(published), []
    for model in paper_models(cells):
        swept = [cell for cell in model.plain if sparsegen_lambda(cell) is not None]
        swept.sort(key=lambda cell: (sparsegen_lambda(cell), cell.heading["seed"]))  # the same draws whatever their order
        lambdas = np.array([sparsegen_lambda(cell) for cell in swept])
        values = {
            **{name: over_texts(swept, entropy, name.removeprefix("entropy of "))[:, 0] for name in OF_THE_SWEEP[:3]},
            "lambda": lambdas,
            "-log10(1 - lambda)": sharpness(lambdas),
            "support size": over_texts(swept, support)[:, 0],
            "support share": over_texts(swept, support_share)[:, 0],
        }
        seeds = np.array([cell.heading["seed"] for cell in swept])
        for of in OF_THE_SWEEP:
            for against in AGAINST:
                defined = ~np.isnan(values[of]) & ~np.isnan(values[against])
                if not defined.any() or (of == "support size" and against.startswith("support")):
                    continue
                x, y = values[against][defined], values[of][defined]
                by_seed = [(x[seeds[defined] == seed], y[seeds[defined] == seed]) for seed in np.unique(seeds[defined])]
                row = {
                    **model.heading,
                    "of": of,
                    "against": against,
                    "n": int(defined.sum()),
                    "n_undefined": int((~defined).sum()),
                    **spread(kendall_tau(*zip(*by_seed, strict=True))[0]),
                    "n_lambdas": len(np.unique(lambdas[defined])),
                }
                coefficients = correlations(x, y)
                row |= {
                    name: value
                    for name, value in coefficients.items()
                    if name.startswith(("kendall", "spearman", "pearson"))
                }
                sparser = kendall_tau([lambdas[defined]], [values["support size"][defined]])[0][0]
                row["in_words"] = in_words(of, against, row, sparser)
                rows.append(with_published(row, known, 2, f"{against}–{of}", projection=SWEEP))
    return _frame(rows)


def over_texts(cells: Sequence[Cell], number: Callable, *arguments: str) -> np.ndarray:
    """Mean and standard deviation over the texts of each cell, [cells, 2]; NaN where a cell has no value."""
    per_cell = [number(cell, *arguments) for cell in cells]
    defined = [np.zeros(0) if values is None else values[~np.isnan(values)] for values in per_cell]
    return np.array([(row.mean(), row.std()) if len(row) else (np.nan, np.nan) for row in defined]).reshape(-1, 2)


def in_words(of: str, against: str, row: Mapping[str, float], support_over_lambda: float) -> str:
    """The direction of row["kendall"] in words, "no clear direction" where its interval holds 0.

    support_over_lambda: Kendall's tau-b of lambda with the mean support size of the same cells: below 0, attention gets
    sparser as lambda rises.
    """
    tau_b, low, high = (row[f"kendall{end}"] for end in ("", "_ci_low", "_ci_high"))
    if np.isnan(tau_b):
        return "undefined"
    if not (low > 0 or high < 0):
        return "no clear direction"
    what = "entropy" if of.startswith("entropy") else of
    direction = "falls" if tau_b < 0 else "rises"
    if against.startswith("support"):
        opposite = "rises" if tau_b < 0 else "falls"
        return f"{what} {direction} as {against} rises, that is {opposite} as attention gets sparser"
    if of == "support size":
        return f"support size {direction} as lambda rises: attention gets {'sparser' if tau_b < 0 else 'less sparse'}"
    if support_over_lambda < 0:
        return f"{what} {direction} as lambda rises, that is as attention gets sparser"
    return f"{what} {direction} as lambda rises, though attention does not get sparser"


def meister_table3(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Texts of each data set, and accuracy of each model and projection.

    One row per data set for n_train and n_test, the texts of its splits as the runs stored them (encoder, alignment and
    projection are ""; n counts runs), and one per model and projection for accuracy, over the texts that have a label. The
    paper does not say which projection its accuracies are of: they stand beside softmax. Columns: see the module.
    """
    known, rows, sizes = read_published(published), [], {}
    for model in paper_models(cells):
        groups = levels(model)
        for name, row in _rows(model, groups, correct).items():
            rows.append(with_published(_as_statistic("accuracy", row), known, 3, "accuracy" if name == "softmax" else ""))
        data = {**model.heading, "encoder": "", "alignment": ""}
        for cell in (cell for group in groups.values() for cell in group):
            for split, size in split_sizes(cell).items():
                sizes.setdefault((*data.items(), ("projection", ""), ("statistic", f"n_{split}")), []).append((cell, size))
    first = []
    for key, known_sizes in sizes.items():
        by_seed = {cell.heading["seed"]: size for cell, size in known_sizes}
        row = dict(key) | {"n": len(known_sizes), "n_undefined": 0, **spread(list(by_seed.values()))}
        first.append(with_published(row, known, 3, row["statistic"]))
    return _frame([*first, *rows])


def _as_statistic(statistic: str, row: Mapping, **keys: object) -> dict:
    """The row of one statistic among several: its name, and what else names the row, stand before its numbers."""
    names = {name: value for name, value in row.items() if name not in SHARED}
    return {**names, **keys, "statistic": statistic, **{name: row[name] for name in SHARED}}


def split_sizes(cell: Cell) -> dict[str, int]:
    """Texts of the training and the test split of the run that made a cell; {} where the record does not say."""
    sizes = cell.settings.get("run", {}).get("sizes", {})
    return {name: sizes[name] for name in ("train", "test") if name in sizes}


def meister_table5(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Adversaries beside their base, the model of the same seed and projection that they were trained to differ from.

    One row per model, projection, objective and statistic: jsd, between their attentions, in nats (0..ln 2); tvd, between
    their predictions (0..1); accuracy; accuracy_difference, the adversary's less the base's, over texts that both hold.
    training: "frozen" where only the attention was trained, else "unfrozen"; divergence and weight are what it was trained
    to raise. Adversaries without a base have their accuracy alone. The paper does not name the projection, nor a weight: its
    numbers stand beside each adversary of the same training. Columns: see the module.
    """
    known, rows = read_published(published), []
    for model in models([cell for cell in cells if is_of_the_paper(cell) or _is_paper_adversary(cell)]):
        bases: dict[str, dict[int, Cell]] = {name: _by_seed(group) for name, group in levels(model).items()}
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in model.cells:
            if is_adversary(cell):
                key = (str(cell.heading["projection"]), str(cell.heading["objective"]))
                groups.setdefault(key, []).append(cell)
        for (projection, objective), group in groups.items():
            identity = group[0].identity
            training = "frozen" if identity.adversary_frozen else "unfrozen"
            keys = {
                "training": training,
                "divergence": identity.adversary_divergence,
                "weight": identity.adversary_weight,
            }
            for statistic, number in OF_AN_ADVERSARY.items():
                other = {} if statistic == "accuracy" else {"partners": bases.get(projection, {})}
                for row in _rows(model, {objective: group}, number, **other).values():
                    rows.append(
                        with_published(_as_statistic(statistic, row, **keys), known, 5, statistic, training=training)
                    )
    return _frame(rows)


def _is_paper_adversary(cell: Cell) -> bool:
    return is_adversary(cell) and score_scale(cell) is None


def _by_seed(cells: Sequence[Cell]) -> dict[int, Cell]:
    return {cell.heading["seed"]: cell for cell in cells}


OF_AN_ADVERSARY = {
    "jsd": attention_divergence,
    "tvd": prediction_change,
    "accuracy": correct,
    "accuracy_difference": accuracy_difference,
}


def meister_table6(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Kendall's tau-b of attention with importance, -1..1; NaN under uniform attention, where every text is undefined.

    One row per model, projection and pair. Of inputs: gradient_norm, the paper's g_y(x), and leave_one_out, D_y(x). Of
    states: gradient_norm_hidden, g_y(h), and two ways to remove a state for D_y(h): leave_one_out_reproject_hidden projects
    the other scores again, beside which the published values stand, and leave_one_out_hidden renormalises the other weights;
    the paper does not say which it means, and under softmax they are the same. Columns: see the module.
    """
    known, rows = read_published(published), []
    for model in paper_models(cells):
        groups = levels(model)
        by_measure = {measure: _rows(model, groups, tau, measure) for measure in (*INPUTS, *STATES)}
        for name in groups:
            for measure in by_measure:
                if name in by_measure[measure]:
                    row = _as_statistic(f"tau {pair_name('attention', measure)}", by_measure[measure][name])
                    rows.append(with_published(row, known, 6, row["statistic"], projection=name))
    return _frame(rows)


# ------------------------------------------------------------------------------------------------------ every cell


def sparsity_sweep(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row per cell, variants too: its knobs, how sparse its attention is, how even and how alike importance is.

    lambda, alpha, score_scale: of the projection, NaN where it has none or the scale is free. attention_rate: the learning
    rate of the alignment over that of the rest. n: texts. Means over texts: support_size, support_share (tokens with a
    weight above zero); entropy_<scores>, normalised, 0..1, of attention, of the input measures, and of hidden_to_input over
    states; tau_<measure>, of attention with it. <name>_n_undefined: texts without it. NaN where the cell has none.
    accuracy, roc_auc: over the texts that have a label.
    """
    rows = []
    for cell in cells:
        values = {"support_size": support(cell), "support_share": support_share(cell)}
        values |= {f"entropy_{name}": entropy(cell, name) for name in ("attention", *INPUTS)}
        values["entropy_hidden_to_input"] = over_states(cell, HIDDEN_TO_INPUT)
        values |= {f"tau_{name}": tau(cell, name) for name in (*INPUTS, *STATES)}
        row = {**cell.heading, "n": len(cell)}
        for name, knob in KNOBS.items():
            row[name] = np.nan if (value := knob(cell)) is None else value
        for name, per_text in values.items():
            defined = np.zeros(0) if per_text is None else per_text[~np.isnan(per_text)]
            row[name] = float(defined.mean()) if len(defined) else np.nan
            row[f"{name}_n_undefined"] = len(cell) - len(defined)
        scores = classification_scores(cell.probs, cell.labels)
        rows.append(row | {"accuracy": scores["accuracy"], "roc_auc": scores["roc_auc"]})
    return pd.DataFrame(rows)


KNOBS = {"lambda": sparsegen_lambda, "alpha": entmax_alpha, "score_scale": score_scale, "attention_rate": attention_rate}


def tables(cells: Sequence[Cell], published: pd.DataFrame | None = None) -> dict[str, pd.DataFrame]:
    """Every table of the protocol, by file name; one without rows is left out.

    published: what `read_published` takes. Raises ValueError where it is no such table.
    """
    made = {
        "meister_table1": meister_table1(cells, published),
        "meister_table2": meister_table2(cells, published),
        "meister_table3": meister_table3(cells, published),
        "meister_table5": meister_table5(cells, published),
        "meister_table6": meister_table6(cells, published),
        "sparsity_sweep": sparsity_sweep(cells),
    }
    return {name: table for name, table in made.items() if len(table)}
