"""Configuration of the attention classifier: its factors as fields."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .alignments import ALIGNMENTS
from .configuration_common import SIZE, EncoderConfig
from .decoders import DECODERS
from .encoders import ENCODERS
from .hierarchy import HIERARCHIES


@strict
class AttentionClassifierConfig(EncoderConfig):
    """Encoder, alignment, projection, query, decoder and sizes of an attention classifier.

    encoder: a key of ENCODERS. hidden_size H is the size of its states, both directions together; `embedding` needs
        hidden_size = embedding_size. kernel_sizes are of cnn, num_hidden_layers, num_attention_heads and intermediate_size
        of transformer.
    alignment: additive or dot; alignment_size None means H / 2.
    query: learned (one text) or text (the second text of a pair, token_type_ids 1, read by an encoder of its own).
    readout: the decoder, affine or tanh (Jain & Wallace's for pairs); `decoder` means something else to transformers.
    hierarchy: none, or sentence: an encoder reads the words of a sentence and attention sums them, a second encoder and
        attention of the same kinds read the sentences; `attention` is the second one. sentence_token_id (default 4), the
        mark of a tokenizer built for sentences, divides them.
    unk_token_id: the unknown token, which some measures put in a token's place.
    markers: each text starts and ends with a marker token, which is encoded and never attended.
    vectors: the word vectors at the start, random or pretrained; vectors_digest, tokenizer_digest: 12 hexadecimal digits of
        their file, and of the tokenizer of the texts; None: random ones, words of the training texts.
    """

    model_type = "attention_classifier"
    keys_to_ignore_at_inference = ["attention", "hidden_states", "attentions", "word_attention"]
    ranges = {**EncoderConfig.ranges, "num_hidden_layers": SIZE, "num_attention_heads": SIZE, "intermediate_size": SIZE}

    encoder: Literal[tuple(ENCODERS)] = "bilstm"
    alignment: Literal[tuple(ALIGNMENTS)] = "additive"
    query: Literal["learned", "text"] = "learned"
    readout: Literal[tuple(DECODERS)] = "affine"
    kernel_sizes: list[int] | tuple[int, ...] = (1, 3, 5, 7)
    num_hidden_layers: int = 2
    num_attention_heads: int = 1
    intermediate_size: int = 128
    hierarchy: Literal[HIERARCHIES] = "none"
    sentence_token_id: int | None = None
    markers: bool = True
    vectors: Literal["random", "pretrained"] = "random"
    vectors_digest: str | None = None
    tokenizer_digest: str | None = None
    unk_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        if self.hierarchy == "sentence" and self.sentence_token_id is None:
            self.sentence_token_id = 4
        super().__post_init__(**kwargs)

    def check_encoder(self, field: str, encoder: str):
        super().check_encoder(field, encoder)
        widths, heads = self.kernel_sizes, self.num_attention_heads
        if encoder == "cnn" and (not widths or any(width < 1 or width % 2 == 0 for width in widths)):
            raise ValueError(f"kernel_sizes={widths}: widths must be odd, so that the length is kept")
        parts = {"cnn": (len(widths), "number of kernel_sizes"), "transformer": (heads, "num_attention_heads")}
        number, meaning = parts.get(encoder, (1, ""))
        if self.hidden_size % number:
            raise ValueError(f"{field}={encoder!r}: hidden_size must be a multiple of {number}, {meaning}")


__all__ = ["AttentionClassifierConfig"]
