"""How far attention can go while the prediction stays, from the columns of `adversary_exact` and `adversary_search`.

Per text and epsilon, the epsilon-max JSD (nats, 0..ln 2): the largest Jensen-Shannon divergence between the model's
attention and another that moves the prediction by a total variation distance of epsilon at most. "exact" is what
`adversary_exact` stored, a maximum where its certainty is "exact". "search" is the largest of the rows of
`adversary_search` that stay within a selection threshold, .01 and .05, and of the model's own attention (0), whatever
epsilon the search was run with. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.record import RecordError
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.figures import drawing, histograms
from attnfaith.reporting.html import CLASS_COLUMN
from attnfaith.reporting.render import interval_in_words, left_out, rows
from attnfaith.reporting.spec import Row, Section, Table, counts, main, per_cell, plain, share
from attnfaith.stats import estimate
from attnfaith.support.errors import counted


EXACT, SEARCH = "adversary_exact_jsd", "adversary_search_attention"
SELECTION_EPSILONS = (0.01, 0.05)
HIGH = 0.6  # nats
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
    if not cell.has(SEARCH):
        return
    draws = cell.rows(SEARCH)
    draw_counts = np.array([len(drawn) for drawn in draws])
    owner = np.repeat(np.arange(len(cell)), draw_counts)
    probs = [row for drawn in cell.rows("adversary_search_probs") for row in drawn]
    jsd = jensen_shannon_divergence([row for drawn in draws for row in drawn], [cell.attention[place] for place in owner])
    changes = total_variation_distance(probs, [cell.probs[place] for place in owner])
    nothing = np.full(len(cell), np.nan)
    for epsilon in SELECTION_EPSILONS:
        feasible = changes <= epsilon
        best = np.where(draw_counts > 0, 0.0, np.nan)
        np.maximum.at(best, owner[feasible], jsd[feasible])
        with np.errstate(invalid="ignore"):
            share_feasible = np.bincount(owner, feasible, minlength=len(cell)) / draw_counts
        yield Way("search", epsilon, best, nothing, nothing, share_feasible, np.full(len(cell), ""))


def _stored(cell: Cell) -> Iterator[Way]:
    if not cell.has(EXACT):
        return
    names = ("epsilon", "jsd", "bound", "one_token")
    columns = {name: cell.rows(f"adversary_exact_{name}") for name in names}
    sizes = {name: [len(row) for row in rows] for name, rows in columns.items()}
    if len({*map(tuple, sizes.values())}) > 1:
        raise RecordError("the columns adversary_exact_... have different numbers of epsilons: measure the model anew")
    owner = np.repeat(np.arange(len(cell)), sizes["epsilon"])
    flat = {name: np.concatenate(rows).astype(np.float64) for name, rows in columns.items()}
    certainty = np.array(cell.table.column("adversary_exact_certainty").to_pylist(), dtype=object)
    nothing = np.full(len(cell), np.nan)
    for epsilon in np.unique(flat["epsilon"]):
        values, here = {name: nothing.copy() for name in names}, flat["epsilon"] == epsilon
        for name in names:
            values[name][owner[here]] = flat[name][here]
        yield Way("exact", float(epsilon), values["jsd"], values["bound"], values["one_token"], nothing, certainty)


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """adversary_search_<epsilon> and adversary_exact_<epsilon>, the epsilon-max JSD in nats."""
    return {way.name: way.jsd for way in ways(cell)}


# ---------- table


def _rows(cell: Cell) -> Iterator[Row]:
    exact = {way.epsilon: way.jsd for way in ways(cell) if way.method == "exact"}
    for way in ways(cell):
        for label, members in cell.classes:
            yield {"method": way.method, "epsilon": way.epsilon, "class": label} | numbers(way, exact, members)


def numbers(way: Way, exact: dict[float, np.ndarray], members: np.ndarray) -> dict[str, float]:
    """The numbers of a way over some texts, and how far it falls short of the exact epsilon-max JSD, where that is known."""
    jsd, nothing = way.jsd[members], np.full(int(members.sum()), np.nan)
    defined, searched, best = ~np.isnan(jsd), way.method == "search", nothing
    if searched and way.epsilon in exact:
        best = exact[way.epsilon][members]
    reached = np.divide(jsd, best, out=nothing.copy(), where=best > 0)
    certain = {
        f"share_{name.replace(' ', '_')}": np.where(defined, way.certainty[members] == name, np.nan) for name in CERTAINTIES
    }
    return {
        **counts(jsd),
        **main("jsd_mean", jsd),
        "jsd_std": float(np.std(jsd[defined])) if defined.any() else np.nan,
        **estimate("jsd_median", jsd, np.median),
        **estimate("share_above_0.6", share(jsd, above=HIGH)),
        **estimate("bound_mean", way.bound[members]),
        **plain(**(dict.fromkeys(certain, nothing) if searched else certain)),
        **estimate("share_one_token", share(way.one_token[members], above=0)),
        **estimate("share_feasible", way.feasible[members]),
        "n_nothing_found": int((jsd == 0).sum()) if searched else np.nan,
        **estimate("gap_mean", best - jsd),
        **estimate("share_of_exact", reached),
    }


def _method(row: Row) -> str:
    """ "search"; "exact", or what stands in its place in most texts."""
    if row["method"] == "search" or not row["n"]:
        return row["method"]
    return max(CERTAINTIES, key=lambda name: row[f"share_{name.replace(' ', '_')}"])


TABLE = Table(
    name="adversary",
    rows=_rows,
    heads=3,
    headings={
        "method": ("method", _method),
        "epsilon": ("ε", lambda row: f"{row['epsilon']:g}"),
        "class": CLASS_COLUMN,
        "n": "texts",
        "n_undefined": "undefined",
        "jsd_mean": "mean JSD [95 % interval]",
        "jsd_median": "median",
        "share_above_0.6": "share above .6",
        "bound_mean": "upper bound",
        "share_one_token": "one token suffices",
        "share_feasible": "restarts within ε",
        "gap_mean": "short of the exact one",
        "share_of_exact": "share of it reached",
    },
    caption="Adversarial attention",
    note="Per text, the largest Jensen-Shannon divergence (nats, at most ln 2 = 0.693) between the model’s attention and "
    "one that moves the prediction by a total variation distance of ε at most. Search: the best of its restarts within ε, a "
    "lower bound. Exact: a closed form, the maximum; “bounded” (more than two classes) and “lower bound” (a read-out "
    "that is not affine) are the best attention found. One token suffices: texts where one token given all weight keeps "
    "the prediction. Undefined: texts of fewer than two tokens; they are in no mean. –: does not apply.",
)
"""n: texts with an epsilon-max JSD. jsd_mean, jsd_std, jsd_median in nats; shares in 0..1; all over texts.

