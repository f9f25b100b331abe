"""What the tests of explanations share: the scores that are tested, and what a model says of a part of a text.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences or words), V parts of
texts, M measures, C classes.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from attnfaith.data.collation import keep_positions
from attnfaith.experiments._readout import encode


TOKENS_AT_ONCE = 2**13  # padded tokens of shortened texts that are read together


@torch.no_grad()
def scores(model, batch) -> dict[str, list[np.ndarray]]:
    """The scores under test: measure -> one array (T,) per instance.

    In a measurement batch["scores"], which holds attention and every measure of inputs of the same pass; alone, attention.
    """
    if "scores" in batch:
        return batch["scores"]
    encoded = encode(model, batch)
    weights = model.attend(*encoded).double().cpu().numpy()
    return {"attention": [row[keep] for row, keep in zip(weights, encoded.mask.cpu().numpy(), strict=True)]}


@torch.no_grad()
def whole(model, batch) -> np.ndarray:
    """Class probabilities (B,C) in float64 of the texts as they are."""
    encoded = encode(model, batch)
    attention = batch["attention"] if "attention" in batch else model.attend(*encoded)
    return model.decode(encoded.hidden, attention, encoded.query).double().softmax(-1).cpu().numpy()


def places(model, batch) -> torch.Tensor:
    """(B,L): the number of the item, counted from 0, that an input position belongs to; -1 for none."""
    items = model.items(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    if model.level != "token":
        return items
    inside = items >= 0
    return (inside.cumsum(1) - 1).masked_fill(~inside, -1)


def distinct(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of parts (V,T) bool, and which of them each row is (V,)."""
    packed = np.packbits(parts, axis=1)
    if not packed.shape[1]:  # no items: all parts are the empty one
        return parts[:1], np.zeros(len(parts), np.int64)
    _, first, number = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return parts[first], number.reshape(-1)


@torch.no_grad()
def read_parts(model, batch, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Class probabilities (V,C) in float64 of parts of each text: one array (V,T) bool per instance, true where items stay.

    The other items are deleted: what follows moves up, begin and end markers and a second text stay, and of a hierarchical
    model a sentence without words is gone. Each part is read anew as a text of its own; those of all instances run together
    by length, at most TOKENS_AT_ONCE padded tokens at once.
    """
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    where, present = places(model, batch).cpu().numpy(), batch["attention_mask"].bool().cpu().numpy()
    stays = np.concatenate([_positions(*one) for one in zip(where, present, parts, strict=True)])
    found = np.empty((len(stays), model.config.num_labels))
    for chosen in _by_length(stays.sum(1)):
        found[chosen] = _read(model, batch, owner[chosen], stays[chosen])
    return np.split(found, np.cumsum([len(part) for part in parts])[:-1])


def _positions(where: np.ndarray, present: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Which input positions (V,L) stay, for items (V,T) that do; where (L,) and present (L,) of one instance."""
    inside = where >= 0
    stays = np.repeat(present[None], len(part), axis=0)
    stays[:, inside] = part[:, where[inside]]
    return stays


def _by_length(lengths: np.ndarray) -> Iterator[np.ndarray]:
    order = np.argsort(lengths, kind="stable")
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or lengths[order[stop]] * (stop + 1 - start) > TOKENS_AT_ONCE:
            yield order[start:stop]
            start = stop


def _read(model, batch, owner: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """Class probabilities (V,C) of the texts `owner` (V,), each cut to the positions that stay (V,L)."""
    device = batch["input_ids"].device
    rows = torch.from_numpy(owner).to(device)
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    texts = {name: batch[name][rows] for name in inputs if batch.get(name) is not None}
    given = keep_positions(texts, torch.from_numpy(stays).to(device), model.config.pad_token_id or 0)
    if batch.get("answer_mask") is not None:
        given["answer_mask"] = batch["answer_mask"][rows]
    encoded = model.encode(**given)
    attention = model.attend(*encoded)
    return model.decode(encoded.hidden, attention, encoded.query).double().softmax(-1).cpu().numpy()
