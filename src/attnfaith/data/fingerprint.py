"""Fingerprints of texts, attention and models by their content, whatever their names and places."""

import hashlib
import json
from collections.abc import Mapping

import numpy as np
import xxhash


CONTENT = ("text", "text_pair", "label", "source", "target", "links")
"""Columns of a split that decide what a model reads and what is right."""
ENCODED = (
    *("instance_id", "input_ids", "token_type_ids", "labels", "tokens", "words", "truncated"),
    *("word_of_token", "text_of_token", "rationale", "query_tokens", "impermissible"),
    *("target_tokens", "source_words", "target_words", "gold_links"),
)
"""The same for an encoded split."""
LEFT_OUT = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "auto_map")
"""Keys of a configuration that do not change what the model computes."""
DIGESTS: dict[bytes, str] = {}
"""SHA-256 of models by a hash that takes a twentieth of the time: most are measured more than once."""


def fingerprint(split) -> str:
    """Return 12 hexadecimal digits of a SHA-256 over the CONTENT of a split, in order.

    split: a `datasets.Dataset` of `load_splits` or `load_pairs`, before any tokenizer cuts it. Names of files, data sets and
    rows do not count.
    """
    digest = hashlib.sha256()
    names = [name for name in CONTENT if name in split.column_names]
    digest.update(json.dumps(names).encode())
    for start in range(0, len(split), 1000):
        piece = split[start : start + 1000]
        rows = zip(*(piece[name] for name in names), strict=True)
        digest.update(json.dumps([dict(zip(names, row, strict=True)) for row in rows], sort_keys=True).encode())
    return digest.hexdigest()[:12]


def digest_data(dataset) -> str:
    """Return the SHA-256 of an encoded data set: its columns of ENCODED, in order."""
    names = [name for name in ENCODED if name in dataset.column_names]
    digest = hashlib.sha256(repr(names).encode())
    for start in range(0, len(dataset), 1000):
        piece = dataset[start : start + 1000]
        digest.update(repr({name: piece[name] for name in names}).encode())
    return digest.hexdigest()


def digest_attention(attention: Mapping[str, np.ndarray], dataset) -> str:
    """Return the SHA-256 of the weights {instance id: [T]} for the texts of an encoded data set, in its order."""
    digest = hashlib.sha256()
    for name in dataset["instance_id"]:
        digest.update(name.encode() + b"\0" + np.asarray(attention[name], np.float32).tobytes())
    return digest.hexdigest()


def digest_model(model, more: str = "") -> str:
    """Return the SHA-256 of what a model computes: of its weights, its configuration and `more`."""
    import torch

    parts = []
    for name, values in sorted(model.state_dict().items()):
        parts += [name.encode(), values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()]
    config = {key: value for key, value in model.config.to_dict().items() if key not in LEFT_OUT}
    parts += [json.dumps(config, sort_keys=True, default=str).encode(), more.encode()]
    content, digest = xxhash.xxh3_128(), hashlib.sha256()
    for part in parts:
        content.update(part)
    if content.digest() not in DIGESTS:
        for part in parts:
            digest.update(part)
        DIGESTS[content.digest()] = digest.hexdigest()
    return DIGESTS[content.digest()]
