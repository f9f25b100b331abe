"""Numbers per text of the cells of one model, and intervals of their means over seeds and texts.

A number is an array [N] over the texts of a cell, NaN where undefined, or None where the cell lacks the columns it needs.
Numbers are computed once for each cell. Shapes: X levels of a knob or of the projection, S seeds, N texts, D draws.

Intervals are 95 % percentile intervals of a bootstrap in two steps: seeds are drawn with replacement, and texts are drawn
with replacement; a draw of texts serves all seeds and all levels, because these read the same texts, so that differences
are paired. The number is the mean over seeds of each seed's mean over texts. With one seed the interval speaks of texts
only. With three, one draw in nine is of one seed alone, so that the interval reaches about as far as the lowest and the
highest seed, and an interval without 0 needs all three on one side; three seeds cannot say more. Every draw is fixed by a
constant.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, support_size
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau, tie_ceiling
from attnfaith.metrics.attention_faithfulness.support_agreement import support_auprc, top_k_overlap
from attnfaith.reporting.cells import Cell, match
from attnfaith.stats import with_interval

from .sweep import entmax_alpha, is_plain, plain_alignment, sparsegen_lambda


INPUTS = ("gradient_norm", "leave_one_out")
STATES = ("gradient_norm_hidden", "leave_one_out_hidden", "leave_one_out_reproject_hidden")
MEASURES = (*INPUTS, *STATES)
IDENTITY = ("dataset", "revision", "split", "encoder", "alignment", "vectors")
"""Identity columns of a model; its alignment is named without a scale."""
DRAWS = 1000
FEWEST = 0.1
"""Least share of a level's texts that have a value where the level counts in a slope or correlation: where sparse attention
has not begun to leave tokens out, a handful of texts has a support to speak of, and not the usual ones.
"""
DIFFERENT = 1e-4
"""Least difference of two total variation distances that counts as one."""


# ------------------------------------------------------------------------------------------------- numbers per text


def remembered(number: Callable) -> Callable:
    """The same function, computed once for each cell and arguments, and forgotten with the cell."""
    known: WeakKeyDictionary[Cell, dict] = WeakKeyDictionary()

    @functools.wraps(number)
    def asked(cell: Cell, *arguments):
        found = known.setdefault(cell, {})
        if arguments not in found:
            found[arguments] = number(cell, *arguments)
        return found[arguments]

    return asked


def tau(cell: Cell, measure: str) -> np.ndarray | None:
    """Kendall's tau-b of attention with one measure, -1..1."""
    return cell.tau("attention", measure) if measure in cell.measures else None


@remembered
def ceiling(cell: Cell, measure: str) -> np.ndarray | None:
    """The largest tau-b that the ties of the two rows allow, 0..1."""
    return tie_ceiling(cell.attention, cell.scores(measure)) if measure in cell.measures else None


def tau_over_ceiling(cell: Cell, measure: str) -> np.ndarray | None:
    """tau-b over its ceiling. Where attention alone has ties it is Goodman & Kruskal's gamma, -1..1."""
    return tau(cell, measure) / ceiling(cell, measure) if measure in cell.measures else None


@remembered
def tied_pairs(cell: Cell) -> np.ndarray:
    """Share of the pairs of tokens with equal attention, 0..1; NaN below two tokens."""
    untied = tie_ceiling(cell.attention) ** 2  # against scores without ties the ceiling is the root of the untied share
    return np.where(cell.lengths < 2, np.nan, 1 - np.nan_to_num(untied))


@remembered
def _cut(cell: Cell, dense: Cell) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Rows of `cell`, for each the dense model's attention cut to the cell's support size, and the dense model's rows."""
    rows, others = match(cell, dense)
    sizes = [int(np.count_nonzero(cell.attention[row])) for row in rows]
    return rows, [_largest(dense.attention[row], size) for row, size in zip(others, sizes, strict=True)], others


