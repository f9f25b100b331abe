"""How far attention can go while the prediction stays, from the columns of `adversary_exact` and `adversary_search`
(Jain & Wallace 2019, section 4.2.2).

Per text and epsilon, the epsilon-max JSD (nats, 0..ln 2): the largest Jensen-Shannon divergence between the model's
attention and another that moves the prediction by a total variation distance of epsilon at most. "exact" is what
`adversary_exact` stored, a maximum where its certainty is "exact". "search" is the largest of the rows of
`adversary_search` that stay within .01 or .05, and of the model's own attention (0). And how far attention is from being
determined, from the columns of `identifiability` (after Brunner et al. 2020, section 3): another attention is then one that
changes nothing in what the model reads. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.charts import binned, text_chart
from attnfaith.reporting.spec import section
from attnfaith.stats import ratio


EXACT, SEARCH = "adversary_exact_jsd", "adversary_search_attention"
SELECTION_EPSILONS = (0.01, 0.05)


class Way(NamedTuple):
    """One way at one epsilon. jsd: per text [N], NaN where undefined. more: further numbers per text by name."""

    method: str
    epsilon: float
    jsd: np.ndarray
    more: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        """Of its JSD among the numbers per text."""
        return f"adversary_{self.method}_{self.epsilon:g}"


@per_cell
def ways(cell: Cell) -> list[Way]:
    """Each way at each of its epsilons, the search first; [] where the cell holds neither."""
    exact = list(_stored(cell)) if cell.has(EXACT) else []
    return [*(_searched(cell, {way.epsilon: way.jsd for way in exact}) if cell.has(SEARCH) else ()), *exact]


def _stored(cell: Cell) -> Iterator[Way]:
    epsilons = cell.rows("adversary_exact_epsilon")
    for epsilon in np.unique(np.concatenate(epsilons)):
        values = {}
        for name in ("jsd", "bound", "one_token"):
            pairs = zip(cell.rows(f"adversary_exact_{name}"), epsilons, strict=True)
            values[name] = np.array([[np.nan, *row[own == epsilon]][-1] for row, own in pairs], np.float64)
        jsd, one_token = values.pop("jsd"), values["one_token"]
        values["one_token"] = np.where(np.isnan(one_token), np.nan, one_token > 0)
        yield Way("exact", float(epsilon), jsd, values | {"exact": cell.is_exact("adversary_exact", ~np.isnan(jsd))})


def _searched(cell: Cell, exact: dict[float, np.ndarray]) -> Iterator[Way]:
    best, feasible = np.full((2, len(SELECTION_EPSILONS), len(cell)), np.nan)
    columns = (cell.rows(SEARCH), cell.rows("adversary_search_probs"), cell.attention, cell.probs)
    for text, row in enumerate(zip(*columns, strict=True)):
        drawn, probs, attention, own = (np.asarray(values, np.float64) for values in row)
        if len(drawn):
            jsd = jensen_shannon_divergence(drawn, [attention] * len(drawn))
            within = total_variation_distance(probs, [own] * len(probs)) <= np.array(SELECTION_EPSILONS)[:, None]
            best[:, text], feasible[:, text] = np.where(within, jsd, 0.0).max(axis=1), within.mean(axis=1)
    for place, epsilon in enumerate(SELECTION_EPSILONS):
        more = {"feasible": feasible[place]}
        if epsilon in exact:
            more["reached"] = ratio(best[place], exact[epsilon])
        yield Way("search", epsilon, best[place], more)


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """adversary_exact_<epsilon> and adversary_search_<epsilon>, the epsilon-max JSD in nats. With an ending, of the exact
    way: _bound, which none exceeds (nats); _one_token, whether one token given all weight keeps the prediction; _exact,
    whether the JSD is proved to be the maximum. Of the search: _feasible, share of its restarts within epsilon; _reached,
    share of the exact JSD, NaN where that is 0.
    """
    numbers = {}
    for way in ways(cell):
        numbers |= {way.name: way.jsd} | {f"{way.name}_{name}": values for name, values in way.more.items()}
    return numbers


def strictest(cell: Cell) -> list[Way]:
    """The ways at one epsilon, the exact one first: .01, the paper's, where a way has it, else the smallest."""
    epsilons = [way.epsilon for way in ways(cell)]
    epsilon = SELECTION_EPSILONS[0] if SELECTION_EPSILONS[0] in epsilons else min(epsilons, default=0.0)
    return [way for way in reversed(ways(cell)) if way.epsilon == epsilon]


SECTION = section(
    "adversary",
    per_text=per_text,
    chart=lambda cell: text_chart(
        "adversary_jsd",
        {f"{way.method}, ε = {way.epsilon:g}": way.jsd for way in strictest(cell)},
        ticks=(0.0, float(np.log(2)) / 2, float(np.log(2))),
    ),
    lead=lambda cell: [way.name for way in strictest(cell)],
)


BEGIN = "identifiability_"
NUMBERS = ("tvd", "bound", "support", "top_attention", "top_low", "logit_change")


@per_cell
def identifiability(cell: Cell) -> dict[str, np.ndarray]:
    """identifiability_tvd of each text, total variation distance (0..1) to the furthest other attention that was reached;
    _bound, which none exceeds; _exact: whether they meet; _weight, _low, _high and _width: weight of its most attended token
    (the first of equal ones), the ends of its interval and its width; _support: the fewest tokens with weight that suffice.
    """
    values = {name: cell.column(BEGIN + name) for name in NUMBERS}
    values["exact"] = cell.is_exact("identifiability", ~np.isnan(values["tvd"]))
    columns = {"weight": cell.attention, "low": cell.rows(f"{BEGIN}low"), "high": cell.rows(f"{BEGIN}high")}
    for name, rows in columns.items():
        pairs = zip(rows, cell.attention, strict=True)
        values[name] = np.array([row[own.argmax()] if len(own) > 1 else np.nan for row, own in pairs], np.float64)
    values["width"] = values["high"] - values["low"]
    return {BEGIN + name: numbers for name, numbers in values.items()}


IDENTIFIABILITY = section(
    "identifiability",
    per_text=identifiability,
    chart=lambda cell: text_chart(
        "identifiability_by_length",
        binned(identifiability(cell)[f"{BEGIN}tvd"], cell.lengths, (2, 5, 10, 20, 40, 80, 160), "tokens:"),
    ),
)
