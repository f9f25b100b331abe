"""Records whose truth is known, for tests of what is made from records."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from tests.identities import columns_of, identity


def of_rows(cell, rows, kinds):
    """A record of a cell, an identity, from rows {column: value}. kinds: {name: Column} of optional columns."""
    shared = columns_of(cell)
    rows = [shared | row for row in rows]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return records.build(columns, {name: column for name, column in kinds.items() if name in columns})


def build(texts, *, seed=0, rationale=False, measures=(), **fields):
    """A one-cell record from dicts with any of: id, tokens, label, truncated, probs, attention, gold, <measure>."""
    rows = []
    for number, text in enumerate(texts):
        attention = list(text.get("attention", []))
        row = {
            "instance_id": text.get("id", f"t/{number:03d}"),
            "tokens": text.get("tokens", [f"w{i}" for i in range(len(attention))]),
            "label": text.get("label"),
            "truncated": text.get("truncated", False),
            "probs": text.get("probs", [0.4, 0.6]),
            "attention": attention,
        }
        row |= {"rationale": text.get("gold", [0.0] * len(attention))} if rationale else {}
        rows.append(row | {f"importance_{name}": list(text[name]) for name in measures})
    kinds = {f"importance_{name}": records.Column(("T",)) for name in measures}
    return of_rows(identity(seed=seed, **fields), rows, kinds | {"rationale": records.OPTIONAL_COLUMNS["rationale"]})


def draw(count, *, classes=2, seed=0, measures=("gradient", "leave_one_out"), **fields):
    """A one-cell record of random texts, among them an empty one, one of a single token and one of constant scores."""
    generator = np.random.default_rng(seed)
    instances = []
    for number in range(count):
        length = {0: 0, 1: 1}.get(number, int(generator.integers(9, 25)))
        hidden = generator.normal(size=length)
        attention = np.exp(hidden + generator.normal(size=length))
        instances.append(
            {
                "tokens": [f"word{int(i)}" for i in generator.integers(0, 50, length)],
                "attention": attention / attention.sum() if length else [],
                "probs": generator.dirichlet(np.ones(classes)),
                "label": int(generator.integers(classes)) if number % 7 else None,
                "gold": (hidden > 0.8).astype(float),
            }
            | {
                name: np.full(length, 0.5) if number == 2 else np.exp(hidden + generator.normal(size=length))
                for name in measures
            }
        )
    return build(instances, seed=seed, measures=measures, **fields)


def replaced(record, name, values):
    """The record with other values in a column."""
    place = record.column_names.index(name)
    field = record.schema.field(place)
    return record.set_column(place, field, pa.array([np.asarray(value).tolist() for value in values], field.type))


def of_cell(table, **fields):
    """The record as one of another cell: that of its first row with these fields."""
    identity = replace(records.from_row(table.slice(0, 1).to_pylist()[0]), **fields)
    for name, values in records.as_columns(identity, table.num_rows).items():
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array(values).cast(field.type))
    return table