def _with_cut(cell: Cell, dense: Cell, measure: str, agreement: Callable) -> np.ndarray:
    """`agreement` of the cut attention with the dense model's importance, [N of cell]; NaN for texts it lacks."""
    rows, cut, others = _cut(cell, dense)
    importance = dense.scores(measure)
    found = np.full(len(cell), np.nan)
    found[rows] = agreement(cut, [importance[row] for row in others])
    return found


@remembered
def tau_of_ties_alone(cell: Cell, dense: Cell, measure: str) -> np.ndarray | None:
    """tau-b of a dense model's own attention and importance, once its attention is cut to the support size of `cell`.

    In each text the largest weights of the dense attention stay, as many as `cell` gives a weight above zero, and the others
    are set to 0, hence tied. What tau-b then loses is due to ties alone: neither model nor importance has changed.
    """
    if measure not in dense.measures:
        return None
    return _with_cut(cell, dense, measure, lambda cut, importance: kendall_tau(cut, importance)[0])


def _largest(weights: np.ndarray, count: int) -> np.ndarray:
    """The `count` largest weights where they stand, 0 elsewhere; of equal weights at the border the first."""
    if count >= len(weights):
        return weights
    found = np.zeros_like(weights)
    kept = np.argsort(-weights, kind="stable")[:count]
    found[kept] = weights[kept]
    return found


RANDOM_SUPPORT = {
    "gradient_norm": "importance_gradient_norm",
    "leave_one_out": "importance_leave_one_out",
    "gradient_norm_hidden": "random_support_gradient_norm_hidden",
    "leave_one_out_hidden": "random_support_leave_one_out_hidden",
    "leave_one_out_reproject_hidden": "random_support_leave_one_out_hidden",
}
"""What attention at random places is held against: of inputs the model's own importance; of states the importance under
that very attention, since a state's importance follows the weight it gets. Weights without scores cannot be projected again,
so that both ways to remove a state have the renormalising one as their null.
"""


def random_support_tau(cell: Cell, measure: str) -> np.ndarray | None:
    """tau-b when the text's weights stand at random places; mean over the draws that define it."""
    return _random_support_taus(cell).get(RANDOM_SUPPORT[measure])


@remembered
def _random_support_taus(cell: Cell) -> dict[str, np.ndarray]:
    """The same for each column that random places are held against; {} without them."""
    held = set(cell.table.column_names)
    if "random_support_attention" not in held:
        return {}
    attention, counts = _draws(cell, "random_support_attention")
    owner = np.repeat(np.arange(len(cell)), counts)
    found = {}
    for column in held & set(RANDOM_SUPPORT.values()):
        if column.startswith("random_support"):
            against = _draws(cell, column)[0]
        else:
            importance = records.rows(cell.table, column)
            against = [importance[row] for row in owner]
        found[column] = _mean_by_owner(kendall_tau(attention, against)[0], owner, len(cell))
    return found


def _draws(cell: Cell, column: str) -> tuple[list[np.ndarray], np.ndarray]:
    """All draws of a column, text after text, and how many each text has [N]."""
    texts = cell.table.column(column).combine_chunks()
    draws = texts.flatten()
    ends = np.cumsum(draws.value_lengths().to_numpy())
    flat = draws.flatten().to_numpy(zero_copy_only=False)
    return np.split(flat, ends[:-1]) if len(ends) else [], texts.value_lengths().to_numpy()


def _mean_by_owner(values: np.ndarray, owner: np.ndarray, count: int) -> np.ndarray:
    """Mean of the defined values of each owner, [count]; NaN where there is none."""
    defined = ~np.isnan(values)
    totals = np.bincount(owner[defined], weights=values[defined], minlength=count)
    number = np.bincount(owner[defined], minlength=count)
    return np.where(number > 0, totals / np.maximum(number, 1), np.nan)


