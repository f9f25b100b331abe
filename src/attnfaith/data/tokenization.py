"""Word-level tokenizers whose preprocessing travels inside tokenizer.json, so that a saved one needs no code of ours; and
the encoding of a split.

Shapes: T words of a text after truncation, without markers (the tokens a model may attend to). For hierarchical models T
counts sentences, each of W words.
"""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

import pyarrow as pa
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from attnfaith.data.impermissible import check_marks
from attnfaith.data.in_memory import Rows, in_memory
from attnfaith.data.sentences import MARK, divide, mark_places, set_marks
from attnfaith.support.errors import DatasetError, excerpt


# Scripts without blanks between words: their letters and vowel signs, by the blocks of the Unicode standard.
IDEOGRAPHIC = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\u3105-\u312f\u31a0-\u31bf"  # kana, Bopomofo
)
ALPHABETIC = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0eba\u0ec0-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1780-\u17d3\u1000-\u103f\u1050-\u108f\ua9e0-\ua9ef\uaa60-\uaa76"  # Khmer, Myanmar
)
STACKING = "\u17d2\u1039"
"""Khmer and Myanmar signs that hang the next letter below the last one."""
LETTERS = f"[{IDEOGRAPHIC}{ALPHABETIC}]"
"""A letter of such a script, as a pattern."""
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""Padding, unknown word, begin and end of a text: ids 0, 1, 2, 3. The mark between sentences, if any: 4."""
NO_LIMIT = int(1e9)  # transformers marks "no maximum" with a number far above this
# The characters at which WhitespaceSplit cuts (Unicode White_Space); str.split() also cuts at U+001C..U+001F.
_WORD = re.compile("[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")

_LETTER = r"[^\W_]"
_SUFFIX = r"(?:s|m|d|re|ve|ll)"
_NUMBER = rf"{_LETTER}*\d{_LETTER}*(?:[.,:/]{_LETTER}*\d{_LETTER}*)*"
# a combining mark, and a letter that hangs below another, stay with the letter before
_BETWEEN_LETTERS = rf"(?<=\S)(?<![{STACKING}])(?={LETTERS})(?!\p{{M}})|(?<={LETTERS})(?<![{STACKING}])(?=\S)(?!\p{{M}})"


def _apart(unless_before: str = "", unless_after: str = "") -> list[tuple[str, str]]:
    """Steps that put blanks between words and marks, except where the assertions `unless_before` and `unless_after` hold."""
    patterns = (
        # do|n't and it|'s, the split of the Penn Treebank, on which most pretrained vectors were trained
        rf"(?<={_LETTER})(?=n't(?!{_LETTER}))",
        rf"(?<={_LETTER})(?='{_SUFFIX}(?!{_LETTER}))",
        # before and after every other mark
        rf"(?<=\S)(?=[\W_])(?!\s){unless_before}(?!(?<=n)'t(?!{_LETTER}))",
        rf"(?<=[\W_])(?<!\s)(?=\S){unless_after}(?!(?<=')(?:{_SUFFIX}|t)(?!{_LETTER}))",
    )
    return [(pattern, " ") for pattern in patterns]


_APART_BUT_NUMBERS = _apart(r"(?!(?<=\d)[.,:/]\d)", r"(?!(?<=\d[.,:/])\d)")
PREPROCESSING = {
    "characters": ["nfc", "lower", (_BETWEEN_LETTERS, " "), *_APART_BUT_NUMBERS],
    "default": ["nfc", "lower", (_NUMBER, "qqq"), *_apart()],
    "imdb": ["lower", (r"[!-&(-/:-@\[-`{-~]", " ")],
    "sst": [("-[LRlr][Rr][Bb]-", ""), (r"\W", " "), "lower"],
    "whitespace": ["lower"],
    "words": ["nfc", "lower", *_APART_BUT_NUMBERS],
}
"""The preparations by name: their steps, among them (pattern, replacement). Each lower-cases and ends in words between
blanks.

characters  as words, and in scripts without blanks between words (Han, kana, Bopomofo, Thai, Lao, Khmer, Myanmar) every
            letter is a word, with the marks that combine with it.
default     words and punctuation marks apart (`do n't`, `it 's`, one token a mark); a word with a digit is `qqq`,
            numbers such as 3.50 or 1,000 as one. Jain & Wallace's rule, with a simpler word splitter than theirs.
