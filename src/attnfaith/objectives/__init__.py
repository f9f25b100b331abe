"""Training losses: one value per instance, reduced once.

What a model is trained for is classification or an adversary's loss. Penalties add to the first what attention, or the
states that it sums, should be like: each is a function of tensors in a file of its own, `Penalties` says how much of each.
A model that reads a selection is told what a selection costs (`Prices`), or how much of a text it should be (`Constraint`).
"""

from attnfaith.objectives.adversarial import (
    DIVERGENCES,
    SPARSE_BASE,
    adversarial_loss,
    check_adversary,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from attnfaith.objectives.classification import balancing_weights, classification_loss, reduce
from attnfaith.objectives.diversity import conicity
from attnfaith.objectives.impermissible_mass import HEADS, impermissible_mass, log_permissible, permissible_texts
from attnfaith.objectives.masked_language_model import drawn_words, masked_language_model
from attnfaith.objectives.penalties import PENALTIES, Penalties
from attnfaith.objectives.rationale_lagrangian import Constraint
from attnfaith.objectives.rationale_reinforce import Prices, reinforced, selection_price
from attnfaith.objectives.word_tying import check_sizes, word_tying


__all__ = [
    "DIVERGENCES",
    "HEADS",
    "PENALTIES",
    "SPARSE_BASE",
    "Constraint",
    "Penalties",
    "Prices",
    "adversarial_loss",
    "balancing_weights",
    "check_adversary",
    "check_sizes",
    "classification_loss",
    "conicity",
    "drawn_words",
    "impermissible_mass",
    "jensen_shannon",
    "kullback_leibler",
    "log_permissible",
    "masked_language_model",
    "permissible_texts",
    "reduce",
    "reinforced",
    "selection_price",
    "total_variation",
    "word_tying",
]
