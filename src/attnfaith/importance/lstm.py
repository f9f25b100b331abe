"""Texts without each of their tokens, read by a BiLSTM in one pass over all of them.

Reading every shorter text anew gives the same, to rounding, and takes 3 to 13 times as long. These functions know `BiLSTM`
itself: a subclass may read texts otherwise, and so may the class of that name that travels with a checkpoint.

Shapes: B texts, T tokens, E embedding, D units of one direction, H = 2D states, N shorter texts per text, V values.
"""

import torch
from torch import nn

from attnfaith.models.alignments import Additive, tanh
from attnfaith.models.encoders import reverse_by_length
from attnfaith.models.projections import project


PLACES_AT_ONCE = 2**19  # tokens of shorter texts read together
NUMBERS_AT_ONCE = 2**24  # read of them together: 64 MiB in float32
TEXTS_AT_ONCE = 64
CHECKS = 4  # positions from one look for forgotten deletions to the next


class Deletions:
    """Sums of values under attention, for texts of which one token is deleted.

    alignment, config: what makes attention of states. query (B,H) or None. values (V,H): what is summed of each state; None
    for the state itself.
    """

    def __init__(self, encoder, alignment, config, query=None, values=None):
        self.encoder, self.alignment, self.config = encoder, alignment, config
        self.query, self.values = query, values

    @torch.no_grad()
    def sums(self, embedded, states, present, mask) -> torch.Tensor:
        """Sums (B,L,V) of the text without each token; 0 where nothing remains.

        embedded (B,L,E) and states (B,L,H) of the whole texts, present (B,L) what is read of them, a prefix, and mask (B,L)
        what attention is over: the same margins of markers in all texts.
        """
        lengths, counts = present.sum(1), mask.sum(1)
        width = states.shape[-1] if self.values is None else len(self.values)
        places = min(PLACES_AT_ONCE, NUMBERS_AT_ONCE // width)
        sums = states.new_zeros(*mask.shape, width)
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
            together = max(1, places // (length * len(rows)))  # all, but of a single long text
            for begin in range(start, stop, together):
                end = min(begin + together, stop)
                read = self._read(rows, embedded[rows, :length], states[rows, :length], lengths[rows], begin, end)
                attention = project(read[..., 0], attendable.expand(len(read), -1, -1), self.config).to(read.dtype)
                sums[rows, begin:end] = (attention.unsqueeze(-2) @ read[..., 1:]).squeeze(-2).transpose(0, 1)
        return sums.masked_fill(~mask.unsqueeze(-1), 0.0)

    def _read(self, rows, embedded, states, lengths, begin, end) -> torch.Tensor:
        """Score and values (N,B,T-1,1+V) of texts without a token of begin..end-1 of the longest.

        lengths (B,) fall; shorter texts have their last deletion as far from their end. What lies outside a text's deletions
        and tokens means nothing.
        """
        longest, size = embedded.shape[1], states.shape[-1] // 2
        margins, query = (begin, longest - end), None if self.query is None else self.query[rows]
        inside = torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
        onward = torch.arange(longest, device=lengths.device).expand_as(inside)
        texts, halves = torch.arange(len(lengths), device=lengths.device).unsqueeze(1), states.split(size, -1)
        weight, bias, finish = self._readout(states, query)
        weights = weight.split(size, 1)
        results = []
        for number, lstm, order in zip((0, 1), self.encoder.directions, (onward, reverse_by_length(inside)), strict=True):
            other = halves[1 - number] @ weights[1 - number].t() + bias.unsqueeze(1)
            tokens, other = (part[texts, order].transpose(0, 1) for part in (embedded, other))
            readout = weights[number].t(), finish
            results.append(_one_direction(lstm, readout, tokens, lengths, margins[number], end - begin, other))
        # Behind a deletion the onward direction is new, before it the backward one, which holds all in reverse.
        result, before, first = results[0][:, :, 1:], results[1], 0
        for length, count in zip(*(part.tolist() for part in lengths.unique_consecutive(return_counts=True)), strict=True):
            part, deleted = slice(first, first + count), length - sum(margins)
            result[:deleted, part, : length - 1] += before[:deleted, part, 1:length].flip(0, 2)
            first += count
        return result

    def _readout(self, states, query):
        """What is read of a state h (H,), as finish(weight h + bias): its score, and its values. weight (O,H); bias (B,O),
        or (1,O); finish (N,n,O) to (N,n,1+V) of the first n texts.
        """
        alignment, identity = self.alignment, torch.eye(states.shape[-1], dtype=states.dtype, device=states.device)
        values = identity if self.values is None else self.values
        keys, bias = identity, values.new_zeros(1, len(identity))
        additive = type(alignment) is Additive
        if additive:
            bias = alignment.key.bias if query is None else alignment.key.bias + alignment.query(query)
            keys, bias = alignment.key.weight, bias.reshape(-1, bias.shape[-1])

        def finish(read):
            seen = read[..., : len(keys)]
            if additive:
                scores = tanh(seen) @ alignment.value.weight[0]
            else:
                scores = alignment(seen.transpose(0, 1), None if query is None else query[: seen.shape[1]]).t()
            return torch.cat([scores.unsqueeze(-1).to(read), read[..., len(keys) :]], -1)

        return torch.cat([keys, values]), torch.cat([bias, bias.new_zeros(len(bias), len(values))], 1), finish


def _one_direction(lstm, readout, tokens, lengths, start, deleted, other) -> torch.Tensor:
    """What is read (N,B,T,1+V) of the tokens behind the deleted one in the order of reading, elsewhere 0.

    readout: the weights (D,O) of this direction's states, and what makes read-outs of sums under them. tokens (T,B,E) as
    this direction reads them; lengths (B,), falling; N = deleted tokens from start on; other (T,B,O): the part of the other
    direction's states of the whole text.

    What lies before a deletion is not read again: the shorter text branches off with the state of the whole one, row 0, and
    from then on all rows step together, until the row's state and memory are those of the whole text again, to rounding.
    When a text ends it is dropped from all rows.
    """
    (weight, finish), (length, texts, _), size = readout, other.shape, lstm.hidden_size
    entering = nn.functional.linear(tokens, lstm.weight_ih_l0, lstm.bias_ih_l0 + lstm.bias_hh_l0)
    state = entering.new_zeros(deleted + 1, texts, size)
    memory, recurrent = torch.zeros_like(state), lstm.weight_hh_l0.t()
    result = other.new_zeros(deleted, texts, length, finish(other[:1]).shape[-1])
    whole, rows = 0, 1  # the row of the whole text, and how many are under way with it
    for position, count in enumerate((lengths > torch.arange(length, device=lengths.device).unsqueeze(1)).sum(1).tolist()):
        state, memory = state[:, :count], memory[:, :count]
        met = start <= position < start + deleted
        if met:
            state[rows], memory[rows] = state[whole], memory[whole]
        moving, remembered = state[whole:rows], memory[whole:rows]
        gates = moving @ recurrent
        gates += entering[position, :count]
        candidate = tanh(gates[..., 2 * size : 3 * size])
        enter, keep, _, leave = gates.sigmoid_().split(size, -1)
        remembered.mul_(keep).addcmul_(enter, candidate)
        torch.mul(tanh(remembered), leave, out=moving)
        if position % CHECKS == 0:
            while whole + 1 < rows and forgotten(state, memory, whole, whole + 1):
                whole += 1  # the row of the oldest deletion is that of the whole text from here on
        oldest = max(whole, 1)
        if oldest < rows:
            seen = finish((state[oldest:rows] @ weight).add_(other[position, :count]))
            result[oldest - 1 : rows - 1, :count, position] = seen
            result[: oldest - 1, :count, position] = seen[0]
        rows += met
    return result


def forgotten(state, memory, whole: int, other: int) -> bool:
    """Whether the states and memories (rows,B,D) of two rows are the same to rounding."""
    near = min(8 * torch.finfo(state.dtype).eps, 1e-6)
    if bool(((state[other] - state[whole]).abs() > near).any()):
        return False
    return not bool(((memory[other] - memory[whole]).abs() > near * (1 + memory[whole].abs())).any())
