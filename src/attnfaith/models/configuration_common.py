"""Common fields of the configurations of this folder, and one check of choices and ranges."""

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .projections import PROJECTIONS


@strict
class ProjectionConfig(PreTrainedConfig):
    """A configuration with a projection: softmax, sparsemax, sparsegen (sparsegen_lambda < 1), entmax15, entmax
    (entmax_alpha >= 1) or uniform.

    A subclass lists the allowed values of its fields in `choices`, and intervals of numbers in `ranges`.
    """

    _auto_class = "AutoConfig"  # as `register_for_auto_class` sets it: the code is saved with the configuration
    choices = {"projection": tuple(PROJECTIONS)}
    ranges = {"sparsegen_lambda": "(-inf, 1)", "entmax_alpha": "[1, inf)"}

    projection: str = "softmax"
    sparsegen_lambda: float | int = 0.0
    entmax_alpha: float | int = 1.5

    def validate_fields(self):
        for field, values in self.choices.items():
            if getattr(self, field) not in values:
                raise ValueError(f"{field}={getattr(self, field)!r} is not known; choose one of {', '.join(values)}")
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

    alignment_size: of the additive alignment. score_scale: standard deviation of the scores of a row before the projection,
    so that the projection alone decides how sparse attention is (`projections.rescale`); None: unchanged. embedding_std:
    standard deviation of random word vectors at the start.
    """

    ranges = {
        **ProjectionConfig.ranges,
        **dict.fromkeys(("vocab_size", "embedding_size", "hidden_size", "alignment_size"), "[1, inf)"),
        "score_scale": "(0, inf)",
        "dropout": "[0, 1)",
        "embedding_std": "[0, inf)",
    }

    vocab_size: int = 100
    embedding_size: int = 300
    hidden_size: int = 256
    encoder: str = "bilstm"
    alignment_size: int | None = None
    score_scale: float | int | None = None
    dropout: float | int = 0.0
    embedding_std: float | int = 0.25
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    tie_word_embeddings: bool = False

    def validate_encoder(self):
        if self.score_scale is not None and self.projection in ("uniform", "none"):
            raise ValueError(f"score_scale={self.score_scale} with projection={self.projection!r}, which reads no scores")
        self.check_encoder("encoder", self.encoder)

    def check_encoder(self, field: str, encoder: str):
        """Raise ValueError for an encoder, named by a field, that cannot have these sizes."""
        if encoder == "embedding" and self.hidden_size != self.embedding_size:
            raise ValueError(
                f"{field}='embedding' passes embeddings through: hidden_size={self.hidden_size} must be "
                f"embedding_size={self.embedding_size}"
            )
        if encoder in ("bilstm", "bigru") and self.hidden_size % 2:
            raise ValueError(f"{field}={encoder!r} has two directions: hidden_size={self.hidden_size} must be even")