exact: bound_mean, mean of the certified upper bounds; share_exact, share_bounded, share_lower_bound: how certain a
maximum is; share_one_token: texts where one token given all weight keeps the prediction. search: share_feasible of the
restarts, mean over texts; n_nothing_found: texts where no restart within epsilon differs from the model's attention.
Where the cell has both ways at an epsilon, the search falls short of the exact one by gap_mean, and reaches share_of_exact
of it, mean over texts where that is above 0. NaN belongs to the other way.
"""


# ---------- figure and sentence


def ways_at_one_epsilon(cell: Cell) -> list[Way]:
    """The ways that the figure and the sentence show, at one epsilon: .01, the paper's, where a way has it."""
    epsilons = [way.epsilon for way in ways(cell)]
    epsilon = SELECTION_EPSILONS[0] if SELECTION_EPSILONS[0] in epsilons else min(epsilons, default=0.0)
    return [way for way in reversed(ways(cell)) if way.epsilon == epsilon]


def _sentences(cell: Cell) -> Iterator[str]:
    overall = {(row["method"], row["epsilon"]): row for row in rows(cell, TABLE) if row["class"] == "overall"}
    row, *searched = [overall[way.method, way.epsilon] for way in ways_at_one_epsilon(cell)]
    if not row["n"]:
        yield f"No text has two tokens, so there is no adversarial attention ({row['n_undefined']:,} undefined)."
        return
    exact = row["method"] == "exact"
    text = (
        f"An attention that moves the prediction by no more than {row['epsilon']:g} can be "
        f"{'' if exact and row['share_exact'] == 1 else 'at least '}{row['jsd_mean']:.3f} nats{interval_in_words(row)} of "
        f"Jensen-Shannon divergence away from the model’s own, on average over {counted(row['n'])}; at ln 2 = 0.693 the two "
        "share no weight."
    )
    if exact:
        text += f" In {row['share_one_token']:.0%} of the texts one token can have all the weight."
    if searched:
        text += f" The published search finds {searched[0]['jsd_mean']:.3f}."
    yield text + left_out(row["n_undefined"])


SECTION = Section(
    name="adversary",
    source="Jain & Wallace (2019), section 4.2.2",
    place=60,
    chapter="interventions",
    needs=("probs", "attention"),
    one_of=(EXACT, SEARCH),
    uses=("adversary_exact_*", "adversary_search_*"),
    per_text=per_text,
    tables=(TABLE,),
    figure=drawing(
        "adversary_jsd",
        partial(histograms, bins=np.linspace(0, np.log(2), 41)),
        "How far attention can go and keep the prediction",
        lambda cell: {str(way): way.jsd for way in ways_at_one_epsilon(cell)},
        "JSD between the model's and the adversarial attention (nats; dashed: mean)",
        alt="Histograms of the largest divergence per text between own and adversarial attention.",
        caption="How far from the model’s own an attention can be that keeps the prediction. At ln 2, the right edge, it "
        "shares no weight with it. What a search finds is a lower bound.",
    ),
    sentences=_sentences,
)
