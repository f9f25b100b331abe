"""What a measure of importance explains, one number per instance read from its logits, and the columns of its scores.

Shapes: B instances, C classes; logits may have dimensions between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from attnfaith.measurement.options import Output, Target
from attnfaith.measurement.registry import Measure
from attnfaith.record import Column, ragged
from attnfaith.subjects import Batch, Subject
from attnfaith.subjects.protocol import log_odds


OUTPUTS = ("logit", "probability", "log_odds")
TARGETS = "'predicted', 'gold', the number of a class, or {'of': class, 'against': class} for the difference of two logits"
STATES = frozenset({"states"})
"""What columns of encoder states need."""
EXPLAINED = "f the logit of the predicted class, or what the options target and output name"
MATTER = "the rows of attention that the logits depend on"


def score(doc: str, **fields) -> Column:
    """The column of a score that is never negative; that of a word is the sum of its subwords', unless `fields` say else."""
    return Column(("T",), **{"words": "sum", "range": (0.0, None), **fields}, doc=doc)


def signed_score(doc: str, **fields) -> Column:
    """The column of a signed score: a token with a positive one is evidence for what is explained."""
    fields = {"words": "sum", "undefined": "where f or its slope is not finite", **fields}
    return Column(("T",), **fields, signed=True, doc=f"{doc}; positive is evidence for f")


def share(doc: str) -> Column:
    """The column of what the rows that the logits depend on take of a token, over the sum of all input positions."""
    doc = f"what the mean of {MATTER} takes of a token, over the sum of all input positions, markers too: {doc}"
    undefined = "where the logits depend on no row of the last layer"
    return Column(("T",), words="sum", range=(0.0, 1.0), undefined=undefined, doc=doc)


def per_token(subject: Subject, batch: Batch, values: torch.Tensor) -> list[np.ndarray]:
    """Values (B,T) as one float32 array an instance, of its attendable tokens."""
    return ragged(values.float().cpu(), subject.attendable(batch).cpu())


def token_counts(subject: Subject, batch: Batch) -> list[int]:
    """The number T of attendable tokens of each instance."""
    return subject.attendable(batch).sum(1).tolist()


@dataclass(frozen=True)
class Explained:
    """The number that is explained of each instance, as a function of logits.

    of (B,): the class. against (B,): the class whose logit is taken off it, or None. output: one of OUTPUTS. answers (B,C)
    bool: the classes that may be given, None for all of them. Indexing takes instances.
    """

    of: torch.Tensor
    against: torch.Tensor | None
    output: str
    answers: torch.Tensor | None

    def __getitem__(self, rows) -> "Explained":
        parts = (self.of, self.against, self.answers)
        of, against, answers = (None if values is None else values[rows] for values in parts)
        return Explained(of, against, self.output, answers)

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (B,...,C) to values (B,...) in float64, whose gradients are exact where a probability rounds to 0 or 1.

        "logit": of the class, minus that of the class it is held against; any number. "log_odds": log(p / (1 - p)), with
        two classes the difference of their logits; NaN where the instance may be given one class only. "probability":
        0..1.
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
    """(B,...): of logits (B,...,C) that of each instance's class (B,)."""
    places = classes.reshape(-1, *[1] * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)
    return logits.gather(-1, places).squeeze(-1)


def check_target(target="predicted", output: str = "logit") -> None:
    """Raise ValueError for a target or an output that no model has, and for a contrast of anything but logits."""
    contrast = isinstance(target, Mapping)
    classes = [*target.values()] if contrast else [] if target in ("predicted", "gold") else [target]
    known = all(type(number) is int and number >= 0 for number in classes)
    if not known or (contrast and (set(target) != {"of", "against"} or len(set(classes)) < 2)):
        raise ValueError(f"target={target!r} is not known; give {TARGETS}")
    if output not in OUTPUTS or (contrast and output != "logit"):
        allowed = "a contrast is of logits" if contrast else f"choose one of {', '.join(OUTPUTS)}"
        raise ValueError(f"output={output!r} with target={target!r} is not known; {allowed}")


