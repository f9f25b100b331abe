"""Encoders against torch's own layers and hand sums, and what every encoder promises."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnfaith.models import encoders
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.encoders import (
    ENCODERS,
    Encoder,
    direction,
    in_one,
    mean_over_tokens,
    remaining_positions,
    reverse_by_length,
    sinusoidal_positions,
    slope_of_tanh,
    take,
)


SIZE = 8  # of embeddings and states
LENGTHS = (7, 1, 4, 9, 2)
every_encoder = pytest.mark.parametrize("name", ENCODERS)


def build(name, seed=0, **fields):
    fields = {"embedding_size": SIZE, "hidden_size": SIZE, "intermediate_size": 12, "num_attention_heads": 2, **fields}
    torch.manual_seed(seed)
    encoder = ENCODERS[name](AttentionClassifierConfig(encoder=name, **fields)).double().eval()
    for parameter in encoder.parameters():  # layer norms and biases too: no part may hide behind a 0 or a 1
        nn.init.normal_(parameter, std=0.5)
    return encoder


def texts(lengths=LENGTHS, padding=0.0):
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    embedded = torch.randn(*mask.shape, SIZE, dtype=torch.float64, generator=generator)
    return torch.where(mask[..., None], embedded, padding), mask


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


# What every encoder promises


@every_encoder
def test_shapes_and_padding(name):
    encoder, (embedded, mask) = build(name), texts()
    states, last = encoder(embedded, mask)
    assert states.shape == (5, 9, SIZE) and last.shape == (5, SIZE)
    assert (states[~mask] == 0).all()
    assert (states[mask].abs().sum(-1) > 0).all()


@every_encoder
@pytest.mark.parametrize("padding", [0.0, 1e3])
def test_padding_batch_and_order_do_not_matter(name, padding):
    """Whatever stands on the padding: also the embedding of the padding token after someone trained it."""
    encoder, (embedded, mask) = build(name), texts(padding=padding)
    states, last = encoder(embedded, mask)
    for row, length in enumerate(LENGTHS):
        alone, alone_last = encoder(embedded[row : row + 1, :length], mask[row : row + 1, :length])
        close(states[row : row + 1, :length], alone)
        close(last[row : row + 1], alone_last)
    order = torch.tensor([3, 0, 4, 2, 1])
    shuffled, shuffled_last = encoder(embedded[order], mask[order])
    close(shuffled, states[order])
    close(shuffled_last, last[order])


@every_encoder
def test_empty_text(name):
    encoder, (embedded, mask) = build(name), texts()
    mask = mask & (torch.arange(5) != 2)[:, None]
    states, last = encoder(embedded, mask)
    assert states.isfinite().all() and (states[2] == 0).all()
    assert (last[2] == 0).all()


@every_encoder
def test_contextual_says_whether_other_tokens_matter(name):
    encoder, (embedded, mask) = build(name), texts((6,))
    changed = embedded.clone()
    changed[:, 2] += 1
    difference = (encoder(changed, mask)[0] - encoder(embedded, mask)[0]).abs().sum(-1)[0] > 1e-9
    assert difference[2]
    assert difference[[0, 1, 3, 4, 5]].any() == encoder.contextual


@every_encoder
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (1, 6), (2, 3), (0, 1), (6, 7)])
@pytest.mark.parametrize("batch", [1, 3])
def test_without_is_deletion(name, start, stop, batch):
    encoder, (embedded, mask) = build(name), texts((7,) * batch)
    states = encoder.without(embedded, start, stop)
    assert states.shape == (stop - start, batch, 6, SIZE)
    assert not states.isnan().any()
    for variant, position in enumerate(range(start, stop)):
        kept = [t for t in range(7) if t != position]
        close(states[variant], encoder(embedded[:, kept], mask[:, kept])[0])


@every_encoder
def test_parts_without_cover_each_place_once(name):
    encoder, (embedded, _) = build(name), texts((7, 7))
    with torch.no_grad():
        [(rows, positions, definition)] = Encoder.blocks_without(encoder, embedded, 1, 5)
        assert (rows, positions, definition.shape) == (slice(0, 4), slice(0, 6), (4, 2, 6, SIZE))
        covered = torch.zeros(4, 6)
        for rows, positions, block in encoder.blocks_without(embedded, 1, 5):
            covered[rows, positions] += 1
            close(block, definition[rows, :, positions])
    assert (covered == 1).all()


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("replaces", [True, False])
def test_changes_that_an_lstm_forgets(replaces, forgets, monkeypatch):
    """What the forget gates let go is not run on; the states are those of texts that are read again."""
    encoder, (embedded, _) = build("bilstm"), texts((60, 60, 60))
    for lstm in encoder.directions:
        lstm.weight_hh_l0.data *= 0.05
        lstm.bias_ih_l0.data[SIZE // 2 : SIZE] = -4.0 if forgets else 40.0
    changes, shape = ((embedded.flip(1),), (50, 3, 60)) if replaces else ((), (50, 3, 59))
    name, asked = "blocks_replaced" if replaces else "blocks_without", []
    inner = encoders._forgotten
    monkeypatch.setattr(encoders, "_forgotten", lambda *given: asked.append(inner(*given)) or asked[-1])
    with torch.no_grad():
        expected = encoders.in_one(getattr(Encoder, name)(encoder, embedded, *changes, 3, 53), shape)
        close(encoders.in_one(getattr(encoder, name)(embedded, *changes, 3, 53), shape), expected)
        covered = torch.zeros(50, shape[2])
        for rows, positions, _ in getattr(encoder, name)(embedded, *changes, 3, 53):
            covered[rows, positions] += 1
    assert (covered == 1).all()
    assert sum(asked) > 60 if forgets else asked and not any(asked)


@every_encoder
def test_without_in_float32_and_for_two_tokens(name):
    encoder, (embedded, mask) = build(name).float(), texts((2, 2))
    states = encoder.without(embedded.float(), 0, 2)
    close(states[0], encoder(embedded[:, 1:].float(), mask[:, 1:])[0], 1e-5)
    close(states[1], encoder(embedded[:, :1].float(), mask[:, :1])[0], 1e-5)


@every_encoder
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (1, 6), (2, 3), (0, 1), (6, 7)])
def test_replaced_tokens(name, start, stop):
    encoder, (embedded, mask) = build(name), texts((7, 7))
    filling = embedded.flip(0, 1) + 1
    with torch.no_grad():
        [(_, _, definition)] = Encoder.blocks_replaced(encoder, embedded, filling, start, stop)
        covered = torch.zeros(stop - start, 7)
        for rows, positions, block in encoder.blocks_replaced(embedded, filling, start, stop):
            covered[rows, positions] += 1
            close(block, definition[rows, :, positions])
    assert (covered == 1).all()
    for variant, position in enumerate(range(start, stop)):
        changed = embedded.clone()
        changed[:, position] = filling[:, position]
        close(definition[variant], encoder(changed, mask)[0].detach())


@every_encoder
def test_one_filling_for_all_and_states_that_are_known(name):
    encoder, (embedded, mask) = build(name), texts((7, 7))
    filling = embedded[0, 0] + 1
    with torch.no_grad():
        known, _ = encoder(embedded, mask)
        for whole in (None, known):
            same = (
                (
                    encoder.blocks_replaced(embedded, filling, 1, 6, whole),
                    Encoder.blocks_replaced(encoder, embedded, filling.expand_as(embedded), 1, 6),
                    (5, 2, 7),
                ),
                (encoder.blocks_without(embedded, 1, 6, whole), Encoder.blocks_without(encoder, embedded, 1, 6), (5, 2, 6)),
            )
            for ours, definition, shape in same:
                close(in_one(ours, shape), in_one(definition, shape))


@every_encoder
@pytest.mark.parametrize("padding", [0.0, 1e3])
def test_points_of_a_line(name, padding):
    """States at each point, and a gradient in the start that is the sum over points, from embeddings on."""
    encoder, (embedded, mask) = build(name), texts(padding=padding)
    close(encoder.proceed(encoder.enter(embedded), mask), encoder(embedded, mask)[0])
    shares = torch.tensor([0.0, 0.3, 0.9, 1.0], dtype=torch.float64)
    target = embedded.flip(0).where(mask.unsqueeze(-1), embedded) * 2
    start = embedded.clone().requires_grad_()
    entered = encoder.enter(start)
    states = encoder.along(entered, (encoder.enter(target) - entered).detach(), shares, mask)
    assert states.shape == (5, 4, 9, SIZE)
    weights = torch.randn(states.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (slopes,) = torch.autograd.grad((states * weights).sum(), start)
    expected = torch.zeros_like(embedded)
    for place, share in enumerate(shares):
        point = (embedded + share * (target - embedded)).requires_grad_()
        alone = encoder(point, mask)[0]
        close(states[:, place], alone)
        expected += torch.autograd.grad((alone * weights[:, place]).sum(), point)[0]
    close(slopes[mask], expected[mask])
    if name == "bilstm":
        assert (slopes[~mask] == 0).all()


def length_gradients(encoder, embedded, start, stop, method=None):
    """All parts of `norm_gradients` (B,p,i), of the class's own or a given one; each place must come once."""
    parts = (method or type(encoder).norm_gradients)(encoder, embedded, start, stop)
    found = torch.full((len(embedded), stop - start, stop - start), math.nan, dtype=embedded.dtype)
    for states, norms in parts:
        assert found[:, states].isnan().all() and not norms.requires_grad
        found[:, states] = norms
    return found


