"""A classifier that reads only what a selector lets it read: rationales by Bernoulli, HardKuma or a budget.

`forward` is read(select(...)); interventions on the selection call these stages.

Shapes: B instances, L input positions, E embedding, H hidden, C classes, P scores of the selector for each token.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from transformers import AutoModel
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput
from transformers.utils import can_return_tuple

from .alignments import ALIGNMENTS
from .configuration_rationale_classifier import RationaleClassifierConfig
from .decoders import DECODERS
from .encoders import ENCODERS, Encoder
from .modeling_common import PaperPreTrainedModel, between_markers, contexts, present_mask
from .projections import project
from .rationale_samplers import (
    bernoulli_sample,
    budget,
    budget_tokens,
    hardened,
    hardkuma_sample,
    hardkuma_value,
    kuma_shape,
)


class Embedded(NamedTuple):
    """Embedded texts: vectors (B,L,E); masks (B,L) of all tokens, and of those that may be selected, without markers."""

    vectors: torch.Tensor
    present: torch.Tensor
    inside: torch.Tensor


class Selection(NamedTuple):
    """The selection of a selector: scores (B,L,P); values (B,L), the gates at test time before they are hardened, in 0..1
    (the probability of bernoulli; for hardkuma 0, 1 or the mean of the unstretched distribution; the relaxed gate of a
    budget); selected (B,L) bool, the tokens that are read at test time; gates (B,L), in training a draw, for a budget the
    relaxed gates, else `selected` as 0 and 1.
    """

    scores: torch.Tensor
    values: torch.Tensor
    selected: torch.Tensor
    gates: torch.Tensor


@dataclass
class RationaleClassifierOutput(ModelOutput):
    """loss (); logits (B,C); selection (B,L), gates (B,L) and selection_scores (B,L,P): the values, gates and scores of
    `Selection`, 0 on markers and padding.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    selection: torch.FloatTensor | None = None
    gates: torch.FloatTensor | None = None
    selection_scores: torch.FloatTensor | None = None


class PretrainedEncoder(Encoder):
    """An encoder of transformers that reads word vectors."""

    def __init__(self, config):
        super().__init__()
        self.network = AutoModel.from_config(config.text_config)
        self.network.set_input_embeddings(nn.Identity())

    def forward(self, embedded, mask):
        states = self.network(inputs_embeds=embedded, attention_mask=mask.long()).last_hidden_state
        return states * mask.unsqueeze(-1), None


BY_NAME = {**ENCODERS, "pretrained": PretrainedEncoder}


class Selector(nn.Module):
    """An encoder with an affine layer to P scores for each token."""

    def __init__(self, config: RationaleClassifierConfig):
        super().__init__()
        self.encoder = BY_NAME[config.selector_encoder](config)
        self.dropout = nn.Dropout(config.dropout)
        self.score = nn.Linear(config.hidden_size, 2 if config.sampler == "hardkuma" else 1)

    def forward(self, embedded, mask):
        """Vectors (B,L,E) and mask (B,L) of the text to scores (B,L,P)."""
        return self.score(self.dropout(self.encoder(embedded, mask)[0]))


