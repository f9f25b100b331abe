"""The cells of one model, its numbers over projections, seeds and texts, and how they move with sparsity.

Sparsegen's knob is lambda < 1, 0 for sparsemax; entmax's is alpha >= 1, 1 for softmax and 2 for sparsemax. Both grow with
sparsity. Softmax and uniform attention have no lambda.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.stats import UNKNOWN, Estimate, over_seeds_and_texts, over_seeds_of_texts, ratio, with_interval

from .numbers import of_adversary, of_cell, of_cut


IDENTITY = ("dataset", "texts", "training_texts", "split", "encoder", "alignment", "vectors")
"""Identity columns of a model; its alignment is named without a scale."""


def sparsegen_lambda(cell: Cell) -> float | None:
    return {"sparsemax": 0.0, "sparsegen": cell.identity.projection_parameter}.get(cell.identity.projection)


def entmax_alpha(cell: Cell) -> float | None:
    alphas = {"softmax": 1.0, "entmax15": 1.5, "entmax": cell.identity.projection_parameter, "sparsemax": 2.0}
    return alphas.get(cell.identity.projection)


def is_plain(cell: Cell) -> bool:
    """Whether the cell was trained on labels, all of it at one rate, on whole texts, with scores of a free scale."""
    own = cell.identity
    return (own.objective, own.attention_rate, own.random_erasure, own.score_scale) == ("classification", 1, 0, None)


def is_adversary(cell: Cell) -> bool:
    """Whether the model was trained to attend otherwise than another one, with scores of a free scale."""
    return cell.identity.objective == "adversarial" and cell.identity.score_scale is None


def grouped(cells: Iterable[Cell], key: Callable[[Cell], object]) -> dict:
    """Cells by a key, in order of first appearance; cells whose key is None are left out."""
    groups: dict = {}
    for cell in cells:
        if (value := key(cell)) is not None:
            groups.setdefault(value, []).append(cell)
    return groups


def models(cells: Iterable[Cell]) -> "list[Model]":
    """The cells by model, in order of first appearance."""
    others = [name for name in IDENTITY if name != "alignment"]
    groups = grouped(cells, lambda cell: (*(cell.heading[name] for name in others), cell.identity.alignment))
    return [Model(group) for group in groups.values()]


class Model:
    """All cells of one model on one data set: every projection, seed and variant, in one frame of seeds and texts."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = list(cells)
        self.heading = {name: str(self.cells[0].heading[name]) for name in IDENTITY}
        self.heading["alignment"] = self.cells[0].identity.alignment
        self.name = f"{self.heading['encoder']} + {self.heading['alignment']}"
        self.seeds = sorted({cell.heading["seed"] for cell in self.cells})
        texts = sorted(set().union(*(cell.instance_ids for cell in self.cells)))
        place = {name: number for number, name in enumerate(texts)}
        self.places = {cell: np.array([place[name] for name in cell.instance_ids]) for cell in self.cells}
        self.shape = len(self.seeds), len(texts)
        # softmax, other projections without lambda, then lambda from low to high
        knobs = ((cell, sparsegen_lambda(cell), entmax_alpha(cell)) for cell in self.cells if is_plain(cell))
        self.plain = [cell for cell, *_ in sorted(knobs, key=lambda part: (part[1] is not None, part[1] or 0, part[2] or 3))]
        self.by_place = {(cell.heading["projection"], cell.heading["seed"]): cell for cell in self.plain}

    def numbers(self, cell: Cell) -> dict[str, np.ndarray]:
        """The numbers per text of a cell, and beside another model of its seed: softmax, or the base of an adversary."""
        dense, base = (self.by_place.get((name, cell.heading["seed"])) for name in ("softmax", cell.heading["projection"]))
        beside = of_adversary(cell, base) if base is not None and is_adversary(cell) else {}
        return of_cell(cell) | beside | (of_cut(cell, dense) if dense is not None and is_plain(cell) else {})

    def at(self, projection: str, *, trained: bool = True) -> "Levels":
        """One level: the plain cells of a projection, or those before training."""
        kind = ("classification" if trained else "untrained", None)
        cells = [cell for cell in (self.plain if trained else self.cells) if cell.heading["projection"] == projection]
        return Levels(self, [{}], [[cell for cell in cells if (cell.identity.objective, cell.identity.score_scale) == kind]])

    def projections(self) -> "Levels":
        """The plain cells by projection, lambda beside, NaN where there is none."""
        groups = grouped(self.plain, lambda cell: str(cell.heading["projection"]))
        knobs = {name: sparsegen_lambda(cells[0]) for name, cells in groups.items()}
        heads = [{"projection": name, "lambda": np.nan if knob is None else knob} for name, knob in knobs.items()]
        return Levels(self, heads, list(groups.values()))

    def lambdas(self, cells: Sequence[Cell] | None = None) -> "Levels":
        """The plain cells, or others, by lambda from low to high."""
        groups = dict(sorted(grouped(self.plain if cells is None else cells, sparsegen_lambda).items()))
        return Levels(self, [{"lambda": knob} for knob in groups], list(groups.values()))

    def variants(self) -> dict[tuple[str, float], list[Cell]]:
        """Sparsegen cells by scale of scores ("free" or a number) and learning rate of attention; none of one alone."""
        swept = [(cell, cell.identity) for cell in self.cells if sparsegen_lambda(cell) is not None]
        scales = {cell: "free" if own.score_scale is None else f"{own.score_scale:g}" for cell, own in swept}
        trained = [cell for cell, own in swept if own.objective == "classification"]
        rates = {cell: int(own.attention_rate) if own.attention_rate % 1 == 0 else own.attention_rate for cell, own in swept}
        variants = grouped(trained, lambda cell: (scales[cell], rates[cell]))
        return variants if len(variants) > 1 else {}

    def adversaries(self) -> "Iterator[Levels]":
        """The adversaries of each projection and objective, as one level."""
        names = ("projection", "objective")
        kinds = grouped(filter(is_adversary, self.cells), lambda cell: tuple(cell.heading[name] for name in names))
        for (projection, _), cells in kinds.items():
            own = cells[0].identity
            head = {"projection": projection, "training": "frozen" if own.adversary_frozen else "unfrozen"}
            yield Levels(self, [{**head, "divergence": own.adversary_divergence, "weight": own.adversary_weight}], [cells])


