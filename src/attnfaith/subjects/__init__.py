"""Subjects: models as measures see them, one file per kind of model.

`base` has the methods of a subject, as far as models share them, and `protocol` its capabilities and batches. `checks` tests
a model before its attention is believed; `attention`, `layers` and `backward_rules` watch and edit a model while it runs.

To add a kind of model, write one file with a class that answers `Subject`, and add it to OWN. The contracts of the tests run
every measure on it.
"""

from collections.abc import Mapping, Set

from attnfaith.models import AttentionClassifierConfig, AttentionSeq2SeqConfig, RationaleClassifierConfig
from attnfaith.subjects.attention import Edit
from attnfaith.subjects.base import Subject, unwrapped
from attnfaith.subjects.classifier import SelfAttention
from attnfaith.subjects.pooled import Pooled, Rationales
from attnfaith.subjects.protocol import CAPABILITIES, Batch, SubjectError, outputs, per_token, require, whole_logits
from attnfaith.subjects.translator import CrossAttention, RecurrentAttention, SequenceSubject


OWN = {
    AttentionClassifierConfig.model_type: Pooled,
    RationaleClassifierConfig.model_type: Rationales,
    AttentionSeq2SeqConfig.model_type: RecurrentAttention,
}
"""{type of a model of this package: the class of its subjects}; others are those of transformers."""


def subject_of(model, tokenizer=None) -> Subject:
    """Return a model of a known kind as a subject, and a subject as it is. Raises SubjectError for another model."""
    model = unwrapped(model)
    if hasattr(model, "capabilities"):
        return model
    # by names: a checkpoint may have brought the code of the class itself
    name, config = type(model).__name__, getattr(model, "config", None)
    translates = getattr(config, "is_encoder_decoder", False) and hasattr(model, "get_encoder")
    if name.endswith("ForSequenceClassification"):
        return OWN.get(config.model_type, SelfAttention)(model, tokenizer)
    if translates and not name.endswith(("Classification", "QuestionAnswering")):
        return OWN.get(config.model_type, CrossAttention)(model, tokenizer)
    if config is not None and hasattr(model, "from_pretrained"):
        raise SubjectError(
            f"{name} is no text classifier, and has no cross-attention of a decoder to an encoder: load its checkpoint with "
            "AutoModelForSequenceClassification or AutoModelForSeq2SeqLM. A head that the checkpoint does not hold is drawn "
            "at random: fine-tune the model first"
        )
    kinds = ", ".join(kind.kind for kind in (*OWN.values(), SelfAttention, CrossAttention))
    raise SubjectError(f"{name} cannot be measured; subjects are {kinds}, and what answers attnfaith.subjects.Subject")


def opened(model, batch: Mapping, needs: Set[str] = frozenset(), name: str = "") -> tuple[Subject, Batch]:
    """Return the subject of a model, and a batch of it, for the measure `name`.

    Raises SubjectError for a model that is no subject, or lacks a capability of `needs`.
    """
    subject = subject_of(model)
    require(subject, needs, name)
    return subject, batch if isinstance(subject, SequenceSubject) else Batch.of(batch, subject)


__all__ = ["CAPABILITIES", "Batch", "CrossAttention", "Edit", "Pooled", "Rationales", "SelfAttention", "SequenceSubject"]
__all__ += ["Subject", "SubjectError", "opened", "outputs", "per_token", "require", "subject_of", "unwrapped"]
__all__ += ["whole_logits"]
