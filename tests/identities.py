"""Identities of cells that tests make up."""

from attnfaith import record as records


def identity(**fields) -> records.Identity:
    """The identity of a cell of these fields; of the others, those of a plain BiLSTM on SST."""
    plain = {"dataset": "sst", "texts": "abc", "training_texts": "def", "split": "test", "seed": 0, "vectors_scale": 0.25}
    return records.Identity(**plain | fields)


def columns_of(identity) -> dict:
    """The columns of a record that name a cell, of one row."""
    return {name: values[0] for name, values in records.as_columns(identity, 1).items()}
