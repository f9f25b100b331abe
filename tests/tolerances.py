"""How far two right computations of one number may differ: the one place that says so.

A sum of n products is off by at most n eps/2 times the sum of their sizes, and by about sqrt(n) of that, since roundings
have either sign (Higham 2002, sections 3.1 and 2.8). A network makes `depth` such sums after one another; each passes on
what came in. Two computations are off in two ways. So they differ by less than

    2 sqrt(terms) eps depth condition scale,    doubled for margin,

with eps the spacing of the coarser dtype at 1, and scale the largest size in the array: an entry that is small because large
ones cancel has their error, not its own. condition: by how much the computation makes relative errors larger, such as
|steepest slope| |input| / |output| of a saturated or scaled network, or 1 / |gap| of a division.

A comparison that needs a large condition is better made in float64, whose eps is 2^29 times smaller.
"""

import numpy as np
import torch


TERMS = 64
"""Products in the sums of the tests' small models, at most."""


def relative(
    *values, depth: float = 1, condition: float = 1.0, terms: int = TERMS, dtype: torch.dtype | None = None
) -> float:
    """The relative tolerance of arrays and tensors: of the coarsest of their floating dtypes, or of that of the computation,
    dtype, where it is not theirs; of float64 where all are whole numbers or Python's.
    """
    names = [str(value.dtype).removeprefix("torch.") for value in values if hasattr(value, "dtype")]
    dtypes = [getattr(torch, name) for name in names if "float" in name] if dtype is None else [dtype]
    eps = max((torch.finfo(one).eps for one in dtypes), default=torch.finfo(torch.float64).eps)
    return 4 * terms**0.5 * eps * depth * condition


def of(*values, **arithmetic) -> float:
    """The absolute tolerance of arrays of these dtypes and sizes; arithmetic: see `relative`."""
    sizes = [np.abs(_array(value)) for value in values]
    scale = max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)
    return relative(*values, **arithmetic) * scale


def close(actual, expected, *, of_size: float = 0.0, message: str = "", **arithmetic) -> None:
    """Assert that two arrays or tensors of one shape are equal but for rounding, with NaN and infinities in the same places.

    of_size: the size of what they are differences of, where that is larger than theirs. arithmetic: see `relative`.
    """
    allowed = max(of(actual, expected, **arithmetic), relative(actual, expected, **arithmetic) * of_size)
    one, other = _array(actual), _array(expected)
    assert one.shape == other.shape, f"{message} {one.shape} {other.shape}"
    np.testing.assert_allclose(one, other, rtol=0, atol=allowed, err_msg=message)


def _array(values) -> np.ndarray:
    """In float64, to be compared there."""
    return np.asarray(values.detach().cpu().double() if isinstance(values, torch.Tensor) else values, np.float64)
