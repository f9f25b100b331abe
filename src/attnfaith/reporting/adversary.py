"""How far attention can go while the prediction stays: tables, figures and texts from a record's adversarial attentions.

Per text and epsilon, the epsilon-max JSD (nats, 0..ln 2): the largest Jensen-Shannon divergence between the model's
attention and one that moves the prediction by a total variation distance of epsilon at most. "exact" is what
`adversary_exact` stored, a maximum where its certainty says so. "search" is the largest of the rows of `adversary_search`
that stay within a selection threshold, .01 and .05, and of the model's own attention (0), whatever epsilon the search was
run with. Undefined for a text of fewer than two tokens. Source: Jain & Wallace (2019), section 4.2.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.reporting.blocks import CLASS_COLUMN, Grid, differing, number_with_interval, template
from attnfaith.reporting.cells import CELL, Cell, name_class
from attnfaith.reporting.figures import _histograms_by_class, _own_style, _percent_axis, mean_in_words
from attnfaith.reporting.heatmap import HUES, MOST_TOKENS, SHADES, SHORTEST_EXAMPLE, Score, query_of, visible
from attnfaith.reporting.permutation import BINS, FEWEST_FOR_A_VIOLIN, _bin_of, violins_by_max_attention
from attnfaith.reporting.tables import format_number
from attnfaith.stats import bootstrap_interval, described, mean, with_interval


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = ()  # of either way or both; a cell that holds neither gives nothing
EXACT, SEARCH = "adversary_exact_jsd", "adversary_search_attention"
SELECTION_EPSILONS = (0.01, 0.05)
HIGH = 0.6  # nats
HISTOGRAM, BY_LARGEST = "adversary_jsd", "adversary_jsd_by_max_attention"
JSD_BINS = np.linspace(0, np.log(2), 41)
CERTAINTIES = ("exact", "bounded", "lower bound")
TABLE_COLUMNS = (
    *CELL,
    "method",
    "epsilon",
    "class",
    "n",
    "n_undefined",
    "jsd_mean",
    "ci_low",
    "ci_high",
    "jsd_std",
    *with_interval("jsd_median"),
    *with_interval("share_above_0.6"),
    *with_interval("bound_mean"),
    "share_exact",
    "share_bounded",
    "share_lower_bound",
    *with_interval("share_one_token"),
    *with_interval("share_feasible"),
    "n_nothing_found",
    "gap_mean",
    "gap_ci_low",
    "gap_ci_high",
    *with_interval("share_of_exact"),
)


@dataclass(frozen=True)
class Found:
    """One way at one epsilon, per instance [N]: jsd, NaN where undefined. exact: bound (nats), one_token and certainty;
    search: feasible, the share of its restarts within epsilon. NaN or "" where they belong to the other way.
    """

    method: str
    epsilon: float
    jsd: np.ndarray
    bound: np.ndarray
    one_token: np.ndarray
    feasible: np.ndarray
    certainty: np.ndarray


def found(cell: Cell) -> list[Found]:
    """Each way at each of its epsilons, the search first; [] where the cell holds neither."""
    return [*_searched(cell), *_stored(cell)]


def _searched(cell: Cell) -> list[Found]:
    if SEARCH not in cell.table.column_names:
        return []
    draws = records.rows(cell.table, SEARCH)
    counts = np.array([len(rows) for rows in draws])
    owner = np.repeat(np.arange(len(cell)), counts)
    probs = [row for rows in records.rows(cell.table, "adversary_search_probs") for row in rows]
    jsd = jensen_shannon_divergence([row for rows in draws for row in rows], [cell.attention[place] for place in owner])
    moved = total_variation_distance(probs, [cell.probs[place] for place in owner])
    nothing = np.full(len(cell), np.nan)
    ways = []
    for epsilon in SELECTION_EPSILONS:
        held = moved <= epsilon
        best = np.where(counts > 0, 0.0, np.nan)
        np.maximum.at(best, owner[held], jsd[held])
        with np.errstate(invalid="ignore"):
            feasible = np.bincount(owner, held, minlength=len(cell)) / counts
        ways.append(Found("search", epsilon, best, nothing, nothing, feasible, np.full(len(cell), "")))
    return ways


def _stored(cell: Cell) -> list[Found]:
    if EXACT not in cell.table.column_names:
        return []
    names = ("epsilon", "jsd", "bound", "one_token")
    columns = {name: records.rows(cell.table, f"adversary_exact_{name}") for name in names}
    certainty = np.array(cell.table.column("adversary_exact_certainty").to_pylist(), dtype=object)
    nothing = np.full(len(cell), np.nan)
    ways = []
    for epsilon in sorted({float(value) for row in columns["epsilon"] for value in row}):
        values = {name: nothing.copy() for name in columns}
        for row, epsilons in enumerate(columns["epsilon"]):
            for place in np.flatnonzero(epsilons == epsilon):
                for name in columns:
                    values[name][row] = columns[name][row][place]
        ways.append(Found("exact", epsilon, values["jsd"], values["bound"], values["one_token"], nothing, certainty))
    return ways


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """Per instance [N] float64, NaN where undefined: adversary_search_<epsilon> and adversary_exact_<epsilon>, the
    epsilon-max JSD in nats.
    """
    return {f"adversary_{way.method}_{way.epsilon:g}": way.jsd for way in found(cell)}


def tables(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Of the cells that hold adversarial attentions; none without such a cell.

    "adversary": one row per cell x method x epsilon x predicted class ("overall", then "0", "1", ...). n: texts with an
    epsilon-max JSD; n_undefined: those without. jsd_mean (ci_low, ci_high: 95 % bootstrap interval), jsd_std (population),
    jsd_median in nats; share_above_0.6 in 0..1; all over texts.

    exact: bound_mean, mean of the certified upper bounds; share_exact, share_bounded, share_lower_bound: what is known of a
    maximum; share_one_token: texts where one token given all weight keeps the prediction. search: share_feasible of the
    restarts, mean over texts; n_nothing_found: texts where no restart within epsilon differs from the model's attention.
    Where the cell has both ways at an epsilon, the search falls short of the exact one by gap_mean (gap_ci_low,
    gap_ci_high: 95 % bootstrap interval), and reaches share_of_exact of it, mean over texts where that is above 0. NaN
    belongs to the other way. <name>_ci_low, <name>_ci_high: the interval of the number of that name.
    """
    rows = []
    for cell in cells:
        ways = found(cell)
        exact = {way.epsilon: way.jsd for way in ways if way.method == "exact"}
        for way in ways:
            for name, members in cell.classes:
                head = {**cell.heading, "method": way.method, "epsilon": way.epsilon, "class": name}
                rows.append(head | _summary(way, exact.get(way.epsilon), members))
    return {"adversary": pd.DataFrame(rows, columns=list(TABLE_COLUMNS))} if rows else {}


