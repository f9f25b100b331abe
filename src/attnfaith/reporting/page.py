"""The report as one HTML page that needs nothing beside it: styles, pictures and texts are inside.

Every sentence about results is put together from the numbers of the tables; none is typed by hand.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.reporting import interventions
from attnfaith.reporting.blocks import CLASS_COLUMN, Grid, Picture, differing, number_with_interval, template
from attnfaith.reporting.cells import CELL, Cell, describe, measure_label, name_class, pair_name
from attnfaith.reporting.dispersion import dispersion_grid, entropies, scores_label
from attnfaith.reporting.figures import mean_in_words, tau_in_words
from attnfaith.reporting.heatmap import (
    HUES,
    MOST_TOKENS,
    NEGATIVE_HUE,
    OTHER_HUE,
    PAPER,
    SHADES,
    SHORTEST_EXAMPLE,
    Example,
    choose,
    example,
    main_measures,
    shades,
    shown_measures,
)
from attnfaith.reporting.tables import format_number


# Lower bounds of mean tau and the words for it. A convention of this report, printed on the page; the field has none.
DEGREES = (
    (0.7, "nearly the same order"),
    (0.5, "a similar order"),
    (0.3, "a somewhat similar order"),
    (0.1, "an only slightly similar order"),
    (-0.1, "unrelated orders"),
    (-1.0, "rather opposite orders"),
)
MOST_CLASSES = 12  # with rows of their own in the tables of the page
NO_MEASURE = "The record holds no importance measure, so agreement with attention was not measured."
SUPPORT = "support_class_"
STATISTICS = {
    "n": "texts",
    "n_without_label": "texts without a gold label",
    "n_truncated": "texts cut at the length limit",
    "n_empty": "texts without tokens",
    "accuracy": "accuracy",
    "roc_auc": "area under the ROC curve",
    "length_mean": "tokens per text, mean",
    "length_median": "tokens per text, median",
    "max_attention": "largest attention weight, mean",
    "support_share": "share of tokens with weight above zero, mean",
    "normalised_entropy": "attention entropy over its maximum, mean",
    "n_entropy_undefined": "texts without that entropy (fewer than two tokens)",
}


@dataclasses.dataclass(frozen=True)
class Section:
    """Figures and texts of one cell."""

    title: str
    summary: tuple[str, ...]
    pictures: tuple[Picture, ...]
    parts: tuple[Markup, ...]
    groups: tuple[tuple[str, tuple[Example, ...]], ...]
    measures: tuple[tuple[int, str], ...]
    legend: tuple[tuple[int, str], ...]
    class_names: tuple[str, ...]
    has_rationale: bool
    of_sentences: bool
    note: str


def render_page(
    cells: Sequence[Cell],
    tables: Mapping[str, pd.DataFrame],
    pictures: Sequence[Sequence[Picture]],
    *,
    title: str,
    facts: Mapping[str, object],
    n_examples: int,
) -> str:
    """The page's HTML.

    tables: "agreement", "performance", "plausibility" and "seeds" as made by `reporting.tables`, "dispersion", and those of
    `reporting.interventions`. pictures: those of each cell. facts: what to say of the run, by name; nested ones are
    written out with dots.
    """
    sections = tuple(
        _section(cell, tables["agreement"], found, n_examples) for cell, found in zip(cells, pictures, strict=True)
    )
    known = {cell.class_names for cell in cells}
    names = known.pop() if len(known) == 1 else ()
    hues = [(place, hue) for place, hue in enumerate((*HUES.values(), OTHER_HUE, NEGATIVE_HUE))]
    return template("report.html.j2").render(
        title=title,
        version=__version__,
        facts=_facts(cells, facts),
        grids=[_with_class_names(_of_classes(grid, cells), names) for grid in _grids(tables, cells, names) if grid.rows],
        degrees=_degrees_note() if len(tables["agreement"]) else "",
        lead=sections[0].summary if len(cells) == 1 else summarise_cells(tables["agreement"], len(cells)),
        sections=sections,
        themes={theme: [(place, shades(hue, theme)) for place, hue in hues] for theme in PAPER},
        paper=PAPER,
        scale=range(SHADES),
        negative=len(HUES) + 1,
    )


def degree(tau: float) -> str:
    """A mean tau in words, by DEGREES; of the two decimals that are printed beside the words."""
    return next(words for bound, words in DEGREES if round(tau, 2) >= bound)


def _degrees_note() -> str:
    steps = [f"“{words}” from {bound:g}".replace("-", "−") for bound, words in DEGREES[:-1]]
    return f"Words for mean τ are a convention of this report: {', '.join(steps)}, “{DEGREES[-1][1]}” below."


def _interval(row: Mapping[str, object]) -> str:
    if np.isnan(row["ci_low"]):
        return "interval undefined"
    return f"95 % interval {row['ci_low']:.2f} to {row['ci_high']:.2f}"


def summarise(cell: Cell, agreement: pd.DataFrame) -> tuple[str, ...]:
    """What the numbers of one cell say, in plain sentences made from the agreement table."""
    mine = agreement["class"] == "overall"
    for name, value in cell.heading.items():
        mine &= (agreement[name] == value) | (agreement[name].isna() & pd.isna(value))
    overall = agreement[mine].set_index("pair").to_dict("index")
    if not overall:
        return (NO_MEASURE,)
    compared = [name for name in main_measures(cell) if name != "attention"]
    sentences = [_agreement_sentence(measure_label(name), overall[pair_name("attention", name)]) for name in compared]
    between = overall.get(pair_name("gradient", "leave_one_out"))
    if between and not np.isnan(between["tau_mean"]):
        sentences.append(_between_sentence(between["tau_mean"], [overall[pair_name("attention", n)] for n in compared]))
    return tuple(sentences)


def summarise_cells(agreement: pd.DataFrame, count: int) -> tuple[str, ...]:
    """What the numbers of several cells say: how far mean tau goes apart between them, per pair."""
    overall = agreement[agreement["class"] == "overall"]
    sentences = [f"{count} cells are compared; the sentences on each stand above its figures."]
    for pair, rows in overall.groupby("pair", sort=False):
        taus = rows["tau_mean"].dropna()
        text = f"{_pair_label(pair)}: "
        if len(taus):
            text += f"mean Kendall’s τ lies between {taus.min():.2f} and {taus.max():.2f}"
        else:
            text += "no cell has a defined mean τ"
        missing = len(rows) - len(taus)
        sentences.append(text + (f" ({missing} cells without one)." if missing and len(taus) else "."))
    if overall.empty:
        sentences.append(NO_MEASURE)
    return tuple(sentences)


def _agreement_sentence(name: str, row: Mapping[str, float]) -> str:
    if not row["n"]:
        return f"Between attention and {name} no text has a defined rank correlation ({row['n_undefined']:,} undefined)."
    text = (
        f"Attention and {name} put the tokens of a text in {degree(row['tau_mean'])}: Kendall’s τ is "
        f"{row['tau_mean']:.2f} on average over {row['n']:,} texts ({_interval(row)}), and differs from chance "
        f"(p ≤ 0.05) in {row['share_significant']:.0%} of them."
    )
    if row["tie_ceiling"] < 0.995:
        text += f" Tied tokens allow {row['tie_ceiling']:.2f} at most; of that, {row['tau_over_ceiling']:.0%} is reached."
    if row["n_undefined"]:
        text += f" Left out because τ is undefined: {row['n_undefined']:,}."
    return text


def _between_sentence(tau: float, rows: Sequence[Mapping[str, float]]) -> str:
    own = [row["tau_mean"] for row in rows if not np.isnan(row["tau_mean"])]
    text = f"Gradient and leave-one-out agree with each other at τ = {tau:.2f}"
    if not own:
        return f"{text}."
    if tau > max(own):
        return f"{text}, more than attention agrees with either."
    if tau < min(own):
        return f"{text}, less than attention agrees with either."
    return f"{text}, more than attention agrees with one of them and less than with the other."


def _facts(cells: Sequence[Cell], facts: Mapping[str, object]) -> list[tuple[str, str]]:
    """Identity values that all cells share, then the given facts, one line each."""
    shared = [(name, str(cells[0].heading[name])) for name in CELL if len({str(cell.heading[name]) for cell in cells}) == 1]
    return [*shared, ("cells", str(len(cells))), *_flat(facts)]


def _flat(facts: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found.extend(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, list | tuple):
            found.append((f"{prefix}{name}", json.dumps(value, ensure_ascii=False, default=str)))
        else:
            found.append((f"{prefix}{name}", str(value)))
    return found


def _grids(tables: Mapping[str, pd.DataFrame], cells: Sequence[Cell], names: tuple[str, ...]) -> list[Grid]:
    return [
        _agreement_grid(tables["agreement"]),
        _seed_grid(tables["seeds"]),
        _plausibility_grid(tables["plausibility"]),
        _performance_grid(tables["performance"], cells, names),
        dispersion_grid(tables["dispersion"]),
        *interventions.grids(tables),
    ]


def _of_classes(grid: Grid, cells: Sequence[Cell]) -> Grid:
    """The grid with the rows of those predicted classes that `_largest` keeps, and a word on the others in its note."""
    if CLASS_COLUMN not in grid.columns:
        return grid
    place = grid.columns.index(CLASS_COLUMN)
    counts = Counter(str(number) for cell in cells for number in cell.predicted)
    kept, said = _largest(counts, "predicted most often")
    rows = tuple(row for row in grid.rows if row[place] in kept or not row[place].isdecimal())
    return dataclasses.replace(grid, rows=rows, note=grid.note + said)


def _largest(counts: Mapping[str, int], how: str) -> tuple[set[str], str]:
    """The classes (as numbers) of the MOST_CLASSES largest counts, and what to say where that leaves some out."""
    if len(counts) <= MOST_CLASSES:
        return set(counts), ""
    order = sorted(counts, key=lambda number: (-counts[number], int(number)))
    return set(order[:MOST_CLASSES]), f" Of {len(counts)} classes the {MOST_CLASSES} {how} are shown; the files hold all."


def _with_class_names(grid: Grid, names: tuple[str, ...]) -> Grid:
    """The grid with each class's name beside its number, where the cells of the page share them."""
    if CLASS_COLUMN in grid.columns:
        place = grid.columns.index(CLASS_COLUMN)
        rows = tuple((*row[:place], name_class(row[place], names), *row[place + 1 :]) for row in grid.rows)
        grid = dataclasses.replace(grid, rows=rows)
    return grid


