"""The metric by `evaluate`: every block of results by hand, batches, combinations, numbers for each text, its examples."""

import ast
import doctest
import math
import re
import sys

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME, install_metric


ATTENTION = [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [0.5, 0.5], []]
IMPORTANCE = [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3], [1.0, 2.0], []]
COLUMNS = {
    "attention": ATTENTION,
    "importance": IMPORTANCE,
    "probs": [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]],
    "counterfactual_attention": [[0.7, 0.2, 0.1], [0.5, 0.5, 0.0], [0.5, 0.5], []],
    "counterfactual_probs": [[0.8, 0.2], [0.6, 0.4], [0.6, 0.4], [0.3, 0.7]],
}
# of ATTENTION: a row of three weights, a row of a single weight, an even one, an empty one
ENTROPY = (0.1 * math.log(10) + 0.2 * math.log(5) + 0.7 * math.log(1 / 0.7)) / math.log(3)
DISPERSION = {
    "normalised_entropy": (ENTROPY + 0 + 1) / 3,
    "support_size": (3 + 1 + 2) / 3,
    "share_of_zeros": (0 + 2 / 3 + 0) / 3,
}
BLOCKS = ("kendall_tau", "tvd", "flip_fraction", "jsd", *DISPERSION)


def test_every_block_by_hand(metric):
    results = metric.compute(**COLUMNS, alpha=0.4)
    assert {type(value) for value in results.values()} == {int, float}
    js = jensenshannon([0.1, 0.2, 0.7], [0.7, 0.2, 0.1]) ** 2
    expected = DISPERSION | {
        # 1/3, and 2 concordant of 3 pairs, a pair tied: 2 / sqrt(2 * 3)
        "kendall_tau": (1 / 3 + math.sqrt(2 / 3)) / 2,
        "tie_ceiling": (1 + math.sqrt(2 / 3)) / 2,
        "kendall_tau_over_ceiling": (1 / 3 + 1) / 2,
        "kendall_tau_class_0": 1 / 3,
        "kendall_tau_class_1": math.sqrt(2 / 3),
        "tvd": (0.1 + 0.4) / 4,
        "tvd_median": 0.05,
        "tvd_max": 0.4,
        "flip_fraction": 1 / 4,
        "jsd": (js + math.log(2) + 0) / 3,
        "jsd_median": js,
        "jsd_max": math.log(2),
    }
    for name, value in expected.items():
        assert results[name] == pytest.approx(value, abs=1e-12), name
    undefined = {name: results[f"{name}_undefined"] for name in BLOCKS}
    assert undefined == dict.fromkeys(DISPERSION, 1) | {
        "kendall_tau": 2, "tvd": 0, "flip_fraction": 0, "jsd": 1
    }  # fmt: skip
    assert (results["n"], results["kendall_tau_class_0_n"], results["kendall_tau_class_0_undefined"]) == (4, 1, 1)
    assert math.isnan(results["kendall_tau_class_0_ci_low"])
    # undefined instances are counted in every block and change no mean
    missing = {name: [*rows, None, [0.2, math.nan]] for name, rows in COLUMNS.items()}
    more = metric.compute(**missing, alpha=0.4)
    for name in BLOCKS:
        assert more[name] == results[name] and more[f"{name}_undefined"] == undefined[name] + 2
    assert more["kendall_tau_class_0"] == results["kendall_tau_class_0"]


@pytest.mark.parametrize(
    ("names", "present"),
    [
        (["attention"], {*DISPERSION}),
        (["attention", "importance"], {*DISPERSION, "kendall_tau", "tie_ceiling"}),
        (["probs", "counterfactual_probs"], {"tvd", "flip_fraction"}),
        (["attention", "counterfactual_attention"], {*DISPERSION, "jsd"}),
    ],
)
def test_a_block_needs_its_columns_alone(metric, names, present):
    everything, results = (metric.compute(**{name: COLUMNS[name] for name in part}) for part in (COLUMNS, names))
    assert {name for name in (*BLOCKS, "tie_ceiling") if name in results} == present
    for name, value in results.items():
        np.testing.assert_array_equal(value, everything[name], err_msg=name)


