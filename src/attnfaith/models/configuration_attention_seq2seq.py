"""Configuration of the recurrent sequence-to-sequence model with attention: its factors as fields."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .alignments import SEQUENCE_ALIGNMENTS
from .configuration_common import EncoderConfig
from .projections import PROJECTIONS


RECURRENCES = {"bahdanau": "additive", "luong": "dot"}
"""Recurrence of the decoder, and its default alignment."""


@strict
class AttentionSeq2SeqConfig(EncoderConfig):
    """Encoder, recurrence, alignment, projection and sizes of a recurrent translator.

    encoder: bigru (hidden_size H, both directions together), or embedding (the words themselves; embedding_size = H).
    recurrence: bahdanau: the decoder's state before a step is the query, and the context enters the step (Bahdanau et al.
        2015). luong: the state after the step is the query, and the context enters the output only (Luong et al. 2015,
        global attention without input feeding).
    alignment: additive or dot; None: additive for bahdanau, dot for luong. alignment_size: of additive, None: H.
    projection: as in `ProjectionConfig`, or none: no attention, the source enters by the decoder's first state alone.
    """

    model_type = "attention_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values", "cross_attentions"]

    embedding_size: int = 256
    encoder: Literal["bigru", "embedding"] = "bigru"
    recurrence: Literal[tuple(RECURRENCES)] = "bahdanau"
    alignment: Literal[tuple(SEQUENCE_ALIGNMENTS)] | None = None
    projection: Literal[(*PROJECTIONS, "none")] = "softmax"
    embedding_std: float | int = 0.1
    is_encoder_decoder: bool = True
    use_cache: bool = True
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        if self.alignment is None:
            self.alignment = RECURRENCES.get(self.recurrence)
        super().__post_init__(**kwargs)

    @property
    def attends(self) -> bool:
        """Whether there is any attention."""
        return self.projection != "none"


__all__ = ["AttentionSeq2SeqConfig"]
