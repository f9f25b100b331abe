"""Batches of torch tensors from encoded instances. Shapes: B instances, L the longest input_ids of the batch, C classes."""

from collections.abc import Mapping, Sequence

from attnfaith.support.errors import DatasetError


POSITION_COLUMNS = ("token_type_ids", "impermissible", "special_tokens_mask")
"""Columns with a number for each input position besides its id, 0 on padding."""


def pad_batch(features: Sequence[Mapping], pad_token_id: int = 0, num_labels: int | None = None) -> dict:
    """Pad instances on the right to the longest of the batch.

    Args:
        features: rows of `encode` with input_ids and, in all rows or in none, the POSITION_COLUMNS, candidates and a label
            under "labels" or "label". Other columns are ignored.
        pad_token_id: id of the padding token.
        num_labels: number C of classes; needed for rows with candidates.

    Returns int64 tensors input_ids (B, L), attention_mask (B, L) with 1 on tokens and markers and 0 on padding,
    POSITION_COLUMNS (B, L) with 0 on padding, labels (B,); and answer_mask (B, C) bool, True on the candidates of a row.

    Raises DatasetError for no instances, a column that only some rows have, and candidates that are no classes.
    """
    import numpy as np
    import torch

    if len(features) == 0:
        raise DatasetError("Cannot make a batch of no instances.")
    columns = set()
    for name in ("input_ids", *POSITION_COLUMNS, "candidates", "labels", "label"):
        count = sum(name in row for row in features)
        if (count or name == "input_ids") and count != len(features):
            raise DatasetError(f"Only {count} of {len(features)} instances have {name!r}; all must.")
        columns |= {name} if count else set()

    lengths = np.fromiter((len(row["input_ids"]) for row in features), np.int64, len(features))
    attended = np.arange(lengths.max()) < lengths[:, None]

    def padded(name: str, value: int):
        batch = np.full(attended.shape, value, np.int64)
        batch[attended] = np.concatenate([np.asarray(row[name], np.int64) for row in features])
        return torch.from_numpy(batch)

    batch = {"input_ids": padded("input_ids", pad_token_id), "attention_mask": torch.from_numpy(attended.astype(np.int64))}
    batch |= {name: padded(name, 0) for name in POSITION_COLUMNS if name in columns}
    if "candidates" in columns:
        batch["answer_mask"] = torch.zeros(len(features), num_labels or 0, dtype=torch.bool)
        for row, mask in zip(features, batch["answer_mask"], strict=True):
            if not len(row["candidates"]) or not all(0 <= number < len(mask) for number in row["candidates"]):
                raise DatasetError(
                    f"candidates {list(row['candidates'])}: give at least one of the num_labels={num_labels} classes."
                )
            mask[list(row["candidates"])] = True
    label = next((name for name in ("labels", "label") if name in columns), None)
    if label:
        batch["labels"] = torch.tensor([int(row[label]) for row in features], dtype=torch.int64)
    return batch


def keep_positions(batch: Mapping, stays, pad_token_id: int = 0) -> dict:
    """Return the texts of a batch with only some of their positions, which move up; padded on the right as by `pad_batch`.

    batch: tensors input_ids, attention_mask (B, L) and perhaps POSITION_COLUMNS (B, L), left unchanged. stays: bool (B, L),
    False on padding. In the returned tensors L is the most positions that stay in a text, at least 1.
    """
    import torch

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


def pad_attention(weights: Sequence[Sequence[float]], length: int, start: int = 1):
    """Return attention weights, [T] for each text, at the places of a model's attention: a float32 tensor (B, length).

    start: 1 where the text follows a begin marker; 0 for a hierarchical model, whose sentences have none. Markers, a second
    text and padding get 0.
    """
    import torch

    batch = torch.zeros(len(weights), length)
    for row, values in zip(batch, weights, strict=True):
        row[start : start + len(values)] = torch.as_tensor(values)
    return batch


def by_length(lengths, tokens: int, most: int | None = None):
    """Yield row numbers in batches of similar length, of at most `tokens` padded tokens, or one row, and `most` rows."""
    import numpy as np

    order, start = np.argsort(lengths, kind="stable"), 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or stop - start == most or lengths[order[stop]] * (stop + 1 - start) > tokens:
            yield order[start:stop]
            start = stop
