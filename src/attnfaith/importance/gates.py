"""The gates of DiffMask over a subject: made of its states, masking its embeddings, kept in a file.

Gates are binary concrete variables, stretched to (LOW, HIGH) and clamped to 0..1. With s = sigmoid((a + log u - log(1 - u))
/ T), u uniform on (0,1) and a the gate's logit, the gate is z = min(1, max(0, LOW + (HIGH - LOW) s)). So a gate is exactly 0
with a probability above 0, and never exactly 1 (Louizos et al. 2018, section 2.2; bounds: De Cao et al. 2020, section 2.3).

Shapes: B instances, L input positions, T places of attention, S layers, the embeddings among them, E embedding, H hidden.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from attnfaith.subjects import Batch, Subject
from attnfaith.support.draws import drawing
from attnfaith.support.errors import FileError, excerpt
from attnfaith.support.files import write_atomically


SPAN, SHIFT = 10.0, 5.0
"""A logit is SPAN tanh(.) + SHIFT: from -5 to 15 at the start, where nearly every gate is open."""
FORMAT, KIND = "attnfaith gates 1", "inputs"
TEMPERATURE, LOW, HIGH = 0.2, -0.2, 1.0
EDGE = TEMPERATURE * math.log(-LOW / HIGH)
"""T log(s / (1 - s)) of the s that is stretched to 0."""


def sampled(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Gates in 0..1 of logits, from as many draws in (0,1); differentiable in the logits where a gate is not clamped."""
    noise = uniform.log() - torch.log1p(-uniform)
    return (LOW + (HIGH - LOW) * torch.sigmoid((logits + noise) / TEMPERATURE)).clamp(0, 1)


def log_open(logits: torch.Tensor) -> torch.Tensor:
    """log P(z > 0) of gates by their logits: -softplus(T log(-LOW / HIGH) - a), in closed form."""
    return -torch.nn.functional.softplus(EDGE - logits)


class Gate(nn.Sequential):
    """Logits of one layer's gates: two layers with weight norm and a tanh behind each, scaled and shifted."""

    def __init__(self, size: int, width: int):
        super().__init__(weight_norm(nn.Linear(size, width)), nn.Tanh(), weight_norm(nn.Linear(width, 1)), nn.Tanh())
        self.shift = nn.Parameter(torch.tensor(SHIFT))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return SPAN * super().forward(states).squeeze(-1) + self.shift


class Gates(nn.Module):
    """Gates of the places of attention, made of the states of a subject; float32.

    Layer l has a gate of (h_0, h_l), and those of layers 0..l are multiplied. sizes: that of h_0, the embeddings, and of
    each layer's states. width: of the hidden layer. placeholders: one vector, that stands in place of a masked embedding.
    about: facts of the file that they come from.
    """

    about: dict[str, Any]

    def __init__(self, sizes: Sequence[int], width: int):
        super().__init__()
        self.sizes, self.width = tuple(sizes), width
        self.gates = nn.ModuleList(Gate(size + sizes[0], width) for size in sizes)
        self.placeholders = nn.ParameterList([nn.Parameter(torch.zeros(sizes[0]))])

    @classmethod
    def of(cls, subject: Subject, batch: Batch, seed: int) -> "Gates":
        """Fresh gates of a subject; batch: any of it. The placeholder is the vector of the mask token, or of the unknown
        word where there is none.
        """
        states = states_of(subject, batch)
        with drawing(seed):
            gates = cls([layer.shape[2] for layer in states], max(32, states[0].shape[2] // 4))
        token = getattr(subject, "mask_token_id", None)
        vector = subject.vocabulary()[subject.unknown_token_id if token is None else token]
        gates.placeholders[0].data.copy_(vector.detach().float())
        return gates.to(subject.device)

    def logits(self, states: Sequence[torch.Tensor], count: int) -> torch.Tensor:
        """Logits (B,T,count) of the gates of the first layers, from the states (B,T,·) of layers 0..S-1."""
        pairs = (torch.cat([states[0], layer], 2) for layer in states[:count])
        return torch.stack([gate(pair) for gate, pair in zip(self.gates, pairs, strict=False)], 2)

    def masked(self, subject: Subject, batch: Batch, gates: torch.Tensor) -> torch.Tensor:
        """Logits (B,C) of a subject where the gates (B,T) let that much of embeddings through."""
        open_share = of_positions(subject, batch, gates).unsqueeze(2)
        embedded = subject.embed(batch).detach()
        return subject.predict(batch, open_share * embedded + (1 - open_share) * self.placeholders[0].to(embedded))


@torch.no_grad()
def states_of(subject: Subject, batch: Batch) -> list[torch.Tensor]:
    """h_0, the embeddings of the places of attention, and the states of each layer: S of (B,T,·), float32, without gradient.

    The embedding of a place that holds several input positions is their mean.
    """
    embedded, items = subject.embed(batch), subject.items(batch)
    if items is not None:
        places = torch.arange(subject.attendable(batch).shape[1], device=items.device)
        belongs = (items.unsqueeze(1) == places[:, None]).to(embedded)
        embedded = belongs @ embedded / belongs.sum(2, keepdim=True).clamp(min=1)
    return [embedded.float(), *(states.float() for states in subject.states_by_layer(batch))]


def of_positions(subject: Subject, batch: Batch, gates: torch.Tensor) -> torch.Tensor:
    """Gates (B,T) as those of input positions (B,L): 1 where a position belongs to no place of attention."""
    items = subject.items(batch)
    if items is None:
        return torch.where(subject.attendable(batch), gates, 1.0)
    return torch.where(items >= 0, gates.gather(1, items.clamp(min=0)), 1.0)


def save_gates(gates: Gates, path: Path, about: dict) -> None:
    """Write gates and facts about them, as JSON can, to a safetensors file that is whole or not there."""
    fields = {"format": FORMAT, "kind": KIND, "sizes": gates.sizes, "width": gates.width, **about}
    tensors = {name: values.detach().cpu().contiguous() for name, values in gates.state_dict().items()}
    write_atomically(path, save(tensors, {"attnfaith": json.dumps(fields)}))


def load_gates(path: str | Path) -> Gates:
    """The gates of a file, on the CPU, with the facts about them as `about`.

    Raises FileError for a file that is not there, or holds no gates of inputs.
    """
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["attnfaith"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if (about["format"], about["kind"]) != (FORMAT, KIND):
            raise ValueError(f"its format is {about['format']!r}")
        gates = Gates(about["sizes"], about["width"])
        gates.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(
            f"{path} holds no gates that can be read ({excerpt(error)}): give a file that a training of diffmask wrote"
        ) from error
    gates.about = about
    return gates.eval()
