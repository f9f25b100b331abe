"""How many layers and heads become the one vector that a person is shown."""

import itertools

import networkx
import numpy as np
import pytest
import torch

from attnfaith.subjects import SelfAttention, SubjectError
from attnfaith.subjects.reduction import Reduction, flow, rollout
from tests.small_classifiers import classifier


HEADS, LONG = 3, 5


def maps(count=2, seed=0, instances=2):
    torch.manual_seed(seed)
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
        ("all", ("mean", "all", None), [0, 1, 2, 3]),
        ("rollout", ("rollout", "last", None), [0, 1, 2, 3]),
        ("flow", ("flow", "last", None), [0, 1, 2, 3]),
        ({"layers": 1}, ("mean", 1, None), [1]),
        ({"layers": 2, "head": 0}, ("mean", 2, 0), [2]),
        ({"layers": "all", "head": 1}, ("mean", "all", 1), [0, 1, 2, 3]),
    ],
)
def test_reductions_that_there_are(value, fields, layers):
    reduction = Reduction.of(value)
    assert (reduction.way, reduction.layers, reduction.head) == fields and reduction.chosen(4) == layers
    assert Reduction.of(reduction) is reduction
    assert reduction.one_head is (value == {"layers": 2, "head": 0})


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("first", "'first'"),
        (3, "=3"),
        ({"layer": 1}, "'layer'"),
        ({"way": "product"}, "'product'"),
        ({"layers": -1}, "layers=-1"),
        ({"layers": True}, "layers=True"),
        ({"layers": 1.0}, "layers=1.0"),
        ({"layers": 4}, "layer 4"),
        ({"head": -1}, "head=-1"),
        ({"head": "mean"}, "head='mean'"),
        ({"layers": 0, "head": 3}, "head 3"),
        ({"way": "rollout", "head": 1}, "'rollout'"),
        ({"way": "flow", "layers": 1}, "'flow'"),
    ],
)
def test_reductions_that_there_are_not(value, wrong):
    with pytest.raises(SubjectError, match=wrong):
        Reduction.of(value).check([HEADS] * 4, {})


def test_means_are_of_the_rows_that_matter_the_heads_and_the_layers():
    layers, matter = maps(), rows([0], [1, 4])
    of_all = Reduction.of("all")(layers, matter)
    of_head = Reduction.of({"layers": "all", "head": 2})(layers, matter)
    for row, places in enumerate(([0], [1, 4])):
        whole = torch.stack([layer[row] for layer in layers])
        torch.testing.assert_close(of_all[row], whole[:, :, places].mean((0, 1, 2)))
        torch.testing.assert_close(of_head[row], whole[:, 2, places].mean((0, 1)))
    torch.testing.assert_close(Reduction.of("last")(layers[1:], matter)[1], layers[1][1][:, [1, 4]].mean((0, 1)))
    assert Reduction.of("last")(layers[1:], rows([], [0]))[0].isnan().all()


def test_rollout_is_the_sum_over_all_paths():
    """By hand: every way from a position of the last layer down to an input, weighed by its edges."""
    layers = [layer.mean(1) for layer in maps(3, instances=1)]
    weights = rollout(layers)[0]
    edges = [((torch.eye(LONG) + layer[0]) / 2).numpy() for layer in layers]
    for top in (0, 3):
        expected = np.zeros(LONG)
        for middle, low, end in itertools.product(range(LONG), repeat=3):
            expected[end] += edges[2][top, middle] * edges[1][middle, low] * edges[0][low, end]
        np.testing.assert_allclose(weights[top].numpy(), expected, rtol=1e-5)
    torch.testing.assert_close(weights.sum(1), torch.ones(LONG))
    shown = Reduction.of("rollout")(maps(3, instances=1), rows([3]))
    torch.testing.assert_close(shown[0], rollout(layers)[0, 3])


def test_flow_is_the_largest_flow_of_another_library():
    layers = maps(2, instances=2)
    layers[0][1, :, :, 3] = 0  # nothing goes to the last input of the second text
    layers[1][1, :, :, 3] = 0
    shown = Reduction.of("flow")(layers, rows([0], [1, 2]))
    for row, tops in enumerate(([0], [1, 2])):
        graph, flows = networkx.DiGraph(), np.zeros(LONG)
        for number, layer in enumerate(layers):
            edges = 0.5 * (np.eye(LONG) + layer[row].mean(0).double().numpy())
            for (head, tail), capacity in np.ndenumerate(edges):
                graph.add_edge((number + 1, head), (number, tail), capacity=float(capacity))
        for top, end in itertools.product(tops, range(LONG)):
            flows[end] += networkx.maximum_flow_value(graph, (2, top), (0, end))
        np.testing.assert_allclose(shown[row].numpy(), flows / flows.sum(), atol=1e-7)
    assert flow([layer.mean(1) for layer in layers], rows([], [0]))[0].isnan().all()


def test_what_a_model_has_not_is_refused_before_any_text_is_read():
    model = SelfAttention(classifier("bart"))
    for reduction, wrong in (("rollout", "'rollout'"), ("flow", "'flow'"), ({"layers": "last", "head": 99}, "head 99")):
        with pytest.raises(SubjectError, match=wrong):
            model.shown_by(reduction)
