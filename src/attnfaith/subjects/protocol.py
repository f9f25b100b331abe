"""The protocol between measures and models: capabilities, batches, and the methods of a subject.

Shapes: B instances, L input positions, T places of attention, C classes, K attentions per instance, E embedding, H hidden,
V vocabulary.
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch

from attnfaith.record import ragged
from attnfaith.support.errors import AttnfaithError


if TYPE_CHECKING:
    from datasets import Dataset


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
    "weighted sums": "it is known what its attention weighs, and that attention is used for nothing else",
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
    "cross vectors": "what its cross-attention weighs is known, projected to states: vectors",
    "stacked parts": "the states of its encoder and decoder are sums of one vector a position: stacked_parts",
    "layer results": "it can compute a layer without some of the values that its cross-attention weighs: results_without",
    "head values": "the values that its heads weigh are known, and the weights are used for nothing else: head_values",
}
"""The same for models from sequences to sequences."""

MAPS = frozenset({"attention maps", "stacked maps", "layer states", "layer parts", "backward rules"})
"""Capabilities of stacks of layers."""

OF_TOKENIZERS = frozenset({"mask token", "token hiding"})
"""Capabilities that need the tokenizer of a model of transformers."""

TEXT = ("input_ids", "attention_mask", "token_type_ids")
"""Tensors (B,L) of a batch that models read."""

RECORDED = ("rows", "identity", "digest", "level", "class_names")
"""Attributes of a subject that a record needs."""


class SubjectError(AttnfaithError):
    """A model that is no subject, or lacks a capability. The message names what is missing and what to do."""


class Batch(dict):
    """Instances as a subject reads them, by name.

    input_ids, attention_mask (B,L) and, of pairs, token_type_ids (B,L); special_tokens_mask (B,L), 1 on markers, where a
    tokenizer of transformers read the texts; impermissible (B,L), 1 on tokens that a deceptive model hides, where the data
    mark them; the lists instance_id and label (None where unknown).

    owner: the subject that it was opened for. results: what that subject and measures computed of it, so that it is
    computed once; see `once` and `cached`.
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
        padding. The argument is left as it was. Raises SubjectError where input_ids are no tensor (B,L).
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


