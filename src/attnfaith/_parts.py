"""What a model says of parts of texts: items taken away, the rest read anew.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences or words), V parts of
a text, C classes.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from attnfaith.data.collation import keep_positions


ABSENT = ("deleted", "zero")
TOKENS_AT_ONCE = 2**13  # padded tokens of parts that are read together


def item_places(model, batch) -> torch.Tensor:
    """(B,L): the number of the item, counted from 0, that an input position belongs to; -1 for none."""
    items = model.items(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    if model.level != "token":
        return items
    inside = items >= 0
    return (inside.cumsum(1) - 1).masked_fill(~inside, -1)


@torch.no_grad()
def read_parts(model, batch, parts: Sequence[np.ndarray], absent: str = "deleted") -> list[np.ndarray]:
    """Logits (V,C) in float64 of parts of each text: one array (V,T) bool per instance, true where items stay.

    absent: what becomes of the others. "deleted": what follows moves up, and of a hierarchical model a sentence without
    words is gone. "zero": their embeddings are zeros. Begin and end markers and a second text stay. Each part is read as a
    text of its own; those of all instances run together by length, at most TOKENS_AT_ONCE padded tokens at once.
    """
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    where, present = item_places(model, batch).cpu().numpy(), batch["attention_mask"].bool().cpu().numpy()
    stays = np.concatenate([_positions(*one) for one in zip(where, present, parts, strict=True)])
    lengths = (stays if absent == "deleted" else present[owner]).sum(1)
    found = np.empty((len(stays), model.config.num_labels))
    for chosen in _by_length(lengths):
        found[chosen] = _read(model, batch, owner[chosen], stays[chosen], absent)
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


def _read(model, batch, owner: np.ndarray, stays: np.ndarray, absent: str) -> np.ndarray:
    """Logits (V,C) of the texts `owner` (V,), of each the positions (V,L) that stay."""
    device = batch["input_ids"].device
    rows, stays = torch.from_numpy(owner).to(device), torch.from_numpy(stays).to(device)
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    texts = {name: batch[name][rows] for name in inputs if batch.get(name) is not None}
    if absent == "deleted":
        given = keep_positions(texts, stays, model.config.pad_token_id or 0)
    else:
        length = int(texts["attention_mask"].sum(1).max())
        texts, stays = {name: values[:, :length] for name, values in texts.items()}, stays[:, :length]
        items = None if model.level == "token" else model.items(**texts)
        embedded = model.get_input_embeddings()(texts.pop("input_ids")) * stays.unsqueeze(-1)
        given = {"inputs_embeds": embedded, "items": items, **texts}
    if batch.get("answer_mask") is not None:
        given["answer_mask"] = batch["answer_mask"][rows]
    encoded = model.encode(**given)
    return model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().cpu().numpy()