@remembered
def entropy(cell: Cell, scores: str) -> np.ndarray | None:
    """Normalised entropy of "attention" or of a measure, 0..1."""
    if scores != "attention" and scores not in cell.measures:
        return None
    return normalised_entropy(cell.scores(scores))


@remembered
def support(cell: Cell) -> np.ndarray:
    """Tokens with a weight above zero; NaN for an empty text."""
    return support_size(cell.attention)


def support_share(cell: Cell) -> np.ndarray:
    """Tokens with a weight above zero over all, in 0..1."""
    return support(cell) / np.maximum(cell.lengths, 1)


def correct(cell: Cell) -> np.ndarray:
    """1 where the predicted class is the gold label, 0 where not; NaN without a label. Its mean is the accuracy."""
    return np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels)


@remembered
def over_states(cell: Cell, column: str) -> np.ndarray | None:
    """Mean over a text's states of hidden_to_input_entropy or hidden_to_input_own, 0..1; undefined states left out."""
    if column not in cell.table.column_names:
        return None
    rows = records.rows(cell.table, column)
    owner = np.repeat(np.arange(len(cell)), [len(row) for row in rows])
    return _mean_by_owner(np.concatenate([*rows, np.zeros(0)]).astype(np.float64), owner, len(cell))


@remembered
def _overlap(cell: Cell, measure: str) -> tuple[np.ndarray, np.ndarray]:
    return top_k_overlap(cell.attention, cell.scores(measure))


@remembered
def _auprc(cell: Cell, measure: str) -> tuple[np.ndarray, np.ndarray]:
    return support_auprc(cell.attention, cell.scores(measure))


def agreement_without_ties(cell: Cell, measure: str, which: str, part: str) -> np.ndarray | None:
    """which: "overlap" of the most attended tokens with the most important, or "auprc" of importance against the support.
    part: "value", its "chance", or "above_chance", (value - chance) / (1 - chance): 0 at chance, 1 at best.
    """
    if measure not in cell.measures:
        return None
    value, chance = (_overlap if which == "overlap" else _auprc)(cell, measure)
    if part == "above_chance":
        return _above_chance(value, chance)
    return np.where(np.isnan(value), np.nan, value if part == "value" else chance)


@remembered
def agreement_of_cut(cell: Cell, dense: Cell, measure: str, which: str) -> np.ndarray | None:
    """The same above chance, for a dense model's attention cut as in `tau_of_ties_alone`."""
    if measure not in dense.measures:
        return None
    agreement = top_k_overlap if which == "overlap" else support_auprc
    return _with_cut(cell, dense, measure, lambda cut, importance: _above_chance(*agreement(cut, importance)))


def _above_chance(value: np.ndarray, chance: np.ndarray) -> np.ndarray:
    room = 1 - chance
    return np.where(room > 0, (value - chance) / np.where(room > 0, room, 1), np.nan)


@remembered
def tau_between(cell: Cell, first: str, second: str) -> np.ndarray | None:
    """tau-b between two measures."""
    return cell.tau(first, second) if {first, second} <= set(cell.measures) else None


@remembered
def mean_importance(cell: Cell, measure: str) -> np.ndarray | None:
    """Mean over the tokens of a text; NaN for an empty one."""
    if measure not in cell.measures:
        return None
    return np.array([row.mean() if len(row) else np.nan for row in cell.scores(measure)], np.float64)


@remembered
def tokens_that_differ(cell: Cell, first: str, second: str) -> np.ndarray | None:
    """Share of a text's tokens whose two importances differ by more than .0001; NaN for an empty text."""
    if not {first, second} <= set(cell.measures):
        return None
    rows = zip(cell.scores(first), cell.scores(second), strict=True)
    return np.array([np.mean(np.abs(one - other) > DIFFERENT) if len(one) else np.nan for one, other in rows], np.float64)


