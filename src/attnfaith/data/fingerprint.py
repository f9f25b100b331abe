"""Which texts a number is over: a fingerprint of what was read, whatever it is called and wherever it lies."""

import hashlib
import json

from attnfaith.data.in_memory import pieces


CONTENT = ("text", "text_pair", "label", "candidates", "source", "target", "links")
"""Columns of a split that decide what a model reads and what is right."""


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
