"""What the states of an encoder and a decoder add up to, block by block, with weights and the scales of norms held.

A decoder's layer has two blocks with attention: over the target so far, then over the source. Of the second, a state after
it is a sum of one vector a source position, of the state before it, and of biases. See `layer_parts` for how a layer's calls
say how it is made.

Shapes: N target positions, S source positions, R rows among the first, E the size of a state.
"""

from dataclasses import replace

import torch

from attnfaith.subjects.layer_parts import BlockParts, LayerParts, Norm, adds_up, is_norm
from attnfaith.subjects.layers import Layer
from attnfaith.subjects.protocol import SubjectError


class CrossParts(LayerParts):
    """A decoder's block that attends to the source, whose layer.state is the state before this block."""

    def parts(self, rows: torch.Tensor) -> torch.Tensor:
        """(R,S+1,E): what each source position adds to rows, by number, of `whole`; last what the state before adds."""
        vectors = torch.cat([self._of_attention(rows), self.layer.state[0, rows].unsqueeze(1)], 1)
        return vectors if self.middle is None else self.middle(vectors, rows)


class TargetParts(BlockParts):
    """A decoder's block that attends to the target so far; after: whether a norm follows it.

    Raises SubjectError for a block that is made in another way.
    """

    def __init__(self, layer: Layer, after: bool):
        super().__init__(layer)
        added, calls = layer.calls[0].made, layer.calls[1:]
        if calls and is_norm(calls[0].module) and adds_up(calls[0].given, added):
            self.inner, added, calls = Norm.of(calls[0]), calls[0].made, calls[1:]
        norm = next((call for call in calls if is_norm(call.module)), None)
        if norm is None or not adds_up(norm.given, layer.state, added):
            raise SubjectError(
                "a decoder's state after attention to the target is no plain sum of the state before and of what that gives"
            )
        if after:
            self.middle = Norm.of(norm)
        self.whole = (norm.made if after else norm.given)[0]


def decoder_parts(layers: list[Layer]) -> list[tuple[TargetParts, CrossParts]]:
    """The two blocks of each layer of a decoder, from its maps in their order, of one pair.

    Raises SubjectError where a layer is made in another way.
    """
    blocks = []
    for own, cross in zip(layers[::2], layers[1::2], strict=True):
        last = cross.calls[-1] if cross.calls else None
        after = last is not None and is_norm(last.module) and torch.equal(last.made, cross.result)
        target = TargetParts(own, after)
        blocks.append((target, CrossParts(replace(cross, state=target.whole.unsqueeze(0)))))
    return blocks