def _summary(way: Found, exact: np.ndarray | None, members: np.ndarray) -> dict[str, float]:
    used = members & ~np.isnan(way.jsd)
    jsd, certainty = way.jsd[used], way.certainty[used]
    low, high = bootstrap_interval(jsd)
    row = {
        "n": int(used.sum()),
        "n_undefined": int(members.sum() - used.sum()),
        "jsd_mean": mean(jsd),
        "ci_low": low,
        "ci_high": high,
        "jsd_std": jsd.std() if len(jsd) else np.nan,
        **described("jsd_median", jsd, np.median),
        **described("share_above_0.6", jsd > HIGH),
    }
    if way.method == "exact":
        row |= described("bound_mean", way.bound[used]) | described("share_one_token", way.one_token[used] > 0)
        row |= {f"share_{name.replace(' ', '_')}": mean(certainty == name) for name in CERTAINTIES}
        return row
    row |= described("share_feasible", way.feasible[used]) | {"n_nothing_found": int((jsd == 0).sum())}
    if exact is not None:
        best = exact[used]
        row["gap_mean"] = mean(best - jsd)
        row["gap_ci_low"], row["gap_ci_high"] = bootstrap_interval(best - jsd)
        row |= described("share_of_exact", jsd[best > 0] / best[best > 0])
    return row


