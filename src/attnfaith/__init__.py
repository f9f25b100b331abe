"""attnfaith: does attention explain what a model does?

Importing the package makes its models known to the Auto classes of transformers and its metric to `evaluate.load`. Both
happen when those libraries are imported, so that `import attnfaith` itself loads neither torch nor transformers.
"""

from functools import partial
from importlib import import_module

from attnfaith.import_hook import when_imported
from attnfaith.metrics.registration import register_metric


__version__ = "1.0.0"

_MODULES = {
    "measure": "attnfaith.api.measuring",
    "load_subject": "attnfaith.loading",
    "load": "attnfaith.api.records",
    "Record": "attnfaith.api.records",
    "view": "attnfaith.api.viewing",
    "compare": "attnfaith.api.records",
    "measures": "attnfaith.api.measuring",
    "Measure": "attnfaith.measurement.registry",
    "register": "attnfaith.measurement.registry",
    "Column": "attnfaith.record",
    "train_gates": "attnfaith.api.measuring",
    "AttnfaithError": "attnfaith.support.errors",
    "AttentionClassifierConfig": "attnfaith.models.configuration_attention_classifier",
    "AttentionClassifierModel": "attnfaith.models.modeling_attention_classifier",
    "AttentionClassifierForSequenceClassification": "attnfaith.models.modeling_attention_classifier",
    "SelfAttentionClassifierConfig": "attnfaith.models.configuration_self_attention_classifier",
    "SelfAttentionClassifierForSequenceClassification": "attnfaith.models.modeling_self_attention_classifier",
    "AttentionSeq2SeqConfig": "attnfaith.models.configuration_attention_seq2seq",
    "AttentionSeq2SeqForConditionalGeneration": "attnfaith.models.modeling_attention_seq2seq",
    "RationaleClassifierConfig": "attnfaith.models.configuration_rationale_classifier",
    "RationaleClassifierForSequenceClassification": "attnfaith.models.modeling_rationale_classifier",
}

__all__ = [*_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__():
    return sorted([*__all__, "__version__"])


when_imported("transformers", partial(import_module, "attnfaith.models"))
when_imported("evaluate", register_metric)
