"""A recurrent sequence-to-sequence model with attention, after Bahdanau et al. (2015) and Luong et al. (2015).

Shapes: B instances, T source tokens, G target tokens, E embedding, H hidden, V vocabulary. `Decoder.attend` computes all
weights; measures that read or edit them replace it.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPooling, ModelOutput, Seq2SeqLMOutput
from transformers.utils import can_return_tuple

from .alignments import SEQUENCE_ALIGNMENTS
from .configuration_attention_seq2seq import AttentionSeq2SeqConfig
from .encoders import BiGRU, Embedding
from .modeling_common import PaperPreTrainedModel, contexts, present_mask, refuse
from .projections import project


ENCODERS = {"bigru": BiGRU, "embedding": Embedding}
UNCOUNTED = -100  # a label that is no target token


class Decoded(NamedTuple):
    """The output of a decoder over G steps: states (B,G,H) after each step; without attention neither contexts (B,G,H),
    weighted sums of source states, nor attention (B,G,T), the weights.
    """

    states: torch.Tensor
    contexts: torch.Tensor | None = None
    attention: torch.Tensor | None = None


class SourceEncoder(nn.Module):
    """Source ids to states: last_hidden_state (B,T,H), 0 on padding; pooler_output (B,H), the last state; hidden_states
    (embeddings, states). It holds the word vectors, which the decoder reads too.
    """

    main_input_name = "input_ids"

    def __init__(self, config: AttentionSeq2SeqConfig):
        super().__init__()
        self.padding = config.pad_token_id
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.network = ENCODERS[config.encoder](config)

    def present(self, input_ids=None, attention_mask=None, hidden=None) -> torch.Tensor:
        """Return the mask (B,T). Raises ValueError for padding that is not on the right, and an empty source."""
        mask = present_mask(input_ids, attention_mask, self.padding, hidden)
        refuse(~mask.any(1), "the source of {row} is empty: give at least one token")
        return mask

    def forward(self, input_ids, attention_mask=None, output_hidden_states=None, **kwargs):
        mask, embedded = self.present(input_ids, attention_mask), self.dropout(self.embeddings(input_ids))
        states, last = self.network(embedded, mask)
        layers = (embedded, states) if output_hidden_states else None
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=last, hidden_states=layers)


class Decoder(nn.Module):
    """What the two recurrences share. A call maps target embeddings (B,G,E), source states (B,T,H), their mask (B,T) and the
    first state (B,H) to `Decoded`.
    """

    def __init__(self, config: AttentionSeq2SeqConfig):
        super().__init__()
        self.config = config
        self.first = nn.Linear(config.hidden_size, config.hidden_size)
        aligns = config.projection not in ("none", "uniform")
        self.alignment = SEQUENCE_ALIGNMENTS[config.alignment](config) if aligns else None

    def start(self, last: torch.Tensor) -> torch.Tensor:
        """Return the first state (B,H) from the encoder's last."""
        return self.first(last).tanh()

    def keys(self, hidden):
        """Return what the alignment reads of source states, or None."""
        return None if self.alignment is None else self.alignment.key(hidden)

    def attend(self, keys, query, hidden, mask):
        """Return weights of source tokens: (B,T) for a query (B,H), (B,G,T) for queries (B,G,H)."""
        if query.dim() == 3:
            mask = mask.unsqueeze(1)
        scores = query.new_zeros(*query.shape[:-1], hidden.shape[1]) if keys is None else self.alignment(keys, query)
        return project(scores, mask, self.config)


class BahdanauDecoder(Decoder):
    """The state before a step is the query; the context enters the step."""

    def __init__(self, config):
        super().__init__(config)
        self.cell = nn.GRUCell(config.embedding_size + config.hidden_size * config.attends, config.hidden_size)

    def forward(self, embedded, hidden, mask, state) -> Decoded:
        keys, attends, steps = self.keys(hidden), self.config.attends, []
        for word in embedded.unbind(1):
            row = context = None
            if attends:
                row = self.attend(keys, state, hidden, mask)
                context = contexts(hidden, row)
                word = torch.cat([word, context], -1)
            state = self.cell(word, state)
            steps.append((state, context, row))
        parts = list(zip(*steps, strict=True))
        return Decoded(*(torch.stack(part, 1) for part in (parts if attends else parts[:1])))