def one_pass_a_state(encoder, embedded, start, stop):
    """The same by torch.autograd, one backward pass for each state."""
    inputs = embedded.clone().requires_grad_()
    states, _ = encoder(inputs, torch.ones(embedded.shape[:2], dtype=torch.bool))
    lengths = states.norm(dim=-1).sum(0)
    slopes = [torch.autograd.grad(lengths[p], inputs, retain_graph=True)[0] for p in range(start, stop)]
    return torch.stack(slopes, 1)[:, :, start:stop].norm(dim=-1)


@every_encoder
@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (1, 6), (2, 3), (0, 1), (6, 7)])
@pytest.mark.parametrize("batch", [1, 3])
def test_norm_gradients_are_those_of_one_pass_a_state(name, start, stop, batch, many, monkeypatch):
    monkeypatch.setattr(encoders, "MANY_STATES", many)
    encoder, (embedded, _) = build(name), texts((7,) * batch)
    expected = one_pass_a_state(encoder, embedded, start, stop)
    assert (expected.diagonal(0, 1, 2) > 1e-4).all()
    close(length_gradients(encoder, embedded, start, stop), expected)
    close(length_gradients(encoder, embedded, start, stop, Encoder.norm_gradients), expected)


@every_encoder
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_norm_gradients_in_parts(name, limit, monkeypatch):
    encoder, (embedded, _) = build(name), texts((9, 9))
    whole = length_gradients(encoder, embedded, 1, 8)
    for bound in ("STATES_AT_ONCE", "GRADIENTS_AT_ONCE", "ADJOINTS_AT_ONCE"):
        monkeypatch.setattr(encoders, bound, limit)
    assert sum(1 for _ in encoder.norm_gradients(embedded, 1, 8)) > 1
    close(length_gradients(encoder, embedded, 1, 8), whole)
    close(length_gradients(encoder, embedded, 1, 8, Encoder.norm_gradients), whole)


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize(
    ("name", "spread"), [*((name, 0.1) for name in ENCODERS), *((name, 3.0) for name in ENCODERS if name != "transformer")]
)
def test_norm_gradients_in_float32(name, many, spread, monkeypatch):
    """Also where gates are saturated: relative to the state's largest gradient, a few of the last digits."""
    monkeypatch.setattr(encoders, "MANY_STATES", many)
    encoder, (embedded, _) = build(name), texts((40, 40))
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=spread)
    # weights first: rounded alike, so that only the arithmetic differs
    rough = encoder.float()
    expected = one_pass_a_state(copy.deepcopy(rough).double(), embedded.float().double(), 0, 40)
    found = length_gradients(rough, embedded.float(), 0, 40).double()
    scale = expected.amax(-1, keepdim=True)
    assert (scale > 0).all()
    close(found / scale, expected / scale, 1e-4 if spread > 1 else 1e-5)


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
    found = length_gradients(rough, embedded.float(), 0, 12).double()
    close(found / scale, expected / scale, 1e-4)
    naive = one_pass_a_state(rough, embedded.float(), 0, 12).double()
    assert (naive - expected).abs().max() > 10 * (found - expected).abs().max()  # what this is for


