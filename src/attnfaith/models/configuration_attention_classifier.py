"""Configuration of the attention classifier: its factors as fields."""

from huggingface_hub.dataclasses import strict

from .alignments import ALIGNMENTS
from .configuration_common import EncoderConfig
from .decoders import DECODERS
from .encoders import ENCODERS
from .hierarchy import HIERARCHIES


QUERIES = ("learned", "text")
VECTORS = ("random", "pretrained")


@strict
class AttentionClassifierConfig(EncoderConfig):
    """Encoder, alignment, projection, query, decoder and sizes of an attention classifier.

    encoder: bilstm, bigru, lstm, orthogonal_lstm, transformer, cnn, average or embedding. hidden_size H is the size of its
        states, both directions together; `embedding` needs hidden_size = embedding_size.
    alignment: additive or dot; alignment_size None means H / 2.
    projection, score_scale: see `ProjectionConfig` and `EncoderConfig`.
    query: learned (one text) or text (the second text of a pair, token_type_ids 1, read by an encoder of its own).
    readout: the decoder, affine or tanh (Jain & Wallace's for pairs); `decoder` means something else to transformers.
    hierarchy: none, or sentence: an encoder reads the words of a sentence and attention sums them, a second encoder and
        attention of the same kinds read the sentences; `attention` is the second one. sentence_token_id (default 4), the
        mark of a tokenizer built for sentences, divides them.
    unk_token_id: the unknown token, which some measures put in a token's place.
    markers: each text starts and ends with a marker token, which is encoded and never attended.
    vectors: the word vectors at the start, random or pretrained; vectors_digest: 12 hexadecimal digits of their file. Both
        are part of a result: the scale of random vectors moves the agreement of gradient and leave-one-out.
    tokenizer_digest: 12 hexadecimal digits of the tokenizer of the texts; None: words of the training texts.
    """

    model_type = "attention_classifier"
    keys_to_ignore_at_inference = ["attention", "hidden_states", "attentions", "word_attention"]
    choices = {
        **EncoderConfig.choices,
        "encoder": tuple(ENCODERS),
        "alignment": tuple(ALIGNMENTS),
        "query": QUERIES,
        "readout": tuple(DECODERS),
        "hierarchy": HIERARCHIES,
        "vectors": VECTORS,
    }
    ranges = {
        **EncoderConfig.ranges,
        **dict.fromkeys(("num_hidden_layers", "num_attention_heads", "intermediate_size"), "[1, inf)"),
    }

    alignment: str = "additive"
    query: str = "learned"
    readout: str = "affine"
    kernel_sizes: list[int] | tuple[int, ...] = (1, 3, 5, 7)
    num_hidden_layers: int = 2
    num_attention_heads: int = 1
    intermediate_size: int = 128
    hierarchy: str = "none"
    sentence_token_id: int | None = None
    markers: bool = True
    vectors: str = "random"
    vectors_digest: str | None = None
    tokenizer_digest: str | None = None
    unk_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        if self.hierarchy == "sentence" and self.sentence_token_id is None:
            self.sentence_token_id = 4
        super().__post_init__(**kwargs)

    def validate_factors(self):
        if (self.vectors == "pretrained") != (self.vectors_digest is not None):
            raise ValueError(
                f"vectors={self.vectors!r} with vectors_digest={self.vectors_digest!r}: pretrained vectors need the digest "
                "of their file, random ones have none"
            )
        if self.hierarchy == "none" and self.sentence_token_id is not None:
            raise ValueError(
                f"sentence_token_id={self.sentence_token_id} with hierarchy='none', which has no sentences: set "
                "hierarchy='sentence' or leave it out"
            )

    def check_encoder(self, field: str, encoder: str):
        super().check_encoder(field, encoder)
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
        """Whether projecting again without a token divides the other weights by their sum.

        False at a fixed scale, which is computed from the remaining scores: even a token without weight moves the others.
        """
        return self.projection in ("softmax", "uniform") and self.score_scale is None


__all__ = ["AttentionClassifierConfig"]
