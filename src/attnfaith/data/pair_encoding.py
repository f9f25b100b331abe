"""Sentence pairs for sequence-to-sequence models: tokenizers, encoding and batches.

Words are what stands between blanks. T source words, G target words; L input positions of a source and K labels of a target,
markers included.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from attnfaith.data.collation import pad_batch
from attnfaith.data.in_memory import Rows, in_memory
from attnfaith.data.tokenization import SPECIAL_TOKENS, fast_tokenizer
from attnfaith.support.errors import DatasetError, excerpt


MARKER = -1
"""The word number of a position without a word."""
UNCOUNTED = -100  # a label that is no target token
SOURCE, TARGET = ("input_ids", "source_words", "tokens"), ("labels", "target_words", "target_tokens")


def build_pair_tokenizer(texts: Iterable[str], *, vocabulary: str = "words", size: int | None = None, min_df: int = 1):
    """Build a tokenizer of sentences, sources and targets together. A saved one needs no code of ours.

    Ids: 0 <pad>, 1 <unk>, 2 <s>, with which a decoder starts, 3 </s>, which ends source and target.

    vocabulary: words: those of at least min_df sentences, the `size` most frequent (None: all), others are <unk>; bpe:
    byte-pair encoding within words (Sennrich et al. 2016), `size` entries in all (None: 8,000), which spells any word of
    letters in the vocabulary.

    Raises DatasetError for a size without room beside the special tokens.
    """
    if size is not None and size <= len(SPECIAL_TOKENS):
        raise DatasetError(f"data.vocabulary_size={size} leaves no room beside {len(SPECIAL_TOKENS)} special tokens")
    if vocabulary == "words":
        frequency, count = Counter(), Counter()
        for text in texts:
            words = text.split()
            count.update(words)
            frequency.update(set(words))
        frequent = [word for word in count if frequency[word] >= min_df and word not in SPECIAL_TOKENS]
        frequent.sort(key=lambda word: (-count[word], word))
        entries = [*SPECIAL_TOKENS, *frequent[: None if size is None else size - len(SPECIAL_TOKENS)]]
        backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(entries)}, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        backend = Tokenizer(models.BPE(unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        backend.decoder = decoders.Metaspace(prepend_scheme="always")
        trainer = trainers.BpeTrainer(
            vocab_size=size or 8000, min_frequency=2, special_tokens=list(SPECIAL_TOKENS), show_progress=False
        )
        backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    return fast_tokenizer(backend)


def encode_pairs(rows, tokenizer, *, max_length: int | None = None):
    """Encode a split of `attnfaith.data.pairs` for training, as a `datasets.Dataset` with columns instance_id, input_ids,
    source_words, labels, target_words and length of `encode_for_model`, and links, if the split has them.

    max_length: pairs with a longer side are left out. Raises DatasetError as `encode_for_model`.
    """
    encoded = encode_for_model(rows, tokenizer, max_source=None, max_target=None, end=tokenizer.eos_token_id)
    names = ["instance_id", "input_ids", "source_words", "labels", "target_words", "links", "length"]
    encoded = encoded.select_columns([name for name in names if name in encoded.column_names])
    if max_length is None:
        return encoded
    sides = zip(encoded["input_ids"], encoded["labels"], strict=True)
    return encoded.select([row for row, pair in enumerate(sides) if max(map(len, pair)) <= max_length])


def encode_for_model(pairs, tokenizer, *, max_source: int | None, max_target: int | None, end: int | None):
    """Encode pairs for a model, from and to a `datasets.Dataset`.

    pairs: columns instance_id, source, target and perhaps links, lists of (source word, target word, 2 sure or 1 possible)
    counted from 0. max_source, max_target: the most positions that the model reads; longer sentences are cut, and
    `truncated`. end: id of the marker behind a target, added where the tokenizer adds none, so that the last word is read.

    Columns: instance_id; input_ids and source_words [L], labels and target_words [K], the word number of each position, -1
    for none; tokens [T] and target_tokens [G], the words; length (L + K); truncated; links, and gold_links [G][T] without
    those to words that were cut, if there are links.

    Raises DatasetError for a sentence without words, a word without tokens, and a tokenizer without an end of targets where
    `end` is None.
    """
    read = _by_characters if getattr(tokenizer, "is_fast", False) else _word_by_word
    columns = {"instance_id": list(pairs["instance_id"])}
    cut = {}
    for side, limit, (ids, words, tokens) in (("source", max_source, SOURCE), ("target", max_target, TARGET)):
        sentences = [sentence.split() for sentence in pairs[side]]
        columns[ids], columns[words], cut[side] = read(sentences, tokenizer, limit, side)
        columns[tokens] = []
        for row, sentence in enumerate(sentences):
            numbers, owners = columns[ids][row], columns[words][row]
            last = max(owners, default=MARKER) + 1
            lost = set(range(last if cut[side][row] else len(sentence))).difference(owners)
            if lost or not sentence:
                what = f"no token for word {min(lost)}, {excerpt(sentence[min(lost)])}," if lost else "no word"
                name = columns["instance_id"][row]
                raise DatasetError(f"pair {name!r}: there is {what} of the {side} sentence: leave it out, in the links too")
            columns[tokens].append(sentence[:last])
            if side == "target" and owners[-1] != MARKER:
                if end is None:
                    raise DatasetError(
                        "neither tokenizer nor model (eos_token_id) has a marker that ends a target: set eos_token_id"
                    )
                numbers.append(end)
                owners.append(MARKER)
    columns["length"] = [len(ids) + len(labels) for ids, labels in zip(columns["input_ids"], columns["labels"], strict=True)]
    columns["truncated"] = [any(pair) for pair in zip(*cut.values(), strict=True)]
    if "links" in pairs.column_names:
        columns["links"] = list(pairs["links"])
        rows = zip(pairs["links"], columns["tokens"], columns["target_tokens"], strict=True)
        columns["gold_links"] = [gold_matrix(links, len(source), len(target)).tolist() for links, source, target in rows]
    table = pa.table(columns)
    return Rows(table) if isinstance(pairs, Rows) else in_memory(table)


def _by_characters(sentences: list[list[str]], tokenizer, limit: int | None, side: str) -> tuple[list, list, list]:
    """The ids of each sentence, their word numbers, and whether the sentence was cut."""
    texts = [" ".join(words) for words in sentences]
    options = {"text" if side == "source" else "text_target": texts, "padding": False, "verbose": False}
    encoded = tokenizer(**options, truncation=False)
    counts = list(map(len, encoded["input_ids"]))
    if limit is not None and max(counts, default=0) > limit:
        encoded = tokenizer(**options, truncation=True, max_length=limit)
    owners = []
    for words, text, encoding in zip(sentences, texts, encoded.encodings, strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        owners.append([])
        for (start, stop), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
            start += len(text[start:stop]) - len(text[start:stop].lstrip())  # a blank before a word belongs to the word
            owners[-1].append(MARKER if special else int(np.searchsorted(starts, start, "right")) - 1)
    all_ids = [list(ids) for ids in encoded["input_ids"]]
    return all_ids, owners, [len(ids) < count for ids, count in zip(all_ids, counts, strict=True)]


def _word_by_word(sentences: list[list[str]], tokenizer, limit: int | None, side: str) -> tuple[list, list, list]:
    """The same for a tokenizer without offsets, by encoding each word alone."""
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


def pad_pairs(features: Sequence[Mapping], pad_token_id: int = 0, *, linked: bool = False) -> dict:
    """Batch encoded pairs: int64 input_ids, attention_mask (B,L), labels (B,K) with -100 behind each target.

    linked: add `linked` (B,K,L) float32: 1 where the words of a label and a source position are linked, else 0.
    """
    batch = pad_batch(features, pad_token_id, padding={"labels": UNCOUNTED})
    if linked:
        batch["linked"] = torch.zeros(*batch["labels"].shape, batch["input_ids"].shape[1])
        for matrix, row in zip(batch["linked"], features, strict=True):
            matrix[: len(row["labels"]), : len(row["input_ids"])] = torch.from_numpy(linked_positions(row))
    return batch


def linked_positions(row: Mapping) -> np.ndarray:
    """Return (K,L) float32: 1 where the words of a label and a source position are linked, surely or possibly."""
    source, target = np.asarray(row["source_words"]), np.asarray(row["target_words"])
    # the last row and column, -1, are of no word
    words = np.zeros((target.max(initial=0) + 2, source.max(initial=0) + 2), np.float32)
    for source_word, target_word, _ in row["links"]:
        words[target_word, source_word] = 1
    return words[target][:, source]


def gold_matrix(links: Iterable[Sequence[int]], sources: int, targets: int) -> np.ndarray:
    """Return (G,T) int64 of links as `read_links` gives them: 2 sure, 1 possible, 0 none; without those beyond G or T."""
    gold = np.zeros((targets, sources), np.int64)
    for source, target, strength in links:
        if source < sources and target < targets:
            gold[target, source] = strength
    return gold
