"""Shorter ways through a bidirectional LSTM: its steps, its states in changed texts, gradients of the lengths of its states.

Autograd and reading texts again give the same, to rounding, and take 2 to 13 times as long. These functions know `BiLSTM`
itself: a subclass may read texts otherwise, and so may the class of that name that travels with a checkpoint.

Shapes: B texts, T tokens, E embedding, D units of one direction, N changed texts per text, H = 2D.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from attnfaith.importance.quadrature import Line
from attnfaith.models.encoders import reverse_by_length, take


ADJOINTS_AT_ONCE = 2**10  # states whose gradients go back through an LSTM together: 1 MiB for D = 128 and T numbers each
LINE_PLACES_AT_ONCE = 2**14  # positions of texts that a line deals with together: the steps are small
CHECKS = 4  # positions from one look for forgotten changes to the next


class Readout(NamedTuple):
    """What is read of a state h (H,): finish(weight h + bias), R numbers.

    weight (O,H); bias (1,O), or (B,O) where it differs by text; finish (N,B,T,O) to (N,B,T,R), also for the first few of
    the B texts alone.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    finish: Callable[[torch.Tensor], torch.Tensor]

    def of(self, states: torch.Tensor) -> torch.Tensor:
        """States (N,B,T,H) to (N,B,T,R)."""
        return self.finish(states @ self.weight.t() + self.bias.unsqueeze(1))


class Step:
    """One step of an LSTM for many rows at once, on halved states and doubled memories.

    tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is faster: the candidate gate (g of i, f, g, o) is doubled, so that one
    sigmoid serves all gates. All factors are powers of two: nothing is rounded otherwise.
    """

    def __init__(self, lstm):
        scale = torch.ones_like(lstm.bias_ih_l0)
        scale[2 * lstm.hidden_size : 3 * lstm.hidden_size] = 2
        self.recurrent = (lstm.weight_hh_l0 * (2 * scale).unsqueeze(1)).t()
        self.weight, self.bias = lstm.weight_ih_l0 * scale.unsqueeze(1), (lstm.bias_ih_l0 + lstm.bias_hh_l0) * scale
        self.buffer = None

    def enter(self, tokens: torch.Tensor) -> torch.Tensor:
        """What tokens (...,E) bring to the gates (...,4D)."""
        return nn.functional.linear(tokens, self.weight, self.bias)

    def __call__(self, state, memory, entering, last=None) -> None:
        """Step state and memory (rows,B,D) in place by entering (B,4D); the last row by `last` where it is given."""
        rows, batch, size = state.shape
        if self.buffer is None or len(self.buffer) < rows * batch:
            self.buffer = state.new_empty(2 * rows * batch, 4 * size)
        gates = self.buffer[: rows * batch]
        torch.mm(state.view(-1, size), self.recurrent, out=gates)
        gates = gates.view(rows, batch, -1)
        if last is None:
            gates.add_(entering)
        else:
            gates[:-1].add_(entering)
            gates[-1].add_(last)
        enter, keep, candidate, leave = gates.sigmoid_().split(size, -1)
        memory.mul_(keep).addcmul_(enter, candidate.sub_(0.5), value=4)
        torch.sigmoid(memory, out=state).sub_(0.5).mul_(leave)


class Changes(NamedTuple):
    """Texts without each of their tokens, or with each replaced.

    edges: how many tokens at either end of a text are not changed. wanted: of how many at either end no state is wanted, no
    more than of edges.
    """

    embedded: torch.Tensor  # (B,T,E)
    states: torch.Tensor  # (B,T,H) of the whole texts
    lengths: torch.Tensor  # (B,), falling
    edges: tuple[int, int]
    wanted: tuple[int, int]
    filling: torch.Tensor | None  # (B,T,E): what replaces tokens; None where they are taken away


