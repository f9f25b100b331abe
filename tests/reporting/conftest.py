import numpy as np
import pytest
from matplotlib.figure import Figure

from attnfaith import record as records


def build(
    instances,
    *,
    seed=0,
    projection="softmax",
    dataset="sst",
    revision="abc",
    objective="classification",
    rationale=False,
    measures=(),
):
    """A one-cell record from dicts with any of: id, tokens, label, truncated, probs, attention, gold, <measure>."""
    columns = {name: [] for name in (*records.IDENTITY, "tokens", "label", "truncated", "probs", "attention")}
    columns |= {f"importance_{name}": [] for name in measures}
    if rationale:
        columns["rationale"] = []
    for number, given in enumerate(instances):
        identity = {
            "instance_id": given.get("id", f"t/{number:03d}"),
            "dataset": dataset,
            "revision": revision,
            "split": "test",
            "encoder": "bilstm",
            "alignment": "additive",
            "projection": projection,
            "vectors": "random(0.25)",
            "objective": objective,
            "seed": seed,
        }
        attention = list(given.get("attention", []))
        values = identity | {
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


@pytest.fixture
def quick_figures(monkeypatch):
    """Reports with one small empty picture per cell: drawing the real ones takes most of a report's time."""
    monkeypatch.setattr(
        "attnfaith.reporting.report.all_figures", lambda _cell: {"attention_overview": Figure(figsize=(1, 1))}
    )


@pytest.fixture
def build_record():
    return build


@pytest.fixture
def draw_record():
    return draw
