"""What a model says of parts of texts: items taken away, the rest read anew.

Shapes: B instances, L input positions, T items of attention (tokens; of hierarchical models sentences or words), V parts of
a text, C classes.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch


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
    read = {"deleted": _without, "zero": _zeroed}[absent]
    found = np.empty((len(stays), model.config.num_labels))
    for chosen in _by_length(lengths):
        given = read(model, batch, owner[chosen], stays[chosen], int(lengths[chosen].max()))
        if batch.get("answer_mask") is not None:
            given["answer_mask"] = batch["answer_mask"][torch.from_numpy(owner[chosen]).to(model.device)]
        encoded = model.encode(**given)
        found[chosen] = model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().cpu().numpy()
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


def _without(model, batch, owner: np.ndarray, stays: np.ndarray, length: int) -> dict[str, torch.Tensor]:
    """The texts `owner` (V,) as a model takes them, each cut to the positions that stay (V,L), at most `length`."""
    device = batch["input_ids"].device
    order = torch.from_numpy(np.argsort(~stays, axis=1, kind="stable")[:, :length]).to(device)
    present = torch.from_numpy(np.arange(length) < stays.sum(1, keepdims=True)).to(device)
    rows = torch.from_numpy(owner).to(device)
    pad = model.config.pad_token_id or 0
    given = {
        "input_ids": batch["input_ids"][rows].gather(1, order).masked_fill(~present, pad),
        "attention_mask": present.to(batch["attention_mask"].dtype),
    }
    if batch.get("token_type_ids") is not None:
        given["token_type_ids"] = batch["token_type_ids"][rows].gather(1, order).masked_fill(~present, 0)
    return given


def _zeroed(model, batch, owner: np.ndarray, stays: np.ndarray, length: int) -> dict[str, torch.Tensor]:
    """The same, with embeddings of zeros where positions do not stay; cut to `length`."""
    rows = torch.from_numpy(owner).to(batch["input_ids"].device)
    ids, kept = batch["input_ids"][rows, :length], torch.from_numpy(stays[:, :length]).to(rows.device)
    given = {"attention_mask": batch["attention_mask"][rows, :length]}
    if batch.get("token_type_ids") is not None:
        given["token_type_ids"] = batch["token_type_ids"][rows, :length]
    if model.level != "token":
        given["items"] = model.items(ids, **given)
    return {"inputs_embeds": model.get_input_embeddings()(ids) * kept.unsqueeze(-1), **given}
