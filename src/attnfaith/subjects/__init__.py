"""Subjects: models as measures see them, one file per kind of model.

`protocol` lists the methods and capabilities of a subject, and `base` has what all models share. `checks` tests a model
before its attention is believed; `attention`, `layers` and `backward_rules` watch and edit a model while it runs.

To add a kind of model, write one file with a class that answers `Subject`, and add it to OWN. The contracts of the tests run
every measure on it.
"""

from collections.abc import Mapping, Set

from attnfaith.models import AttentionClassifierConfig, RationaleClassifierConfig
from attnfaith.subjects.attention import Edit
from attnfaith.subjects.base import unwrapped
from attnfaith.subjects.classifier import SelfAttention
from attnfaith.subjects.pooled import Pooled
from attnfaith.subjects.protocol import (
    CAPABILITIES,
    Batch,
    Subject,
    SubjectError,
    outputs,
    per_token,
    require,
    whole_logits,
)
from attnfaith.subjects.rationales import Rationales
from attnfaith.subjects.translator import sequence_subject


OWN = {AttentionClassifierConfig.model_type: Pooled, RationaleClassifierConfig.model_type: Rationales}
"""{type of a classifier of this package: the class of its subjects}; others are those of transformers."""


def subject_of(model) -> Subject:
    """Return a model of a known kind as a subject, and a subject as it is. Raises SubjectError for another model."""
    model = unwrapped(model)
    if hasattr(model, "capabilities"):
        return model
    # by names: a checkpoint may have brought the code of the class itself
    if type(model).__name__.endswith("ForSequenceClassification"):
        return OWN.get(model.config.model_type, SelfAttention)(model)
    if hasattr(model, "config") and hasattr(model, "from_pretrained"):
        raise SubjectError(
            f"{type(model).__name__} is no text classifier: load its checkpoint with AutoModelForSequenceClassification. A "
            "head that the checkpoint does not hold is drawn at random: fine-tune the model first"
        )
    kinds = ", ".join(kind.kind for kind in (*OWN.values(), SelfAttention))
    raise SubjectError(
        f"{type(model).__name__} cannot be measured; subjects are {kinds}, and what answers attnfaith.subjects.Subject"
    )


def opened(
    model, batch: Mapping, needs: Set[str] = frozenset(), name: str = "", reads: str = "texts"
) -> tuple[Subject, Batch]:
    """Return the subject of a model, and a batch of it, for the measure `name` of "texts" or "pairs".

    Raises SubjectError for a model that is no subject, or lacks a capability of `needs`.
    """
    subject = sequence_subject(model) if reads == "pairs" else subject_of(model)
    if not needs <= subject.capabilities:
        require(subject, needs, name)
    return subject, batch if reads == "pairs" else Batch.of(batch, subject)


__all__ = [
    "CAPABILITIES",
    "Batch",
    "Edit",
    "Pooled",
    "Rationales",
    "SelfAttention",
    "Subject",
    "SubjectError",
    "opened",
    "outputs",
    "per_token",
    "require",
    "sequence_subject",
    "subject_of",
    "unwrapped",
    "whole_logits",
]
