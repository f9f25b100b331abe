"""Samplers of rationales: from the scores of a selector to gates in 0..1.

Shapes: B instances, T tokens. `mask` (B,T) bool marks the tokens of a text; other places have gate 0. A gate of 0 hides a
token from the classifier, a gate of 1 passes it.

bernoulli  one number a token, the log-odds of its gate being 1 (Lei et al. 2016)
hardkuma   two numbers a token, of a Kumaraswamy distribution that is stretched and cut to 0..1 (Bastings et al. 2019)
budget     one number a token, projected onto the selections of a budget (Guerreiro & Martins 2021, SPECTRA)
"""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus


try:
    from entmax import budget_bisect
except ImportError:  # checkpoints of the other samplers must load where entmax is not installed
    budget_bisect = None

LOW, HIGH = -0.1, 1.1
"""Ends of the stretched Kumaraswamy distribution."""
SHAPES, UNIFORM = (1e-6, 100.0), (0.001, 0.999)
"""Ranges of parameters, and of the uniform numbers that samples are computed from, as in the authors' code."""
TIE = 1e-5  # of a text's largest value: more than float32 rounds differently in another batch


def bernoulli_sample(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Draw gates (B,T), 1 with probability sigmoid(score), else 0. They have no gradient."""
    return torch.bernoulli(scores.detach().sigmoid()) * mask


def bernoulli_log_prob(scores: torch.Tensor, gates: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log p(gates) of a whole text, in nats: (B,), at most 0."""
    return -(binary_cross_entropy_with_logits(scores, gates.to(scores.dtype), reduction="none") * mask).sum(-1)


def kuma_shape(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return parameters a, b (B,T) from scores (B,T,2): softplus, clamped to SHAPES."""
    return softplus(scores).clamp(*SHAPES).unbind(-1)


def kuma_cdf(value: float, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """P(k <= value) = 1 - (1 - value^a)^b of the Kumaraswamy distribution on (0, 1)."""
    return -torch.expm1(b * torch.log1p(-(value**a)))


def kuma_mean(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """E[k] = b B(1 + 1/a, b)."""
    # b Gamma(b) = Gamma(1 + b), which has no pole near b = 0
    return (torch.lgamma(1 + 1 / a) + torch.lgamma(1 + b) - torch.lgamma(1 + 1 / a + b)).exp()


def hardkuma_zero(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """P(gate = 0)."""
    return kuma_cdf(-LOW / (HIGH - LOW), a, b)


def hardkuma_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """P(gate = 1)."""
    return (b * torch.log1p(-((torch.ones_like(a) * (1 - LOW) / (HIGH - LOW)) ** a))).exp()


def hardkuma_sample(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Draw gates (B,T) in 0..1, with mass at 0 and 1 and gradients in between."""
    # the quantile of a uniform number, (1 - (1 - u)^(1/b))^(1/a), stretched and cut
    above = (torch.log1p(-torch.empty_like(a).uniform_(*UNIFORM)) / b).exp()
    drawn = (torch.log1p(-above.clamp(max=1 - torch.finfo(a.dtype).eps)) / a).exp()
    return (LOW + (HIGH - LOW) * drawn).clamp(0, 1) * mask


def hardkuma_value(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the gate (B,T) at test time: 0 or 1 where that is likelier than the other and than all between, else the mean
    of the unstretched distribution, as in the authors' code.
    """
    at_zero, at_one = hardkuma_zero(a, b), hardkuma_one(a, b)
    between = 1 - at_zero - at_one
    value = kuma_mean(a, b).masked_fill((at_zero > at_one) & (at_zero > between), 0)
    return value.masked_fill((at_one > at_zero) & (at_one > between), 1) * mask


def expected_share(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the expected share of a text's tokens with a gate other than 0 (L0 by length): (B,) in 0..1."""
    return ((1 - hardkuma_zero(a, b)) * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def budget_tokens(mask: torch.Tensor, share: float) -> torch.Tensor:
    """Return the number of tokens (B,) in a share of a text: rounded, at least 1, at most all; 0 without tokens."""
    count = mask.sum(-1)
    # halves to even numbers, as Python rounds; in float64, for 0.15 * 10 is 1.5
    return torch.minimum((count.double() * share).round().long().clamp(min=1), count)


def budget(scores: torch.Tensor, mask: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Gates (B,T) in 0..1 whose sum is at most count (B,): LP-SparseMAP of one budget over binary variables.

    They maximise sum_t u_t z_t - |z|^2 / 2 over the averages z of all selections of at most `count` tokens: clamp(u, 0, 1)
    if its sum fits, else clamp(u - tau, 0, 1) with the tau at which the sum is exactly `count` (`entmax.budget_bisect`). The
    gradient is the exact Jacobian. scores u (B,T) and gates are in float64.
    """
    scores = scores.double().masked_fill(~mask, 0.0)
    if budget_bisect is None:
        raise ImportError("a budget needs the entmax package: pip install entmax")
    count = count.unsqueeze(-1)
    free = scores.clamp(0, 1) * mask
    tight = free.sum(-1, keepdim=True) > count
    with torch.no_grad():
        # a row below its budget has no tau: any other row is solved in its place
        spread = torch.where(tight, scores.masked_fill(~mask, -1.0), torch.linspace(0, 1, scores.shape[-1]).to(scores))
        rough = budget_bisect(spread, torch.where(tight, count, 1).to(scores)) * mask
        open_, full = (rough > 0) & (rough < 1), rough >= 1
    # tau from the tokens between 0 and 1, which makes the sum exact
    number = open_.sum(-1, keepdim=True).clamp(min=1)
    tau = ((scores * open_).sum(-1, keepdim=True) + full.sum(-1, keepdim=True) - count) / number
    return torch.where(tight, torch.where(open_, scores - tau, full.to(scores)), free)


def hardened(values: torch.Tensor, mask: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return (B,T) bool: the `count` (B,) tokens with the largest values (B,T), first ones first.

    Values that differ by less than `TIE` of the text's largest value are equal.
    """
    inside = values.double().masked_fill(~mask, 0.0)
    tie = TIE * inside.abs().amax(-1, keepdim=True)
    count = torch.minimum(count, mask.sum(-1)).unsqueeze(-1)
    ranked = inside.masked_fill(~mask, -torch.inf)
    least = ranked.sort(dim=-1, descending=True).values.gather(-1, (count - 1).clamp(min=0))
    larger = ranked > least + tie
    level = (ranked >= least - tie) & mask & ~larger
    return (count > 0) & (larger | (level & (level.cumsum(-1) <= count - larger.sum(-1, keepdim=True))))
