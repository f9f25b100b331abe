"""Texts without the characters of some of their tokens, divided into tokens anew. Shapes: B instances, L input positions."""

import torch

from attnfaith.data.classifier_text import without_tokens
from attnfaith.data.collation import pad_batch
from attnfaith.data.subwords import places_of
from attnfaith.subjects.protocol import TEXTS, Batch, SubjectError


def retokenised(subject, batch: Batch, stays: torch.Tensor) -> Batch:
    """The texts of a batch without the input positions that do not stay (B,L), by the subject's tokenizer.

    Raises SubjectError for a batch that does not hold its texts, DatasetError where its tokens are not theirs.
    """
    names = [name for name in TEXTS if batch.get(name) is not None]
    if not names:
        raise SubjectError(
            "a text that is tokenised anew has to be known, and this batch holds tokens alone: make it from texts, by "
            "`encode`, or from what `rows` gives, by `collate`"
        )
    ids, places, lengths = batch["input_ids"].tolist(), stays.tolist(), batch["attention_mask"].sum(1).tolist()
    marks = None if batch.get("impermissible") is None else batch["impermissible"].tolist()
    left = []
    for row, parts in enumerate(zip(*(batch[name] for name in names), strict=True)):
        read = [values[row][: lengths[row]] for values in (ids, places, *(() if marks is None else (marks,)))]
        left.append(without_tokens(parts, *read[:2], subject.tokenizer, *read[2:]))
    texts = [[text for text, _ in of_row] for of_row in left]
    encoded = subject.tokenizer(*(list(part) for part in zip(*texts, strict=True)), truncation=False, padding=False)
    given = ("input_ids", *(("token_type_ids",) if batch.get("token_type_ids") is not None else ()))
    empty = {"input_ids": [subject.filling], "token_type_ids": [0]}  # where a tokenizer makes nothing of nothing
    rows = [{name: encoded[name][row] or empty[name] for name in given} for row in range(len(texts))]
    for row, encoding in zip(rows, encoded.encodings, strict=True):
        inside = {place for number in range(len(names)) for place in places_of(encoding, number)}
        row["special_tokens_mask"] = [int(place not in inside) for place in range(len(encoding.ids))] or [1]
    if marks is not None:
        for row, encoding in enumerate(encoded.encodings):
            tokens = zip(encoding.sequence_ids, encoding.offsets, strict=True)
            marked = [number is not None and any(left[row][number][1][slice(*span)]) for number, span in tokens]
            rows[row]["impermissible"] = [int(mark) for mark in marked] or [0]
    made = pad_batch(rows, subject.filling)
    return Batch.of({**made, "instance_id": batch["instance_id"], "label": batch["label"]}, subject)
