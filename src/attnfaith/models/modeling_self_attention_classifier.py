"""Any text classifier of transformers, with sparse self-attention, or with two kinds of tokens that are kept apart.

The classifier is built and run as it is. What is replaced is the function that makes attention of scores: every softmax over
the last dimension of a tensor of 4 dimensions, which is how models under "eager" attention write it. `attention_projection`
stands in its place; before it, scores between tokens that are kept apart are masked, as those of padding are.

Shapes: B instances, N heads, Q queries, K keys, L input positions, C classes.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial, wraps

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from .configuration_self_attention_classifier import SelfAttentionClassifierConfig
from .projections import BLOCKED, project


SOFTMAX = frozenset({nn.functional.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax})


def attention_projection(scores: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None, config) -> torch.Tensor:
    """Attention (B,N,Q,K) from scores of the same shape, by config.projection along `dim`; as torch.softmax is called.

    It is computed in float32 (float64 for float64 scores) and given in `dtype`, or that of the scores. A score that lies
    BLOCKED or more below the largest of its row is that of a masked key: exactly 0. As under softmax, a row of which all are
    masked is uniform over all keys, and one with NaN or infinity, or of nothing but minus infinity, is NaN.

    A `TorchFunctionMode` around the model sees a call of this function as it sees one of torch.softmax. It is known by its
    attribute `is_attention`, whichever copy of this file it is of.
    """
    if has_torch_function_unary(scores):
        return handle_torch_function(attention_projection, (scores,), scores, dim, dtype=dtype, config=config)
    last = scores.movedim(dim, -1)
    masked = last - last.detach().amax(-1, keepdim=True) <= BLOCKED  # nowhere in a row that has no finite maximum
    weights = project(last, ~masked, config)
    return weights.movedim(-1, dim).to(dtype or scores.dtype)


attention_projection.is_attention = True


def kept_together(impermissible: torch.Tensor) -> torch.Tensor:
    """(B,1,Q,K) bool: which position may attend to which, of positions that are impermissible (B,L), Q = K = L.

    Both have to be impermissible, or neither. The first position attends to all, and only itself attends to it.
    """
    impermissible = impermissible.bool()
    first = torch.arange(impermissible.shape[1], device=impermissible.device) == 0
    alike = impermissible.unsqueeze(2) == impermissible.unsqueeze(1)
    return (alike & ~first | first.unsqueeze(1)).unsqueeze(1)


class Projecting(TorchFunctionMode):
    """Within, each softmax of 4-dimensional scores along their last dimension is `attention_projection`, or stays softmax
    where that is the projection. `count` is their number.

    together: which position may attend to which (B,1,L,L) bool; other scores are masked. None: all to all.

    Raises ValueError for scores of other instances or positions than those of `together`.
    """

    def __init__(self, config: SelfAttentionClassifierConfig, together: torch.Tensor | None = None):
        super().__init__()
        self.config, self.together, self.count = config, together, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in SOFTMAX:
            return function(*args, **kwargs)
        scores, dim, dtype = _softmax_arguments(*args, **kwargs)
        if scores.dim() != 4 or dim is None or dim not in (-1, 3):
            return function(*args, **kwargs)
        self.count += 1
        if self.together is not None:
            if (scores.shape[0], *scores.shape[2:]) != (self.together.shape[0], *self.together.shape[2:]):
                raise ValueError(
                    f"separate_impermissible=True: attention scores of shape {tuple(scores.shape)} are not those of "
                    f"{self.together.shape[0]} texts, from each of {self.together.shape[2]} positions to each: "
                    "in this type of model no tokens can be kept apart"
                )
            scores = scores.masked_fill(~self.together, torch.finfo(scores.dtype).min)
        if self.config.projection == "softmax":
            return torch.softmax(scores, -1, dtype=dtype)
        return attention_projection(scores, -1, dtype=dtype, config=self.config)


def _softmax_arguments(input, dim=None, *rest, dtype=None, **_):
    return input, dim, rest[-1] if rest and isinstance(rest[-1], torch.dtype) else dtype


class SelfAttentionClassifierForSequenceClassification(PreTrainedModel):
    """A classifier of transformers with `config.projection` in each layer and head of its self-attention (and
    cross-attention, if any). With `config.separate_impermissible`, tokens of two kinds do not attend to one another.

    model: the classifier; None builds one from config.text_config. It takes the arguments of that classifier and returns its
    outputs; `attentions` are the projected ones. Attention is computed by the "eager" implementation.

    Raises ValueError for a model that cannot change to "eager" attention, and for a decoder with separate_impermissible; in
    `forward`, for a classifier that makes no attention by a softmax of 4 dimensions, so that nothing would be projected.
    """

    config_class = SelfAttentionClassifierConfig
    config: SelfAttentionClassifierConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = False
    _supports_flash_attn = False
    _supports_flex_attn = False
    _supports_attention_backend = False
    _auto_class = "AutoModelForSequenceClassification"  # as `register_for_auto_class` sets it: the code is saved too

    def __init__(self, config: SelfAttentionClassifierConfig, model: PreTrainedModel | None = None):
        inner = config.text_config if model is None else model.config
        inner.id2label, inner.label2id, inner.problem_type = config.id2label, config.label2id, config.problem_type
        if config.pad_token_id is not None:
            inner.pad_token_id = config.pad_token_id
        if model is not None and inner._attn_implementation != "eager":
            model.set_attn_implementation("eager")
            if inner._attn_implementation != "eager":
                raise ValueError(
                    f"{type(model).__name__} cannot change to 'eager' attention, which alone can be projected: load it "
                    "with attn_implementation='eager'"
                )
        config.text_config = inner
        super().__init__(config)
        self.model = model or AutoModelForSequenceClassification.from_config(inner, attn_implementation="eager")
        config.text_config = self.model.config
        if config.separate_impermissible and any(getattr(part, "is_causal", False) for part in self.model.modules()):
            raise ValueError(
                f"separate_impermissible=True with {type(self.model).__name__}, a decoder, which answers from its last "
                "token: the rule is for encoders that answer from their first position, such as BERT; leave it out"
            )
        self._mode: Projecting | None = None  # while texts are read
        self.post_init()

    @classmethod
    def of(cls, model: PreTrainedModel, projection: str = "softmax", **parameters):
        """Give a classifier another projection. Its weights are shared, not copied. parameters: sparsegen_lambda,
        entmax_alpha, separate_impermissible.
        """
        # a configuration decides how its parts attend, so that of the model itself is not taken before it is known
        config = SelfAttentionClassifierConfig(text_config=deepcopy(model.config), projection=projection, **parameters)
        return cls(config, model)

    def get_input_embeddings(self):
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value):
        self.model.set_input_embeddings(value)

    def _set_gradient_checkpointing(self, enable=True, gradient_checkpointing_func: Callable | None = None, **how):
        # a layer is run again in the backward pass, where `forward` below is long left: it brings the projection with it
        def checkpoint(function, *args, **kwargs):
            return gradient_checkpointing_func(self._projecting(function), *args, **kwargs)

        self.model._set_gradient_checkpointing(enable, checkpoint, **how)

    def _projecting(self, function: Callable) -> Callable:
        if (mode := self._mode) is None:
            return function

        @wraps(function)
        def projecting(*args, **kwargs):
            if self._mode is mode:
                return function(*args, **kwargs)
            with mode:
                return function(*args, **kwargs)

        return projecting

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
        """Run the classifier. What is None is left out, since not every type knows token_type_ids.

        impermissible (B,L): 1, or true, on impermissible tokens, 0 on others, markers and padding. Models of
        `separate_impermissible` need it, zeros where a text has none.

        Raises ValueError where such a model does not get it in this shape, and where any other model gets it.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "inputs_embeds": inputs_embeds,
            "labels": labels,
            **kwargs,
        }
        run = partial(self.model, **{name: value for name, value in inputs.items() if value is not None})
        together = self._kept_together(input_ids if inputs_embeds is None else inputs_embeds, impermissible)
        if self.config.projection == "softmax" and together is None:
            return run()
        mode = self._mode = Projecting(self.config, together)
        try:
            with mode:
                outputs = run()
        finally:
            self._mode = None
        if not mode.count:
            what = f"projection={self.config.projection!r} has nothing to project"
            if self.config.separate_impermissible:
                what = "separate_impermissible=True keeps nothing apart"
            raise ValueError(
                f"{what}: {self.config.text_config.model_type} makes no attention by a softmax over 4-dimensional scores"
            )
        return outputs

    def _kept_together(self, texts, impermissible):
        if not self.config.separate_impermissible:
            if impermissible is not None:
                raise ValueError("impermissible is for models of separate_impermissible=True; this is none: leave it out")
            return None
        if impermissible is None or impermissible.shape != texts.shape[:2]:
            shape = "nothing" if impermissible is None else f"shape {tuple(impermissible.shape)}"
            raise ValueError(
                f"this model reads which tokens are impermissible: give impermissible of shape {tuple(texts.shape[:2])}, 0 "
                f"or 1 a position (zeros, where a text has none); {shape} was given"
            )
        return kept_together(impermissible)


__all__ = ["SelfAttentionClassifierForSequenceClassification"]
