"""Make `AutoConfig`, `AutoModel` and `AutoModelForSequenceClassification` know the models of this package.

`AutoModel.register` wants the classes themselves, so it would load torch and the models for everyone who imports
attnfaith and then, for example, an `AutoTokenizer`; and it cannot run while transformers is still importing modules
that the models need. Instead the names enter transformers' own tables of names, whose classes are loaded when first
asked for, and this package is named as the place to load them from.
"""

import sys

from attnfaith._import_hooks import when_imported


MODEL_TYPE = "attention_classifier"
CONFIG = "AttentionClassifierConfig"
MODEL = "AttentionClassifierModel"
CLASSIFIER = "AttentionClassifierForSequenceClassification"
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

    _fill([(CONFIG_MAPPING_NAMES, MODEL_TYPE, CONFIG), (CONFIG_MAPPING._modules, MODEL_TYPE, sys.modules["attnfaith"])])


def _add_models() -> None:
    from transformers.models.auto import modeling_auto as auto

    entries = []
    for mapping, names, model in (
        (auto.MODEL_MAPPING, auto.MODEL_MAPPING_NAMES, MODEL),
        (auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, CLASSIFIER),
    ):
        entries += [
            (names, MODEL_TYPE, model),
            (mapping._modules, MODEL_TYPE, sys.modules["attnfaith"]),
            (mapping._reverse_config_mapping, CONFIG, MODEL_TYPE),
        ]
    _fill(entries)


def _fill(entries: list[tuple]) -> None:
    """Write (table, key, value) once all tables are at hand: a half-registered model would break what walks through them."""
    for table, key, value in entries:
        table[key] = value
