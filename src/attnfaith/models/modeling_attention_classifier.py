"""The attention classifier in three stages that compose: encode, attend, decode.

Shapes: B instances, L input positions, T tokens, H hidden, C classes, K attentions per instance. T = L, except in a
hierarchical model, whose attention is over sentences: there T is their number in the longest document. `forward` is
decode(attend(encode(...))); interventions on attention call the stages.
"""

from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_outputs import ModelOutput
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .alignments import ALIGNMENTS
from .configuration_attention_classifier import AttentionClassifierConfig
from .decoders import DECODERS
from .encoders import ENCODERS, Encoder, SelfAttention, TransformerLayer, take
from .hierarchy import SentenceReader, item_mask, sentence_items
from .modeling_common import PaperPreTrainedModel, between_markers, contexts, present_mask, refuse
from .projections import project


class Read(NamedTuple):
    """The input of the encoder: of input positions, or of the sentences of a hierarchical model.

    inputs (B,T,E): embeddings, or sentence vectors (B,T,H). present (B,T) bool: the first text with its markers. mask (B,T)
    bool: the attendable places, without its markers. query (B,H) or None: the last state of the second text. word_attention
    (B,L), of a hierarchical model: the weight of each word in its sentence.
    """

    inputs: torch.Tensor
    present: torch.Tensor
    mask: torch.Tensor
    query: torch.Tensor | None
    word_attention: torch.Tensor | None


class Encoded(NamedTuple):
    """The output of the encoder: states (B,T,H), zero on padding and on a second text; mask and query as in `Read`."""

    hidden: torch.Tensor
    mask: torch.Tensor
    query: torch.Tensor | None


