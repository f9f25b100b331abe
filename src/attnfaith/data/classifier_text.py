"""Texts as a Hugging Face classifier reads them: by its own tokenizer, with its own markers, cut at its own limit.

Shapes: L input positions of a text, markers included; T its tokens.
"""

from collections.abc import Sequence

from attnfaith.data.impermissible import of_rows
from attnfaith.data.in_memory import encoded_in_memory
from attnfaith.data.subwords import places_of, read_encoding
from attnfaith.errors import DatasetError, excerpt


def encode_for_classifier(dataset, tokenizer, *, max_length: int | None):
    """Encoded instances, a `datasets.Dataset`, from one with instance_id, text and perhaps text_pair, label, impermissible.

    max_length: the most input positions that the model reads; longer texts are cut (of a pair the longer one first) and
    `truncated`. Columns: instance_id, text and, of pairs, text_pair; input_ids, special_tokens_mask (1 on markers) and
    token_type_ids (where the tokenizer makes them) [L]; tokens and word_of_token [T], of a pair those of the second text
    behind those of the first; text_of_token [T] (of pairs), 0 and 1; impermissible [L], 1 where a position shares a
    character with an impermissible word of the first text, 0 on markers; labels, where there are any; length; truncated.

    Raises DatasetError for a tokenizer that is not of the tokenizers library, and marks that are not one 0 or 1 per word.
    """
    import pyarrow as pa

    numbers, words = pa.list_(pa.int64()), pa.list_(pa.string())
    types = dict.fromkeys(("instance_id", "text", "text_pair"), pa.string())
    types |= {"input_ids": numbers, "special_tokens_mask": numbers, "tokens": words, "word_of_token": numbers}
    types |= dict.fromkeys(("text_of_token", "token_type_ids", "impermissible"), numbers)
    types |= {"labels": pa.int64(), "length": pa.int64(), "truncated": pa.bool_()}
    return encoded_in_memory(dataset, lambda rows, _: encode_columns(rows, tokenizer, max_length=max_length), types)


def encode_columns(rows, tokenizer, *, max_length: int | None) -> dict[str, list]:
    """The same from columns to columns, in any order: of a few texts to make data sets takes longer than all else."""
    if not getattr(tokenizer, "is_fast", False):
        raise DatasetError(
            f"the tokenizer is a {type(tokenizer).__name__}, which does not say which characters a token is of: give the "
            "fast one of the same model (AutoTokenizer.from_pretrained makes it where there is a tokenizer.json)"
        )
    parts = [rows[name] for name in ("text", "text_pair") if name in rows]
    encoded = tokenizer(*parts, truncation=False, padding=False, verbose=False)
    counts = list(map(len, encoded["input_ids"]))
    if max_length is not None and max(counts, default=0) > max_length:
        encoded = tokenizer(*parts, truncation=True, max_length=max_length, padding=False, verbose=False)
    columns: dict[str, list] = {name: rows[name] for name in ("instance_id", "text", "text_pair") if name in rows}
    columns |= {"input_ids": encoded["input_ids"], "length": list(map(len, encoded["input_ids"]))}
    columns["truncated"] = [count > length for count, length in zip(counts, columns["length"], strict=True)]
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = [encoding.type_ids for encoding in encoded.encodings]
    columns |= {name: [] for name in ("special_tokens_mask", "tokens", "word_of_token")}
    for *texts, encoding in zip(*parts, encoded.encodings, strict=True):
        tokens, words = [], []
        for number, text in enumerate(texts):
            read, owner, _ = read_encoding(text, encoding, number)
            words += [word + 1 + max(words, default=-1) for word in owner] if number else owner
            tokens.append(read)
        inside = {place for number in range(len(texts)) for place in places_of(encoding, number)}
        columns["special_tokens_mask"].append([int(place not in inside) for place in range(len(encoding.ids))])
        columns["tokens"].append([token for read in tokens for token in read])
        columns["word_of_token"].append(words)
        if len(texts) > 1:
            both = [number for number, read in enumerate(tokens) for _ in read]
            columns.setdefault("text_of_token", []).append(both)
    if "impermissible" in rows:
        columns["impermissible"] = of_rows(rows, encoded.encodings)
    if "label" in rows:
        columns["labels"] = rows["label"]
    return columns


def without_tokens(
    parts: Sequence[str], ids: Sequence[int], stays: Sequence[bool], tokenizer, marks: Sequence[int] | None = None
) -> list[tuple[str, list[int]]]:
    """A text, or a pair, without the characters of the tokens that do not stay; markers always do. With each text come the
    marks of its characters: the largest one of the tokens that a character is of.

    ids, stays, marks (None: all 0): those of all input positions [L]. Of a text that was cut only what was read is there.
    White space on both sides of what is gone becomes that of one side.

    Raises DatasetError where these are not the tokens of this text, so that it cannot be rebuilt.
    """
    encoding = tokenizer(*parts, truncation=False, padding=False, verbose=False).encodings[0]
    if list(encoding.ids) != list(ids):
        encoding = tokenizer(*parts, truncation=True, max_length=len(ids), padding=False, verbose=False).encodings[0]
    if list(encoding.ids) != list(ids):
        raise DatasetError(
            "a text cannot be rebuilt without some of its tokens: the tokenizer does not make these tokens of "
            f"{excerpt(parts[0])}"
        )
    left, marks = [], [0] * len(ids) if marks is None else marks
    for number, part in enumerate(parts):
        spans = [
            (span, stay, mark)
            for span, stay, mark, sequence in zip(encoding.offsets, stays, marks, encoding.sequence_ids, strict=True)
            if sequence == number and span[0] < span[1]
        ]
        text, of_characters = part[: max((end for (_, end), _, _ in spans), default=0)], [0] * len(part)
        for (start, end), _, mark in spans:
            of_characters[start:end] = [max(mark, other) for other in of_characters[start:end]]
        places = _places_without(text, [(span, stay) for span, stay, _ in spans])
        left.append(("".join(text[place] for place in places), [of_characters[place] for place in places]))
    return left


def _places_without(text: str, spans) -> list[int]:
    """The places of the characters that stay."""
    gone = [False] * len(text)
    for wanted in (False, True):  # a character of two tokens stays with either
        for (start, end), stay in spans:
            if stay == wanted:
                gone[start:end] = [not stay] * (end - start)
    places, cut = [], False
    for place, character in enumerate(text):
        if gone[place]:
            cut = True
        elif not (cut and character.isspace() and (not places or text[places[-1]].isspace())):
            places.append(place)
            cut = False
    while cut and places and text[places[-1]].isspace():
        places.pop()
    return places
