"""Word-level tokenizers whose preprocessing travels inside tokenizer.json, and the encoding of a split.

The papers' text preparation is written with normalizers of the `tokenizers` library, so a saved tokenizer needs no code of
ours: `AutoTokenizer.from_pretrained` and `pipeline` prepare raw text in the same way.

Shapes: T words of a text after truncation, without markers (the tokens a model may attend to). For hierarchical models T
counts sentences, each of W words.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from attnfaith.data.impermissible import position_marks
from attnfaith.data.in_memory import encoded_in_memory, in_memory
from attnfaith.data.scripts import LETTERS, STACKING, lacks_blanks
from attnfaith.data.sentences import MARK, divide, is_cut, mark_places, set_marks
from attnfaith.support.errors import DatasetError, excerpt


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
def normalizer_of(
    preprocessing: str, hierarchy: str = "none", max_sentence_length: int | None = None, max_sentences: int | None = None
):
    """Return the normalizer of a preparation, which turns text that spells a marker into <unk>. DatasetError for an unknown
    preparation.
    """
    from tokenizers import Regex, normalizers

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
        steps = [*mark_places(), *steps, *set_marks(max_sentence_length, max_sentences)]
    return normalizers.Sequence(steps)


def split_words(texts: Iterable[str], preprocessing: str) -> list[list[str]]:
    """Return the words of each text under a named preparation, as `words` does, without a tokenizer."""
    normalizer = normalizer_of(preprocessing)
    return [_WORD.findall(normalizer.normalize_str(text)) for text in texts]


def marks_sentences(tokenizer) -> bool:
    """Whether a tokenizer divides texts into sentences, as hierarchical models need."""
    return MARK in tokenizer.all_special_tokens


def words(tokenizer, text: str | Sequence[str]) -> list:
    """Return the surface words of a text in the tokenizer's split, before the look-up in its vocabulary.

    A string gives a list of words; a sequence of strings a list of such lists. Words are as the preparation leaves them:
    lower-cased, numbers as `qqq` under "default". They are not truncated and hold no markers and no marks between sentences.
    """
    if isinstance(text, str):
        return words(tokenizer, [text])[0]
    split = _all_words(tokenizer, text)
    if marks_sentences(tokenizer):
        split = [[word for word in words if word != MARK] for words in split]
    return split


def _all_words(tokenizer, texts: Sequence[str], *, cut: bool = False) -> list[list[str]]:
    """The words of each text with the marks between sentences; cut: at the tokenizer's limit of sentences."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = tokenizer.backend_tokenizer
    normalizer = backend.normalizer
    if marks_sentences(tokenizer) and not cut:
        settings, bare = json.loads(backend.to_str()), json.loads(Tokenizer(models.WordLevel({}, "<unk>")).to_str())
        steps = [step for step in settings["normalizer"]["normalizers"] if not is_cut(step)]
        bare["normalizer"] = {**settings["normalizer"], "normalizers": steps}
        normalizer = Tokenizer.from_str(json.dumps(bare)).normalizer
    prepared = [text if normalizer is None else normalizer.normalize_str(text) for text in texts]
    if backend.pre_tokenizer is None or isinstance(backend.pre_tokenizer, pre_tokenizers.WhitespaceSplit):
        return [_WORD.findall(text) for text in prepared]
    return [[word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] for text in prepared]


