"""Configuration of the recurrent sequence-to-sequence model with attention: its factors as fields."""

from huggingface_hub.dataclasses import strict

from .alignments import SEQUENCE_ALIGNMENTS
from .configuration_common import EncoderConfig
from .projections import PROJECTIONS


SOURCE_ENCODERS = ("bigru", "gru", "embedding")
RECURRENCES = {"bahdanau": "additive", "luong": "dot"}
"""How the decoder attends, and its alignment where none is named."""
NO_ATTENTION = "none"


@strict
class AttentionSeq2SeqConfig(EncoderConfig):
    """What a recurrent translator is made of: encoder, recurrence, alignment, projection and sizes.

    encoder: bigru (hidden_size H, both directions together), gru, or embedding (the words themselves; embedding_size = H).
    recurrence: bahdanau: the decoder's state before a step asks, and what it attends to enters the step (Bahdanau et al.
        2015). luong: the state after the step asks, and what it attends to enters the output only (Luong et al. 2015, global
        attention without input feeding).
    alignment: additive, dot or general (q W h); None: additive of bahdanau, dot of luong. alignment_size of additive: None
        means H.
    projection: as `ProjectionConfig` has it, or none: the decoder knows the source by its first state alone, and there is no
        attention.
    """

    model_type = "attention_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values", "cross_attentions"]
    choices = {
        "encoder": SOURCE_ENCODERS,
        "recurrence": tuple(RECURRENCES),
        "alignment": tuple(SEQUENCE_ALIGNMENTS),
        "projection": (*PROJECTIONS, NO_ATTENTION),
    }

    embedding_size: int = 256
    encoder: str = "bigru"
    recurrence: str = "bahdanau"
    alignment: str | None = None
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
        return self.projection != NO_ATTENTION

    @property
    def aligns(self) -> bool:
        """Whether attention depends on scores: a uniform one does not."""
        return self.projection not in (NO_ATTENTION, "uniform")


__all__ = ["AttentionSeq2SeqConfig"]
