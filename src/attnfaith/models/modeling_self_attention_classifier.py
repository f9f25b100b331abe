"""Any text classifier of transformers, with sparse self-attention, or with separate attention of two kinds of tokens.

The classifier is run unchanged, under "eager" attention. Each softmax over the last dimension of a tensor of 4 dimensions is
replaced by `attention_projection`; before it, scores between tokens of two separate kinds are masked.

Shapes: B instances, N heads, Q queries, K keys, L input positions, C classes.
"""

from copy import deepcopy

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from .configuration_self_attention_classifier import SelfAttentionClassifierConfig
from .projections import BLOCKED, project


SOFTMAX = frozenset({nn.functional.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax})


def attention_projection(scores: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None, config) -> torch.Tensor:
    """Compute attention (B,N,Q,K) from scores of the same shape by config.projection along `dim`; called like torch.softmax.

    Computed in float32 (float64 for float64 scores) and returned in `dtype`, default that of the scores. A score that lies
    BLOCKED or more below the largest of its row belongs to a masked key, whose weight is exactly 0. As under softmax, a row
    of masked keys only is uniform, and a row with NaN or plus infinity, or of minus infinity only, is NaN. A
    `TorchFunctionMode` around the model sees calls of this function, by its attribute `is_attention` in any copy of it.
    """
    if has_torch_function_unary(scores):
        return handle_torch_function(attention_projection, (scores,), scores, dim, dtype=dtype, config=config)
    last = scores.movedim(dim, -1)
    masked = last - last.detach().amax(-1, keepdim=True) <= BLOCKED  # nowhere in a row that has no finite maximum
    weights = project(last, ~masked, config)
    return weights.movedim(-1, dim).to(dtype or scores.dtype)


attention_projection.is_attention = True


def may_attend(impermissible: torch.Tensor) -> torch.Tensor:
    """Return (B,1,L,L) bool, whether position q may attend to position k, from impermissible positions (B,L): both must be
    impermissible, or neither. The first position attends to all, and only itself attends to it.
    """
    impermissible = impermissible.bool()
    first = torch.arange(impermissible.shape[1], device=impermissible.device) == 0
    alike = impermissible.unsqueeze(2) == impermissible.unsqueeze(1)
    return (alike & ~first | first.unsqueeze(1)).unsqueeze(1)


class Projecting(TorchFunctionMode):
    """Replace each softmax of 4-dimensional scores along their last dimension by the configured projection, and count them.

    allowed: (B,1,L,L) bool, other scores are masked; ValueError for scores of another shape. None: no mask.
    """

    def __init__(self, config: SelfAttentionClassifierConfig, allowed: torch.Tensor | None = None):
        super().__init__()
        self.config, self.allowed, self.count = config, allowed, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in SOFTMAX:
            return function(*args, **kwargs)
        scores, dim, dtype = _softmax_arguments(*args, **kwargs)
        if scores.dim() != 4 or dim not in (-1, 3):
            return function(*args, **kwargs)
        self.count += 1
        if self.allowed is not None:
            if scores.shape[2:] != self.allowed.shape[2:]:
                raise ValueError("separate_impermissible=True: this type of model attends not from each position to each")
            scores = scores.masked_fill(~self.allowed, torch.finfo(scores.dtype).min)
        if self.config.projection == "softmax":
            return torch.softmax(scores, -1, dtype=dtype)
        return attention_projection(scores, -1, dtype=dtype, config=self.config)


def _softmax_arguments(input, dim=None, *rest, dtype=None, **_):
    return input, dim, rest[-1] if rest and isinstance(rest[-1], torch.dtype) else dtype


class SelfAttentionClassifierForSequenceClassification(PreTrainedModel):
    """A classifier of transformers with `config.projection` in all layers and heads of its attention. With
    `config.separate_impermissible`, tokens of two kinds do not attend to one another.

    model: the classifier; None builds one from config.text_config. Arguments and outputs are those of the classifier.

    Raises ValueError for a decoder with separate_impermissible; in `forward`, for a classifier whose attention is no softmax
    of 4 dimensions, so that nothing would be projected.
    """

    config_class = SelfAttentionClassifierConfig
    config: SelfAttentionClassifierConfig
    base_model_prefix = "model"
    _auto_class = "AutoModelForSequenceClassification"  # as `register_for_auto_class` sets it: the code is saved too

    def __init__(self, config: SelfAttentionClassifierConfig, model: PreTrainedModel | None = None):
        inner = config.text_config if model is None else model.config
        inner.id2label, inner.label2id, inner.problem_type = config.id2label, config.label2id, config.problem_type
        if config.pad_token_id is not None:
            inner.pad_token_id = config.pad_token_id
        if model is not None:
            model.set_attn_implementation("eager")
        config.text_config = inner
        super().__init__(config)
        self.model = model or AutoModelForSequenceClassification.from_config(inner, attn_implementation="eager")
        config.text_config = self.model.config
        decodes = inner.is_encoder_decoder or any(getattr(part, "is_causal", False) for part in self.model.modules())
        if config.separate_impermissible and decodes:
            raise ValueError("separate_impermissible=True is for encoders such as BERT, not for decoders: leave it out")
        self.post_init()

    @classmethod
    def of(cls, model: PreTrainedModel, projection: str = "softmax", **parameters):
        """Give a classifier another projection, without copying its weights. parameters: fields of the configuration."""
        # a copy: a wrapped configuration would change the attention of the model's own parts
        config = SelfAttentionClassifierConfig(text_config=deepcopy(model.config), projection=projection, **parameters)
        return cls(config, model)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        inputs_embeds=None,
        labels=None,
        impermissible=None,
        **kwargs,
    ):
        """Run the classifier, without arguments that are None, since not all types accept token_type_ids.

        impermissible (B,L): 1 or True on impermissible tokens, 0 on others, markers and padding; for models with
        `separate_impermissible`, which need it. Raises ValueError for others, and another shape.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs |= {"inputs_embeds": inputs_embeds, "labels": labels, **kwargs}
        inputs = {name: value for name, value in inputs.items() if value is not None}
        allowed = self._allowed(input_ids if inputs_embeds is None else inputs_embeds, impermissible)
        if self.config.projection == "softmax" and allowed is None:
            return self.model(**inputs)
        with Projecting(self.config, allowed) as mode:
            outputs = self.model(**inputs)
        if not mode.count:
            kind = self.config.text_config.model_type
            raise ValueError(f"{kind} makes no attention by a softmax over 4-dimensional scores: nothing to project")
        return outputs

    def _allowed(self, texts, impermissible):
        if not self.config.separate_impermissible:
            if impermissible is not None:
                raise ValueError("impermissible is for models with separate_impermissible=True: leave it out")
            return None
        if impermissible is None or impermissible.shape != texts.shape[:2]:
            raise ValueError(f"this model needs impermissible of shape {tuple(texts.shape[:2])}, 0 or 1 for each position")
        return may_attend(impermissible)


__all__ = ["SelfAttentionClassifierForSequenceClassification"]