def test_batches_and_instances_equal_a_single_call(evaluate, metric, same):
    """A bad batch leaves the good ones; so does a metric that writes to disk."""
    expected = metric.compute(**COLUMNS)
    metric.add_batch(**{name: rows[:1] for name, rows in COLUMNS.items()})
    metric.add_batch(**{name: [] for name in COLUMNS})
    metric.add_batch(**{name: rows[1:3] for name, rows in COLUMNS.items()})
    with pytest.raises(ValueError, match="row 0: attention"):
        metric.add_batch(attention=[[1.0, 1.0]], importance=[[1.0, 1.0]])
    with pytest.raises(ValueError, match="attentions"):
        metric.add(attentions=[1.0], importance=[1.0])
    metric.add(**{name: rows[3] for name, rows in COLUMNS.items()})
    same(metric.compute(), expected)
    on_disk = evaluate.load(str(METRIC_DIR))
    on_disk.add(attention=ATTENTION[0], importance=IMPORTANCE[0])
    on_disk.add_batch(attention=ATTENTION[1:], importance=IMPORTANCE[1:])
    same(on_disk.compute(), metric.compute(attention=ATTENTION, importance=IMPORTANCE))


def draw_columns():
    """Texts of many lengths, some without tokens, sparse attention, ties, a row that is None and a row with a NaN."""
    generator = np.random.default_rng(3)
    attention, importance, other = [], [], []
    for length in generator.integers(0, 40, 40):
        weights = np.maximum(generator.normal(size=length), 0)
        attention.append(weights / weights.sum() if weights.sum() else np.full(length, 1 / max(1, length)))
        importance.append(generator.normal(size=length).round(1))
        other.append(generator.dirichlet(np.ones(length)) if length else np.empty(0))
    attention[3] = None
    importance[5] = np.full(len(attention[5]), np.nan)
    probs, other_probs = generator.dirichlet(np.ones(3), (2, 40))
    columns = {"attention": attention, "importance": importance, "probs": list(probs)}
    return columns | {"counterfactual_attention": other, "counterfactual_probs": list(other_probs)}


@pytest.mark.parametrize(
    ("configuration", "names"),
    [
        ("default", {"kendall_tau", "jsd"}),
        ("erasure", {"sufficiency_aopc", "normalised_comprehensiveness"}),
        ("plausibility", {"average_precision", "token_f1"}),
    ],
)
def test_values_of_texts_and_the_means_of_that_name(load, same, configuration, names):
    """In the order of the texts, also in batches; their mean is the result."""
    columns = draw_columns()
    if configuration == "erasure":
        curves = np.random.default_rng(1).random((2, 40, 5))
        whole, empty = np.random.default_rng(2).random((2, 40))
        columns = {"whole_prob": whole, "kept_probs": curves[0], "removed_probs": curves[1], "empty_prob": empty}
    elif configuration == "plausibility":
        marks = [None if row is None else (row > 0).astype(int) for row in columns["attention"]]
        columns = {"scores": columns["importance"], "rationale": marks}
    metric = load(configuration)
    means, results = metric.compute(**columns), metric.compute(**columns, per_text=True)
    by_text = results.pop("per_text")
    same(results, means)
    assert names <= by_text.keys()
    for name, values in by_text.items():
        assert len(values) == means["n"] == 40 and all(isinstance(value, float) for value in values)
        assert means[name] == pytest.approx(np.nanmean(values), abs=1e-12)
        if f"{name}_undefined" in means:
            assert np.isnan(values).sum() == means[f"{name}_undefined"]
    for start in range(0, 40, 13):
        metric.add_batch(**{name: rows[start : start + 13] for name, rows in columns.items()})
    same(metric.compute(per_text=True)["per_text"], by_text)


def test_docstring_and_card_examples(evaluate, metric):
    install_metric()
    text = sys.modules[type(metric).__module__]._KWARGS_DESCRIPTION
    card = (METRIC_DIR / "README.md").read_text(encoding="utf-8")
    for name, examples in (("docstring", text), ("card", "\n".join(re.findall(r"```python\n(.*?)```", card, re.DOTALL)))):
        test = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
        assert len(test.examples) >= 4 and doctest.DocTestRunner().run(test).failed == 0


def test_the_script_imports_all_that_its_siblings_import():
    """From a Space evaluate fetches what the script imports, not what its helpers import in turn."""
    siblings = {path.stem for path in METRIC_DIR.glob("*.py")} - {"__init__", "app", METRIC_NAME}

    def imported(name):
        tree = ast.parse((METRIC_DIR / f"{name}.py").read_text(encoding="utf-8"))
        return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level}

    assert imported(METRIC_NAME) == siblings
    assert all(imported(name) <= siblings for name in siblings)
