"""Alignments: scores by hand, with and without a query."""

import math

import torch

from attnfaith.models import AttentionClassifierConfig
from attnfaith.models.alignments import ALIGNMENTS


def build(name, query="learned", **fields):
    torch.manual_seed(0)
    return ALIGNMENTS[name](AttentionClassifierConfig(hidden_size=4, query=query, **fields)).double()


HIDDEN = torch.tensor(
    [[[1.0, 0.5, -1.0, 2.0], [0.0, 0.0, 0.0, 0.0]], [[-2.0, 0.1, 0.3, 0.0], [1.0, 1.0, 1.0, 1.0]]]
).double()
QUERY = torch.tensor([[0.5, 1.0, 0.0, -1.0], [2.0, 0.0, 1.0, 3.0]]).double()


def test_additive_by_hand():
    alignment = build("additive")
    weight, bias, value = alignment.key.weight, alignment.key.bias, alignment.value.weight[0]
    assert weight.shape == (2, 4) and alignment.value.bias is None
    for row in range(2):
        for token in range(2):
            expected = sum(value[a] * torch.tanh(weight[a] @ HIDDEN[row, token] + bias[a]) for a in range(2))
            torch.testing.assert_close(alignment(HIDDEN)[row, token], expected)


def test_additive_with_query_by_hand():
    alignment = build("additive", "text", alignment_size=3)
    for row in range(2):
        inner = alignment.key.weight @ HIDDEN[row, 0] + alignment.key.bias
        inner = inner + alignment.query.weight @ QUERY[row] + alignment.query.bias
        expected = (alignment.value.weight[0] * inner.tanh()).sum()
        torch.testing.assert_close(alignment(HIDDEN, QUERY)[row, 0], expected)


def test_dot_by_hand():
    alignment = build("dot", "text")
    assert not list(alignment.parameters())
    expected = [[(0.5 + 0.5 - 2.0) / 2, 0.0], [(-4.0 + 0.3) / 2, 6.0 / 2]]
    torch.testing.assert_close(alignment(HIDDEN, QUERY), torch.tensor(expected).double())


def test_dot_with_learned_query_by_hand():
    alignment = build("dot")
    with torch.no_grad():
        alignment.query.weight.copy_(QUERY[:1])
    expected = torch.tensor([[-1.0, 0.0], [-1.0 + 0.1, 0.5]]).double() / math.sqrt(4)
    torch.testing.assert_close(alignment(HIDDEN), expected)
