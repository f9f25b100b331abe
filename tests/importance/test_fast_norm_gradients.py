"""How far tokens move the length of states: the engine of each encoder against one backward pass a state."""

import copy
import math

import pytest
import torch
from torch import nn

from attnfaith.importance._fast import lstm_norm_gradients, norm_gradients
from attnfaith.importance._fast.shared import direction, slope_of_tanh
from attnfaith.models.encoders import ENCODERS
from tests import tolerances
from tests.small_encoders import build, build_subclass, close, texts


every_encoder = pytest.mark.parametrize("name", ENCODERS)


def all_norms(encoder, embedded, start, stop, method=norm_gradients.norm_gradients):
    """All parts (B,p,i) of the encoder's engine or of a given one; each place must come once."""
    lengths = torch.full((len(embedded), stop - start, stop - start), math.nan, dtype=embedded.dtype)
    for states, norms in method(encoder, embedded, start, stop):
        assert lengths[:, states].isnan().all() and not norms.requires_grad
        lengths[:, states] = norms
    return lengths


def one_pass_a_state(encoder, embedded, start, stop):
    """The same by torch.autograd, one backward pass for each state."""
    inputs = embedded.clone().requires_grad_()
    states, _ = encoder(inputs, torch.ones(embedded.shape[:2], dtype=torch.bool))
    lengths = states.norm(dim=-1).sum(0)
    slopes = [torch.autograd.grad(lengths[p], inputs, retain_graph=True)[0] for p in range(start, stop)]
    return torch.stack(slopes, 1)[:, :, start:stop].norm(dim=-1)


@pytest.mark.slow
@every_encoder
@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (1, 6), (2, 3), (0, 1), (6, 7)])
@pytest.mark.parametrize("batch", [1, 3])
def test_norm_gradients_are_those_of_one_pass_a_state(name, start, stop, batch, many, monkeypatch):
    monkeypatch.setattr(lstm_norm_gradients, "MANY_STATES", many)
    encoder, (embedded, _) = build(name), texts((7,) * batch)
    expected = one_pass_a_state(encoder, embedded, start, stop)
    assert (expected.diagonal(0, 1, 2) > 1e-4).all()
    close(all_norms(encoder, embedded, start, stop), expected)
    close(all_norms(encoder, embedded, start, stop, norm_gradients.define_norm_gradients), expected)


@every_encoder
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_norm_gradients_in_parts(name, limit, monkeypatch):
    encoder, (embedded, _) = build(name), texts((9, 9))
    whole = all_norms(encoder, embedded, 1, 8)
    for bound in ("STATES_AT_ONCE", "GRADIENTS_AT_ONCE"):
        monkeypatch.setattr(norm_gradients, bound, limit)
    monkeypatch.setattr(lstm_norm_gradients, "ADJOINTS_AT_ONCE", limit)
    assert sum(1 for _ in norm_gradients.norm_gradients(encoder, embedded, 1, 8)) > 1
    close(all_norms(encoder, embedded, 1, 8), whole)
    close(all_norms(encoder, embedded, 1, 8, norm_gradients.define_norm_gradients), whole)


BY_TORCH = ("transformer", "lstm")  # whose own backward pass has fewer digits there, which no engine replaces


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("name", "spread"), [*((name, 0.1) for name in ENCODERS), *((name, 3.0) for name in ENCODERS if name not in BY_TORCH)]
)
def test_norm_gradients_in_float32(name, many, spread, monkeypatch):
    """Also where gates are saturated: relative to the state's largest gradient, a few of the last digits."""
    monkeypatch.setattr(lstm_norm_gradients, "MANY_STATES", many)
    encoder, (embedded, _) = build(name), texts((40, 40))
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=spread)
    # weights first: rounded alike, so that only the arithmetic differs
    rough = encoder.float()
    expected = one_pass_a_state(copy.deepcopy(rough).double(), embedded.float().double(), 0, 40)
    rows = all_norms(rough, embedded.float(), 0, 40).double()
    scale = expected.amax(-1, keepdim=True)
    assert (scale > 0).all()
    condition = 100 if spread > 1 else 5  # of gates that are saturated
    tolerances.close(rows / scale, expected / scale, dtype=torch.float32, condition=condition)


def test_norm_gradients_of_an_untrained_transformer():
    """Gain 1 and bias 0 make all states equally long but for an epsilon: the rest is no rounding noise."""
    encoder, (embedded, _) = build("transformer"), texts((12, 12))
    for layer in encoder.layers:
        for norm in (layer.attention_norm, layer.feed_forward_norm):
            norm.reset_parameters()
    rough = encoder.float()
    expected = one_pass_a_state(copy.deepcopy(rough).double(), embedded.float().double(), 0, 12)
    scale = expected.amax(-1, keepdim=True)
    assert scale.max() < 1e-2
    rows = all_norms(rough, embedded.float(), 0, 12).double()
    close(rows / scale, expected / scale, 1e-4)
    naive = one_pass_a_state(rough, embedded.float(), 0, 12).double()
    assert (naive - expected).abs().max() > 10 * (rows - expected).abs().max()  # what this is for


@every_encoder
def test_norm_gradients_leave_no_trace(name):
    """Neither on the gradient mode, also between parts, nor on parameters and inputs."""
    encoder, (embedded, _) = build(name), texts((6, 6))
    embedded.requires_grad_()
    for _ in norm_gradients.norm_gradients(encoder, embedded, 1, 5):
        assert torch.is_grad_enabled() and torch.backends.cudnn.enabled
    with torch.no_grad():
        for _ in norm_gradients.norm_gradients(encoder, embedded, 1, 5):
            assert not torch.is_grad_enabled()
    assert embedded.grad is None and all(p.grad is None and p.requires_grad for p in encoder.parameters())


@every_encoder
def test_a_subclass_has_the_gradients_of_its_own_forward_pass(name):
    encoder, (embedded, _) = build_subclass(name), texts((7, 7))
    assert type(encoder) not in norm_gradients.ENGINES
    close(all_norms(encoder, embedded, 1, 6), one_pass_a_state(encoder, embedded, 1, 6))


def test_direction_and_slope_of_tanh_by_hand():
    states = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-30, 4e-30]])
    close(direction(states), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]), 1e-7)
    far = torch.tensor([0.0, 0.5, -12.0])
    expected = (1 / far.double().cosh().square()).float()
    torch.testing.assert_close(slope_of_tanh(far), expected, atol=0, rtol=1e-6)
