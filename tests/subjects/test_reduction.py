"""How many layers and heads become the one vector that a person is shown."""

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
    ("given", "fields", "layers"),
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
def test_what_may_be_given(given, fields, layers):
    made = Reduction.of(given)
    assert (made.way, made.layers, made.head) == fields and made.chosen(4) == layers
    assert Reduction.of(made) is made
    assert made.one_head is (given == {"layers": 2, "head": 0})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("first", "attention='first' is no reduction; give 'last', 'all', 'rollout', 'flow'"),
        (3, "attention=3 is no reduction"),
        ({"layer": 1}, "is no reduction"),
        ({"way": "product"}, "reduction 'product' is not known; choose one of mean, rollout, flow"),
        ({"layers": -1}, "layers=-1; give 'last', 'all', or the number of a layer from 0 on"),
        ({"layers": True}, "layers=True"),
        ({"layers": 1.0}, r"layers=1\.0"),
        ({"head": -1}, "head=-1; give the number of a head from 0 on"),
        ({"head": "mean"}, "head='mean'"),
        ({"way": "rollout", "head": 1}, "reduction 'rollout' takes all layers and heads"),
        ({"way": "flow", "layers": 1}, "reduction 'flow' takes all layers and heads"),
    ],
)
def test_what_may_not(given, said):
    with pytest.raises(SubjectError, match=said):
        Reduction.of(given)


def test_a_layer_or_a_head_that_there_is_not():
    with pytest.raises(SubjectError, match="there is no layer 4; the model has 4, counted from 0"):
        Reduction.of({"layers": 4}).chosen(4)
    with pytest.raises(SubjectError, match="there is no head 3; layer 0 has 3, counted from 0"):
        Reduction(layers=0, head=3).check([HEADS, HEADS], {})


def test_means_are_of_the_rows_that_matter_the_heads_and_the_layers():
    layers, matter = maps(), rows([0], [1, 4])
    of_all = Reduction.of("all")(layers, matter)
    of_head = Reduction.of({"layers": "all", "head": 2})(layers, matter)
    for row, places in enumerate(([0], [1, 4])):
        whole = torch.stack([one[row] for one in layers])
        torch.testing.assert_close(of_all[row], whole[:, :, places].mean((0, 1, 2)))
        torch.testing.assert_close(of_head[row], whole[:, 2, places].mean((0, 1)))
    torch.testing.assert_close(Reduction.of("last")(layers[1:], matter)[1], layers[1][1][:, [1, 4]].mean((0, 1)))
    assert Reduction.of("last")(layers[1:], rows([], [0]))[0].isnan().all()


@pytest.mark.parametrize("residual", [0.5, 0.0, 0.25])
def test_rollout_is_the_sum_over_all_paths(residual):
    """By hand: every way from a position of the last layer down to an input, weighed by its edges."""
    layers = [one.mean(1) for one in maps(3, instances=1)]
    made = rollout(layers, residual)[0]
    edges = [(residual * torch.eye(LONG) + (1 - residual) * one[0]).numpy() for one in layers]
    for top in (0, 3):
        expected = np.zeros(LONG)
        for middle in range(LONG):
            for low in range(LONG):
                for end in range(LONG):
                    expected[end] += edges[2][top, middle] * edges[1][middle, low] * edges[0][low, end]
        np.testing.assert_allclose(made[top].numpy(), expected, rtol=1e-5)
    torch.testing.assert_close(made.sum(1), torch.ones(LONG))
    shown = Reduction.of("rollout")(maps(3, instances=1), rows([3]))
    torch.testing.assert_close(shown[0], rollout(layers)[0, 3])


def test_flow_is_the_largest_flow_of_another_library():
    layers = maps(2, instances=2)
    layers[0][1, :, :, 3] = 0  # nothing goes to the last input of the second text
    layers[1][1, :, :, 3] = 0
    shown = Reduction.of("flow")(layers, rows([0], [1, 2]))
    for row, tops in enumerate(([0], [1, 2])):
        edges = [0.5 * (np.eye(LONG) + one[row].mean(0).double().numpy()) for one in layers]
        flows = np.zeros(LONG)
        for top in tops:
            for end in range(LONG):
                graph = networkx.DiGraph()
                for upper, matrix in ((1, edges[1]), (0, edges[0])):
                    for head in range(LONG):
                        for tail in range(LONG):
                            graph.add_edge((upper + 1, head), (upper, tail), capacity=float(matrix[head, tail]))
                flows[end] += networkx.maximum_flow_value(graph, (2, top), (0, end))
        np.testing.assert_allclose(shown[row].numpy(), flows / flows.sum(), atol=1e-7)
    assert flow([one.mean(1) for one in layers], rows([], [0]))[0].isnan().all()


def test_what_a_model_has_not_is_refused_before_any_text_is_read():
    model = SelfAttention(classifier("bart"))
    for way in ("rollout", "flow"):
        with pytest.raises(
            SubjectError, match=f"^'{way}' multiplies .*decoder's over an encoder.*: choose 'last', 'all' or one"
        ):
            model.shown_by(way)
    with pytest.raises(SubjectError, match=r"^there is no head 99; layer 1 has \d+, counted from 0$"):
        model.shown_by({"layers": "last", "head": 99})