imdb        ASCII punctuation but the apostrophe becomes a blank: the form in which the papers had this data set.
sst         round-bracket marks (-LRB-) removed, every non-word character becomes a blank: Jain & Wallace's rule.
whitespace  split at blanks, for texts that come split into words.
words       as default, but numbers stay as they are, 3.50 or 8/10 as one word.
"""


@functools.cache
def normalizer_of(preprocessing: str, hierarchy: str = "none", max_sentence_length: int | None = None):
    """Return the normalizer of a preparation, which turns text that spells a marker into <unk>. DatasetError for an unknown
    preparation.
    """
    if preprocessing not in PREPROCESSING:
        raise DatasetError(f"Unknown preprocessing {preprocessing!r}. Known: {', '.join(sorted(PREPROCESSING))}.")
    special = SPECIAL_TOKENS if hierarchy == "none" else (*SPECIAL_TOKENS, MARK)
    markers = "|".join(re.escape(token) for token in special if token != "<unk>")
    named = {"nfc": normalizers.NFC, "lower": normalizers.Lowercase}
    steps = [
        named[step]() if isinstance(step, str) else normalizers.Replace(Regex(step[0]), step[1])
        for step in (*PREPROCESSING[preprocessing], (rf"(?<!\S)(?:{markers})(?!\S)", "<unk>"))
    ]
    if hierarchy == "sentence":
        steps = [*mark_places(), *steps, *set_marks(max_sentence_length)]
    return normalizers.Sequence(steps)


def split_words(texts: Iterable[str], normalizer) -> list[list[str]]:
    """Return the words of each text, and marks between sentences, under the normalizer of a preparation or a tokenizer."""
    return [_WORD.findall(normalizer.normalize_str(text) if normalizer else text) for text in texts]


def build_tokenizer(
    texts: Iterable[str],
    *,
    preprocessing: str,
    min_df: int = 1,
    max_length: int | None = None,
    pair: bool = False,
    hierarchy: str = "none",
    max_sentence_length: int | None = None,
):
    """Build a word-level `PreTrainedTokenizerFast` with the vocabulary of (training) texts.

    Ids: 0 <pad>, 1 <unk>, 2 <s>, 3 </s>, from 4 on by alphabet the words of at least `min_df` texts.

    A text is encoded as `<s> A </s>`; a pair, for which `pair` adds token_type_ids to the model's inputs, as
    `<s> A </s> <s> B </s>` with token type 0 on the first and 1 on the second. `max_length` bounds the whole encoding,
    markers included (None: no bound). With hierarchy="sentence" the mark <sent> (id 4) stands between the sentences of
    `attnfaith.data.sentences`, words have ids from 5 on, and a sentence of more than `max_sentence_length` words continues
    as another.

    Raises DatasetError for an unknown preprocessing or hierarchy, and a maximum that leaves no room for a word.
    """
    if hierarchy not in ("none", "sentence"):
        raise DatasetError(f"Unknown hierarchy {hierarchy!r}. Known: none, sentence.")
    least = 5 if pair else 3
    if max_length is not None and max_length < least:
        raise DatasetError(f"max_length={max_length} must be at least {least}.")

    normalizer = normalizer_of(preprocessing, hierarchy, max_sentence_length)
    frequency = Counter(word for text in texts for word in set(split_words([text], normalizer)[0]))
    special = SPECIAL_TOKENS if hierarchy == "none" else (*SPECIAL_TOKENS, MARK)
    entries = sorted(word for word, count in frequency.items() if count >= min_df and word not in special)

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate((*special, *entries))}, unk_token="<unk>"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> <s>:1 $B:1 </s>:1", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    options = {} if max_length is None else {"model_max_length": max_length}
    options |= {"extra_special_tokens": {"sentence_token": MARK}} if hierarchy == "sentence" else {}
    return fast_tokenizer(backend, pair=pair, **options)


def fast_tokenizer(backend, *, pair: bool = False, **options):
    """Return a `PreTrainedTokenizerFast` around a tokenizer of the `tokenizers` library, with SPECIAL_TOKENS."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="right",
        truncation_side="right",
        split_special_tokens=True,  # without it the library cuts literal markers out of a text before preparing it
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", *(["token_type_ids"] if pair else []), "attention_mask"],
        **dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), SPECIAL_TOKENS, strict=True)),
        **options,
    )