class RationaleClassifierForSequenceClassification(PaperPreTrainedModel):
    """A selector, and a classifier of the selected tokens. In eval mode gates are 0 or 1.

    Selected are the tokens whose value is above config.threshold; if they are more than config.budget allows, those with the
    largest values, first ones first.
    """

    config_class = RationaleClassifierConfig
    config: RationaleClassifierConfig
    supports_gradient_checkpointing = True
    _auto_class = "AutoModelForSequenceClassification"  # as `register_for_auto_class` sets it: the code is saved too

    def __init__(self, config: RationaleClassifierConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.selector = Selector(config)
        self.encoder = BY_NAME[config.encoder](config)
        self.alignment = ALIGNMENTS[config.alignment](config) if config.pooling == "attention" else None
        self.decoder = DECODERS[config.readout](config)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module):
        """As in attention classifiers, but scores start at 0: a random layer may close gates, which have no gradient."""
        super()._init_weights(module)
        if module is self.selector.score:
            init.zeros_(module.weight)
            init.zeros_(module.bias)

    def attendable(self, input_ids, attention_mask=None, token_type_ids=None) -> torch.Tensor:
        """Return (B,L) bool: the tokens that may be selected, without markers and padding."""
        present = present_mask(input_ids, attention_mask, self.config.pad_token_id)
        return between_markers(present) if self.config.markers else present

    def embed(self, input_ids=None, attention_mask=None, inputs_embeds=None) -> Embedded:
        """Embed input ids (B,L), or take embeddings (B,L,E), with masks by `present_mask`."""
        present = present_mask(input_ids, attention_mask, self.config.pad_token_id, inputs_embeds)
        vectors = self.dropout(self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds)
        return Embedded(vectors, present, between_markers(present) if self.config.markers else present)

    def select(self, embedded: Embedded) -> Selection:
        """Stage 1: embedded texts to gates."""
        inside = embedded.inside
        scores = self.selector(embedded.vectors, embedded.present)
        exact, gates = scores.to(torch.promote_types(scores.dtype, torch.float32)), None
        if self.config.sampler == "bernoulli":
            values = exact.squeeze(-1).sigmoid() * inside
            gates = bernoulli_sample(exact.squeeze(-1), inside) if self.training else None
        elif self.config.sampler == "hardkuma":
            values = hardkuma_value(*kuma_shape(exact), inside)
            gates = hardkuma_sample(*kuma_shape(exact), inside) if self.training else None
        else:
            # the authors have two variables for each token, selected and not, whose squares both count
            relaxed = (exact.squeeze(-1).double() / self.config.temperature + 1) / 2
            gates = values = budget(relaxed, inside, budget_tokens(inside, self.config.budget)).to(exact.dtype)
        selected = self.harden(values, inside)
        gates = gates if self.training else selected.to(exact.dtype)
        return Selection(scores * inside.unsqueeze(-1), values, selected, gates)

    def harden(self, values: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """Return the selection of test time, (B,L) bool, from values (B,L) and tokens (B,L); see the class."""
        values = values.detach()
        above = ((values > self.config.threshold) & inside).sum(-1)
        if self.config.budget is not None:
            above = torch.minimum(above, budget_tokens(inside, self.config.budget))
        return hardened(values, inside, above)

    def read(self, embedded: Embedded, gates: torch.Tensor) -> torch.Tensor:
        """Stage 2: embedded texts and gates (B,L) to logits (B,C): vectors are multiplied by their gates, and states pooled
        by them.
        """
        vectors, present, inside = embedded
        gates = gates.to(vectors.dtype) * inside
        passing = torch.where(inside, gates, present.to(gates))
        states = self.encoder(vectors * passing.unsqueeze(-1), present)[0]
        return self.decoder(self.dropout(self._pooled(states, gates, inside)))

    def _pooled(self, states, gates, inside):
        chosen = (gates > 0) & inside
        if self.config.pooling == "attention":
            return contexts(states, project(self.alignment(states), chosen, self.config))
        if self.config.pooling == "max":
            least = states.masked_fill(~chosen.unsqueeze(-1), torch.finfo(states.dtype).min).amax(1)
            return least * chosen.any(1, keepdim=True)
        # with gates that sum to less than 1 the sum, so that the average of almost closed gates is almost 0
        return contexts(states, gates / gates.sum(1, keepdim=True).clamp(min=1))

    @can_return_tuple
    def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None, labels=None, **kwargs):
        embedded = self.embed(input_ids, attention_mask, inputs_embeds)
        selection = self.select(embedded)
        logits = self.read(embedded, selection.gates)
        loss = None if labels is None else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return RationaleClassifierOutput(
            loss=loss,
            logits=logits,
            selection=selection.values,
            gates=selection.gates,
            selection_scores=selection.scores,
        )


__all__ = ["RationaleClassifierForSequenceClassification"]
