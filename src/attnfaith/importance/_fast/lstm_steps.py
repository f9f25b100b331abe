"""What an LSTM layer of torch does not give: its gates and its memory, step by step."""

import torch
from torch import nn


def lstm_steps(lstm, tokens, dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What an LSTM computes of tokens (T,B,E), step by step, from states that the layer itself gives.

    Returns these states (T,B,D); the gates i, f, g, o before their sigmoid or tanh, (T,B,4,D); and the memory (T+1,B,D),
    where the first is the zero that it starts with.
    """
    length, batch, _ = tokens.shape
    states = lstm(tokens)[0]
    before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
    gates = nn.functional.linear(tokens, lstm.weight_ih_l0, lstm.bias_ih_l0)
    gates = (gates + nn.functional.linear(before, lstm.weight_hh_l0, lstm.bias_hh_l0)).to(dtype)
    gates = gates.view(length, batch, 4, -1)
    enter, keep, _, _ = gates.sigmoid().unbind(2)
    candidate = gates[:, :, 2].tanh()
    memory = torch.zeros_like(keep[:1]).repeat(length + 1, 1, 1)
    for position in range(length):
        torch.addcmul(enter[position] * candidate[position], keep[position], memory[position], out=memory[position + 1])
    return states, gates, memory