def readings_of_changes(encoder, changes: Changes, readout: Readout) -> torch.Tensor:
    """Read (N,B,T',R) changed texts of many lengths; nothing is padded. T' is T, or T - 1 without a token.

    What lies outside a text's changes and tokens means nothing.

    What lies before a change, as a direction reads, is not read again: the changed text branches off with the state of the
    whole one, and from then on all rows step together, until the row's state and memory are those of the whole text again,
    to rounding (`forgotten`). When a text ends it is dropped from all rows.
    """
    embedded, states, lengths, edges, wanted, filling = changes
    size, longest = encoder.forward_lstm.hidden_size, int(lengths[0])
    texts = torch.arange(len(lengths), device=lengths.device).unsqueeze(1)
    onward = torch.arange(longest, device=lengths.device).expand(len(lengths), -1)
    backward = lengths.unsqueeze(1) - 1 - onward
    orders = onward, torch.where(backward < 0, onward, backward)
    weights = readout.weight.split(size, 1)
    halves = [half @ part.t() for half, part in zip(states[:, :longest].split(size, -1), weights, strict=True)]
    directions = []
    for lstm, order, weight, other, (start, end), unread in zip(
        encoder.directions, orders, weights, halves[::-1], (edges, edges[::-1]), wanted[::-1], strict=True
    ):
        tokens, instead = (None if of is None else of[texts, order].transpose(0, 1) for of in (embedded, filling))
        other = (other + readout.bias.unsqueeze(1))[texts, order].transpose(0, 1)
        changed = longest - start - end
        directions.append(_one_direction(lstm, tokens, instead, lengths - unread, start, changed, weight, other, readout))
    # Behind a change the onward direction is new, before it the backward one, which holds all in reverse.
    (result, own), (before, other_own) = directions
    shift, first = int(filling is None), 0
    result = result[:, :, shift:]
    for length, count in zip(*(part.tolist() for part in lengths.unique_consecutive(return_counts=True)), strict=True):
        rows, changed = slice(first, first + count), length - sum(edges)
        result[:changed, rows, : length - shift] += before[:changed, rows, shift:length].flip(0, 2)
        own[:changed, rows] += other_own[:changed, rows].flip(0)
        first += count
    if filling is not None:  # in the replaced place itself both are new
        numbers = torch.arange(len(own), device=own.device)
        own = readout.finish((own + readout.bias).unsqueeze(2)).squeeze(2)
        result[numbers, :, edges[0] + numbers] = own
    return result


def _one_direction(lstm, tokens, filling, lengths, start, changed, weight, other, readout):
    """Read-outs (N,B,T,R) of tokens behind the changed one in the order of reading, elsewhere 0; and, where tokens are
    replaced, what is read (N,B,O) of this direction's state in the replaced place.

    tokens, filling (T,B,E) as this direction reads them; lengths (B,): how many are read; N = changed tokens from start on.
    weight (O,D): what is read of this direction's states; other (T,B,O): what is read of the other's in the whole text.
    """
    step, size, (length, texts, _) = Step(lstm), lstm.hidden_size, tokens.shape
    entering = step.enter(tokens)
    instead = None if filling is None else step.enter(filling)
    weight = 2 * weight.t()
    result = None
    own = entering.new_zeros(changed, texts, weight.shape[1])
    state = entering.new_zeros(changed + 1, texts, size)
    memory = torch.zeros_like(state)
    whole, rows = 0, 1  # the row of the whole text, and those under way with it: the tokens that have been met
    counts = (lengths > torch.arange(length, device=lengths.device).unsqueeze(1)).sum(1).tolist()
    for position, count in enumerate(counts):
        if count < texts:
            state, memory, texts = state[:, :count].contiguous(), memory[:, :count].contiguous(), count
        if not count:
            break
        met = start <= position < start + changed
        if met:
            state[rows], memory[rows] = state[whole], memory[whole]
        under_way = rows + (met and filling is not None)
        last = instead[position, :texts] if under_way > rows else None
        step(state[whole:under_way], memory[whole:under_way], entering[position, :texts], last)
        if under_way > rows:
            own[rows - 1, :texts] = state[rows] @ weight
        if position % CHECKS == 0:
            while whole + 1 < rows and forgotten(state, memory, whole, whole + 1):
                whole += 1  # the row of the oldest change is that of the whole text from here on
        oldest = max(whole, 1)
        if oldest < rows:
            seen = (state[oldest:rows].view(-1, size) @ weight).view(-1, texts, weight.shape[1])
            read = readout.finish(seen.add_(other[position, :texts]).unsqueeze(2)).squeeze(2)
            if result is None:
                result = read.new_zeros(changed, len(lengths), length, read.shape[-1])
            result[oldest - 1 : rows - 1, :texts, position] = read
            result[: oldest - 1, :texts, position] = read[0]
        rows += met
    if result is None:  # no token stands behind a changed one
        result = torch.zeros_like(readout.finish(other.new_zeros(changed, len(lengths), length, weight.shape[1])))
    return result, own


