"""Common fields of the configurations of this folder, and one check of ranges."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .projections import PROJECTIONS


SIZE = "[1, inf)"


@strict
class ProjectionConfig(PreTrainedConfig):
    """A configuration with a projection: softmax, sparsemax, sparsegen (sparsegen_lambda < 1), entmax15, entmax
    (entmax_alpha >= 1) or uniform. ranges: intervals of numbers.
    """

    _auto_class = "AutoConfig"  # as `register_for_auto_class` sets it: the code is saved with the configuration
    ranges = {"sparsegen_lambda": "(-inf, 1)", "entmax_alpha": SIZE}

    projection: Literal[tuple(PROJECTIONS)] = "softmax"
    sparsegen_lambda: float | int = 0.0
    entmax_alpha: float | int = 1.5

    def validate_fields(self):
        for field, interval in self.ranges.items():
            value, (low, high) = getattr(self, field), map(float, interval[1:-1].split(","))
            closed = [end for end, bracket in ((low, interval[0]), (high, interval[-1])) if bracket in "[]"]
            if value is not None and not (low < value < high or value in closed):
                raise ValueError(f"{field}={value} is outside {interval}")

    @property
    def projection_parameter(self) -> float | None:
        """Lambda of sparsegen, alpha of entmax; None for a projection without a parameter."""
        return {"sparsegen": self.sparsegen_lambda, "entmax": self.entmax_alpha}.get(self.projection)


@strict
class EncoderConfig(ProjectionConfig):
    """A configuration of a model with word vectors: sizes, dropout and special tokens.

    alignment_size: of the additive alignment. embedding_std: standard deviation of random word vectors at the start.
    """

    ranges = {
        **ProjectionConfig.ranges,
        **dict.fromkeys(("vocab_size", "embedding_size", "hidden_size", "alignment_size"), SIZE),
        "dropout": "[0, 1)",
        "embedding_std": "[0, inf)",
    }

    vocab_size: int = 100
    embedding_size: int = 300
    hidden_size: int = 256
    encoder: str = "bilstm"
    alignment_size: int | None = None
    dropout: float | int = 0.0
    embedding_std: float | int = 0.25
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    tie_word_embeddings: bool = False

    def validate_encoder(self):
        self.check_encoder("encoder", self.encoder)

    def check_encoder(self, field: str, encoder: str):
        """Raise ValueError for an encoder, named by a field, that cannot have these sizes."""
        if encoder == "embedding" and self.hidden_size != self.embedding_size:
            raise ValueError(f"{field}='embedding': hidden_size must be embedding_size={self.embedding_size}")
        if encoder in ("bilstm", "bigru") and self.hidden_size % 2:
            raise ValueError(f"{field}={encoder!r} has two directions: hidden_size={self.hidden_size} must be even")
