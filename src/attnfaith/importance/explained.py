"""What a measure of importance explains: one number per instance, read from its logits.

Shapes: B instances, C classes; logits may have dimensions between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from attnfaith.measurement.options import Output, Target
from attnfaith.measurement.registry import Measure
from attnfaith.subjects.protocol import log_odds


OUTPUTS = ("logit", "probability", "log_odds")
TARGETS = "'predicted', 'gold', the number of a class, or {'of': class, 'against': class} for the difference of two logits"


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
        taken = {name: None if part is None else part[rows] for name, part in vars(self).items() if name != "output"}
        return replace(self, **taken)

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (B,...,C) to values (B,...) in float64, whose gradients are exact where a probability rounds to 0 or 1.

        "logit": of the class, minus that of the class it is held against; any number. "log_odds": log(p / (1 - p)), with
        two classes the difference of their logits; NaN where the instance may be given one class only. "probability":
        0..1.
        """
        if self.output == "logit":
            logits = logits.double()
            own = self._taken(logits, self.of)
            return own if self.against is None else own - self._taken(logits, self.against)
        odds = log_odds(logits, self.of)
        if self.output == "probability":
            return torch.nn.functional.logsigmoid(odds).exp()
        if self.answers is None:
            return odds
        alone = (self.answers.sum(-1) == 1).reshape(-1, *[1] * (odds.dim() - 1))
        return odds * torch.where(alone, torch.nan, 1.0)  # slopes are NaN there too, and there only

    def _taken(self, logits, classes):
        places = classes.reshape(-1, *[1] * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, places).squeeze(-1)


def check_target(target="predicted", output: str = "logit") -> None:
    """Raises ValueError for a target or an output that no model has, and for a contrast of anything but logits."""
    if output not in OUTPUTS:
        raise ValueError(f"output={output!r} is not known; choose one of {', '.join(OUTPUTS)}")
    if isinstance(target, Mapping):
        if set(target) != {"of", "against"} or not all(_is_class(number) for number in target.values()):
            raise ValueError(f"target={dict(target)!r}; a contrast is {{'of': class, 'against': class}}, numbers from 0 on")
        if target["of"] == target["against"]:
            raise ValueError(f"target={dict(target)!r} holds a class against itself; name two classes")
        if output != "logit":
            raise ValueError(f"target={dict(target)!r} is a contrast of two logits; output={output!r} needs a single class")
    elif target not in ("predicted", "gold") and not _is_class(target):
        raise ValueError(f"target={target!r} is not known; give {TARGETS}")


def check_data(subject, dataset, *, target="predicted", output: str = "logit") -> None:
    """Raises ValueError for a class that the model does not have or an instance may not be given, for a probability or
    log-odds of a model without classes, and for "gold" where an instance has no label. dataset: encoded instances, as a
    measurement has them.
    """
    check_target(target, output)
    if output != "logit" and "classes" not in subject.capabilities:
        raise ValueError(
            f"output={output!r} is of classes, which this model lacks: {subject.lacks['classes']}; explain a logit"
        )
    if target == "predicted":
        return
    names = dataset["instance_id"]
    labels = dataset["labels"] if "labels" in dataset.column_names else [None] * len(names)
    answers = dataset["candidates"] if "candidates" in dataset.column_names else None
    for row, name in enumerate(names):
        for number in _classes(target, labels[row]):
            _check_class(number, subject.num_labels, None if answers is None else answers[row], target, name)


def explaining(logits: torch.Tensor, batch, target="predicted", output: str = "logit") -> Explained:
    """What is explained of the instances of a batch, given the logits (B,C) of their whole texts.

    target: "predicted", the class that these logits make most probable; "gold", batch["label"]; the number of a class; or
    {"of": class, "against": class}, the difference of two logits. output: "logit", "probability" or "log_odds".

    Raises ValueError as `check_target` says, for a class that does not exist or that batch["answer_mask"] bars an instance
    from, which has no logit there, and for "gold" where an instance has no label.
    """
    check_target(target, output)
    count, width = logits.shape
    answers = batch.get("answer_mask")
    answers = None if answers is None else answers.bool()
    if target == "predicted":
        return Explained(logits.argmax(-1), None, output, answers)
    labels = batch.get("label")
    classes = []
    for row in range(count):
        classes.append(_classes(target, None if labels is None else labels[row]))
        allowed = None if answers is None else answers[row].nonzero().squeeze(1).tolist()
        for number in classes[-1]:
            _check_class(number, width, allowed, target, batch["instance_id"][row])
    of, *against = torch.tensor(classes, dtype=torch.int64, device=logits.device).reshape(count, -1).unbind(1)
    return Explained(of, against[0] if against else None, output, answers)


def explained(logits: torch.Tensor, batch, target="predicted", output: str = "logit") -> torch.Tensor:
    """The number (B,) float64 that is explained of each instance, from its logits (B,C): see `explaining`."""
    return explaining(logits, batch, target, output)(logits)


@dataclass(frozen=True, kw_only=True)
class Explains(Measure):
    """A measure that explains a number of each instance.

    target: "predicted", the class that the model makes most probable; "gold", its label; the number of a class; or
    {"of": class, "against": class}, the difference of two logits. output: "logit", "probability" or "log_odds".
    """

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
        self._asked = target, output
        self._key = tuple(sorted(target.items())) if isinstance(target, Mapping) else target, output
        self._instances = {name: batch.get(name) for name in ("instance_id", "label", "answer_mask")}

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The numbers (n,) float64 of the instances `rows` (n,), from their logits (n,C)."""
        chosen = rows.tolist()
        names = {name: values for name, values in self._instances.items() if name != "answer_mask" and values is not None}
        of_rows = {name: [values[row] for row in chosen] for name, values in names.items()}
        if (answers := self._instances["answer_mask"]) is not None:
            of_rows["answer_mask"] = answers[rows]
        return explained(logits, of_rows, *self._asked)

    def __eq__(self, other) -> bool:
        return isinstance(other, Explain) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _is_class(number) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _classes(target, label) -> tuple:
    if isinstance(target, Mapping):
        return target["of"], target["against"]
    return (label if target == "gold" else target,)


def _check_class(number, count: int, allowed, target, name: str) -> None:
    if number is None:
        raise ValueError(f"target='gold', and instance '{name}' has no label; give another target, such as 'predicted'")
    if not 0 <= number < count:
        raise ValueError(
            f"target={target!r}: there is no class {number} for instance '{name}'; classes are 0 to {count - 1}"
        )
    if allowed is not None and number not in allowed:
        raise ValueError(
            f"target={target!r}: class {number} is no possible answer of instance '{name}', so it has no logit; "
            f"possible are {list(allowed)}"
        )
