"""How well a number per text tells two models apart: the area under the ROC curve, over seeds and texts.

Shapes: S seeds, N texts; every seed's two models read the same texts. NaN: undefined.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnfaith.stats import UNKNOWN, Estimate, over_seeds_and_texts, ratio


FEWEST_TEXTS = 20
"""Least number of texts with a value, of each model of a seed, for an AUC: below, a separation without an error can be
chance, and no text left out would show it.
"""


@dataclass(frozen=True, eq=False)
class Separation:
    """The probability that a text of the first model has the larger number, ties counting one half: 1 and 0 tell the models
    apart without an error, .5 says nothing. Equal to the U statistic of Mann & Whitney over the pairs of texts.

    first, second [S, N]: the number per text of the two models of each seed. strata_first, strata_second [S, N] int: only
    pairs of texts of one stratum are compared, which takes out what differs between strata; None compares all pairs.

    A seed counts (`known`) where each of its models has FEWEST_TEXTS numbers or more that have a partner. A text is read by
    both models of all seeds: the jackknife leaves out all its numbers together, as Obuchowski (1997) does of one pair.
    """

    first: np.ndarray
    second: np.ndarray
    strata_first: np.ndarray | None = None
    strata_second: np.ndarray | None = None

    @cached_property
    def _counts(self) -> "list[_Pairs]":
        nothing = np.zeros(self.first.shape[1], np.int64)
        return [
            _pairs(
                self.first[seed],
                self.second[seed],
                nothing if self.strata_first is None else self.strata_first[seed],
                nothing if self.strata_second is None else self.strata_second[seed],
            )
            for seed in range(len(self.first))
        ]

    @cached_property
    def by_seed(self) -> np.ndarray:
        """The AUC of each seed, [S]; NaN where it is not `known`."""
        values = [pairs.wins.sum() / pairs.all.sum() if pairs.enough else np.nan for pairs in self._counts]
        return np.array(values, np.float64)

    @property
    def known(self) -> np.ndarray:
        """Seeds that have an AUC, [S] bool."""
        return ~np.isnan(self.by_seed)

    @cached_property
    def partnered(self) -> float:
        """Share of the numbers, of both models and all seeds, that have at least one to be compared with; NaN of none."""
        given = sum((~np.isnan(values)).sum() for values in (self.first, self.second))
        return sum(pairs.partnered for pairs in self._counts) / given if given else np.nan

    @cached_property
    def estimate(self) -> Estimate:
        """The mean AUC over seeds, its interval over seeds and texts, and the p-value of .5."""
        if not self.known.any():
            return UNKNOWN
        left_out = np.mean([pairs.left_out for pairs in self._counts if pairs.enough], axis=0)
        return over_seeds_and_texts(self.by_seed[self.known], left_out, chance=0.5, bounds=(0.0, 1.0))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pairs of one seed's texts. all [2, N]: those that a text is in, by its number of the first and of the second
    model, so that each pair is counted twice; wins [2, N]: of these, where the first model's number is the larger, a tie
    one half. own, own_win [N]: the same of a text paired with itself. partnered: numbers in a pair. enough: FEWEST_TEXTS.
    """

    wins: np.ndarray
    all: np.ndarray
    own_win: np.ndarray
    own: np.ndarray
    partnered: int
    enough: bool

    @property
    def left_out(self) -> np.ndarray:
        """The AUC without each text, [N]."""
        wins = self.wins.sum() / 2 - self.wins.sum(0) + self.own_win
        return ratio(wins, self.all.sum() / 2 - self.all.sum(0) + self.own)


def _pairs(first: np.ndarray, second: np.ndarray, strata_first: np.ndarray, strata_second: np.ndarray) -> _Pairs:
    wins, every = np.zeros((2, len(first))), np.zeros((2, len(first)))
    for one, other in _strata(first, second, strata_first, strata_second):
        mine, theirs = np.sort(first[one]), np.sort(second[other])
        below, up_to = (np.searchsorted(theirs, first[one], side=side) for side in ("left", "right"))
        wins[0, one], every[0, one] = (below + up_to) / 2, len(other)
        below, up_to = (np.searchsorted(mine, second[other], side=side) for side in ("left", "right"))
        wins[1, other], every[1, other] = len(one) - (below + up_to) / 2, len(one)
    own = (every > 0).all(0) & (strata_first == strata_second)
    with np.errstate(invalid="ignore"):
        own_win = np.where(own, (first > second) + (first == second) / 2, 0.0)
    partnered = (every > 0).sum(1)
    return _Pairs(wins, every, own_win, own.astype(np.float64), int(partnered.sum()), bool(partnered.min() >= FEWEST_TEXTS))


def _strata(
    first: np.ndarray, second: np.ndarray, strata_first: np.ndarray, strata_second: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each stratum that both models have texts in, the places of the first's and of the second's."""
    ours, theirs = (np.flatnonzero(~np.isnan(values)) for values in (first, second))
    for stratum in np.intersect1d(strata_first[ours], strata_second[theirs]):
        yield ours[strata_first[ours] == stratum], theirs[strata_second[theirs] == stratum]