@dataclass
class AttentionClassifierOutput(ModelOutput):
    """Of a classifier loss () and logits (B,C); without a head last_hidden_state (B,T,H) and pooler_output (B,H), the
    context vector; of both attention (B,T), 0 outside the attendable places, and the rest.

    word_attention (B,L), of hierarchical models: the weight of each word in its sentence, 0 elsewhere. On request
    hidden_states: the input of the first layer, the states after each Transformer layer, last_hidden_state; and attentions:
    the self-attention (B,heads,T,T) of each Transformer layer. The encoders of words and of a second text are in neither.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    last_hidden_state: torch.FloatTensor | None = None
    pooler_output: torch.FloatTensor | None = None
    attention: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    word_attention: torch.FloatTensor | None = None
    query_state: torch.FloatTensor | None = None


class AttentionClassifierPreTrainedModel(PaperPreTrainedModel):
    """Loading and saving; checkpoints hold the code of this folder for three Auto classes."""

    config_class = AttentionClassifierConfig
    config: AttentionClassifierConfig
    supports_gradient_checkpointing = True
    _can_record_outputs = {
        # layer_name: not those of query_encoder and word_encoder
        "hidden_states": [OutputRecorder(layer, layer_name="encoder") for layer in (Encoder, TransformerLayer)],
        "attentions": [OutputRecorder(SelfAttention, index=1, layer_name="encoder")],
    }

    def save_pretrained(self, *args, **kwargs):
        # transformers adds the saved class and the configuration; each of these two loads what the other saved
        self.config.auto_map = {
            model._auto_class: f"modeling_attention_classifier.{model.__name__}"
            for model in (AttentionClassifierModel, AttentionClassifierForSequenceClassification)
        }
        super().save_pretrained(*args, **kwargs)


class AttentionClassifierModel(AttentionClassifierPreTrainedModel):
    """Encoder and attention without a decoder: texts to context vectors."""

    _auto_class = "AutoModel"  # as `register_for_auto_class` sets it: the code is saved too

    def __init__(self, config: AttentionClassifierConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.sentence_reader, sizes = None, config
        if config.hierarchy == "sentence":  # the encoder reads sentence vectors, which have the size of states
            self.sentence_reader, sizes = SentenceReader(config), copy(config)
            sizes.embedding_size = config.hidden_size
        self.encoder = ENCODERS[config.encoder](sizes)
        self.query_encoder = ENCODERS[config.encoder](config) if config.query == "text" else None
        self.alignment = ALIGNMENTS[config.alignment](config)
        self.gradient_checkpointing = False
        self.post_init()

    def text_masks(self, mask: torch.Tensor, token_type_ids: torch.Tensor | None = None):
        """Return boolean masks (B,T): the first text, its attendable tokens, the second text (None without a query)."""
        first, second = mask.bool(), None
        if self.config.query == "text":
            if token_type_ids is None:
                raise ValueError("query='text' needs token_type_ids: 0 on the text, 1 on the query that follows it")
            second = first & (token_type_ids == 1)
            first = first & ~second
            fault = "the text (token_type_ids 0) must come before the query (token_type_ids 1)"
            refuse(first[:, 1:] & ~first[:, :-1], fault)
        return first, between_markers(first) if self.config.markers else first, second

    def items(self, input_ids, attention_mask=None, token_type_ids=None) -> torch.Tensor:
        """Return (B,L): the place of attention of each input position: its own, in a hierarchical model its sentence; -1 for
        markers, marks between sentences, padding and query.
        """
        _, inner, _ = self.text_masks(present_mask(input_ids, attention_mask, self.config.pad_token_id), token_type_ids)
        if self.sentence_reader is not None:
            return sentence_items(inner & (input_ids != self.config.sentence_token_id))
        return torch.arange(inner.shape[1], device=inner.device).expand_as(inner).masked_fill(~inner, -1)

    def attendable(self, input_ids, attention_mask=None, token_type_ids=None) -> torch.Tensor:
        """Return the mask (B,T) of `encode`, without encoding."""
        items = self.items(input_ids, attention_mask, token_type_ids)
        return items >= 0 if self.sentence_reader is None else item_mask(items)

    def texts(self, input_ids=None, attention_mask=None, token_type_ids=None, inputs_embeds=None):
        """Return embeddings (B,L,E), masks (B,L) of the first text and its attendable tokens, query (B,H) or None."""
        present = present_mask(input_ids, attention_mask, self.config.pad_token_id, inputs_embeds)
        embedded = self.dropout(self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds)
        first, inner, second = self.text_masks(present, token_type_ids)
        if second is None:
            return embedded, first, inner, None
        positions = torch.arange(embedded.shape[1], device=embedded.device)
        following = (positions + first.sum(1, keepdim=True)).clamp(max=embedded.shape[1] - 1)
        _, query = self.query_encoder(take(embedded, following), positions < second.sum(1, keepdim=True))
        return embedded, first, inner, query

    def read(self, input_ids=None, attention_mask=None, token_type_ids=None, inputs_embeds=None, items=None) -> Read:
        """Compute the input of the encoder: embeddings or sentence vectors, masks and the query. See `encode`."""
        embedded, first, inner, query = self.texts(input_ids, attention_mask, token_type_ids, inputs_embeds)
        if self.sentence_reader is None:
            return Read(embedded, first, inner, query, None)
        if items is None:
            items = self.items(input_ids, attention_mask, token_type_ids)
        vectors, present, word_attention = self.sentence_reader(embedded, items, query)
        return Read(self.dropout(vectors), present, present, query, word_attention)

    def encode(self, input_ids=None, attention_mask=None, token_type_ids=None, inputs_embeds=None, items=None) -> Encoded:
        """Stage 1: input ids (B,L), or embeddings (B,L,E), to states, attendable mask and query. Without attention_mask, ids
        equal to pad_token_id are padding. items: for embeddings of a hierarchical model, the `items` of their ids.
        """
        read = self.read(input_ids, attention_mask, token_type_ids, inputs_embeds, items)
        return Encoded(self.encoder(read.inputs, read.present)[0], read.mask, read.query)

    def attend(self, hidden: torch.Tensor, mask: torch.Tensor, query: torch.Tensor | None = None) -> torch.Tensor:
        """Stage 2: states (B,T,H) and attendable mask (B,T) to attention (B,T); with K masks (B,K,T) to (B,K,T).

        At least float32; each row sums to 1, or is all 0 where the mask allows nothing.
        """
        scores = self.alignment(hidden, query)
        return project(scores.unsqueeze(1).expand_as(mask) if mask.dim() == 3 else scores, mask, self.config)

    @capture_outputs(tie_last_hidden_states=False)
    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, inputs_embeds=None, items=None, **kwargs):
        read = self.read(input_ids, attention_mask, token_type_ids, inputs_embeds, items)
        hidden = self.encoder(read.inputs, read.present)[0]
        attention = self.attend(hidden, read.mask, read.query)
        return AttentionClassifierOutput(
            last_hidden_state=hidden,
            pooler_output=contexts(hidden, attention),
            attention=attention,
            query_state=read.query,
            word_attention=read.word_attention,
        )


class AttentionClassifierForSequenceClassification(AttentionClassifierPreTrainedModel):
    """An attention classifier of one text, or of a text and a query.

    level: what attention is over: "token", or "sentence" in a hierarchical model. affine: whether logits are affine in
    attention at fixed states (`decoder_weights` gives W and b). contextual: whether an item's state depends on other items.
    removal_renormalises: whether attending without an item divides the other weights by their sum. ignores_weightless:
    whether the other weights stay the same without an item of weight 0.
    """

    ignores_weightless = True

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: AttentionClassifierConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = AttentionClassifierModel(config)
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = DECODERS[config.readout](config)
        self.level = "token" if config.hierarchy == "none" else config.hierarchy
        self.affine, self.contextual = self.decoder.affine, self.model.encoder.contextual
        self.removal_renormalises = config.projection in ("softmax", "uniform")
        self.post_init()

    encode = property(lambda self: self.model.encode)
    attend = property(lambda self: self.model.attend)
    items = property(lambda self: self.model.items)
    attendable = property(lambda self: self.model.attendable)

    def decode(self, hidden: torch.Tensor, attention: torch.Tensor, query: torch.Tensor | None = None):
        """Stage 3: states (B,T,H) and attention (B,T) to logits (B,C); with attentions (B,K,T) to (B,K,C)."""
        if attention.dim() == 3 and self.decoder.affine:  # states are projected to classes once, not K times
            weight, bias = self.decoder_weights(query)
            return contexts(hidden @ weight.t(), attention) + bias.reshape(-1, 1, self.num_labels)
        if attention.dim() == 3 and query is not None:
            query = query[:, None]
        return self.decoder(self.dropout(contexts(hidden, attention)), query)

    def decoder_weights(self, query: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return W (C,H) and b, (C,) or (B,C) with a query: the logits are W c + b for a context vector c. Raises ValueError
        for a decoder that is not affine in the context.
        """
        if not self.decoder.affine:
            raise ValueError(f"readout={self.config.readout!r} is not affine in the context: no W, b exist")
        layer = self.decoder.context
        return layer.weight, layer.bias if query is None else layer.bias + self.decoder.query(query)

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        inputs_embeds=None,
        labels=None,
        items=None,
        **kwargs,
    ):
        outputs = self.model(input_ids, attention_mask, token_type_ids, inputs_embeds, items, **kwargs)
        logits = self.decode(outputs.last_hidden_state, outputs.attention, outputs.query_state)
        loss = None if labels is None else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        names = ("attention", "hidden_states", "attentions", "word_attention")
        return AttentionClassifierOutput(loss=loss, logits=logits, **{name: outputs.get(name) for name in names})


__all__ = [
    "AttentionClassifierForSequenceClassification",
    "AttentionClassifierModel",
    "AttentionClassifierPreTrainedModel",
]