@every_encoder
def test_norm_gradients_leave_no_trace(name):
    """Neither on the gradient mode, also between parts, nor on parameters and inputs."""
    encoder, (embedded, _) = build(name), texts((6, 6))
    embedded.requires_grad_()
    for _ in encoder.norm_gradients(embedded, 1, 5):
        assert torch.is_grad_enabled() and torch.backends.cudnn.enabled
    with torch.no_grad():
        for _ in encoder.norm_gradients(embedded, 1, 5):
            assert not torch.is_grad_enabled()
    assert embedded.grad is None and all(p.grad is None and p.requires_grad for p in encoder.parameters())


def test_direction_and_slope_of_tanh_by_hand():
    states = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-30, 4e-30]])
    close(direction(states), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]), 1e-7)
    far = torch.tensor([0.0, 0.5, -12.0])
    expected = (1 / far.double().cosh().square()).float()
    torch.testing.assert_close(slope_of_tanh(far), expected, atol=0, rtol=1e-6)


@every_encoder
def test_gradient(name):
    encoder, (embedded, mask) = build(name), texts((3, 2))
    embedded.requires_grad_()
    assert torch.autograd.gradcheck(lambda e: encoder(e, mask), embedded)


@every_encoder
def test_every_parameter_is_used(name):
    encoder, (embedded, mask) = build(name), texts()
    states, last = encoder(embedded.requires_grad_(), mask)
    (states.square().sum() + last.square().sum()).backward()
    for parameter_name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, parameter_name