def forgotten(state, memory, whole: int, other: int) -> bool:
    """Whether the halved states and doubled memories (rows,B,D) of two rows are the same to rounding."""
    near = min(8 * torch.finfo(state.dtype).eps, 1e-6)
    if bool(((state[other] - state[whole]).abs() > near / 2).any()):
        return False
    return not bool(((memory[other] - memory[whole]).abs() > near * (2 + memory[whole].abs())).any())


def run(step: Step, entering: torch.Tensor, keep: bool = False) -> tuple[torch.Tensor, ...]:
    """Halved states (T,n,D) from what tokens bring to the gates (T,n,4D), which becomes the gates. With keep also the
    doubled memories (T+1,n,D) and their sigmoid (T,n,D), as `back` needs them.
    """
    length, count, size = *entering.shape[:2], step.recurrent.shape[0]
    states = entering.new_empty(length, count, size)
    memories = entering.new_zeros(length * keep + 1, count, size)
    opened = entering.new_empty(length if keep else 1, count, size)
    state = entering.new_zeros(count, size)
    for place, gates in enumerate(entering):
        at = place if keep else 0
        enter, hold, candidate, leave = gates.addmm_(state, step.recurrent).sigmoid_().split(size, -1)
        memory = memories[at + keep]
        torch.mul(memories[at], hold, out=memory).addcmul_(enter, candidate, value=4).sub_(enter, alpha=2)
        torch.sigmoid(memory, out=opened[at])
        state = torch.sub(opened[at], 0.5, out=states[place]).mul_(leave)
    return states, memories, opened