def check_data(subject, dataset, *, target="predicted", output: str = "logit") -> None:
    """Raise ValueError for what `check_target` refuses, for a class that the model does not have or an instance may not be
    given, for a probability or log-odds of a model without classes, and for "gold" where an instance has no label.

    dataset: encoded instances, as a measurement has them.
    """
    check_target(target, output)
    if output != "logit" and "classes" not in subject.capabilities:
        raise ValueError(
            f"output={output!r} is of classes, which this model lacks: {subject.lacks['classes']}; explain a logit"
        )
    if target != "predicted":
        names = dataset["instance_id"]
        labels = dataset["labels"] if "labels" in dataset.column_names else [None] * len(names)
        answers = dataset["candidates"] if "candidates" in dataset.column_names else [None] * len(names)
        for name, label, allowed in zip(names, labels, answers, strict=True):
            _classes(target, label, subject.num_labels, allowed, name)


def _classes(target, label, count: int, allowed, name: str) -> tuple[int, ...]:
    """The class that a target names for an instance, or the two of a contrast.

    Raises ValueError where the instance has no label, and for a class that is not among the `count` of the model or those
    allowed.
    """
    named = (target["of"], target["against"]) if isinstance(target, Mapping) else (label if target == "gold" else target,)
    for number in named:
        if number is None:
            raise ValueError(f"target='gold', and instance '{name}' has no label; give another target, such as 'predicted'")
        possible = range(count) if allowed is None else allowed
        if number not in possible:
            raise ValueError(
                f"target={target!r}: class {number} is no possible answer of instance '{name}'; possible are {[*possible]}"
            )
    return named


def explaining(logits: torch.Tensor, batch, target="predicted", output: str = "logit") -> Explained:
    """What is explained of the instances of a batch, given the logits (B,C) of their whole texts.

    target: "predicted", the class that these logits make most probable; "gold", batch["label"]; the number of a class; or
    {"of": class, "against": class}, the difference of two logits. output: "logit", "probability" or "log_odds".

    Raises ValueError as `check_target` says, for a class that does not exist or that batch["answer_mask"] bars an instance
    from, which has no logit there, and for "gold" where an instance has no label.
    """
    check_target(target, output)
    answers = None if batch.get("answer_mask") is None else batch["answer_mask"].bool()
    if target == "predicted":
        return Explained(logits.argmax(-1), None, output, answers)
    count, width = logits.shape
    labels = [None] * count if batch.get("label") is None else batch["label"]
    classes = []
    for row in range(count):
        allowed = None if answers is None else answers[row].nonzero().squeeze(1).tolist()
        classes.append(_classes(target, labels[row], width, allowed, batch["instance_id"][row]))
    of, *against = torch.tensor(classes, dtype=torch.int64, device=logits.device).reshape(count, -1).unbind(1)
    return Explained(of, against[0] if against else None, output, answers)


def explained(logits: torch.Tensor, batch, target="predicted", output: str = "logit") -> torch.Tensor:
    """The number (B,) float64 that is explained of each instance, from its logits (B,C): see `explaining`."""
    return explaining(logits, batch, target, output)(logits)


@dataclass(frozen=True, kw_only=True)
class Explains(Measure):
    """A measure that explains a number of each instance, chosen by `target` and `output`: see `explaining`."""

    target: Target = "predicted"
    output: Output = "logit"

    def __post_init__(self):
        check_target(self.target, self.output)

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a class that the model does not have or an instance may not be given."""
        if dataset is not None:
            check_data(subject, dataset, target=self.target, output=self.output)


class Explain:
    """What is explained of some instances of a batch, given logits of theirs: see `explaining`, which says what it raises.

    The class that is predicted is that of these very logits. Two are equal that ask the same.
    """

    def __init__(self, batch, target="predicted", output: str = "logit"):
        check_target(target, output)
        self.target, self.output = target, output
        self.batch = {name: batch.get(name) for name in ("instance_id", "label", "answer_mask")}  # which may keep this one

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The numbers (n,) float64 of the instances `rows` (n,), from their logits (n,C)."""
        answers, lists = self.batch["answer_mask"], ("instance_id", "label")
        chosen = {name: [self.batch[name][row] for row in rows.tolist()] for name in lists if self.batch[name]}
        chosen["answer_mask"] = None if answers is None else answers[rows]
        return explained(logits, chosen, self.target, self.output)

    def __eq__(self, other) -> bool:
        return isinstance(other, Explain) and (self.target, self.output) == (other.target, other.output)

    def __hash__(self) -> int:
        return hash((str(sorted(self.target.items()) if isinstance(self.target, Mapping) else self.target), self.output))
