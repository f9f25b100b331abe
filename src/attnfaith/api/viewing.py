"""View all self-attention of a model on a text, or the alignments of a pair of sentences."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from attnfaith import record
from attnfaith.api.measuring import measure
from attnfaith.api.records import Record
from attnfaith.api.texts import read_texts
from attnfaith.importance.context_mixing import Alti, ValueZeroing
from attnfaith.loading import open_subject, origin_of
from attnfaith.reporting.view import TITLES, PairView, View
from attnfaith.subjects import SequenceSubject, Subject, SubjectError, outputs
from attnfaith.subjects.attention import Map
from attnfaith.subjects.base import plainly
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
    if "attention maps" not in subject.capabilities:
        raise SubjectError(
            f"this model has no self-attention to be seen ({subject.kind}): give a text classifier of transformers"
        )
    rows = subject.rows(read_texts(texts, name="text").dataset)
    row = rows[0]
    if not len(row["tokens"]):
        raise DatasetError(f"the text {excerpt(text)} has no word that the model's tokenizer knows of")
    subject.check(rows)
    with subject.evaluating(), torch.no_grad():
        batch = subject.collate([row]).alone(0)
        probs = outputs(subject, subject.predict(batch))[0].cpu().numpy()
        layers, matter = subject.layers(batch)
        if not matter.any():
            raise SubjectError("the logits of this text do not depend on the last layer: there is no answer to follow")
        lacks = _lacking(subject, names, len(matter))
        heads = tuple(layer.weights[0].float().cpu().numpy() for layer in layers)
        chosen = names or [name for name in NEEDS if name not in lacks]
        matrices = {name: _matrices(name, subject, batch, layers) for name in chosen}
    inside = subject.attendable(batch)[0].cpu().numpy()
    ids = subject.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    own, owners = iter(row["tokens"]), iter(row.get("word_of_token") or range(len(row["tokens"])))
    kind = "class" if "classes" in subject.capabilities else "output"
    return View(
        model=name,
        tokens=tuple(next(own) if is_inside else marker for marker, is_inside in zip(ids, inside, strict=True)),
        inside=inside,
        words=tuple(next(owners) if is_inside else None for is_inside in inside),
        classes=tuple(subject.class_names) or tuple(f"{kind} {number}" for number in range(subject.num_labels)),
        probs=probs,
        reads=(matter.double() / matter.sum()).cpu().numpy(),
        heads=heads if "attention" in matrices else (),
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
    return folder.resolve().parent.name if folder.resolve().name == MODEL else folder.resolve().name


NEEDS = {
    "attention": (),
    "rollout": ("stacked maps",),
    "alti": ("layer parts", "stacked maps"),
    "value_zeroing": ("layer states", "stacked maps"),
}
"""{measure: what it needs of a subject}; the last need that is lacking is the reason."""
MIXED = {"alti": Alti.matrices, "value_zeroing": ValueZeroing.matrices}


def _matrices(name: str, subject: Subject, batch, layers: list[Map]) -> np.ndarray:
    """The matrices (N,L,L) of layers by a measure."""
    if name in MIXED:
        return np.stack([matrix.cpu().numpy() for matrix in MIXED[name](subject, batch, layers)])
    weights = np.stack([layer.weights[0].double().mean(0).cpu().numpy() for layer in layers])
    return weights if name == "attention" else (weights + np.eye(weights.shape[1])) / 2


def _lacking(subject: Subject, names: Sequence[str] | None, length: int) -> dict[str, str]:
    """{measure: why it is left out}. Raises SubjectError for a named one that the model cannot have."""
    reasons = subject.lacks
    lacks = {name: reasons[need] for name, needs in NEEDS.items() for need in needs if need in reasons}
    if missing := [name for name in names or () if name in lacks]:
        raise SubjectError(f"{missing[0]} cannot be seen of this model: {lacks[missing[0]]}")
    if not names and length > MOST_READ:
        lacks.setdefault("value_zeroing", f"it reads a text of {length} positions {length} times: ask for it by name")
    return lacks
