"""The number that a measure of importance explains, read from the logits of an instance, and the columns of its scores.

Shapes: B instances, C classes; logits may have dimensions between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from attnfaith.measurement.options import Output, Target
from attnfaith.measurement.registry import Measure
from attnfaith.record import Column
from attnfaith.subjects import Batch, Subject, whole_logits
from attnfaith.subjects.protocol import log_odds, logits_of


STATES = frozenset({"states"})
"""What columns of encoder states need."""
TARGET_DOC = "f the logit of the predicted class, or what the options target and output name"
ROWS_DOC = "the rows of attention that the logits depend on"


def score(doc: str, **fields) -> Column:
    """The column of a score that is never negative."""
    return Column(("T",), **{"range": (0.0, None), **fields}, doc=doc)


def signed_score(doc: str, **fields) -> Column:
    """The column of a signed score: a token with a positive score is evidence for what is explained."""
    fields = {"undefined": "where f or its slope is not finite", **fields}
    return Column(("T",), **fields, signed=True, doc=f"{doc}; positive is evidence for f")


def share(doc: str) -> Column:
    """The column of what the rows that the logits depend on take of a token, over the sum of all input positions."""
    doc = f"what the mean of {ROWS_DOC} takes of a token, over the sum of all input positions, markers too: {doc}"
    undefined = "where the logits depend on no row of the last layer"
    return Column(("T",), range=(0.0, 1.0), undefined=undefined, doc=doc)


def token_counts(subject: Subject, batch: Batch) -> list[int]:
    """The number T of attendable tokens of each instance."""
    return subject.attendable(batch).sum(1).tolist()


@dataclass(frozen=True, eq=False)
class TargetOutput:
    """The number that is explained of each instance, as a function of logits.

    of (B,): the class. against (B,): the class whose logit is taken off it, or None. output: "logit", "probability" or
    "log_odds".
    """

    of: torch.Tensor
    against: torch.Tensor | None
    output: str

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor | slice = slice(None)) -> torch.Tensor:
        """Logits (B,...,C), those of the instances `rows`, to values (B,...) in float64, whose gradients are exact where a
        probability rounds to 0 or 1.

        "logit": of the class, minus that of the class it is held against; any number. "log_odds": log(p / (1 - p)), with
        two classes the difference of their logits. "probability": 0..1.
        """
        if self.output == "logit":
            logits = logits.double()
            own = logits_of(logits, self.of[rows])
            return own if self.against is None else own - logits_of(logits, self.against[rows])
        odds = log_odds(logits, self.of[rows])
        return torch.nn.functional.logsigmoid(odds).exp() if self.output == "probability" else odds


def _classes(target, label, count: int, name: str) -> tuple[int, ...]:
    """The class that a target names for an instance, or the two of a contrast; count: of the model's classes."""
    classes = (target["of"], target["against"]) if isinstance(target, Mapping) else (label if target == "gold" else target,)
    for number in classes:
        if number is None:
            raise ValueError(f"target='gold', and instance '{name}' has no label; give another target, such as 'predicted'")
        if number not in range(count):
            raise ValueError(
                f"target={target!r}: the model has no class {number}; it has 0..{count - 1} (instance '{name}')"
            )
    return classes


def target_output(logits: torch.Tensor, batch, target="predicted", output: str = "logit") -> TargetOutput:
    """Return what is explained of the instances of a batch, given the logits (B,C) of their whole texts.

    target: "predicted", the class that these logits make most probable; "gold", batch["label"]; the number of a class; or
    {"of": class, "against": class}, the difference of two logits. output: "logit", "probability" or "log_odds".

    Raises ValueError for a class that does not exist, and for "gold" where an instance has no label.
    """
    if target == "predicted":
        return TargetOutput(logits.argmax(-1), None, output)
    count, labels = logits.shape[1], batch.get("label") or [None] * len(logits)
    classes = [_classes(target, label, count, name) for label, name in zip(labels, batch["instance_id"], strict=True)]
    of, *against = torch.tensor(classes, dtype=torch.int64, device=logits.device).reshape(len(logits), -1).unbind(1)
    return TargetOutput(of, against[0] if against else None, output)


@dataclass(frozen=True, kw_only=True)
class LogitMeasure(Measure):
    """A measure that explains a logit of each instance, chosen by `target`, or a difference of two: see `target_output`."""

    output: ClassVar[str] = "logit"

    target: Target = "predicted"

    def __post_init__(self):
        if isinstance(self.target, Mapping):
            if set(self.target) != {"of", "against"} or self.target["of"] == self.target["against"]:
                raise ValueError(f"target={self.target!r}: a contrast is {{'of': class, 'against': another class}}")
            if self.output != "logit":
                raise ValueError(
                    f"output={self.output!r} with target={self.target!r}: a contrast compares logits, output='logit'"
                )

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a class that the model does not have, for "gold" where an instance has no label, and for a
        probability or log-odds of a model without classes.
        """
        if self.output != "logit" and "classes" not in subject.capabilities:
            raise ValueError(
                f"output={self.output!r} needs classes, which this model lacks: {subject.lacks['classes']}; explain a logit"
            )
        if self.target != "predicted" and dataset is not None:
            labels = dataset["labels"] if "labels" in dataset.column_names else [None] * len(dataset)
            for name, label in zip(dataset["instance_id"], labels, strict=True):
                _classes(self.target, label, subject.num_labels, name)

    def explained(self, subject, batch, logits: torch.Tensor | None = None) -> TargetOutput:
        """What this measure explains of the instances of a batch; logits: of their whole texts, where they are there."""
        logits = whole_logits(subject, batch) if logits is None else logits
        return target_output(logits, batch, self.target, self.output)


@dataclass(frozen=True, kw_only=True)
class TargetMeasure(LogitMeasure):
    """A measure that explains a number of each instance, chosen by `target` and `output`: see `target_output`."""

    output: Output = "logit"
