"""The models: a closed, flat folder whose files travel with every checkpoint as remote code.

Importing it registers them with `AutoConfig`, `AutoModel`, `AutoModelForSequenceClassification` and `AutoModelForSeq2SeqLM`.
"""

import transformers

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
    AttentionClassifierModel,
    AttentionClassifierForSequenceClassification,
    SelfAttentionClassifierForSequenceClassification,
    RationaleClassifierForSequenceClassification,
    AttentionSeq2SeqForConditionalGeneration,
)
MODEL_TYPES = frozenset(model.config_class.model_type for model in REGISTERED)

for model in REGISTERED:
    transformers.AutoConfig.register(model.config_class.model_type, model.config_class, exist_ok=True)
    getattr(transformers, model._auto_class).register(model.config_class, model, exist_ok=True)

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
