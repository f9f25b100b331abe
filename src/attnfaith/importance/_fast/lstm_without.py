"""A bidirectional LSTM on texts of many lengths, each without one of its tokens: all of them read together, none padded.

Either direction reads each text from its own first token on, and the deletion of a token branches off when the reader has
met it, as in `lstm_deletion`. Texts stand by length, the longest first: when one ends it is dropped from all branches.

Shapes: B texts, L input positions, T tokens of the longest text, D units of one direction, O what a view reads of a state,
N deletions of the longest text, C classes.
"""

import torch

from attnfaith.importance._fast.entering import Gates
from attnfaith.importance._fast.lstm_deletion import CHECKS, forgotten, gate_scale
from attnfaith.importance._fast.views import Reading


def readings_without(encoder, gates: Gates, states, lengths, start: int, end: int, reading: Reading) -> torch.Tensor:
    """Scores and class values (N,B,T-1,1+C) of the tokens that stay when token start + n of each text is deleted.

    gates: of B of R texts. states (R,L,2D) of the whole texts. lengths (B,): of those of the gates, falling. start and end:
    how many tokens at either end of a text are not deleted. A text has no tokens behind its length less one, and no more
    deletions than tokens between start and end: what is there beyond means nothing.
    """
    size, longest = encoder.forward_lstm.hidden_size, int(lengths[0])
    weights = reading.view.weight.split(size, 1)
    bias = reading.view.bias if reading.view.bias.dim() == 1 else reading.view.bias.unsqueeze(1)
    states = states[gates.texts, :longest].split(size, -1)
    halves = [part @ weight.t() for part, weight in zip(states, weights, strict=True)]
    ends, made = ((start, end), (end, start)), []
    for lstm, places, brought, recalled, weight, other, (skipped, unread) in zip(
        encoder.directions,
        gates.places[:, :longest],
        gates.brought,
        gates.recalled,
        weights,
        reversed(halves),
        ends,
        strict=True,
    ):
        other = (other + bias)[torch.arange(len(other), device=other.device), places]
        read = slice(0, longest - unread)  # no state is asked for of what is not deleted
        made.append(_one_direction(lstm, brought[read], recalled[read], lengths - unread, skipped, weight, other, reading))
    # Either direction has read what it meets behind the deleted token and holds 0 elsewhere, and the backward one holds
    # all in reverse, as far as a text goes.
    onward, backward = made
    without, first = onward[:, :, 1:], 0
    for length, count in zip(*(part.tolist() for part in lengths.unique_consecutive(return_counts=True)), strict=True):
        texts, deletions = slice(first, first + count), length - start - end
        without[:deletions, texts, : length - 1] += backward[:deletions, texts, 1:length].flip(0, 2)
        first += count
    return without


def _one_direction(lstm, brought, recalled, lengths, start, weight, other, reading) -> torch.Tensor:
    """Scores and class values (N,B,T,1+C) at token t, as read, of the texts without token start + n, for all t behind it;
    elsewhere 0.

    brought and recalled (t,B,4D): what enters the gates of the whole texts at the tokens that are read, and what the states
    before bring to them; lengths (B,): how many these are. weight (O,D): what the view reads of this direction's states.
    other (T,B,O): what it reads of those of the other direction. All as this direction reads.
    """
    size, (length, texts, _) = lstm.hidden_size, brought.shape
    scale = gate_scale(lstm)
    recurrent, weight = (lstm.weight_hh_l0 * (2 * scale).unsqueeze(1)).t(), 2 * weight.t()
    inputs = brought + (lstm.bias_ih_l0 + lstm.bias_hh_l0) * scale
    deletions = max(length - start - 1, 0)
    made = inputs.new_zeros(length - start, texts, len(other), 1 + len(reading.weight))
    hidden = inputs.new_zeros(deletions + 1, texts, size)
    cell = torch.zeros_like(hidden)
    buffer = inputs.new_empty((deletions + 1) * texts, 4 * size)
    first = 0
    counts = (lengths > torch.arange(length, device=lengths.device).unsqueeze(1)).sum(1).tolist()
    for position, count in enumerate(counts):
        if count < texts:  # some texts have ended
            hidden, cell, texts = hidden[:, :count].contiguous(), cell[:, :count].contiguous(), count
        rows = min(max(position - start, 0), deletions) + 1  # the whole text, then those whose token has been passed
        if start <= position < start + deletions:
            cell[rows] = cell[first]  # the deletion of this token, which joins at the next one
        state, memory = hidden[first:rows], cell[first:rows]
        gates = buffer[: (rows - first) * texts].view(-1, texts, 4 * size)
        # The whole text goes on from a state that is known, and so does the deletion that joins: from the one before.
        torch.add(brought[position, :texts], recalled[position, :texts], out=gates[0])
        if rows > 1:
            torch.add(brought[position, :texts], recalled[position - 1, :texts], out=gates[-1])
        if len(gates) > 2:
            under_way = gates[1:-1]
            torch.mm(state[1:-1].view(-1, size), recurrent, out=under_way.view(-1, 4 * size))
            under_way.add_(inputs[position, :texts])
        enter, keep, candidate, leave = gates.sigmoid_().split(size, -1)
        memory.mul_(keep).addcmul_(enter, candidate.sub_(0.5), value=4)
        torch.sigmoid(memory, out=state).sub_(0.5).mul_(leave)
        if position % CHECKS == 0:
            while first + 1 < rows and forgotten(hidden, cell, first, first + 1):
                first += 1  # the row of the oldest deletion is that of the whole text from here on
        oldest = max(first, 1)
        if oldest < rows:
            seen = (hidden[oldest:rows].view(-1, size) @ weight).view(-1, texts, len(weight[0]))
            scores, values = reading.of(seen.add_(other[position, :texts]))
            read = made[oldest - 1 : rows - 1, :texts, position]
            read[..., 0], read[..., 1:] = scores, values
            made[: oldest - 1, :texts, position] = read[0]  # those that were forgotten before
    return made
