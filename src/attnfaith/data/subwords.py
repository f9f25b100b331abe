"""Tokenizers of the `tokenizers` library: the tokens that they read, and encoding for any classifier.

Shapes: T tokens of a text after truncation, without markers; L input positions, with them.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnfaith.data.impermissible import check_marks
from attnfaith.data.in_memory import encoded_in_memory
from attnfaith.data.scripts import LETTERS
from attnfaith.data.sentences import MARK
from attnfaith.record import CONTINUES, REPEATS
from attnfaith.support.errors import DatasetError, excerpt


SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""Padding, unknown word, begin and end of a text: ids 0, 1, 2, 3. The mark between sentences, if any: 4."""
BLANK = "\u2581"
"""The sign for a blank in SentencePiece vocabularies."""


def fast_tokenizer(backend, *, pair: bool = False, max_length: int | None = None, **options):
    """Return a `PreTrainedTokenizerFast` around a tokenizer of the `tokenizers` library, with SPECIAL_TOKENS. options: other
    arguments of the class.
    """
    from transformers import PreTrainedTokenizerFast

    arguments = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), SPECIAL_TOKENS, strict=True))
    if max_length is not None:
        arguments["model_max_length"] = max_length
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="right",
        truncation_side="right",
        split_special_tokens=True,  # without it the library cuts literal markers out of a text before preparing it
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", *(["token_type_ids"] if pair else []), "attention_mask"],
        **arguments,
        **options,
    )


