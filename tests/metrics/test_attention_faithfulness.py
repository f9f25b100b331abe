import ast
import doctest
import math
import re
import sys

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from scipy.spatial.distance import jensenshannon

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement
from attnfaith.metrics.attention_faithfulness.support_agreement import support_auprc, top_k_overlap
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME, register_metric


ATTENTION = [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [0.5, 0.5], []]
IMPORTANCE = [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3], [1.0, 2.0], []]
PROBS = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]
OTHER_ATTENTION = [[0.7, 0.2, 0.1], [0.5, 0.5, 0.0], [0.5, 0.5], []]
OTHER_PROBS = [[0.8, 0.2], [0.6, 0.4], [0.6, 0.4], [0.3, 0.7]]
# of ATTENTION: a row of three weights, one of a single weight, an even one, an empty one
ENTROPY = (0.1 * math.log(10) + 0.2 * math.log(5) + 0.7 * math.log(1 / 0.7)) / math.log(3)
DISPERSION = {
    "normalised_entropy": (ENTROPY + 0 + 1) / 3,
    "normalised_entropy_undefined": 1,
    "support_size": (3 + 1 + 2) / 3,
    "support_size_undefined": 1,
    "share_of_zeros": (0 + 2 / 3 + 0) / 3,
    "share_of_zeros_undefined": 1,
}
COLUMNS = {
    "attention": ATTENTION,
    "importance": IMPORTANCE,
    "probs": PROBS,
    "counterfactual_attention": OTHER_ATTENTION,
    "counterfactual_probs": OTHER_PROBS,
}


@pytest.fixture(scope="module")
def loaded(evaluate):
    return evaluate.load(str(METRIC_DIR))


@pytest.fixture
def metric(loaded):
    assert len(loaded) == 0, "a test before left instances in the metric"
    return loaded


def same(found, expected):
    assert found.keys() == expected.keys()
    np.testing.assert_array_equal([found[name] for name in expected], list(expected.values()))


def without_dispersion(found):
    """The results less those on attention alone, which are checked."""
    assert {name: found[name] for name in DISPERSION} == pytest.approx(DISPERSION, abs=1e-15)
    return {name: value for name, value in found.items() if name not in DISPERSION}


def test_attention_alone(metric):
    found = metric.compute(attention=ATTENTION)
    assert without_dispersion(found) == {"n": 4}


def test_agreement_block(metric):
    found = metric.compute(attention=ATTENTION, importance=IMPORTANCE, alpha=0.4, n_bootstrap=50, seed=3)
    expected = agreement(ATTENTION, IMPORTANCE, alpha=0.4, n_bootstrap=50, seed=3)["overall"]
    overlap, overlap_chance = top_k_overlap(ATTENTION, IMPORTANCE)
    precision, precision_chance = support_auprc(ATTENTION, IMPORTANCE)
    same(
        without_dispersion(found),
        {
            "n": 4,
            "kendall_tau": expected["tau_mean"],
            "kendall_tau_std": expected["tau_std"],
            "kendall_tau_ci_low": expected["ci_low"],
            "kendall_tau_ci_high": expected["ci_high"],
            "kendall_tau_significant": expected["share_significant"],
            "kendall_tau_undefined": 2,
            "kendall_tau_over_ceiling": expected["tau_over_ceiling"],
            "tie_ceiling": expected["tie_ceiling"],
            "top_k_overlap": np.nanmean(overlap),
            "top_k_overlap_undefined": 2,
            "top_k_overlap_chance": np.nanmean(overlap_chance),
            "support_auprc": np.nanmean(precision),
            "support_auprc_undefined": 3,
            "support_auprc_chance": np.nanmean(precision_chance),
        },
    )
    # by hand: 1/3, and 2 concordant of 3 pairs with one tied: 2 / sqrt(2 * 3)
    assert found["kendall_tau"] == pytest.approx((1 / 3 + math.sqrt(2 / 3)) / 2)
    assert found["tie_ceiling"] == pytest.approx((1 + math.sqrt(2 / 3)) / 2)
    # one of three tokens: not the most important one in the first text, but in the second, whose only weight it has
    assert (found["top_k_overlap"], found["top_k_overlap_chance"]) == (0.5, pytest.approx(1 / 3))
    assert (found["support_auprc"], found["support_auprc_chance"]) == (1, pytest.approx(11 / 18))


def test_predicted_class_splits_the_agreement(metric):
    found = metric.compute(attention=ATTENTION, importance=IMPORTANCE, probs=PROBS)
    assert (found["kendall_tau_class_0_n"], found["kendall_tau_class_0_undefined"]) == (1, 1)
    assert (found["kendall_tau_class_1_n"], found["kendall_tau_class_1_undefined"]) == (1, 1)
    assert found["kendall_tau_class_0"] == pytest.approx(1 / 3)
    assert found["kendall_tau_class_1"] == found["tie_ceiling_class_1"] == pytest.approx(math.sqrt(2 / 3))
    assert math.isnan(found["kendall_tau_class_0_ci_low"])
    assert "tvd" not in found and "jsd" not in found


