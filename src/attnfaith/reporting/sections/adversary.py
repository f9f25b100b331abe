"""How far attention can go while the prediction stays: what a record's adversarial attentions say.

Per text and epsilon, the epsilon-max JSD (nats, 0..ln 2): the largest Jensen-Shannon divergence between the model's
attention and one that moves the prediction by a total variation distance of epsilon at most. "exact" is what
`adversary_exact` stored, a maximum where its certainty says so. "search" is the largest of the rows of `adversary_search`
that stay within a selection threshold, .01 and .05, and of the model's own attention (0), whatever epsilon the search was
run with. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, name_class
from attnfaith.reporting.figures import Histograms, Kind, Violins
from attnfaith.reporting.page.heatmap import (
    HUES,
    MOST_TOKENS,
    SHADES,
    SHORTEST_EXAMPLE,
    Score,
    direction_of,
    query_of,
    visible,
)
from attnfaith.reporting.render import interval_in_words, rows
from attnfaith.reporting.spec import (
    MAIN,
    Case,
    Classes,
    Count,
    Deviation,
    Key,
    Mean,
    Median,
    Row,
    Section,
    Share,
    Table,
    counts,
    largest_weights,
    per_cell,
)
from attnfaith.reporting.style import percent_axis


if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXACT, SEARCH = "adversary_exact_jsd", "adversary_search_attention"
SELECTION_EPSILONS = (0.01, 0.05)
HIGH = 0.6  # nats
HISTOGRAM, BY_LARGEST = "adversary_jsd", "adversary_jsd_by_max_attention"
JSD_BINS = np.linspace(0, np.log(2), 41)
CERTAINTIES = ("exact", "bounded", "lower bound")


@dataclass(frozen=True, eq=False)
class Way:
    """One way at one epsilon, per text [N]: jsd, NaN where undefined. exact: bound (nats), one_token and certainty;
    search: feasible, the share of its restarts within epsilon. NaN or "" where they belong to the other way.
    """

    method: str
    epsilon: float
    jsd: np.ndarray
    bound: np.ndarray
    one_token: np.ndarray
    feasible: np.ndarray
    certainty: np.ndarray

    @property
    def name(self) -> str:
        """Of its JSD among the numbers per text."""
        return f"adversary_{self.method}_{self.epsilon:g}"

    def __str__(self) -> str:
        if self.method == "search":
            return f"search, restarts within {self.epsilon:g}"
        certainties = sorted(set(self.certainty) - {"undefined"}) or ["exact"]
        return f"{', '.join(certainties)}, ε = {self.epsilon:g}"


@per_cell
def ways(cell: Cell) -> list[Way]:
    """Each way at each of its epsilons, the search first; [] where the cell holds neither."""
    return [*_searched(cell), *_stored(cell)]


def _searched(cell: Cell) -> Iterator[Way]:
    if SEARCH not in cell.table.column_names:
        return
    draws = records.rows(cell.table, SEARCH)
    draw_counts = np.array([len(drawn) for drawn in draws])
    owner = np.repeat(np.arange(len(cell)), draw_counts)
    probs = [row for drawn in records.rows(cell.table, "adversary_search_probs") for row in drawn]
    jsd = jensen_shannon_divergence([row for drawn in draws for row in drawn], [cell.attention[place] for place in owner])
    changes = total_variation_distance(probs, [cell.probs[place] for place in owner])
    nothing = np.full(len(cell), np.nan)
    for epsilon in SELECTION_EPSILONS:
        held = changes <= epsilon
        best = np.where(draw_counts > 0, 0.0, np.nan)
        np.maximum.at(best, owner[held], jsd[held])
        with np.errstate(invalid="ignore"):
            feasible = np.bincount(owner, held, minlength=len(cell)) / draw_counts
        yield Way("search", epsilon, best, nothing, nothing, feasible, np.full(len(cell), ""))


def _stored(cell: Cell) -> Iterator[Way]:
    if EXACT not in cell.table.column_names:
        return
    names = ("epsilon", "jsd", "bound", "one_token")
    columns = {name: records.rows(cell.table, f"adversary_exact_{name}") for name in names}
    certainty = np.array(cell.table.column("adversary_exact_certainty").to_pylist(), dtype=object)
    nothing = np.full(len(cell), np.nan)
    for epsilon in sorted({float(value) for row in columns["epsilon"] for value in row}):
        values = {name: nothing.copy() for name in columns}
        for row, epsilons in enumerate(columns["epsilon"]):
            if {len(column[row]) for column in columns.values()} != {len(epsilons)}:
                raise records.RecordError(
                    f"row {row} of the cell: the columns adversary_exact_... have other numbers of epsilons: measure it anew"
                )
            for place in np.flatnonzero(epsilons == epsilon):
                for name in columns:
                    values[name][row] = columns[name][row][place]
        yield Way("exact", epsilon, values["jsd"], values["bound"], values["one_token"], nothing, certainty)


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """adversary_search_<epsilon> and adversary_exact_<epsilon>, the epsilon-max JSD in nats."""
    return {way.name: way.jsd for way in ways(cell)}


def _cases(cell: Cell) -> Iterator[Case]:
    exact = {way.epsilon: way.jsd for way in ways(cell) if way.method == "exact"}
    for way in ways(cell):
        yield case(way, exact.get(way.epsilon))


def case(way: Way, exact: np.ndarray | None) -> Case:
    """The numbers of a way, and how far it falls short of the exact epsilon-max JSD [N], where that is known."""
    defined, values = ~np.isnan(way.jsd), {"jsd": way.jsd}
    if way.method == "exact":
        values |= {"bound": way.bound, "one_token": way.one_token}
        values |= {name: np.where(defined, way.certainty == name, np.nan) for name in CERTAINTIES}
    else:
        values |= {"feasible": way.feasible, "nothing_found": np.where(way.jsd == 0, 1.0, np.nan)}
        if exact is not None:
            shares = np.divide(way.jsd, exact, out=np.full(len(exact), np.nan), where=exact > 0)
            values |= {"gap": exact - way.jsd, "share_of_exact": shares}
    return Case(values, {"method": way.method, "epsilon": way.epsilon})


def _method(row: Row) -> str:
    """ "search"; "exact", or what stands in its place in most texts."""
    if row["method"] == "search" or not row["n"]:
        return row["method"]
    return max(CERTAINTIES, key=lambda name: row[f"share_{name.replace(' ', '_')}"])


TABLE = Table(
    name="adversary",
    cases=_cases,
    by=(Key("method", "method", _method), Key("epsilon", "ε", lambda row: f"{row['epsilon']:g}"), Classes()),
    columns=(
        *counts("jsd"),
        Mean("jsd_mean", "mean JSD [95 % interval]", of="jsd", interval=MAIN),
        Deviation("jsd_std", of="jsd"),
        Median("jsd_median", "median", of="jsd", dash=True),
        Share("share_above_0.6", "share above .6", of="jsd", dash=True, above=HIGH),
        Mean("bound_mean", "upper bound", of="bound", dash=True),
        *(Mean(f"share_{name.replace(' ', '_')}", of=name, interval=None) for name in CERTAINTIES),
        Share("share_one_token", "one token suffices", of="one_token", dash=True, above=0),
        Mean("share_feasible", "restarts within ε", of="feasible", dash=True),
        Count("n_nothing_found", of="nothing_found"),
        Mean("gap_mean", "short of the exact one", of="gap", dash=True, interval="gap_"),
        Mean("share_of_exact", "share of it reached", of="share_of_exact", dash=True),
    ),
    caption="Adversarial attention",
    note="Per text, the largest Jensen-Shannon divergence (nats, at most ln 2 = 0.693) between the model’s attention and "
    "one that moves the prediction by a total variation distance of ε at most. Search: the best of its restarts within ε, a "
    "lower bound. Exact: a closed form, the maximum; “bounded” (more than two classes) and “lower bound” (a read-out "
    "that is not affine) are the best attention found. One token suffices: texts where one token given all weight keeps "
    "the prediction. Undefined: texts of fewer than two tokens; they are in no mean. –: does not apply.",
)
"""n: texts with an epsilon-max JSD. jsd_mean, jsd_std, jsd_median in nats; shares in 0..1; all over texts.