def build_tokenizer(
    texts: Iterable[str],
    *,
    preprocessing: str,
    min_df: int = 1,
    max_length: int | None = None,
    pair: bool = False,
    extra_vocabulary: Iterable[str] | None = None,
    hierarchy: str = "none",
    max_sentence_length: int | None = None,
    max_sentences: int | None = None,
):
    """Build a word-level `PreTrainedTokenizerFast` with the vocabulary of (training) texts.

    Ids: 0 <pad>, 1 <unk>, 2 <s>, 3 </s>, words from 4 on in alphabetical order. A word enters if it occurs in at least
    `min_df` texts (document frequency) or is listed in `extra_vocabulary`. Unknown words become <unk>.

    A text is encoded as `<s> A </s>`, a pair as `<s> A </s> <s> B </s>` with token type 0 on the first and 1 on the
    second; only with `pair` are token_type_ids among the model's inputs. Padding goes to the right.
    `max_length` bounds the whole encoding, markers included (None: no bound).

    With hierarchy="sentence" the mark <sent> (id 4) stands between two sentences, which end where `attnfaith.data.sentences`
    has it, and words have ids from 5 on. A sentence of more than `max_sentence_length` words continues as another, so no
    word is lost; what follows the first `max_sentences` sentences is cut. Both are part of the tokenizer.

    Saved with `save_pretrained` and loaded by `AutoTokenizer` without any code of this package.

    Raises DatasetError for an unknown preprocessing or hierarchy, a threshold or limit below 1, limits of sentences without
    hierarchy, a maximum that leaves no room for a word, and an extra word that the preparation would change.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    if hierarchy not in ("none", "sentence"):
        raise DatasetError(f"Unknown hierarchy {hierarchy!r}. Known: none, sentence.")
    limits = {"max_sentence_length": max_sentence_length, "max_sentences": max_sentences}
    for name, value in {"min_df": min_df, "max_length": max_length, **limits}.items():
        least = 1 if name != "max_length" else 5 if pair else 3
        if value is not None and value < least:
            raise DatasetError(f"{name}={value} must be at least {least}.")
        if value is not None and name in limits and hierarchy == "none":
            raise DatasetError(f'{name}={value} needs hierarchy="sentence"; leave it out.')

    normalizer = normalizer_of(preprocessing, hierarchy, **limits)
    frequency: Counter = Counter()
    for text in texts:
        frequency.update(set(_WORD.findall(normalizer.normalize_str(text))))
    vocabulary = {word for word, count in frequency.items() if count >= min_df}
    for word in extra_vocabulary or ():
        prepared = _WORD.findall(normalizer.normalize_str(word))
        if prepared != [word]:
            raise DatasetError(
                f"The extra word {word!r} never occurs under preprocessing {preprocessing!r}, which makes {prepared} of it."
            )
        vocabulary.add(word)
    special = SPECIAL_TOKENS if hierarchy == "none" else (*SPECIAL_TOKENS, MARK)
    vocabulary = [*special, *sorted(vocabulary.difference(special))]

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> <s>:1 $B:1 </s>:1",
        special_tokens=[("<s>", 2), ("</s>", 3)],
    )
    options = {"extra_special_tokens": {"sentence_token": MARK}} if hierarchy == "sentence" else {}
    return fast_tokenizer(backend, pair=pair, max_length=max_length, **options)


def fast_tokenizer(backend, *, pair: bool = False, max_length: int | None = None, **options):
    """Return a `PreTrainedTokenizerFast` around a tokenizer of the `tokenizers` library. options: special tokens other than
    SPECIAL_TOKENS, and other arguments of the class.
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
        **{**arguments, **options},
    )