def any_token_differs(cell: Cell, first: str, second: str) -> np.ndarray | None:
    """1 where some token's two importances differ by more than .0001, 0 where none does; NaN for an empty text."""
    share = tokens_that_differ(cell, first, second)
    return None if share is None else np.where(np.isnan(share), np.nan, share > 0)


# ---------------------------------------------------------------------------------------- means, draws and intervals


@lru_cache(maxsize=4)
def _text_draws(count: int) -> np.ndarray:
    """How often each text is in each draw, [D, N]."""
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, count, (DRAWS, count)) + count * np.arange(DRAWS)[:, None]
    return np.bincount(chosen.ravel(), minlength=DRAWS * count).reshape(DRAWS, count).astype(np.float64)


@lru_cache(maxsize=16)
def _seed_draws(count: int) -> np.ndarray:
    """How often each seed is in each draw, [D, S]."""
    generator = np.random.default_rng(1)
    chosen = generator.integers(0, count, (DRAWS, count)) + count * np.arange(DRAWS)[:, None]
    return np.bincount(chosen.ravel(), minlength=DRAWS * count).reshape(DRAWS, count).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Panel:
    """One number of several cells: values [X, S, N], NaN where undefined or not held; held [X, S, N]: the cell is there, has
    the columns, and has the text.
    """

    values: np.ndarray
    held: np.ndarray

    @cached_property
    def n(self) -> np.ndarray:
        """Texts with a value, summed over seeds, [X]."""
        return (~np.isnan(self.values)).sum(axis=(1, 2))

    @cached_property
    def n_undefined(self) -> np.ndarray:
        return self.held.sum(axis=(1, 2)) - self.n

    @cached_property
    def n_seeds(self) -> np.ndarray:
        """Seeds with at least one value, [X]."""
        return (~np.isnan(self.values)).any(axis=2).sum(axis=1)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean over seeds of the mean over texts, [X]; NaN without a value."""
        defined = ~np.isnan(self.values)
        by_seed = _ratio(np.where(defined, self.values, 0).sum(axis=2), defined.sum(axis=2))
        known = ~np.isnan(by_seed)
        return _ratio(np.where(known, by_seed, 0).sum(axis=1), known.sum(axis=1))

    @cached_property
    def draws(self) -> np.ndarray:
        """The mean in each draw of seeds and texts, [X, D]; NaN where no drawn seed has a value."""
        levels, seeds, count = self.values.shape
        weights = _text_draws(count).T
        values = self.values.reshape(-1, count)
        defined = ~np.isnan(values)
        counts = np.full((len(values), DRAWS), float(count))  # each draw has as many texts as there are
        if len(gaps := np.flatnonzero(~defined.all(axis=1))):
            counts[gaps] = defined[gaps].astype(np.float64) @ weights
        by_seed = _ratio(np.where(defined, values, 0) @ weights, counts)
        by_seed = by_seed.reshape(levels, seeds, DRAWS)
        chosen = _seed_draws(seeds).T
        known = ~np.isnan(by_seed)
        return _ratio((np.where(known, by_seed, 0) * chosen).sum(axis=1), (known * chosen).sum(axis=1))

    @cached_property
    def filled(self) -> np.ndarray:
        """Levels with a value for at least a tenth of the texts held, [X] bool: what slopes and correlations rest on."""
        return (self.n > 0) & (self.n >= FEWEST * self.held.sum(axis=(1, 2)))

    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends, [X] each; NaN below two values."""
        low, high = interval(self.draws)
        few = self.n < 2
        return np.where(few, np.nan, low), np.where(few, np.nan, high)

    def minus(self, other: "Panel") -> "Panel":
        """The difference of each text in each seed; undefined where one of the two is."""
        return Panel(self.values - other.values, self.held & other.held)

    def where(self, other: "Panel") -> "Panel":
        """This panel where the other has values too: what is compared rests on the same texts."""
        both = self.held & other.held
        return Panel(np.where(both & ~np.isnan(other.values), self.values, np.nan), both)


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)