def test_prediction_block(metric):
    found = metric.compute(probs=PROBS[:3] + [[]], counterfactual_probs=OTHER_PROBS[:3] + [[]])
    distances = total_variation_distance(PROBS[:3], OTHER_PROBS[:3])
    np.testing.assert_allclose(distances, [0.1, 0.4, 0], atol=1e-12)
    same(
        found,
        {
            "n": 4,
            "tvd": distances.mean(),
            "tvd_median": np.median(distances),
            "tvd_max": distances.max(),
            "tvd_undefined": 1,
            "flip_fraction": 1 / 3,
            "flip_fraction_undefined": 1,
        },
    )


def test_attention_block(metric):
    found = metric.compute(attention=ATTENTION, counterfactual_attention=OTHER_ATTENTION)
    distances = jensen_shannon_divergence(ATTENTION[:3], OTHER_ATTENTION[:3])
    assert distances[1] == pytest.approx(math.log(2)) and distances[2] == 0
    same(
        without_dispersion(found),
        {
            "n": 4,
            "jsd": distances.mean(),
            "jsd_median": np.median(distances),
            "jsd_max": distances.max(),
            "jsd_undefined": 1,
        },
    )


def test_all_columns_give_all_blocks_as_plain_python(metric):
    found = metric.compute(**COLUMNS)
    alone = [
        metric.compute(attention=ATTENTION, importance=IMPORTANCE, probs=PROBS),
        metric.compute(probs=PROBS, counterfactual_probs=OTHER_PROBS),
        metric.compute(attention=ATTENTION, counterfactual_attention=OTHER_ATTENTION),
    ]
    expected = {key: value for block in alone for key, value in block.items()}
    assert found.keys() == expected.keys()
    np.testing.assert_array_equal([found[key] for key in expected], list(expected.values()))
    assert {type(value) for value in found.values()} == {int, float}


def test_arrays_are_accepted(metric):
    x, y = np.random.default_rng(0).dirichlet(np.ones(6), (2, 5))
    expected = metric.compute(attention=x.tolist(), counterfactual_attention=y.tolist())
    assert metric.compute(attention=x, counterfactual_attention=list(y)) == expected
    single = metric.compute(attention=x.astype(np.float32), counterfactual_attention=y.astype(np.float32))
    assert single == pytest.approx(expected, abs=1e-6)


def test_batches_and_instances_equal_one_call(metric):
    expected = metric.compute(**COLUMNS)
    metric.add_batch(**{name: rows[:1] for name, rows in COLUMNS.items()})
    metric.add_batch(**{name: [] for name in COLUMNS})
    metric.add_batch(**{name: rows[1:3] for name, rows in COLUMNS.items()})
    metric.add(**{name: rows[3] for name, rows in COLUMNS.items()})
    same(metric.compute(), expected)
    metric.add(attention=ATTENTION[0], importance=IMPORTANCE[0])
    metric.add_batch(attention=ATTENTION[1:], importance=IMPORTANCE[1:])
    same(metric.compute(), metric.compute(attention=ATTENTION, importance=IMPORTANCE))


def test_combine(evaluate, metric):
    columns = {"attention": ATTENTION, "importance": IMPORTANCE}
    expected = metric.compute(**columns)
    same(evaluate.combine([metric]).compute(**columns), expected)
    prefixed = evaluate.combine([metric], force_prefix=True).compute(**columns)
    assert prefixed.keys() == {f"attention_faithfulness_{name}" for name in expected}


def test_combine_with_accuracy(evaluate, metric, accuracy):
    """As the card says: add_batch with every column, None for those there are not; then compute."""
    columns = {"attention": ATTENTION, "importance": IMPORTANCE}
    expected = metric.compute(**columns)
    both = evaluate.combine([accuracy, metric])
    for rows in (slice(0, 2), slice(2, 4)):
        both.add_batch(
            predictions=[0, 1, 1, 0][rows],
            references=[0, 1, 0, 0][rows],
            **{name: columns[name][rows] if name in columns else None for name in COLUMNS},
        )
    same(both.compute(), {"accuracy": 0.75, **expected})