class LuongDecoder(Decoder):
    """The state after a step is the query; the context enters the output. All steps at once."""

    def __init__(self, config):
        super().__init__(config)
        self.layer = nn.GRU(config.embedding_size, config.hidden_size, batch_first=True)

    def forward(self, embedded, hidden, mask, state) -> Decoded:
        states, _ = self.layer(embedded, state.unsqueeze(0))
        if not self.config.attends:
            return Decoded(states)
        weights = self.attend(self.keys(hidden), states, hidden, mask)
        return Decoded(states, contexts(hidden, weights), weights)


DECODERS = {"bahdanau": BahdanauDecoder, "luong": LuongDecoder}


class ReadOut(nn.Module):
    """tanh(W_s s + W_c c + W_y y + b), the input of the output layer; y is the word that entered the step.

    `context` is a layer of its own: W_c h_j times its weight is the contribution of source token j.
    """

    def __init__(self, config):
        super().__init__()
        self.state = nn.Linear(config.hidden_size, config.hidden_size)
        self.word = nn.Linear(config.embedding_size, config.hidden_size, bias=False)
        self.context = nn.Linear(config.hidden_size, config.hidden_size, bias=False) if config.attends else None

    def forward(self, decoded: Decoded, embedded):
        """(B,G,H)."""
        read = self.state(decoded.states) + self.word(embedded)
        if self.context is not None:
            read = read + self.context(decoded.contexts)
        return read.tanh()


class AttentionSeq2SeqForConditionalGeneration(PaperPreTrainedModel, GenerationMixin):
    """Encoder, decoder with attention, and a word for each step. Sources and targets are padded on the right.

    cross_attentions, with output_attentions, is a tuple of one layer (B,1,G,T), float32; None for projection='none'. In
    generation `past_key_values` is the decoder's state (B,H).
    """

    config_class = AttentionSeq2SeqConfig
    config: AttentionSeq2SeqConfig
    _auto_class = "AutoModelForSeq2SeqLM"  # as `register_for_auto_class` sets it: the code is saved too

    def __init__(self, config: AttentionSeq2SeqConfig):
        super().__init__(config)
        self.encoder = SourceEncoder(config)
        self.decoder = DECODERS[config.recurrence](config)
        self.read_out = ReadOut(config)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.encoder.embeddings

    def set_input_embeddings(self, value):
        self.encoder.embeddings = value

    def get_output_embeddings(self):
        return self.output

    def set_output_embeddings(self, value):
        self.output = value

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # a state, not keys and values

    @staticmethod
    def _reorder_cache(past_key_values: torch.Tensor, beam_idx: torch.Tensor) -> torch.Tensor:
        return past_key_values.index_select(0, beam_idx)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return labels (B,G) shifted by one place behind the start token, with padding in place of -100."""
        shifted = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        return shifted.masked_fill(shifted == UNCOUNTED, self.config.pad_token_id or 0)

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        encoder_outputs=None,
        past_key_values=None,
        labels=None,
        use_cache=None,
        output_attentions=None,
        output_hidden_states=None,
        logits_to_keep=0,
        **kwargs,
    ):
        """logits_to_keep: number of last steps with logits, 0: all. loss: the mean of -log p over labels (B,G) except -100.
        Raises ValueError for padding of sources that is not on the right, and an empty source.
        """
        attentions = self.config.output_attentions if output_attentions is None else output_attentions
        layers = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, output_hidden_states=layers)
        elif not isinstance(encoder_outputs, ModelOutput):
            encoder_outputs = BaseModelOutputWithPooling(*encoder_outputs[:2])
        hidden = encoder_outputs.last_hidden_state
        mask = self.encoder.present(input_ids, attention_mask, hidden if input_ids is None else None)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("give decoder_input_ids or labels")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        embedded = self.dropout(self.encoder.embeddings(decoder_input_ids))
        start = self.decoder.start(encoder_outputs.pooler_output) if past_key_values is None else past_key_values
        decoded = self.decoder(embedded, hidden, mask, start)
        read = self.read_out(decoded, embedded)
        logits = self.output(self.dropout(read[:, -logits_to_keep:] if logits_to_keep else read))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=UNCOUNTED)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=decoded.states[:, -1] if use_cache else None,
            decoder_hidden_states=(embedded, decoded.states) if layers else None,
            cross_attentions=(decoded.attention.unsqueeze(1),) if attentions and decoded.attention is not None else None,
            encoder_last_hidden_state=hidden,
            encoder_hidden_states=encoder_outputs.hidden_states,
        )


__all__ = ["AttentionSeq2SeqForConditionalGeneration"]
