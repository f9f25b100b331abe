"""View all self-attention of a model on a text, or the alignments of a pair of sentences."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from attnfaith import record
from attnfaith.api.measuring import measure
from attnfaith.api.records import Record
from attnfaith.api.texts import read_texts
from attnfaith.importance.context_mixing import alti_matrices, zeroing_matrices
from attnfaith.loading import open_subject, origin_of
from attnfaith.reporting.view import TITLES, PairView, View
from attnfaith.subjects import Batch, Subject, SubjectError, outputs
from attnfaith.subjects.base import plainly
from attnfaith.subjects.layers import Layer
from attnfaith.subjects.translator import SequenceSubject
from attnfaith.support.errors import AttnfaithError, DatasetError, excerpt
from attnfaith.support.files import MODEL, RECORD


MOST_READ = 128
"""The longest text, in positions, that value zeroing reads by default: it reads a text once for each."""


@plainly()
def view(model, text=None, measures: str | Sequence[str] | None = None, *, tokenizer=None, device=None) -> View | PairView:
    """View all self-attention of a model on one text: how much each position takes from each other, layer over layer. Or
    view a pair of sentences of a record: which words align by every measure, layer and head, with gold links.

    The view shows itself in a notebook; `save` writes its page, one file for a browser.

    Args:
        model: as `attnfaith.measure` takes it: a text classifier of transformers, or a model from sequences to sequences;
            or a record of sentence pairs: a `Record`, its file, or its run.
        text: a string, or a pair (text, second text); (source, target) of a model from sequences to sequences; of a record
            the number of a pair, from 0, or its instance id (None: the first).
        measures: which of "attention" (the weights of each layer and head), "rollout", "alti" and "value_zeroing", in this
            order. None: all that the model has; value_zeroing of texts above 128 positions only by name. Of a model from
            sequences to sequences: as `attnfaith.measure` takes them.
        tokenizer: of a model object, or its name or folder.
        device: where the model is put, as `attnfaith.measure` takes it.

    Raises AttnfaithError for wrong arguments, a model without self-attention, and a model that lacks what a named measure
    needs.
    """
    table = _record_of_pairs(model)
    if table is not None:
        if (measures, tokenizer, device) != (None, None, None):
            raise AttnfaithError(
                "a record of sentence pairs shows all that it holds: leave measures, tokenizer and device out"
            )
        return PairView.of(table, 0 if text is None else text)
    if text is None:
        raise DatasetError("there is no text: give one, or a pair of texts for a model that reads two")
    subject = open_subject(model, tokenizer=tokenizer, device=device)
    name, texts = _name(origin_of(subject).name), [tuple(text) if isinstance(text, list) else text]
    if isinstance(subject, SequenceSubject):
        return PairView.of(measure(subject, texts, None, measures, name=name, split="pair", progress=False).table)
    names = [measures] if isinstance(measures, str) else measures
    wrong = [name for name in names or () if name not in TITLES]
    if wrong:
        raise AttnfaithError(f"nothing to be seen is called {excerpt(wrong[0])}; there are {', '.join(TITLES)}")
    rows = subject.rows(read_texts(texts, name="text").dataset)
    row = rows[0]
    if not len(row["tokens"]):
        raise DatasetError(f"the text {excerpt(text)} has no word that the model's tokenizer knows of")
    subject.check(rows)
    with subject.evaluating(), torch.no_grad():
        batch = subject.collate([row]).alone(0)
        probs = outputs(subject, subject.predict(batch))[0].cpu().numpy()
        stack = _stack(subject, batch)
        matrices, lacks = _matrices(stack, names)
    kind = "class" if "classes" in subject.capabilities else "output"
    tokens, words = _tokens(subject, row, stack)
    return View(
        model=name,
        tokens=tokens,
        inside=stack.inside.cpu().numpy(),
        words=words,
        classes=tuple(subject.class_names) or tuple(f"{kind} {number}" for number in range(subject.num_labels)),
        probs=probs,
        reads=stack.reads.cpu().numpy(),
        heads=tuple(layer.weights[0].float().cpu().numpy() for layer in stack.layers) if "attention" in matrices else (),
        matrices=matrices,
        lacks=lacks,
        truncated=bool(row["truncated"]),
        stacked="stacked maps" not in subject.lacks,
    )


def _record_of_pairs(model) -> pa.Table | None:
    """The record of sentence pairs in a Record, a file or the folder of a run; None for a model."""
    if isinstance(model, Record):
        return model.table
    if not isinstance(model, str | os.PathLike):
        return None
    path = Path(model)
    if path.is_file():
        return record.load(path)
    path = path / RECORD
    return record.load(path) if path.is_file() and record.of_sequences(record.schema_of(path)) else None


def _name(source: str) -> str:
    """A model's name without its place, for views are sent: the last part of a folder, of a run the run's."""
    folder = Path(source)
    if not (folder.is_dir() or folder.is_absolute()):
        return source
    folder = folder.resolve()
    return folder.parent.name if folder.name == MODEL else folder.name


class Stack(NamedTuple):
    """The layers of a subject on a text, a batch of one instance; reads (L,): the share of each position in what the logits
    read of the last layer; inside (L,) bool: positions of the text, without markers.
    """

    subject: Subject
    text: Batch
    layers: list[Layer]
    reads: torch.Tensor
    inside: torch.Tensor


def _stack(subject: Subject, text: Batch) -> Stack:
    """Raises SubjectError for a subject without self-attention, and where the logits depend on no position."""
    if "attention maps" not in subject.capabilities:
        raise SubjectError(
            f"this model has no self-attention to be seen ({subject.kind}): give a text classifier of transformers"
        )
    layers, matter = subject.layers(text)
    if not matter.any():
        raise SubjectError("the logits of this text do not depend on the last layer: there is no answer to follow")
    return Stack(subject, text, layers, matter.double() / matter.sum(), subject.attendable(text)[0])


def _attention(stack: Stack) -> np.ndarray:
    return np.stack([layer.weights[0].double().mean(0).cpu().numpy() for layer in stack.layers])


def _mixed(matrices_of: Callable, stack: Stack) -> np.ndarray:
    return np.stack([matrix.cpu().numpy() for matrix in matrices_of(stack.subject, stack.text, stack.layers)])


MATRICES = {
    "attention": ((), _attention),
    "rollout": (("stacked maps",), lambda stack: (_attention(stack) + np.eye(len(stack.reads))) / 2),
    "alti": (("layer parts", "stacked maps"), lambda stack: _mixed(alti_matrices, stack)),
    "value_zeroing": (("layer states", "stacked maps"), lambda stack: _mixed(zeroing_matrices, stack)),
}
"""{measure: (what it needs of the stack, its matrices)}; the last need that is lacking is the reason."""


def _matrices(stack: Stack, names: Sequence[str] | None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """{measure: (N,L,L)} of the named measures, and {measure: reason} of those left out."""
    reasons = stack.subject.lacks
    lacks = {name: reasons[need] for name, (needs, _) in MATRICES.items() for need in needs if need in reasons}
    for name in names or ():
        if name in lacks:
            raise SubjectError(f"{name} cannot be seen of this model: {lacks[name]}")
    if not names:
        count = len(stack.reads)
        if count > MOST_READ:
            lacks.setdefault("value_zeroing", f"it reads a text of {count} positions {count} times: ask for it by name")
        names = [name for name in MATRICES if name not in lacks]
    return {name: MATRICES[name][1](stack) for name in names}, lacks


def _tokens(subject: Subject, row, stack: Stack) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    """The text of each position, and the number of its word."""
    ids = subject.tokenizer.convert_ids_to_tokens(stack.text["input_ids"][0].tolist())
    owners = iter(row.get("word_of_token") or range(len(row["tokens"])))
    own, inside = iter(row["tokens"]), stack.inside.tolist()
    tokens = tuple(next(own) if is_inside else marker for marker, is_inside in zip(ids, inside, strict=True))
    return tokens, tuple(next(owners) if is_inside else None for is_inside in inside)