FEWEST = 0.1
"""Least share of a level's texts that have a value where the level counts in a slope or correlation: where sparse attention
has not begun to leave tokens out, a handful of texts has a support to speak of, and not the usual ones.
"""
Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Of the places x [X] of levels and the means there [..., X]: [...]."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One number per text of models trained from several seeds, at several levels of what is varied; X levels, S seeds, N
    texts. All intervals are over seeds and texts (`stats.over_seeds_and_texts`).

    values [X, S, N]: NaN where undefined or not held. held [X, S, N]: the model is there, has the number, and has the text.
    """

    values: np.ndarray
    held: np.ndarray

    @cached_property
    def defined(self) -> np.ndarray:
        return ~np.isnan(self.values)

    @cached_property
    def n(self) -> np.ndarray:
        """Texts with a value, summed over seeds, [X]."""
        return self.defined.sum(axis=(1, 2))

    @cached_property
    def n_undefined(self) -> np.ndarray:
        return self.held.sum(axis=(1, 2)) - self.n

    @cached_property
    def n_seeds(self) -> np.ndarray:
        """Seeds with at least one value, [X]."""
        return self.defined.any(axis=2).sum(axis=1)

    @cached_property
    def by_seed(self) -> np.ndarray:
        """Means over texts, [X, S]; NaN without a value."""
        return ratio(np.where(self.defined, self.values, 0).sum(axis=2), self.defined.sum(axis=2))

    @cached_property
    def left_out(self) -> np.ndarray:
        """`by_seed` when one text is left out, for each text, [N, X, S]."""
        values = np.where(self.defined, self.values, 0)
        sums = values.sum(axis=2, keepdims=True) - values
        return np.moveaxis(ratio(sums, self.defined.sum(axis=2, keepdims=True) - self.defined), 2, 0)

    @cached_property
    def filled(self) -> np.ndarray:
        """Levels with a value for at least FEWEST of the texts held, [X] bool: what slopes and correlations rest on."""
        return (self.n > 0) & (self.n >= FEWEST * self.held.sum(axis=(1, 2)))

    def estimate(self, level: int) -> Estimate:
        """Of the mean of one level."""
        return over_seeds_of_texts(self.values[level])

    def trend(self, x: np.ndarray, statistic: Statistic) -> Estimate:
        """Of a statistic of x and the means of the filled levels, taken in each seed."""
        means, without = (np.where(self.filled, np.swapaxes(part, -1, -2), np.nan) for part in (self.by_seed, self.left_out))
        return over_seeds(statistic(x, means), statistic(x, without))

    def minus(self, other: "Panel") -> "Panel":
        """The difference of each text in each seed; undefined where one of the two is."""
        return Panel(self.values - other.values, self.held & other.held)

    def where(self, other: "Panel") -> "Panel":
        """This panel where the other has values too: what is compared rests on the same texts."""
        both = self.held & other.held
        return Panel(np.where(both & other.defined, self.values, np.nan), both)


def over_seeds(by_seed: np.ndarray, left_out: np.ndarray) -> Estimate:
    """`over_seeds_and_texts` of a statistic [S] and of the same without each text [N, S]; seeds without it are left out."""
    known = ~np.isnan(by_seed)
    if not known.any():
        return UNKNOWN
    left_out = left_out[:, known].mean(axis=1)
    return over_seeds_and_texts(by_seed[known], left_out[~np.isnan(left_out)])


class Levels:
    """The cells of one model by what is varied. heads: what names each level in a table."""

    def __init__(self, model: Model, heads: list[dict], cells: list[list[Cell]]):
        self.model, self.heads, self.cells = model, heads, cells

    @property
    def x(self) -> np.ndarray:
        return sharpness(head["lambda"] for head in self.heads)

    def __call__(self, name: str) -> Panel | None:
        """The number of that name of each level, seed and text; None where no text has it."""
        values = np.full((len(self.cells), *self.model.shape), np.nan)
        held = np.zeros(values.shape, bool)
        for level, cells in enumerate(self.cells):
            for cell in cells:
                if (per_text := self.model.numbers(cell).get(name)) is not None:
                    place = level, self.model.seeds.index(cell.heading["seed"]), self.model.places[cell]
                    values[place], held[place] = per_text, True
        return None if np.isnan(values).all() else Panel(values, held)

    def rows(self, panels: Mapping[str, Panel | None], **names: object) -> Iterator[dict]:
        """A row for each level at which the first panel has a value: n_seeds, n, n_undefined of that panel, then the mean of
        each with its interval; NaN for a panel that is not there.
        """
        first = next(iter(panels.values()))
        for place, head in enumerate(self.heads if first is not None else ()):
            if first.n[place]:
                row = {**self.model.heading, **head, **names}
                row |= {name: int(getattr(first, name)[place]) for name in ("n_seeds", "n", "n_undefined")}
                for name, panel in panels.items():
                    numbers = UNKNOWN if panel is None else panel.estimate(place)
                    row |= dict(zip(with_interval(name), numbers[:3], strict=True))
                yield row

    def trend(self, name: str, statistic: Statistic, panel: Panel | None) -> dict[str, float]:
        """A statistic of x and the means of a panel's filled levels, with its interval; NaN without a panel."""
        return dict(
            zip(with_interval(name), (UNKNOWN if panel is None else panel.trend(self.x, statistic))[:3], strict=True)
        )

    def counted(self, panel: Panel) -> dict:
        """What names the model, how many levels are filled, and the seeds and texts that they hold."""
        counts = {"n_levels": panel.filled.sum(), "n_seeds": panel.n_seeds.max(), "n": panel.n[panel.filled].sum()}
        return self.model.heading | {name: int(count) for name, count in counts.items()}

    def kept(self, reference: Sequence[Cell]) -> dict[str, float]:
        """The slope of the effective lambda on lambda, both as x, over the n_kept lambdas that have one: that at which the
        reference, scores of fixed scale and the same seeds, has the same mean entropy of attention, read between its levels.
        1: the scores have the same scale whatever lambda is; 0: the model undoes lambda by larger or smaller ones.
        """
        seeds, fixed = {cell.heading["seed"] for cell in reference}, self.model.lambdas(reference)
        levels = self.model.lambdas([cell for cells in self.cells for cell in cells if cell.heading["seed"] in seeds])
        own, curve = levels("entropy"), fixed("entropy")
        if own is None or curve is None:
            return {}
        kept = []
        for part in ("by_seed", "left_out"):
            pairs = (np.swapaxes(getattr(panel, part), -1, -2) for panel in (own, curve))
            values, curves = (pair.reshape(-1, pair.shape[-1]) for pair in pairs)
            effective = np.array([_read(*pair, fixed.x) for pair in zip(values, curves, strict=True)])
            kept.append((effective, slope(levels.x, effective)))
        (effective, by_seed), (_, left_out) = kept
        found = over_seeds(by_seed, left_out.reshape(-1, len(by_seed)))
        n_kept = int((~np.isnan(effective)).any(axis=0).sum())
        return {"n_kept": n_kept, **dict(zip(with_interval("kept"), found[:3], strict=True))}


