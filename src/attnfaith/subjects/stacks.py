"""The stack of self-attention that reads one text, whatever kind of model it is in: its layers, one over the other.

Shapes: L positions of the stack, N layers, E the size of a state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from attnfaith.subjects.attention_hook import Edit, Hook
from attnfaith.subjects.layer_parts import LayerParts
from attnfaith.subjects.layers import Fed, Layer, Recorded
from attnfaith.subjects.pooled import Pooled, text_of
from attnfaith.subjects.protocol import Batch, Subject, SubjectError


@dataclass(frozen=True)
class Stack:
    """text: a batch of one instance. layers: of the model on it, first layer first. reads (L,) in float64: what share of
    what the logits take from the last layer's result is of each position; sums to 1. inside (L,) bool: the positions of the
    text, markers left out. lacks: of "stacked maps", "layer states" and "layer parts" those that it has not, and why.
    source: what answers `device`, `each_layer` and `parts`, as a subject does.
    """

    text: Batch
    layers: Sequence[Layer]
    reads: torch.Tensor
    inside: torch.Tensor
    source: object
    lacks: Mapping[str, str] = field(default_factory=dict)


def stack_of(subject: Subject, text: Batch) -> Stack:
    """The stack of a subject with "attention maps", where rows that matter are read alike; or of a classifier of this
    package whose encoder is "transformer", where attention says what is read.

    text: a batch of one instance without padding.

    Raises SubjectError for a subject without self-attention, and where the logits depend on no position.
    """
    if "attention maps" in subject.capabilities:
        layers, matter = subject.layers(text)
        reads, inside = matter.double(), subject.attendable(text)[0]
        source, lacks = subject, {name: why for name, why in getattr(subject, "lacks", {}).items() if name in STACKED}
    elif isinstance(subject, Pooled) and subject.config.encoder == "transformer" and subject.level != "word":
        source = PooledStack(subject, text)
        layers, reads, inside, lacks = source.layers, source.reads, source.inside, {}
    else:
        what = getattr(getattr(subject, "config", None), "encoder", None)
        of = f"its encoder is {what!r}" if isinstance(subject, Pooled) and what != "transformer" else f"{subject.kind}"
        raise SubjectError(
            f"this model has no self-attention to be seen ({of}): give a text classifier of transformers, or one of this "
            "package with --encoder transformer"
        )
    if not float(reads.sum()) > 0:
        raise SubjectError(
            "the logits of this text depend on nothing that the last layer says: there is no answer to follow"
        )
    return Stack(text, layers, reads / reads.sum(), inside, source, lacks)


STACKED = ("stacked maps", "layer states", "layer parts")


class PooledStack:
    """The Transformer encoder of a classifier of this package on one text: over its words, or over its sentences.

    layers, reads and inside as `Stack` says; positions are all of the first text, markers too.
    """

    @torch.no_grad()
    def __init__(self, subject: Pooled, text: Batch):
        model = subject.classifier.model
        self.encoder, self.device = model.encoder, subject.device
        self.blocks = [f"layers.{number}" for number in range(len(self.encoder.layers))]
        read = model.read(**text_of(text))
        self.length = int(read.present[0].sum())
        self.inputs = read.inputs[:, : self.length]
        with Recorded(self.encoder, range(len(self.blocks)), self.blocks) as recorded:
            self._run(1, recorded)
        self.layers = recorded.layers
        self.reads = subject.attention(text)[0, : self.length].double()
        self.inside = subject.attendable(text)[0, : self.length]

    def each_layer(self, copies: Batch, states: Sequence[torch.Tensor], edit: Edit) -> list[torch.Tensor]:
        """As "layer states" says, of as many copies of the text as there are in `copies`."""
        with Fed(self.encoder, self.blocks, states) as fed:
            self._run(len(copies["input_ids"]), edit)
        return fed.results

    def parts(self, layer: Layer) -> LayerParts:
        """As "layer parts" says."""
        return LayerParts(layer)

    def _run(self, count: int, edit: Edit) -> None:
        inputs = self.inputs.expand(count, -1, -1)
        with Hook(count, edit, lambda number: False):
            self.encoder(inputs, torch.ones(inputs.shape[:2], dtype=torch.bool, device=self.device))
