"""Pairs of sentences as a model from sequences to sequences reads them, with the word that each of its tokens is of.

Words are what blanks part. T source words, G target words, S source positions and N target positions, markers included.
"""

from collections.abc import Sequence

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

    names = list(pairs["instance_id"])
    columns, sentences, truncated = {"instance_id": names}, {}, np.zeros(len(names), bool)
    for side, ids, words, tokens, limit in (
        ("source", "input_ids", "source_words", "tokens", max_source),
        ("target", "labels", "target_words", "target_tokens", max_target),
    ):
        sentences[side] = [sentence.split() for sentence in pairs[side]]
        for name, sentence in zip(names, sentences[side], strict=True):
            if not sentence:
                raise DatasetError(f"pair {name!r} has an empty {side} sentence: leave the pair out")
        read = _by_characters if getattr(tokenizer, "is_fast", False) else _word_by_word
        columns[ids], columns[words], cut = read(sentences[side], tokenizer, limit, side)
        if side == "target":
            _end_targets(columns[ids], columns[words], end)
        for name, sentence, owners, is_cut in zip(names, sentences[side], columns[words], cut, strict=True):
            _check_words(name, side, sentence, owners, is_cut)
        columns[tokens] = [
            sentence[: max(owners) + 1] for sentence, owners in zip(sentences[side], columns[words], strict=True)
        ]
        truncated |= np.array(cut, bool)
    columns["length"] = [len(ids) + len(labels) for ids, labels in zip(columns["input_ids"], columns["labels"], strict=True)]
    columns["truncated"] = truncated.tolist()
    if "links" in pairs.column_names:
        columns["gold_links"] = []
        for row, links in enumerate(pairs["links"]):
            gold = gold_matrix(links, len(sentences["source"][row]), len(sentences["target"][row]))
            n_targets, n_sources = len(columns["target_tokens"][row]), len(columns["tokens"][row])
            columns["gold_links"].append(gold[:n_targets, :n_sources].tolist())
    return in_memory(pa.table(columns))


def _by_characters(sentences: list[list[str]], tokenizer, limit: int | None, side: str) -> tuple[list, list, list]:
    """The ids of each sentence, the words that they are of, and whether it was cut."""
    texts = [" ".join(words) for words in sentences]
    how = {"text" if side == "source" else "text_target": texts, "padding": False, "verbose": False}
    encoded = tokenizer(**how, truncation=False)
    counts = list(map(len, encoded["input_ids"]))
    if limit is not None and max(counts, default=0) > limit:
        encoded = tokenizer(**how, truncation=True, max_length=limit)
    owners = []
    for words, text, encoding in zip(sentences, texts, encoded.encodings, strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        owners.append([])
        for (start, stop), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
            start += len(text[start:stop]) - len(text[start:stop].lstrip())  # of a blank before a word: the word's
            owners[-1].append(MARKER if special else int(np.searchsorted(starts, start, "right")) - 1)
    all_ids = [list(ids) for ids in encoded["input_ids"]]
    return all_ids, owners, [len(ids) < count for ids, count in zip(all_ids, counts, strict=True)]


def _word_by_word(sentences: list[list[str]], tokenizer, limit: int | None, side: str) -> tuple[list, list, list]:
    """The same of a tokenizer that does not say which characters a token is of, which is therefore asked word by word."""
    target = side == "target" and hasattr(tokenizer, "_switch_to_target_mode")
    if target:
        tokenizer._switch_to_target_mode()
    try:
        room = None if limit is None else limit - len(tokenizer.build_inputs_with_special_tokens([]))
        word_ids: dict[str, list[int]] = {}
        all_ids, owners, cut = [], [], []
        for words in sentences:
            inner, owner = [], []
            for number, word in enumerate(words):
                if word not in word_ids:
                    word_ids[word] = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word))
                if room is not None and len(inner) + len(word_ids[word]) > room:
                    break
                inner += word_ids[word]
                owner += [number] * len(word_ids[word])
            ids = tokenizer.build_inputs_with_special_tokens(inner)
            cut.append(bool(owner) and owner[-1] + 1 < len(words))
            before = next(place for place in range(len(ids) + 1) if ids[place : place + len(inner)] == inner)
            all_ids.append(ids)
            owners.append([MARKER] * before + owner + [MARKER] * (len(ids) - before - len(inner)))
    finally:
        if target:
            tokenizer._switch_to_input_mode()
    return all_ids, owners, cut


def _end_targets(all_ids: list[list[int]], owners: list[list[int]], end: int | None) -> None:
    """Put the end behind targets that have no marker there."""
    for ids, words in zip(all_ids, owners, strict=True):
        if words and words[-1] == MARKER:
            continue
        if end is None:
            raise DatasetError(
                "the tokenizer puts no marker behind a target, and the model names none (eos_token_id): set the model's"
            )
        ids.append(end)
        words.append(MARKER)


def _check_words(name: str, side: str, words: Sequence[str], owner: Sequence[int], is_cut: bool) -> None:
    """Every word has a token, or, of a sentence that was cut, every word up to the last that is there."""
    present = set(owner) - {MARKER}
    for number in range(max(present, default=0) + 1 if is_cut else len(words)):
        if number not in present:
            raise DatasetError(
                f"pair {name!r}: the tokenizer makes nothing of word {number} of the {side} sentence, "
                f"{excerpt(words[number])}: take it out, in the links too"
            )
