"""Pairs of sentences as a model from sequences to sequences reads them, with the word that each of its tokens is of.

Words are what blanks part. T source words, G target words, S source positions and N target positions, markers included.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from attnfaith.data.in_memory import in_memory
from attnfaith.data.pairs.links import gold_matrix
from attnfaith.errors import DatasetError, excerpt


MARKER = -1
"""The word of a position that is of none."""


def encode_for_model(pairs, tokenizer, *, max_source: int | None, max_target: int | None, end: int | None):
    """Encoded pairs, a `datasets.Dataset`, from one with instance_id, source, target and perhaps links, as lists of (source
    word, target word, 2 sure or 1 possible) counted from 0.

    max_source, max_target: the most positions that the model reads; longer sentences are cut, and `truncated`. end: the
    marker that ends a target, put there where the tokenizer puts none behind it, so that the last word is read as well.

    Columns: instance_id; input_ids and source_words [S], labels and target_words [N], the word that each position is of, -1
    for none; tokens [T] and target_tokens [G], the words; length (S + N); truncated; gold_links [G][T], where there are
    links, without those to words that were cut.

    Raises DatasetError for a sentence without words, a word of which the tokenizer makes nothing, and a tokenizer that ends
    no target where no end is known.
    """
    import pyarrow as pa

    columns = {"instance_id": list(pairs["instance_id"])}
    sentences, cut = {}, np.zeros(len(columns["instance_id"]), bool)
    for side, names, limit in (
        ("source", ("input_ids", "source_words", "tokens"), max_source),
        ("target", ("labels", "target_words", "target_tokens"), max_target),
    ):
        given = [sentence.split() for sentence in pairs[side]]
        for name, words in zip(columns["instance_id"], given, strict=True):
            if not words:
                raise DatasetError(f"pair {name!r} has an empty {side} sentence: leave the pair out")
        ids, owners, shorter = _positions(given, tokenizer, limit, side)
        if side == "target":
            ids, owners = _ended(ids, owners, end)
        for name, words, owner in zip(columns["instance_id"], given, owners, strict=True):
            _check_words(name, side, words, owner)
        kept = [words[: max(owner) + 1] for words, owner in zip(given, owners, strict=True)]
        cut |= np.array(shorter, bool)
        columns |= dict(zip(names, (ids, owners, kept), strict=True))
        sentences[side] = given
    columns["length"] = [len(one) + len(other) for one, other in zip(columns["input_ids"], columns["labels"], strict=True)]
    columns["truncated"] = cut.tolist()
    if "links" in pairs.column_names:
        columns["gold_links"] = _links(pairs["links"], columns, sentences)
    return in_memory(pa.table(columns))


def _positions(sentences: list[list[str]], tokenizer, limit: int | None, side: str) -> tuple[list, list, list]:
    """The ids of each sentence, the words that they are of, and whether it was cut."""
    if getattr(tokenizer, "is_fast", False):
        return _by_characters(sentences, tokenizer, limit, side)
    return _word_by_word(sentences, tokenizer, limit, side)


def _by_characters(sentences, tokenizer, limit, side) -> tuple[list, list, list]:
    texts = [" ".join(words) for words in sentences]
    asked = {"text" if side == "source" else "text_target": texts, "padding": False, "verbose": False}
    made = tokenizer(**asked, truncation=False)
    counts = list(map(len, made["input_ids"]))
    if limit is not None and max(counts, default=0) > limit:
        made = tokenizer(**asked, truncation=True, max_length=limit)
    owners = []
    for words, text, encoding in zip(sentences, texts, made.encodings, strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        owner = []
        for (start, stop), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
            start += len(text[start:stop]) - len(text[start:stop].lstrip())  # of a blank before a word: the word's
            owner.append(MARKER if special else int(np.searchsorted(starts, start, "right")) - 1)
        owners.append(owner)
    all_ids = [list(ids) for ids in made["input_ids"]]
    return all_ids, owners, [len(ids) < count for ids, count in zip(all_ids, counts, strict=True)]


def _word_by_word(sentences, tokenizer, limit, side) -> tuple[list, list, list]:
    """Of a tokenizer that does not say which characters a token is of, which is therefore asked word by word."""
    target = side == "target" and hasattr(tokenizer, "_switch_to_target_mode")
    if target:
        tokenizer._switch_to_target_mode()
    try:
        room = None if limit is None else limit - len(tokenizer.build_inputs_with_special_tokens([]))
        known: dict[str, list[int]] = {}
        all_ids, owners, shorter = [], [], []
        for words in sentences:
            inner, owner = [], []
            for number, word in enumerate(words):
                if word not in known:
                    known[word] = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word))
                if room is not None and len(inner) + len(known[word]) > room:
                    break
                inner += known[word]
                owner += [number] * len(known[word])
            ids = tokenizer.build_inputs_with_special_tokens(inner)
            shorter.append(bool(owner) and owner[-1] + 1 < len(words))
            before = next(place for place in range(len(ids) + 1) if ids[place : place + len(inner)] == inner)
            all_ids.append(ids)
            owners.append([MARKER] * before + owner + [MARKER] * (len(ids) - before - len(inner)))
    finally:
        if target:
            tokenizer._switch_to_input_mode()
    return all_ids, owners, shorter


def _ended(ids: list, owners: list, end: int | None) -> tuple[list, list]:
    open_ones = [owner[-1] != MARKER if owner else True for owner in owners]
    if any(open_ones) and end is None:
        raise DatasetError(
            "the tokenizer puts no marker behind a target, and the model names none (eos_token_id): set the model's"
        )
    more = [[end] if one else [] for one in open_ones]
    return (
        [one + last for one, last in zip(ids, more, strict=True)],
        [one + [MARKER] * len(last) for one, last in zip(owners, more, strict=True)],
    )


def _check_words(name: str, side: str, words: Sequence[str], owner: Sequence[int]) -> None:
    present = sorted({word for word in owner if word != MARKER})
    missing = next((after for before, after in pairwise([-1, *present]) if after != before + 1), None)
    if missing is not None or not present:
        number = next(number for number in range(len(words)) if number not in present)
        raise DatasetError(
            f"pair {name!r}: the tokenizer makes nothing of word {number} of the {side} sentence, {excerpt(words[number])}: "
            "take it out, in the links too"
        )


def _links(links, columns, sentences) -> list[list[list[int]]]:
    kept = []
    for row, some in enumerate(links):
        gold = gold_matrix(some, len(sentences["source"][row]), len(sentences["target"][row]))
        kept.append(gold[: len(columns["target_tokens"][row]), : len(columns["tokens"][row])].tolist())
    return kept