def encode(dataset, tokenizer, *, max_length: int | None = None, preprocessing: str = "default"):
    """Encode a split with a tokenizer of `build_tokenizer` or `adopt_tokenizer`: one row per instance, Arrow backed.

    Args:
        dataset: a `datasets.Dataset` with columns instance_id and text, and perhaps text_pair, label, rationale,
            impermissible, candidates.
        tokenizer: of `build_tokenizer`, or `attnfaith.data.subwords.adopt_tokenizer`; pairs need one made with `pair=True`.
        max_length: bound of input_ids, markers included; None: the tokenizer's own. In a pair only the first text is cut.
        preprocessing: for a tokenizer of subwords, the preparation whose words a rationale marks; a tokenizer of words has
            its own. Marks of impermissible words count the words between blanks, whatever the tokenizer.

    Returns a `datasets.Dataset` with columns of `encoded_types`. An empty text has T = 0 and only markers in input_ids.

    Raises DatasetError for a question that fills max_length, a tokenizer of words that does not give one id per word, a
    rationale or impermissible that is not one number per word, and texts without blanks between words (`lacks_blanks` holds
    for more than half of those in scripts written so) read by a tokenizer of words.
    """
    from tokenizers.models import WordLevel

    if not len(dataset):
        raise DatasetError("The split has no rows to encode.")
    if "text_pair" in dataset.column_names and "token_type_ids" not in tokenizer.model_input_names:
        raise DatasetError("The split has pairs, the tokenizer was built for single texts: build it with pair=True.")
    if max_length is None and tokenizer.model_max_length < NO_LIMIT:
        max_length = tokenizer.model_max_length
    lacking: list[bool | None] = []
    if isinstance(tokenizer.backend_tokenizer.model, WordLevel):  # looks up whole words, as those of `build_tokenizer` do
        read = functools.partial(_word_columns, tokenizer=tokenizer, max_length=max_length, lacking=lacking)
    else:
        from attnfaith.data.subwords import subword_columns

        read = functools.partial(subword_columns, tokenizer=tokenizer, max_length=max_length, preprocessing=preprocessing)
    encoded = encoded_in_memory(dataset, read, encoded_types())
    count = lacking.count(True)
    if 2 * count > len(lacking) - lacking.count(None):
        raise DatasetError(
            f"These texts have no blanks between words ({count:,} of {len(lacking):,}, such as "
            f"{excerpt(dataset['text'][lacking.index(True)])}): a tokenizer of words would read a sentence as one word. "
            "Give --data.tokenizer with the name or folder of a Hugging Face tokenizer, or --data.preprocessing characters, "
            "which needs no download."
        )
    return encoded


@functools.cache
def encoded_types() -> dict:
    """Return the columns of encoded rows and their types."""
    import pyarrow as pa

    words, marks, ids = pa.list_(pa.string()), pa.list_(pa.int8()), pa.list_(pa.int32())
    return {
        "instance_id": pa.string(),
        "input_ids": ids,  # with markers
        "token_type_ids": marks,  # of pairs
        "query_tokens": words,  # of pairs: the words of the second text
        # [T] words of the (first) text that are read; subwords as `read_tokens` shows them; sentences, their words joined
        # by blanks, where the tokenizer marks sentences
        "tokens": words,
        "words": pa.list_(words),  # [T][W] words of sentences (`by_words` makes rows of them)
        "word_of_token": ids,  # [T] number of each subword's word, from 0
        "length": pa.int32(),  # of input_ids
        "truncated": pa.bool_(),  # whether words were cut off
        "n_unknown": pa.int32(),  # number of the T tokens (words of T sentences) outside the vocabulary
        "rationale": marks,  # [T] the largest value of the words that share a character with each token
        "word_rationale": pa.list_(marks),  # [T][W] of the words of sentences
        "impermissible": marks,  # [L] 1 on parts of impermissible words, 0 on markers and second texts
        "labels": pa.int64(),
        "candidates": ids,  # labels that the answer may be
    }


