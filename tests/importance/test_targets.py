"""What is explained: by hand, its slopes where probabilities saturate, and what is refused."""

import math

import pytest
import torch
from datasets import Dataset

from attnfaith.importance.attention_based import ExactContribution
from attnfaith.importance.gradients import GradientXInput
from attnfaith.importance.targets import OUTPUTS, check_data, check_target, target_output


LOGITS = [[1.0, 3.0, 0.5], [2.0, -1.0, 0.0]]
CONTRAST = {"of": 0, "against": 2}


def batch(**more):
    return {"instance_id": ["one", "two"], "label": [2, 0], **more}


def value_of(logits, *arguments):
    return target_output(logits, *arguments)(logits)


def log_odds(logits, number):
    p = [math.exp(value) for value in logits]
    return math.log(p[number] / (sum(p) - p[number]))


@pytest.mark.parametrize(("target", "classes"), [("predicted", (1, 0)), ("gold", (2, 0)), (1, (1, 1))])
def test_by_hand(target, classes):
    logits = torch.tensor(LOGITS)
    odds = [log_odds(row, number) for row, number in zip(LOGITS, classes, strict=True)]
    expected = {
        "logit": [row[number] for row, number in zip(LOGITS, classes, strict=True)],
        "log_odds": odds,
        "probability": [1 / (1 + math.exp(-value)) for value in odds],
    }
    for output in OUTPUTS:
        values = value_of(logits, batch(), target, output)
        assert values.dtype == torch.float64
        torch.testing.assert_close(values, torch.tensor(expected[output], dtype=torch.float64), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("output", OUTPUTS)
def test_further_logits_are_of_the_class_of_the_first(output):
    """Those of other texts, such as a shorter one, may have another winner; instances are taken by indexing."""
    f = target_output(torch.tensor(LOGITS), batch(), "predicted", output)
    others = torch.tensor([[[9.0, 0.0, 1.0], LOGITS[0]], [[0.0, 5.0, 1.0], LOGITS[1]]])
    values = f(others)
    assert values.shape == (2, 2)
    assert torch.equal(values[:, 1], f(torch.tensor(LOGITS)))
    assert torch.equal(values[:, 0], torch.stack([f[[row]](others[[row], 0])[0] for row in (0, 1)]))
    assert (values[:, 0] < values[:, 1]).all()


@pytest.mark.parametrize("gap", [20.0, 100.0, 600.0])
def test_slopes_of_saturated_probabilities(gap):
    """dp/dz = p (1 - p) = e^-gap / (1 + e^-gap)^2, also where p is 1 in float64."""
    logits = torch.tensor([[gap, 0.0]], dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(value_of(logits, {"instance_id": ["x"]}, 0, "probability").sum(), logits)
    expected = math.exp(-gap) / (1 + math.exp(-gap)) ** 2
    assert slopes[0].tolist() == pytest.approx([expected, -expected], rel=1e-12, abs=0)


def test_answers_that_are_barred():
    answers = torch.tensor([[True, True, False], [True, False, False]])
    logits = torch.tensor(LOGITS) + (~answers).float() * -1e4
    masked = batch(answer_mask=answers, label=[0, 0])
    assert value_of(logits, masked, "gold").tolist() == [1.0, 2.0]
    odds = value_of(logits, masked, "predicted", "log_odds")
    assert odds[0] == pytest.approx(2.0) and odds[1].isnan()  # a class that has no rival is certain: no odds
    assert value_of(logits, masked, "predicted", "probability")[1] == 1.0
    for target in (2, {"of": 0, "against": 1}):
        with pytest.raises(ValueError, match="no possible answer"):
            value_of(logits, masked, target)


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
    for ask in (check_target, lambda *asked: value_of(torch.tensor(LOGITS), batch(), *asked)):
        with pytest.raises(ValueError, match=message):
            ask(target, output)


@pytest.mark.parametrize(
    ("target", "message"),
    [(3, "class 3"), ({"of": 0, "against": 7}, "class 7"), ("gold", "'two' has no label")],
)
def test_instances_that_do_not_have_the_target(target, message, tiny_model):
    """A measurement asks `check_data` before it starts; who measures without it is told the same."""
    labels, subject = [1, None], tiny_model(num_labels=3)
    rows = Dataset.from_dict({"instance_id": ["one", "two"], "labels": labels})
    for ask in (
        lambda: value_of(torch.tensor(LOGITS), batch(label=labels), target),
        lambda: check_data(subject, rows, target=target),
        lambda: GradientXInput(target=target).check(subject, rows),
        lambda: ExactContribution(target=target).check(subject, rows),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    for possible in ("predicted", 2):
        check_data(subject, rows, target=possible)
