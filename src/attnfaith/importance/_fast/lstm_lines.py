"""The states of a bidirectional LSTM along a line of embeddings, and the gradient at its start."""

from collections.abc import Iterator

import torch

from attnfaith.models.encoders import reverse_by_length, take


class LSTMLine(torch.autograd.Function):
    """The states (B,P,T,2D) of two LSTMs, onward and backward, at P points start + share * change for each text.

    start and change (B,T,8D): the tokens' part of the gates of either, biases included, in torch's order i, f, g, o. shares
    (P,), mask (B,T), onward and backward (4D,D): how a state enters the next gates. The gradient goes to start alone.

    Both directions take their steps together, each text read backward from its own end. tanh(x) is 2 sigmoid(2x) - 1, and
    torch's sigmoid is several times faster; so the gate g is kept as that sigmoid, the memory as twice itself, and states
    and the tanh of the memory as half of themselves. The factors, all powers of two, are in the weights: nothing is rounded
    otherwise. Steps are small, so their views are made before they are taken.
    """

    @staticmethod
    def forward(ctx, start, change, shares, mask, onward, backward):
        size = onward.shape[1]
        scale = torch.ones_like(onward[:, 0])
        scale[2 * size : 3 * size] = 2
        weights = torch.stack([onward, backward]) * scale.unsqueeze(1)  # (2,4D,D)
        order = reverse_by_length(mask)
        first, step = (_read_both(values, order, 4 * size) * scale for values in (start, change))
        (length, _, texts, _, _), points = first.shape, len(shares)
        activations = start.new_empty(length, 2, texts, points, 4 * size)
        memory = start.new_zeros(length + 1, 2, texts * points, size)
        half_tanh, states = start.new_empty(2, length, 2, texts * points, size)
        recurrent, shares = 2 * weights.transpose(1, 2), shares.unsqueeze(1)
        enter, keep, candidate, leave = _by_step(activations)
        at, tanh, state = memory.unbind(), half_tanh.unbind(), states.unbind()
        places = zip(first.unbind(), step.unbind(), activations.unbind(), activations.flatten(2, 3).unbind(), strict=True)
        for position, (here, further, by_point, gates) in enumerate(places):
            torch.addcmul(here, further, shares, out=by_point)
            if position:
                gates.baddbmm_(state[position - 1], recurrent)
            gates.sigmoid_()
            now = torch.mul(keep[position], at[position], out=at[position + 1])
            now.addcmul_(enter[position], candidate[position], value=4).sub_(enter[position], alpha=2)
            torch.sigmoid(now, out=tanh[position]).sub_(0.5)
            torch.mul(leave[position], tanh[position], out=state[position])
        ctx.save_for_backward(activations, memory, half_tanh, weights, scale, order, mask)
        states = states.unflatten(2, (texts, points))
        outputs = states.new_empty(texts, points, length, 2 * size)  # as matrix products behind like it
        torch.mul(states[:, 0].permute(1, 2, 0, 3), 2, out=outputs[..., :size])
        torch.mul(_by_text(states[:, 1], order).permute(1, 2, 0, 3), 2, out=outputs[..., size:])
        return _only(outputs, mask)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slopes):
        activations, memory, half_tanh, weights, scale, order, mask = ctx.saved_tensors
        length, _, texts, points, size = activations.shape
        size //= 4
        slopes = _only(slopes, mask).permute(2, 0, 1, 3)
        slopes = torch.stack([slopes[..., :size], _by_text(slopes[..., size:], order)], 1).flatten(2, 3).unbind()
        # a quarter of the gradients of i and g and a half of that of o are followed; what is missing comes with the weights
        missing = scale.new_tensor([4, 1, 4, 2]).repeat_interleave(size)
        recurrent, scale = weights * missing.unsqueeze(1), scale * missing
        sums = activations.new_empty(length, 2, texts, 4 * size)
        of_memory, into = torch.zeros_like(memory[0]), torch.empty_like(memory[0])
        halves, factors = torch.full_like(into, 0.5), activations.new_empty(2, texts * points, 4 * size)
        of_gates = torch.empty_like(factors)
        of_points = of_gates.unflatten(1, (texts, points))
        of_enter, of_keep, of_candidate, of_leave = factors.split(size, -1)
        enter, keep, candidate, leave = _by_step(activations)
        at, half_tanh, gates, totals = memory.unbind(), half_tanh.unbind(), activations.flatten(2, 3).unbind(), sums.unbind()
        for position in range(length - 1, -1, -1):
            of_state, tanh = slopes[position], half_tanh[position]
            if position < length - 1:
                of_state.baddbmm_(of_gates, recurrent)
            torch.addcmul(halves, tanh, tanh, value=-2, out=into).mul_(leave[position])
            of_memory.addcmul_(into, of_state)
            torch.mul(of_memory, candidate[position], out=of_enter).sub_(of_memory, alpha=0.5)
            torch.mul(of_memory, at[position], out=of_keep)
            torch.mul(of_memory, enter[position], out=of_candidate)
            torch.mul(of_state, tanh, out=of_leave)
            torch.addcmul(gates[position], gates[position], gates[position], value=-1, out=of_gates).mul_(factors)  # s - s^2
            torch.sum(of_points, 2, out=totals[position])
            of_memory.mul_(keep[position])
        sums = sums * scale
        of_start = torch.cat([sums[:, 0], _by_text(sums[:, 1].unsqueeze(2), order).squeeze(2)], -1)
        return of_start.transpose(0, 1), None, None, None, None, None


def _by_step(activations: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Gates (T,2,B,P,4D) as four, i, f, g and o, each a view (2,BP,D) for each step."""
    return (gate.unbind() for gate in activations.flatten(2, 3).chunk(4, -1))


def _only(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values (B,P,T,D), 0 outside of mask (B,T)."""
    return values if bool(mask.all()) else values * mask[:, None, :, None]


def _read_both(values: torch.Tensor, order: torch.Tensor, size: int) -> torch.Tensor:
    """Values (B,T,2G) of either direction as they are read, (T,2,B,1,G); order (B,T) is that of the backward one."""
    onward, backward = values.split(size, -1)
    return torch.stack([onward, take(backward, order)]).permute(2, 0, 1, 3).unsqueeze(3).contiguous()


def _by_text(values: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Values (T,B,P,D) as the backward direction reads them to the order of the texts, or the other way round."""
    return values[order.t(), torch.arange(values.shape[1], device=values.device)]
