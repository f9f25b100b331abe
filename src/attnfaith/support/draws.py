"""Random streams of instances, and draws of torch that its default dtype does not change."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def generator(seed: int, instance_id: str, purpose: str) -> np.random.Generator:
    """Return the random stream of an instance and a purpose: no batch, order or number of processes changes it."""
    digest = hashlib.sha256(f"{purpose}\0{seed}\0{instance_id}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Within, torch draws from this seed in float32; its own state is put back."""
    import torch

    with torch.random.fork_rng(devices=()), default_dtype(torch.float32):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def default_dtype(dtype) -> Iterator[None]:
    """Within, new tensors of torch have this dtype."""
    import torch

    own = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(own)
