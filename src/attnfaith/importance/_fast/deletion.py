"""States of texts after a token is deleted, or replaced by another, for every token of some positions.

A text's states come in parts, (changes v, positions p of the changed text, states (v, B, p, H)), each place once. A part
with states (1, B, p, H) has these for all its changes. A part is valid until the next one is asked for. Given a view, parts
hold what it reads of states, (v, B, p, O), in place of these. Given wanted = (first, last), the tokens first..last-1 of the
whole texts are the only ones whose states need to come; start..stop-1 are among them.
"""

from collections.abc import Iterator

import torch

from attnfaith.importance._fast import lstm_deletion
from attnfaith.importance._fast.shared import STATES_AT_ONCE, View, pieces, whole_states
from attnfaith.models.encoders import CNN, BiLSTM


Blocks = Iterator[tuple[slice, slice, torch.Tensor]]


def blocks_without(
    encoder, embedded, start, stop, whole=None, view: View | None = None, wanted: tuple[int, int] | None = None
) -> Blocks:
    """States of each text after deleting, in turn, the tokens at positions start..stop-1, in parts.

    embedded (B,T,E), all texts of the full length T >= 2; start < stop. whole (B,T,H): the states of the whole texts, for
    who has them already.
    """
    return WITHOUT.get(type(encoder), define_without)(encoder, embedded, start, stop, whole, view, wanted)


def blocks_replaced(
    encoder, embedded, filling, start, stop, whole=None, view: View | None = None, wanted: tuple[int, int] | None = None
) -> Blocks:
    """Like `blocks_without`, with tokens replaced, not deleted: texts stay T long.

    filling: what replaces them, (B,T,E), or (E,) for all of them.
    """
    return REPLACED.get(type(encoder), define_replaced)(encoder, embedded, filling, start, stop, whole, view, wanted)


@torch.no_grad()
def states_without(encoder, embedded: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """What `blocks_without` gives, in one: (V, B, T-1, H) with V = stop - start."""
    shape = (stop - start, embedded.shape[0], embedded.shape[1] - 1)
    return in_one(blocks_without(encoder, embedded, start, stop), shape)


def in_one(blocks: Blocks, shape: tuple[int, int, int]) -> torch.Tensor:
    """States (V,B,T,H) that come in parts; shape (V,B,T)."""
    states = None
    for rows, positions, block in blocks:
        if states is None:
            states = block.new_zeros(*shape, block.shape[-1])
        states[rows, :, positions] = block
    return states


def remaining_positions(length: int, start: int, stop: int, device=None) -> torch.Tensor:
    """(stop - start, length - 1): row v lists the positions that stay when position start + v is deleted."""
    positions = torch.arange(length - 1, device=device).expand(stop - start, -1)
    deleted = torch.arange(start, stop, device=device).unsqueeze(1)
    return positions + (positions >= deleted)


def define_without(encoder, embedded, start, stop, whole=None, view=None, wanted=None) -> Blocks:
    """The definition: the token is gone, later tokens move up, and everything is encoded again."""
    batch, length, size = embedded.shape
    for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
        kept = remaining_positions(length, begin, end, embedded.device)
        variants = embedded[:, kept].transpose(0, 1).reshape(-1, length - 1, size)
        states = whole_states(encoder, variants).view(end - begin, batch, length - 1, -1)
        yield slice(begin - start, end - start), slice(0, length - 1), states if view is None else view.of(states)


def define_replaced(encoder, embedded, filling, start, stop, whole=None, view=None, wanted=None) -> Blocks:
    """The definition: another token stands there, and everything is encoded again."""
    batch, length, _ = embedded.shape
    for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
        chosen = torch.arange(begin, end, device=embedded.device)
        variants = embedded.repeat(end - begin, 1, 1, 1)
        variants[chosen - begin, :, chosen] = filling.expand_as(embedded)[:, begin:end].transpose(0, 1)
        states = whole_states(encoder, variants.flatten(0, 1)).view(end - begin, batch, length, -1)
        yield slice(begin - start, end - start), slice(0, length), states if view is None else view.of(states)


def _cnn_without(encoder, embedded, start, stop, whole=None, view=None, wanted=None) -> Blocks:
    """Only states whose window holds the deleted place are convolved again.

    With a reach of r tokens to each side these are the r places left of it and the r that follow, and they depend on
    2 r tokens to each side.
    """
    batch, length, _ = embedded.shape
    whole = whole_states(encoder, embedded) if whole is None else whole
    reach = max(convolution.padding[0] for convolution in encoder.convolutions)
    for begin, end in pieces(start, stop, batch * length, STATES_AT_ONCE):
        states = whole[:, remaining_positions(length, begin, end, embedded.device)].transpose(0, 1)
        if reach:
            deleted = torch.arange(begin, end, device=embedded.device).unsqueeze(1)
            places = deleted + torch.arange(-2 * reach, 2 * reach, device=embedded.device)  # of the shorter text
            inside = (places >= 0) & (places < length - 1)
            tokens = (places + (places >= deleted)).clamp(0, length - 1)
            windows = embedded[:, tokens].transpose(0, 1).flatten(0, 1)
            again, _ = encoder(windows, inside.repeat_interleave(batch, 0))
            middle = slice(reach, 3 * reach)
            again = again[:, middle].view(end - begin, batch, 2 * reach, -1)
            rows, columns = inside[:, middle].nonzero(as_tuple=True)
            states[rows, :, places[:, middle][rows, columns]] = again[rows, :, columns]
        yield slice(begin - start, end - start), slice(0, length - 1), states if view is None else view.of(states)


WITHOUT = {BiLSTM: lstm_deletion.blocks_without, CNN: _cnn_without}
REPLACED = {BiLSTM: lstm_deletion.blocks_replaced}
