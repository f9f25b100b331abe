"""The model of a run, read back from its folder."""

from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from attnfaith import loading
from attnfaith.locate import MODEL
from attnfaith.models import AttentionClassifierConfig, RationaleClassifierConfig
from attnfaith.subjects.classifier import SelfAttention


def load_model(run: Path) -> PreTrainedModel:
    """The model of a run's folder, with the "eager" attention that it was trained with. Raises ModelError."""
    loading.check_complete(run / MODEL)
    return loading.load_model(run / MODEL, attn_implementation="eager")


def measurable(model, tokenizer):
    """What `attnfaith.measurement` takes of a run: a model of this package as it is, another as a subject."""
    own = (AttentionClassifierConfig.model_type, RationaleClassifierConfig.model_type)
    if getattr(model.config, "model_type", None) in own:
        return model
    return SelfAttention(model, tokenizer)


def load_tokenizer(run: Path) -> PreTrainedTokenizerBase:
    """Its tokenizer. Raises ModelError where its files are missing or broken."""
    loading.check_complete(run / MODEL)
    return loading.load_tokenizer(run / MODEL)
