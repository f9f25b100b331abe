"""How far two right computations of one number may differ.

A sum of n products has a typical error of sqrt(n) eps/2 times the largest size (Higham 2002, sections 2.8 and 3.1). A
network makes `depth` such sums one after another, and two computations differ by at most twice that:

    2 sqrt(terms) eps depth condition scale,    doubled for margin,

with eps of the coarser dtype and scale the largest size in the array. condition: by how much the computation makes relative
errors larger, such as 1 / |gap| of a division.
"""

import numpy as np
import torch


def relative(*values, depth: float = 1, condition: float = 1.0, dtype: torch.dtype | None = None) -> float:
    """The relative tolerance of arrays of these dtypes, or of a computation in another dtype; sums have 64 products."""
    names = [str(value.dtype).removeprefix("torch.") for value in values if hasattr(value, "dtype")]
    dtypes = [getattr(torch, name) for name in names if "float" in name] if dtype is None else [dtype]
    eps = max((torch.finfo(kind).eps for kind in dtypes), default=torch.finfo(torch.float64).eps)
    return 32 * eps * depth * condition


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
    actual, expected = _array(actual), _array(expected)
    assert actual.shape == expected.shape, f"{message} {actual.shape} {expected.shape}"
    np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed, err_msg=message)


def _array(values) -> np.ndarray:
    """In float64, to be compared there."""
    return np.asarray(values.detach().cpu().double() if isinstance(values, torch.Tensor) else values, np.float64)