class Subject(Protocol):
    """A model that can be measured.

    T are the places that attention is over: the L input positions of a model that attends to tokens, fewer where it attends
    to sentences. Every subject has all that comes before `rows`. A record needs RECORDED as well; measures do not. Methods
    from `embed` on belong to capabilities, and a subject without the capability may lack them.
    """

    kind: str  # of this subject, for people
    capabilities: frozenset[str]  # those of CAPABILITIES that it has
    lacks: Mapping[str, str]  # why it has not others, as far as that is known; may be left out
    num_labels: int
    device: torch.device
    pad_token_id: int | None
    unknown_token_id: int
    mask_token_id: int | None  # "mask token"
    output: str  # what its logits become, see `outputs`; may be left out: "classes"
    level: str  # what attention is over: "token" or "sentence"; "word" of pairs
    class_names: Sequence[str]  # of a record, () where classes have none
    depth: int  # how many layers have states ("token states")

    def encode(self, texts: Sequence) -> Batch:
        """A batch from texts, or from pairs (text, query)."""

    def collate(self, rows: Sequence[Mapping]) -> Batch:
        """A batch from encoded instances, as `rows` makes them."""

    def check(self, dataset) -> None:
        """Raise SubjectError where encoded instances are not made for this subject, or it cannot predict at all."""

    def evaluating(self) -> AbstractContextManager:
        """Within, the subject is in eval mode; after it, in the mode that it was in."""

    def attendable(self, batch: Batch) -> torch.Tensor:
        """(B,T) bool: the places that hold what attention may look at; no markers, no padding."""

    def items(self, batch: Batch) -> torch.Tensor | None:
        """(B,L): the place that an input position belongs to, -1 for none; None where places are positions."""

    def predict(self, batch: Batch, embedded: torch.Tensor | None = None, *, hold: bool = False) -> torch.Tensor:
        """Logits (B,C). Embeddings (B,L,E) are read in place of the ids; hold: attention is fixed ("held attention")."""

    def attention(self, batch: Batch) -> torch.Tensor:
        """(B,T): the weights that a person would be shown, 0 where nothing is attendable; without gradient."""

    def rows(self, texts: "Dataset") -> "Dataset":
        """Encoded instances, row by row, from texts with the columns instance_id and text, and perhaps text_pair and label:
        instance_id, input_ids, tokens [T], labels if there are any, length (of input_ids), truncated (whether the text was
        cut), and what else `collate` needs. Raises SubjectError or DatasetError for texts that the model cannot read.
        """

    def identity(self) -> Mapping[str, object]:
        """The fields of `attnfaith.record.Identity` that the model decides, as far as they are known; "model" at least."""

    def digest(self) -> str:
        """A fingerprint of what the model computes: of its weights and of settings that change its outputs."""

    def embed(self, batch: Batch) -> torch.Tensor:
        """(B,L,E): the embeddings of input positions ("embeddings")."""

    def vocabulary(self) -> torch.Tensor:
        """(V,E): the embeddings of all words ("embeddings")."""

    def parameters(self) -> Iterable[torch.Tensor]:
        """The parameters of the model, which measures freeze ("embeddings")."""

    def keep(self, batch: Batch, stays: torch.Tensor) -> Batch:
        """The texts with the input positions `stays` (B,L) alone; what follows moves up ("token deletion")."""

    def summands(self, batch: Batch) -> Iterator[tuple[int, torch.Tensor]]:
        """For each instance, by number, the vectors (S,T,H) that its T attendable tokens add to S weighted sums of attention
        ("weighed vectors"). An instance may come several times, each time with other sums.
        """

    def value_norms(self, batch: Batch) -> torch.Tensor:
        """(B,N,T): the lengths of the vectors that N sums of attention weigh, weights aside; 0 where there is no such vector
        ("weighed vectors"). Of a stack of layers markers have some too.
        """

    def states_by_layer(self, batch: Batch) -> list[torch.Tensor]:
        """The states (B,T,H) of the places of attention after each layer, first layer first ("token states")."""

    def intervene(self, batch: Batch, attention: torch.Tensor) -> torch.Tensor:
        """Logits (B,C) under another attention (B,T), or (B,K,C) under K others (B,K,T) ("intervention").

        The subject's own attention gives its prediction.
        """

    def attention_products(self, batch: Batch, explain) -> torch.Tensor:
        """(B,T): each weight times the slope in it of explain(logits (n,C), rows (n,)) -> (n,) ("attention gradients")."""


def whole_logits(subject: Subject, batch: Batch) -> torch.Tensor:
    """Logits (B,C) of the texts as they are, without gradient; kept in the batch."""
    if ("logits", "whole") not in batch.results:
        with torch.no_grad():
            batch.results["logits", "whole"] = subject.predict(batch)
    return batch.results["logits", "whole"]


def outputs(subject: Subject, logits: torch.Tensor) -> torch.Tensor:
    """The outputs (B,C) for logits (B,C), in float64, by the subject's `output`: probabilities of "classes", which sum to 1;
    probabilities of "labels", each by itself; or the logits themselves, "values".
    """
    kind, logits = getattr(subject, "output", "classes"), logits.double()
    return {"classes": logits.softmax(-1), "labels": logits.sigmoid(), "values": logits}[kind]


def per_token(subject: Subject, batch: Batch, values: torch.Tensor) -> list[np.ndarray]:
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


def require(subject: Subject, needs: Iterable[str], who: str, *, measures: Sequence[str] | None = None) -> None:
    """Raise SubjectError where a subject lacks what `who` needs. measures: the names of those that it can have instead."""
    lacking, described = sorted(set(needs) - subject.capabilities), CAPABILITIES | PAIR_CAPABILITIES
    if not lacking:
        return
    message = f"'{who}' needs " + " and ".join(f"'{name}' ({described[name]})" for name in lacking)
    message += f", which this subject ({subject.kind}) lacks"
    why = [reason for name, reason in getattr(subject, "lacks", {}).items() if name in lacking]
    if why:
        message += f": {' and '.join(why)}"
    if measures is not None:
        message += f"; measures that this subject can have: {', '.join(measures) or 'none'}"
    raise SubjectError(message)
