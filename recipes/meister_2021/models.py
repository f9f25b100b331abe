"""The cells of one model, its numbers over projections, seeds and texts, and how they move with sparsity.

Sparsegen's knob is lambda < 1, 0 for sparsemax; entmax's is alpha >= 1, 1 for softmax and 2 for sparsemax. Both grow with
sparsity. Softmax and uniform attention have no lambda.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.stats import Panel, percentile_interval, ratio, with_interval

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
                    numbers = [np.nan] * 3 if panel is None else [part[place] for part in (panel.means, *panel.intervals())]
                    row |= dict(zip(with_interval(name), map(float, numbers), strict=True))
                yield row

    def trend(self, name: str, statistic: Callable, panel: Panel | None) -> dict[str, float]:
        """A statistic of x and the means of a panel's filled levels, with its interval; NaN without a panel."""
        if panel is None:
            return dict.fromkeys(with_interval(name), np.nan)
        return interval_columns(name, statistic(self.x, np.where(panel.filled, means_and_draws(panel), np.nan)))

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
        pairs = zip(means_and_draws(own), means_and_draws(curve), strict=True)
        effective = np.array([_read(*pair, fixed.x) for pair in pairs])
        known = ~np.isnan(effective[0])
        return {"n_kept": int(known.sum()), **interval_columns("kept", slope(levels.x[known], effective[:, known]))}


def _read(values: np.ndarray, curve: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Where a falling curve over x takes the values; NaN outside of it, and everywhere where it does not fall throughout."""
    falls = len(curve) > 1 and (np.diff(curve) < 0).all()
    return np.interp(-values, -curve, x, left=np.nan, right=np.nan) if falls else np.full(len(values), np.nan)


def means_and_draws(panel: Panel) -> np.ndarray:
    """The means of a panel and those of each draw, [1 + D, X]."""
    return np.vstack([panel.means, panel.draws.T])


def interval_columns(name: str, values: np.ndarray) -> dict[str, float]:
    """A statistic and its interval from values [1 + D]: itself, then in each draw. All NaN where it is undefined."""
    low, high = percentile_interval(values[1:], defined=0.5) if np.isfinite(values[0]) else (np.nan, np.nan)
    return dict(zip(with_interval(name), map(float, (values[0], low, high)), strict=True))


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
