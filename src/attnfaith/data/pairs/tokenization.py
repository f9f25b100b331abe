"""Tokenizers of sentence pairs, one for both languages, made of the training sentences; and the encoding of a split.

Ids: 0 <pad>, 1 <unk>, 2 <s>, with which a decoder starts, 3 </s>, which ends source and target. Words are what stands
between blanks. A saved tokenizer needs no code of ours.

Shapes: L input positions of a source, K labels of a target, each with its </s>.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attnfaith.data.in_memory import encoded_in_memory, in_memory
from attnfaith.data.tokenization import SPECIAL_TOKENS, fast_tokenizer
from attnfaith.errors import DatasetError, excerpt


VOCABULARIES = ("words", "bpe")
OUTSIDE = -1
"""In place of the number of a word, of a position that belongs to none."""
UNCOUNTED = -100  # a label that is no target token


def build_pair_tokenizer(texts: Iterable[str], *, vocabulary: str = "words", size: int | None = None, min_df: int = 1):
    """A tokenizer of sentences, sources and targets together.

    vocabulary: words: those that at least min_df sentences hold, the `size` most frequent of them (None: all), others are
    <unk>; bpe: byte-pair encoding within words (Sennrich et al. 2016), `size` entries in all (None: 8,000), which spells any
    word whose letters are known.

    Raises DatasetError for an unknown vocabulary, and a size that leaves no room beside the special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    if vocabulary not in VOCABULARIES:
        raise DatasetError(f"data.vocabulary={excerpt(vocabulary)} does not exist; choose one of {', '.join(VOCABULARIES)}")
    if size is not None and size <= len(SPECIAL_TOKENS):
        raise DatasetError(
            f"data.vocabulary_size={size} leaves no room for a word beside {len(SPECIAL_TOKENS)} special tokens"
        )
    if vocabulary == "words":
        frequency, count = Counter(), Counter()
        for text in texts:
            words = text.split()
            count.update(words)
            frequency.update(set(words))
        frequent = [word for word in count if frequency[word] >= min_df and word not in SPECIAL_TOKENS]
        frequent.sort(key=lambda word: (-count[word], word))
        vocabulary_words = [*SPECIAL_TOKENS, *frequent[: None if size is None else size - len(SPECIAL_TOKENS)]]
        backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary_words)}, unk_token="<unk>"))
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
    """Encoded pairs, a `datasets.Dataset`, of a split of `attnfaith.data.pairs.loading`.

    Columns: instance_id; input_ids [L] and labels [K], int32; source_words [L] and target_words [K]: the number of the word
    that each is of, -1 of </s>; links, where the split has them; length, L + K. max_length: pairs of which a side is longer
    are left out.

    Raises DatasetError where the tokenizer has nothing for a word.
    """
    import pyarrow as pa

    def read(rows, _: int) -> dict:
        columns: dict[str, list] = {}
        for name, ids, words in (("source", "input_ids", "source_words"), ("target", "labels", "target_words")):
            divided = [sentence.split() for sentence in rows[name]]
            encoded = tokenizer(divided, is_split_into_words=True, padding=False, truncation=False, verbose=False)
            columns[ids], columns[words] = encoded["input_ids"], []
            for row, sentence in enumerate(divided):
                numbers = [OUTSIDE if number is None else number for number in encoded.word_ids(row)]
                if lost := set(range(len(sentence))).difference(numbers):
                    raise DatasetError(
                        f"{rows['instance_id'][row]}: the tokenizer has nothing for {excerpt(sentence[min(lost)])}"
                    )
                columns[words].append(numbers)
        both = zip(columns["input_ids"], columns["labels"], strict=True)
        columns["length"] = [len(ids) + len(labels) for ids, labels in both]
        return columns

    numbers = pa.list_(pa.int32())
    types = {"instance_id": pa.string()} | dict.fromkeys(("input_ids", "source_words", "labels", "target_words"), numbers)
    encoded = encoded_in_memory(rows, read, types | {"links": pa.list_(numbers), "length": pa.int32()})
    if max_length is None:
        return encoded
    fits = [max(map(len, row)) <= max_length for row in zip(encoded["input_ids"], encoded["labels"], strict=True)]
    return in_memory(encoded.data.table.filter(pa.array(fits)))


def pad_pairs(features: Sequence[Mapping], pad_token_id: int = 0, *, linked: bool = False) -> dict:
    """A batch of encoded pairs: int64 input_ids, attention_mask (B,L), labels (B,K) with -100 behind each target.

    linked: with `linked` (B,K,L) float32 too: 1 where the words of a label and of a source position are linked, else 0.
    """
    import numpy as np
    import torch

    def padded(name: str, value: int) -> torch.Tensor:
        lists = [row[name] for row in features]
        batch = np.full((len(lists), max(map(len, lists))), value, np.int64)
        for filled, values in zip(batch, lists, strict=True):
            filled[: len(values)] = values
        return torch.from_numpy(batch)

    batch = {"input_ids": padded("input_ids", pad_token_id), "labels": padded("labels", UNCOUNTED)}
    lengths = torch.tensor([len(row["input_ids"]) for row in features])
    batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
    if linked:
        batch["linked"] = torch.zeros(*batch["labels"].shape, batch["input_ids"].shape[1])
        for matrix, row in zip(batch["linked"], features, strict=True):
            matrix[: len(row["labels"]), : len(row["input_ids"])] = torch.from_numpy(linked_positions(row))
    return batch


def linked_positions(row: Mapping):
    """(K,L) float32: 1 where the words of a label and of a source position are linked, surely or possibly."""
    import numpy as np

    source, target = np.asarray(row["source_words"]), np.asarray(row["target_words"])
    words = np.zeros((target.max(initial=0) + 2, source.max(initial=0) + 2), np.float32)  # the last of each is of no word
    for source_word, target_word, _ in row["links"]:
        words[target_word, source_word] = 1
    return words[target][:, source]
