"""Decoders: logits by hand, and whether `affine` tells the truth."""

import pytest
import torch

from attnfaith.models import AttentionClassifierConfig
from attnfaith.models.decoders import DECODERS


def build(name, query="learned"):
    torch.manual_seed(0)
    return DECODERS[name](AttentionClassifierConfig(hidden_size=4, query=query, num_labels=3)).double()


def vectors(*shape):
    return torch.randn(*shape, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("name", DECODERS)
def test_affine_tells_the_truth(name, query):
    """An affine map takes a mean of contexts to the mean of their logits."""
    decoder, context = build(name, query), 3 * vectors(2)
    value = vectors(1)[0] if query == "text" else None
    gap = decoder(context.mean(0), value) - decoder(context, value).mean(0)
    assert (gap.abs().max() < 1e-12) == decoder.affine


def test_affine_by_hand():
    decoder, context, query = build("affine", "text"), vectors(2), vectors(2, 1)[:, 0]
    for row in range(2):
        expected = decoder.context.weight @ context[row] + decoder.context.bias + decoder.query.weight @ query[row]
        torch.testing.assert_close(decoder(context, query)[row], expected)
    assert decoder.query.bias is None


def test_tanh_by_hand():
    decoder, context, query = build("tanh", "text"), vectors(2), vectors(2, 1)[:, 0]
    assert decoder.context.weight.shape == (2, 4)
    for row in range(2):
        inner = decoder.context.weight @ context[row] + decoder.context.bias
        inner = inner + decoder.query.weight @ query[row] + decoder.query.bias
        expected = decoder.output.weight @ inner.tanh() + decoder.output.bias
        torch.testing.assert_close(decoder(context, query)[row], expected)
