"""Hugging Face tokenizers, adapted to our models' markers or unchanged for any classifier, and the tokens that they read.

An adapted tokenizer keeps its normalizer, pre-tokenizer and vocabulary; begin, end and padding become those of our models.
A saved one needs no code of ours: `AutoTokenizer.from_pretrained` and `pipeline` read texts in the same way.

Shapes: T tokens of a text after truncation, without markers; L input positions, with them.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnfaith.data.impermissible import position_marks
from attnfaith.data.in_memory import encoded_in_memory
from attnfaith.data.scripts import begins_unspaced
from attnfaith.record import CONTINUES, REPEATS
from attnfaith.support.errors import DatasetError, excerpt


BLANK = "\u2581"
"""The sign for a blank in SentencePiece vocabularies."""


def adopt_tokenizer(name: str, *, revision: str | None = None, max_length: int | None = None, pair: bool = False):
    """Load a Hugging Face tokenizer as a `PreTrainedTokenizerFast` of our models.

    name: a repository on the Hub, or a folder that holds a tokenizer.json. revision: branch, tag or commit of the
    repository. A text is encoded as `<s> A </s>`, a pair as `<s> A </s> <s> B </s>` with token type 0 on the first and 1 on
    the second, with the tokenizer's own tokens for begin (bos, else cls), end (eos, else sep), padding and unknown; one that
    is missing, or is padding and something else, is added at the end of the vocabulary: <s>, </s>, <pad>, <unk>. Text that
    spells such a token is read as text. max_length bounds the whole encoding (None: no bound, whatever the limit of the
    model that the tokenizer comes from).

    Raises DatasetError for an unknown tokenizer, one that is not of the `tokenizers` library, and a max_length without room.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, processors

    from attnfaith.data.tokenization import fast_tokenizer

    markers = 4 if pair else 2
    if max_length is not None and max_length <= markers:
        raise DatasetError(f"max_length={max_length} leaves no room for a token beside {markers} markers.")
    original = _load(name, revision)
    backend = Tokenizer.from_str(original.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    special = {
        "bos_token": original.bos_token or original.cls_token or "<s>",
        "eos_token": original.eos_token or original.sep_token or "</s>",
        "unk_token": getattr(backend.model, "unk_token", None) or original.unk_token or "<unk>",
        "pad_token": original.pad_token or "<pad>",
    }
    for role, default in (("unk_token", "<unk>"), ("pad_token", "<pad>")):  # GPT-2 uses <|endoftext|> for all
        if special[role] in [token for other, token in special.items() if other != role]:
            special[role] = default
    backend.add_special_tokens([token for token in special.values() if backend.token_to_id(token) is None])
    begin, end = special["bos_token"], special["eos_token"]
    if not isinstance(backend.model, models.BPE):
        # a blank within text that spells a marker, which would be looked up whole; merges of bytes never are
        spelled = [token for token in (begin, end, special["pad_token"]) if len(token) > 1]
        within = "|".join(f"(?<={re.escape(token[:1])})(?={re.escape(token[1:])})" for token in spelled)
        guard = normalizers.Replace(Regex(within), " ")
        backend.normalizer = guard if backend.normalizer is None else normalizers.Sequence([backend.normalizer, guard])
    backend.post_processor = processors.TemplateProcessing(
        single=[f"{begin}:0", "$A:0", f"{end}:0"],
        pair=[f"{begin}:0", "$A:0", f"{end}:0", f"{begin}:1", "$B:1", f"{end}:1"],
        special_tokens=[(token, backend.token_to_id(token)) for token in dict.fromkeys((begin, end))],
    )
    return fast_tokenizer(backend, pair=pair, max_length=max_length, **special)


def _load(name: str, revision: str | None):
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    file = Path(name) / "tokenizer.json"
    try:
        if file.is_file() and not file.with_name("tokenizer_config.json").is_file():
            return PreTrainedTokenizerFast(tokenizer_file=str(file))
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    except Exception as error:  # transformers, tokenizers and huggingface_hub raise many kinds
        raise DatasetError(
            f"data.tokenizer={excerpt(name)} cannot be loaded ({excerpt(error, 200)}): give the name of a tokenizer on the "
            "Hub, or a folder that holds its tokenizer.json"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise DatasetError(
            f"data.tokenizer={excerpt(name)} is a {type(tokenizer).__name__}, which needs its Python code wherever it is "
            "read: give one of the tokenizers library, with a tokenizer.json"
        )
    return tokenizer


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
        files = [
            try_to_load_from_cache(name, file, revision=revision) for file in ("tokenizer.json", "tokenizer_config.json")
        ]
        snapshots = [Path(file).parts for file in files if isinstance(file, str)]
        commit = next((parts[parts.index("snapshots") + 1] for parts in snapshots if "snapshots" in parts), "unknown")
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
            begins = (word != before and not inside) or begins_unspaced(piece)
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


def word_spans(texts: Sequence[str], preprocessing: str) -> list[list[tuple[int, int]]]:
    """Return, for each text, the characters [start, stop) of each word of a preparation.

    What the preparation replaces or leaves out belongs to the word to its left: `3.50` is all of `qqq`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    from attnfaith.data.tokenization import normalizer_of

    reader = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
    reader.normalizer, reader.pre_tokenizer = normalizer_of(preprocessing), pre_tokenizers.WhitespaceSplit()
    spans = []
    for text, encoding in zip(texts, reader.encode_batch(list(texts)), strict=True):
        spans.append([])
        end = 0
        for start, stop in encoding.offsets:
            while start > end and not text[start - 1].isspace():
                start -= 1
            spans[-1].append((start, stop))
            end = stop
    return spans


def spread(marks: Sequence[int], words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Turn marks of words into marks of tokens: the largest of the words that a token shares a character with, else 0.

    words, spans: the characters [start, stop) of each word and of each token.
    """
    characters = [0] * max((stop for _, stop in (*words, *spans)), default=0)
    for (start, stop), mark in zip(words, marks, strict=True):
        characters[start:stop] = [mark] * (stop - start)
    return [max(characters[start:stop], default=0) for start, stop in spans]


# ------------------------------------------------------------------------------------------------ encoding


def _columns(
    rows: Mapping, tokenizer, max_length: int | None, truncation: bool | str, check=None
) -> tuple[dict, list, list]:
    """Columns of all encodings, the encodings, and (tokens, words, characters) of each text; check gets uncut encodings."""
    parts = [rows[name] for name in ("text", "text_pair") if name in rows]
    encoded = tokenizer(*parts, truncation=False, padding=False, verbose=False)
    lengths = list(map(len, encoded["input_ids"]))
    if max_length is not None and max(lengths, default=0) > max_length:
        if check is not None:
            check(encoded.encodings)
        encoded = tokenizer(*parts, truncation=truncation, max_length=max_length, padding=False, verbose=False)
    columns = {"input_ids": encoded["input_ids"], "length": list(map(len, encoded["input_ids"]))}
    columns["truncated"] = [before > length for before, length in zip(lengths, columns["length"], strict=True)]
    if "token_type_ids" in tokenizer.model_input_names:
        columns["token_type_ids"] = [encoding.type_ids for encoding in encoded.encodings]
    if "impermissible" in rows:
        columns["impermissible"] = position_marks(rows, encoded.encodings)
    if "label" in rows:
        columns["labels"] = rows["label"]
    texts_of_rows = []
    for *texts, encoding in zip(*parts, encoded.encodings, strict=True):
        texts_of_rows.append([])
        for number, text in enumerate(texts):
            places = text_positions(encoding, number)
            tokens, spans, words = (
                [values[place] for place in places] for values in (encoding.tokens, encoding.offsets, encoding.word_ids)
            )
            texts_of_rows[-1].append((*read_tokens(text, tokens, spans, words), spans))
    return columns, encoded.encodings, texts_of_rows


def subword_columns(rows: Mapping, first_row: int, *, tokenizer, max_length: int | None, preprocessing: str) -> dict:
    """Return the columns of `attnfaith.data.tokenization.encode` for rows that a tokenizer of subwords reads."""
    from attnfaith.data.tokenization import check_rationales, check_room

    pair = "text_pair" in rows
    n_markers = tokenizer.num_special_tokens_to_add(pair=pair)
    if n_markers != (4 if pair else 2):
        raise DatasetError(
            f"The tokenizer puts {n_markers} markers around a text, {4 if pair else 2} are needed: load it with "
            "adopt_tokenizer, or give one of build_tokenizer."
        )

    def check(encodings) -> None:
        texts = [text_positions(encoding, 0) for encoding in encodings]
        occupied = [len(encoding.ids) - len(text) for encoding, text in zip(encodings, texts, strict=True)]
        check_room(texts, occupied, max_length, first_row)

    columns, encodings, texts = _columns(rows, tokenizer, max_length, "only_first" if pair else True, check)
    columns["tokens"], columns["word_of_token"] = ([first[part] for first, *_ in texts] for part in (0, 1))
    columns["n_unknown"] = [
        [encoding.ids[place] for place in text_positions(encoding, 0)].count(tokenizer.unk_token_id)
        for encoding in encodings
    ]
    if pair:
        columns["query_tokens"] = [second[0] for _, second in texts]
    else:
        columns.pop("token_type_ids", None)
    if "rationale" in rows:
        words = word_spans(rows["text"], preprocessing)
        check_rationales(rows["rationale"], words, first_row, f"words under preprocessing {preprocessing!r}")
        columns["rationale"] = list(map(spread, rows["rationale"], words, [first[2] for first, *_ in texts]))
    return columns


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

    def encode(rows: Mapping, _: int) -> dict:
        columns, encodings, texts_of_rows = _columns(rows, tokenizer, max_length, True)
        columns["special_tokens_mask"] = [encoding.special_tokens_mask for encoding in encodings]
        columns |= {"tokens": [], "word_of_token": [], "text_of_token": []}
        for texts in texts_of_rows:
            words, numbers = [], []
            for number, (_, owner, _) in enumerate(texts):
                first = max(words, default=-1) + 1 if number else 0
                words += [first + word for word in owner]
                numbers += [number] * len(owner)
            columns["tokens"].append([token for tokens, _, _ in texts for token in tokens])
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
    for wanted in (False, True):  # a character of two tokens stays with either
        for (start, end), stay in spans:
            if stay == wanted:
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