def _word_columns(rows, first_row: int, *, tokenizer, max_length: int | None, lacking: list) -> dict:
    """Columns of `encode` for rows that a tokenizer of words reads; `lacks_blanks` of each text is added to lacking."""
    pair, hierarchical = "text_pair" in rows, marks_sentences(tokenizer)
    split = _all_words(tokenizer, rows["text"], cut=True)
    texts = zip(rows["text"], split, strict=True)
    lacking += [None if text.isascii() else lacks_blanks(text, parts) for text, parts in texts]
    whole = words(tokenizer, rows["text"]) if hierarchical else split
    questions = _all_words(tokenizer, rows["text_pair"], cut=True) if pair else [[]] * len(split)
    n_markers = tokenizer.num_special_tokens_to_add(pair=pair)
    check_room(split, [n_markers + len(question) for question in questions], max_length, first_row)
    options = {} if max_length is None else {"truncation": "only_first" if pair else True, "max_length": max_length}
    parts = [rows["text"], *([rows["text_pair"]] if pair else [])]
    encoded = tokenizer(*parts, return_attention_mask=False, **options)
    read = []
    for row, (ids, text, question) in enumerate(zip(encoded["input_ids"], split, questions, strict=True)):
        occupied = n_markers + len(question)
        read.append(text if max_length is None else text[: max_length - occupied])
        if len(ids) != len(read[-1]) + occupied:
            raise DatasetError(
                f"The tokenizer gives {len(ids)} ids for row {first_row + row}, {len(read[-1]) + occupied} were expected "
                "from its words and markers: give a tokenizer of build_tokenizer."
            )
    unknown = tokenizer.unk_token_id
    columns = {
        "input_ids": encoded["input_ids"],
        "length": list(map(len, encoded["input_ids"])),
        "n_unknown": [ids[1 : 1 + len(text)].count(unknown) for ids, text in zip(encoded["input_ids"], read, strict=True)],
    }
    if pair:
        columns["token_type_ids"] = encoded["token_type_ids"]
        columns["query_tokens"] = [[word for word in text if not hierarchical or word != MARK] for text in questions]
    sentences = [divide(text) for text in read] if hierarchical else []
    if hierarchical:
        read = [[word for word in text if word != MARK] for text in read]
        columns["words"] = sentences
    columns["tokens"] = [list(map(" ".join, text)) for text in sentences] if hierarchical else read
    columns["truncated"] = [len(part) < len(text) for part, text in zip(read, whole, strict=True)]
    if "rationale" in rows:
        check_rationales(rows["rationale"], whole, first_row, "words of the tokenizer")
        columns["rationale"] = [marks[: len(text)] for marks, text in zip(rows["rationale"], read, strict=True)]
        if hierarchical:
            marks = []
            for values, text in zip(columns["rationale"], sentences, strict=True):
                remaining = iter(values)
                marks.append([list(islice(remaining, len(words))) for words in text])
            columns |= {"word_rationale": marks, "rationale": [list(map(max, text)) for text in marks]}
    if "impermissible" in rows:
        special = frozenset(tokenizer.all_special_ids) - {unknown}
        columns["impermissible"] = position_marks(rows, encoded.encodings, special)
    if "label" in rows:
        columns["labels"] = rows["label"]
    return columns


def check_room(texts: Sequence[Sequence], occupied: Sequence[int], max_length: int | None, first_row: int) -> None:
    """Raise DatasetError for a row whose markers and question, `occupied` positions, leave no room for its text."""
    for row, (text, positions) in enumerate(zip(texts, occupied, strict=True)):
        if max_length is not None and positions + min(1, len(text)) > max_length:
            raise DatasetError(
                f"max_length={max_length} leaves no room for the text of row {first_row + row}: markers and question "
                f"take {positions}; give {positions + 1} or more."
            )


def check_rationales(rationales: Sequence[Sequence], words: Sequence[Sequence], first_row: int, unit: str) -> None:
    """Raise DatasetError for a rationale that is not one value per word."""
    for row, (marks, text) in enumerate(zip(rationales, words, strict=True)):
        if len(marks) != len(text):
            raise DatasetError(
                f"Row {first_row + row} has {len(marks)} rationale values for {len(text)} {unit}: use the preprocessing of "
                "the data set's entry."
            )


def by_words(dataset):
    """Return rows of `encode` over sentences as rows over words: tokens [T] are the words of all sentences, rationale [T]
    their marks. Columns of words within sentences are left out.

    Raises DatasetError for rows without sentences, and marks of sentences without marks of their words.
    """
    import pyarrow as pa

    if "words" not in dataset.column_names:
        raise DatasetError("The rows are not divided into sentences: encode them with a tokenizer that marks sentences.")
    table, sources = dataset.with_format("arrow")[:], {"tokens": "words"}
    if "rationale" in table.column_names:
        sources["rationale"] = "word_rationale"
        if "word_rationale" not in table.column_names:
            raise DatasetError("The rows have 'rationale' of sentences and no 'word_rationale': encode the split anew.")
    for name, source in sources.items():
        inner = table.column(source).combine_chunks()  # lists of lists, whose inner ones are joined
        joined = pa.ListArray.from_arrays(inner.values.offsets.take(inner.offsets), inner.values.values)
        table = table.set_column(table.column_names.index(name), name, joined)
    return in_memory(table.drop_columns(list(sources.values())))
