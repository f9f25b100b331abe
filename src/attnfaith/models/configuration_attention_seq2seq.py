"""Configuration of the recurrent sequence-to-sequence model with attention: its factors as fields."""

import math

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .projections import PROJECTIONS, check_projection, projection_parameter


SOURCE_ENCODERS = ("bigru", "gru", "embedding")
RECURRENCES = {"bahdanau": "additive", "luong": "dot"}
"""How the decoder attends, and its alignment where none is named."""
SEQUENCE_ALIGNMENTS = ("additive", "dot", "general")
NO_ATTENTION = "none"


def _known(field: str, value: str, names) -> None:
    if value not in names:
        raise ValueError(f"{field}={value!r} is not known; choose one of {', '.join(names)}")


@strict
class AttentionSeq2SeqConfig(PreTrainedConfig):
    """What a recurrent translator is made of: encoder, recurrence, alignment, projection and sizes.

    encoder: bigru (hidden_size H, both directions together), gru, or embedding (the words themselves; embedding_size = H).
    recurrence: bahdanau: the decoder's state before a step asks, and what it attends to enters the step (Bahdanau et al.
        2015). luong: the state after the step asks, and what it attends to enters the output only (Luong et al. 2015, global
        attention without input feeding).
    alignment: additive, dot or general (q W h); None: additive of bahdanau, dot of luong. alignment_size of additive: None
        means H.
    projection: softmax, sparsemax, sparsegen (sparsegen_lambda < 1), entmax15, entmax (entmax_alpha >= 1), uniform, or none:
        the decoder knows the source by its first state alone, and there is no attention.
    score_scale: standard deviation that the scores of each row are held at; None leaves them. See `projections.held_at`.
    embedding_std: standard deviation of the word vectors at the start, which source and target share.
    """

    _auto_class = "AutoConfig"  # what register_for_auto_class sets: save the code with the configuration
    model_type = "attention_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values", "cross_attentions"]

    vocab_size: int = 100
    embedding_size: int = 256
    hidden_size: int = 256
    encoder: str = "bigru"
    recurrence: str = "bahdanau"
    alignment: str | None = None
    projection: str = "softmax"
    alignment_size: int | None = None
    sparsegen_lambda: float | int = 0.0
    entmax_alpha: float | int = 1.5
    score_scale: float | int | None = None
    dropout: float | int = 0.0
    embedding_std: float | int = 0.1
    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    decoder_start_token_id: int | None = 2
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        if self.alignment is None:
            self.alignment = RECURRENCES.get(self.recurrence)
        super().__post_init__(**kwargs)

    def validate_factors(self):
        _known("encoder", self.encoder, SOURCE_ENCODERS)
        _known("recurrence", self.recurrence, RECURRENCES)
        _known("alignment", self.alignment, SEQUENCE_ALIGNMENTS)

    def validate_parameters(self):
        check_projection(self, (*PROJECTIONS, NO_ATTENTION))
        if self.score_scale is not None and not 0 < self.score_scale < math.inf:
            raise ValueError(f"score_scale={self.score_scale}: scores are held at a finite deviation above 0, or none")
        if self.score_scale is not None and not self.aligns:
            raise ValueError(f"score_scale={self.score_scale} with projection={self.projection!r}, which reads no scores")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} is outside [0, 1)")
        if not 0 <= self.embedding_std < math.inf:
            raise ValueError(f"embedding_std={self.embedding_std}: a standard deviation is a number from 0 on")

    def validate_sizes(self):
        for field in ("vocab_size", "embedding_size", "hidden_size", "alignment_size"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field}={value} must be at least 1")
        if self.encoder == "bigru" and self.hidden_size % 2:
            raise ValueError(f"encoder='bigru' has two directions: hidden_size={self.hidden_size} must be even")
        if self.encoder == "embedding" and self.hidden_size != self.embedding_size:
            raise ValueError(
                f"encoder='embedding' passes embeddings through: hidden_size={self.hidden_size} must be "
                f"embedding_size={self.embedding_size}"
            )

    @property
    def attends(self) -> bool:
        """Whether there is any attention."""
        return self.projection != NO_ATTENTION

    @property
    def aligns(self) -> bool:
        """Whether attention depends on scores: a uniform one does not."""
        return self.projection not in (NO_ATTENTION, "uniform")

    @property
    def projection_parameter(self) -> float | None:
        """Lambda of sparsegen, alpha of entmax; None for a projection without a parameter."""
        return projection_parameter(self)


__all__ = ["AttentionSeq2SeqConfig"]
