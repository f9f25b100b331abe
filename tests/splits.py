"""Splits of data sets, in memory."""

import datasets


def rows(texts, **columns):
    """A split of these texts."""
    ids = [f"set/train/{row}" for row in range(len(texts))]
    return datasets.Dataset.from_dict({"instance_id": ids, "text": list(texts), **columns})
