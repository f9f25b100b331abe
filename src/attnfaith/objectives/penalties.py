"""How much of each penalty a training has, and how it is meant."""

import math
from dataclasses import dataclass

from attnfaith.errors import AttnfaithError
from attnfaith.objectives.impermissible_mass import HEADS
from attnfaith.objectives.word_tying import DISTANCES


PENALTIES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
"""The penalties, by the names of their weights."""


@dataclass(frozen=True)
class Penalties:
    """Weights of what is added to the loss of each instance, 0 for nothing, and how each is meant.

    impermissible_heads, word_tying_distance: see `impermissible_mass`, `word_tying`. word_tying_padding: whether markers and
    padding are in the mean over tokens, too. masked_share: the probability of each word to be masked.

    Raises AttnfaithError for a weight that is no finite number from 0 on, a share that is not above 0 and at most 1, and for
    heads and a distance that are not known.
    """

    impermissible_mass: float = 0.0
    impermissible_heads: str = "mean"
    diversity: float = 0.0
    word_tying: float = 0.0
    word_tying_distance: str = "squared"
    word_tying_padding: bool = False
    masked_language_model: float = 0.0
    masked_share: float = 0.15

    def __post_init__(self):
        for name in PENALTIES:
            if not 0 <= getattr(self, name) < math.inf:
                raise AttnfaithError(f"penalties.{name}={getattr(self, name)} must be a finite number from 0 on")
        if not 0 < self.masked_share <= 1:
            raise AttnfaithError(f"penalties.masked_share={self.masked_share} must be above 0 and at most 1")
        for name, known in (("impermissible_heads", HEADS), ("word_tying_distance", DISTANCES)):
            if getattr(self, name) not in known:
                raise AttnfaithError(
                    f"penalties.{name}={getattr(self, name)!r} is not known; choose one of {', '.join(known)}"
                )

    @property
    def taken(self) -> dict[str, float]:
        """The penalties whose weight is not 0 -> their weights."""
        return {name: getattr(self, name) for name in PENALTIES if getattr(self, name)}
