"""Records whose truth is known, for tests of what is made from records."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import split_cells
from tests.identities import columns_of, typed


def of_rows(identity, rows, kinds):
    """A record of one cell from rows, {column: value}. kinds: {name: Column} of columns that not every record has."""
    shared = columns_of(identity)
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
    return of_rows(typed(seed=seed, **fields), rows, kinds | {"rationale": records.OPTIONAL_COLUMNS["rationale"]})


def draw(count, *, classes=2, longest=25, seed=0, measures=("gradient", "leave_one_out"), labels=True, **identity):
    """A one-cell record of random texts, among them an empty one, one of a single token and one of constant scores."""
    generator = np.random.default_rng(seed)
    instances = []
    for number in range(count):
        length = {0: 0, 1: 1}.get(number, int(generator.integers(9, longest)))
        hidden = generator.normal(size=length)
        attention = np.exp(hidden + generator.normal(size=length))
        instances.append(
            {
                "tokens": [f"word{int(i)}" for i in generator.integers(0, 50, length)],
                "attention": attention / attention.sum() if length else [],
                "probs": generator.dirichlet(np.ones(classes)),
                "label": int(generator.integers(classes)) if labels and number % 7 else None,
                "gold": (hidden > 0.8).astype(float),
            }
            | {
                name: np.full(length, 0.5) if number == 2 else np.exp(hidden + generator.normal(size=length))
                for name in measures
            }
        )
    return build(instances, seed=seed, measures=measures, **identity)


def with_columns(table, columns, axes):
    """The record with columns of numbers, or of names of measures or groups, {name: value per row}; axes: those of each."""
    for name, values in columns.items():
        kind = "string" if name.endswith(("_measures", "_names")) else "float64"
        field = records.Column(axes[name], kind, doc="x").field(name)
        values = [v.tolist() if isinstance(v, np.ndarray) else v for v in values]
        table = table.append_column(field, pa.array(values, field.type))
    return table


def replaced(record, name, values):
    """The record with other values in a column."""
    place = record.column_names.index(name)
    field = record.schema.field(place)
    return record.set_column(place, field, pa.array([np.asarray(value).tolist() for value in values], field.type))


def sparse_attention(projection, scores):
    """Softmax, sparsemax or "sparsegen(-3)" of scores."""
    if projection == "softmax":
        return np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    scores = scores / (1 - float(projection.partition("(")[2].rstrip(")") or 0))
    largest = np.sort(scores)[::-1]
    thresholds = (np.cumsum(largest) - 1) / np.arange(1, len(scores) + 1)
    return np.maximum(scores - thresholds[(largest > thresholds).sum() - 1], 0)


STATES = ("gradient_norm_hidden", "leave_one_out_hidden", "leave_one_out_reproject_hidden")


@lru_cache(maxsize=512)  # many tests ask for the same cells, and none changes one
def draw_sparse(projection, seed=10, *, texts=30, relation=0.7, scale=1.0, **fields):
    """A cell of a sweep of which the truth is known. Scores and noise are those of (text, seed) whatever the projection.

    relation: correlation of scores and log importance of inputs. scale: of the scores. The importance of a state is its
    weight times noise. The class of four fifths of the texts is right. The first text is empty, the second of one token.
    """
    rows = []
    for number in range(texts):
        generator = np.random.default_rng([number, seed])
        length = number if number < 2 else 6 + number % 9
        scores = generator.normal(size=length)
        noise = {name: generator.normal(size=length) for name in ("gradient_norm", "leave_one_out", *STATES)}
        attention = sparse_attention(projection, scale * scores) if length else np.zeros(0)
        places = [generator.permutation(length) for _ in range(2 if length > 1 else 0)]
        shuffled = np.array([attention[place] for place in places]).reshape(len(places), length)
        row = {
            "instance_id": f"sst/{number}",
            "tokens": ["w"] * length,
            "label": int((number + 0.5) / texts < 0.8),
            "truncated": False,
            "probs": [0.2, 0.8],
            "attention": attention,
            "hidden_to_input_entropy": np.full(length, 0.7) + 0.02 * generator.normal(size=length),
            "hidden_to_input_own": np.full(length, 0.3) + 0.02 * generator.normal(size=length),
            "random_support_attention": shuffled,
        }
        for name, draw in noise.items():
            rest = np.sqrt(1 - relation**2) * draw
            score = attention * np.exp(0.3 * draw) if name in STATES else np.exp(relation * scores + rest)
            row[f"importance_{name}"] = score
        for name in STATES[:2]:
            row[f"random_support_{name}"] = shuffled * np.exp(0.3 * noise[name])
        row["importance_gradient_norm_detached"] = row["importance_gradient_norm"] * np.exp(noise["leave_one_out"])
        row["importance_gradient_norm_detached_hidden"] = attention * 2.0
        rows.append(row)
    axes = {"random_support": ("K", "T"), "hidden_to_input": ("T",), "importance": ("T",)}
    kinds = {name: records.Column(axes[part]) for part in axes for name in rows[0] if name.startswith(part)}
    return split_cells(of_rows(typed(projection, seed=seed, **fields), rows, kinds))[0]


def of_cell(table, **fields):
    """The record as one of another cell: that of its first row with these fields."""
    identity = replace(records.from_row(table.slice(0, 1).to_pylist()[0]), **fields)
    for name, values in records.as_columns(identity, table.num_rows).items():
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array(values).cast(field.type))
    return table
