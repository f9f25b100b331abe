"""Products of embeddings and gradients: the engine of each encoder against autograd."""

import pytest
import torch

from attnfaith.importance._fast.entering import Gates, enter
from attnfaith.importance._fast.products import define_products, input_products
from attnfaith.models.encoders import ENCODERS, BiLSTM
from tests.small_encoders import build, build_subclass, close, texts


def slopes_of(states):
    return torch.randn(states.shape, dtype=states.dtype, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("make", [build, build_subclass], ids=["itself", "subclass"])
@pytest.mark.parametrize("padding", [0.0, 1e3])
def test_gradients_in_the_direction_of_the_embeddings(name, make, padding):
    encoder, (embedded, mask) = make(name), texts(padding=padding)
    inputs = embedded.clone().requires_grad_()
    states, _ = encoder(inputs, mask)
    slopes = slopes_of(states)
    (expected,) = torch.autograd.grad(states, inputs, slopes)
    entered = enter(encoder, embedded, mask, states)
    assert isinstance(entered, Gates) if type(encoder) is BiLSTM else entered.equal(embedded)
    made = input_products(encoder, entered, mask, slopes)
    assert not made.requires_grad
    close(made[mask], (embedded * expected).sum(-1)[mask])


@pytest.mark.parametrize("length", [1, 2])
def test_short_texts(length):
    encoder, (embedded, mask) = build("bilstm"), texts()
    embedded, mask = embedded[:, :length], mask[:, :length]
    states = encoder(embedded, mask)[0].detach()
    slopes = slopes_of(states)
    made = input_products(encoder, enter(encoder, embedded, mask, states), mask, slopes)
    close(made[mask], define_products(encoder, embedded, mask, slopes)[mask])


def test_a_text_alone_and_in_a_batch():
    """To the last digits of float32, with other texts of other lengths and far more padding."""
    encoder, (embedded, mask) = build("bilstm").float(), texts()
    embedded = torch.nn.functional.pad(embedded.float(), (0, 0, 0, 30))
    mask = torch.nn.functional.pad(mask, (0, 30))
    states = encoder(embedded, mask)[0].detach()
    slopes = slopes_of(states)
    together = input_products(encoder, enter(encoder, embedded, mask, states), mask, slopes)
    for row, length in enumerate(mask.sum(1).tolist()):
        part = slice(row, row + 1), slice(0, length)
        entered = enter(encoder, embedded[part], mask[part], states[part])
        alone = input_products(encoder, entered, mask[part], slopes[part])
        torch.testing.assert_close(together[part], alone, rtol=1e-5, atol=1e-6)
