"""Logits of parts of texts: items are taken away, and the rest is read anew.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences), V parts of
a text, C classes.
"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.data.collation import by_length
from attnfaith.subjects.protocol import Batch, Subject, require


ABSENT = {"deleted": "token deletion", "zero": "embeddings", "mask_token": "mask token", "hidden": "token hiding"}
"""{way of taking items away: the capability that a subject needs for it}"""
TOKENS_AT_ONCE = 2**13  # padded tokens of parts that are read together


def item_places(subject: Subject, batch: Batch) -> torch.Tensor:
    """(B,L): the number of the item, counted from 0, that an input position belongs to; -1 for none."""
    items = subject.items(batch)
    if items is not None:
        return items
    inside = subject.attendable(batch)
    return (inside.cumsum(1) - 1).masked_fill(~inside, -1)


def marked_places(subject: Subject, batch: Batch, marks: torch.Tensor) -> torch.Tensor:
    """(B,T) bool: the places of attention with a marked input position; marks (B,L), 0 where a position is not marked."""
    items, inside, marked = subject.items(batch), subject.attendable(batch), marks != 0
    if items is None:
        return inside & marked
    places = torch.zeros_like(inside)
    rows, positions = (marked & (items >= 0)).nonzero(as_tuple=True)
    places[rows, items[rows, positions]] = True
    return places


@torch.no_grad()
def read_parts(subject: Subject, batch: Batch, parts: Sequence[np.ndarray], absent: str = "deleted") -> list[np.ndarray]:
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


def _read(subject: Subject, batch: Batch, owner: np.ndarray, stays: np.ndarray, absent: str) -> np.ndarray:
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
