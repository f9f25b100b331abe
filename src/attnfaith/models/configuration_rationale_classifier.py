"""Configuration of a classifier that reads only what a selector lets it read."""

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_attention_classifier import AttentionClassifierConfig


SAMPLERS = ("bernoulli", "hardkuma", "budget")
POOLINGS = ("average", "max", "attention")
READS = ("zeroed", "deleted")
THRESHOLDS = {"bernoulli": 0.5, "hardkuma": 0.0, "budget": 0.0}
"""What a token's value must be above, to be selected at test time, where a configuration says nothing."""


@strict
class RationaleClassifierConfig(AttentionClassifierConfig):
    """A selector, which gives each token a gate, and a classifier, which reads what is let through and nothing else.

    The classifier's encoder, its sizes, alignment and projection (of pooling='attention'), readout and vectors are the
    fields of `AttentionClassifierConfig`; it is of single texts, without a hierarchy.

    sampler: bernoulli (Lei et al. 2016), hardkuma (Bastings et al. 2019) or budget (SPECTRA, Guerreiro & Martins 2021); see
        `rationale_samplers`.
    selector_encoder: of the states that tokens are scored by; None: an encoder of the kind of the classifier's, with weights
        of its own.
    share_embeddings: selector and classifier read the same word vectors; else each has its own, which lie in one table, the
        selector's first.
    pooling: what the classifier makes of the states of selected tokens: their average, the maximum of each number, or an
        attention's sum of them.
    reads: zeroed: a token that is not selected keeps its place, its vector is zeros. deleted, of bernoulli alone: what
        follows moves up. Begin and end markers are read in any case, and never selected.
    budget: the share of its tokens that a text may keep (`rationale_samplers.budget_tokens`); of bernoulli and hardkuma,
        which are trained without, it holds at test time, and None is no bound.
    contiguous: at test time the selected tokens are one window, that of the largest sum of values.
    transition: of budget, what two neighbours are worth more when both are selected, beside scores divided by the
        temperature, as in the authors' code (0.001 to 0.01 there); 0: nothing.
    temperature, test_temperature: of budget, what scores are divided by; None: the same at test time.
    threshold: what a token's value must be above, to be selected at test time; None: 0.5 of bernoulli, else 0.
    text_config: of an encoder of transformers, which then is the kind of both encoders ("pretrained"); embeddings of
        positions and the like are each one's own, word vectors lie outside of both.
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
                f"encoder={self.encoder!r} with selector_encoder={self.selector_encoder!r}: an encoder of transformers "
                "stands in both places, and text_config says which; leave out both fields, or text_config"
            )
        if self.hierarchy != "none" or self.query != "learned":
            raise ValueError(
                f"hierarchy={self.hierarchy!r}, query={self.query!r}: a selector is over the tokens of single texts; leave "
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
                    f"{field}={getattr(self, field)} is of sampler='budget', not {self.sampler!r}: leave it out"
                )


__all__ = ["RationaleClassifierConfig"]
