"""Columns with one score a token: how measures of importance declare and fill them."""

import numpy as np
import torch

from attnfaith.record import Column, ragged
from attnfaith.subjects import Batch, Subject


STATES = frozenset({"states"})
"""What columns of encoder states need."""
EXPLAINED = "f the logit of the predicted class, or what the options target and output name"
MATTER = "the rows of attention that the logits depend on"


def score(doc: str, **fields) -> Column:
    """The column of a score that is never negative; that of a word is the sum of its subwords', unless `fields` say else."""
    return Column(("T",), **{"words": "sum", "range": (0.0, None), **fields}, doc=doc)


def signed_score(doc: str, **fields) -> Column:
    """The column of a signed score: a token with a positive one is evidence for what is explained."""
    fields = {"words": "sum", "undefined": "where f or its slope is not finite", **fields}
    return Column(("T",), **fields, signed=True, doc=f"{doc}; positive is evidence for f")


def share(doc: str) -> Column:
    """The column of what the rows that the logits depend on take of a token, over the sum of all input positions."""
    doc = f"what the mean of {MATTER} takes of a token, over the sum of all input positions, markers too: {doc}"
    undefined = "where the logits depend on no row of the last layer"
    return Column(("T",), words="sum", range=(0.0, 1.0), undefined=undefined, doc=doc)


def per_token(subject: Subject, batch: Batch, values: torch.Tensor) -> list[np.ndarray]:
    """Values (B,T) as one float32 array an instance, of its attendable tokens."""
    return ragged(values.float().cpu(), subject.attendable(batch).cpu())


def token_counts(subject: Subject, batch: Batch) -> list[int]:
    """The number T of attendable tokens of each instance."""
    return subject.attendable(batch).sum(1).tolist()
