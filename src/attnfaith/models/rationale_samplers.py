"""Samplers of rationales: from what a selector says of tokens to gates in 0..1, what the classifier reads of each.

Shapes: B instances, T tokens; leading dimensions are free. `mask` (B,T) bool says which places are tokens of a text: all
others have gate 0. A gate of 0 keeps a token from the classifier, one of 1 lets it pass.

bernoulli  one number a token, the log-odds of its gate being 1 (Lei et al. 2016)
hardkuma   two numbers a token, the parameters of a Kumaraswamy distribution that is stretched to (-0.1, 1.1) and cut to
           0..1, so that 0 and 1 have mass and gradients flow through what lies between (Bastings et al. 2019)
budget     one number a token; the gates are a projection onto what a budget allows, without any draw (Guerreiro & Martins
           2021, SPECTRA)
"""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from .sequence_budget import sequence_budget


try:
    from entmax import budget_bisect
except ImportError:  # checkpoints of the other samplers must load where entmax is not installed
    budget_bisect = None

SUPPORT = (-0.1, 1.1)
"""What the Kumaraswamy distribution is stretched to."""
SHAPES = (1e-6, 100.0)
"""Least and greatest parameter of it, as in the authors' code."""
UNIFORM = (0.001, 0.999)
"""Where the authors draw the uniform numbers from that samples are made of."""
TIE = 1e-5
"""Share of a text's largest value by which others may differ and count as equal where tokens are ranked: above what float32
rounds differently in another batch, below what tells tokens apart.
"""


# ------------------------------------------------------------------------------------------------ bernoulli


