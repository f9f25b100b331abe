"""Projections: alignment scores to attention, a point of the probability simplex.

Shapes: B instances, T tokens; leading dimensions are free. A function in PROJECTIONS maps scores (..., T) whose maximum over
the allowed places (..., T) is 0, and BLOCKED elsewhere, to weights (..., T). Models call `project`, which prepares the
scores and sets the blocked places to 0. To add a projection: one function and one line in PROJECTIONS.
"""

import torch


try:
    import entmax
except ImportError:  # a softmax checkpoint must load where entmax is not installed
    entmax = None

BLOCKED = -1e4  # the maximum is 0 and no support reaches down to here; safe to square in float32


def softmax(scores, allowed, config):
    """argmax_p p.z + H(p)."""
    return scores.softmax(-1)


def sparsemax(scores, allowed, config):
    """argmin_p ||p - z||^2 (Martins & Astudillo 2016)."""
    return entmax.sparsemax(scores)


def sparsegen(scores, allowed, config):
    """argmin_p ||p - z||^2 - lambda ||p||^2, lambda < 1 (Laha et al. 2018), which is sparsemax(z / (1 - lambda))."""
    scaled = scores / (1 - config.sparsegen_lambda)
    return sparsemax(scaled.masked_fill(~allowed, BLOCKED), allowed, config)


def entmax15(scores, allowed, config):
    """argmax_p p.z + H_1.5(p), H the Tsallis entropy (Peters et al. 2019), by the exact sort."""
    return entmax.entmax15(scores)


def entmax_alpha(scores, allowed, config):
    """argmax_p p.z + H_alpha(p) for any alpha >= 1: softmax at 1, sparsemax at 2, bisection in float64 elsewhere."""
    alpha = config.entmax_alpha
    exact = {1: softmax, 1.5: entmax15, 2: sparsemax}.get(alpha)
    if exact is not None:
        return exact(scores, allowed, config)
    return entmax.entmax_bisect(scores.double().masked_fill(~allowed, -torch.inf), alpha, n_iter=60).to(scores.dtype)


def uniform(scores, allowed, config):
    """The same weight on all allowed tokens: the baseline of Wiegreffe & Pinter (2019)."""
    return allowed.to(scores.dtype) / allowed.sum(-1, keepdim=True).clamp(min=1)


PROJECTIONS = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "sparsegen": sparsegen,
    "entmax15": entmax15,
    "entmax": entmax_alpha,
    "uniform": uniform,
}


def project(scores: torch.Tensor, mask: torch.Tensor, config) -> torch.Tensor:
    """Compute attention from scores by the configured projection.

    scores (..., T) of any float dtype; mask (..., T) bool, True where a token may be attended. Returns (..., T) in float32
    (float64 for float64 scores): exactly 0 where blocked, non-negative, summing to 1; all zero in a row that allows nothing.
    A row with an allowed score of NaN or plus infinity gives NaN; minus infinity gets no weight.

    Raises ImportError for sparse attention without the entmax package.
    """
    if entmax is None and config.projection not in ("softmax", "uniform"):
        raise ImportError("sparse attention needs the entmax package: pip install entmax")
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    mask = mask.expand_as(scores)
    allowed = mask | ~mask.any(-1, keepdim=True)  # a row that allows nothing is computed as if it allowed all, and set to 0
    top = scores.detach().masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
    broken = ~top.isfinite()  # the sorting algorithms would fail on it with an index error
    scores = (scores - top).masked_fill(broken, 0.0).masked_fill(~allowed, BLOCKED)
    weights = PROJECTIONS[config.projection](scores, allowed, config)
    return weights.masked_fill(broken, torch.nan).masked_fill(~mask, 0.0)