def _agreement_grid(df: pd.DataFrame) -> Grid:
    keys = differing(df, CELL)
    columns = (CLASS_COLUMN, "texts", "undefined", "mean τ [95 % interval]", "std", "significant", "tie ceiling")
    rows = [
        (
            *(str(row[name]) for name in keys),
            _pair_label(row["pair"]),
            row["class"],
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            number_with_interval(row, "tau_mean"),
            *(format_number(row[name]) for name in ("tau_std", "share_significant", "tie_ceiling", "tau_over_ceiling")),
        )
        for row in df.to_dict("records")
    ]
    note = (
        "Kendall’s τ-b of two token rankings, one text at a time: 1 same order, 0 no relation, −1 reversed. "
        "Undefined: texts with fewer than two tokens or with all scores equal; they are in no mean. Significant: "
        "share of texts with p ≤ 0.05. Tie ceiling: the largest τ that tied scores allow, mean over texts."
    )
    names = (*keys, "pair", *columns, "τ / ceiling")
    return Grid("Agreement of token rankings", names, tuple(rows), len(keys) + 2, note, "tables/agreement")


def _pair_label(pair: str) -> str:
    return " – ".join(measure_label(name) for name in pair.split("–"))


def _seed_grid(df: pd.DataFrame) -> Grid:
    df = df[(df["statistic"] == "tau_mean") & (df["n_seeds"] > 1)]
    keys = differing(df, [name for name in CELL if name != "seed"])
    rows = [
        (
            *(str(row[name]) for name in keys),
            _pair_label(row["pair"]),
            row["class"],
            str(row["n_seeds"]),
            str(row["n_undefined"]),
            *(format_number(row[name]) for name in ("mean", "std", "min", "max")),
        )
        for row in df.to_dict("records")
    ]
    names = (*keys, "pair", CLASS_COLUMN, "seeds", "undefined", "mean τ", "std", "lowest", "highest")
    note = "Mean τ of each training seed, summarised over seeds; sample standard deviation."
    return Grid("Spread over training seeds", names, tuple(rows), len(keys) + 2, note, "tables/seeds")


