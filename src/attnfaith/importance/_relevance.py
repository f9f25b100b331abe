"""What the measures share that take gradient times input by the rules of a model's backward pass."""

from attnfaith.importance._explained import Explain, check_data, check_target
from attnfaith.record import Column, ragged
from attnfaith.subjects.backward_rules import INPUTS


def rest_of(name: str) -> dict[str, Column]:
    """The columns of a measure that say what no token has."""
    one = {"dtype": "float64", "signed": True, "undefined": "where a part is"}
    return {
        f"{name}_markers": Column(**one, doc="the same of all markers together"),
        f"{name}_rest": Column(**one, doc="what tokens and markers leave of f, what is explained: the part of biases"),
    }


def check_relevance(target="predicted", output: str = "logit", inputs: str = "layer") -> None:
    """Raises ValueError for a target, an output or inputs that there are not."""
    check_target(target, output)
    if inputs not in INPUTS:
        raise ValueError(f"inputs={inputs!r} is not known; choose one of {', '.join(INPUTS)}")


def check_ruled(subject, dataset, *, target="predicted", output: str = "logit", inputs: str = "layer") -> None:
    """Raises ValueError as `_explained.check_data` does, and SubjectError for a model that the rules do not suit."""
    check_relevance(target, output, inputs)
    subject.check_rules(inputs)
    check_data(subject, dataset, target=target, output=output)


def ruled(subject, batch, names, rules: str, target, output: str, inputs: str) -> dict[str, list]:
    """Three columns, by these names: the tokens' scores, those of all markers together, and what these leave of f."""
    check_relevance(target, output, inputs)
    subject.check_rules(inputs)
    shares = subject.relevance(batch, Explain(batch, target, output), rules, inputs)
    mask = subject.attendable(batch)
    of_places, values = shares.of_places[:, 0], shares.values[:, 0]
    markers = of_places.masked_fill(mask, 0).sum(1)
    rest = values - of_places.sum(1)
    made = (ragged(of_places.float().cpu(), mask.cpu()), markers.tolist(), rest.tolist())
    return dict(zip(names, made, strict=True))
