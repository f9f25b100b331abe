"""Projections: alignment scores to attention, a point of the probability simplex.

Shapes: B instances, T tokens; leading dimensions are free. A function in PROJECTIONS maps scores (..., T) whose maximum over
the allowed places (..., T) is 0 to weights (..., T); values elsewhere are ignored. Models call `project`, which prepares the
scores and sets the blocked places to 0. To add a projection: one function and one line in PROJECTIONS.
"""

import torch


try:
    import entmax
except ImportError:  # a softmax checkpoint must load where entmax is not installed
    entmax = None

BLOCKED = -1e4  # the maximum is 0 and no support reaches down to here; safe to square in float32


def _static(function):
    """A function of entmax with static methods, since torch.compile enters no class methods of autograd functions."""
    forward, backward = function.forward.__func__, function.backward.__func__

    class Static(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            return forward(function, ctx, *arguments)

        @staticmethod
        def backward(ctx, slope):
            return backward(function, ctx, slope)

    return Static.apply


if entmax is not None:
    _sparsemax = _static(entmax.activations.SparsemaxFunction)
    _entmax15 = _static(entmax.activations.Entmax15Function)
    _bisected = _static(entmax.root_finding.EntmaxBisectFunction)


def _need_entmax():
    if entmax is None:
        raise ImportError("sparse attention needs the entmax package: pip install entmax")


def _closed(scores, allowed):
    return scores.masked_fill(~allowed, BLOCKED)


def softmax(scores, allowed, config):
    """argmax_p p.z + H(p)."""
    return _closed(scores, allowed).softmax(-1)


def sparsemax(scores, allowed, config):
    """argmin_p ||p - z||^2 (Martins & Astudillo 2016)."""
    _need_entmax()
    return _sparsemax(_closed(scores, allowed), -1, None)


def sparsegen(scores, allowed, config):
    """argmin_p ||p - z||^2 - lambda ||p||^2, lambda < 1 (Laha et al. 2018), which is sparsemax(z / (1 - lambda))."""
    return sparsemax(scores / (1 - config.sparsegen_lambda), allowed, config)


def entmax15(scores, allowed, config):
    """argmax_p p.z + H_1.5(p), H the Tsallis entropy (Peters et al. 2019), by the exact sort."""
    _need_entmax()
    return _entmax15(_closed(scores, allowed), -1, None)


def entmax_alpha(scores, allowed, config):
    """argmax_p p.z + H_alpha(p) for any alpha >= 1: softmax at 1, sparsemax at 2, bisection in float64 elsewhere."""
    alpha = config.entmax_alpha
    exact = {1: softmax, 1.5: entmax15, 2: sparsemax}.get(alpha)
    if exact is not None:
        return exact(scores, allowed, config)
    blocked = scores.double().masked_fill(~allowed, -torch.inf)
    _need_entmax()
    return _bisected(blocked, alpha, -1, 60, True).to(scores.dtype)


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


def rescale(scores: torch.Tensor, allowed: torch.Tensor, scale: float, largest: torch.Tensor) -> torch.Tensor:
    """Shift and scale scores (..., T) so that the allowed ones (..., T) have standard deviation `scale` and maximum 0.

    The (population) standard deviation is over the allowed tokens of the row. Blocking a token rescales the others, and may
    move weight even if it had none. A row of equal allowed scores, up to rounding at their magnitude `largest` (..., 1),
    gets 0 everywhere, which is uniform attention, and no gradient. The maximum of the allowed scores must be 0.
    """
    spread = -scores.detach().masked_fill(~allowed, 0.0).amin(-1, keepdim=True)
    flat = ~(spread > 8 * torch.finfo(scores.dtype).eps * largest)
    # in units of their spread, which changes nothing, squares neither overflow nor vanish
    unit = (scores / spread.masked_fill(flat, 1.0)).masked_fill(flat | ~allowed, 0.0)
    count = allowed.sum(-1, keepdim=True)
    centred = (unit - unit.sum(-1, keepdim=True) / count).masked_fill(~allowed, 0.0)
    deviation = (centred.square().sum(-1, keepdim=True) / count).masked_fill(flat, 1.0).sqrt()
    held = centred * (scale / deviation)
    return held - held.detach().masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)


def project(scores: torch.Tensor, mask: torch.Tensor, config) -> torch.Tensor:
    """Compute attention from scores by the configured projection.

    scores (..., T) of any float dtype; mask (..., T) bool, True where a token may be attended. Returns (..., T) in float32
    (float64 for float64 scores): exactly 0 where blocked, non-negative, summing to 1; all zero in a row that allows nothing.
    A row with an allowed score of NaN or plus infinity gives NaN; minus infinity gets no weight. With config.score_scale the
    scores are first brought to that scale (`rescale`), and minus infinity gives NaN too.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    mask = mask.expand_as(scores)
    reachable = mask.any(-1, keepdim=True)
    allowed = mask | ~reachable  # a row that allows nothing is computed as if it allowed all, and set to 0 below
    top = scores.detach().masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
    broken = ~top.isfinite()  # the sorting algorithms would fail on it with an index error
    if config.score_scale is not None:
        largest = scores.detach().masked_fill(~allowed, 0.0).abs().amax(-1, keepdim=True)
        broken = broken | ~largest.isfinite()
    scores = (scores - top).masked_fill(broken, 0.0)
    if config.score_scale is not None:
        scores = rescale(scores, allowed, config.score_scale, largest)
    weights = PROJECTIONS[config.projection](scores, allowed, config)
    return weights.masked_fill(broken, torch.nan).masked_fill(~mask, 0.0)
