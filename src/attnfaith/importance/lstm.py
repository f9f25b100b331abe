"""Texts without each of their tokens, read by a BiLSTM in one pass over all of them.

Reading every shorter text anew gives the same, to rounding, and takes 3 to 13 times as long. These functions know `BiLSTM`
itself: a subclass may read texts otherwise, and so may the class of that name that travels with a checkpoint.

Shapes: B texts, T tokens, E embedding, D units of one direction, H = 2D states, N shorter texts per text, V values, O what
is read of a state: the keys of the alignment, then the values.
"""

import torch
from torch import nn

from attnfaith.models.alignments import Additive
from attnfaith.models.encoders import reverse_by_length
from attnfaith.models.projections import project


PLACES_AT_ONCE = 2**19  # tokens of shorter texts read together
NUMBERS_AT_ONCE = 2**24  # read of them together: 64 MiB in float32
TEXTS_AT_ONCE = 64
CHECKS = 4  # positions from one look for forgotten deletions to the next


@torch.no_grad()
def sums_without_each(model, values, query, read, states, mask) -> torch.Tensor:
    """Sums (B,T,V) of values under attention, for each text without each token; 0 where nothing remains.

    model: has the encoder, the alignment and the config. values (V,H): what is summed of each state; None for the state
    itself. query (B,H) or None. read: the whole texts' inputs (B,T,E), and the prefix `present` (B,T) that is read of them.
    states (B,T,H) of the whole texts. mask (B,T): what attention is over, the same margins of markers in all texts.
    """
    alignment, lengths, counts = model.alignment, read.present.sum(1), mask.sum(1)
    identity = torch.eye(states.shape[-1], dtype=states.dtype, device=states.device)
    values, keys, bias = identity if values is None else values, identity, states.new_zeros(1, len(identity))
    if type(alignment) is Additive:
        keys, bias = 2 * alignment.key.weight, 2 * alignment.key.bias.unsqueeze(0)
        bias = bias if query is None else bias + 2 * alignment.query(query)
    weight, bias = torch.cat([keys, values]), nn.functional.pad(bias, (0, len(values))).expand(len(states), -1)
    places = min(PLACES_AT_ONCE, NUMBERS_AT_ONCE // len(values))
    sums = states.new_zeros(*mask.shape, len(values))
    order = lengths.argsort(descending=True, stable=True)
    order = order[counts[order] > 1]
    while len(order):
        length = int(lengths[order[0]])
        rows = order[: max(1, min(TEXTS_AT_ONCE, places // length**2))]
        order = order[len(rows) :]
        start = int(mask[rows[0]].int().argmax())
        stop = start + int(counts[rows[0]])
        last = lengths[rows] - 1 - (length - stop)
        positions = torch.arange(length - 1, device=mask.device)
        attendable = (positions >= start) & (positions < last.unsqueeze(1))
        read_of_states = weight, bias[rows], alignment, None if query is None else query[rows]
        texts = read.inputs[rows, :length], states[rows, :length], lengths[rows]
        for begin in range(start, stop, max(1, places // (length * len(rows)))):  # all, but of a single long text
            end = min(begin + max(1, places // (length * len(rows))), stop)
            parts = _read(model.encoder, read_of_states, len(values), *texts, begin, end)
            attention = project(parts[..., 0], attendable.expand(len(parts), -1, -1), model.config).to(parts.dtype)
            sums[rows, begin:end] = (attention.unsqueeze(-2) @ parts[..., 1:]).squeeze(-2).transpose(0, 1)
    return sums.masked_fill(~mask.unsqueeze(-1), 0.0)


def _read(encoder, readout: tuple, count: int, embedded, states, lengths, begin: int, end: int) -> torch.Tensor:
    """Score and values (N,B,T-1,1+V) of texts without a token of begin..end-1 of the longest.

    readout: weight (O,H) and bias (B,O) of what is read of states, alignment and query. count: V. lengths (B,) fall; shorter
    texts have their last deletion as far from their end. What lies outside a text's deletions and tokens means nothing.
    """
    longest, size, margins = embedded.shape[1], states.shape[-1] // 2, (begin, embedded.shape[1] - end)
    inside = torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
    onward = torch.arange(longest, device=lengths.device).expand_as(inside)
    texts, halves = torch.arange(len(lengths), device=lengths.device).unsqueeze(1), states.split(size, -1)
    weight, bias, *scoring = readout
    weights = weight.split(size, 1)
    results = states.new_zeros(2, end - begin, len(lengths), longest, 1 + count)
    for number, lstm, order in zip((0, 1), encoder.directions, (onward, reverse_by_length(inside)), strict=True):
        other = halves[1 - number] @ weights[1 - number].t() + bias.unsqueeze(1)
        tokens, other = (part[texts, order].transpose(0, 1) for part in (embedded, other))
        deleted = range(margins[number], margins[number] + end - begin)
        _one_direction(lstm, weights[number].t(), scoring, tokens, lengths, deleted, other, results[number])
    # Behind a deletion the onward direction is new, before it the backward one, which holds all in reverse.
    result, before, first = results[0][:, :, 1:], results[1], 0
    for length, count in zip(*(part.tolist() for part in lengths.unique_consecutive(return_counts=True)), strict=True):
        part, deletions = slice(first, first + count), length - sum(margins)
        result[:deletions, part, : length - 1] += before[:deletions, part, 1:length].flip(0, 2)
        first += count
    return result


def _one_direction(lstm, weight, scoring, tokens, lengths, deleted: range, other, result) -> None:
    """Write to result (N,B,T,1+V) what is read of the tokens behind the deleted one in the order of reading.

    weight (D,O): of this direction's states; scoring: alignment, and query (B,H) or None. tokens (T,B,E) as this
    direction reads them; lengths (B,), falling; deleted: the N places that are; other (T,B,O): the part of the other
    direction's states of the whole text.

    What lies before a deletion is not read again: the shorter text branches off with the state of the whole one, row 0, and
    from then on all rows step together, until the row's state and memory are those of the whole text again, to rounding.
    When a text ends it is dropped from all rows.

    tanh(x) is 2 sigmoid(2x) - 1. Half of each state and twice its memory are carried along, so that the factors of 2 stand
    in the weights; so do those of the keys of an additive alignment. Scores lack a constant, which no projection sees.
    """
    (length, texts, outputs), size, (alignment, query) = other.shape, lstm.hidden_size, scoring
    keys = outputs - result.shape[-1] + 1
    twice = torch.ones_like(lstm.bias_hh_l0).index_fill_(0, torch.arange(2 * size, 3 * size, device=tokens.device), 2)
    entering = nn.functional.linear(tokens, lstm.weight_ih_l0, lstm.bias_ih_l0 + lstm.bias_hh_l0) * twice
    recurrent, weight = (2 * twice * lstm.weight_hh_l0.t()).contiguous(), (2 * weight).contiguous()
    state = entering.new_zeros(len(deleted) + 1, texts, size)
    memory, space = torch.zeros_like(state), entering.new_empty(state[..., 0].numel() * max(4 * size, outputs))
    whole, rows = 0, 1  # the row of the whole text, and how many are under way with it
    for position, count in enumerate((lengths > torch.arange(length, device=lengths.device).unsqueeze(1)).sum(1).tolist()):
        state, memory = state[:, :count], memory[:, :count]
        if position in deleted:
            state[rows], memory[rows] = state[whole], memory[whole]
        moving, remembered = state[whole:rows], memory[whole:rows]
        gates = space[: 4 * moving.numel()].view(-1, 4 * size)
        torch.mm(moving.reshape(-1, size), recurrent, out=gates)
        gates = gates.view(-1, count, 4 * size).add_(entering[position, :count]).sigmoid_()
        enter, keep, candidate, leave = gates.split(size, -1)
        remembered.mul_(keep).addcmul_(enter, candidate.sub_(0.5), value=4)
        torch.sigmoid(remembered, out=moving).sub_(0.5).mul_(leave)
        if position % CHECKS == 0:
            while whole + 1 < rows and forgotten(state, memory, whole, whole + 1):
                whole += 1  # the row of the oldest deletion is that of the whole text from here on
        oldest = max(whole, 1)
        if oldest < rows:
            branches = state[oldest:rows].reshape(-1, size)
            read = torch.mm(branches, weight, out=space[: len(branches) * outputs].view(-1, outputs))
            read = read.view(-1, count, outputs).add_(other[position, :count])
            if type(alignment) is Additive:
                scores = read.view(-1, outputs)[:, :keys].sigmoid_() @ (2 * alignment.value.weight[0])
            else:
                scores = alignment(read[..., :keys].transpose(0, 1), None if query is None else query[:count]).t()
            result[oldest - 1 : rows - 1, :count, position, 0] = scores.reshape(-1, count)
            result[oldest - 1 : rows - 1, :count, position, 1:] = read[..., keys:]
            result[: oldest - 1, :count, position] = result[oldest - 1, :count, position]
        rows += position in deleted


def forgotten(state, memory, whole: int, other: int) -> bool:
    """Whether half the states and twice the memories (rows,B,D) of two rows are the same to rounding."""
    near = min(8 * torch.finfo(state.dtype).eps, 1e-6)
    same = bool(((state[other] - state[whole]).abs() <= near / 2).all())
    return same and bool(((memory[other] - memory[whole]).abs() <= near * (2 + memory[whole].abs())).all())
