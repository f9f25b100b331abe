"""Configuration of a classifier that reads only what a selector lets it read."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_attention_classifier import AttentionClassifierConfig
from .encoders import ENCODERS


THRESHOLDS = {"bernoulli": 0.5, "hardkuma": 0.0, "budget": 0.0}
"""Samplers, and their default thresholds: at test time a token is selected if its value is above."""
KINDS = (*ENCODERS, "pretrained")


@strict
class RationaleClassifierConfig(AttentionClassifierConfig):
    """A selector, which gives each token a gate, and a classifier, which reads only what passes the gates.

    The classifier's encoder, sizes, alignment and projection (of pooling='attention'), readout and vectors are the fields of
    `AttentionClassifierConfig`, for single texts without a hierarchy. Selector and classifier read the same word vectors;
    that of an unselected token is 0. Begin and end markers are always read, and never selected.

    sampler: bernoulli (Lei et al. 2016), hardkuma (Bastings et al. 2019) or budget (SPECTRA, Guerreiro & Martins 2021); see
        `rationale_samplers`.
    selector_encoder: encoder of the states that the selector scores; None: the kind of the classifier's encoder, with
        separate weights.
    pooling: of the states of selected tokens: their average, maximum (max), or weighted sum by an attention (attention).
    budget: the largest share of a text's tokens to select (`rationale_samplers.budget_tokens`); with bernoulli and hardkuma
        it applies at test time only, and None is no bound.
    temperature: of the sampler budget, the divisor of scores.
    threshold: at test time a token is selected if its value is above; None: 0.5 for bernoulli, else 0.
    text_config: of an encoder of transformers, the kind of both encoders; word vectors lie outside of both.
    """

    model_type = "rationale_classifier"
    sub_configs_defaults = {"text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert", optional=True)}
    keys_to_ignore_at_inference = ["selection", "gates", "selection_scores", "hidden_states", "attentions"]
    ranges = {
        **AttentionClassifierConfig.ranges,
        "budget": "(0, 1]",
        "temperature": "(0, inf)",
        "threshold": "[0, 1)",
    }

    encoder: Literal[KINDS] = "bilstm"
    sampler: Literal[tuple(THRESHOLDS)] = "bernoulli"
    selector_encoder: Literal[KINDS] | None = None
    pooling: Literal["average", "max", "attention"] = "average"
    budget: float | int | None = None
    temperature: float | int = 0.1
    threshold: float | int | None = None
    text_config: dict | PreTrainedConfig | None = None

    def __post_init__(self, **kwargs):
        if isinstance(self.text_config, dict):
            self.text_config = AutoConfig.for_model(**self.text_config)
        if self.text_config is not None:
            self.encoder = self.selector_encoder = "pretrained"
            self.hidden_size = self.text_config.hidden_size
            self.embedding_size = getattr(self.text_config, "embedding_size", self.hidden_size)
        self.selector_encoder = self.selector_encoder or self.encoder
        if self.threshold is None:
            self.threshold = THRESHOLDS.get(self.sampler)
        super().__post_init__(**kwargs)

    def validate_selector(self):
        self.check_encoder("selector_encoder", self.selector_encoder)
        if self.text_config is None and "pretrained" in (self.encoder, self.selector_encoder):
            raise ValueError("encoder='pretrained' and selector_encoder='pretrained' need the text_config of that encoder")
        if self.hierarchy != "none" or self.query != "learned":
            raise ValueError("a selector reads single texts: leave out hierarchy and query")
        if self.sampler == "budget" and self.budget is None:
            raise ValueError("sampler='budget' needs a budget, the share of its tokens that a text may keep, such as 0.2")
        if self.sampler != "budget" and self.temperature != 0.1:
            raise ValueError(f"temperature={self.temperature} is for sampler='budget': leave it out")


__all__ = ["RationaleClassifierConfig"]
