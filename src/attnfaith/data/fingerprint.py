"""Which texts and which model a number is of: fingerprints of what was read, whatever it is called and wherever it lies."""

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from attnfaith.data.in_memory import pieces
from attnfaith.record import projection_label


CONTENT = ("text", "text_pair", "label", "candidates", "source", "target", "links")
"""Columns of a split that decide what a model reads and what is right."""
ENCODED = (
    *("instance_id", "input_ids", "token_type_ids", "labels", "tokens", "words", "truncated", "candidates"),
    *("word_of_token", "text_of_token", "rationale", "query_tokens", "impermissible"),
    *("target_tokens", "source_words", "target_words", "gold_links"),
)
"""The same of an encoded split."""


def fingerprint(split) -> str:
    """12 hexadecimal digits of a SHA-256 over the texts of a split, second texts, labels and possible answers, in order;
    of sentence pairs over both sentences and their links.

    split: a `datasets.Dataset` as `load_splits` or `load_pairs` gives it, before any tokenizer cuts it. Names of files, data
    sets and rows are no part of it.
    """
    digest = hashlib.sha256()
    names = [name for name in CONTENT if name in split.column_names]
    digest.update(json.dumps(names).encode())
    for part in pieces(split, names):
        digest.update(json.dumps(part.to_pylist(), sort_keys=True).encode())
    return digest.hexdigest()[:12]


def digest_data(dataset) -> str:
    """SHA-256 of an encoded data set: ids, texts, input ids, labels, candidates, marks and questions, in its order."""
    names = [name for name in ENCODED if name in dataset.column_names]
    digest = hashlib.sha256(repr(names).encode())
    for part in pieces(dataset, names):
        digest.update(repr(part.to_pydict()).encode())
    return digest.hexdigest()


def digest_attention(attention: Mapping[str, np.ndarray], dataset) -> str:
    """SHA-256 of the weights for the texts of an encoded data set, {instance id: [T]}, in its order."""
    digest = hashlib.sha256()
    for name in dataset["instance_id"]:
        digest.update(name.encode() + b"\0" + np.asarray(attention[name], np.float32).tobytes())
    return digest.hexdigest()


def hash_of_weights(model):
    """A SHA-256 that has read the names and values of a model's weights."""
    import torch

    digest = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest


def digest_model(model) -> str:
    """SHA-256 of the weights of an attention classifier and of those settings that weights and their shapes do not show."""
    digest, config = hash_of_weights(model), model.config
    shown = [projection_label(config.projection, config.projection_parameter), config.markers, config.num_attention_heads]
    shown += [] if config.score_scale is None else [config.score_scale]
    shown += [] if config.hierarchy == "none" else [config.hierarchy, config.sentence_token_id]
    digest.update(json.dumps(shown).encode())
    return digest.hexdigest()
