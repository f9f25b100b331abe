"""The number that a measure of importance explains, read from the logits of an instance, and the columns of its scores.

Shapes: B instances, C classes; logits may have dimensions between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from attnfaith.measurement.options import Output, Target
from attnfaith.measurement.registry import Measure
from attnfaith.record import Column
from attnfaith.subjects import Batch, Subject
from attnfaith.subjects.protocol import log_odds


OUTPUTS = ("logit", "probability", "log_odds")
TARGETS = "'predicted', 'gold', the number of a class, or {'of': class, 'against': class} for the difference of two logits"
STATES = frozenset({"states"})
"""What columns of encoder states need."""
TARGET_DOC = "f the logit of the predicted class, or what the options target and output name"
ROWS_DOC = "the rows of attention that the logits depend on"


def score(doc: str, **fields) -> Column:
    """The column of a score that is never negative; that of a word is the sum of its subwords', unless `fields` say else."""
    return Column(("T",), **{"words": "sum", "range": (0.0, None), **fields}, doc=doc)


def signed_score(doc: str, **fields) -> Column:
    """The column of a signed score: a token with a positive score is evidence for what is explained."""
    fields = {"words": "sum", "undefined": "where f or its slope is not finite", **fields}
    return Column(("T",), **fields, signed=True, doc=f"{doc}; positive is evidence for f")


def share(doc: str) -> Column:
    """The column of what the rows that the logits depend on take of a token, over the sum of all input positions."""
    doc = f"what the mean of {ROWS_DOC} takes of a token, over the sum of all input positions, markers too: {doc}"
    undefined = "where the logits depend on no row of the last layer"
    return Column(("T",), words="sum", range=(0.0, 1.0), undefined=undefined, doc=doc)


def token_counts(subject: Subject, batch: Batch) -> list[int]:
    """The number T of attendable tokens of each instance."""
    return subject.attendable(batch).sum(1).tolist()


@dataclass(frozen=True)
class TargetOutput:
    """The number that is explained of each instance, as a function of logits.

    of (B,): the class. against (B,): the class whose logit is taken off it, or None. output: one of OUTPUTS. answers (B,C)
    bool: the classes that may be given, None for all of them. Indexing takes instances.
    """

    of: torch.Tensor
    against: torch.Tensor | None
    output: str
    answers: torch.Tensor | None

    def __getitem__(self, rows) -> "TargetOutput":
        parts = (self.of, self.against, self.answers)
        of, against, answers = (None if values is None else values[rows] for values in parts)
        return TargetOutput(of, against, self.output, answers)

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (B,...,C) to values (B,...) in float64, whose gradients are exact where a probability rounds to 0 or 1.

        "logit": of the class, minus that of the class it is held against; any number. "log_odds": log(p / (1 - p)), with
        two classes the difference of their logits; NaN where the instance has a single possible class. "probability": 0..1.
        """
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
    """Raise ValueError for a target or an output that no model has, and for a contrast of anything but logits."""
    contrast = isinstance(target, Mapping)
    classes = [*target.values()] if contrast else [] if target in ("predicted", "gold") else [target]
    is_number = all(type(number) is int and number >= 0 for number in classes)
    if not is_number or (contrast and (set(target) != {"of", "against"} or len(set(classes)) < 2)):
        raise ValueError(f"target={target!r} does not exist; give {TARGETS}")
    if output not in OUTPUTS or (contrast and output != "logit"):
        allowed = "a contrast compares logits" if contrast else f"choose one of {', '.join(OUTPUTS)}"
        raise ValueError(f"output={output!r} with target={target!r} does not exist; {allowed}")


def check_data(subject, dataset, *, target="predicted", output: str = "logit") -> None:
    """Check a target and an output against a model and encoded instances, before anything is measured.

    Raises ValueError as `check_target`, for a class that the model does not have or an instance may not be given, for a
    probability or log-odds of a model without classes, and for "gold" where an instance has no label.
    """
    check_target(target, output)
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

    Raises ValueError as `check_target`, for a class that does not exist or that batch["answer_mask"] bars an instance from,
    and for "gold" where an instance has no label.
    """
    check_target(target, output)
    answers = None if batch.get("answer_mask") is None else batch["answer_mask"].bool()
    if target == "predicted":
        return TargetOutput(logits.argmax(-1), None, output, answers)
    count, width = logits.shape
    labels = [None] * count if batch.get("label") is None else batch["label"]
    possible = [range(width)] * count if answers is None else [row.nonzero().squeeze(1).tolist() for row in answers]
    classes = [_classes(target, *row) for row in zip(labels, possible, batch["instance_id"], strict=True)]
    of, *against = torch.tensor(classes, dtype=torch.int64, device=logits.device).reshape(count, -1).unbind(1)
    return TargetOutput(of, against[0] if against else None, output, answers)


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

    def batch_output(self, logits: torch.Tensor, batch) -> TargetOutput:
        """What this measure explains of the instances of a batch, given the logits (B,C) of their whole texts."""
        return target_output(logits, batch, self.target, self.output)

    def batch_target(self, batch) -> "BatchTarget":
        """What this measure explains of some instances of a batch."""
        return BatchTarget(batch, self.target, self.output)


class BatchTarget:
    """What is explained of some instances of a batch, given logits of theirs; raises as `target_output`.

    The predicted class is that of these very logits. Two with the same target and output are equal.
    """

    def __init__(self, batch, target="predicted", output: str = "logit"):
        self.target, self.output = target, output
        self.batch = {name: batch.get(name) for name in ("instance_id", "label", "answer_mask")}  # which may keep this one

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The numbers (n,) float64 of the instances `rows` (n,), from their logits (n,C)."""
        answers, lists = self.batch["answer_mask"], ("instance_id", "label")
        chosen = {name: [self.batch[name][row] for row in rows.tolist()] for name in lists if self.batch[name]}
        chosen["answer_mask"] = None if answers is None else answers[rows]
        return target_output(logits, chosen, self.target, self.output)(logits)

    @property
    def key(self) -> tuple[str, str]:
        target = sorted(self.target.items()) if isinstance(self.target, Mapping) else self.target
        return repr(target), self.output

    def __eq__(self, other) -> bool:
        return isinstance(other, BatchTarget) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
