"""A bidirectional LSTM on texts without a token, or with another: what lies before the change is not read again.

Where a token stands after a deleted one its onward state is new and its backward state that of the whole text; where it
stands before, the other way round. What is read of a state is linear, so each half is read by itself and the half that is
not new only once.
"""

from collections.abc import Iterator

import torch
from torch import nn

from attnfaith.importance._fast.shared import View, whole_states


CHECKS = 4  # positions from one look for forgotten deletions to the next


def blocks_without(encoder, embedded, start, stop, whole=None, view=None, wanted=None):
    """As `deletion.blocks_without`, of a `BiLSTM`, with half of the work or less.

    A part is one position for the deletions on one side of it, or for those of them that it has forgotten.
    """
    yield from _blocks(encoder, embedded, start, stop, whole, view, wanted)


def blocks_replaced(encoder, embedded, filling, start, stop, whole=None, view=None, wanted=None):
    """As `deletion.blocks_replaced`, of a `BiLSTM`, in the same parts as `blocks_without`.

    In the replaced place itself both states are new: the onward one is kept until the backward one is there.
    """
    yield from _blocks(encoder, embedded, start, stop, whole, view, wanted, filling)


def _blocks(encoder, embedded, start, stop, whole, view, wanted, filling=None):
    length, size, deletions = embedded.shape[1], encoder.forward_lstm.hidden_size, stop - start
    first, last = (0, length) if wanted is None else wanted
    whole = (whole_states(encoder, embedded) if whole is None else whole).transpose(0, 1)
    halves = _Halves(view, size)
    onward, backward = (halves.whole(direction, part) for direction, part in enumerate(whole.split(size, -1)))
    of_whole = halves.joined(onward, halves.new(1, whole[..., size:] / 2))
    own = [None] * deletions
    shift = 1 if filling is None else 0  # how far a token behind the deleted one moves up
    for rows, position, states in _one_direction(encoder.forward_lstm, embedded, start, stop, range(last), filling):
        place = slice(position - shift, position - shift + 1)
        if rows.start:
            yield slice(0, rows.start), place, of_whole[None, position, :, None]
        new = halves.new(0, states)
        if filling is not None and rows.stop == position - start + 1:  # the last is replaced here
            own[rows.stop - 1], new, rows = halves.biased(new[-1]), new[:-1], slice(rows.start, rows.stop - 1)
        if rows.start < rows.stop:
            yield rows, place, halves.joined(new, backward[position]).unsqueeze(2)
    order = range(length - 1, first - 1, -1)
    for rows, position, states in _one_direction(encoder.backward_lstm, embedded, start, stop, order, filling):
        place = slice(position, position + 1)
        if rows.stop < deletions:
            yield slice(rows.stop, deletions), place, of_whole[None, position, :, None]
        if rows.start < rows.stop:
            new, same = halves.new(1, states), onward[position]
            if filling is not None and rows.start == position - start:
                same = same.repeat(len(new), 1, 1)
                same[0] = own[rows.start]
            yield rows, place, halves.joined(same, new).unsqueeze(2)


