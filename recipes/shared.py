"""Numbers of models over seeds and texts, as the analyses of several papers need them.

An analysis imports them with two dots, `from ..shared import summary`. Models that differ in their seed alone are of one
kind: a table has a row for each kind of model, and its intervals and tests are over seeds and texts.

Shapes: S seeds, N texts. NaN: undefined.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.record import Identity
from attnfaith.reporting.cells import CELL, Cell, ReportError, describe
from attnfaith.reporting.sections import performance
from attnfaith.stats import LEVEL, over_seeds_of_texts


KIND = tuple(name for name in CELL if name != "seed")
"""Columns that name a kind of model: all of a cell but its seed."""
UNTOLD, UNDEFINED = "cannot be told", "undefined"
FEWEST_SEEDS = 5
"""Least number of seeds for a verdict: fewer say too little about another seed."""
Models = Mapping[int, Cell]
"""The models of one kind, {seed: cell}."""
Number = Callable[[Cell], "np.ndarray | None"]
"""A number per text of a cell, [N] float; None where the cell lacks it."""
ANY = (-np.inf, np.inf)


def as_table(rows: Callable[..., Iterable[Mapping[str, object]]]) -> Callable[..., pd.DataFrame]:
    """A function that yields rows, as one that returns their table."""

    @wraps(rows)
    def table(*arguments, **options) -> pd.DataFrame:
        return pd.DataFrame([*rows(*arguments, **options)])

    return table


def pick(per_text: Callable[[Cell], Mapping[str, np.ndarray]], name: str) -> Number:
    """The number of a name among those of a cell; None where it has none."""
    return lambda cell: per_text(cell).get(name)


CORRECT = pick(performance.per_text, "correct")
"""1 where the predicted class is the gold label, 0 where not."""


def precision_of(scores: str) -> Number:
    """The average precision of attention or of a measure against the marked tokens."""
    return lambda cell: average_precision(cell.scores(scores), cell.rows("rationale"))


def match(first: Cell, second: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two cells that hold the same instance. Raises ReportError where they share none, or it has other tokens."""
    places = pd.Index(second.instance_ids).get_indexer(first.instance_ids)  # -1: the other has no such text
    rows = np.flatnonzero(places >= 0)
    if not len(rows) or (first.lengths[rows] != second.lengths[places[rows]]).any():
        names = f"{describe(first.heading)} and {describe(second.heading)}"
        raise ReportError(f"{names} did not read the same texts: measure both on one split, read by one tokenizer")
    return rows, places[rows]


def kinds(cells: Sequence[Cell]) -> list[Models]:
    """Group the cells that differ in their seed alone, in order of first appearance."""
    groups: dict[Identity, dict[int, Cell]] = {}
    for cell in cells:
        groups.setdefault(replace(cell.identity, seed=0), {})[cell.identity.seed] = cell
    return list(groups.values())


def first(models: Models) -> Cell:
    """The model of the first seed."""
    return next(iter(models.values()))


def heading(models: Models) -> dict[str, str]:
    """The labels of a kind of model, by KIND."""
    return {name: str(first(models).heading[name]) for name in KIND}


@dataclass(frozen=True, eq=False)
class Twins:
    """Models that were changed in one thing, such as a penalty of training, and their plain twins of the same seeds.

    Texts are all that one of the models read, in the order of their ids, so that no order of rows matters.
    """

    plain: Models
    changed: Models

    @property
    def heading(self) -> dict[str, object]:
        """The labels of the changed models, by KIND."""
        return heading(self.changed)

    @cached_property
    def texts(self) -> list[str]:
        """The ids of the texts."""
        return text_ids([*self.plain.values(), *self.changed.values()])

    def values(self, number: Number) -> tuple[np.ndarray, np.ndarray]:
        """A number per text of the plain and of the changed models, [S, N] each."""
        return values(self.plain, number, self.texts), values(self.changed, number, self.texts)


def paired(plain: Models, changed: Models) -> Twins | None:
    """Two kinds of models by the seeds that both have; None without one."""
    seeds = sorted({*plain} & {*changed})
    return Twins({seed: plain[seed] for seed in seeds}, {seed: changed[seed] for seed in seeds}) if seeds else None