def tokenizer_digest(tokenizer) -> str:
    """Return a digest of all that decides how a tokenizer reads a text, 12 hexadecimal digits."""
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings = {key: value for key, value in settings.items() if key not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def tokenizer_facts(tokenizer, name: str, revision: str | None = None) -> dict[str, str]:
    """Return a tokenizer's name (the last part of a folder's), its commit in the Hub's cache ("local" for a folder), and its
    digest.
    """
    from huggingface_hub import try_to_load_from_cache

    if Path(name).is_dir():
        name, commit = Path(name).resolve().name, "local"
    else:
        names = ("tokenizer.json", "tokenizer_config.json")
        files = [try_to_load_from_cache(name, file, revision=revision) for file in names]
        commit = next((Path(file).parent.name for file in files if isinstance(file, str)), "unknown")
    return {"name": name, "revision": commit, "digest": tokenizer_digest(tokenizer)}


# ------------------------------------------------------------------------------------------------ tokens


def text_positions(encoding, number: int) -> list[int]:
    """Return the positions of an encoding that belong to text `number`, without markers.

    Where a token stands decides, never its id: a text may spell a marker, and a vocabulary may use one token for padding,
    unknown words and the end.
    """
    places = zip(encoding.sequence_ids, encoding.special_tokens_mask, strict=True)
    return [place for place, (sequence, special) in enumerate(places) if sequence == number and not special]


def read_tokens(text: str, tokens: Sequence[str], spans: Sequence[tuple[int, int]], words: Sequence) -> tuple[list, list]:
    """Return tokens as people read them, and the number of each token's word, from 0.

    tokens: as the vocabulary spells them; spans: the characters [start, stop) of the text that each covers; words: the
    number of each token's piece before the vocabulary's cut.

    A token is shown as its characters of the text that no earlier token has shown, with the marks that combine with the last
    of them; after CONTINUES where it continues a word; as a blank where it covers only a blank. Where earlier tokens have
    shown all of it, as with the bytes of one character, it is shown as that character after REPEATS. It continues the word
    of the token before it where the tokenizer cut both from one piece, where it shares a character with it, as a letter
    after a combining mark (at which some tokenizers cut), or after a lone blank. It does not across a blank in the text, nor
    at a letter of a script without blanks between words: there a token is a word.
    """
    end, pieces, owner, before, blank = 0, [], [], None, False
    for token, (start, stop), word in zip(tokens, spans, words, strict=True):
        lone = bool(token) and not token.strip(BLANK)
        while not lone and 0 < stop < len(text) and _combines(text[stop]):
            stop += 1
        fresh = "" if lone else text[max(start, end) : stop]
        piece = fresh.strip()
        if not pieces:
            begins = True
        elif not lone and (start < end or blank):
            begins = False
        elif lone or fresh[:1].isspace() or any(map(str.isspace, text[end:start])):
            begins = True
        else:
            inside = start > 0 and _combines(text[start - 1]) and piece[:1].isalpha()
            begins = (word != before and not inside) or re.match(LETTERS, piece) is not None
        owner.append((owner[-1] if owner else -1) + begins)
        repeated = "" if begins or fresh else _character(text, min(start, max(stop - 1, 0)), stop)
        pieces.append((piece or " ") if begins else REPEATS + repeated if repeated else CONTINUES + (piece or " "))
        before, blank = word, begins and not piece
        if not lone:
            end = max(end, stop)
    return pieces, owner


def _character(text: str, start: int, stop: int) -> str:
    """The characters [start, stop) of a text, with the letter that marks at their beginning combine with."""
    while start > 0 and _combines(text[start]):
        start -= 1
    return text[start:stop].strip()


def _combines(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def read_texts(texts: Sequence[str], encoding) -> list[tuple[list[str], list[int], list[tuple[int, int]]]]:
    """Return the tokens of each text of an encoding as `read_tokens` shows them, their words, and their characters."""
    read = []
    for number, text in enumerate(texts):
        places = text_positions(encoding, number)
        tokens, spans, words = (
            [values[place] for place in places] for values in (encoding.tokens, encoding.offsets, encoding.word_ids)
        )
        read.append((*read_tokens(text, tokens, spans, words), spans))
    return read


def spread(marks: Sequence[int], words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Turn marks of words into marks of tokens: the largest of the words that a token shares a character with, else 0.

    words, spans: the characters [start, stop) of each word and of each token.
    """
    characters = [0] * max((stop for _, stop in (*words, *spans)), default=0)
    for (start, stop), mark in zip(words, marks, strict=True):
        characters[start:stop] = [mark] * (stop - start)
    return [max(characters[start:stop], default=0) for start, stop in spans]


# ------------------------------------------------------------------------------------------------ encoding


def encoded_columns(rows: Mapping, tokenizer, max_length: int | None, truncation: bool | str) -> tuple[dict, list]:
    """Return columns of encodings that all tokenizers have, and the encodings.

    rows: columns instance_id, text and perhaps text_pair, impermissible, label. impermissible becomes marks [L]: 1 where a
    position shares a character with a marked word, 0 on markers, marks between sentences and second texts. truncation:
    "only_first" leaves second texts whole; DatasetError where one leaves no room for its text.
    """
    parts = [rows[name] for name in ("text", "text_pair") if name in rows]
    encoded = tokenizer(*parts, truncation=False, padding=False, verbose=False)
    lengths = list(map(len, encoded["input_ids"]))
    if max_length is not None and max(lengths, default=0) > max_length:
        for name, encoding in zip(rows["instance_id"], encoded.encodings, strict=True):
            text = len(text_positions(encoding, 0))
            occupied = len(encoding.ids) - text
            if truncation == "only_first" and occupied + min(1, text) > max_length:
                raise DatasetError(
                    f"max_length={max_length} leaves no room for the text of {name!r}: markers and question take "
                    f"{occupied}; give {occupied + 1} or more."
                )
        encoded = tokenizer(*parts, truncation=truncation, max_length=max_length, padding=False, verbose=False)
    columns, encodings = (
        {"input_ids": encoded["input_ids"], "length": list(map(len, encoded["input_ids"]))},
        encoded.encodings,
    )
    columns["truncated"] = [before > length for before, length in zip(lengths, columns["length"], strict=True)]
    unknown = tokenizer.unk_token_id
    columns["n_unknown"] = [[e.ids[place] for place in text_positions(e, 0)].count(unknown) for e in encodings]
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = [encoding.type_ids for encoding in encodings]
    if "label" in rows:
        columns["labels"] = rows["label"]
    if "impermissible" in rows:
        mark = tokenizer.convert_tokens_to_ids(MARK) if MARK in tokenizer.all_special_tokens else None
        columns["impermissible"] = []
        cells = zip(rows["instance_id"], rows["text"], rows["impermissible"], encodings, strict=True)
        for name, text, marks, encoding in cells:
            places = [place for place in text_positions(encoding, 0) if encoding.ids[place] != mark]
            words = [word.span() for word in re.finditer(r"\S+", text)]
            values = spread(check_marks(marks, text, name), words, [encoding.offsets[place] for place in places])
            by_place = dict(zip(places, values, strict=True))
            columns["impermissible"].append([by_place.get(place, 0) for place in range(len(encoding.ids))])
    return columns, encodings


def encode_for_classifier(dataset, tokenizer, *, max_length: int | None):
    """Encode texts as a Hugging Face classifier reads them: by its own tokenizer, with its markers, cut at its limit.

    dataset: a `datasets.Dataset` with instance_id, text and perhaps text_pair, label, impermissible. max_length: the most
    input positions that the model reads; longer texts are cut (of a pair the longer one first) and `truncated`.

    Columns: instance_id, text and, of pairs, text_pair; input_ids, special_tokens_mask (1 on markers) and token_type_ids
    (where the tokenizer makes them) [L]; tokens and word_of_token [T], of a pair those of the second text behind those of
    the first; text_of_token [T] (of pairs), 0 and 1; impermissible [L], 1 where a position shares a character with an
    impermissible word of the first text, 0 on markers; labels, where there are any; length; truncated.

    Raises DatasetError for a tokenizer that is not of the tokenizers library, and marks that are not one 0 or 1 per word.
    """
    import pyarrow as pa

    if not getattr(tokenizer, "is_fast", False):
        raise DatasetError(
            f"the tokenizer is a {type(tokenizer).__name__}, which does not report the characters of a token: give the fast "
            "one of the same model (AutoTokenizer.from_pretrained makes it where there is a tokenizer.json)"
        )

    def encode(rows: Mapping) -> dict:
        columns, encodings = encoded_columns(rows, tokenizer, max_length, True)
        columns["special_tokens_mask"] = [encoding.special_tokens_mask for encoding in encodings]
        columns |= {"tokens": [], "word_of_token": [], "text_of_token": []}
        parts = zip(*(rows[name] for name in ("text", "text_pair") if name in rows), strict=True)
        for texts, encoding in zip(parts, encodings, strict=True):
            tokens, words, numbers = [], [], []
            for number, (shown, owner, _) in enumerate(read_texts(texts, encoding)):
                first = max(words, default=-1) + 1
                tokens += shown
                words += [first + word for word in owner]
                numbers += [number] * len(owner)
            for name, values in (("tokens", tokens), ("word_of_token", words), ("text_of_token", numbers)):
                columns[name].append(values)
        if "text_pair" not in rows:
            del columns["text_of_token"]
        return columns

    numbers, words = pa.list_(pa.int64()), pa.list_(pa.string())
    types = dict.fromkeys(("instance_id", "text", "text_pair"), pa.string())
    types |= {"input_ids": numbers, "special_tokens_mask": numbers, "tokens": words, "word_of_token": numbers}
    types |= dict.fromkeys(("text_of_token", "token_type_ids", "impermissible"), numbers)
    types |= {"labels": pa.int64(), "length": pa.int64(), "truncated": pa.bool_()}
    return encoded_in_memory(dataset, encode, types)


# ------------------------------------------------------------------------------------------------ removal


def without_tokens(
    parts: Sequence[str], ids: Sequence[int], stays: Sequence[bool], tokenizer, marks: Sequence[int] | None = None
) -> list[tuple[str, list[int]]]:
    """Return a text, or a pair, without the characters of the tokens that do not stay; markers always stay.

    ids, stays, marks (None: all 0): of all input positions [L]. Each text comes with the marks of its characters: the
    largest mark of the tokens that cover a character. A text that was cut holds only what was read. White space on both
    sides of removed characters becomes that of one side.

    Raises DatasetError where these are not the tokens of this text, so that it cannot be rebuilt.
    """
    for options in ({"truncation": False}, {"truncation": True, "max_length": len(ids)}):
        encoding = tokenizer(*parts, **options, padding=False, verbose=False).encodings[0]
        if list(encoding.ids) == list(ids):
            break
    else:
        raise DatasetError(f"the tokenizer does not make these tokens of {excerpt(parts[0])}, so it cannot be rebuilt")
    texts, marks = [], [0] * len(ids) if marks is None else marks
    for number, part in enumerate(parts):
        spans = [
            (span, stay, mark)
            for span, stay, mark, sequence in zip(encoding.offsets, stays, marks, encoding.sequence_ids, strict=True)
            if sequence == number and span[0] < span[1]
        ]
        text, character_marks = part[: max((end for (_, end), _, _ in spans), default=0)], [0] * len(part)
        for (start, end), _, mark in spans:
            character_marks[start:end] = [max(mark, value) for value in character_marks[start:end]]
        places = _remaining_places(text, [(span, stay) for span, stay, _ in spans])
        texts.append(("".join(text[place] for place in places), [character_marks[place] for place in places]))
    return texts


def _remaining_places(text: str, spans: Sequence[tuple[tuple[int, int], bool]]) -> list[int]:
    """The places of the characters that stay."""
    removed = [False] * len(text)
    for (start, end), stay in sorted(spans, key=lambda pair: pair[1]):  # a character of two tokens stays with either
        removed[start:end] = [not stay] * (end - start)
    places, cut = [], False
    for place, character in enumerate(text):
        if removed[place]:
            cut = True
        elif not (cut and character.isspace() and (not places or text[places[-1]].isspace())):
            places.append(place)
            cut = False
    while cut and places and text[places[-1]].isspace():
        places.pop()
    return places
