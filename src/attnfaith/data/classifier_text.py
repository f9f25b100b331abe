"""Texts as a Hugging Face classifier reads them: by its own tokenizer, with its own markers, cut at its own limit.

Shapes: L input positions of a text, markers included; T its tokens.
"""

from collections.abc import Collection, Sequence

from attnfaith.data.impermissible import of_rows
from attnfaith.data.in_memory import in_memory
from attnfaith.data.subwords import places_of, read_tokens
from attnfaith.errors import DatasetError, excerpt


ROWS_AT_ONCE = 1000


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

    _check_fast(tokenizer)
    features = _features(dataset.column_names, tokenizer)
    schema, parts = features.arrow_schema, []
    for rows in dataset.iter(batch_size=ROWS_AT_ONCE):
        made = encode_columns(rows, tokenizer, max_length=max_length)
        parts.append(pa.table({name: made[name] for name in features}, schema=schema))
    return in_memory(pa.concat_tables(parts) if parts else schema.empty_table())


def _check_fast(tokenizer) -> None:
    if not getattr(tokenizer, "is_fast", False):
        raise DatasetError(
            f"the tokenizer is a {type(tokenizer).__name__}, which does not say which characters a token is of: give the "
            "fast one of the same model (AutoTokenizer.from_pretrained makes it where there is a tokenizer.json)"
        )


def _features(given: Collection[str], tokenizer):
    from datasets import Features, List, Value

    pair = "text_pair" in given
    ids, words = List(Value("int64")), List(Value("int64"))
    names = ("instance_id", "text", "text_pair")[: 3 if pair else 2]
    kinds = {name: Value("string") for name in names} | {
        "input_ids": ids,
        "special_tokens_mask": words,
        "tokens": List(Value("string")),
        "word_of_token": words,
    }
    kinds |= {"text_of_token": words} if pair else {}
    kinds |= {"token_type_ids": ids} if "token_type_ids" in tokenizer.model_input_names else {}
    kinds |= {"impermissible": words} if "impermissible" in given else {}
    kinds |= {"labels": Value("int64")} if "label" in given else {}
    return Features({**kinds, "length": Value("int64"), "truncated": Value("bool")})


def encode_columns(rows, tokenizer, *, max_length: int | None) -> dict[str, list]:
    """The same from columns to columns, in any order: of a few texts to make data sets takes longer than all else."""
    _check_fast(tokenizer)
    parts = [rows[name] for name in ("text", "text_pair") if name in rows]
    whole = tokenizer(*parts, truncation=False, padding=False, verbose=False)
    counts = list(map(len, whole["input_ids"]))
    cut = whole
    if max_length is not None and max(counts, default=0) > max_length:
        cut = tokenizer(*parts, truncation=True, max_length=max_length, padding=False, verbose=False)
    made = {"input_ids": cut["input_ids"], "special_tokens_mask": [], "tokens": [], "word_of_token": [], "text_of_token": []}
    if "token_type_ids" in tokenizer.model_input_names:
        made["token_type_ids"] = [one.type_ids for one in cut.encodings]
    for row, encoding in enumerate(cut.encodings):
        tokens, words, texts, special = [], [], [], [1] * len(encoding.ids)
        for number, part in enumerate(parts):
            places = places_of(encoding, number)
            for place in places:
                special[place] = 0
            taken = (
                [values[place] for place in places] for values in (encoding.tokens, encoding.offsets, encoding.word_ids)
            )
            read, owner = read_tokens(part[row], *taken)
            tokens += read
            words += [word + 1 + max(words, default=-1) for word in owner] if number else owner
            texts += [number] * len(read)
        made["tokens"].append(tokens)
        made["word_of_token"].append(words)
        made["text_of_token"].append(texts)
        made["special_tokens_mask"].append(special)
    if len(parts) < 2:
        del made["text_of_token"]
    if "impermissible" in rows:
        made["impermissible"] = of_rows(rows, cut.encodings)
    if "label" in rows:
        made["labels"] = rows["label"]
    made["length"] = list(map(len, cut["input_ids"]))
    made["truncated"] = [count > length for count, length in zip(counts, made["length"], strict=True)]
    return {name: rows[name] for name in ("instance_id", "text", "text_pair") if name in rows} | made


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
    for kept in (False, True):  # a character of two tokens stays with either
        for (start, end), stay in spans:
            if stay == kept:
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