# Helpers by hand


def test_remaining_positions_by_hand():
    assert remaining_positions(4, 1, 4).tolist() == [[0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert remaining_positions(3, 0, 1).tolist() == [[1, 2]]
    assert remaining_positions(1, 0, 1).shape == (1, 0)


def test_reverse_by_length_by_hand():
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    assert reverse_by_length(mask).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3], [0, 1, 2, 3], [3, 2, 1, 0]]


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_reverse_by_length_is_its_own_inverse(lengths):
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    positions = reverse_by_length(mask)
    assert (positions.gather(1, positions) == torch.arange(9)).all()
    assert (positions.sort(1).values == torch.arange(9)).all()
    assert (mask.gather(1, positions) == mask).all()


def test_take_by_hand():
    values = torch.tensor([[[1, 2], [3, 4], [5, 6]]])
    assert take(values, torch.tensor([[2, 0]])).tolist() == [[[5, 6], [1, 2]]]


def test_mean_over_tokens_by_hand():
    states = torch.tensor([[[1.0], [3.0], [8.0]], [[5.0], [7.0], [9.0]]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    assert mean_over_tokens(states, mask).tolist() == [[2.0], [0.0]]


def test_positions_by_hand():
    expected = [[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]]
    close(sinusoidal_positions(2, 4).double(), torch.tensor(expected).double(), 1e-7)
    assert sinusoidal_positions(3, 5).shape == (3, 5)


# Against torch's own layers, and by hand


@pytest.mark.parametrize(("name", "layer"), [("bilstm", nn.LSTM), ("bigru", nn.GRU)])
def test_bidirectional_encoders_are_torchs_packed_ones(name, layer):
    encoder, (embedded, mask) = build(name), texts()
    theirs = layer(SIZE, SIZE // 2, batch_first=True, bidirectional=True).double()
    onward, backward = (direction.state_dict() for direction in encoder.directions)
    theirs.load_state_dict(onward | {f"{name}_reverse": value for name, value in backward.items()})
    packed = pack_padded_sequence(embedded, mask.sum(1), batch_first=True, enforce_sorted=False)
    output, final = theirs(packed)
    final = final[0] if name == "bilstm" else final
    states, last = encoder(embedded, mask)
    close(states, pad_packed_sequence(output, batch_first=True)[0])
    close(last, torch.cat([final[0], final[1]], -1))


@pytest.mark.parametrize("heads", [1, 2])
def test_transformer_is_torchs_encoder(heads):
    encoder, (embedded, mask) = build("transformer", num_attention_heads=heads), texts()
    layer = nn.TransformerEncoderLayer(SIZE, heads, 12, dropout=0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()
    names = {
        "attention.inputs.weight": "self_attn.in_proj_weight",
        "attention.inputs.bias": "self_attn.in_proj_bias",
        "attention.output": "self_attn.out_proj",
        "attention_norm": "norm1",
        "feed_forward.0": "linear1",
        "feed_forward.2": "linear2",
        "feed_forward_norm": "norm2",
    }
    weights = {}
    for name, value in encoder.layers.state_dict().items():
        for ours, other in names.items():
            name = name.replace(ours, other)
        weights[f"layers.{name}"] = value
    theirs.load_state_dict(weights)
    inputs = encoder.projection(embedded) + sinusoidal_positions(9, SIZE).double()
    expected = theirs(inputs, src_key_padding_mask=~mask) * mask[..., None]
    states, last = encoder(embedded, mask)
    close(states, expected)
    for row, length in enumerate(LENGTHS):
        close(last[row], states[row, :length].mean(0))


def test_cnn_by_hand():
    encoder, (embedded, mask) = build("cnn"), texts((3, 5))
    states, last = encoder(embedded, mask)
    for row, length in enumerate((3, 5)):
        for position in range(length):
            expected = []
            for convolution in encoder.convolutions:
                width = convolution.weight.shape[-1]
                total = convolution.bias.clone()
                for offset in range(width):
                    read = position + offset - width // 2
                    if 0 <= read < length:
                        total += convolution.weight[:, :, offset] @ embedded[row, read]
                expected.append(total.relu())
            close(states[row, position], torch.cat(expected))
        close(last[row], states[row, :length].amax(0))


def test_cnn_widths_share_the_states():
    encoder = build("cnn", kernel_sizes=(1, 5))
    assert [convolution.weight.shape for convolution in encoder.convolutions] == [(4, SIZE, 1), (4, SIZE, 5)]


def test_average_by_hand():
    encoder, (embedded, mask) = build("average"), texts((2, 1))
    states, last = encoder(embedded, mask)
    weight, bias = encoder.projection.weight.detach().numpy(), encoder.projection.bias.detach().numpy()
    expected = np.tanh(embedded.numpy() @ weight.T + bias)
    np.testing.assert_allclose(states[0].detach(), expected[0], atol=1e-12)
    np.testing.assert_allclose(last.detach(), [expected[0].mean(0), expected[1, 0]], atol=1e-12)


def test_embedding_passes_through():
    encoder, (embedded, mask) = build("embedding"), texts((2, 1))
    states, last = encoder(embedded, mask)
    close(states, embedded)
    close(last, torch.stack([embedded[0].mean(0), embedded[1, 0]]))
    assert not list(encoder.parameters())
