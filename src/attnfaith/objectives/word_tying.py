"""States that stay close to their words: a penalty on the distance of each state from the vector of its word.

Shapes: B instances, T tokens, H hidden. Source: Tutek & Snajder 2020, "Staying True to Your Word".
"""

import torch

from attnfaith.errors import AttnfaithError


DISTANCES = ("norm", "squared")


def word_tying(states: torch.Tensor, vectors: torch.Tensor, mask: torch.Tensor, distance: str = "squared") -> torch.Tensor:
    """The mean over tokens of |h_i - e_i| ("norm") or of its square ("squared"): (B,), from 0 on.

    states h and word vectors e (B,T,H), of one size; mask (B,T) bool, the tokens that the mean is over. With markers and
    padding in the mask it is the mean of the authors' later code (2023), where padding, whose state and vector are 0, makes
    it smaller: there what a text adds depends on the longest one of its batch. Both are pulled, the state and the vector. 0
    for a text without tokens. The gradient of a norm of 0 is 0.

    Raises AttnfaithError for a distance that is not known and for states and vectors of two sizes.
    """
    if distance not in DISTANCES:
        raise AttnfaithError(f"distance={distance!r} is not known; choose one of {', '.join(DISTANCES)}")
    check_sizes(states.shape[-1], vectors.shape[-1])
    apart = (states - vectors).to(torch.promote_types(states.dtype, torch.float32))
    lengths = torch.linalg.vector_norm(apart, dim=-1) if distance == "norm" else apart.square().sum(-1)
    return (lengths * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def check_sizes(hidden_size: int, embedding_size: int) -> None:
    """Raise AttnfaithError where states and word vectors have not one size, saying both and what to set."""
    if hidden_size != embedding_size:
        raise AttnfaithError(
            f"word tying compares a state of {hidden_size} numbers with a word vector of {embedding_size}: set "
            f"model.hidden_size to {embedding_size}, or model.embedding_size to {hidden_size}"
        )