def bernoulli_sample(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Gates (B,T), 0 or 1: 1 with probability sigmoid(score). No gradient flows through them."""
    return torch.bernoulli(scores.detach().sigmoid()) * mask


def bernoulli_log_prob(scores: torch.Tensor, gates: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """log p(gates) of a whole text, in nats: (B,), at most 0."""
    return -(binary_cross_entropy_with_logits(scores, gates.to(scores.dtype), reduction="none") * mask).sum(-1)


# ------------------------------------------------------------------------------------------------ hardkuma


def kuma_shape(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters a, b (B,T) from scores (B,T,2): softplus, held in SHAPES."""
    return softplus(scores).clamp(*SHAPES).unbind(-1)


def kuma_cdf(values: torch.Tensor | float, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """P(k <= value) = 1 - (1 - value^a)^b of the Kumaraswamy distribution on (0, 1)."""
    values = torch.as_tensor(values, dtype=a.dtype, device=a.device)
    return -torch.expm1(b * torch.log1p(-(values**a)))


def kuma_mean(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """E[k] = b B(1 + 1/a, b)."""
    # b Gamma(b) = Gamma(1 + b), which has no pole near b = 0
    return (torch.lgamma(1 + 1 / a) + torch.lgamma(1 + b) - torch.lgamma(1 + 1 / a + b)).exp()


def kuma_sample(a: torch.Tensor, b: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The value whose distribution function is `uniform` (B,T): (1 - (1 - u)^(1/b))^(1/a), with gradients in a and b."""
    above = (torch.log1p(-uniform) / b).exp()
    return (torch.log1p(-above.clamp(max=1 - torch.finfo(a.dtype).eps)) / a).exp()


def hardkuma_zero(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """P(gate = 0)."""
    low, high = SUPPORT
    return kuma_cdf(-low / (high - low), a, b)


def hardkuma_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """P(gate = 1)."""
    low, high = SUPPORT
    return (b * torch.log1p(-((torch.ones_like(a) * (1 - low) / (high - low)) ** a))).exp()


def hardkuma_sample(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Gates (B,T) in 0..1, each 0 and 1 with a probability of its own; gradients flow through those between."""
    low, high = SUPPORT
    uniform = torch.empty_like(a).uniform_(*UNIFORM)
    return (low + (high - low) * kuma_sample(a, b, uniform)).clamp(0, 1) * mask


def hardkuma_value(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The gate (B,T) at test time: 0 or 1 where that is likelier than the other and than all between, else the mean of the
    distribution that was not stretched, as in the authors' code.
    """
    zero, one = hardkuma_zero(a, b), hardkuma_one(a, b)
    between = 1 - zero - one
    value = kuma_mean(a, b)
    value = torch.where((zero > one) & (zero > between), torch.zeros_like(value), value)
    value = torch.where((one > zero) & (one > between), torch.ones_like(value), value)
    return value * mask


def expected_share(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """E of the share of a text's tokens whose gate is not 0 (L0 by its length): (B,) in 0..1; 0 for a text of none."""
    return ((1 - hardkuma_zero(a, b)) * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def expected_changes(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """E of the number of neighbours of which one gate is 0 and the other is not (fused lasso), by length: (B,) in 0..1."""
    zero, pairs = hardkuma_zero(a, b), mask[:, 1:] & mask[:, :-1]
    left, right = zero[:, :-1], zero[:, 1:]
    return ((left * (1 - right) + (1 - left) * right) * pairs).sum(-1) / mask.sum(-1).clamp(min=1)


# ------------------------------------------------------------------------------------------------ budget


def budget_tokens(mask: torch.Tensor, share: float) -> torch.Tensor:
    """How many tokens (B,) a share of the text is: rounded, at least 1 and at most all; 0 of a text of none."""
    count = mask.sum(-1)
    # halves to even numbers, as Python rounds; in float64, for 0.15 * 10 is 1.5
    return torch.minimum((count.double() * share).round().long().clamp(min=1), count)


def budget(scores: torch.Tensor, mask: torch.Tensor, count: torch.Tensor, transition: float = 0.0) -> torch.Tensor:
    """Gates (B,T) in 0..1 whose sum is at most count (B,): LP-SparseMAP of one budget over binary variables.

    The largest of sum_t u_t z_t + transition * sum_t p_t - |z|^2 / 2 over the averages (z, p) of all selections of at most
    `count` tokens, p_t being 1 where t and t + 1 are both selected. Without transition that is clamp(u, 0, 1) where its
    sum fits, else clamp(u - tau, 0, 1) with the tau at which the sum is `count` exactly (`entmax.budget_bisect`); with it,
    `sequence_budget`. The gradient is the exact Jacobian: that of a projection onto what may still change.

    scores u (B,T): float64 whatever they are given in, and given back so.
    """
    scores = scores.double().masked_fill(~mask, 0.0)
    if transition:
        return sequence_budget(scores, mask, count, transition)
    if budget_bisect is None:
        raise ImportError("a budget needs the entmax package: pip install entmax")
    count = count.unsqueeze(-1)
    free = scores.clamp(0, 1) * mask
    tight = free.sum(-1, keepdim=True) > count
    with torch.no_grad():
        # where nothing need give way the budget would not be reached: any other row stands in there
        spread = torch.where(tight, scores.masked_fill(~mask, -1.0), torch.linspace(0, 1, scores.shape[-1]).to(scores))
        wanted = torch.where(tight, count, torch.ones_like(count)).to(scores)
        rough = budget_bisect(spread, wanted) * mask
        open_, full = (rough > 0) & (rough < 1), rough >= 1
    # tau from the tokens that are neither out nor in, which makes the sum exact
    number = open_.sum(-1, keepdim=True).clamp(min=1)
    tau = ((scores * open_).sum(-1, keepdim=True) + full.sum(-1, keepdim=True) - count) / number
    cut = torch.where(open_, scores - tau, full.to(scores))
    return torch.where(tight, cut, free)


# ------------------------------------------------------------------------------------------------ at test time


def hardened(values: torch.Tensor, mask: torch.Tensor, count: torch.Tensor, contiguous: bool = False) -> torch.Tensor:
    """(B,T) bool: the `count` (B,) tokens of the largest values (B,T), of equal ones the first; or, where they must be
    contiguous, the first of the windows of that many tokens whose values have the largest sum.

    Values and sums are equal that are less than `TIE` of the text's largest value apart. A budget with transitions gives
    neighbours one value by different sums, and their rounding depends on what else is in the batch.
    """
    inside = values.double().masked_fill(~mask, 0.0)
    tie = TIE * inside.abs().amax(-1, keepdim=True)
    count = torch.minimum(count, mask.sum(-1)).unsqueeze(-1)
    if not contiguous:
        ranked = inside.masked_fill(~mask, -torch.inf)
        least = ranked.sort(dim=-1, descending=True).values.gather(-1, (count - 1).clamp(min=0))
        larger, level = ranked > least + tie, (ranked >= least - tie) & mask
        level &= ~larger
        return (count > 0) & (larger | (level & (level.cumsum(-1) <= count - larger.sum(-1, keepdim=True))))
    positions = torch.arange(values.shape[-1], device=values.device)
    sums = torch.nn.functional.pad(inside.cumsum(-1), (1, 0))
    ends = (positions + count).clamp(max=values.shape[-1])
    first = mask.to(torch.int8).argmax(-1, keepdim=True)
    fits = (positions >= first) & (positions + count <= first + mask.sum(-1, keepdim=True))
    windows = (sums.gather(-1, ends) - sums[..., :-1]).masked_fill(~fits, -torch.inf)
    start = (windows >= windows.amax(-1, keepdim=True) - tie).to(torch.int8).argmax(-1, keepdim=True)
    return (positions >= start) & (positions < start + count)