def draw_columns(n=40, seed=3):
    """Texts of many lengths, some without tokens, sparse attention, ties, a row that is None and one that holds a NaN."""
    generator = np.random.default_rng(seed)
    attention, importance, other = [], [], []
    for length in generator.integers(0, 40, n):
        weights = np.maximum(generator.normal(size=length), 0)
        attention.append(weights / weights.sum() if weights.sum() else np.full(length, 1 / max(1, length)))
        importance.append(generator.normal(size=length).round(1))
        other.append(generator.dirichlet(np.ones(length)) if length else np.empty(0))
    attention[3] = None
    importance[5] = np.full(len(attention[5]), np.nan)
    probs, others = generator.dirichlet(np.ones(3), n), generator.dirichlet(np.ones(3), n)
    columns = {"attention": attention, "importance": importance, "probs": list(probs)}
    return columns | {"counterfactual_attention": other, "counterfactual_probs": list(others)}


def test_each_text_has_its_own_value(metric):
    """By other routes, a text at a time: scipy, scikit-learn, and sums written out."""
    columns = draw_columns()
    values = {name: np.array(of) for name, of in metric.compute(**columns, per_text=True)["per_text"].items()}
    for row in range(len(columns["attention"])):
        attention, importance, other = (columns[name][row] for name in list(COLUMNS)[:2] + ["counterfactual_attention"])
        p, q = columns["probs"][row], columns["counterfactual_probs"][row]
        assert values["tvd"][row] == pytest.approx(np.abs(p - q).sum() / 2)
        assert values["flip_fraction"][row] == float(p.argmax() != q.argmax())
        if attention is None:
            assert math.isnan(values["jsd"][row]) and math.isnan(values["support_size"][row])
            continue
        if len(attention):
            assert values["jsd"][row] == pytest.approx(jensenshannon(attention, other) ** 2, abs=1e-12)
            assert values["support_size"][row] == np.count_nonzero(attention)
        if np.isnan(importance).any() or len(attention) < 2:
            assert math.isnan(values["kendall_tau"][row]) and math.isnan(values["kendall_tau_significant"][row])
            continue
        expected = scipy.stats.kendalltau(attention, importance)
        assert values["kendall_tau"][row] == pytest.approx(expected.statistic, nan_ok=True)
        if not math.isnan(expected.statistic):
            assert values["kendall_tau_significant"][row] == float(expected.pvalue <= 0.05)
        if not math.isnan(values["support_auprc"][row]):
            average = sklearn.metrics.average_precision_score(attention > 0, importance)
            assert values["support_auprc"][row] == pytest.approx(average)
    assert np.isfinite(values["kendall_tau"]).sum() > 30 and np.isfinite(values["support_auprc"]).sum() > 20


@pytest.mark.parametrize("configuration", ["default", "erasure", "plausibility"])
def test_the_mean_over_texts_is_the_result_of_that_name(evaluate, configuration):
    columns = draw_columns()
    if configuration == "erasure":
        curves = np.random.default_rng(1).random((2, 40, 5))
        whole, empty = np.random.default_rng(2).random((2, 40))
        columns = {"whole_prob": whole, "kept_probs": curves[0], "removed_probs": curves[1], "empty_prob": empty}
    elif configuration == "plausibility":
        marks = [None if row is None else (row > 0).astype(int) for row in columns["attention"]]
        columns = {"scores": columns["importance"], "rationale": marks}
    metric = evaluate.load(str(METRIC_DIR), configuration)
    means = metric.compute(**columns)
    results = metric.compute(**columns, per_text=True)
    by_text = results.pop("per_text")
    same(results, means)
    single = {
        "kendall_tau_std",
        "kendall_tau_ci_low",
        "kendall_tau_ci_high",
        "tvd_median",
        "tvd_max",
        "jsd_median",
        "jsd_max",
    }
    counts = {name for name in means if name.endswith("undefined") or "class" in name}
    assert by_text.keys() == means.keys() - single - counts - {"n"}
    for name, values in by_text.items():
        assert len(values) == means["n"] == 40 and all(isinstance(value, float) for value in values)
        assert means[name] == pytest.approx(np.nanmean(values), abs=1e-12)
        if f"{name}_undefined" in means:
            assert np.isnan(values).sum() == means[f"{name}_undefined"]


def test_values_stand_in_the_order_of_the_texts(metric):
    columns = draw_columns()
    whole = metric.compute(**columns, per_text=True)["per_text"]
    for start in range(0, 40, 13):
        metric.add_batch(**{name: rows[start : start + 13] for name, rows in columns.items()})
    batched = metric.compute(per_text=True)["per_text"]
    backwards = metric.compute(**{name: rows[::-1] for name, rows in columns.items()}, per_text=True)["per_text"]
    for name, values in whole.items():
        np.testing.assert_array_equal(batched[name], values)
        np.testing.assert_array_equal(backwards[name][::-1], values)


def test_per_text_is_asked_with_true_or_false(metric):
    with pytest.raises(ValueError, match="per_text is 'yes'; give True"):
        metric.compute(**COLUMNS, per_text="yes")


