"""Encoders: token embeddings to states, one per token, and to one state for a whole text (the query of a pair).

Shapes: B instances, T tokens (padding on the right only), E embedding, H hidden, V deleted positions. An encoder takes
embeddings (B,T,E) and a prefix mask (B,T), and gives states (B,T,H), zero on padding, and a last state (B,H). What it
gives for a text does not depend on how far the text is padded or with what it is batched. To add an encoder: one class
and one line in ENCODERS.
"""

import copy
import math
from collections.abc import Iterator

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


STATES_AT_ONCE = 2**15  # states of shortened texts made together: 32 MiB for H = 256 in float32
GRADIENTS_AT_ONCE = 2**12  # gradients in a token that one backward pass makes: with more a CPU is slower, not faster
ADJOINTS_AT_ONCE = 2**10  # states whose gradients go back through an LSTM together: 1 MiB for D = 128 and T numbers each
MANY_STATES = 32  # of one text; from here on a matrix of its own at each position saves more than it costs


class Encoder(GradientCheckpointingLayer):
    """What every encoder shares.

    `contextual` is False where a state depends on its own token only: deleting another token then leaves it as it is.
    """

    contextual = True

    def enter(self, embedded: torch.Tensor) -> torch.Tensor:
        """(B,T,E) to (B,T,D): how tokens are taken in, each by itself and affine in its embedding. Here as they are."""
        return embedded

    def proceed(self, entered: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (B,T,H) from what `enter` gives: `proceed(enter(embedded), mask)` are the states of `forward`."""
        return self(entered, mask)[0]

    def along(self, start: torch.Tensor, change: torch.Tensor, shares: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (B,P,T,H) at P points start + share * change of a line of what `enter` gives, for each text.

        start and change (B,T,D), shares (P,), mask (B,T). A line of embeddings is one of what is entered. Gradients go to
        start, where they are those of all points added up; not to change and shares.
        """
        points = start.unsqueeze(1) + shares[:, None, None] * change.unsqueeze(1)
        states = self.proceed(points.flatten(0, 1), mask.repeat_interleave(len(shares), 0))
        return states.unflatten(0, points.shape[:2])

    def whole(self, embedded: torch.Tensor) -> torch.Tensor:
        """States (B,T,H) of texts (B,T,E) that are all of the full length."""
        return self(embedded, torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device))[0]

    @torch.no_grad()
    def without(self, embedded: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """States of each text after deleting, in turn, the tokens at positions start..stop-1.

        embedded (B,T,E), all texts of the full length T >= 2; start < stop. Returns (V, B, T-1, H) with V = stop - start.
        """
        shape = (stop - start, embedded.shape[0], embedded.shape[1] - 1)
        return in_one(self.blocks_without(embedded, start, stop), shape)

    def blocks_without(self, embedded, start, stop, whole=None) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """The same in parts: (deletions v, positions p of the shorter text, states (v, B, p, H)), each place once.

        A part with states (1, B, p, H) has these for all its deletions. whole (B,T,H): the states of the whole texts, for
        who has them already.

        This is the definition: the token is gone, later tokens move up, and everything is encoded again. An encoder that
        knows a shorter way gives smaller parts; a part is valid until the next one is asked for.
        """
        batch, length, size = embedded.shape
        for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
            kept = remaining_positions(length, begin, end, embedded.device)
            variants = embedded[:, kept].transpose(0, 1).reshape(-1, length - 1, size)
            mask = torch.ones(variants.shape[:2], dtype=torch.bool, device=embedded.device)
            states = self(variants, mask)[0].view(end - begin, batch, length - 1, -1)
            yield slice(begin - start, end - start), slice(0, length - 1), states

    def blocks_replaced(self, embedded, filling, start, stop, whole=None) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """Like `blocks_without`, with tokens replaced, not deleted: texts stay T long.

        filling: what replaces them, (B,T,E), or (E,) for all of them.
        """
        batch, length, size = embedded.shape
        for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
            chosen = torch.arange(begin, end, device=embedded.device)
            variants = embedded.repeat(end - begin, 1, 1, 1)
            variants[chosen - begin, :, chosen] = filling.expand_as(embedded)[:, begin:end].transpose(0, 1)
            mask = torch.ones((end - begin) * batch, length, dtype=torch.bool, device=embedded.device)
            states = self(variants.flatten(0, 1), mask)[0].view(end - begin, batch, length, -1)
            yield slice(begin - start, end - start), slice(0, length), states

    def norm_gradients(self, embedded, start, stop) -> Iterator[tuple[slice, torch.Tensor]]:
        """How far a token moves the length of a state: ||d ||h_p||_2 / d x_i||_2 for all p and i in start..stop-1.

        embedded (B,T,E), all texts of the full length T; start < stop. Gives parts (states p counted from start, norms
        (B, p, stop - start)), each state once, in float32 or what is more exact. A state that is the zero vector, where a
        length has no derivative, has norms of 0.

        This is the definition: one backward pass a state, several together. An encoder may know a shorter way.
        """
        # the pass back may come in eval mode, which cuDNN refuses
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            inputs = embedded.detach().requires_grad_()
            outputs, directions = self.length_gradients(inputs)
        batch, length, _ = outputs.shape
        for begin, end in pieces(start, stop, batch * length, GRADIENTS_AT_ONCE):
            chosen = torch.arange(begin, end, device=embedded.device)
            seeds = outputs.new_zeros(end - begin, *outputs.shape)
            seeds[chosen - begin, :, chosen] = directions[:, begin:end].transpose(0, 1)
            (slopes,) = torch.autograd.grad(outputs, inputs, seeds, is_grads_batched=True, retain_graph=True)
            yield slice(begin - start, end - start), norms(slopes[:, :, start:stop]).transpose(0, 1)

    def length_gradients(self, embedded) -> tuple[torch.Tensor, torch.Tensor]:
        """Something that states are made of, each of its own place alone, (B,T,H), and d ||h_p||_2 / d of it, (B,T,H).

        Here the states themselves and their directions.
        """
        states = self.whole(embedded)
        return states, direction(states.detach())


def in_one(blocks: Iterator[tuple[slice, slice, torch.Tensor]], shape: tuple[int, int, int]) -> torch.Tensor:
    """States (V,B,T,H) that come in parts, as `Encoder.blocks_without` gives them; shape (V,B,T)."""
    states = None
    for rows, positions, block in blocks:
        if states is None:
            states = block.new_empty(*shape, block.shape[-1])
        states[rows, :, positions] = block
    return states


def norms(values: torch.Tensor) -> torch.Tensor:
    """(..., D) to (...): lengths of vectors, in float32 where they are coarser."""
    return torch.linalg.vector_norm(values, dim=-1, dtype=torch.promote_types(values.dtype, torch.float32))


def direction(states: torch.Tensor) -> torch.Tensor:
    """h / ||h||_2, the gradient of the length of h; 0 for the zero vector."""
    return nn.functional.normalize(states.double(), dim=-1, eps=torch.finfo(torch.float64).tiny).to(states.dtype)


def slope_of_tanh(values: torch.Tensor) -> torch.Tensor:
    """1 - tanh(x)^2, exact where tanh rounds to 1."""
    return 4 * values.mul(2).sigmoid() * values.mul(-2).sigmoid()


def pieces(start: int, stop: int, cost: int, limit: int) -> Iterator[tuple[int, int]]:
    """start..stop in pieces that cost at most `limit`, where one place costs `cost`; a single place where that is more."""
    step = max(1, limit // cost)
    for begin in range(start, stop, step):
        yield begin, min(begin + step, stop)


def remaining_positions(length: int, start: int, stop: int, device=None) -> torch.Tensor:
    """(stop - start, length - 1): row v lists the positions that stay when position start + v is deleted."""
    positions = torch.arange(length - 1, device=device).expand(stop - start, -1)
    deleted = torch.arange(start, stop, device=device).unsqueeze(1)
    return positions + (positions >= deleted)


def reverse_by_length(mask: torch.Tensor) -> torch.Tensor:
    """Positions (B,T) that read each text from its own end, leaving padding where it is. Its own inverse."""
    lengths = mask.sum(1, keepdim=True)
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(positions < lengths, lengths - 1 - positions, positions)


def take(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """values (B,T,D) read at positions (B,S): (B,S,D)."""
    return values.gather(1, positions.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class Bidirectional(Encoder):
    """What recurrent encoders share; last state: the end of each direction.

    Two one-directional layers over the text and over the text reversed by its own length: the numbers of a packed
    bidirectional layer, without packing, which is several times slower on CPUs.
    """

    @property
    def directions(self) -> tuple[nn.RNNBase, nn.RNNBase]:
        """The layer that reads onward and the one that reads backward, of H / 2 units each, positions first."""
        raise NotImplementedError

    def forward(self, embedded, mask):
        return self.read(embedded, mask, *self.directions)

    def read(self, embedded, mask, read_onward, read_backward):
        """States and last state, where each reader makes of tokens (T,B,E), in its own order, (states (T,B,H/2), ...)."""
        batch, length, size = embedded.shape
        # Tokens in the order in which the layers take them, position by position, so that nothing is copied once more.
        tokens = embedded.transpose(0, 1).reshape(length * batch, size)
        rows = torch.arange(batch, device=embedded.device)
        reverse = (reverse_by_length(mask).t() * batch + rows).flatten()
        onward = read_onward(tokens.view(length, batch, size))[0]
        backward = read_backward(tokens.index_select(0, reverse).view(length, batch, size))[0]
        backward = backward.flatten(0, 1).index_select(0, reverse).view_as(onward)
        states = torch.cat([onward, backward], -1).transpose(0, 1) * mask.unsqueeze(-1)
        end = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
        last = torch.cat([take(states, end)[:, 0, : onward.shape[-1]], states[:, 0, onward.shape[-1] :]], -1)
        return states, last


class BiGRU(Bidirectional):
    """One bidirectional GRU layer of H / 2 units a direction (Yang et al. 2016; Serrano & Smith 2019)."""

    def __init__(self, config):
        super().__init__()
        self.forward_gru = nn.GRU(config.embedding_size, config.hidden_size // 2)
        self.backward_gru = nn.GRU(config.embedding_size, config.hidden_size // 2)

    @property
    def directions(self):
        return self.forward_gru, self.backward_gru


class BiLSTM(Bidirectional):
    """One bidirectional LSTM layer of H / 2 units a direction."""

    def __init__(self, config):
        super().__init__()
        self.forward_lstm = nn.LSTM(config.embedding_size, config.hidden_size // 2)
        self.backward_lstm = nn.LSTM(config.embedding_size, config.hidden_size // 2)

    @property
    def directions(self):
        return self.forward_lstm, self.backward_lstm

    def enter(self, embedded):
        """As defined in the base class: the part of the gates, of one direction and of the other, that a token has."""
        weights = torch.cat([lstm.weight_ih_l0 for lstm in self.directions])
        return nn.functional.linear(
            embedded, weights, torch.cat([lstm.bias_ih_l0 + lstm.bias_hh_l0 for lstm in self.directions])
        )

    def proceed(self, entered, mask):
        """As defined in the base class: one point of a line."""
        return self.along(entered, torch.zeros_like(entered), entered.new_zeros(1), mask)[:, 0]

    def along(self, start, change, shares, mask):
        """As defined in the base class, without making the points: what enters the gates is added as they are reached."""
        return LSTMAlong.apply(start, change, shares, mask, *(lstm.weight_hh_l0 for lstm in self.directions))

    def blocks_without(self, embedded, start, stop, whole=None):
        """As defined in the base class, with half of the work: what lies before a deleted token is not run again.

        Where a token stands after the deleted one its onward state is new and its backward state that of the whole text;
        where it stands before, the other way round. A part is one position for the deletions on one side of it, or for
        those of them that it has forgotten.
        """
        yield from self._blocks(embedded, start, stop, whole)

    def blocks_replaced(self, embedded, filling, start, stop, whole=None):
        """As defined in the base class, with less than half of the work, in the same parts as `blocks_without`.

        In the replaced place itself both states are new: the onward one is kept until the backward one is there.
        """
        yield from self._blocks(embedded, start, stop, whole, filling)

    def _blocks(self, embedded, start, stop, whole, filling=None):
        length, size, deletions = embedded.shape[1], self.forward_lstm.hidden_size, stop - start
        whole = (self.whole(embedded) if whole is None else whole).transpose(0, 1)
        buffer = embedded.new_empty(deletions, embedded.shape[0], 2 * size)
        own = torch.empty_like(buffer[..., :size])
        moved = 1 if filling is None else 0  # how far a token behind the deleted one moves up
        for rows, position, states in _lstm_without(self.forward_lstm, embedded, start, stop, range(length), filling):
            place = slice(position - moved, position - moved + 1)
            if rows.start:
                yield slice(0, rows.start), place, whole[None, position, :, None]
            if filling is not None and rows.stop == position - start + 1:  # the last is replaced here
                own[rows.stop - 1], states, rows = states[-1], states[:-1], slice(rows.start, rows.stop - 1)
            if rows.start < rows.stop:
                block = buffer[rows]
                block[..., :size], block[..., size:] = states, whole[position, :, size:]
                yield rows, place, block.unsqueeze(2)
        backward = _lstm_without(self.backward_lstm, embedded, start, stop, range(length - 1, -1, -1), filling)
        for rows, position, states in backward:
            place = slice(position, position + 1)
            if rows.stop < deletions:
                yield slice(rows.stop, deletions), place, whole[None, position, :, None]
            if rows.start < rows.stop:
                block = buffer[rows]
                block[..., :size], block[..., size:] = whole[position, :, :size], states
                if filling is not None and rows.start == position - start:
                    block[0, :, :size] = own[rows.start]
                yield rows, place, block.unsqueeze(2)

    @torch.no_grad()
    def _directions(self, embedded):
        """For the onward and for the backward LSTM, as it reads the text: itself, its derivatives, its part of h / ||h||."""
        tokens, size = embedded.transpose(0, 1), self.forward_lstm.hidden_size
        dtype = torch.promote_types(embedded.dtype, torch.float32)
        onward = _lstm_slopes(self.forward_lstm, tokens, dtype)
        backward = _lstm_slopes(self.backward_lstm, tokens.flip(0), dtype)
        seeds = direction(torch.cat([onward[0], backward[0].flip(0)], -1))
        return (self.forward_lstm, onward, seeds[..., :size]), (self.backward_lstm, backward, seeds[..., size:].flip(0))

    def norm_gradients(self, embedded, start, stop):
        """As defined in the base class, with a quarter of the work or less: no pass goes where the gradient is 0.

        A token before state p reaches it by the onward LSTM alone, a token after it by the backward one; in the state's own
        token both gradients add up. The gradients of many states go back together.
        """
        batch, length, _ = embedded.shape
        onward, backward = self._directions(embedded)
        for begin, end in pieces(start, stop, batch, ADJOINTS_AT_ONCE):
            with torch.no_grad():
                before, one = _lstm_norm_gradients(*onward, start, begin, end)
                after, other = _lstm_norm_gradients(*backward, length - stop, length - end, length - begin)
                found = before.new_zeros(batch, end - begin, stop - start)
                found[..., : end - start] = before
                found[..., begin - start :] += after.flip(1, 2)
                found.diagonal(begin - start, 1, 2).copy_(norms(one + other.flip(1)))
            yield slice(begin - start, end - start), found


class LSTMAlong(torch.autograd.Function):
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
        opened = start.new_empty(length, 2, texts, points, 4 * size)
        memory = start.new_zeros(length + 1, 2, texts * points, size)
        squashed, states = start.new_empty(2, length, 2, texts * points, size)
        recurrent, shares = 2 * weights.transpose(1, 2), shares.unsqueeze(1)
        enter, keep, candidate, leave = _by_step(opened)
        at, tanh, state = memory.unbind(), squashed.unbind(), states.unbind()
        places = zip(first.unbind(), step.unbind(), opened.unbind(), opened.flatten(2, 3).unbind(), strict=True)
        for position, (here, further, found, gates) in enumerate(places):
            torch.addcmul(here, further, shares, out=found)
            if position:
                gates.baddbmm_(state[position - 1], recurrent)
            gates.sigmoid_()
            now = torch.mul(keep[position], at[position], out=at[position + 1])
            now.addcmul_(enter[position], candidate[position], value=4).sub_(enter[position], alpha=2)
            torch.sigmoid(now, out=tanh[position]).sub_(0.5)
            torch.mul(leave[position], tanh[position], out=state[position])
        ctx.save_for_backward(opened, memory, squashed, weights, scale, order, mask)
        states = states.unflatten(2, (texts, points))
        found = states.new_empty(texts, points, length, 2 * size)  # as matrix products behind like it
        torch.mul(states[:, 0].permute(1, 2, 0, 3), 2, out=found[..., :size])
        torch.mul(_by_text(states[:, 1], order).permute(1, 2, 0, 3), 2, out=found[..., size:])
        return _only(found, mask)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slopes):
        opened, memory, squashed, weights, scale, order, mask = ctx.saved_tensors
        length, _, texts, points, size = opened.shape
        size //= 4
        slopes = _only(slopes, mask).permute(2, 0, 1, 3)
        slopes = torch.stack([slopes[..., :size], _by_text(slopes[..., size:], order)], 1).flatten(2, 3).unbind()
        # a quarter of the gradients of i and g and a half of that of o are followed; what is missing comes with the weights
        missing = scale.new_tensor([4, 1, 4, 2]).repeat_interleave(size)
        recurrent, scale = weights * missing.unsqueeze(1), scale * missing
        sums = opened.new_empty(length, 2, texts, 4 * size)
        of_memory, into = torch.zeros_like(memory[0]), torch.empty_like(memory[0])
        halves, factors = torch.full_like(into, 0.5), opened.new_empty(2, texts * points, 4 * size)
        of_gates = torch.empty_like(factors)
        of_points = of_gates.unflatten(1, (texts, points))
        of_enter, of_keep, of_candidate, of_leave = factors.split(size, -1)
        enter, keep, candidate, leave = _by_step(opened)
        at, squashed, gates, summed = memory.unbind(), squashed.unbind(), opened.flatten(2, 3).unbind(), sums.unbind()
        for position in range(length - 1, -1, -1):
            of_state, tanh = slopes[position], squashed[position]
            if position < length - 1:
                of_state.baddbmm_(of_gates, recurrent)
            torch.addcmul(halves, tanh, tanh, value=-2, out=into).mul_(leave[position])
            of_memory.addcmul_(into, of_state)
            torch.mul(of_memory, candidate[position], out=of_enter).sub_(of_memory, alpha=0.5)
            torch.mul(of_memory, at[position], out=of_keep)
            torch.mul(of_memory, enter[position], out=of_candidate)
            torch.mul(of_state, tanh, out=of_leave)
            torch.addcmul(gates[position], gates[position], gates[position], value=-1, out=of_gates).mul_(factors)  # s - s^2
            torch.sum(of_points, 2, out=summed[position])
            of_memory.mul_(keep[position])
        sums = sums * scale
        found = torch.cat([sums[:, 0], _by_text(sums[:, 1].unsqueeze(2), order).squeeze(2)], -1)
        return found.transpose(0, 1), None, None, None, None, None


def _by_step(opened: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Gates (T,2,B,P,4D) as four, i, f, g and o, each a view (2,BP,D) for each step."""
    return (gate.unbind() for gate in opened.flatten(2, 3).chunk(4, -1))


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


def _lstm_without(lstm, embedded, start, stop, order: range, filling=None) -> Iterator[tuple[slice, int, torch.Tensor]]:
    """(deletions v, position, states (v, B, D)) of one direction for all deletions that the reader has passed and not
    forgotten; those that it passed earlier than v are forgotten.

    With filling (B,T,E) or (E,) tokens are replaced by it, and the place of one is passed too. order: the positions as this
    direction reads them. The whole text is read once; the deletion of a token branches off when the reader meets it, with
    the state before it, and from then on runs beside the whole text, so that one matrix product per position serves all of
    them, until its state and memory are those of the whole text again, to rounding (`_forgotten`), in all texts. All texts
    and deletions advance together.
    """
    batch = embedded.shape[0]
    size, deletions, backward = lstm.hidden_size, stop - start, order.step < 0
    # tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is several times faster: scale the candidate gate (g of i, f, g, o).
    scale = torch.ones_like(lstm.bias_ih_l0)
    scale[2 * size : 3 * size] = 2
    recurrent = (lstm.weight_hh_l0 * scale.unsqueeze(1)).t()
    weight, bias = lstm.weight_ih_l0 * scale.unsqueeze(1), (lstm.bias_ih_l0 + lstm.bias_hh_l0) * scale
    inputs = nn.functional.linear(embedded, weight, bias).transpose(0, 1)
    if filling is not None:
        instead = nn.functional.linear(filling, weight, bias).expand(*embedded.shape[:2], -1).transpose(0, 1)
    # Row of the whole text at the end that the deletions join first, so that the rows under way are contiguous.
    whole, first, on = (deletions, 0, -1) if backward else (0, 1, 1)
    hidden = embedded.new_zeros(deletions + 1, batch, size)
    cell = torch.zeros_like(hidden)  # the memory, doubled: sigmoid makes its tanh of it
    buffer = embedded.new_empty((deletions + 1) * batch, 4 * size)
    for position in order:
        joins = start <= position < stop
        own = first + position - start  # the row of this position's deletion
        if joins:
            hidden[own], cell[own] = hidden[whole], cell[whole]
        before = min(max(position - start, 0), deletions)  # deletions left of here
        after = min(max(position - start + 1, 0), deletions)  # the first deletion right of here
        replaces = joins and filling is not None
        if replaces:  # the one that joins is passed, and reads what is there instead
            before, after = after, before
        rows = slice(after, whole + 1) if backward else slice(whole, before + 1)
        state, memory = hidden[rows], cell[rows]
        gates = buffer[: state.shape[0] * batch].view(-1, batch, 4 * size)
        under_way = gates
        if replaces:  # its state is still that of the whole text
            under_way, state_before = (gates[1:], state[1:]) if backward else (gates[:-1], state[:-1])
        else:
            state_before = state
        torch.mm(state_before.view(-1, size), recurrent, out=under_way.view(-1, 4 * size))
        if replaces:
            new, same = (0, -1) if backward else (-1, 0)
            torch.add(gates[same], instead[position], out=gates[new])
        under_way.add_(inputs[position])
        enter, keep, candidate, leave = gates.sigmoid_().split(size, -1)
        memory.mul_(keep).addcmul_(enter, candidate, value=4).sub_(enter, alpha=2)
        torch.sigmoid(memory, out=state).mul_(2).sub_(1).mul_(leave)
        while rows.start <= whole + on < rows.stop and whole + on != own and _forgotten(hidden, cell, whole, whole + on):
            whole += on  # the row of the oldest deletion is that of the whole text from here on
        if after < deletions if backward else before > 0:
            passed = slice(after, whole) if backward else slice(whole, before)
            yield passed, position, hidden[first + passed.start : first + passed.stop]


def _forgotten(hidden, cell, whole: int, other: int) -> bool:
    """Whether the states and doubled memories (rows,B,D) of two rows are the same to rounding."""
    near = min(8 * torch.finfo(hidden.dtype).eps, 1e-6)
    if bool(((hidden[other] - hidden[whole]).abs() > near).any()):
        return False
    return not bool(((cell[other] - cell[whole]).abs() > near * (2 + cell[whole].abs())).any())


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


def _lstm_slopes(lstm, tokens, dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """States (T,B,D) of an LSTM that reads tokens (T,B,E), and the derivatives of its steps.

    These are dh/dc (T,B,D) at a position; dc/dc' (T,B,D), c' the memory before; and (T,B,4,D) dc/d(i, f, g) and dh/do,
    with i, f, g, o the gates before their sigmoid or tanh, in torch's order.
    """
    states, gates, memory = lstm_steps(lstm, tokens, dtype)
    enter, keep, _, leave = gates.sigmoid().unbind(2)
    candidate = gates[:, :, 2].tanh()
    memory, seen = memory[1:], memory[:-1]
    to_gates = gates.neg().sigmoid()  # 1 - sigmoid, exact where sigmoid rounds to 1
    to_gates[:, :, 0] *= candidate * enter
    to_gates[:, :, 1] *= seen * keep
    to_gates[:, :, 2] = enter * slope_of_tanh(gates[:, :, 2])
    to_gates[:, :, 3] *= memory.tanh() * leave
    return states.to(dtype), leave * slope_of_tanh(memory), keep, to_gates


def _lstm_norm_gradients(lstm, slopes, seeds, start, begin, end) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths (B, p, i) of the gradients of states begin..end-1 in tokens start..end-1, and each state's in its own token.

    seeds (T,B,D): what of the scalar depends on each state itself. Read from the end, a state joins at its own position,
    and one matrix product per position takes the gradients of all that have joined one token back. Of its result only the
    length is kept, except in the state's own token: (B, p, E).
    """
    _, into, keep, to_gates = slopes
    _, batch, _, size = to_gates.shape
    weight = torch.cat([lstm.weight_hh_l0, lstm.weight_ih_l0], 1).to(seeds.dtype)  # (4D, D+E)
    parts = weight.view(4, size, -1)
    adjoint = seeds.new_zeros(batch, end - begin, 2 * size)  # of the memory and of the state
    found = seeds.new_zeros(batch, end - begin, end - start)
    own = seeds.new_empty(batch, end - begin, weight.shape[1] - size)
    # The derivatives are the same for all states of a text: for many of them they go into the weights, half as many rows.
    merged = parts[3].repeat(batch, 2, 1) if end - begin >= MANY_STATES else None
    for position in range(end - 1, start - 1, -1):
        first = max(position - begin, 0)  # states before it have not joined
        if position >= begin:
            adjoint[:, first, size:] = seeds[position]
        memory, state = adjoint[:, first:].split(size, -1)
        memory.addcmul_(state, into[position].unsqueeze(1))
        factors = to_gates[position].unsqueeze(-1)
        if merged is None:
            gates = torch.stack([memory, memory, memory, state], 2).mul_(factors.squeeze(-1).unsqueeze(1))
            back = gates.flatten(2) @ weight
        else:
            state.mul_(factors[:, 3].transpose(1, 2))
            upper = merged[:, :size]
            torch.mul(parts[0], factors[:, 0], out=upper)
            upper.addcmul_(parts[1], factors[:, 1]).addcmul_(parts[2], factors[:, 2])
            back = adjoint[:, first:] @ merged
        state.copy_(back[..., :size])
        memory.mul_(keep[position].unsqueeze(1))
        found[:, first:, position - start] = norms(back[..., size:])
        if position >= begin:
            own[:, first] = back[:, 0, size:]
    return found, own


class CNN(Encoder):
    """Parallel convolutions of odd widths (1, 3, 5, 7), H / 4 filters each, ReLU; last state: the maximum over tokens."""

    def __init__(self, config):
        super().__init__()
        widths = config.kernel_sizes
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_size, config.hidden_size // len(widths), width, padding=width // 2)
            for width in widths
        )

    def forward(self, embedded, mask):
        inside = (embedded * mask.unsqueeze(-1)).transpose(1, 2)
        states = torch.cat([convolution(inside) for convolution in self.convolutions], 1).relu().transpose(1, 2)
        states = states * mask.unsqueeze(-1)
        return states, states.amax(1)

    def blocks_without(self, embedded, start, stop, whole=None):
        """As defined in the base class; only states whose window holds the deleted place are convolved again.

        With a reach of r tokens to each side these are the r places left of it and the r that follow, and they depend on
        2 r tokens to each side.
        """
        batch, length, _ = embedded.shape
        whole = self.whole(embedded) if whole is None else whole
        reach = max(convolution.padding[0] for convolution in self.convolutions)
        for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
            states = whole[:, remaining_positions(length, begin, end, embedded.device)].transpose(0, 1)
            if reach:
                deleted = torch.arange(begin, end, device=embedded.device).unsqueeze(1)
                places = deleted + torch.arange(-2 * reach, 2 * reach, device=embedded.device)  # of the shorter text
                inside = (places >= 0) & (places < length - 1)
                tokens = (places + (places >= deleted)).clamp(0, length - 1)
                windows = embedded[:, tokens].transpose(0, 1).flatten(0, 1)
                again, _ = self(windows, inside.repeat_interleave(batch, 0))
                middle = slice(reach, 3 * reach)
                again = again[:, middle].view(end - begin, batch, 2 * reach, -1)
                rows, columns = inside[:, middle].nonzero(as_tuple=True)
                states[rows, :, places[:, middle][rows, columns]] = again[rows, :, columns]
            yield slice(begin - start, end - start), slice(0, length - 1), states

    def norm_gradients(self, embedded, start, stop):
        """As defined in the base class, for the tokens in a state's window; the others do not reach it."""
        batch, length, size = embedded.shape
        reach = max(convolution.padding[0] for convolution in self.convolutions)
        with torch.no_grad():
            states = self.whole(embedded)
            # A filter that is closed by the ReLU has a state of 0, and so no part in the direction.
            seeds = direction(states).split([convolution.out_channels for convolution in self.convolutions], -1)
            window = embedded.new_zeros(batch, length, 2 * reach + 1, size)
            for convolution, seed in zip(self.convolutions, seeds, strict=True):
                margin = reach - convolution.padding[0]
                slopes = torch.einsum("btf,few->btwe", seed, convolution.weight)
                window[:, :, margin : 2 * reach + 1 - margin] += slopes
            lengths = norms(window)
        for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
            state = torch.arange(begin, end, device=embedded.device).unsqueeze(1)
            place = torch.arange(start, stop, device=embedded.device) - state + reach  # of the token in the state's window
            inside = (place >= 0) & (place <= 2 * reach)
            found = lengths[:, state, place.clamp(0, 2 * reach)] * inside
            yield slice(begin - start, end - start), found


def mean_over_tokens(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B,T,H) to (B,H), padding left out; 0 for an empty text."""
    return (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def only_own(lengths: torch.Tensor, start: int, stop: int) -> Iterator[tuple[slice, torch.Tensor]]:
    """The parts of `norm_gradients` where a state depends on its own token only, by lengths (B,T) of its gradients."""
    for begin, end in pieces(start, stop, lengths.shape[0] * (stop - start), STATES_AT_ONCE):
        found = lengths.new_zeros(lengths.shape[0], end - begin, stop - start)
        found.diagonal(begin - start, 1, 2).copy_(lengths[:, begin:end])
        yield slice(begin - start, end - start), found


class Average(Encoder):
    """tanh(W x + b) on each token, no context: Jain & Wallace's "average" model; last state: the mean over tokens."""

    contextual = False

    def __init__(self, config):
        super().__init__()
        self.projection = nn.Linear(config.embedding_size, config.hidden_size)

    def forward(self, embedded, mask):
        states = self.proceed(self.enter(embedded), mask)
        return states, mean_over_tokens(states, mask)

    def enter(self, embedded):
        """As defined in the base class."""
        return self.projection(embedded)

    def proceed(self, entered, mask):
        """As defined in the base class."""
        return entered.tanh() * mask.unsqueeze(-1)

    def norm_gradients(self, embedded, start, stop):
        """As defined in the base class: W' (1 - h^2) h / ||h||, a token reaching its own state only."""
        with torch.no_grad():
            inner = self.projection(embedded)
            slopes = (direction(inner.tanh()) * slope_of_tanh(inner)) @ self.projection.weight
        yield from only_own(norms(slopes), start, stop)


class Embedding(Encoder):
    """The embeddings themselves; last state: the mean over tokens."""

    contextual = False

    def __init__(self, config):
        super().__init__()

    def forward(self, embedded, mask):
        states = embedded * mask.unsqueeze(-1)
        return states, mean_over_tokens(states, mask)

    def norm_gradients(self, embedded, start, stop):
        """As defined in the base class: 1 in the state's own token."""
        yield from only_own(norms(direction(embedded.detach())), start, stop)


class SelfAttention(nn.Module):
    """Scaled dot-product attention of every token to every token of its text, softmax."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.inputs = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states, mask):
        query, key, value = self.by_head(self.inputs(states))
        weights = self.weights(query, key, mask).to(value.dtype)
        return self.output(self.joined(weights @ value)), weights

    def by_head(self, inputs):
        """(B,T,3H) to the queries, keys and values (B,heads,T,H/heads) in them."""
        return inputs.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def weights(self, query, key, mask):
        """Attention (B,heads,T,T) of each token to every token, in float32 or what is more exact."""
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse for a softmax
        return scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).softmax(-1)

    @staticmethod
    def joined(heads):
        """(B,heads,T,H/heads) to (B,T,H)."""
        return heads.transpose(1, 2).flatten(2)


class TransformerLayer(GradientCheckpointingLayer):
    """Self-attention and a feed-forward part, each followed by addition and layer normalisation."""

    def __init__(self, config):
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.hidden_size, config.intermediate_size),
            nn.ReLU(),
            nn.Linear(config.intermediate_size, config.hidden_size),
        )
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, states, mask):
        return self.each(self.mix(states, mask))

    def mix(self, states, mask):
        """What tokens take from one another, added to what they were."""
        return states + self.attention(states, mask)[0]

    def each(self, mixed):
        """The rest, which every token goes through by itself."""
        states = self.attention_norm(mixed)
        return self.feed_forward_norm(states + self.feed_forward(states))


def sinusoidal_positions(length: int, size: int, device=None) -> torch.Tensor:
    """(T,H): sines in the even places and cosines in the odd ones (Vaswani et al. 2017)."""
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10000.0) / size))
    angles = torch.arange(length, device=device).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(length, -1)[:, :size]


class Transformer(Encoder):
    """Meister et al.'s encoder: embeddings projected to H, sinusoidal positions, 2 layers of 1 head.

    Layer order (normalisation after addition), ReLU and positions are not stated there; they are those of Vaswani et al.
    Last state: the mean over tokens.
    """

    def __init__(self, config):
        super().__init__()
        self.projection = nn.Linear(config.embedding_size, config.hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, embedded, mask):
        states = self.proceed(self.enter(embedded), mask)
        return states, mean_over_tokens(states, mask)

    def proceed(self, entered, mask):
        """As defined in the base class: all layers."""
        states = entered
        for layer in self.layers:
            states = layer(states, mask)
        return states * mask.unsqueeze(-1)

    def enter(self, embedded):
        """As defined in the base class: what the first layer reads."""
        positions = sinusoidal_positions(embedded.shape[1], self.projection.out_features, embedded.device)
        return self.projection(embedded) + positions.to(embedded.dtype)

    def length_gradients(self, embedded):
        """As defined in the base class, from the last place where tokens mix, and from there to the states in float64.

        A layer normalisation with gain 1 and bias 0, as models start, makes all states equally long but for the epsilon in
        its divisor. In float32 the gradient of that rest would be rounding noise, by some percent.
        """
        mask = torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device)
        states = self.enter(embedded)
        for layer in self.layers[:-1]:
            states = layer(states, mask)
        mixed = self.layers[-1].mix(states, mask)
        apart = mixed.detach().double().requires_grad_()
        last = copy.deepcopy(self.layers[-1]).double().requires_grad_(False)
        (gradients,) = torch.autograd.grad(norms(last.each(apart)).sum(), apart)
        return mixed, gradients.to(mixed.dtype)


ENCODERS = {
    "bilstm": BiLSTM,
    "bigru": BiGRU,
    "transformer": Transformer,
    "cnn": CNN,
    "average": Average,
    "embedding": Embedding,
}
