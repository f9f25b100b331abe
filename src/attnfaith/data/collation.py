"""Batches of torch tensors from encoded instances. Shapes: B instances, L the longest input_ids of the batch, C classes."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from attnfaith.support.errors import DatasetError


POSITION_COLUMNS = ("token_type_ids", "impermissible", "special_tokens_mask")
"""Columns with a number for each input position besides its id, 0 on padding."""


def pad_batch(features: Sequence[Mapping], pad_token_id: int = 0, *, padding: Mapping[str, int] | None = None) -> dict:
    """Pad instances on the right to the longest of the batch.

    Args:
        features: rows of `encode` with input_ids and, in all rows or in none, the POSITION_COLUMNS and labels. Other columns
            are ignored.
        pad_token_id: id of the padding token.
        padding: other columns than these, and the value behind them.

    Returns int64 tensors input_ids (B, L), attention_mask (B, L) with 1 on tokens and markers and 0 on padding,
    POSITION_COLUMNS (B, L) with 0 on padding, and labels (B,).

    Raises DatasetError for no instances, and a column that only some rows have.
    """
    if len(features) == 0:
        raise DatasetError("Cannot make a batch of no instances.")
    if padding is None:
        padding = dict.fromkeys((*POSITION_COLUMNS, "labels"), 0)
    batch = {}
    for name, value in {"input_ids": pad_token_id, **padding}.items():
        values = [torch.as_tensor(row[name], dtype=torch.int64) for row in features if name in row]
        if len(values) != len(features) and (values or name == "input_ids"):
            raise DatasetError(f"Only {len(values)} of {len(features)} instances have {name!r}; all must.")
        if values:
            lists = values[0].dim() > 0
            batch[name] = pad_sequence(values, batch_first=True, padding_value=value) if lists else torch.stack(values)
    lengths = torch.tensor([len(row["input_ids"]) for row in features])
    batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
    return batch


def keep_positions(batch: Mapping, stays, pad_token_id: int = 0) -> dict:
    """Return the texts of a batch with only some of their positions, which move up; padded on the right as by `pad_batch`.

    batch: tensors input_ids, attention_mask (B, L) and perhaps POSITION_COLUMNS (B, L), left unchanged. stays: bool (B, L),
    False on padding. In the returned tensors L is the most positions that stay in a text, at least 1.
    """
    lengths = stays.sum(1)
    order = (~stays).to(torch.int8).argsort(dim=1, stable=True)[:, : max(1, int(lengths.max()))]
    present = torch.arange(order.shape[1], device=stays.device) < lengths.unsqueeze(1)
    moved = {
        "input_ids": batch["input_ids"].gather(1, order).masked_fill(~present, pad_token_id),
        "attention_mask": present.to(batch["attention_mask"].dtype),
    }
    for name in POSITION_COLUMNS:
        if batch.get(name) is not None:
            moved[name] = batch[name].gather(1, order).masked_fill(~present, 0)
    return moved


def by_length(lengths, tokens: int, most: int | None = None):
    """Yield row numbers in batches of similar length, of at most `tokens` padded tokens, or one row, and `most` rows."""
    order, start = np.argsort(lengths, kind="stable"), 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or stop - start == most or lengths[order[stop]] * (stop + 1 - start) > tokens:
            yield order[start:stop]
            start = stop