def test_kept_in_memory(evaluate, metric):
    same(evaluate.load(str(METRIC_DIR), keep_in_memory=True).compute(**COLUMNS), metric.compute(**COLUMNS))


def test_undefined_instances_are_counted_in_every_block(metric):
    missing = [None, [0.2, math.nan]]
    found = metric.compute(
        **{name: [*rows, *missing] for name, rows in COLUMNS.items() if name != "importance"},
        importance=[*IMPORTANCE, None, [1.0, 2.0]],
    )
    expected = metric.compute(**COLUMNS)
    blocks = ("kendall_tau", "top_k_overlap", "support_auprc", "tvd", "flip_fraction", "jsd", *DISPERSION)
    for name in (name for name in blocks if not name.endswith("_undefined")):
        assert found[f"{name}_undefined"] == expected[f"{name}_undefined"] + 2
        assert found[name] == expected[name]
    for name in ("kendall_tau_class_0", "kendall_tau_class_1_n"):
        assert found[name] == expected[name]


def test_no_instance_is_all_undefined(metric):
    found = metric.compute(attention=[], importance=[])
    assert found.pop("n") == 0
    blocks = ("kendall_tau", "top_k_overlap", "support_auprc", "tvd", "flip_fraction", "jsd", *DISPERSION)
    assert {name for name, value in found.items() if value == 0} == {
        f"{name}_undefined" for name in blocks if not name.endswith("_undefined")
    }
    assert all(math.isnan(value) for name, value in found.items() if not name.endswith("_undefined"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "no column was given or added. Give attention, or attention and importance, or probs and counterfactual_pr"),
        ({"importance": IMPORTANCE}, r"nothing can be computed from the columns \['importance'\]. Give attention, or"),
        ({"attention": ATTENTION, "importances": IMPORTANCE}, r"unknown columns \['importances'\]; the columns are"),
        ({"predictions": [0], "references": [0]}, r"unknown columns \['predictions', 'references'\]"),
        ({"attention": ATTENTION, "importance": IMPORTANCE[:3]}, "'attention': 4, 'importance': 3"),
        ({"attention": [[0.5, 0.5], [0.5, 0.5]], "importance": [[1, 2], [1]]}, "row 1: attention has 2 values and imp"),
        ({"attention": [[1.0], [1.5, -0.5]], "importance": [[1], [1, 2]]}, "row 1: attention has the negative value"),
        ({"attention": [[1.0], [0.5, 0.4]], "importance": [[1], [1, 2]]}, "row 1: attention sums to 0.9"),
        ({"probs": [[0.5, 0.5]], "counterfactual_probs": [[0.9, 0.9]]}, "row 0: counterfactual_probs sums to 1.8"),
        ({"attention": ATTENTION, "importance": IMPORTANCE, "alpha": 2}, "alpha is 2"),
        ({"attention": ATTENTION, "importance": IMPORTANCE, "n_bootstrap": 0.5}, "n_bootstrap is 0.5"),
    ],
)
def test_refuses_and_stays_usable(metric, columns, message):
    with pytest.raises(ValueError, match=message):
        metric.compute(**columns)
    assert len(metric) == 0
    assert metric.compute(attention=ATTENTION, importance=IMPORTANCE)["n"] == 4


def test_a_bad_batch_leaves_the_good_ones(metric):
    metric.add_batch(attention=ATTENTION, importance=IMPORTANCE)
    with pytest.raises(ValueError, match="row 0: attention sums to 2"):
        metric.add_batch(attention=[[1.0, 1.0]], importance=[[1.0, 1.0]])
    with pytest.raises(ValueError, match="unknown columns"):
        metric.add(attentions=[1.0], importance=[1.0])
    same(metric.compute(), metric.compute(attention=ATTENTION, importance=IMPORTANCE))


def test_docstring_and_card_examples(evaluate, loaded):
    register_metric()
    text = sys.modules[type(loaded).__module__]._KWARGS_DESCRIPTION
    card = (METRIC_DIR / "README.md").read_text(encoding="utf-8")
    for name, examples in (("docstring", text), ("card", "\n".join(re.findall(r"```python\n(.*?)```", card, re.DOTALL)))):
        test = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
        assert len(test.examples) >= 5
        result = doctest.DocTestRunner().run(test)
        assert result.failed == 0


PAGE = {"app"}  # of the Space, no part of the metric


def test_the_script_imports_all_that_its_siblings_import():
    """From a Space evaluate fetches what the script imports, not what its helpers import in turn."""

    def siblings(name):
        tree = ast.parse((METRIC_DIR / f"{name}.py").read_text(encoding="utf-8"))
        return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level}

    fetched = siblings(METRIC_NAME)
    assert fetched == {path.stem for path in METRIC_DIR.glob("*.py")} - {METRIC_NAME, "__init__", *PAGE}
    assert all(siblings(name) <= fetched for name in fetched)
