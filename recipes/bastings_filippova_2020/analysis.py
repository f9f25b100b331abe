"""The page "attention or saliency?": over models and data sets, which measure shows a developer what a model used?

From the cells that hold tests of explanations (`reporting.sections.saliency`): the ranking of measures by each test, one
row per kind of model and measure, means over training seeds; what is left of it in a model that was trained with tokens
erased, to which a shortened text is nothing new; and in one sentence per model what to use.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from attnfaith import __version__
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.blocks import Grid, differing, template
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.explanation_tests import TESTS
from attnfaith.reporting.render import frame, frames
from attnfaith.reporting.sections import completeness, saliency
from attnfaith.reporting.tables import format_number


PAGE = "attention_or_saliency.html"
MODEL = tuple(name for name in CELL if name != "seed")
RANKING_COLUMNS = (*MODEL, "measure", "n_seeds", "n_tests", "rank_mean", "share_among_best")
TRAINING_COLUMNS = (
    *CELL,
    "test",
    "n_measures",
    "tau",
    "first_plain",
    "first_erased",
    "attention_rank_plain",
    "attention_rank_erased",
    "attention_mean_plain",
    "attention_mean_erased",
)


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """The page and its tables, of the cells that were tested; nothing without such a cell. `reporting.sections.saliency`
    draws the tests of each cell.

    "saliency_ranking", one row per kind of model x measure. n_seeds: cells. n_tests: tests that count, as `advise` counts
    them. rank_mean: mean rank over these tests and the seeds. share_among_best: share of tests x seeds in which the measure
    is among the best, in 0..1. rank_<test>: mean rank by each test over seeds.

    "saliency_training", one row per cell that has a twin trained with tokens erased, and test: does erasing leave what the
    model knows? tau: Kendall's tau-b, over the n_measures that both have, of their means in the two models; first_plain,
    first_erased: the measure ranked first in each. attention_rank_*, attention_mean_*: of attention.

    "saliency_completeness": see `completeness.TABLE`.
    """
    cells = [cell for cell in cells if saliency.SECTION.applies(cell)]
    if not cells:
        return Analysis()
    made = frames(saliency.SECTION, cells)
    own = {
        "saliency_ranking": _ranking(cells, made["saliency_tests"]),
        "saliency_training": _training(cells, made["saliency_tests"]),
        "saliency_completeness": frame(completeness.TABLE, cells),
    }
    return Analysis(own, {PAGE: render(cells, made | own)})


def _ranking(cells: Sequence[Cell], made: pd.DataFrame) -> pd.DataFrame:
    rows = []
    counted = {tuple(cell.heading[name] for name in MODEL): cell for cell in cells}
    for identity, part in made.groupby(list(MODEL), sort=False, dropna=False):
        tests = saliency.counted_tests(counted[identity], part)
        for measure, of_measure in part.groupby("measure", sort=False):
            counts = of_measure[of_measure["test"].isin(tests)]
            ranks = {f"rank_{test}": values["rank"].mean() for test, values in of_measure.groupby("test", sort=False)}
            rows.append(
                dict(zip(MODEL, identity, strict=True))
                | {
                    "measure": measure,
                    "n_seeds": of_measure["seed"].nunique(),
                    "n_tests": len(tests),
                    "rank_mean": counts["rank"].mean(),
                    "share_among_best": counts["among_best"].mean(),
                }
                | ranks
            )
    ranks_shown = [f"rank_{test}" for test in TESTS if any(f"rank_{test}" in row for row in rows)]
    return pd.DataFrame(rows, columns=[*RANKING_COLUMNS, *ranks_shown])


def _training(cells: Sequence[Cell], made: pd.DataFrame) -> pd.DataFrame:
    groups = {key: part for key, part in made.groupby([*CELL, "test"], sort=False, dropna=False)}
    known = {tuple(cell.heading.values()): cell.identity for cell in cells}
    rows = []
    for key, erased in groups.items():
        identity = known[key[:-1]]
        whole = replace(identity, random_erasure=0.0)  # the same model trained on whole texts
        plain = None if whole == identity else groups.get((*whole.heading.values(), key[-1]))
        if plain is None:
            continue
        one, other = plain.set_index("measure"), erased.set_index("measure")
        both = [name for name in one.index if name in other.index]
        means = one.loc[both, "mean"], other.loc[both, "mean"]
        both_defined = means[0].notna() & means[1].notna()
        enough = both_defined.sum() > 1
        rows.append(
            dict(zip((*CELL, "test"), key, strict=True))
            | {
                "n_measures": int(both_defined.sum()),
                "tau": float(kendalltau(means[0][both_defined], means[1][both_defined]).statistic) if enough else np.nan,
                "first_plain": _first(one),
                "first_erased": _first(other),
                **{
                    f"attention_rank_{name}": of.loc["attention", "rank"] for name, of in (("plain", one), ("erased", other))
                },
                **{
                    f"attention_mean_{name}": of.loc["attention", "mean"] for name, of in (("plain", one), ("erased", other))
                },
            }
        )
    return pd.DataFrame(rows, columns=list(TRAINING_COLUMNS))


def _first(part: pd.DataFrame) -> str:
    return " = ".join(part.index[part["rank"] == 1])


def render(cells: Sequence[Cell], made: Mapping[str, pd.DataFrame]) -> str:
    """The page's HTML: the answer, a section per data set, and what training with tokens erased changes.

    made: the tables of `reporting.sections.saliency` and of this analysis.
    """
    sections = []
    for dataset in dict.fromkeys(cell.heading["dataset"] for cell in cells):
        of_data = [cell for cell in cells if cell.heading["dataset"] == dataset]
        part, pairs = (made[name][made[name]["dataset"] == dataset] for name in ("saliency_tests", "saliency_agreement"))
        sections.append((dataset, list(_advice(of_data)), [_grid(part), saliency.agreement_grid(_over_seeds(pairs))]))
    return template("page.html.j2", Path(__file__).parent).render(
        title="Attention or saliency?",
        lead=lead(cells),
        sections=sections,
        training=_training_grid(made["saliency_training"]),
        completeness=completeness.grid(made["saliency_completeness"]),
        version=__version__,
    )


def lead(cells: Sequence[Cell]) -> str:
    """The answer over all models in one sentence: what a developer should use to see which inputs mattered."""
    advised = [saliency.advise(cell) for cell in cells]
    counts = Counter(advice.measure for advice in advised)
    of = f"{len(advised)} models" if len(advised) > 1 else "1 model"
    named = [(name, count) for name, count in counts.most_common() if name is not None]
    if not named:
        return f"Of {of}, none has a measure that orders its tokens better than chance: show none of them."
    best, count = named[0]
    ties = [measure_label(name) for name, other in named if other == count]
    text = f"To see which inputs mattered, use {' or '.join(ties)}: recommended for {count} of {of}"
    text += "" if len(ties) == 1 else " each"
    if best != "attention" and "attention" not in dict(named[: len(ties)]):
        wins = sum(advice.attention_wins for advice in advised)
        text += f"; attention is recommended for {counts['attention']}, and is among the best measures in {wins} of "
        text += f"{sum(advice.tests for advice in advised)} tests"
    if None in counts:
        text += f"; for {counts[None]} no measure is better than chance"
    return text + "."


def _advice(cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    """(model, sentence) for each kind of model of a data set."""
    shown = [name for name in MODEL if len({str(cell.heading[name]) for cell in cells}) > 1] or ["encoder", "projection"]
    kinds: dict[tuple, list[Cell]] = {}
    for cell in cells:
        kinds.setdefault(tuple(str(cell.heading[name]) for name in MODEL), []).append(cell)
    for identity, members in kinds.items():
        values = dict(zip(MODEL, identity, strict=True))
        name = " · ".join(values[key] for key in shown)
        if len(members) == 1:
            yield name, saliency.advice_in_words(members[0])
            continue
        counts = Counter(saliency.advise(cell).measure for cell in members)
        parts = [f"{measure_label(m) if m else 'none'} in {count}" for m, count in counts.most_common()]
        yield name, f"Of {len(members)} training seeds the tests recommend {', '.join(parts)}."


def _over_seeds(df: pd.DataFrame) -> pd.DataFrame:
    """An agreement table with means over seeds, whose seed is then "all"."""
    keys = [*MODEL, "first", "second"]
    mean = df.groupby(keys, sort=False, dropna=False, as_index=False)[["tau", "top_k_overlap"]].mean()
    return mean.assign(seed="all")


def _grid(df: pd.DataFrame) -> Grid:
    """Measures down, tests across: mean and rank over seeds, a star on those among the best in every seed."""
    keys, tests = differing(df, MODEL), list(dict.fromkeys(df["test"]))
    rows = []
    for identity, part in df.groupby([*MODEL, "measure"], sort=False, dropna=False):
        named = dict(zip((*MODEL, "measure"), identity, strict=True))
        by_test = {test: of for test, of in part.groupby("test", sort=False)}
        texts = saliency.how_many(part.groupby("test", sort=False)["n"].sum())
        shown = [_shown(by_test.get(test)) for test in tests]
        rows.append((*(str(named[key]) for key in keys), measure_label(named["measure"]), texts, *shown))
    heads = [f"{TESTS[test].label} {'↑' if TESTS[test].better > 0 else '↓'}" for test in tests]
    columns = (*keys, "measure", "texts × seeds", *heads)
    note = (
        "Mean over texts and seeds, in brackets the mean rank; * among the best in every seed: not worse than the best "
        "measure (paired sign-flip test over texts, Holm’s correction over measures, p ≤ 0.05). ↑ large is good, ↓ small is "
        "good. Intervals and differences to attention and to random scores stand in the table of tests."
    )
    return Grid("Ranking of measures by each test", columns, tuple(rows), len(keys) + 1, note)


def _shown(part: pd.DataFrame | None) -> str:
    if part is None or part["mean"].isna().all():
        return "undefined"
    star = "*" if (part["among_best"] == 1).all() else ""
    return f"{format_number(part['mean'].mean())} ({part['rank'].mean():.3g}){star}"


def _training_grid(df: pd.DataFrame) -> Grid:
    keys = differing(df, CELL)
    rows = [
        (
            *(str(row[name]) for name in keys),
            TESTS[row["test"]].label,
            str(row["n_measures"]),
            format_number(row["tau"]),
            *(" = ".join(measure_label(name) for name in row[f"first_{of}"].split(" = ")) for of in ("plain", "erased")),
            *(f"{row[f'attention_rank_{of}']:.0f}" for of in ("plain", "erased")),
            *(format_number(row[f"attention_mean_{of}"]) for of in ("plain", "erased")),
        )
        for row in df.to_dict("records")
    ]
    heads = ("measures", "τ of their means", "first", "first, erased", "attention’s rank", "erased")
    columns = (*keys, "test", *heads, "attention’s mean", "erased")
    note = (
        "Each test on a model trained on whole texts, and on its twin trained on texts with tokens erased at random. Where "
        "the two rank the measures alike (τ near 1), the ranking is not made by texts that the model never saw."
    )
    return Grid("Erasure in a model that is used to it", columns, tuple(rows), len(keys) + 1, note)
