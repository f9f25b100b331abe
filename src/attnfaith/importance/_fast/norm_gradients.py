"""How far a token moves the length of a state: ||d ||h_p||_2 / d x_i||_2 for states p and tokens i.

A text's norms come in parts, (states p counted from start, norms (B, p, stop - start)), each state once, in float32 or what
is more exact. A state that is the zero vector, where a length has no derivative, has norms of 0.
"""

import copy
from collections.abc import Iterator

import torch

from attnfaith.importance._fast import lstm_norm_gradients
from attnfaith.importance._fast.shared import STATES_AT_ONCE, direction, norms, pieces, whole_states
from attnfaith.models.encoders import CNN, BiLSTM, Transformer


GRADIENTS_AT_ONCE = 2**12  # gradients in a token that one backward pass makes: with more a CPU is slower, not faster

Parts = Iterator[tuple[slice, torch.Tensor]]


def norm_gradients(encoder, embedded, start, stop) -> Parts:
    """||d ||h_p||_2 / d x_i||_2 for all p and i in start..stop-1, in parts.

    embedded (B,T,E), all texts of the full length T; start < stop.
    """
    return ENGINES.get(type(encoder), define_norm_gradients)(encoder, embedded, start, stop)


def length_gradients(encoder, embedded) -> tuple[torch.Tensor, torch.Tensor]:
    """Something that states are made of, each of its own place alone, (B,T,H), and d ||h_p||_2 / d of it, (B,T,H).

    For most encoders the states themselves and their directions.
    """
    if type(encoder) is Transformer:
        return _transformer_length_gradients(encoder, embedded)
    states = whole_states(encoder, embedded)
    return states, direction(states.detach())


def define_norm_gradients(encoder, embedded, start, stop) -> Parts:
    """The definition: one backward pass a state, several together."""
    # the pass back may come in eval mode, which cuDNN refuses
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        inputs = embedded.detach().requires_grad_()
        outputs, directions = length_gradients(encoder, inputs)
    batch, length, _ = outputs.shape
    for begin, end in pieces(start, stop, batch * length, GRADIENTS_AT_ONCE):
        chosen = torch.arange(begin, end, device=embedded.device)
        seeds = outputs.new_zeros(end - begin, *outputs.shape)
        seeds[chosen - begin, :, chosen] = directions[:, begin:end].transpose(0, 1)
        (slopes,) = torch.autograd.grad(outputs, inputs, seeds, is_grads_batched=True, retain_graph=True)
        yield slice(begin - start, end - start), norms(slopes[:, :, start:stop]).transpose(0, 1)


def _transformer_length_gradients(encoder, embedded) -> tuple[torch.Tensor, torch.Tensor]:
    """From the last place where tokens mix, and from there to the states in float64.

    A layer normalisation with gain 1 and bias 0, as models start, makes all states equally long but for the epsilon in
    its divisor. In float32 the gradient of that rest would be rounding noise, by some percent.
    """
    mask = torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device)
    states = encoder.enter(embedded)
    for layer in encoder.layers[:-1]:
        states = layer(states, mask)
    mixed = encoder.layers[-1].mix(states, mask)
    apart = mixed.detach().double().requires_grad_()
    last = copy.deepcopy(encoder.layers[-1]).double().requires_grad_(False)
    (gradients,) = torch.autograd.grad(norms(last.each(apart)).sum(), apart)
    return mixed, gradients.to(mixed.dtype)


def _cnn(encoder, embedded, start, stop) -> Parts:
    """The tokens in a state's window; the others do not reach it."""
    batch, length, size = embedded.shape
    reach = max(convolution.padding[0] for convolution in encoder.convolutions)
    with torch.no_grad():
        states = whole_states(encoder, embedded)
        # A filter that is closed by the ReLU has a state of 0, and so no part in the direction.
        seeds = direction(states).split([convolution.out_channels for convolution in encoder.convolutions], -1)
        window = embedded.new_zeros(batch, length, 2 * reach + 1, size)
        for convolution, seed in zip(encoder.convolutions, seeds, strict=True):
            margin = reach - convolution.padding[0]
            slopes = torch.einsum("btf,few->btwe", seed, convolution.weight)
            window[:, :, margin : 2 * reach + 1 - margin] += slopes
        lengths = norms(window)
    for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
        state = torch.arange(begin, end, device=embedded.device).unsqueeze(1)
        place = torch.arange(start, stop, device=embedded.device) - state + reach  # of the token in the state's window
        inside = (place >= 0) & (place <= 2 * reach)
        yield slice(begin - start, end - start), lengths[:, state, place.clamp(0, 2 * reach)] * inside


ENGINES = {BiLSTM: lstm_norm_gradients.norm_gradients, CNN: _cnn}
