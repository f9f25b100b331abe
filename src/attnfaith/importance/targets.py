"""The number that a measure of importance explains, read from the logits of an instance, and the columns of its scores.

Shapes: B instances, C classes; logits may have dimensions between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from attnfaith.measurement.options import Output, Target
from attnfaith.measurement.registry import Measure
from attnfaith.record import Column
from attnfaith.subjects import Batch, Subject, whole_logits
from attnfaith.subjects.protocol import log_odds


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
    "log_odds". answers (B,C) bool: the classes that may be given, None for all of them. key: of two that explain the same
    of a batch it is the same. Indexing takes instances.
    """

    of: torch.Tensor
    against: torch.Tensor | None
    output: str
    answers: torch.Tensor | None
    key: str = ""

    def __getitem__(self, rows) -> "TargetOutput":
        tensors = {name: getattr(self, name) for name in ("of", "against", "answers")}
        return replace(self, **{name: None if values is None else values[rows] for name, values in tensors.items()})

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (B,...,C), or those of the instances `rows`, to values (B,...) in float64, whose gradients are exact where
        a probability rounds to 0 or 1.

        "logit": of the class, minus that of the class it is held against; any number. "log_odds": log(p / (1 - p)), with
        two classes the difference of their logits; NaN where the instance has a single possible class. "probability": 0..1.
        """
        if rows is not None:
            return self[rows](logits)
        if self.output == "logit":
            logits = logits.double()
            own = _logits_of(logits, self.of)
            return own if self.against is None else own - _logits_of(logits, self.against)
        odds = log_odds(logits, self.of)
        if self.output == "probability":
            return torch.nn.functional.logsigmoid(odds).exp()
        if self.answers is None:
            return odds
        alone = (self.answers.sum(-1) == 1).reshape(-1, *[1] * (odds.dim() - 1))
        return odds * torch.where(alone, torch.nan, 1.0)  # slopes are NaN there too, and there only


def _logits_of(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    places = classes.reshape(-1, *[1] * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)
    return logits.gather(-1, places).squeeze(-1)


def check_target(target="predicted", output: str = "logit") -> None:
    """Raise ValueError for a contrast of anything but two different classes, and of anything but their logits."""
    if isinstance(target, Mapping):
        if set(target) != {"of", "against"} or target["of"] == target["against"]:
            raise ValueError(f"target={target!r}: a contrast is {{'of': class, 'against': another class}}")
        if output != "logit":
            raise ValueError(f"output={output!r} with target={target!r}: a contrast compares logits, output='logit'")


def check_data(subject, dataset, *, target="predicted", output: str = "logit") -> None:
    """Check a target and an output against a model and encoded instances, before anything is measured.

    Raises ValueError for a class that the model does not have or an instance may not be given, for a probability or log-odds
    of a model without classes, and for "gold" where an instance has no label.
    """
    if output != "logit" and "classes" not in subject.capabilities:
        raise ValueError(
            f"output={output!r} needs classes, which this model lacks: {subject.lacks['classes']}; explain a logit"
        )
    if target == "predicted":
        return
    names = dataset["instance_id"]
    labels = dataset["labels"] if "labels" in dataset.column_names else [None] * len(names)
    answers = dataset["candidates"] if "candidates" in dataset.column_names else [None] * len(names)
    for name, label, allowed in zip(names, labels, answers, strict=True):
        _classes(target, label, range(subject.num_labels) if allowed is None else allowed, name)


def _classes(target, label, allowed, name: str) -> tuple[int, ...]:
    """The class that a target names for an instance, or the two of a contrast; allowed: its possible classes."""
    classes = (target["of"], target["against"]) if isinstance(target, Mapping) else (label if target == "gold" else target,)
    for number in classes:
        if number is None:
            raise ValueError(f"target='gold', and instance '{name}' has no label; give another target, such as 'predicted'")
        if number not in allowed:
            raise ValueError(
                f"target={target!r}: class {number} is no possible answer of instance '{name}'; possible are {[*allowed]}"
            )
    return classes


def target_output(logits: torch.Tensor, batch, target="predicted", output: str = "logit") -> TargetOutput:
    """Return what is explained of the instances of a batch, given the logits (B,C) of their whole texts.

    target: "predicted", the class that these logits make most probable; "gold", batch["label"]; the number of a class; or
    {"of": class, "against": class}, the difference of two logits. output: "logit", "probability" or "log_odds".

    Raises ValueError for a class that does not exist or that batch["answer_mask"] bars an instance from, and for "gold"
    where an instance has no label.
    """
    answers = None if batch.get("answer_mask") is None else batch["answer_mask"].bool()
    key = f"{sorted(target.items()) if isinstance(target, Mapping) else target!r} {output}"
    if target == "predicted":
        return TargetOutput(logits.argmax(-1), None, output, answers, key)
    count, width = logits.shape
    labels = [None] * count if batch.get("label") is None else batch["label"]
    possible = [range(width)] * count if answers is None else [row.nonzero().squeeze(1).tolist() for row in answers]
    classes = [_classes(target, *row) for row in zip(labels, possible, batch["instance_id"], strict=True)]
    of, *against = torch.tensor(classes, dtype=torch.int64, device=logits.device).reshape(count, -1).unbind(1)
    return TargetOutput(of, against[0] if against else None, output, answers, key)


@dataclass(frozen=True, kw_only=True)
class TargetMeasure(Measure):
    """A measure that explains a number of each instance, chosen by `target` and `output`: see `target_output`."""

    target: Target = "predicted"
    output: Output = "logit"

    def __post_init__(self):
        check_target(self.target, self.output)

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a class that the model does not have or an instance may not be given."""
        if dataset is not None:
            check_data(subject, dataset, target=self.target, output=self.output)

    def explained(self, subject, batch) -> TargetOutput:
        """What this measure explains of the instances of a batch."""
        return target_output(whole_logits(subject, batch), batch, self.target, self.output)