exact: bound_mean, mean of the certified upper bounds; share_exact, share_bounded, share_lower_bound: what is known of a
maximum; share_one_token: texts where one token given all weight keeps the prediction. search: share_feasible of the
restarts, mean over texts; n_nothing_found: texts where no restart within epsilon differs from the model's attention.
Where the cell has both ways at an epsilon, the search falls short of the exact one by gap_mean, and reaches share_of_exact
of it, mean over texts where that is above 0. NaN belongs to the other way.
"""


def _shown(cell: Cell) -> list[Way]:
    """The ways that figures and texts show, at one epsilon: .01, the paper's, where a way has it."""
    epsilons = [way.epsilon for way in ways(cell)]
    epsilon = SELECTION_EPSILONS[0] if SELECTION_EPSILONS[0] in epsilons else min(epsilons, default=0.0)
    return [way for way in reversed(ways(cell)) if way.epsilon == epsilon]


def _figures(cell: Cell) -> Iterator[Kind]:
    """The histogram of the epsilon-max JSD, 40 bins on 0..ln 2, and the JSD in four bins of the largest weight."""
    if shown := _shown(cell):
        yield histogram(shown)
        yield Violins(
            BY_LARGEST,
            of=shown[0].name,
            title=f"Adversarial attention ({shown[0]})",
            ylabel="JSD to the model's attention (dotted: ln 2)",
            highest=JSD_BINS[-1],
            line=JSD_BINS[-1],
            nothing="no text has two tokens",
            alt="Violins of the divergence of the adversarial attention, by largest weight.",
            caption="Whether attention that rests on few tokens can be replaced too: the largest divergence per text by how "
            "much weight one token has.",
        )