def _plausibility_grid(df: pd.DataFrame) -> Grid:
    keys = differing(df, CELL)
    rows = [
        (
            *(str(row[name]) for name in keys),
            measure_label(row["scores"]),
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            number_with_interval(row, "auprc_mean"),
            format_number(row["random_baseline"]),
            format_number(row["uniform_baseline"]),
        )
        for row in df.to_dict("records")
    ]
    note = (
        "Area under the precision-recall curve of token scores against the tokens of the gold evidence, "
        "mean over texts. Random order, equal scores: what scores without any relation reach on the same texts. "
        "Undefined: texts without a marked token, or with all marked. "
        "Where people marked the evidence, this is about what convinces people, not about what the model used."
    )
    names = (*keys, "scores", "texts", "undefined", "mean AUPRC [95 % interval]", "random order", "equal scores")
    return Grid("Plausibility", names, tuple(rows), len(keys) + 1, note, "tables/plausibility")


def _performance_grid(df: pd.DataFrame, cells: Sequence[Cell], class_names: tuple[str, ...]) -> Grid:
    """Statistics down, cells across: a cell has many statistics, and a report few cells."""
    names = [name for name in df.columns if name not in CELL]
    if max(cell.probs.shape[1] for cell in cells) > 2:
        names = [name for name in names if name != "roc_auc" or df[name].notna().any()]
    keys = differing(df, CELL)
    columns = [" · ".join(str(row[name]) for name in keys) or "value" for row in df.to_dict("records")]
    order = [name for name in STATISTICS if name in names]
    supports = [name for name in names if name.startswith(SUPPORT)]
    kept, said = _largest({name.removeprefix(SUPPORT): df[name].sum() for name in supports}, "with most texts")
    per_class = [name for name in names if name not in STATISTICS and name.rpartition("_")[2] in kept]
    place = order.index("accuracy") + 1
    rows = [
        (_statistic(name, class_names), *(format_number(value) for value in df[name]))
        for name in [*order[:place], *per_class, *order[place:]]
    ]
    note = "Accuracy, F1 and ROC over texts with a gold label. Attention statistics leave out texts without tokens." + said
    return Grid("Performance and attention", ("", *columns), tuple(rows), 1, note, "tables/performance")


