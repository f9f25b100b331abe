"""Models that differ in one thing, such as a penalty of training, each beside its plain twin of the same seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from attnfaith.record import Identity
from attnfaith.reporting import attention_tests
from attnfaith.reporting.cells import CELL, Cell


KEYS = tuple(name for name in CELL if name != "seed")
"""What names a pairing in a table."""


@dataclass(frozen=True, eq=False)
class Pairing:
    """The plain and the changed models of one identity but for what was changed, {seed: cell}, of the same seeds.

    Shapes of what follows: S seeds, N texts: all that one of the models read, in the order of their ids, so that no order
    of rows matters.
    """

    plain: Mapping[int, Cell]
    changed: Mapping[int, Cell]

    @property
    def identity(self) -> Identity:
        """That of the changed model of the first seed."""
        return next(iter(self.changed.values())).identity

    @property
    def heading(self) -> dict[str, object]:
        """What names the pairing in a table, by KEYS: that of its changed models."""
        return {name: self.identity.heading[name] for name in KEYS}

    @cached_property
    def texts(self) -> list[str]:
        cells = (*self.plain.values(), *self.changed.values())
        return sorted(set(chain.from_iterable(cell.instance_ids for cell in cells)))

    def values(self, of: Callable[[Cell], np.ndarray | None]) -> tuple[np.ndarray, np.ndarray]:
        """A number per text of the plain and of the changed models, [S, N] float64 each; NaN where a model has none."""

        def placed(cell: Cell) -> np.ndarray:
            values, given = np.full(len(self.texts), np.nan), of(cell)
            if given is not None:
                values[np.searchsorted(self.texts, cell.instance_ids)] = given
            return values

        plain, changed = (np.stack([placed(cell) for cell in side.values()]) for side in (self.plain, self.changed))
        return plain, changed

    def numbers(self, test: str) -> tuple[np.ndarray, np.ndarray]:
        """What a test, or control, of `attention_tests` says of each text."""
        return self.values(lambda cell: attention_tests.numbers(cell).get(test))

    @cached_property
    def held(self) -> tuple[np.ndarray, np.ndarray]:
        """Which texts the models read, [S, N] bool each."""
        plain, changed = self.values(lambda cell: np.zeros(len(cell)))
        return ~np.isnan(plain), ~np.isnan(changed)

    @cached_property
    def tests(self) -> dict[str, str]:
        """The tests and controls that both models of a seed have, {name: "test" or "control"}."""
        kinds: dict[str, str] = {}
        for seed, plain in self.plain.items():
            for kind, every in (("test", attention_tests.tests_of), ("control", attention_tests.controls_of)):
                changed = every(self.changed[seed])
                kinds |= {name: kind for name in every(plain) if name in changed}
        return kinds


def pairings(cells: Sequence[Cell], twin: Callable[[Identity], Identity]) -> list[Pairing]:
    """The pairings that the cells make, in order of first appearance.

    twin: the identity of the plain model that a model is set beside, of the same seed; of a plain model its own. Models
    whose twin is not among the cells are in no pairing.
    """
    known = {cell.identity: cell for cell in cells}
    groups: dict[Identity, dict[int, tuple[Cell, Cell]]] = {}
    for cell in cells:
        plain = known.get(twin(cell.identity))
        if plain not in (None, cell):
            groups.setdefault(replace(cell.identity, seed=0), {})[cell.identity.seed] = (plain, cell)
    return [
        Pairing(
            {seed: pair[0] for seed, pair in sorted(group.items())}, {seed: pair[1] for seed, pair in sorted(group.items())}
        )
        for group in groups.values()
    ]


def mean_of_means(values: np.ndarray) -> float:
    """The mean over seeds of the mean over texts, values [S, N], NaN undefined; NaN of nothing."""
    means = [row[~np.isnan(row)].mean() for row in values if not np.isnan(row).all()]
    return float(np.mean(means)) if means else np.nan
