"""How many layers and heads become the one vector that a person is shown."""

import pytest
import torch

from attnfaith.subjects import SelfAttention, SubjectError
from attnfaith.subjects.attention import Reduction
from tests.small_classifiers import classifier


HEADS, LONG = 3, 5


def maps(count=2, instances=2):
    torch.manual_seed(0)
    return [(2 * torch.randn(instances, HEADS, LONG, LONG)).softmax(-1) for _ in range(count)]


def rows(*places):
    matter = torch.zeros(len(places), LONG, dtype=torch.bool)
    for row, chosen in enumerate(places):
        matter[row, chosen] = True
    return matter


@pytest.mark.parametrize(
    ("value", "fields", "layers"),
    [
        ("last", ("mean", "last", None), [3]),
        ("rollout", ("rollout", "last", None), [0, 1, 2, 3]),
        ({"layers": 2, "head": 0}, ("mean", 2, 0), [2]),
        ({"layers": "all", "head": 1}, ("mean", "all", 1), [0, 1, 2, 3]),
    ],
)
def test_reductions_that_there_are(value, fields, layers):
    reduction = Reduction.of(value)
    assert (reduction.way, reduction.layers, reduction.head) == fields and reduction.chosen(4) == layers
    assert Reduction.of(reduction) is reduction


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("first", "'first'"),
        ({"layer": 1}, "'layer'"),
        ({"way": "product"}, "'product'"),
        ({"layers": True}, "'layers': True"),
        ({"layers": 4}, "layer 4"),
        ({"head": -1}, "'head': -1"),
        ({"layers": 0, "head": 3}, "head 3"),
        ({"way": "rollout", "head": 1}, "'rollout'"),
    ],
)
def test_reductions_that_there_are_not(value, message):
    with pytest.raises(SubjectError, match=message):
        Reduction.of(value).check([HEADS] * 4, {})


def test_a_model_refuses_before_any_text_is_read():
    model = SelfAttention(classifier("bart"))
    for reduction, message in (("rollout", "'rollout'"), ({"layers": "last", "head": 99}, "head 99")):
        with pytest.raises(SubjectError, match=message):
            model.shown_by(reduction)


def test_means_are_of_the_rows_that_matter_the_heads_and_the_layers():
    layers, matter = maps(), rows([0], [1, 4])
    of_all, of_head = (Reduction.of(value)(layers, matter) for value in ("all", {"layers": "all", "head": 2}))
    for row, places in enumerate(([0], [1, 4])):
        whole = torch.stack([layer[row] for layer in layers])
        torch.testing.assert_close(of_all[row], whole[:, :, places].mean((0, 1, 2)))
        torch.testing.assert_close(of_head[row], whole[:, 2, places].mean((0, 1)))
    torch.testing.assert_close(Reduction.of("last")(layers[1:], matter)[1], layers[1][1][:, [1, 4]].mean((0, 1)))
    assert Reduction.of("last")(layers[1:], rows([], [0]))[0].isnan().all()