def twins(cells: Sequence[Cell], plain: Callable[[Identity], Identity]) -> list[Twins]:
    """Set each kind of model beside its plain twin, in order of first appearance.

    plain: the identity of the twin; of a plain model its own. Models whose twin is not among the cells are left out.
    """
    groups = {replace(first(models).identity, seed=0): models for models in kinds(cells)}
    partners = {identity: groups.get(plain(identity), {}) for identity in groups if plain(identity) != identity}
    pairs = [paired(partners[identity], groups[identity]) for identity in partners]
    return [pair for pair in pairs if pair is not None]


def text_ids(cells: Sequence[Cell]) -> list[str]:
    """The ids of all texts that one of the cells holds, sorted."""
    return sorted({name for cell in cells for name in cell.instance_ids})


def values(models: Models, number: Number, texts: Sequence[str] | None = None) -> np.ndarray:
    """A number per text of each model, [S, N] float64; NaN where a model lacks it or the text.

    texts: sorted ids, else all that one of the models read.
    """
    texts = text_ids(list(models.values())) if texts is None else texts
    table = np.full((len(models), len(texts)), np.nan)
    for row, cell in zip(table, models.values(), strict=True):
        numbers = number(cell)
        if numbers is not None:
            row[np.searchsorted(texts, cell.instance_ids)] = numbers
    return table


def mean_of_means(numbers: np.ndarray) -> float:
    """The mean over seeds of the mean over texts of [S, N]; NaN of nothing."""
    return float(pd.DataFrame(numbers).mean(axis=1).mean())


def summary(numbers: np.ndarray, bounds: tuple[float, float] = ANY) -> dict[str, float]:
    """The mean over seeds of the mean over texts of [S, N], its 95 % interval over seeds and texts, with one seed over texts
    (`stats.over_seeds_of_texts`), and the standard deviation over seeds (std), as columns of a table.

    bounds: the range of the number, which the interval does not leave. n_seeds: with two defined texts or more. n_texts,
    n_undefined: summed over seeds.
    """
    defined = ~np.isnan(numbers)
    return {
        "n_seeds": int((defined.sum(1) >= 2).sum()),
        "n_texts": int(defined.sum()),
        "n_undefined": int((~defined).sum()),
        **dict(zip(("mean", "ci_low", "ci_high"), over_seeds_of_texts(numbers, bounds=bounds)[:3], strict=True)),
        "std": float(pd.DataFrame(numbers).mean(axis=1).std()),
    }


def rows_of(
    models: Models,
    numbers: Mapping[str, Number],
    labels: Mapping[str, object],
    bounds: Callable[[str], tuple[float, float]] = lambda name: (0, 1),
    named: str = "statistic",
) -> Iterator[dict[str, object]]:
    """A row of a table for each number of a kind of model: the labels, its name in the column `named`, and its `summary`.
    bounds: its range by its name.
    """
    for name, number in numbers.items():
        yield {**labels, named: name} | summary(values(models, number), bounds(name))


def row_of(
    models: Models, numbers: Mapping[str, Number], bounds: Callable[[str], tuple[float, float]] = lambda name: (0.0, 1.0)
) -> dict[str, object]:
    """A row of a table for a kind of model: its labels, n_seeds, n (texts of one model), and each number under its name as
    the mean over seeds and texts, with _ci_low, _ci_high and _std (`summary`). bounds: the range of a number by its name.
    """
    row = heading(models) | {"n_seeds": len(models), "n": len(first(models))}
    for name, number in numbers.items():
        counts = summary(values(models, number), bounds(name))
        row |= {name: counts["mean"]} | {f"{name}_{key}": counts[key] for key in ("ci_low", "ci_high", "std")}
    return row


def verdict(effect: float, p_value: float, n_seeds: int, above: str, below: str) -> str:
    """`above` or `below` for an effect that stands at p_value <= .05 over FEWEST_SEEDS or more; "undefined"; else "cannot be
    told", which is not "equal".
    """
    if np.isnan(effect):
        return UNDEFINED
    if n_seeds < FEWEST_SEEDS or not p_value <= LEVEL:
        return UNTOLD
    return above if effect > 0 else below


def answer(numbers: np.ndarray, above: str = "yes", below: str = "no") -> dict[str, object]:
    """A claim that the mean of numbers [S, N] is above 0: `summary`, the p_value of 0, and the verdict."""
    counted, p_value = summary(numbers), over_seeds_of_texts(numbers).p_value
    return counted | {"p_value": p_value, "verdict": verdict(counted["mean"], p_value, counted["n_seeds"], above, below)}
