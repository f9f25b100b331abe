"""Configuration of a classifier that reads only what a selector lets it read."""

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_attention_classifier import AttentionClassifierConfig


SAMPLERS = ("bernoulli", "hardkuma", "budget")
POOLINGS = ("average", "max", "attention")
READS = ("zeroed", "deleted")
THRESHOLDS = {"bernoulli": 0.5, "hardkuma": 0.0, "budget": 0.0}
"""Default thresholds: at test time a token is selected if its value is above."""


@strict
class RationaleClassifierConfig(AttentionClassifierConfig):
    """A selector, which gives each token a gate, and a classifier, which reads only what passes the gates.

    The classifier's encoder, sizes, alignment and projection (of pooling='attention'), readout and vectors are the fields of
    `AttentionClassifierConfig`, for single texts without a hierarchy.

    sampler: bernoulli (Lei et al. 2016), hardkuma (Bastings et al. 2019) or budget (SPECTRA, Guerreiro & Martins 2021); see
        `rationale_samplers`.
    selector_encoder: encoder of the states that the selector scores; None: the kind of the classifier's encoder, with
        separate weights.
    share_embeddings: selector and classifier read the same word vectors; else each has its own half of the table, the
        selector the first.
    pooling: of the states of selected tokens: their average, maximum, or weighted sum by an attention.
    reads: zeroed: the vector of an unselected token is 0. deleted (bernoulli only): unselected tokens are removed and the
        rest moves up. Begin and end markers are always read, and never selected.
    budget: the largest share of a text's tokens to select (`rationale_samplers.budget_tokens`); with bernoulli and hardkuma
        it applies at test time only, and None is no bound.
    contiguous: at test time the selected tokens are one window, the one with the largest sum of values.
    transition: of the sampler budget, the bonus of two selected neighbours, added to scores divided by the temperature, as
        in the authors' code (0.001 to 0.01 there); 0: none.
    temperature, test_temperature: of the sampler budget, divisors of scores; None: the same at test time.
    threshold: at test time a token is selected if its value is above; None: 0.5 for bernoulli, else 0.
    text_config: of an encoder of transformers, the kind of both encoders ("pretrained"); each has its own position
        embeddings, and word vectors lie outside of both.
    """

    model_type = "rationale_classifier"
    sub_configs_defaults = {"text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert", optional=True)}
    keys_to_ignore_at_inference = ["selection", "gates", "selection_scores", "hidden_states", "attentions"]
    choices = {
        **AttentionClassifierConfig.choices,
        "encoder": (*AttentionClassifierConfig.choices["encoder"], "pretrained"),
        "selector_encoder": (*AttentionClassifierConfig.choices["encoder"], "pretrained"),
        "sampler": SAMPLERS,
        "pooling": POOLINGS,
        "reads": READS,
    }
    ranges = {
        **AttentionClassifierConfig.ranges,
        "budget": "(0, 1]",
        "transition": "[0, inf)",
        **dict.fromkeys(("temperature", "test_temperature"), "(0, inf)"),
        "threshold": "[0, 1)",
    }

    sampler: str = "bernoulli"
    selector_encoder: str | None = None
    share_embeddings: bool = True
    pooling: str = "average"
    reads: str = "zeroed"
    budget: float | int | None = None
    contiguous: bool = False
    transition: float | int = 0.0
    temperature: float | int = 0.1
    test_temperature: float | int | None = None
    threshold: float | int | None = None
    text_config: dict | PreTrainedConfig | None = None

    def __post_init__(self, **kwargs):
        if isinstance(self.text_config, dict):
            self.text_config = AutoConfig.for_model(**self.text_config)
        if self.text_config is not None:
            self.encoder = "pretrained"
            self.hidden_size = self.text_config.hidden_size
            self.embedding_size = getattr(self.text_config, "embedding_size", self.hidden_size)
        if self.selector_encoder is None:
            self.selector_encoder = self.encoder
        if self.threshold is None and self.sampler in THRESHOLDS:
            self.threshold = THRESHOLDS[self.sampler]
        super().__post_init__(**kwargs)

    def validate_selector(self):
        self.check_encoder("selector_encoder", self.selector_encoder)
        kinds = {self.encoder, self.selector_encoder}
        if kinds != {"pretrained"} if self.text_config is not None else "pretrained" in kinds:
            raise ValueError(
                f"encoder={self.encoder!r} with selector_encoder={self.selector_encoder!r}: text_config names an encoder of "
                "transformers for both; leave out both fields, or text_config"
            )
        if self.hierarchy != "none" or self.query != "learned":
            raise ValueError(
                f"hierarchy={self.hierarchy!r}, query={self.query!r}: a selector reads the tokens of single texts; leave "
                "them out"
            )
        if self.reads == "deleted" and self.sampler != "bernoulli":
            raise ValueError(
                f"reads='deleted' with sampler={self.sampler!r}, whose gates are fractions in training: take 'zeroed', or "
                "the sampler bernoulli"
            )
        if self.sampler == "budget" and self.budget is None:
            raise ValueError("sampler='budget' needs a budget, the share of its tokens that a text may keep, such as 0.2")
        for field, value in {"transition": 0, "temperature": 0.1, "test_temperature": None}.items():
            if self.sampler != "budget" and getattr(self, field) != value:
                raise ValueError(
                    f"{field}={getattr(self, field)} is for sampler='budget', not {self.sampler!r}: leave it out"
                )


__all__ = ["RationaleClassifierConfig"]
