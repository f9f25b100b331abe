"""Records whose truth is known, for tests of what is made from records."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import split_cells
from tests.identities import columns_of, typed


def build(
    instances,
    *,
    seed=0,
    rationale=False,
    measures=(),
    **fields,
):
    """A one-cell record from dicts with any of: id, tokens, label, truncated, probs, attention, gold, <measure>."""
    identity = columns_of(typed(seed=seed, **fields))
    columns = {
        name: [] for name in ("instance_id", *records.IDENTITY_COLUMNS, "tokens", "label", "truncated", "probs", "attention")
    }
    columns |= {f"importance_{name}": [] for name in measures}
    if rationale:
        columns["rationale"] = []
    for number, given in enumerate(instances):
        attention = list(given.get("attention", []))
        values = identity | {
            "instance_id": given.get("id", f"t/{number:03d}"),
            "tokens": given.get("tokens", [f"w{i}" for i in range(len(attention))]),
            "label": given.get("label"),
            "truncated": given.get("truncated", False),
            "probs": given.get("probs", [0.4, 0.6]),
            "attention": attention,
            "rationale": given.get("gold", [0.0] * len(attention)),
        }
        values |= {f"importance_{name}": list(given[name]) for name in measures}
        for name in columns:
            columns[name].append(values[name])
    extra = {f"importance_{name}": records.Column(("T",)) for name in measures}
    if rationale:
        extra["rationale"] = records.OPTIONAL_COLUMNS["rationale"]
    return records.build(columns, extra)


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


def sparsemax(scores):
    """The nearest distribution to the scores, by bisection on the threshold."""
    low, high = scores.max() - 1, scores.max()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(scores - middle, 0).sum() > 1 else (low, middle)
    weights = np.maximum(scores - low, 0)
    return weights / weights.sum()


def entmax(scores, alpha):
    low, high = (alpha - 1) * scores.max() - 1, (alpha - 1) * scores.max()
    for _ in range(60):
        middle = (low + high) / 2
        total = np.maximum((alpha - 1) * scores - middle, 0) ** (1 / (alpha - 1))
        low, high = (middle, high) if total.sum() > 1 else (low, middle)
    return total / total.sum()


def project(name, scores):
    """Softmax, uniform, sparsemax, "sparsegen(-3)", "entmax(1.5)" of scores."""
    if name == "uniform":
        return np.full(len(scores), 1 / len(scores))
    if name == "softmax":
        exponentials = np.exp(scores - scores.max())
        return exponentials / exponentials.sum()
    if name.startswith("entmax"):
        return entmax(scores, float(name[7:-1]))
    return sparsemax(scores / (1 - (0.0 if name == "sparsemax" else float(name[10:-1]))))


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


STATES = ("gradient_norm_hidden", "leave_one_out_hidden", "leave_one_out_reproject_hidden")


@lru_cache(maxsize=512)  # many tests ask for the same cells, and none changes one
def draw_sparse(
    projection,
    seed=10,
    *,
    texts=30,
    relation=0.7,
    scale=1.0,
    spread=1.0,
    accuracy=0.8,
    entropy=0.7,
    own=0.3,
    without=(),
    dataset="sst",
    **fields,
):
    """A cell of a sweep of which the truth is known. Scores and noise are those of (data set, text, seed) whatever the
    projection, so that cells differ in what is asked for alone.

    relation: correlation of scores and log importance of inputs. scale: of the scores. spread: of the log importance. The
    importance of a state is its weight times noise. accuracy: share of texts whose class is right. without: columns left
    out. The first text is empty, the second of one token.
    """
    columns = {}
    identity = columns_of(typed(projection, seed=seed, dataset=dataset, **fields))
    for number in range(texts):
        generator = np.random.default_rng([*dataset.encode(), number, seed])
        length = number if number < 2 else 6 + number % 9
        scores = generator.normal(size=length)
        noise = {name: generator.normal(size=length) for name in ("gradient_norm", "leave_one_out", *STATES)}
        rest = np.sqrt(1 - relation**2)
        attention = project(projection, scale * scores) if length else np.zeros(0)
        places = [generator.permutation(length) for _ in range(2 if length > 1 else 0)]
        shuffled = np.array([attention[place] for place in places]).reshape(len(places), length)
        right = (number + 0.5) / texts < accuracy
        values = identity | {
            "instance_id": f"{dataset}/{number}",
            "tokens": ["w"] * length,
            "label": int(right),
            "truncated": False,
            "probs": [0.2, 0.8],
            "attention": attention,
            "hidden_to_input_entropy": np.full(length, entropy) + 0.02 * generator.normal(size=length),
            "hidden_to_input_own": np.full(length, own) + 0.02 * generator.normal(size=length),
            "random_support_attention": shuffled,
            "random_support_gradient_norm_hidden": shuffled * np.exp(0.3 * noise["gradient_norm_hidden"]),
            "random_support_leave_one_out_hidden": shuffled * np.exp(0.3 * noise["leave_one_out_hidden"]),
        }
        for name, draw in noise.items():
            score = attention * np.exp(0.3 * draw) if name in STATES else np.exp(spread * (relation * scores + rest * draw))
            values[f"importance_{name}"] = score
        values["importance_gradient_norm_detached"] = values["importance_gradient_norm"] * np.exp(noise["leave_one_out"])
        values["importance_gradient_norm_detached_hidden"] = attention * 2.0
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    columns = {name: values for name, values in columns.items() if name not in without}
    draws = {name: records.Column(("K", "T")) for name in columns if name.startswith("random_support")}
    tokens = {name: records.Column(("T",)) for name in columns if name.startswith(("importance_", "hidden_to_input"))}
    return split_cells(records.build(columns, draws | tokens))[0]


def of_cell(table, **fields):
    """The record as one of another cell: that of its first row with these fields."""
    identity = replace(records.from_row(table.slice(0, 1).to_pylist()[0]), **fields)
    for name, values in records.as_columns(identity, table.num_rows).items():
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array(values).cast(field.type))
    return table