def _statistic(name: str, class_names: tuple[str, ...]) -> str:
    for start, words in (("f1_class_", "F1, class "), (SUPPORT, "texts of gold class ")):
        if name.startswith(start):
            return words + name_class(name.removeprefix(start), class_names)
    return STATISTICS.get(name, name.replace("_", " "))


def _section(cell: Cell, agreement: pd.DataFrame, pictures: Sequence[Picture], n_examples: int) -> Section:
    best, worst, shortest = choose(cell, n_examples)
    measures = shown_measures(cell)
    if len(measures) == 1:
        groups, note = [("First texts", best)], "Shown are the first texts by instance id."
    else:
        # choose() orders by leave-one-out before gradient, and main_measures ends in the same measure
        by = measure_label(main_measures(cell)[-1])
        groups = [(f"Highest agreement with {by}", best), (f"Lowest agreement with {by}", worst)]
        note = f"The extremes, not a sample: texts of highest and lowest τ between attention and {by}"
        unit = "sentences" if cell.words else "tokens"
        note += f", of at least {shortest} {unit}." if shortest == SHORTEST_EXAMPLE else "."
    if cell.words:
        note += f" Of long texts the first sentences are shown, up to {MOST_TOKENS} words."
    elif (cell.lengths > MOST_TOKENS).any():
        note += f" Of longer texts the first {MOST_TOKENS} tokens are shown."
    hues = [*HUES]
    return Section(
        title=describe(cell.heading),
        summary=(*summarise(cell, agreement), *interventions.sentences(cell)),
        pictures=tuple(pictures),
        parts=tuple(Markup(part) for part in interventions.page_parts(cell, n_examples)),
        groups=tuple((head, tuple(example(cell, row) for row in rows)) for head, rows in groups if rows),
        measures=tuple((hues.index(name) if name in hues else len(hues), measure_label(name)) for name in measures),
        legend=_legend(cell, measures),
        class_names=tuple(name_class(str(number), cell.class_names) for number in range(cell.probs.shape[1])),
        has_rationale="rationale" in cell.table.column_names,
        of_sentences=cell.words is not None,
        note=note,
    )


