"""Which cell a row belongs to: one trained model, on one set of texts, in typed fields; never packed strings."""

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property

from attnfaith.record.column import Column


HEADING = (
    "dataset",
    "texts",
    "training_texts",
    "split",
    "encoder",
    "alignment",
    "projection",
    "vectors",
    "objective",
    "seed",
)
"""Keys of `Identity.heading`: the columns that a table's rows begin with."""
DTYPES = {str: "category", float: "float64", bool: "bool", int: "int64"}


@dataclass(frozen=True)
class Identity:
    """One cell of a record. Every field is a column; None where a field does not apply (a null in the file).

    model: the kind of model, "attention_classifier". encoder, alignment, projection, readout: its factors; hierarchy "none"
        or "sentence". level: what attention is over, "token", "sentence", or "word" (of a hierarchical model, all words of a
        document). score_scale: the standard deviation that scores are held at. projection_parameter: lambda of sparsegen,
        alpha of entmax. vectors: "random" with the standard deviation vectors_scale, or "pretrained" with vectors_digest, 12
        hexadecimal digits of a SHA-256 over the file.
    objective: "classification", "untrained", "adversarial" or "guided". attention_rate: learning rate of the alignment over
        that of the rest. random_erasure: largest share of a text's words erased at a training step. adversary_weight,
        adversary_divergence, adversary_frozen: of an adversary. base_<field>: the same fields of the model that an adversary
        or a guided model was trained against. attention_kind: "own", or "given" to a guided model.
    dataset: its name. texts, training_texts: fingerprints of the texts measured and of those trained on. split, seed.
    """

    dataset: str
    texts: str
    split: str
    seed: int
    training_texts: str | None = None
    model: str = "attention_classifier"
    encoder: str = "bilstm"
    hierarchy: str = "none"
    level: str = "token"
    alignment: str = "additive"
    score_scale: float | None = None
    projection: str = "softmax"
    projection_parameter: float | None = None
    readout: str = "affine"
    vectors: str = "random"
    vectors_scale: float | None = None
    vectors_digest: str | None = None
    objective: str = "classification"
    attention_rate: float = 1.0
    random_erasure: float = 0.0
    adversary_weight: float | None = None
    adversary_divergence: str | None = None
    adversary_frozen: bool | None = None
    base_encoder: str | None = None
    base_hierarchy: str | None = None
    base_alignment: str | None = None
    base_score_scale: float | None = None
    base_projection: str | None = None
    base_projection_parameter: float | None = None
    base_objective: str | None = None
    base_adversary_weight: float | None = None
    base_adversary_divergence: str | None = None
    base_adversary_frozen: bool | None = None
    attention_kind: str = "own"

    @cached_property
    def heading(self) -> dict[str, object]:
        """What a table's rows begin with, by HEADING: labels for people. Nothing reads them back."""
        return {
            "dataset": self.dataset,
            "texts": self.texts,
            "training_texts": self.training_texts or "unknown",
            "split": self.split,
            "encoder": encoder_label(self.encoder, self.hierarchy, self.level),
            "alignment": alignment_label(self.alignment, self.score_scale),
            "projection": projection_label(self.projection, self.projection_parameter),
            "vectors": self.vectors_label,
            "objective": self.objective_label,
            "seed": self.seed,
        }

    @property
    def vectors_label(self) -> str:
        """Such as "random(0.25)"."""
        if self.vectors == "random":
            return "random" if self.vectors_scale is None else f"random({self.vectors_scale:g})"
        return f"{self.vectors}({self.vectors_digest})"

    @property
    def objective_label(self) -> str:
        """Such as "classification", "classification(attention rate x 10)", "adversarial(kl, 0.002)", "guided(...)"."""
        parts = []
        if self.objective == "adversarial":
            parts = _adversary_parts(self.adversary_weight, self.adversary_divergence, self.adversary_frozen)
        elif self.objective == "guided":
            parts = [self.base_label]
        parts += [] if self.attention_rate == 1 else [f"attention rate x {self.attention_rate:g}"]
        parts += [] if self.random_erasure == 0 else [f"tokens erased {self.random_erasure:g}"]
        return f"{self.objective}({', '.join(parts)})" if parts else self.objective

    @property
    def base_label(self) -> str:
        """The model that this one was trained against: its factors, or its objective where that was an adversary's."""
        if self.base_objective == "adversarial":
            parts = _adversary_parts(self.base_adversary_weight, self.base_adversary_divergence, self.base_adversary_frozen)
            return f"adversarial({', '.join(parts)})"
        return "+".join(
            (
                encoder_label(self.base_encoder, self.base_hierarchy),
                alignment_label(self.base_alignment, self.base_score_scale),
                projection_label(self.base_projection, self.base_projection_parameter),
            )
        )


def _adversary_parts(weight: float, divergence: str, frozen: bool) -> list[str]:
    return [divergence, f"{weight:g}", *(["frozen"] if frozen else [])]


def encoder_label(encoder: str, hierarchy: str, level: str = "sentence") -> str:
    """Such as "bigru", "bigru(sentence)", "bigru(sentence, words)"."""
    if hierarchy == "none":
        return encoder
    return f"{encoder}({hierarchy}, words)" if level == "word" else f"{encoder}({hierarchy})"


def alignment_label(alignment: str, score_scale: float | None) -> str:
    """Such as "additive", "additive(scale 1)"."""
    return alignment if score_scale is None else f"{alignment}(scale {score_scale:g})"


def projection_label(projection: str, parameter: float | None) -> str:
    """Such as "softmax", "sparsegen(0.5)"."""
    return projection if parameter is None else f"{projection}({parameter:g})"


def _column(kind) -> Column:
    """The column of a field by its type: optional ones may be null."""
    parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    (plain,) = (part for part in parts if part is not type(None))
    return Column(dtype=DTYPES[plain], nullable=len(parts) > 1)


IDENTITY_COLUMNS = {field.name: _column(field.type) for field in fields(Identity)}


def as_columns(identity: Identity, count: int) -> dict[str, list]:
    """The identity as record columns of `count` equal rows."""
    return {name: [value] * count for name, value in asdict(identity).items()}


def from_row(row: Mapping[str, object]) -> Identity:
    """The identity that a row of a record holds, whatever else is in it."""
    return Identity(**{name: row[name] for name in IDENTITY_COLUMNS})
