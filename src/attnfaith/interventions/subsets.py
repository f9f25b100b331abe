"""What the tests of explanations share: the scores that are tested, and what a model says of a part of a text.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences or words), V parts of
texts, M measures, C classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from attnfaith.interventions.targets import softmax
from attnfaith.subjects import Batch, Subject, require, whole_logits
from attnfaith.subjects import removal as of_texts


def scores_of(subject: Subject, batch: Batch, scores: Mapping | None) -> Mapping[str, list[np.ndarray]]:
    """The scores under test, {measure: one array (T,) an instance}: those given, else attention alone."""
    if scores is not None:
        return scores
    weights, mask = subject.attention(batch).double().cpu().numpy(), subject.attendable(batch).cpu().numpy()
    return {"attention": [row[keep] for row, keep in zip(weights, mask, strict=True)]}


@torch.no_grad()
def whole(subject: Subject, batch: Batch) -> np.ndarray:
    """Class probabilities (B,C) in float64 of the texts as they are."""
    return whole_logits(subject, batch).double().softmax(-1).cpu().numpy()


def distinct(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of parts (V,T) bool, and which of them each row is (V,)."""
    packed = np.packbits(parts, axis=1)
    if not packed.shape[1]:  # no items: all parts are the empty one
        return parts[:1], np.zeros(len(parts), np.int64)
    _, first, number = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return parts[first], number.reshape(-1)


def check_absent_model(subject: Subject, absent: str, who: str) -> None:
    """Raises SubjectError for a subject that cannot read texts so."""
    require(subject, {of_texts.ABSENT[absent]}, f"{who} with absent='{absent}'")


def read_parts(subject: Subject, batch: Batch, parts: Sequence[np.ndarray], absent: str = "deleted") -> list[np.ndarray]:
    """Class probabilities (V,C) in float64 of parts of each text: one array (V,T) bool per instance, true where items stay.

    absent: what becomes of the other items, see `subjects.removal`.
    """
    return [softmax(logits) for logits in of_texts.read_parts(subject, batch, parts, absent)]