def grids(tables: Mapping[str, pd.DataFrame]) -> list[Grid]:
    """What the page shows of its tables."""
    if "adversary" not in tables:
        return []
    df = tables["adversary"]
    keys = differing(df, CELL)
    shown = ("jsd_median", "share_above_0.6", "bound_mean", "share_one_token", "share_feasible")
    shown += ("gap_mean", "share_of_exact")
    rows = [
        (
            *(str(row[name]) for name in keys),
            _method(row),
            f"{row['epsilon']:g}",
            row["class"],
            f"{row['n']:,}",
            f"{row['n_undefined']:,}",
            number_with_interval(row, "jsd_mean"),
            *("–" if np.isnan(row[name]) else format_number(row[name]) for name in shown),
        )
        for row in df.to_dict("records")
    ]
    names = (
        "mean JSD [95 % interval]",
        "median",
        "share above .6",
        "upper bound",
        "one token suffices",
        "restarts within ε",
        "short of the exact one",
        "share of it reached",
    )
    note = (
        "Per text, the largest Jensen-Shannon divergence (nats, at most ln 2 = 0.693) between the model’s attention and one "
        "that moves the prediction by a total variation distance of ε at most. Search: the best of its restarts within ε, a "
        "lower bound. Exact: a closed form, the maximum; “bounded” (more than two classes) and “lower bound” (a read-out "
        "that is not affine) are the best attention found. One token suffices: texts where one token given all weight keeps "
        "the prediction. Undefined: texts of fewer than two tokens; they are in no mean. –: does not apply."
    )
    columns = (*keys, "method", "ε", CLASS_COLUMN, "texts", "undefined", *names)
    return [Grid("Adversarial attention", columns, tuple(rows), len(keys) + 3, note, "tables/adversary")]


def _method(row: Mapping[str, object]) -> str:
    """ "search"; "exact", or what stands in its place in most texts."""
    if row["method"] == "search" or not row["n"]:
        return row["method"]
    return max(CERTAINTIES, key=lambda name: row[f"share_{name.replace(' ', '_')}"])


def _shown(cell: Cell) -> list[Found]:
    """The ways that figures and texts show, at one epsilon: .01, the paper's, where a way has it."""
    ways = found(cell)
    epsilons = [way.epsilon for way in ways]
    epsilon = SELECTION_EPSILONS[0] if SELECTION_EPSILONS[0] in epsilons else min(epsilons, default=0.0)
    return [way for way in reversed(ways) if way.epsilon == epsilon]


def figures(cell: Cell) -> "dict[str, Figure]":
    """The histogram of the epsilon-max JSD, and the JSD in four bins of the largest weight."""
    if not (ways := _shown(cell)):
        return {}
    return {HISTOGRAM: jsd_histogram(cell, ways), BY_LARGEST: jsd_by_max_attention(cell, ways[0])}


def _way_in_words(way: Found) -> str:
    if way.method == "search":
        return f"search, restarts within {way.epsilon:g}"
    kinds = sorted(set(way.certainty) - {"undefined"}) or ["exact"]
    return f"{', '.join(kinds)}, ε = {way.epsilon:g}"