def interval(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2.5 % and 97.5 % quantiles over the last axis of [..., D], NaN draws left out; NaN where fewer than half are left."""
    low, high = np.full(draws.shape[:-1], np.nan), np.full(draws.shape[:-1], np.nan)
    enough = np.isfinite(draws).mean(axis=-1) >= 0.5
    if enough.any():
        low[enough], high[enough] = np.nanquantile(
            np.where(np.isfinite(draws[enough]), draws[enough], np.nan), (0.025, 0.975), axis=-1
        )
    return low, high


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [X] or [X, D] on x [X]; levels without y are left out, NaN below two."""
    y = np.asarray(y, np.float64)
    x = np.asarray(x, np.float64).reshape((-1,) + (1,) * (y.ndim - 1))
    known = ~np.isnan(y)
    count = known.sum(axis=0)
    off = np.where(known, x - _ratio((x * known).sum(axis=0), count), 0)
    return np.where(count >= 2, _ratio((off * np.where(known, y, 0)).sum(axis=0), (off**2).sum(axis=0)), np.nan)


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of y [X] or [X, D] with x [X]; levels without y are left out, NaN below two or where y is constant."""
    y = np.asarray(y, np.float64)
    first, second = np.triu_indices(len(y), 1)
    up = np.sign(np.asarray(x, np.float64)[second] - np.asarray(x, np.float64)[first]).reshape((-1,) + (1,) * (y.ndim - 1))
    step = np.sign(y[second] - y[first])
    known = ~np.isnan(step)
    step = np.where(known, step, 0)
    size = np.sqrt((np.abs(up) * known).sum(axis=0) * np.abs(step).sum(axis=0))
    return np.where(size > 0, (up * step).sum(axis=0) / np.where(size > 0, size, 1), np.nan)


def moved(take: Callable, x: np.ndarray, panel: Panel) -> tuple[float, np.ndarray]:
    """`slope` or `rank_correlation` of a panel's filled levels with x [X], and in each draw [D]."""
    unused = ~panel.filled
    means, draws = np.where(unused, np.nan, panel.means), np.where(unused[:, None], np.nan, panel.draws)
    return float(take(x, means)), take(x, draws)


def sharpness(lambdas: Iterable[float]) -> np.ndarray:
    """log10 of 1 / (1 - lambda): sparsegen is sparsemax of scores that many times as large. One unit is one decade."""
    return -np.log10(1 - np.asarray(list(lambdas), np.float64))


# ------------------------------------------------------------------------------------------- the cells of one model


class Model:
    """All cells of one model on one data set: every projection, seed and variant, in one frame of seeds and texts."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = list(cells)
        self.heading = {name: str(self.cells[0].heading[name]) for name in IDENTITY}
        self.heading["alignment"] = plain_alignment(self.cells[0])
        self.seeds = sorted({cell.heading["seed"] for cell in self.cells})
        names = sorted(set().union(*(cell.instance_ids for cell in self.cells)))
        self._count = len(names)
        place = {name: number for number, name in enumerate(names)}
        self._places = {cell: np.array([place[name] for name in cell.instance_ids]) for cell in self.cells}

    @property
    def name(self) -> str:
        """ "bilstm + additive"."""
        return f"{self.heading['encoder']} + {self.heading['alignment']}"

    @cached_property
    def plain(self) -> list[Cell]:
        """The cells of the paper's sweep, by projection: softmax, sparsegen from low to high lambda, then others."""
        return sorted((cell for cell in self.cells if is_plain(cell)), key=_order)

    def projection(self, name: str) -> list[Cell]:
        return [cell for cell in self.plain if cell.heading["projection"] == name]

    @cached_property
    def dense(self) -> dict[int, Cell]:
        """The softmax cell of each seed."""
        return {cell.heading["seed"]: cell for cell in self.projection("softmax")}

    def panel(
        self,
        levels: Sequence[Sequence[Cell]],
        number: Callable,
        *arguments: str,
        beside: Mapping[int, Cell] | None = None,
    ) -> Panel | None:
        """`number(cell, *arguments)` of the cells of each level; None where no cell has it. beside: a cell of each seed that
        the number takes as its second argument; a seed without one has no value.
        """
        shape = (len(levels), len(self.seeds), self._count)
        values, held = np.full(shape, np.nan), np.zeros(shape, bool)
        for level, cells in enumerate(levels):
            for cell in cells:
                seed = cell.heading["seed"]
                if beside is not None and seed not in beside:
                    continue
                found = number(cell, *arguments) if beside is None else number(cell, beside[seed], *arguments)
                if found is not None:
                    values[level, self.seeds.index(seed), self._places[cell]] = found
                    held[level, self.seeds.index(seed), self._places[cell]] = True
        return Panel(values, held) if held.any() else None


def models(cells: Iterable[Cell]) -> list[Model]:
    """The cells by model, in order of first appearance."""
    found: dict[tuple, list[Cell]] = {}
    for cell in cells:
        key = tuple(cell.heading[name] for name in IDENTITY if name != "alignment")
        found.setdefault((*key, plain_alignment(cell)), []).append(cell)
    return [Model(group) for group in found.values()]


def model_names(table: pd.DataFrame) -> pd.Series:
    """Data set and model of each row of a table, "sst · bilstm + additive", with what else tells two of one name apart."""
    names = ["dataset", "encoder", "alignment"]
    found = table["dataset"] + " · " + table["encoder"] + " + " + table["alignment"]
    for name in ("vectors", "revision", "split"):
        several = table.groupby(names)[name].transform("nunique") > 1
        found = found.where(~several, found + ", " + table[name])
    return found


def _order(cell: Cell) -> tuple:
    knob, alpha = sparsegen_lambda(cell), entmax_alpha(cell)
    if cell.heading["projection"] == "softmax":
        return (0, 0.0)
    if knob is not None:
        return (1, knob)
    return (2, alpha) if alpha is not None else (3, 0.0)


def levels_of(cells: Iterable[Cell], knob: Callable[[Cell], object]) -> dict:
    """Cells by their value of a knob, in its order where it has one; cells without it (None) are left out."""
    found: dict = {}
    for cell in cells:
        if (value := knob(cell)) is not None:
            found.setdefault(value, []).append(cell)
    return dict(sorted(found.items())) if all(isinstance(value, float) for value in found) else found


def by_projection(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    return levels_of(cells, lambda cell: str(cell.heading["projection"]))


def described_levels(panels: Mapping[str, Panel | None], count: int) -> list[dict]:
    """Columns of a table for each of `count` levels: n_seeds, n, n_undefined of the first panel that is there, then the
    mean of each with the ends of its interval; NaN for a panel that is not there.
    """
    rows: list[dict] = [{} for _ in range(count)]
    first = next((panel for panel in panels.values() if panel is not None), None)
    for row, place in zip(rows, range(count), strict=True):
        for name in ("n_seeds", "n", "n_undefined"):
            row[name] = 0 if first is None else int(getattr(first, name)[place])
    for name, panel in panels.items():
        means = np.full(count, np.nan) if panel is None else panel.means
        ends = (means, means) if panel is None else panel.intervals()
        for place, row in enumerate(rows):
            row |= dict(zip(with_interval(name), map(float, (means[place], ends[0][place], ends[1][place])), strict=True))
    return rows


def described(name: str, value: float, draws: np.ndarray) -> dict[str, float]:
    """A statistic of several means with its interval from the draws [D]; both NaN where it is undefined."""
    low, high = interval(draws) if np.isfinite(value) else (np.nan, np.nan)
    return dict(zip(with_interval(name), map(float, (value, low, high)), strict=True))
