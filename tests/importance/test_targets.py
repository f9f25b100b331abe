"""The number that measures explain: by hand, where probabilities saturate, refusals; and passes that measures share."""

import math

import numpy as np
import pytest
import torch
from datasets import Dataset

from attnfaith.importance.attention_based import ExactContribution
from attnfaith.importance.targets import target_output
from attnfaith.measurement.registry import build
from attnfaith.subjects import Batch, SelfAttention, subject_of
from tests.measuring import run
from tests.small_classifiers import classifier, texts


LOGITS = [[1.0, 3.0, 0.5], [2.0, -1.0, 0.0]]
CONTRAST = {"of": 0, "against": 2}


def instances(**more):
    return {"instance_id": ["one", "two"], "label": [2, 0], **more}


def value_of(logits, *arguments):
    return target_output(logits, *arguments)(logits)


@pytest.mark.parametrize(("target", "classes"), [("predicted", (1, 0)), ("gold", (2, 0)), (1, (1, 1))])
def test_by_hand(target, classes):
    """Further logits, such as those of a shorter text, are of the class of the first; indexing takes instances."""
    logits, odds = torch.tensor(LOGITS), []
    for row, number in zip(LOGITS, classes, strict=True):
        p = [math.exp(value) for value in row]
        odds.append(math.log(p[number] / (sum(p) - p[number])))
    expected = {
        "logit": [row[number] for row, number in zip(LOGITS, classes, strict=True)],
        "log_odds": odds,
        "probability": [1 / (1 + math.exp(-value)) for value in odds],
    }
    shorter = torch.tensor([[[9.0, 0.0, 1.0], LOGITS[0]], [[0.0, 5.0, 1.0], LOGITS[1]]])
    for output in expected:
        f = target_output(logits, instances(), target, output)
        torch.testing.assert_close(f(logits), torch.tensor(expected[output], dtype=torch.float64), rtol=1e-7, atol=1e-9)
        assert torch.equal(f(shorter)[:, 1], f(logits)) and torch.equal(f(shorter[[1], 0], [1])[0], f(shorter)[1, 0])


@pytest.mark.parametrize("gap", [20.0, 600.0])
def test_slopes_of_saturated_probabilities(gap):
    """dp/dz = p (1 - p) = e^-gap / (1 + e^-gap)^2, also where p is 1 in float64."""
    logits = torch.tensor([[gap, 0.0]], dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(value_of(logits, {"instance_id": ["x"]}, 0, "probability").sum(), logits)
    slope = math.exp(-gap) / (1 + math.exp(-gap)) ** 2
    assert slopes[0].tolist() == pytest.approx([slope, -slope], rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("target", "output", "message"),
    [
        *((target, "logit", "target=") for target in ("best", -1, True, 1.0, None, {"of": 1}, {"of": 1, "against": "gold"})),
        ({"of": 1, "against": 1}, "logit", "target="),
        (CONTRAST, "probability", "output='probability'"),
        ("gold", "loss", "output='loss'"),
    ],
)
def test_targets_that_do_not_exist(target, output, message):
    with pytest.raises(ValueError, match=message):
        build(["gradient_x_input"], {"gradient_x_input": {"target": target, "output": output}})


@pytest.mark.parametrize(
    ("target", "message"), [(3, "class 3"), ({"of": 0, "against": 7}, "class 7"), ("gold", "'two' has no label")]
)
def test_instances_that_do_not_have_the_target(target, message, tiny_model):
    """Before a measurement starts, and where a batch is measured without that check."""
    labels, subject = [1, None], tiny_model(num_labels=3)
    rows = Dataset.from_dict({"instance_id": ["one", "two"], "labels": labels})
    for call in (
        lambda: value_of(torch.tensor(LOGITS), instances(label=labels), target),
        lambda: ExactContribution(target=target).check(subject, rows),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for possible in ("predicted", 2):
        ExactContribution(target=possible).check(subject, rows)


MEASURES = [
    *(("gradient", {}), ("gradient_norm", {}), ("gradient_x_input", {}), ("gradient_x_input", {"output": "log_odds"})),
    *(("attention_x_gradient", {}), ("occlusion", {}), ("leave_one_out", {})),
]
OF_STACKS = [
    *(("chefer", {}), ("chefer", {"target": 0}), ("attention_x_gradient", {"target": 0}), ("decompx", {})),
    *(("leave_one_out", {"by": "hide"}), ("occlusion", {"by": "hide"}), ("occlusion", {"target": {"of": 1, "against": 0}})),
    ("integrated_gradients", {"tolerance": 1e6}),
]


@pytest.fixture
def bert():
    return SelfAttention(classifier("bert"))


def fresh(subject):
    return Batch.of(texts(subject.model), subject)


@pytest.mark.parametrize("step", [1, -1], ids=["onward", "backward"])
@pytest.mark.parametrize("hierarchy", ["bert", "none", "sentence"])
def test_values_are_those_that_each_measure_has_alone(hierarchy, step, bert, tiny_model, tiny_rows):
    subject, measures = bert, [*MEASURES, *OF_STACKS]
    batches = lambda: fresh(bert)  # noqa: E731
    if hierarchy != "bert":
        subject, measures = subject_of(tiny_model(hierarchy=hierarchy)), MEASURES
        batches = lambda: subject.collate(tiny_rows([6, 4, 5]))  # noqa: E731
    together = batches()
    for name, options in measures[::step]:
        columns, alone = (run(name, subject, batch, **options) for batch in (together, batches()))
        assert columns.keys() == alone.keys()
        for column, values in columns.items():
            for value, expected in zip(values, alone[column], strict=True):
                np.testing.assert_array_equal(value, expected, err_msg=column)
