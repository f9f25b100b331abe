"""Encoders against torch's own layers and hand sums, and what every encoder promises."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnfaith.models.encoders import ENCODERS, sinusoidal_positions
from tests.small_encoders import LENGTHS, SIZE, build, close, texts


@pytest.mark.parametrize("name", ENCODERS)
def test_what_every_encoder_promises(name):
    """Padding, batch and order do not matter, whatever stands on the padding; `contextual` is whether other tokens do."""
    encoder, (embedded, mask) = build(name), texts(padding=1e3)
    states, last = encoder(embedded, mask)
    for row, length in enumerate(LENGTHS):
        alone, alone_last = encoder(embedded[row : row + 1, :length], mask[row : row + 1, :length])
        close(states[row : row + 1, :length], alone)
        close(last[row : row + 1], alone_last)
    order = torch.tensor([3, 0, 4, 2, 1])
    shuffled, shuffled_last = encoder(embedded[order], mask[order])
    close(shuffled, states[order])
    close(shuffled_last, last[order])
    empty = mask & (torch.arange(5) != 2)[:, None]
    states, last = encoder(embedded, empty)
    assert states.isfinite().all() and (states[2] == 0).all() and (last[2] == 0).all()
    embedded, mask = texts((6,))
    changed = embedded.clone()
    changed[:, 2] += 1
    difference = (encoder(changed, mask)[0] - encoder(embedded, mask)[0]).abs().sum(-1)[0] > 1e-9
    assert difference[2] and difference[[0, 1, 3, 4, 5]].any() == encoder.contextual


def test_positions_by_hand():
    expected = [[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]]
    close(sinusoidal_positions(2, 4).double(), torch.tensor(expected).double(), 1e-7)
    assert sinusoidal_positions(3, 5).shape == (3, 5)


@pytest.mark.parametrize(("name", "layer"), [("bilstm", nn.LSTM), ("bigru", nn.GRU), ("lstm", nn.LSTM)])
def test_recurrent_encoders_are_torchs_packed_ones(name, layer):
    encoder, (embedded, mask) = build(name), texts()
    both = name != "lstm"
    theirs = layer(SIZE, SIZE // 2 if both else SIZE, batch_first=True, bidirectional=both).double()
    onward, *backward = (direction.state_dict() for direction in (encoder.directions if both else [encoder.forward_lstm]))
    theirs.load_state_dict({**onward, **{f"{name}_reverse": value for part in backward for name, value in part.items()}})
    packed = pack_padded_sequence(embedded, mask.sum(1), batch_first=True, enforce_sorted=False)
    output, final = theirs(packed)
    states, last = encoder(embedded, mask)
    close(states, pad_packed_sequence(output, batch_first=True)[0])
    close(last, torch.cat([*(final[0] if layer is nn.LSTM else final)], -1))


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


def test_orthogonal_states_step_by_step():
    """The cell in numpy, one text after another: the gates in torch's order i, f, g, o; the memory stays as it is."""
    encoder, (embedded, mask) = build("orthogonal_lstm"), texts()
    layer = {name: value.numpy() for name, value in encoder.forward_lstm.state_dict().items()}

    def sigmoid(values):
        return 1 / (1 + np.exp(-values))

    states, last = encoder(embedded, mask)
    for row, length in enumerate(mask.sum(1).tolist()):
        before, memory, state = [], np.zeros(SIZE), np.zeros(SIZE)
        for token in embedded[row, :length].numpy():
            gates = layer["weight_ih_l0"] @ token + layer["bias_ih_l0"] + layer["weight_hh_l0"] @ state + layer["bias_hh_l0"]
            enter, keep, candidate, leave = np.split(gates, 4)
            memory = sigmoid(keep) * memory + sigmoid(enter) * np.tanh(candidate)
            state = sigmoid(leave) * np.tanh(memory)
            if before:
                mean = np.mean(before, 0)
                state = state - state @ mean / (mean @ mean + 1e-6) * mean
            before.append(state)
        close(states[row, :length], torch.from_numpy(np.array(before)))
        close(last[row], torch.from_numpy(state))
        assert not states[row, length:].any()
