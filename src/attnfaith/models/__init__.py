"""The models: a closed, flat folder whose files travel with every checkpoint as remote code.

Importing it registers them with `AutoConfig`, `AutoModel`, `AutoModelForSequenceClassification` and `AutoModelForSeq2SeqLM`.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.configuration_attention_seq2seq import AttentionSeq2SeqConfig
from attnfaith.models.configuration_rationale_classifier import RationaleClassifierConfig
from attnfaith.models.configuration_self_attention_classifier import SelfAttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import (
    AttentionClassifierForSequenceClassification,
    AttentionClassifierModel,
)
from attnfaith.models.modeling_attention_seq2seq import AttentionSeq2SeqForConditionalGeneration
from attnfaith.models.modeling_rationale_classifier import RationaleClassifierForSequenceClassification
from attnfaith.models.modeling_self_attention_classifier import SelfAttentionClassifierForSequenceClassification


REGISTERED = (
    (AutoModel, AttentionClassifierModel),
    (AutoModelForSequenceClassification, AttentionClassifierForSequenceClassification),
    (AutoModelForSequenceClassification, SelfAttentionClassifierForSequenceClassification),
    (AutoModelForSequenceClassification, RationaleClassifierForSequenceClassification),
    (AutoModelForSeq2SeqLM, AttentionSeq2SeqForConditionalGeneration),
)
"""The Auto class that loads each model."""
MODEL_TYPES = frozenset(model.config_class.model_type for _, model in REGISTERED)

for auto_class, model_class in REGISTERED:
    config_class = model_class.config_class
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    auto_class.register(config_class, model_class, exist_ok=True)

__all__ = [
    "MODEL_TYPES",
    "REGISTERED",
    "AttentionClassifierConfig",
    "AttentionClassifierForSequenceClassification",
    "AttentionClassifierModel",
    "AttentionSeq2SeqConfig",
    "AttentionSeq2SeqForConditionalGeneration",
    "RationaleClassifierConfig",
    "RationaleClassifierForSequenceClassification",
    "SelfAttentionClassifierConfig",
    "SelfAttentionClassifierForSequenceClassification",
]