@_own_style
def jsd_histogram(cell: Cell, ways: Sequence[Found]) -> "Figure":
    """The epsilon-max JSD of each text, one panel per way, one histogram per predicted class; 40 bins on 0..ln 2.

    Dashed: class means. Undefined texts are counted. Source: Jain & Wallace (2019), section 4.2.2.
    """
    title = "How far attention can go and keep the prediction"
    xlabel = "JSD between the model's and the adversarial attention (nats; dashed: mean)"
    values = {_way_in_words(way): way.jsd for way in ways}
    return _histograms_by_class(title, cell, values, JSD_BINS, _jsd_axis, xlabel, mean_in_words)


def _jsd_axis(axes: "Axes") -> None:
    axes.set_xlim(0, JSD_BINS[-1])
    _percent_axis(axes)


@_own_style
def jsd_by_max_attention(cell: Cell, way: Found) -> "Figure":
    """The epsilon-max JSD of each text in four bins of its largest weight, a violin per predicted class.

    The line in a violin is its median, the number above it its texts; fewer than 20 are points. Source: Jain & Wallace
    (2019), section 4.2.2.
    """
    title, ylabel = f"Adversarial attention ({_way_in_words(way)})", "JSD to the model's attention (dotted: ln 2)"
    figure = violins_by_max_attention(cell, way.jsd, title, ylabel, JSD_BINS[-1], "no text has two tokens")
    figure.axes[0].axhline(JSD_BINS[-1], color="#bbbbbb", linewidth=1, linestyle=":", zorder=0)
    return figure


def describe_figure(cell: Cell, name: str) -> tuple[str, str]:
    """Alternative text and caption."""
    ways = _shown(cell)
    if name == HISTOGRAM:
        parts = [f"{_way_in_words(way)}: {mean_in_words(way.jsd)}" for way in ways]
        alt = f"Histograms of the largest divergence per text between own and adversarial attention. {'; '.join(parts)}."
        return alt, (
            "How far from the model’s own an attention can be that keeps the prediction. At ln 2, the right edge, it shares "
            "no weight with it. What a search finds is a lower bound."
        )
    way, place = ways[0], _bin_of(cell)
    bins = [(label, place == number) for number, label in enumerate(BINS)]
    parts = [f"{label}: {mean_in_words(way.jsd[inside])}" for label, inside in bins if inside.any()]
    alt = f"Violins of the divergence of the adversarial attention, by largest weight. {'; '.join(parts)}."
    return alt, (
        "Whether attention that rests on few tokens can be replaced too: the largest divergence per text by how much weight "
        "one token has. The line in a violin is its median, the number above it its texts; fewer than "
        f"{FEWEST_FOR_A_VIOLIN} texts are shown as points."
    )


def sentences(cell: Cell) -> list[str]:
    """What the numbers say."""
    if not (ways := _shown(cell)):
        return []
    rows = {way.method: _summary(way, None, np.ones(len(cell), bool)) for way in ways}
    way, row = ways[0], rows[ways[0].method]
    if not row["n"]:
        return [f"No text has two tokens, so there is no adversarial attention ({row['n_undefined']:,} undefined)."]
    sure = way.method == "exact" and row["share_exact"] == 1
    interval = "" if np.isnan(row["ci_low"]) else f" (95 % interval {row['ci_low']:.3f} to {row['ci_high']:.3f})"
    text = (
        f"An attention that moves the prediction by no more than {way.epsilon:g} can be {'' if sure else 'at least '}"
        f"{row['jsd_mean']:.3f} nats{interval} of Jensen-Shannon divergence away from the model’s own, on average over "
        f"{row['n']:,} texts; at ln 2 = 0.693 the two share no weight."
    )
    if way.method == "exact":
        text += f" In {row['share_one_token']:.0%} of the texts one token can have all the weight."
        if "search" in rows:
            text += f" The published search finds {rows['search']['jsd_mean']:.3f}."
    if row["n_undefined"]:
        text += f" Left out because they have fewer than two tokens: {row['n_undefined']:,}."
    return [text]


