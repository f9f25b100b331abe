"""Make `AutoConfig`, `AutoModel` and its kin for classifiers and translators know the models of this package.

`AutoModel.register` wants the classes themselves, so it would load torch and the models for everyone who imports
attnfaith and then, for example, an `AutoTokenizer`; and it cannot run while transformers is still importing modules
that the models need. Instead the names enter transformers' own tables of names, whose classes are loaded when first
asked for, and this package is named as the place to load them from.
"""

import sys

from attnfaith._import_hooks import when_imported


MODEL_TYPE = "attention_classifier"
SELF_ATTENTION = "self_attention_classifier"
CONFIG = "AttentionClassifierConfig"
MODEL = "AttentionClassifierModel"
CLASSIFIER = "AttentionClassifierForSequenceClassification"
RATIONALE = "rationale_classifier"
SEQ2SEQ = "attention_seq2seq"
CONFIGS = {
    MODEL_TYPE: CONFIG,
    SELF_ATTENTION: "SelfAttentionClassifierConfig",
    RATIONALE: "RationaleClassifierConfig",
    SEQ2SEQ: "AttentionSeq2SeqConfig",
}
MODELS = {MODEL_TYPE: MODEL}
CLASSIFIERS = {
    MODEL_TYPE: CLASSIFIER,
    SELF_ATTENTION: "SelfAttentionClassifierForSequenceClassification",
    RATIONALE: "RationaleClassifierForSequenceClassification",
}
TRANSLATORS = {SEQ2SEQ: "AttentionSeq2SeqForConditionalGeneration"}
WITHOUT = f"Auto classes and pipelines do not know its models; load them by attnfaith.{CLASSIFIER}.from_pretrained"


def register_auto_classes() -> None:
    """Let the Auto classes and `pipeline` load checkpoints of this package without `trust_remote_code`.

    Imports nothing: transformers' tables are filled when they are imported, or now if they already are. Calling it
    again changes nothing.
    """
    when_imported("transformers.models.auto.configuration_auto", _add_config, WITHOUT)
    when_imported("transformers.models.auto.modeling_auto", _add_models, WITHOUT)


def _add_config() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    package = sys.modules["attnfaith"]
    _fill(
        [(CONFIG_MAPPING_NAMES, kind, config) for kind, config in CONFIGS.items()]
        + [(CONFIG_MAPPING._modules, kind, package) for kind in CONFIGS]
    )


def _add_models() -> None:
    from transformers.models.auto import modeling_auto as auto

    package, entries = sys.modules["attnfaith"], []
    for mapping, names, models in (
        (auto.MODEL_MAPPING, auto.MODEL_MAPPING_NAMES, MODELS),
        (
            auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
            auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
            CLASSIFIERS,
        ),
        (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, TRANSLATORS),
    ):
        for kind, model in models.items():
            entries += [
                (names, kind, model),
                (mapping._modules, kind, package),
                (mapping._reverse_config_mapping, CONFIGS[kind], kind),
            ]
    _fill(entries)


def _fill(entries: list[tuple]) -> None:
    """Write (table, key, value) once all tables are at hand: a half-registered model would break what walks through them."""
    for table, key, value in entries:
        table[key] = value
