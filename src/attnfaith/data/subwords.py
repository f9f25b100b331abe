"""Tokenizers of the `tokenizers` library: the tokens that they read, and encoding for any classifier.

Shapes: T tokens of a text after truncation, without markers; L input positions, with them.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence

import pyarrow as pa

from attnfaith.data.tokenization import LETTERS, encoded_columns, encoded_in_memory, text_positions
from attnfaith.record import CONTINUES, REPEATS
from attnfaith.support.errors import DatasetError


BLANK = "\u2581"
"""The sign for a blank in SentencePiece vocabularies."""


def tokenizer_digest(tokenizer) -> str:
    """Return a digest of all that decides how a tokenizer reads a text, 12 hexadecimal digits."""
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings = {key: value for key, value in settings.items() if key not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def words_of(tokens: Sequence[str], owners: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the words that a text's tokens make, and the number of each token's word, from 0. owners: `word_of_token`."""
    words, numbers, previous = [], [], None
    for token, owner in zip(tokens, owners, strict=True):
        if not words or owner != previous:
            words.append(token)
        elif not (token.startswith(REPEATS) and words[-1].endswith(token.removeprefix(REPEATS))):
            words[-1] += token.removeprefix(CONTINUES)
        numbers.append(len(words) - 1)
        previous = owner
    return [word.strip() or word[:1] for word in words], numbers


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
            for number, text in enumerate(texts):
                places, first = text_positions(encoding, number), max(words, default=-1) + 1
                read = ([part[place] for place in places] for part in (encoding.tokens, encoding.offsets, encoding.word_ids))
                pieces, owner = read_tokens(text, *read)
                tokens += pieces
                words += [first + word for word in owner]
                numbers += [number] * len(owner)
            columns["tokens"].append(tokens)
            columns["word_of_token"].append(words)
            columns["text_of_token"].append(numbers)
        if "text_pair" not in rows:
            del columns["text_of_token"]
        return columns

    numbers, words = pa.list_(pa.int64()), pa.list_(pa.string())
    types = dict.fromkeys(("instance_id", "text", "text_pair"), pa.string())
    types |= {"input_ids": numbers, "special_tokens_mask": numbers, "tokens": words, "word_of_token": numbers}
    types |= dict.fromkeys(("text_of_token", "token_type_ids", "impermissible"), numbers)
    types |= {"labels": pa.int64(), "length": pa.int64(), "truncated": pa.bool_()}
    return encoded_in_memory(dataset, encode, types)