@dataclass(frozen=True)
class Attacked:
    """One text under its own and under its adversarial attention, as the page shows it."""

    instance_id: str
    predicted: str
    own: str
    adversarial: str
    divergence: str
    largest: str
    tokens: tuple[tuple[str, tuple[Score, Score]], ...]
    length: int
    query: tuple[str, ...] | None


def page_part(cell: Cell, n_examples: int) -> str:
    """Texts under their own and under their adversarial attention, as safe HTML; "" where there is none to show.

    Shown are the texts with the largest product of largest weight and divergence: where attention seems to say most, and
    can say something else. Equal products: by instance id. Source: Jain & Wallace (2019), figure 1.
    """
    ways = [way for way in _shown(cell) if not np.isnan(way.jsd).all()]
    if not ways:
        return ""
    way = ways[0]
    largest = np.array([row.max() if len(row) else 0.0 for row in cell.attention])
    candidates = np.flatnonzero(~np.isnan(way.jsd))
    long_enough = candidates[cell.lengths[candidates] >= SHORTEST_EXAMPLE]
    shortest = SHORTEST_EXAMPLE if len(long_enough) >= n_examples else 2
    candidates = long_enough if len(long_enough) >= n_examples else candidates
    score = np.round(largest * way.jsd, 4)
    rows = sorted(candidates, key=lambda row: (-score[row], cell.instance_ids[row]))[:n_examples]
    rule = (
        f"The {len(rows)} texts of at least {shortest} {'sentences' if cell.words else 'tokens'} with the largest product "
        "of largest weight and divergence: the extremes, not a sample."
    )
    return template("adversary.html.j2").render(
        rule=rule,
        epsilon=f"{way.epsilon:g}",
        exact=way.method == "exact" and set(way.certainty[rows]) == {"exact"},
        texts=[_attacked(cell, way, row) for row in rows],
        hues=(list(HUES).index("attention"), len(HUES)),
        of_sentences=cell.words is not None,
    )


def _attacked(cell: Cell, way: Found, row: int) -> Attacked:
    own, predicted = cell.attention[row], int(cell.predicted[row])
    attention, probs = _adversary(cell, way, row)
    weights = zip(_weights(own, "attention"), _weights(attention, "adversarial"), strict=True)
    tokens = [visible(token) for token in cell.table.column("tokens")[row].as_py()]
    return Attacked(
        instance_id=visible(cell.instance_ids[row]),
        predicted=name_class(str(predicted), cell.class_names),
        own=f"{cell.probs[row, predicted]:.3f}",
        adversarial=f"{probs[predicted]:.3f}",
        divergence=f"{way.jsd[row]:.3f}",
        largest=f"{own.max():.2f}",
        tokens=tuple(zip(tokens, weights, strict=True))[:MOST_TOKENS],
        length=len(own),
        query=query_of(cell, row),
    )


def _adversary(cell: Cell, way: Found, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The attention and the prediction that reach the epsilon-max JSD of one text."""
    part = cell.table.slice(row, 1)
    if way.method == "exact":
        place = int(np.flatnonzero(records.rows(part, "adversary_exact_epsilon")[0] == way.epsilon)[0])
        return tuple(records.rows(part, f"adversary_exact_{name}")[0][place] for name in ("attention", "probs"))
    attentions, probs = (records.rows(part, f"adversary_search_{name}")[0] for name in ("attention", "probs"))
    own = [cell.attention[row]] * len(attentions)
    jsd = jensen_shannon_divergence(list(attentions), own)
    jsd[total_variation_distance(probs, [cell.probs[row]] * len(probs)) > way.epsilon] = 0
    if not jsd.max() > 0:
        return cell.attention[row], cell.probs[row]
    return attentions[jsd.argmax()], probs[jsd.argmax()]


def _weights(values: np.ndarray, name: str) -> list[Score]:
    shades = np.rint(values / values.max() * (SHADES - 1)).astype(int)
    return [Score(f"{100 * v:.0f}", int(s), f"{name}: {v:.4g}") for v, s in zip(values, shades, strict=True)]