class _Halves:
    """What is read of states by their halves: of the onward direction and the backward one, each by itself.

    Without a view all of a state is read, and the halves stand side by side; with one what is read is their sum. New states
    come as half of themselves (`_one_direction`); the bias of a view is in what is read of a whole text, not of new states.
    """

    def __init__(self, view: View | None, size: int):
        self.view = view
        self.weights = None if view is None else [2 * weight.t() for weight in view.weight.split(size, 1)]

    def new(self, direction: int, states: torch.Tensor) -> torch.Tensor:
        return 2 * states if self.view is None else states @ self.weights[direction]

    def whole(self, direction: int, states: torch.Tensor) -> torch.Tensor:
        return self.biased(self.new(direction, states / 2))

    def biased(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.view is None else values + self.view.bias

    def joined(self, onward: torch.Tensor, backward: torch.Tensor) -> torch.Tensor:
        if self.view is not None:
            return onward + backward
        shape = torch.broadcast_shapes(onward.shape, backward.shape)
        return torch.cat([onward.expand(shape), backward.expand(shape)], -1)


def _one_direction(lstm, embedded, start, stop, order: range, filling=None) -> Iterator[tuple[slice, int, torch.Tensor]]:
    """(deletions v, position, half of their states, (v, B, D)) of one direction for all deletions that the reader has passed
    and not forgotten; those that it passed earlier than v are forgotten.

    With filling (B,T,E) or (E,) tokens are replaced by it, and the place of one is passed too. order: the positions as this
    direction reads them. The whole text is read once; the deletion of a token branches off when the reader meets it, with
    the state before it, and from then on runs with the whole text, so that one matrix product per position serves all of
    them, until its state and memory are those of the whole text again, to rounding (`forgotten`), in all texts. All texts
    and deletions advance together.
    """
    batch = embedded.shape[0]
    size, deletions, backward = lstm.hidden_size, stop - start, order.step < 0
    scale = gate_scale(lstm)
    recurrent = (lstm.weight_hh_l0 * (2 * scale).unsqueeze(1)).t()
    weight, bias = lstm.weight_ih_l0 * scale.unsqueeze(1), (lstm.bias_ih_l0 + lstm.bias_hh_l0) * scale
    inputs = nn.functional.linear(embedded, weight, bias).transpose(0, 1)
    instead = inputs
    if filling is not None:
        instead = nn.functional.linear(filling, weight, bias).expand(*embedded.shape[:2], -1).transpose(0, 1)
    # Row of the whole text at the end that the deletions join first, so that the rows under way are contiguous.
    whole, first, on = (deletions, 0, -1) if backward else (0, 1, 1)
    hidden = embedded.new_zeros(deletions + 1, batch, size)
    cell = torch.zeros_like(hidden)
    buffer = embedded.new_empty((deletions + 1) * batch, 4 * size)
    held = embedded.new_empty(batch, 4 * size)  # the recurrent part of the whole text's gates
    lag = order.step if filling is None else 0
    for position in order:
        own = first + position - start  # the row of this position's change
        if start <= position < stop:
            cell[own] = cell[whole]
        passed_last = position - lag
        joins = start <= passed_last < stop
        if backward:
            rows = slice(min(max(passed_last - start, 0), deletions), whole + 1)
        else:
            rows = slice(whole, min(max(passed_last - start + 1, 0), deletions) + 1)
        state, memory = hidden[rows], cell[rows]
        gates = buffer[: state.shape[0] * batch].view(-1, batch, 4 * size)
        # One that joins goes on from the state that the whole text had before its token: that product is known.
        others = slice(int(joins and backward), gates.shape[0] - int(joins and not backward))
        under_way = gates[others]
        torch.mm(state[others].view(-1, size), recurrent, out=under_way.view(-1, 4 * size))
        new, same = (0, -1) if backward else (-1, 0)
        if not lag:
            held.copy_(gates[same])
        if joins:
            torch.add(held, instead[position], out=gates[new])
        if lag:
            held.copy_(gates[same])
        under_way.add_(inputs[position])
        enter, keep, candidate, leave = gates.sigmoid_().split(size, -1)
        memory.mul_(keep).addcmul_(enter, candidate, value=4).sub_(enter, alpha=2)
        torch.sigmoid(memory, out=state).sub_(0.5).mul_(leave)
        if position % CHECKS == 0:
            while rows.start <= whole + on < rows.stop and whole + on != own and forgotten(hidden, cell, whole, whole + on):
                whole += on  # the row of the oldest deletion is that of the whole text from here on
        passed = slice(rows.start, whole) if backward else slice(whole, rows.stop - 1)
        if rows.start < deletions if backward else rows.stop > 1:
            yield passed, position, hidden[first + passed.start : first + passed.stop]


def gate_scale(lstm) -> torch.Tensor:
    """(4D,): what the gates are scaled by before their sigmoid.

    tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is several times faster: the candidate gate (g of i, f, g, o) is
    doubled, the memory is kept doubled and the state halved. All factors are powers of two: nothing is rounded otherwise.
    """
    scale = torch.ones_like(lstm.bias_ih_l0)
    scale[2 * lstm.hidden_size : 3 * lstm.hidden_size] = 2
    return scale


def forgotten(hidden, cell, whole: int, other: int) -> bool:
    """Whether the halved states and doubled memories (rows,B,D) of two rows are the same to rounding."""
    near = min(8 * torch.finfo(hidden.dtype).eps, 1e-6)
    if bool(((hidden[other] - hidden[whole]).abs() > near / 2).any()):
        return False
    return not bool(((cell[other] - cell[whole]).abs() > near * (2 + cell[whole].abs())).any())
