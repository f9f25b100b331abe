"""Hiding what is used: a penalty on the attention to tokens that a model is forbidden to be seen using.

Shapes: B instances, H heads, T tokens. Source: Pruthi et al. 2020, "Learning to Deceive with Attention-Based Explanations".
"""

import torch

from attnfaith.errors import AttnfaithError


HEADS = ("mean", "max")
FLOOR = 1e-3  # of the weight that is left: below it the gradient of its logarithm, 1 over it, would drown all others


def impermissible_mass(
    attention: torch.Tensor,
    impermissible: torch.Tensor,
    mask: torch.Tensor,
    *,
    heads: str = "mean",
    scores: torch.Tensor | None = None,
    floor: float = FLOOR,
) -> torch.Tensor:
    """-log(1 - a.m): (B,) in nats, 0 where no attention goes to impermissible tokens, growing to infinity with their share.

    attention a (B,T), or (B,H,T) of H heads, is 0 outside the mask (B,T) and sums to 1 inside. impermissible m (B,T): 1 or
    True on the tokens that should get none; what it says outside the mask is not read. heads: "mean" of -log(1 - a_h.m) over
    heads, or "max", that of the head with the most impermissible weight: -min_h log(1 - a_h.m), of each instance by itself.
    The authors' code takes that minimum over heads and batch, so that one instance of a batch is penalised; the paper's
    formula, which is followed here, has one text. scores and floor: see `log_permissible`.

    Undefined, and 0, for a text without permissible tokens: all its weight is impermissible whatever is learned
    (`permissible_texts`). 0, too, for one without impermissible tokens and for one without tokens.

    Raises AttnfaithError for heads that are not known.
    """
    if heads not in HEADS:
        raise AttnfaithError(f"heads={heads!r} is not known; choose one of {', '.join(HEADS)}")
    lost = -log_permissible(attention, impermissible, mask, scores=scores, floor=floor)
    if lost.dim() == 1:
        return lost
    return lost.mean(1) if heads == "mean" else lost.amax(1)


def log_permissible(
    attention: torch.Tensor,
    impermissible: torch.Tensor,
    mask: torch.Tensor,
    *,
    scores: torch.Tensor | None = None,
    floor: float = FLOOR,
) -> torch.Tensor:
    """log(1 - a.m), the logarithm of the weight on permissible tokens: (B,), or (B,H) of attention (B,H,T); at most 0.

    scores, in the shape of attention: of a softmax, what it was taken of. Then the logarithm is
    LSE over permissible tokens - LSE over all, exact also where weights are rounded to 0, with a gradient everywhere, and
    the attention is not read. Without them it is that of the sum of permissible weights, but of `floor` where the sum is
    less: there the gradient is 0. A sparse projection passes nothing on to a token without weight anyway; the floor keeps
    the few texts whose permissible weight is near 0 from deciding where training goes. Weights of a softmax whose scores are
    not at hand can have a floor as small as their smallest number.

    0 where `permissible_texts` says that nothing is to be learned.
    """
    learns = permissible_texts(impermissible, mask)
    marked = impermissible.bool()
    open_, allowed = mask & ~marked, mask
    if attention.dim() == 3:
        open_, allowed, learns = open_[:, None], allowed[:, None], learns[:, None]
    if scores is None:
        weight = (attention * open_).sum(-1)
        logarithm = weight.to(torch.promote_types(weight.dtype, torch.float32)).clamp(min=floor).log()
    else:
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        # where nothing is learned all places count, so that no gradient is that of minus infinity
        open_, allowed = (chosen | ~learns.unsqueeze(-1) for chosen in (open_, allowed))
        every = scores.masked_fill(~allowed, -torch.inf).logsumexp(-1)
        logarithm = scores.masked_fill(~open_, -torch.inf).logsumexp(-1) - every
    return logarithm.clamp(max=0).masked_fill(~learns, 0)


def permissible_texts(impermissible: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B,) bool: the texts that have permissible and impermissible tokens, so that attention has a choice."""
    marked = impermissible.bool()
    return (mask & marked).any(-1) & (mask & ~marked).any(-1)
