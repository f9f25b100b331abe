"""What a layer adds up, by source: with its attention weights and the scales of its norms held, a state after attention is a
sum of one vector a token, and of biases.

Nothing is known of an architecture. The calls that follow a map say how a layer is made, and it is made so only if what was
read adds up:

* the first call after a map is the linear one that projects the output of all heads;
* norms stand after: one of state plus attention, then one of that plus the rest of the layer (BERT);
* or they stand before, and the result is state plus attention plus the rest of the layer, whatever this reads (GPT-2,
  GPT-J); where attention is itself given to a norm before it is added, as in Gemma 2, that is held too.

Shapes: L input positions, R rows among them, H heads, D the size of a head's values, E that of a state.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from attnfaith.subjects.layers import Call, Layer
from attnfaith.subjects.protocol import SubjectError


NUMBERS_AT_ONCE = 2**20
"""Of the vectors of rows that are made together."""
ROUNDING = 2e-6
"""Of the largest of numbers, how far their sums may be off; besides one in 10,000 of the least part, so that none lacks."""


def projected(layer: Layer, row: int = 0) -> torch.Tensor:
    """(H,L,E): what the projection makes of each head's values of an instance, without its bias; weighed by the heads'
    attention and summed, with the bias, these are what attention gives.

    Raises SubjectError where no linear module reads the output of all heads.
    """
    calls = layer.calls
    heads, sizes = layer.values.shape[1], layer.values.shape[3]
    joined = layer.output.transpose(1, 2).flatten(2)
    if not calls or (matrix := _matrix(calls[0].module)) is None or not adds_up(calls[0].given, joined):
        raise SubjectError("what follows its attention is no linear module that reads the output of all heads alone")
    return torch.einsum("hld,hde->hle", layer.values[row], matrix.unflatten(0, (heads, sizes)))


def summands(layer: Layer, values: torch.Tensor, rows: torch.Tensor, row: int = 0, head: int | None = None) -> torch.Tensor:
    """(R,L,E): for rows, by number, what each source adds to what attention gives; values as `projected` gives them."""
    weights = layer.weights[row][:, rows]
    if head is not None:
        return weights[head].unsqueeze(2) * values[head]
    return torch.bmm(weights.permute(2, 1, 0), values.transpose(0, 1)).transpose(0, 1)


def rows_at_once(rows: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Rows, by number, in as many as may be made together of values (L,E)."""
    return rows.split(max(1, NUMBERS_AT_ONCE // max(1, values.numel())))


@dataclass(frozen=True)
class Norm:
    """A norm with its scales held, so that it is linear: u to gain (u - mean u) / scale, or gain u / scale.

    gain (E,); scale (L,1); centred: whether the mean is taken off.
    """

    gain: torch.Tensor
    scale: torch.Tensor
    centred: bool

    @classmethod
    @torch.no_grad()
    def of(cls, call: Call) -> "Norm":
        """Of what a module made of (1,L,E). Raises SubjectError for a module that computes something else."""
        ones = call.given.new_ones(1, 1, call.given.shape[-1])
        shift = call.module(torch.zeros_like(ones))[0].double()
        centred = torch.allclose(call.module(ones)[0].double(), shift, atol=1e-5)
        probe = ones.clone()
        probe[..., ::2] = -1
        probe = 1e3 * (probe - probe.mean())  # large, so that no epsilon matters
        size = probe.double().square().mean().sqrt()
        gain = ((call.module(probe)[0].double() - shift) * size / probe[0].double())[0]
        given, outer = call.given.reshape(-1, len(gain)).double(), call.made.reshape(-1, len(gain)).double() - shift
        inner = gain * (given - given.mean(-1, keepdim=True) if centred else given)
        scale = inner.square().sum(-1, keepdim=True) / (inner * outer).sum(-1, keepdim=True)
        scale = torch.where(scale.isfinite(), scale, 1.0)  # of a state that is constant nothing is left
        if not adds_up(outer, inner / scale):
            raise SubjectError(f"its {type(call.module).__name__} is no norm whose scale can be held")
        return cls(gain.to(call.made.dtype), scale.to(call.made.dtype), centred)

    def __call__(self, vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Vectors (R,L,E) of rows."""
        factor = (self.gain / self.scale[rows]).unsqueeze(1)
        return (vectors - vectors.mean(-1, keepdim=True)).mul_(factor) if self.centred else vectors * factor


class BlockParts:
    """What attention and the residual connection around it add up to, in one instance.

    whole (L,E): the states after both, and after the norm where it follows them. A subclass makes `whole`, and the norms
    that are held: inner, of what attention gives, and middle, of the sum.
    """

    inner: Norm | None = None
    middle: Norm | None = None
    whole: torch.Tensor

    def __init__(self, layer: Layer):
        self.layer, self.values = layer, projected(layer)

    def parts(self, rows: torch.Tensor) -> torch.Tensor:
        """(R,L,E): what each token adds to rows, by number, of `whole`; biases are nobody's."""
        vectors = self._of_attention(rows)
        vectors[torch.arange(len(rows), device=rows.device), rows] += self.layer.state[0, rows]
        return vectors if self.middle is None else self.middle(vectors, rows)

    def _of_attention(self, rows: torch.Tensor) -> torch.Tensor:
        vectors = summands(self.layer, self.values, rows)
        return vectors if self.inner is None else self.inner(vectors, rows)

    def all(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All rows, by number and a few at a time, with their `parts`."""
        for rows in rows_at_once(torch.arange(len(self.whole), device=self.whole.device), self.values[0]):
            yield rows, self.parts(rows)


class LayerParts(BlockParts):
    """What a layer of one instance adds up.

    after: whether norms follow what they are of.

    Raises SubjectError for a layer that is made in another way.
    """

    def __init__(self, layer: Layer):
        super().__init__(layer)
        added, calls, state = layer.calls[0].made, layer.calls[1:], layer.state
        if calls and is_norm(calls[0].module) and adds_up(calls[0].given, added):
            self.inner, added, calls = Norm.of(calls[0]), calls[0].made, calls[1:]
        norms = [call for call in calls if is_norm(call.module)]
        self._outer = None
        self.after = len(norms) > 1 and calls[-1] is norms[-1] and torch.equal(calls[-1].made, layer.result)
        if self.after:
            first, rest, last = norms[0], calls[-2], calls[-1]
            sound = adds_up(first.given, state, added) and adds_up(last.given, first.made, rest.made)
        else:
            sound = bool(calls) and adds_up(layer.result, state, added, calls[-1].made)
        if not sound:
            raise SubjectError(
                "a layer's result is no plain sum of its state, of what attention gives and of the rest, nor norms of these"
            )
        if self.after:
            self.middle, self._outer = Norm.of(first), Norm.of(last)
        self.whole = (first.made if self.after else state + added.reshape(state.shape))[0]

    def handed_on(self, parts: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(R,L,E): what is left of parts in the layer's result, the rest of the layer aside: its residual connection, and
        its norm.
        """
        return parts if self._outer is None else self._outer(parts, rows)


def is_norm(module) -> bool:
    """Whether a module is a norm by its name; whether it is one that can be held `Norm.of` says."""
    return isinstance(module, torch.nn.LayerNorm) or type(module).__name__.endswith("Norm")


def _matrix(module) -> torch.Tensor | None:
    """(in, out) of a linear module."""
    if isinstance(module, torch.nn.Linear):
        return module.weight.detach().T
    return module.weight.detach() if type(module).__name__ == "Conv1D" else None


def adds_up(whole: torch.Tensor, *parts: torch.Tensor) -> bool:
    """Whether parts sum to a whole, each of them being needed."""
    if any(one.numel() != whole.numel() for one in parts):
        return False
    off = (whole - sum(one.reshape(whole.shape) for one in parts)).abs().max()
    least = min(one.abs().max() for one in parts)
    return bool(off <= 1e-4 * least + ROUNDING * whole.abs().max())
