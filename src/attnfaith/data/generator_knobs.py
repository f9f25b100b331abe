"""What the generators of texts with known evidence share: their splits, and checks of their knobs."""

from collections.abc import Sequence

from attnfaith.errors import DatasetError


STREAMS = {"train": 0, "validation": 1, "test": 2}
"""The random stream of each split."""


def check_least(**knobs: tuple[int, int]) -> None:
    """Raises DatasetError for a knob below its least value; knobs: (value, least) by name."""
    for knob, (value, least) in knobs.items():
        if value < least:
            raise DatasetError(f"{knob} must be at least {least}; {value} was given.")


def check_balance(balance: Sequence[float] | None, n_classes: int):
    """The probability of each label (n_classes,), uniform for None. DatasetError unless they are that many and sum to 1."""
    import numpy as np

    shares = np.full(n_classes, 1 / n_classes) if balance is None else np.asarray(balance, np.float64)
    if shares.shape != (n_classes,) or (shares < 0).any() or not np.isclose(shares.sum(), 1):
        raise DatasetError(f"class_balance must be {n_classes} probabilities that sum to 1; {balance} was given.")
    return shares


def is_removed(evidence_removed: Sequence[str], stream: int) -> bool:
    """Whether the evidence of this stream is left out. DatasetError for what is no list of splits."""
    if isinstance(evidence_removed, str) or not set(evidence_removed) <= set(STREAMS):
        raise DatasetError(
            f"evidence_removed must be a list of splits ({', '.join(STREAMS)}); {evidence_removed!r} was given."
        )
    return stream in [STREAMS[name] for name in evidence_removed]
