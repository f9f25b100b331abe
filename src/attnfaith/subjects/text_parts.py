"""Logits of parts of texts: items are taken away, and the rest is read anew.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences or words), V parts of
a text, C classes.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from attnfaith.subjects.protocol import Batch, Subject, require


ABSENT = {
    "deleted": "token deletion",
    "zero": "embeddings",
    "mask_token": "mask token",
    "hidden": "token hiding",
    "retokenised": "texts",
}
"""{way of taking items away: the capability that a subject needs for it}"""
TOKENS_AT_ONCE = 2**13  # padded tokens of parts that are read together
MAPPED_AT_ONCE = 2**10  # the same of a model with maps of attention on a CPU: more leave its cache


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
    """Logits (V,C) in float64 of parts of each text: one array (V,T) bool per instance, true where items stay.

    absent: what becomes of the rest. "deleted": what follows moves up, and of a hierarchical model a sentence without words
    is gone. "zero": their embeddings are zeros. "mask_token": the mask token is in their place. "hidden": they keep their
    places, and no attention may look at them. "retokenised": the characters of these tokens are gone, and the rest of the
    text is divided into tokens anew, which may be others. Begin and end markers and a second text that is not attended to
    stay. Each part is read as a text of its own, together with parts of its length.

    Raises SubjectError for a subject that cannot do so.
    """
    require(subject, {ABSENT[absent]}, f"absent='{absent}'")
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    items, present = item_places(subject, batch).cpu().numpy(), batch["attention_mask"].bool().cpu().numpy()
    stays = np.concatenate([_positions(*text) for text in zip(items, present, parts, strict=True)])
    lengths = (stays if absent in ("deleted", "retokenised") else present[owner]).sum(1)
    logits = np.empty((len(stays), subject.num_labels))
    mapped = "attention maps" in subject.capabilities and subject.device.type == "cpu"
    for chosen in _by_length(lengths, MAPPED_AT_ONCE if mapped else TOKENS_AT_ONCE):
        logits[chosen] = _read(subject, batch, owner[chosen], stays[chosen], absent)
    return np.split(logits, np.cumsum([len(part) for part in parts])[:-1])


def _positions(items: np.ndarray, present: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Which input positions (V,L) stay, for items (V,T) that do; items (L,) and present (L,) of one instance."""
    inside = items >= 0
    stays = np.repeat(present[None], len(part), axis=0)
    stays[:, inside] = part[:, items[inside]]
    return stays


def _by_length(lengths: np.ndarray, together: int) -> Iterator[np.ndarray]:
    order, start = np.argsort(lengths, kind="stable"), 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or lengths[order[stop]] * (stop + 1 - start) > together:
            yield order[start:stop]
            start = stop


def _read(subject: Subject, batch: Batch, owner: np.ndarray, stays: np.ndarray, absent: str) -> np.ndarray:
    """Logits (V,C) of the texts `owner` (V,), of each the positions (V,L) that stay."""
    rows, stays = (torch.from_numpy(values).to(subject.device) for values in (owner, stays))
    if absent == "deleted":
        texts = subject.keep(batch.take(rows), stays)
    elif absent == "retokenised":
        texts = subject.retokenised(batch.take(rows), stays)
    else:
        texts = batch.take(rows, int(batch["attention_mask"][rows].sum(1).max()))
        stays = stays[:, : texts["input_ids"].shape[1]]
        gone = texts["attention_mask"].bool() & ~stays
        if absent == "zero":
            embedded = subject.embed(texts)
            return subject.predict(texts, embedded * stays.unsqueeze(2)).double().cpu().numpy()
        name, value = ("attention_mask", 0) if absent == "hidden" else ("input_ids", subject.mask_token_id)
        texts[name] = texts[name].masked_fill(gone, value)
    return subject.predict(texts).double().cpu().numpy()