def text_positions(encoding, number: int) -> list[int]:
    """Return the positions of an encoding that belong to text `number`, without markers.

    Where a token stands decides, never its id: a text may spell a marker, and a vocabulary may use one token for padding,
    unknown words and the end.
    """
    places = zip(encoding.sequence_ids, encoding.special_tokens_mask, strict=True)
    return [place for place, (sequence, special) in enumerate(places) if sequence == number and not special]


def spread(marks: Sequence[int], words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Turn marks of words into marks of tokens: the largest of the words that a token shares a character with, else 0.

    words, spans: the characters [start, stop) of each word and of each token.
    """
    characters = [0] * max((stop for _, stop in (*words, *spans)), default=0)
    for (start, stop), mark in zip(words, marks, strict=True):
        characters[start:stop] = [mark] * (stop - start)
    return [max(characters[start:stop], default=0) for start, stop in spans]


def encoded_in_memory(dataset, encode: Callable, types: Mapping):
    """Return `dataset.map(encode, batched=True)` in memory, `Rows` of such. types: Arrow's, of all columns of the result, in
    order.
    """
    tables = [] if len(dataset) else [pa.schema(types).empty_table()]
    for start in range(0, len(dataset), 1000):  # so that the Python lists of only one batch are alive
        rows = dataset[start : start + 1000]
        columns = {**rows, **encode(rows)}
        tables.append(pa.table({name: pa.array(columns[name], kind) for name, kind in types.items() if name in columns}))
    table = pa.concat_tables(tables).combine_chunks()
    return Rows(table) if isinstance(dataset, Rows) else in_memory(table)


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
    columns = {"input_ids": encoded["input_ids"], "length": list(map(len, encoded["input_ids"]))}
    columns["truncated"] = [before > length for before, length in zip(lengths, columns["length"], strict=True)]
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = [encoding.type_ids for encoding in encoded.encodings]
    if "label" in rows:
        columns["labels"] = rows["label"]
    if "impermissible" in rows:
        mark = tokenizer.convert_tokens_to_ids(MARK) if MARK in tokenizer.all_special_tokens else None
        columns["impermissible"] = []
        cells = zip(rows["instance_id"], rows["text"], rows["impermissible"], encoded.encodings, strict=True)
        for name, text, marks, encoding in cells:
            places = [place for place in text_positions(encoding, 0) if encoding.ids[place] != mark]
            spans = [word.span() for word in re.finditer(r"\S+", text)]
            values = spread(check_marks(marks, text, name), spans, [encoding.offsets[place] for place in places])
            by_place = dict(zip(places, values, strict=True))
            columns["impermissible"].append([by_place.get(place, 0) for place in range(len(encoding.ids))])
    return columns, encoded.encodings


_WORDS, _MARKS = pa.list_(pa.string()), pa.list_(pa.int8())
ENCODED_TYPES = {
    "instance_id": pa.string(),
    "input_ids": pa.list_(pa.int32()),  # with markers
    "token_type_ids": _MARKS,  # of pairs
    "query_tokens": _WORDS,  # of pairs: the words of the second text
    # [T] words of the (first) text that are read; sentences, their words joined by blanks, where the tokenizer marks
    # sentences
    "tokens": _WORDS,
    "words": pa.list_(_WORDS),  # [T][W] words of sentences
    "length": pa.int32(),  # of input_ids
    "truncated": pa.bool_(),  # whether words were cut off
    "n_unknown": pa.int32(),  # number of the T tokens (words of T sentences) outside the vocabulary
    "rationale": _MARKS,  # [T] of sentences the largest value of their words
    "impermissible": _MARKS,  # [L] 1 on parts of impermissible words, 0 on markers and second texts
    "labels": pa.int64(),
}
"""Columns of `encode` and their types."""


def encode(dataset, tokenizer, *, max_length: int | None = None):
    """Encode a split with a tokenizer of `build_tokenizer`: one row per instance, Arrow backed.

    dataset: a `datasets.Dataset` with columns instance_id and text, and perhaps text_pair, label, rationale, impermissible.
    tokenizer: pairs need one made with `pair=True`. max_length: bound of input_ids, markers included; None: the
    tokenizer's own. In a pair only the first text is cut.

    Returns a `datasets.Dataset` with columns of `ENCODED_TYPES`. An empty text has T = 0 and only markers in input_ids.

    Raises DatasetError for a question that fills max_length, a tokenizer that does not give one id per word and marker, a
    rationale or impermissible that is not one number per word, and texts without blanks between words (`lacks_blanks` holds
    for more than half of those in scripts written so).
    """
    pair = "text_pair" in dataset.column_names
    if not len(dataset):
        raise DatasetError("The split has no rows to encode.")
    if pair and "token_type_ids" not in tokenizer.model_input_names:
        raise DatasetError("The split has pairs, the tokenizer was built for single texts: build it with pair=True.")
    if max_length is None and tokenizer.model_max_length < NO_LIMIT:
        max_length = tokenizer.model_max_length
    if beyond_ascii := [text for text in dataset["text"] if not text.isascii()]:
        _check_blanks(beyond_ascii, tokenizer)

    def read(rows: Mapping) -> dict:
        columns, _ = encoded_columns(rows, tokenizer, max_length, "only_first" if pair else True)
        if not pair:
            columns.pop("token_type_ids", None)
        return {**columns, **_word_columns(rows, columns, tokenizer)}

    return encoded_in_memory(dataset, read, ENCODED_TYPES)


def lacks_blanks(text: str, words: Sequence[str]) -> bool | None:
    """Whether the words of a text in a script without blanks between words are too long to be words.

    words: what a tokenizer makes of the text. None where at most half of the letters belong to such a script. Else whether
    words with these letters have more than 4 of them on average (segmented Chinese and Japanese have about two) or, in an
    alphabetic script, 12 (segmented Thai about five).
    """
    counts = [len(re.findall(LETTERS, word)) for word in words]
    written, ideographs = sum(counts), len(re.findall(f"[{IDEOGRAPHIC}]", "".join(words)))
    if 2 * written <= sum(character.isalpha() or bool(re.match(LETTERS, character)) for character in "".join(words)):
        return None
    return written > (4 if 2 * ideographs >= written else 12) * sum(count > 0 for count in counts)


def _check_blanks(texts: Sequence[str], tokenizer) -> None:
    """Raise DatasetError for texts that a tokenizer of words would read a sentence a word."""
    words = split_words(texts, tokenizer.backend_tokenizer.normalizer)
    lacking = [lacks_blanks(text, split) for text, split in zip(texts, words, strict=True)]
    if lacking.count(True) > lacking.count(False):
        raise DatasetError(
            f"{lacking.count(True):,} of {len(texts):,} texts beyond ASCII have no blanks between words, such as "
            f"{excerpt(texts[lacking.index(True)])}: a tokenizer of words would read a sentence as one word. Give "
            "--data.preprocessing characters, or fine-tune a model that has a tokenizer of its own, --model.pretrained NAME."
        )


def _word_columns(rows: Mapping, columns: Mapping, tokenizer) -> dict[str, list]:
    """Words, and their marks of evidence, of encoded rows."""
    hierarchical, pair = MARK in tokenizer.all_special_tokens, "text_pair" in rows
    normalizer = tokenizer.backend_tokenizer.normalizer
    texts = split_words(rows["text"], normalizer)
    questions = split_words(rows["text_pair"], normalizer) if pair else [[]] * len(texts)
    result = defaultdict(list)
    for row, (ids, text, question) in enumerate(zip(columns["input_ids"], texts, questions, strict=True)):
        name, room = rows["instance_id"][row], len(ids) - (len(question) + 4 if pair else 2)
        if room > len(text) or (room < len(text) and not columns["truncated"][row]):
            raise DatasetError(
                f"The tokenizer gives {room} ids for the {len(text)} words of {name!r}: give a tokenizer of build_tokenizer."
            )
        read = text[:room]
        sentences = divide(read) if hierarchical else []
        result["n_unknown"].append(ids[1 : 1 + room].count(tokenizer.unk_token_id))
        result["tokens"].append(list(map(" ".join, sentences)) if hierarchical else read)
        if hierarchical:
            result["words"].append(sentences)
        if pair:
            result["query_tokens"].append([word for word in question if word != MARK])
        if "rationale" in rows:
            marks, count = rows["rationale"][row], sum(word != MARK for word in text)
            if len(marks) != count:
                raise DatasetError(
                    f"{name!r} has {len(marks)} rationale values for {count} words of the tokenizer: use the preprocessing "
                    "of the data set's entry."
                )
            rest = iter(marks)
            marks = [max(islice(rest, len(part))) for part in sentences] if hierarchical else marks[:room]
            result["rationale"].append(marks)
    return dict(result)