def back(step: Step, gates: torch.Tensor, memories: torch.Tensor, opened: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Gradients (T,n,4D) in what tokens bring to the gates, in their place, from those (T,n,D) in the halved states."""
    size, recurrent = step.recurrent.shape[0], step.recurrent.t().contiguous()
    to_state, to_memory = torch.zeros_like(seeds[0]), torch.zeros_like(seeds[0])
    factors = torch.empty_like(gates[0])
    by_enter, by_hold, by_candidate, by_leave = factors.split(size, -1)
    for place in range(len(seeds) - 1, -1, -1):
        enter, hold, candidate, leave = gates[place].split(size, -1)
        share = opened[place]
        to_state.add_(seeds[place])
        torch.sub(share, 0.5, out=by_leave).mul_(to_state)
        to_memory.addcmul_(to_state.mul_(leave), torch.addcmul(share, share, share, value=-1))
        torch.mul(to_memory, candidate, out=by_enter).mul_(4).sub_(to_memory, alpha=2)
        torch.mul(to_memory, memories[place], out=by_hold)
        torch.mul(to_memory, enter, out=by_candidate).mul_(4)
        to_memory.mul_(hold)
        gates[place].addcmul_(gates[place], gates[place], value=-1).mul_(factors)
        torch.mm(gates[place], recurrent, out=to_state)
    return gates


def norm_gradients(encoder, embedded, start, stop) -> Iterator[tuple[slice, torch.Tensor]]:
    """||d ||h_p||_2 / d x_i||_2 for p and i in start..stop-1, in parts: states p counted from start, and norms (B,p,i).

    embedded (B,T,E), all texts of the full length T. No pass goes where the gradient is 0: a token before state p reaches it
    by the onward LSTM alone, a token after it by the backward one; in the state's own token both gradients add up.
    """
    batch, length, _ = embedded.shape
    onward, backward = _directions(encoder, embedded)
    together = max(1, ADJOINTS_AT_ONCE // batch)
    for begin in range(start, stop, together):
        end = min(begin + together, stop)
        with torch.no_grad():
            before, own = _back(*onward, start, begin, end)
            after, own_backward = _back(*backward, length - stop, length - end, length - begin)
            lengths = before.new_zeros(batch, end - begin, stop - start)
            lengths[..., : end - start] = before
            lengths[..., begin - start :] += after.flip(1, 2)
            lengths.diagonal(begin - start, 1, 2).copy_(norms(own + own_backward.flip(1)))
        yield slice(begin - start, end - start), lengths


@torch.no_grad()
def _directions(encoder, embedded):
    """For the onward and for the backward LSTM, as it reads the text: itself, its derivatives, its part of h / ||h||."""
    tokens, size = embedded.transpose(0, 1), encoder.forward_lstm.hidden_size
    dtype = torch.promote_types(embedded.dtype, torch.float32)
    onward = _slopes(encoder.forward_lstm, tokens, dtype)
    backward = _slopes(encoder.backward_lstm, tokens.flip(0), dtype)
    seeds = direction(torch.cat([onward[0], backward[0].flip(0)], -1))
    return (encoder.forward_lstm, onward, seeds[..., :size]), (encoder.backward_lstm, backward, seeds[..., size:].flip(0))


def _slopes(lstm, tokens, dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """States (T,B,D) of an LSTM that reads tokens (T,B,E), and the derivatives of its steps.

    These are dh/dc (T,B,D) at a position; dc/dc' (T,B,D), c' the memory before; and (T,B,4,D) dc/d(i, f, g) and dh/do,
    with i, f, g, o the gates before their sigmoid or tanh, in torch's order.
    """
    states = lstm(tokens)[0]
    before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
    gates = nn.functional.linear(tokens, lstm.weight_ih_l0, lstm.bias_ih_l0)
    gates = (gates + nn.functional.linear(before, lstm.weight_hh_l0, lstm.bias_hh_l0)).to(dtype).unflatten(2, (4, -1))
    enter, keep, _, leave = gates.sigmoid().unbind(2)
    candidate, memories = gates[:, :, 2].tanh(), [torch.zeros_like(keep[0])]
    for place in range(len(keep)):
        memories.append(torch.addcmul(enter[place] * candidate[place], keep[place], memories[-1]))
    memory, seen = torch.stack(memories[1:]), torch.stack(memories[:-1])
    to_gates = gates.neg().sigmoid()  # 1 - sigmoid, exact where sigmoid rounds to 1
    to_gates[:, :, 0] *= candidate * enter
    to_gates[:, :, 1] *= seen * keep
    to_gates[:, :, 2] = enter * slope_of_tanh(gates[:, :, 2])
    to_gates[:, :, 3] *= memory.tanh() * leave
    return states.to(dtype), leave * slope_of_tanh(memory), keep, to_gates


def _back(lstm, slopes, seeds, start, begin, end) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths (B, p, i) of the gradients of states begin..end-1 in tokens start..end-1, and each state's in its own token.

    seeds (T,B,D): what of the scalar depends on each state itself. Read from the end, a state joins at its own position,
    and one matrix product per position takes the gradients of all that have joined one token back: the derivatives are the
    same for all states of a text, so they go into the weights. Of its result only the length is kept, except in the state's
    own token: (B, p, E).
    """
    _, into, keep, to_gates = slopes
    _, batch, _, size = to_gates.shape
    weight = torch.cat([lstm.weight_hh_l0, lstm.weight_ih_l0], 1).to(seeds.dtype)  # (4D, D+E)
    parts = weight.view(4, size, -1)
    adjoint = seeds.new_zeros(batch, end - begin, 2 * size)  # of the memory and of the state
    lengths = seeds.new_zeros(batch, end - begin, end - start)
    own = seeds.new_empty(batch, end - begin, weight.shape[1] - size)
    merged = parts[3].repeat(batch, 2, 1)
    for position in range(end - 1, start - 1, -1):
        first = max(position - begin, 0)  # states before it have not joined
        if position >= begin:
            adjoint[:, first, size:] = seeds[position]
        memory, state = adjoint[:, first:].split(size, -1)
        memory.addcmul_(state, into[position].unsqueeze(1))
        factors = to_gates[position].unsqueeze(-1)
        state.mul_(factors[:, 3].transpose(1, 2))
        upper = merged[:, :size]
        torch.mul(parts[0], factors[:, 0], out=upper)
        upper.addcmul_(parts[1], factors[:, 1]).addcmul_(parts[2], factors[:, 2])
        back = adjoint[:, first:] @ merged
        state.copy_(back[..., :size])
        memory.mul_(keep[position].unsqueeze(1))
        lengths[:, first:, position - start] = norms(back[..., size:])
        if position >= begin:
            own[:, first] = back[:, 0, size:]
    return lengths, own


def norms(values: torch.Tensor) -> torch.Tensor:
    """(..., D) to (...): lengths of vectors, in float32 where they are coarser."""
    return torch.linalg.vector_norm(values, dim=-1, dtype=torch.promote_types(values.dtype, torch.float32))


def direction(states: torch.Tensor) -> torch.Tensor:
    """h / ||h||_2, the gradient of the length of h; 0 for the zero vector."""
    return nn.functional.normalize(states.double(), dim=-1, eps=torch.finfo(torch.float64).tiny).to(states.dtype)


def slope_of_tanh(values: torch.Tensor) -> torch.Tensor:
    """1 - tanh(x)^2, exact where tanh rounds to 1."""
    return 4 * values.mul(2).sigmoid() * values.mul(-2).sigmoid()


@dataclass
class LstmLine(Line):
    """A line of embeddings that a BiLSTM reads; what is explained is `value` of its states (n,l,H).

    What a point brings to the gates moves along a line too, so it is made once for all points of a text, and the gradient is
    followed back to the gates alone. mask (B,L): what the encoder reads.
    """

    encoder: nn.Module
    mask: torch.Tensor

    at_once = LINE_PLACES_AT_ONCE

    def __post_init__(self):
        onward = torch.arange(self.mask.shape[1], device=self.mask.device).expand_as(self.mask)
        self.directions = []
        for lstm, order in zip(self.encoder.directions, (onward, reverse_by_length(self.mask)), strict=True):
            step = Step(lstm)
            start, end = (take(values, order).transpose(0, 1) for values in (self.start, self.end))
            change = nn.functional.linear(end - start, step.weight)
            self.directions.append((order, step, step.enter(start), change))

    def values(self, rows, shares, length):
        paths = self._paths(rows, shares, length)
        return self._explain([run(step, entering)[0] for _, step, entering, _ in paths], rows, shares, paths[1][0]).double()

    def slopes(self, rows, shares, length):
        with torch.no_grad():
            paths = self._paths(rows, shares, length)
            read = [run(step, entering, keep=True) for _, step, entering, _ in paths]
        with torch.enable_grad():
            states = [part[0].requires_grad_() for part in read]
            seeds = torch.autograd.grad(self._explain(states, rows, shares, paths[1][0]).sum(), states)
        slopes = []
        for (order, step, gates, change), seed, trace in zip(paths, seeds, read, strict=True):
            to_gates = back(step, gates, *trace[1:], seed).unflatten(1, shares.shape)
            per_position = (to_gates @ change.unsqueeze(-1)).squeeze(-1)
            slopes.append(per_position.gather(0, order.unsqueeze(2).expand_as(per_position)))
        return sum(slopes).permute(1, 2, 0).double()

    def _paths(self, rows, shares, length):
        """Of each direction, as it reads some texts: their places (l,R), itself, and what their points (l,R*S,4D), and the
        whole way (l,R,4D), bring to the gates.
        """
        paths, weights = [], shares.unsqueeze(-1).to(self.start.dtype)
        for order, step, *entering in self.directions:
            start, change = (part[:length].index_select(1, rows) for part in entering)
            points = torch.addcmul(start.unsqueeze(2), change.unsqueeze(2), weights).flatten(1, 2)
            paths.append((order[rows, :length].t(), step, points, change))
        return paths

    def _explain(self, states, rows, shares, order):
        """What is explained (R,S) by halved states (l,n,D) of both directions, each as it reads."""
        length, count, size = states[0].shape
        where = order.repeat_interleave(shares.shape[1], 1) * count + torch.arange(count, device=rows.device)
        backward = states[1].flatten(0, 1).index_select(0, where.flatten()).view(length, count, size)
        states = torch.cat([states[0], backward], -1).mul(2).transpose(0, 1)
        return self.value(states, rows.repeat_interleave(shares.shape[1])).view(shares.shape)