def histogram(shown: Sequence[Way]) -> Histograms:
    """A panel for each of these ways."""
    return Histograms(
        HISTOGRAM,
        title="How far attention can go and keep the prediction",
        ways={str(way): way.name for way in shown},
        bins=JSD_BINS,
        finish=_jsd_axis,
        xlabel="JSD between the model's and the adversarial attention (nats; dashed: mean)",
        alt="Histograms of the largest divergence per text between own and adversarial attention.",
        caption="How far from the model’s own an attention can be that keeps the prediction. At ln 2, the right edge, it "
        "shares no weight with it. What a search finds is a lower bound.",
    )


def _jsd_axis(axes: "Axes") -> None:
    axes.set_xlim(0, JSD_BINS[-1])
    percent_axis(axes)


def _sentences(cell: Cell) -> list[str]:
    overall = [row for row in rows(TABLE, cell) if row["class"] == "overall"]
    shown = [
        next(row for row in overall if (row["method"], row["epsilon"]) == (way.method, way.epsilon)) for way in _shown(cell)
    ]
    if not shown:
        return []
    row, exact = shown[0], shown[0]["method"] == "exact"
    if not row["n"]:
        return [f"No text has two tokens, so there is no adversarial attention ({row['n_undefined']:,} undefined)."]
    sure = exact and row["share_exact"] == 1
    text = (
        f"An attention that moves the prediction by no more than {row['epsilon']:g} can be {'' if sure else 'at least '}"
        f"{row['jsd_mean']:.3f} nats{interval_in_words(row)} of Jensen-Shannon divergence away from the model’s own, on "
        f"average over {counted(row['n'])}; at ln 2 = 0.693 the two share no weight."
    )
    if exact:
        text += f" In {row['share_one_token']:.0%} of the texts one token can have all the weight."
        if len(shown) > 1:
            text += f" The published search finds {shown[1]['jsd_mean']:.3f}."
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
    direction: str


def _part(cell: Cell, n_examples: int) -> str:
    """Texts under their own and under their adversarial attention, as safe HTML; "" where there is none to show.

    Shown are the texts with the largest product of largest weight and divergence: where attention seems to say most, and
    can say something else. Equal products: by instance id. Source: Jain & Wallace (2019),
    figure 1.
    """
    shown = [way for way in _shown(cell) if not np.isnan(way.jsd).all()]
    if not shown:
        return ""
    way, largest = shown[0], np.nan_to_num(largest_weights(cell))
    chosen, rule = extreme_texts(cell, ~np.isnan(way.jsd), largest * way.jsd, n_examples)
    rule += " with the largest product of largest weight and divergence: the extremes, not a sample."
    return template("adversary.html.j2").render(
        rule=rule,
        epsilon=f"{way.epsilon:g}",
        exact=way.method == "exact" and set(way.certainty[chosen]) == {"exact"},
        texts=[_attacked(cell, way, row) for row in chosen],
        hues=(list(HUES).index("attention"), len(HUES)),
        of_sentences=cell.words is not None,
    )


def _attacked(cell: Cell, way: Way, row: int) -> Attacked:
    own, predicted = cell.attention[row], int(cell.predicted[row])
    attention, probs = _adversary(cell, way, row)
    weights = zip(weight_scores(own, "attention"), weight_scores(attention, "adversarial"), strict=True)
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
        direction=direction_of(tokens),
    )


def _adversary(cell: Cell, way: Way, row: int) -> tuple[np.ndarray, np.ndarray]:
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


def extreme_texts(cell: Cell, shown: np.ndarray, score: np.ndarray, n_examples: int) -> tuple[list[int], str]:
    """The rows of the texts of largest score [N] among those that are shown, [N] bool, and words on how long they are.

    Short texts are passed over where there are enough others. Equal scores: by instance id.
    """
    candidates, score = np.flatnonzero(shown), np.round(score.astype(np.float64), 4)
    long_enough = candidates[cell.lengths[candidates] >= SHORTEST_EXAMPLE]
    shortest = 2
    if len(long_enough) >= n_examples:
        candidates, shortest = long_enough, SHORTEST_EXAMPLE
    chosen = sorted(candidates, key=lambda row: (-score[row], cell.instance_ids[row]))[:n_examples]
    return chosen, f"The {counted(len(chosen))} of at least {shortest} {'sentences' if cell.words else 'tokens'}"


def weight_scores(values: np.ndarray, name: str) -> list[Score]:
    """Weights (T,) in percent, each with its shade in parts of the largest; what they are, for reading."""
    shades = np.rint(values / values.max() * (SHADES - 1)).astype(int)
    return [Score(f"{100 * v:.0f}", int(s), f"{name}: {v:.4g}") for v, s in zip(values, shades, strict=True)]


SECTION = Section(
    name="adversary",
    source="Jain & Wallace (2019), section 4.2.2",
    place=60,
    chapter="interventions",
    needs=("probs", "attention"),
    one_of=(EXACT, SEARCH),
    uses=("adversary_exact_*", "adversary_search_*"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    figures=_figures,
    sentences=_sentences,
    part=_part,
)
