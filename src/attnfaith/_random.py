"""Random numbers that belong to an instance."""

import hashlib

import numpy as np


def generator(seed: int, instance_id: str, purpose: str) -> np.random.Generator:
    """The random stream of one instance and one purpose: no batch, order or number of processes changes it."""
    digest = hashlib.sha256(f"{purpose}\0{seed}\0{instance_id}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