def _read(values: np.ndarray, curve: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Where a falling curve over x takes the values; NaN outside of it, and everywhere where it does not fall throughout."""
    falls = len(curve) > 1 and (np.diff(curve) < 0).all()
    return np.interp(-values, -curve, x, left=np.nan, right=np.nan) if falls else np.full(len(values), np.nan)


def moves_at_all(panel: Panel | None) -> bool:
    return panel is not None and panel.filled.sum() > 1


def minus(first: Panel | None, second: Panel | None) -> Panel | None:
    """The difference of two panels; None where one is missing or no text has both."""
    difference = None if first is None or second is None else first.minus(second)
    return difference if difference is not None and difference.n.any() else None


def sharpness(lambdas: Iterable[float]) -> np.ndarray:
    """log10 of 1 / (1 - lambda): sparsegen is sparsemax of scores that many times as large. One unit is one decade."""
    return -np.log10(1 - np.asarray(list(lambdas), np.float64))


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [..., X] on x [X]; levels without y are left out, NaN below two."""
    known = ~np.isnan(y)
    centre = ratio((x * known).sum(axis=-1, keepdims=True), known.sum(axis=-1, keepdims=True))
    off = np.where(known, x - centre, 0)
    return ratio((off * np.nan_to_num(y)).sum(axis=-1), (off**2).sum(axis=-1))


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of y [..., X] with x [X]; levels without y are left out, NaN below two or where y is constant."""
    first, second = np.triu_indices(len(x), 1)
    up, step = np.sign(x[second] - x[first]), np.sign(y[..., second] - y[..., first])
    untied = (np.abs(up) * ~np.isnan(step)).sum(axis=-1) * np.nansum(np.abs(step), axis=-1)
    return ratio(np.nansum(up * step, axis=-1), np.sqrt(untied))
