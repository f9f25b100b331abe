"""Configuration of the attention classifier: its factors as fields."""

import math

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .alignments import ALIGNMENTS
from .decoders import DECODERS
from .encoders import ENCODERS
from .hierarchy import HIERARCHIES
from .projections import check_projection, projection_parameter


QUERIES = ("learned", "text")
VECTORS = ("random", "pretrained")
SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "alignment_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)


def _known(field: str, value: str, names) -> None:
    if value not in names:
        raise ValueError(f"{field}={value!r} is not known; choose one of {', '.join(names)}")


@strict
class AttentionClassifierConfig(PreTrainedConfig):
    """What an attention classifier is made of: encoder, alignment, projection, query, decoder and sizes.

    encoder: bilstm, bigru, lstm, orthogonal_lstm, transformer, cnn, average or embedding. hidden_size H is the size of its
        states, both directions of BiLSTM and BiGRU together; `embedding` needs hidden_size = embedding_size.
    alignment: additive or dot; alignment_size None means H / 2.
    projection: softmax, sparsemax, sparsegen (sparsegen_lambda < 1), entmax15, entmax (entmax_alpha >= 1) or uniform.
    score_scale: standard deviation that the scores of each text are held at before the projection, so that it alone decides
        how sparse attention is; None leaves their scale to the model. See `projections.held_at`.
    query: learned (one text) or text (the second text of a pair, token_type_ids 1, read by an encoder of its own).
    readout: the decoder, affine or tanh (Jain & Wallace's for pairs); `decoder` means something else to transformers.
    hierarchy: none, or sentence: words of a sentence are read by an encoder and summed by attention, sentences by a second
        encoder and attention of the same kinds; attention is then that over sentences. A document's sentences are divided by
        sentence_token_id (4 where not given), the mark that a tokenizer built for sentences sets.
    unk_token_id: what stands for an unknown token, where a measure puts one in a token's place.
    markers: each text starts and ends with a marker token, which is encoded and never attended.
    vectors: the word vectors at the start, random or pretrained; embedding_std: standard deviation of random ones;
        vectors_digest: 12 hexadecimal digits of the file of pretrained ones. All are part of a result: the scale of random
        vectors moves the agreement of gradient and leave-one-out.
    tokenizer_digest: 12 hexadecimal digits of the tokenizer that divided the texts; None: the words of the training texts.
    """

    _auto_class = "AutoConfig"  # what register_for_auto_class sets: save the code with the configuration
    model_type = "attention_classifier"
    known_encoders = tuple(ENCODERS)
    keys_to_ignore_at_inference = ["attention", "hidden_states", "attentions", "word_attention"]

    vocab_size: int = 100
    embedding_size: int = 300
    hidden_size: int = 256
    encoder: str = "bilstm"
    alignment: str = "additive"
    projection: str = "softmax"
    query: str = "learned"
    readout: str = "affine"
    alignment_size: int | None = None
    sparsegen_lambda: float | int = 0.0
    entmax_alpha: float | int = 1.5
    score_scale: float | int | None = None
    kernel_sizes: list[int] | tuple[int, ...] = (1, 3, 5, 7)
    num_hidden_layers: int = 2
    num_attention_heads: int = 1
    intermediate_size: int = 128
    dropout: float | int = 0.0
    hierarchy: str = "none"
    sentence_token_id: int | None = None
    markers: bool = True
    vectors: str = "random"
    vectors_digest: str | None = None
    tokenizer_digest: str | None = None
    embedding_std: float | int = 0.25
    pad_token_id: int | None = 0
    unk_token_id: int | None = 1
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        if self.hierarchy == "sentence" and self.sentence_token_id is None:
            self.sentence_token_id = 4
        super().__post_init__(**kwargs)

    def validate_factors(self):
        _known("encoder", self.encoder, self.known_encoders)
        _known("alignment", self.alignment, ALIGNMENTS)
        _known("query", self.query, QUERIES)
        _known("readout", self.readout, DECODERS)
        _known("hierarchy", self.hierarchy, HIERARCHIES)
        _known("vectors", self.vectors, VECTORS)
        if (self.vectors == "pretrained") != (self.vectors_digest is not None):
            raise ValueError(
                f"vectors={self.vectors!r} with vectors_digest={self.vectors_digest!r}: pretrained vectors are known by the "
                "digest of their file, random ones have none"
            )
        if self.hierarchy == "none" and self.sentence_token_id is not None:
            raise ValueError(
                f"sentence_token_id={self.sentence_token_id} with hierarchy='none', which knows no sentences: set "
                "hierarchy='sentence' or leave it out"
            )

    @property
    def projection_parameter(self) -> float | None:
        """Lambda of sparsegen, alpha of entmax; None for a projection without a parameter."""
        return projection_parameter(self)

    def validate_parameters(self):
        check_projection(self)
        if self.score_scale is not None and not 0 < self.score_scale < math.inf:
            raise ValueError(f"score_scale={self.score_scale}: scores are held at a finite deviation above 0, or none")
        if self.score_scale is not None and self.projection == "uniform":
            raise ValueError(f"score_scale={self.score_scale}: uniform attention reads no scores; leave it out")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} is outside [0, 1)")
        if not 0 <= self.embedding_std < math.inf:
            raise ValueError(f"embedding_std={self.embedding_std}: a standard deviation is a number from 0 on")

    def validate_sizes(self):
        for field in SIZES:
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field}={value} must be at least 1")
        self._check_encoder("encoder", self.encoder)

    def _check_encoder(self, field: str, encoder: str):
        """Raise ValueError where an encoder, named by a field, cannot have these sizes."""
        if encoder == "embedding" and self.hidden_size != self.embedding_size:
            raise ValueError(
                f"{field}='embedding' passes embeddings through: hidden_size={self.hidden_size} must be "
                f"embedding_size={self.embedding_size}"
            )
        if encoder in ("bilstm", "bigru") and self.hidden_size % 2:
            raise ValueError(f"{field}={encoder!r} has two directions: hidden_size={self.hidden_size} must be even")
        if encoder == "cnn":
            if not self.kernel_sizes or any(width < 1 or width % 2 == 0 for width in self.kernel_sizes):
                raise ValueError(f"kernel_sizes={self.kernel_sizes}: widths must be odd, so that the length is kept")
            if self.hidden_size % len(self.kernel_sizes):
                raise ValueError(
                    f"{field}='cnn': hidden_size={self.hidden_size} must be a multiple of the "
                    f"{len(self.kernel_sizes)} widths in kernel_sizes"
                )
        if encoder == "transformer" and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"{field}='transformer': hidden_size={self.hidden_size} must be a multiple of "
                f"num_attention_heads={self.num_attention_heads}"
            )

    @property
    def removal_renormalises(self) -> bool:
        """Whether projecting again without a token is dividing the other weights by their sum.

        Never at a fixed scale, which is that of the remaining scores: there even a token without weight moves the others.
        """
        return self.projection in ("softmax", "uniform") and self.score_scale is None


__all__ = ["AttentionClassifierConfig"]
