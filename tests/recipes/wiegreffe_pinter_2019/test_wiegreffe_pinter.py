"""Seeds, adversaries, uniform and guided models beside a base: by hand, by brute force, matched by text."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import binom
from sklearn.metrics import f1_score, roc_auc_score

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import match, split_cells
from recipes.wiegreffe_pinter_2019 import analysis
from tests.identities import typed


COUNT = 40
ADVERSARIES = ("adversarial(kl, 0.002)", "adversarial(kl, 0.01)", "adversarial(jsd, 0.1, frozen)")


def make(rows, **labels):
    """One cell of rows (id, attention, probs, label)."""
    columns = {
        "instance_id": [row[0] for row in rows],
        **records.as_columns(typed(**{"vectors": "random(1)", "seed": 10} | labels), len(rows)),
        "tokens": [["w"] * len(row[1]) for row in rows],
        "attention": [row[1] for row in rows],
        "probs": [row[2] for row in rows],
        "label": [row[3] for row in rows],
        "truncated": [False] * len(rows),
    }
    return split_cells(records.build(columns))[0]


def draw(number, **identity):
    """A cell of random attention and predictions on texts whose lengths and labels depend on the text alone."""
    generator, texts = np.random.default_rng(number), np.random.default_rng(0)
    rows = []
    for place in range(COUNT):
        length = 0 if place == 3 else int(texts.integers(1, 12))
        label = int(texts.integers(2))
        attention = generator.dirichlet(np.full(length, 0.5)) if length else []
        rows.append((f"t/{place}", attention, generator.dirichlet([1, 1]), None if place == 5 else label))
    return make(rows, **identity)


@pytest.fixture(scope="module")
def study():
    """What a study of the protocol holds, small."""
    kinds = [{}, {"projection": "uniform"}, *({"objective": objective} for objective in ADVERSARIES)]
    kinds += [{"encoder": "average"}, {"encoder": "average", "projection": "uniform"}]
    kinds += [{"encoder": "average", "objective": "guided(adversarial(kl, 0.002))"}]
    cells = [draw(10 * seed + place, seed=seed, **kind) for seed in (10, 11) for place, kind in enumerate(kinds)]
    return [*cells, draw(98, seed=50), draw(99, seed=257)]


def test_distances_by_hand():
    """Rows in another order: the JSD is ln 2 and 0, the TVD 0 and .4, and the empty text has no JSD."""
    base = [("a", [1.0, 0.0], [0.9, 0.1], 0), ("b", [0.5, 0.5], [0.2, 0.8], 1), ("c", [], [0.4, 0.6], None)]
    base.append(("d", [1.0], [0.4, 0.6], 1))
    other = [("b", [0.5, 0.5], [0.6, 0.4], 1), ("c", [], [0.4, 0.6], None), ("a", [0.0, 1.0], [0.9, 0.1], 0)]
    found = analysis.distances(make(base), make(other, seed=50))
    np.testing.assert_allclose(found["jsd"], [np.log(2), 0, np.nan, np.nan], atol=1e-7)
    np.testing.assert_allclose(found["tvd"], [0, 0.4, 0, np.nan], atol=1e-7)
    np.testing.assert_array_equal(found["same_class"], [1, 0, 1, np.nan])
    with pytest.raises(ValueError, match="no instance in common"):
        match(make(base), make([("z", [1.0], [0.5, 0.5], 0)], seed=1))
    with pytest.raises(ValueError, match="instance 'a' has 2 tokens"):
        match(make(base), make([("a", [1.0], [0.5, 0.5], 0)], seed=1))


def test_roles_come_from_the_identity(study):
    assert [cell.heading["seed"] for cell in analysis.bases(study)] == [10, 11], "the seeds that have adversaries"
    groups = analysis.beside(analysis.bases(study)[0], study)
    expected = {"other seeds": 3, "uniform attention": 1} | dict.fromkeys(sorted(ADVERSARIES), 1)
    assert {name: len(others) for name, others in groups.items()} == expected
    assert list(groups) == ["other seeds", "uniform attention", *ADVERSARIES], "by their settings, as numbers"
    assert all(other.heading["encoder"] == "bilstm" for others in groups.values() for other in others)
    without = [draw(1, seed=1), draw(2, seed=2)]
    assert analysis.bases(without) == without, "without adversaries every learned model is a base"


def test_trade_off_is_the_mean_over_bases(study):
    table = analysis.trade_off(study).set_index("model")
    row = table.loc["adversarial(kl, 0.01)"]
    of = {(analysis.model_of(c), c.heading["seed"]): c for c in study if c.heading["encoder"] == "bilstm"}
    pairs = [[of[kind, seed] for kind in (analysis.LEARNED, "adversarial(kl, 0.01)")] for seed in (10, 11)]
    jsd = [jensenshannon(a.attention[i], b.attention[i]) ** 2 for i in range(COUNT) if i != 3 for a, b in pairs]
    assert row["jsd_mean"] == pytest.approx(np.mean(jsd), abs=1e-6)
    assert (row["n_seeds"], row["n_pairs"], row["n"], row["n_undefined"]) == (2, 2, 39, 1)
    tvd = np.mean([np.abs(base.probs - other.probs).sum(axis=1) / 2 for base, other in pairs])
    assert row["tvd_mean"] == pytest.approx(tvd) and row["tvd_ci_low"] < tvd < row["tvd_ci_high"]
    assert (row["weight"], row["divergence"], row["frozen"]) == (0.01, "kl", "no")
    assert table.loc["other seeds", "n_pairs"] == 6 and np.isnan(table.loc["other seeds", "weight"])
    kinds = analysis.models_by_kind(study).set_index(["encoder", "model", "statistic"]).sort_index()
    near = kinds.loc[("bilstm", "adversarial(kl, 0.01)")]
    assert near.loc["jsd_mean", "mean"] == pytest.approx(row["jsd_mean"]) and near.loc["tvd_mean", "n_seeds"] == 2
    assert near.loc["accuracy", "mean"] == pytest.approx(row["accuracy"])
    assert kinds.loc[("bilstm", "learned attention", "accuracy"), "n_seeds"] == 4
    assert ("average", "learned attention", "tvd_mean") not in kinds.index, "a score that no seed has is no row"


def test_resampled_scores_against_sklearn():
    """Weights are how often a text is drawn: the same as scoring the drawn rows one by one, ties included."""
    generator = np.random.default_rng(3)
    probs = generator.dirichlet([1, 1], size=30).round(1)
    probs[:, 0] = 1 - probs[:, 1]
    labels = generator.integers(0, 2, 30).astype(float)
    (draws,) = analysis.resampled_scores([probs], labels, draws=20)
    for number, counts in enumerate(np.random.default_rng(0).multinomial(30, np.full(30, 1 / 30), size=20)):
        taken = np.repeat(np.arange(30), counts)
        decisions = probs[taken].argmax(axis=1)
        assert draws["accuracy"][number] == pytest.approx((decisions == labels[taken]).mean())
        assert draws["f1_class_1"][number] == pytest.approx(f1_score(labels[taken], decisions))
        assert draws["roc_auc"][number] == pytest.approx(roc_auc_score(labels[taken], probs[taken, 1]))
    (one_class,) = analysis.resampled_scores([np.array([[0.9, 0.1]] * 4)], np.zeros(4), draws=3)
    assert np.isnan(one_class["roc_auc"]).all() and np.isnan(one_class["f1_class_1"]).all()


def test_learned_and_uniform_attention_are_scored_on_the_same_draws(study):
    """They differ in one text of ten, which the learned model alone gets right: by no draw is it the worse one."""
    rows = [("a", [1.0], [0.9, 0.1], 0)] + [(str(i), [1.0], [0.2, 0.8], i % 2) for i in range(9)]
    learned, uniform = make(rows), make([("a", [1.0], [0.4, 0.6], 0), *rows[1:]], projection="uniform")
    row = analysis.attention_needed([learned, uniform]).set_index("statistic").loc["accuracy"]
    assert row["difference"] == pytest.approx(0.1) and row["ci_low"] == 0
    assert row["ci_high"] == pytest.approx(binom.ppf(0.975, 10, 0.1) / 10), "as often as that text is drawn"
    table = analysis.tables(study, Settings()).tables["attention_needed"]
    assert len(table) == 2 * 2 * 3, "two encoders, two seeds, three scores; retrained seeds have no uniform twin"
    assert (table["n"] == COUNT - 1).all() and (table["n_undefined"] == 1).all(), "one text has no label"
