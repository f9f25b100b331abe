"""What measures and models agree on: capabilities, batches, what logits become, and logits of parts of texts.

Shapes: B instances, L input positions, T places of attention (tokens; of hierarchical models sentences), V parts of a text,
C classes.
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from attnfaith.data.collation import by_length
from attnfaith.record import ragged
from attnfaith.support.errors import AttnfaithError


if TYPE_CHECKING:
    from attnfaith.subjects.base import Subject


CAPABILITIES = {
    "embeddings": "it can be given embeddings, and gradients reach them: embed, predict(embedded), vocabulary, parameters",
    "embedding length": "its prediction depends on the length of an embedding: no norm stands directly behind the table",
    "classes": "it chooses one of several classes, whose probabilities sum to 1; a regression, and labels that do not "
    "exclude one another, are no such choice",
    "held attention": "it can predict with attention held fixed, so that no gradient flows through it: predict(hold=True)",
    "token deletion": "it can read texts without some of their tokens: keep",
    "intervention": "it predicts under another attention, and gradients reach that attention: intervene",
    "states": "its attention is one sum of states, in the stages encoded, attend and decode",
    "affine read-out": "its logits are affine in attention, states held fixed: decoder_weights",
    "attention maps": "it has attention for each layer and head, which can be read and edited: read, sites",
    "weighted sums": "it gives what its attention weighs, and uses attention for nothing else",
    "stacked maps": "its maps are over one text, each over the states of the layer before: read",
    "weighed vectors": "its attention weighs vectors, which it gives: summands, value_norms",
    "token states": "it has a state of each place of attention, which it gives: states_by_layer, depth",
    "layer states": "its layers are a chain of modules over one text, which can be read and be given other states: layers, "
    "each_layer",
    "layer parts": "the states of its layers are sums of one vector a token, weights and norms held: layers",
    "attention gradients": "gradients reach the attention that it shows: attention_products",
    "backward rules": "its gradients can follow rules that share out what is explained: relevance, check_rules",
    "mask token": "its tokenizer has a token that stands for a hidden one: mask_token_id",
    "token hiding": "its logits do not depend on a token whose attention_mask is 0",
    "selection": "it reads only the tokens that it selects, and can read others instead: selection, selected, read_selected",
    "layers": "it is made of this package's layers, which rules and engines know by their type: model",
}
"""{capability: what a subject with it can do, and by which methods}. A measure names those that it needs."""

PAIR_CAPABILITIES = {
    "cross-attention": "its decoder attends to its encoder, in weights that can be read and edited: attention, edited",
    "source embeddings": "it can be given embeddings of the source, and gradients reach them: embed, log_probs(embedded)",
    "cross vectors": "it gives what its cross-attention weighs, projected to states: vectors",
    "stacked parts": "the states of its encoder and decoder are sums of one vector a position: stacked_parts",
    "layer results": "it can compute a layer without some of the values that its cross-attention weighs: results_without",
    "head values": "it gives the values that its heads weigh, and uses the weights for nothing else: head_values",
}
"""The same for models from sequences to sequences."""

MAPS = frozenset({"attention maps", "stacked maps", "layer states", "layer parts", "backward rules"})
"""Capabilities of stacks of layers."""

OF_TOKENIZERS = frozenset({"mask token", "token hiding"})
"""Capabilities that need the tokenizer of a model of transformers."""

TEXT = ("input_ids", "attention_mask", "token_type_ids")
"""Tensors (B,L) of a batch that models read."""

ABSENT = {"deleted": "token deletion", "zero": "embeddings", "mask_token": "mask token", "hidden": "token hiding"}
"""{way of taking items away: the capability that a subject needs for it}"""
TOKENS_AT_ONCE = 2**13  # padded tokens of parts that are read together

RECORDED = ("rows", "identity", "digest", "level", "class_names")
"""Attributes of a subject that a record needs."""


class SubjectError(AttnfaithError):
    """A model that is no subject, or lacks a capability. The message names what is missing and what to do."""


class Batch(dict):
    """Instances as a subject reads them, by name.

    input_ids, attention_mask (B,L) and, of pairs, token_type_ids (B,L); special_tokens_mask (B,L), 1 on markers, where a
    tokenizer of transformers read the texts; impermissible (B,L), 1 on tokens that a deceptive model hides, where the data
    mark them; the lists instance_id and label (None where unknown).

    owner: the subject that it was opened for. results: what that subject and measures computed from it, so that it
    is computed once; see `once` and `cached`.
    """

    axes: Mapping[str, str] = dict.fromkeys((*TEXT, "impermissible", "special_tokens_mask"), "S")
    """The axes of tensors behind that of instances: S input positions, N target positions."""
    lists: Sequence[str] = ("instance_id", "label")
    owner: "Subject | None" = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.results: dict[Hashable, object] = {}

    @classmethod
    def of(cls, values: Mapping, subject: "Subject") -> "Batch":
        """Return the plain batch of a tokenizer as a batch of this subject, on its device; a batch of it as it is.

        Row numbers serve as ids, and "labels" as labels. Without attention_mask, ids equal to the subject's padding are
        padding. The argument is left as it was. Raises SubjectError where input_ids are no tensor (B,L), and for an
        attention_mask with a 0 before a 1: positions would shift, and hidden tokens count as padding.
        """
        if isinstance(values, cls) and values.owner is subject:
            return values
        batch, ids = cls(values), values.get("input_ids")
        if not (isinstance(ids, torch.Tensor) and ids.dim() == 2):
            raise SubjectError(
                f"a batch needs input_ids, a tensor (instances, positions); this batch has {sorted(batch)}: give what a "
                "tokenizer makes with padding=True and return_tensors='pt'"
            )
        labels, pad = batch.get("labels"), subject.pad_token_id
        defaults = {
            "attention_mask": (torch.ones_like(ids, dtype=torch.bool) if pad is None else ids != pad).long(),
            "instance_id": [str(row) for row in range(len(ids))],
            "label": [None] * len(ids) if labels is None else torch.as_tensor(labels).tolist(),
        }
        batch |= {name: value for name, value in defaults.items() if batch.get(name) is None}
        batch |= {name: batch[name].to(subject.device) for name in cls.axes if batch.get(name) is not None}
        mask = batch["attention_mask"].bool()
        holed = (mask[:, 1:] & ~mask[:, :-1]).any(1)
        if bool(holed.any()):
            raise SubjectError(
                f"{int(holed.sum())} of {len(ids)} texts have padding before a token (a 0 before a 1 in attention_mask, by "
                "default made from pad_token_id): pad on the right, tokenizer(…, padding_side='right')"
            )
        batch.owner = subject
        return batch

    def once(self, name: str, key: Hashable, make: Callable):
        """make(), or its earlier result for this name and key; kept as long as the batch."""
        if (name, key) not in self.results:
            self.results[name, key] = make()
        return self.results[name, key]

    def take(self, rows: torch.Tensor, length: int | None = None, targets: int | None = None) -> Self:
        """The instances `rows` (n,), cut to so many input and target positions; an instance may come more than once."""
        batch, ends = type(self)(), {"S": length, "N": targets}
        for name, axes in self.axes.items():
            if self.get(name) is not None:
                batch[name] = self[name][(rows, *(slice(ends[axis]) for axis in axes))]
        batch |= {name: [self[name][row] for row in rows.tolist()] for name in self.lists if self.get(name) is not None}
        batch.owner = self.owner
        return batch

    def alone(self, row: int) -> "Batch":
        """One instance, without padding, but for one position of a text of none."""
        length = max(1, int(self["attention_mask"][row].sum()))
        return self.take(torch.tensor([row], device=self["input_ids"].device), length)


def cached(method: Callable) -> Callable:
    """A method of a batch alone, computed once a batch and without gradient: its result is `Batch.results[name]`."""

    @functools.wraps(method)
    def first_or_again(self, batch: Batch):
        if method.__name__ not in batch.results:
            with torch.no_grad():
                batch.results[method.__name__] = method(self, batch)
        return batch.results[method.__name__]

    return first_or_again


@cached
def whole_logits(subject: "Subject", batch: Batch) -> torch.Tensor:
    """Logits (B,C) of the texts as they are, without gradient; kept in the batch."""
    return subject.predict(batch)


def outputs(subject: "Subject", logits: torch.Tensor) -> torch.Tensor:
    """The outputs (B,C) for logits (B,C), in float64, by the subject's `output`: probabilities of "classes", which sum to 1;
    probabilities of "labels", each by itself; or the logits themselves, "values".
    """
    kind, logits = getattr(subject, "output", "classes"), logits.double()
    return {"classes": logits.softmax(-1), "labels": logits.sigmoid(), "values": logits}[kind]


def per_token(subject: "Subject", batch: Batch, values: torch.Tensor) -> list[np.ndarray]:
    """Values (B,T) as one float32 array an instance, of its attendable tokens."""
    return ragged(values.float().cpu(), subject.attendable(batch).cpu())


def log_odds(logits: torch.Tensor, classes: torch.Tensor | None = None) -> torch.Tensor:
    """log(p / (1 - p)) of a class, in float64 (B,...), by logits (B,...,C); exact where p rounds to 1.

    classes (B,): the class of each instance; None for the predicted class. It is the logit minus the log-sum-exp of the
    other logits; with two classes the difference of logits.
    """
    logits = logits.double()
    chosen = logits.argmax(-1, keepdim=True) if classes is None else _places(logits, classes)
    rest = logits.scatter(-1, chosen, -torch.inf).logsumexp(-1)
    return logits.gather(-1, chosen).squeeze(-1) - rest


def logits_of(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """The logits (B,...) of a class (B,) of each instance, by logits (B,...,C)."""
    return logits.gather(-1, _places(logits, classes)).squeeze(-1)


def _places(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return classes.reshape(-1, *[1] * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)


def require(subject: "Subject", needs: Iterable[str], who: str, *, measures: Sequence[str] | None = None) -> None:
    """Raise SubjectError where a subject lacks what `who` needs. measures: the names of those that it can have instead."""
    lacking = sorted(set(needs) - subject.capabilities)
    if not lacking:
        return
    described = CAPABILITIES | PAIR_CAPABILITIES
    message = f"'{who}' needs " + " and ".join(f"'{name}' ({described[name]})" for name in lacking)
    message += f", which this subject ({subject.kind}) lacks"
    why = [reason for name, reason in getattr(subject, "lacks", {}).items() if name in lacking]
    if why:
        message += f": {' and '.join(why)}"
    if measures is not None:
        message += f"; measures that this subject can have: {', '.join(measures) or 'none'}"
    raise SubjectError(message)


def item_places(subject: "Subject", batch: Batch) -> torch.Tensor:
    """(B,L): the number of the item, counted from 0, that an input position belongs to; -1 for none."""
    items = subject.items(batch)
    if items is not None:
        return items
    inside = subject.attendable(batch)
    return (inside.cumsum(1) - 1).masked_fill(~inside, -1)


def marked_places(subject: "Subject", batch: Batch, marks: torch.Tensor) -> torch.Tensor:
    """(B,T) bool: the places of attention with a marked input position; marks (B,L), 0 where a position is not marked."""
    items, inside, marked = subject.items(batch), subject.attendable(batch), marks != 0
    if items is None:
        return inside & marked
    places = torch.zeros_like(inside)
    rows, positions = (marked & (items >= 0)).nonzero(as_tuple=True)
    places[rows, items[rows, positions]] = True
    return places


@torch.no_grad()
def read_parts(subject: "Subject", batch: Batch, parts: Sequence[np.ndarray], absent: str = "deleted") -> list[np.ndarray]:
    """Logits (V,C) in float64 of parts of each text: one array (V,T) bool per instance, true where items stay. Equal parts
    of a text are read once.

    absent: what becomes of the rest. "deleted": what follows moves up, and of a hierarchical model a sentence without words
    is gone. "zero": their embeddings are zeros. "mask_token": the mask token is in their place. "hidden": they keep their
    places, and no attention may look at them. Markers and a second text that is not attended to stay. Raises SubjectError
    for a subject that cannot do so.
    """
    require(subject, {ABSENT[absent]}, f"absent='{absent}'")
    different, places = zip(*(np.unique(part, axis=0, return_inverse=True) for part in parts), strict=True)
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in different])
    items, present = item_places(subject, batch).cpu().numpy(), batch["attention_mask"].bool().cpu().numpy()
    stays = present[owner]
    for row, part in enumerate(part for text in different for part in text):
        inside = items[owner[row]] >= 0
        stays[row, inside] = part[items[owner[row], inside]]
    lengths = (stays if absent == "deleted" else present[owner]).sum(1)
    logits = np.empty((len(stays), subject.num_labels))
    for chosen in by_length(lengths, TOKENS_AT_ONCE):
        logits[chosen] = _read(subject, batch, owner[chosen], stays[chosen], absent)
    by_text = np.split(logits, np.cumsum([len(part) for part in different])[:-1])
    return [values[place.reshape(-1)] for values, place in zip(by_text, places, strict=True)]


def _read(subject: "Subject", batch: Batch, owner: np.ndarray, stays: np.ndarray, absent: str) -> np.ndarray:
    """Logits (V,C) of the texts `owner` (V,), of each the positions (V,L) that stay."""
    rows, stays = (torch.from_numpy(values).to(subject.device) for values in (owner, stays))
    if absent == "deleted":
        return subject.predict(subject.keep(batch.take(rows), stays)).double().cpu().numpy()
    texts = batch.take(rows, int(batch["attention_mask"][rows].sum(1).max()))
    stays = stays[:, : texts["input_ids"].shape[1]]
    if absent == "zero":
        return subject.predict(texts, subject.embed(texts) * stays.unsqueeze(2)).double().cpu().numpy()
    name, value = ("attention_mask", 0) if absent == "hidden" else ("input_ids", subject.mask_token_id)
    texts[name] = texts[name].masked_fill(texts["attention_mask"].bool() & ~stays, value)
    return subject.predict(texts).double().cpu().numpy()