def _legend(cell: Cell, measures: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """(hue, what has it): of each main measure, of the others together, and of what speaks against the class."""
    main = main_measures(cell)
    hues = [*HUES]
    found = [(hues.index(name), measure_label(name)) for name in main if name in hues]
    if others := [measure_label(name) for name in measures if name not in hues]:
        found.append((len(hues), others[0] if len(others) == 1 else "other measures"))
    if any(np.nanmin(row, initial=0.0) < 0 for name in measures for row in cell.scores(name)):
        found.append((len(hues) + 1, "below 0: against the class"))
    return tuple(found)


def describe_figure(cell: Cell, name: str) -> tuple[str, str]:
    """Alternative text and caption of one of `figures.all_figures`."""
    if name == "attention_overview":
        largest = [float(row.max()) for row in cell.attention if len(row)]
        mean = f"mean {np.mean(largest):.2f}" if largest else "no text has tokens"
        beside = "agreement changes with length of text" if cell.measures else "long the texts are"
        alt = f"Two panels: histogram of the largest attention weight per text ({mean}), and how {beside}."
        return alt, f"How concentrated attention is, and how {beside}."
    if name == "dispersion_by_scores":
        parts = [f"{scores_label(scores)}: {mean_in_words(values, 2)}" for scores, values in entropies(cell).items()]
        alt = f"Range of the entropy over its maximum in single texts, one line each. {'; '.join(parts)}."
        caption = (
            "How evenly attention and importance are spread over the tokens of single texts. "
            "Dot: mean; thick line: the middle half of the texts; thin line: 90 % of them."
        )
        return alt, caption
    if name == "gradient_vs_leave_one_out":
        pairs = [("attention", "gradient"), ("attention", "leave_one_out"), ("gradient", "leave_one_out")]
        parts = [f"{measure_label(a)} and {measure_label(b)}: {tau_in_words(cell.tau(a, b))}" for a, b in pairs]
        caption = (
            "How far two importance measures agree with each other is the yardstick for how far attention agrees with them."
        )
        return f"Histograms of τ per text. {'; '.join(parts)}.", caption
    measure = name.removeprefix("tau_attention_")
    tau = cell.tau("attention", measure)
    parts = [f"class {name_class(c, cell.class_names)}: {tau_in_words(tau[mine])}" for c, mine in cell.classes[1:]]
    alt = f"Histograms of τ per text, attention and {measure_label(measure)}, by predicted class. {'; '.join(parts)}."
    caption = f"Agreement of attention with {measure_label(measure)} in single texts, by predicted class."
    return alt, caption
