"""Configuration of a text classifier of transformers whose self-attention has another projection than softmax."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_common import ProjectionConfig


@strict
class SelfAttentionClassifierConfig(ProjectionConfig):
    """A classifier of any type that `AutoModelForSequenceClassification` knows, and the projection of its self-attention.

    text_config: the configuration of that classifier, with its model_type; default BERT. Classes and padding token that are
        set here apply to it; else they are taken from it.
    projection: softmax, sparsemax, sparsegen (sparsegen_lambda < 1), entmax15 or entmax (entmax_alpha >= 1), in all layers
        and heads. With softmax the model is the classifier itself.
    separate_impermissible: the model gets the mask of impermissible tokens, and tokens attend only to tokens of their own
        kind, in all layers and heads. The first position, from which the classifier answers, attends to all tokens, and no
        other position attends to it: the two kinds meet only there (the BERT of Pruthi et al. 2020). Not for models with a
        decoder, nor for those in which convolutions mix tokens as well (ConvBERT).
    """

    model_type = "self_attention_classifier"
    sub_configs_defaults = {"text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}
    keys_to_ignore_at_inference = ["past_key_values", "hidden_states", "attentions"]

    projection: Literal["softmax", "sparsemax", "sparsegen", "entmax15", "entmax"] = "softmax"
    text_config: dict | PreTrainedConfig | None = None
    separate_impermissible: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        own_labels = self.id2label is None and kwargs.get("num_labels") is None
        super().__post_init__(**kwargs)
        inner = self.text_config
        if own_labels:
            self.id2label = dict(inner.id2label)
            self.label2id = {label: number for number, label in self.id2label.items()}
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(inner, name, None))
        self.is_encoder_decoder = inner.is_encoder_decoder
        self.tie_word_embeddings = bool(getattr(inner, "tie_word_embeddings", False))
        self.problem_type = self.problem_type or inner.problem_type


__all__ = ["SelfAttentionClassifierConfig"]
