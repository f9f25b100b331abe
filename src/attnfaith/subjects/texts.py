"""Texts of a classifier of transformers: tokenised by its own tokenizer, collated, shortened and tokenised anew.

Shapes: B instances, L input positions.
"""

from collections.abc import Mapping, Sequence

import torch

from attnfaith.data.collation import POSITION_COLUMNS, keep_positions, pad_batch
from attnfaith.data.subwords import encode_for_classifier, without_tokens
from attnfaith.subjects.base import ModelSubject, check_finite, check_ids, position_limit, vocabulary_size
from attnfaith.subjects.protocol import TEXTS, Batch, SubjectError


class ClassifierTexts(ModelSubject):
    """The tokens and batches of a classifier of transformers; places of attention are input positions."""

    @property
    def max_length(self) -> int | None:
        """The most input positions of a text; None where there is no bound."""
        return position_limit(self)

    @property
    def pad_token_id(self) -> int | None:
        for owner in (self.config, getattr(self.config, "text_config", None), self.tokenizer):
            number = getattr(owner, "pad_token_id", None)
            if number is not None and number >= 0:
                return int(number)  # the model's own first: by it a decoder finds the end of a text
        return None

    @property
    def filling(self) -> int:
        """The id behind the mask; a model without a padding token reads texts of one length at a time."""
        return 0 if self.pad_token_id is None else self.pad_token_id

    @property
    def unknown_token_id(self) -> int:
        number = getattr(self.tokenizer, "unk_token_id", None)
        return self.filling if number is None else number

    @property
    def mask_token_id(self) -> int | None:
        """The token that stands for a hidden one; None where the tokenizer has none."""
        return getattr(self.tokenizer, "mask_token_id", None)

    @property
    def end_token_id(self) -> int | None:
        """The marker behind a text, at which an encoder–decoder answers; None for other models."""
        for config in (self.config, getattr(self.config, "text_config", None)):
            if getattr(config, "is_encoder_decoder", False):
                end = getattr(config, "eos_token_id", None)
                return end if isinstance(end, int) else None
        return None

    @property
    def markers(self) -> frozenset[int]:
        """The ids of tokens that stand around texts: these are markers in a batch without special_tokens_mask."""
        owner = self.config if self.tokenizer is None else self.tokenizer
        ids = [getattr(owner, f"{role}_token_id", None) for role in ("cls", "sep", "bos", "eos")]
        several = (number if isinstance(number, list | tuple) else [number] for number in ids)  # an end may be one of many
        return frozenset(number for numbers in several for number in numbers if number is not None)

    def rows(self, texts):
        """The tokens of a pair are those of both texts."""
        self.check_tokenizer()
        rows = encode_for_classifier(texts, self.tokenizer, max_length=self.max_length)
        check_ids(rows["input_ids"], vocabulary_size(self.model))
        if (end := self.end_token_id) is not None:
            for name, ids in zip(rows["instance_id"], rows["input_ids"], strict=True):
                if ids.count(end) != 1:
                    raise SubjectError(
                        f"text {name!r} has {ids.count(end)} end markers (token {end}), and {type(self.model).__name__} "
                        "answers at the one behind a text: take spelled ones out, or give the model's own tokenizer, which "
                        "puts it there"
                    )
        return rows

    def collate(self, rows: Sequence[Mapping]) -> Batch:
        """A batch from rows of `rows`, on the model's device."""
        names = ("input_ids", *POSITION_COLUMNS)
        # where a tokenizer makes nothing of nothing
        empty = {"input_ids": [self.filling], **dict.fromkeys(POSITION_COLUMNS, [0]), "special_tokens_mask": [1]}
        batch = pad_batch(
            [{name: row[name] or empty[name] for name in names if row.get(name) is not None} for row in rows],
            self.filling,
        )
        batch["attention_mask"][[not row["input_ids"] for row in rows]] = 0  # a place to fill is no token
        batch |= {"instance_id": [row["instance_id"] for row in rows], "label": [row.get("labels") for row in rows]}
        batch |= {name: [row[name] for row in rows] for name in TEXTS if rows[0].get(name) is not None}
        return Batch.of(batch, self)

    def check(self, dataset) -> None:
        """Raise SubjectError for weights that are not finite, and for texts beyond the model's positions."""
        check_finite(self.model)
        longest = max(dataset["length"], default=0)
        if self.max_length is not None and longest > self.max_length:
            raise SubjectError(
                f"a text of {longest} tokens, and the model has {self.max_length} positions: encode the texts by `rows`, "
                "which cuts them and marks them as truncated"
            )

    def attendable(self, batch: Batch) -> torch.Tensor:
        """(B,L) bool: the tokens of a text, of a pair those of both; no markers, no padding."""
        special = batch.get("special_tokens_mask")
        if special is None:
            markers = torch.tensor(sorted(self.markers), device=batch["input_ids"].device, dtype=torch.int64)
            special = torch.isin(batch["input_ids"], markers)
        return batch["attention_mask"].bool() & ~special.bool()

    def keep(self, batch: Batch, stays: torch.Tensor) -> Batch:
        """Ids are taken away; the rest is not tokenised anew."""
        rest = {name: batch[name] for name in ("instance_id", "label") if name in batch}
        return Batch.of({**keep_positions(batch, stays, self.filling), **rest}, self)

    def retokenised(self, batch: Batch, stays: torch.Tensor) -> Batch:
        """The texts without the characters of the input positions that do not stay (B,L), tokenised anew ("texts").

        Raises SubjectError for a batch that does not hold its texts, DatasetError where its tokens are not theirs.
        """
        names = [name for name in TEXTS if batch.get(name) is not None]
        if not names:
            raise SubjectError(
                "a text that is tokenised anew has to be known, and this batch holds tokens alone: make it from texts, by "
                "`encode`, or from what `rows` gives, by `collate`"
            )
        lengths, marks = batch["attention_mask"].sum(1).tolist(), batch.get("impermissible")
        remainders = []  # of each instance its texts, each with the marks of its characters
        for row, texts in enumerate(zip(*(batch[name] for name in names), strict=True)):
            columns = (batch["input_ids"], stays) if marks is None else (batch["input_ids"], stays, marks)
            ids, places, *of_marks = (values[row, : lengths[row]].tolist() for values in columns)
            remainders.append(without_tokens(texts, ids, places, self.tokenizer, *of_marks))
        texts = zip(*([text for text, _ in remainder] for remainder in remainders), strict=True)
        encoded = self.tokenizer(*map(list, texts), truncation=False, padding=False)
        rows = []
        for remainder, encoding in zip(remainders, encoded.encodings, strict=True):
            sequences, special = encoding.sequence_ids, encoding.special_tokens_mask
            marker = [int(number is None or is_special) for number, is_special in zip(sequences, special, strict=True)]
            row = {"input_ids": encoding.ids or [self.filling], "special_tokens_mask": marker or [1]}
            if batch.get("token_type_ids") is not None:
                row["token_type_ids"] = encoding.type_ids or [0]
            if marks is not None:
                tokens = zip(sequences, encoding.offsets, strict=True)
                marked = [number is not None and any(remainder[number][1][slice(*span)]) for number, span in tokens]
                row["impermissible"] = [int(mark) for mark in marked] or [0]
            rows.append(row)
        rest = {"instance_id": batch["instance_id"], "label": batch["label"]}
        return Batch.of({**pad_batch(rows, self.filling), **rest}, self)
