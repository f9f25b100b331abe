"""Seeds, adversaries, uniform and guided models beside a base: by hand, by brute force, matched by instance."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.spatial.distance import jensenshannon
from scipy.stats import binom
from sklearn.metrics import f1_score, roc_auc_score

from attnfaith import record as records
from attnfaith.reporting.analysis import load_analysis
from attnfaith.reporting.cells import match, split_cells
from attnfaith.reporting.style import save_figure
from tests.identities import typed


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "wiegreffe_pinter_2019" / "analysis.py")
figures = import_module(".figures", analysis.__package__)
stability = import_module(".stability", analysis.__package__)


COUNT = 40


def make(rows, **labels):
    """One cell of rows (id, attention, probs, label)."""
    identity = typed(**{"vectors": "random(1)", "seed": 10} | labels)
    columns = {
        "instance_id": [row[0] for row in rows],
        **records.as_columns(identity, len(rows)),
        "tokens": [[f"w{place}" for place in range(len(row[1]))] for row in rows],
        "attention": [row[1] for row in rows],
        "probs": [row[2] for row in rows],
        "label": [row[3] for row in rows],
        "truncated": [False] * len(rows),
    }
    return split_cells(records.build(columns))[0]


def draw(number, count=COUNT, **identity):
    """A cell of random attention and predictions on texts whose lengths and labels depend on the text alone."""
    generator = np.random.default_rng(number)
    texts = np.random.default_rng(0)
    rows = []
    for place in range(count):
        length = 0 if place == 3 else int(texts.integers(1, 12))
        label = int(texts.integers(2))
        attention = generator.dirichlet(np.full(length, 0.5)) if length else []
        rows.append((f"t/{place}", attention, generator.dirichlet([1, 1]), None if place == 5 else label))
    return make(rows, **identity)


def study(seeds=(10, 11)):
    """What a study of the protocol holds, small."""
    cells, number = [], 0
    kinds = [
        {},
        {"projection": "uniform"},
        {"objective": "adversarial(kl, 0.002)"},
        {"objective": "adversarial(kl, 0.01)"},
        {"objective": "adversarial(jsd, 0.1, frozen)"},
        {"encoder": "average"},
        {"encoder": "average", "projection": "uniform"},
        {"encoder": "average", "objective": "guided(bilstm+additive+softmax)"},
        {"encoder": "average", "objective": "guided(adversarial(kl, 0.002))"},
    ]
    for seed in seeds:
        for kind in kinds:
            number += 1
            cells.append(draw(number, seed=seed, **kind))
    return [*cells, draw(98, seed=50), draw(99, seed=257)]


BASE = [
    ("a", [1.0, 0.0], [0.9, 0.1], 0),  # bin [.75, 1], predicted 0
    ("b", [0.5, 0.5], [0.2, 0.8], 1),  # bin [.5, .75), predicted 1
    ("c", [], [0.4, 0.6], None),  # no text, no attention
]
OTHER = [
    ("b", [0.5, 0.5], [0.6, 0.4], 1),
    ("c", [], [0.4, 0.6], None),
    ("a", [0.0, 1.0], [0.9, 0.1], 0),
]


def test_seed_variance_by_hand():
    """Rows in another order: the JSD is ln 2 and 0, the TVD 0 and .4, and the empty text has no JSD."""
    table = stability.seed_variance(make(BASE), [make(OTHER, seed=50)]).set_index(["class", "bin"])
    row = table.loc[("overall", "all")]
    assert (row["n"], row["n_undefined"], row["n_unmatched"], row["n_models"]) == (2, 1, 0, 1)
    assert row["jsd_mean"] == pytest.approx(np.log(2) / 2) and row["jsd_median"] == pytest.approx(np.log(2) / 2)
    assert row["tvd_mean"] == pytest.approx(0.4 / 3) and row["same_class"] == pytest.approx(2 / 3)
    assert table.loc[("0", "[.75, 1]"), "jsd_mean"] == pytest.approx(np.log(2))
    assert table.loc[("1", "[.5, .75)"), "jsd_mean"] == 0
    assert np.isnan(table.loc[("0", "[0, .25)"), "jsd_mean"]) and table.loc[("0", "[0, .25)"), "n"] == 0
    assert set(table["against"]) == {"other seeds"}


def test_median_over_seeds_and_mean_change():
    far, near = [0.0, 1.0], [1.0, 0.0]
    others = [
        make([("a", attention, [p, 1 - p], 0)], seed=seed)
        for seed, attention, p in ((1, far, 0.9), (2, near, 0.8), (3, near, 0.6))
    ]
    row = stability.seed_variance(make([("a", near, [0.9, 0.1], 0)]), others).iloc[0]
    assert row["jsd_mean"] == 0, "the median of ln 2, 0, 0"
    assert row["tvd_mean"] == pytest.approx((0 + 0.1 + 0.3) / 3)


def test_seed_variance_against_scipy():
    base, others = draw(1), [draw(2, seed=2), draw(3, seed=3)]
    table = stability.seed_variance(base, others).set_index(["class", "bin"])
    kept = [row for row in range(COUNT) if len(base.attention[row])]
    jsd = np.array(
        [np.median([jensenshannon(base.attention[row], other.attention[row]) ** 2 for other in others]) for row in kept]
    )
    largest = np.array([base.attention[row].max() for row in kept])
    assert table.loc[("overall", "all"), "jsd_mean"] == pytest.approx(jsd.mean(), abs=1e-6)
    assert table.loc[("overall", "all"), "n"] == COUNT - 1
    inside = (largest >= 0.25) & (largest < 0.5)
    assert table.loc[("overall", "[.25, .5)"), "jsd_mean"] == pytest.approx(jsd[inside].mean(), abs=1e-6)
    bins = table.loc["overall"].drop("all")
    assert bins["n"].sum() == COUNT - 1 and bins["n_undefined"].sum() == 0
    by_class = table.xs("all", level="bin").drop("overall")
    assert by_class["n"].sum() + by_class["n_undefined"].sum() == COUNT
    row = table.loc[("overall", "all")]
    assert row["jsd_ci_low"] < row["jsd_mean"] < row["jsd_ci_high"]


def test_the_order_of_rows_does_not_matter():
    base, other = draw(1), draw(2, seed=50)
    turned = split_cells(other.table.take(np.arange(COUNT)[::-1]))[0]
    one, two = (stability.seed_variance(base, [cell]) for cell in (other, turned))
    pd.testing.assert_frame_equal(one, two)


def test_unmatched_instances_are_counted():
    base, other = draw(1), split_cells(draw(2, seed=50).table.slice(0, 30))[0]
    row = stability.seed_variance(base, [other]).iloc[0]
    assert (row["n_unmatched"], row["n"], row["n_undefined"]) == (10, 29, 11)


def test_cells_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="no instance in common"):
        match(make(BASE), make([("z", [1.0], [0.5, 0.5], 0)], seed=1))
    with pytest.raises(ValueError, match="instance 'a' has 2 tokens in .* and 1 in .* seed 1: they did not read"):
        match(make(BASE), make([("a", [1.0], [0.5, 0.5], 0)], seed=1))


def test_roles_come_from_the_identity():
    cells = study()
    assert [cell.heading["seed"] for cell in stability.bases(cells)] == [10, 11], "the seeds that have adversaries"
    comparisons = stability.comparisons_of(stability.bases(cells)[0], cells)
    assert [(pair.name, len(pair.others)) for pair in comparisons] == [
        ("other seeds", 3),
        ("uniform attention", 1),
        ("adversarial(kl, 0.002)", 1),
        ("adversarial(kl, 0.01)", 1),
        ("adversarial(jsd, 0.1, frozen)", 1),
    ]
    assert all(other.heading["encoder"] == "bilstm" for pair in comparisons for other in pair.others)
    without = [draw(1, seed=1), draw(2, seed=2)]
    assert stability.bases(without) == without, "without adversaries every learned model is a base"


def test_settings_of_an_adversary():
    def settings(objective):
        return stability.adversary_settings(draw(0, count=4, objective=objective))

    assert settings("adversarial(kl, 0.002)") == {"weight": 0.002, "divergence": "kl", "frozen": "no"}
    assert settings("adversarial(jsd, 1e-05, frozen)") == {"weight": 1e-5, "divergence": "jsd", "frozen": "yes"}
    assert np.isnan(settings("classification")["weight"])


def test_trade_off_is_the_mean_over_bases():
    cells = study()
    table = stability.trade_off(stability.bases(cells), cells).set_index("model")
    adversaries = ["adversarial(kl, 0.002)", "adversarial(kl, 0.01)", "adversarial(jsd, 0.1, frozen)"]
    assert list(table.index) == ["other seeds", "uniform attention", *adversaries]
    row = table.loc["adversarial(kl, 0.01)"]
    kinds = (stability.LEARNED, "adversarial(kl, 0.01)")
    of = {(stability.model_of(c), c.heading["seed"]): c for c in cells if c.heading["encoder"] == "bilstm"}
    pairs = [[of[kind, seed] for kind in kinds] for seed in (10, 11)]
    jsd = np.mean(
        [
            np.mean([jensenshannon(base.attention[i], other.attention[i]) ** 2 for base, other in pairs])
            for i in range(COUNT)
            if i != 3
        ]
    )
    assert row["jsd_mean"] == pytest.approx(jsd, abs=1e-6) and (row["n_seeds"], row["n_pairs"], row["n"]) == (2, 2, 39)
    tvd = np.mean([np.abs(base.probs - other.probs).sum(axis=1) / 2 for base, other in pairs])
    assert row["tvd_mean"] == pytest.approx(tvd) and row["tvd_ci_low"] < tvd < row["tvd_ci_high"]
    assert table.loc["other seeds", "n_pairs"] == 6 and np.isnan(table.loc["other seeds", "weight"])


def test_resampled_scores_against_sklearn():
    """Weights are how often an instance is drawn: the same as scoring the drawn rows one by one, ties included."""
    generator = np.random.default_rng(3)
    probs = generator.dirichlet([1, 1], size=30).round(1)
    probs[:, 0] = 1 - probs[:, 1]
    labels = generator.integers(0, 2, 30).astype(float)
    draws = stability.resampled_scores([probs], labels, draws=20, seed=4)[0]
    weights = np.random.default_rng(4).multinomial(30, np.full(30, 1 / 30), size=20)
    for number, counts in enumerate(weights):
        taken = np.repeat(np.arange(30), counts)
        decisions = probs[taken].argmax(axis=1)
        assert draws["accuracy"][number] == pytest.approx((decisions == labels[taken]).mean())
        assert draws["f1_class_1"][number] == pytest.approx(f1_score(labels[taken], decisions))
        assert draws["roc_auc"][number] == pytest.approx(roc_auc_score(labels[taken], probs[taken, 1]))


def test_scores_that_are_undefined():
    one_class = stability.resampled_scores([np.array([[0.9, 0.1]] * 4)], np.zeros(4), draws=3)[0]
    assert np.isnan(one_class["roc_auc"]).all() and np.isnan(one_class["f1_class_1"]).all()
    assert (one_class["accuracy"] == 1).all()
    three = stability.resampled_scores([np.full((4, 3), 1 / 3)], np.zeros(4), draws=3)[0]
    assert np.isnan(three["roc_auc"]).all()
    nothing = stability.resampled_scores([np.empty((0, 2))], np.empty(0), draws=3)[0]
    assert all(np.isnan(values).all() for values in nothing.values())


def test_is_attention_needed():
    cells = study()
    table = stability.is_attention_needed(cells)
    assert len(table) == 2 * 2 * 3, "two encoders, two seeds, three scores; retrained seeds have no uniform twin"
    assert (table["difference"] == table["learned"] - table["uniform"]).all()
    assert (table["n"] == COUNT - 1).all() and (table["n_undefined"] == 1).all(), "one text has no label"
    assert (table["ci_low"] < table["difference"]).all() and (table["difference"] < table["ci_high"]).all()


def test_learned_and_uniform_attention_are_scored_on_the_same_draws():
    """They differ in one text of ten, which the learned model alone gets right: by no draw is it the worse one."""
    rows = [("a", [1.0], [0.9, 0.1], 0)] + [(str(i), [1.0], [0.2, 0.8], i % 2) for i in range(9)]
    learned, uniform = make(rows), make([("a", [1.0], [0.4, 0.6], 0), *rows[1:]], projection="uniform")
    row = stability.is_attention_needed([learned, uniform]).set_index("statistic").loc["accuracy"]
    assert row["difference"] == pytest.approx(0.1) and row["ci_low"] == 0
    assert row["ci_high"] == pytest.approx(binom.ppf(0.975, 10, 0.1) / 10), "as often as that text is drawn"
    labels = np.array([label for *_, label in rows], np.float64)
    first, second = stability.resampled_scores([learned.probs, uniform.probs], labels, draws=50)
    counts = np.random.default_rng(0).multinomial(10, np.full(10, 0.1), size=50)[:, 0]
    assert first["accuracy"] - second["accuracy"] == pytest.approx(counts / 10)


def test_a_model_against_itself_differs_by_nothing():
    twins = [draw(1), draw(1, projection="uniform")]
    table = stability.is_attention_needed(twins)
    assert (table[["difference", "ci_low", "ci_high"]] == 0).all(axis=None), "paired: the same texts in each sample"


def test_models_and_their_seeds():
    tables = stability.tables(study())
    assert set(tables) == {"models", "models_by_kind", "attention_needed", "seed_variance", "trade_off"}
    models = tables["models"]
    assert len(models) == 20 and models["model"].nunique() == 7
    assert models["tvd_mean"].notna().sum() == 8, "adversaries and uniform attention of the base's encoder and seed"
    assert (models["f1_class_1_ci_low"] < models["f1_class_1"]).all()
    kinds = tables["models_by_kind"].set_index(["encoder", "model", "statistic"])
    guided = models[models["model"] == "guided(adversarial(kl, 0.002))"]["accuracy"]
    row = kinds.loc[("average", "guided(adversarial(kl, 0.002))", "accuracy")]
    assert row["n_seeds"] == 2 and row["mean"] == pytest.approx(guided.mean()) and row["std"] == pytest.approx(guided.std())
    assert kinds.loc[("bilstm", "learned attention", "accuracy"), "n_seeds"] == 4
    assert ("average", "learned attention", "tvd_mean") not in kinds.index, "a score that no seed has is no row"


def test_beside_published():
    made = stability.tables(study())
    models = made["models"]
    published = pd.DataFrame(
        {
            "dataset": ["sst", "sst", "imdb", "sst"],
            "encoder": ["bilstm"] * 4,
            "model": ["uniform attention", "adversarial(kl, 0.3)", "uniform attention", "other seeds"],
            "statistic": ["f1_class_1"] * 3 + ["jsd_mean"],
            "value": [0.8, 0.5, 0.9, 0.1],
            "source": ["somewhere"] * 4,
        }
    )
    table = analysis.beside_published(made, published)
    assert len(table) == 3, "a data set that was not measured has no row"
    mean = models[(models["model"] == "uniform attention") & (models["encoder"] == "bilstm")]["f1_class_1"].mean()
    assert table.loc[0, "measured"] == pytest.approx(mean) and table.loc[0, "difference"] == pytest.approx(mean - 0.8)
    assert np.isnan(table.loc[1, "measured"]) and table.loc[1, "source"] == "somewhere"
    retrained = made["trade_off"].set_index("model").loc["other seeds"]
    assert (table.loc[2, "measured"], table.loc[2, "n_seeds"]) == (retrained["jsd_mean"], 2)
    with pytest.raises(ValueError, match=r"columns \['source'\] are missing"):
        analysis.beside_published(made, published.drop(columns="source"))


def test_figures_are_drawn_from_the_numbers(tmp_path):
    drawn = figures.figures(study())
    names = ("attention_of_other_models", "attention_and_prediction", "trade_off")
    assert set(drawn) == {f"sst-bilstm-{name}" for name in names}
    for name, figure in drawn.items():
        assert isinstance(figure, Figure)
        save_figure(figure, tmp_path / name)
    panels = [axes for axes in drawn["sst-bilstm-attention_of_other_models"].axes if axes.get_visible()]
    assert len(panels) == 4 and {axes.get_ylim() for axes in panels} == {(0, 0.76)}, "same axes"
    title = panels[0].get_title(loc="left")
    assert "other seeds\n3 models" in title and "n = 39 (1 undefined)" in title


def test_no_class_is_left_out_of_figure_and_table():
    """Nine classes: the two rarest share the last colour; the table has those that are predicted."""
    count, order = 45, np.repeat(np.arange(9), [2, 3, 4, 5, 5, 6, 6, 7, 7])
    rows = [(f"t/{place}", [1.0], np.eye(9)[number], 0) for place, number in enumerate(order)]
    pair = stability.Comparison(make(rows), "other seeds", (make(rows, seed=11),))
    figure = figures.attention_of_other_models([pair])
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == [*(f"class {number}" for number in range(3, 9)), "3 others"]
    assert sum(int(text.get_text()) for text in figure.axes[0].texts) == count
    table = stability.seed_variance(pair.base, pair.others)
    assert table["class"].unique().tolist() == ["overall", *map(str, range(9))]


def test_one_model_alone_has_little_to_tell():
    tables = stability.tables([draw(1)])
    assert set(tables) == {"models", "models_by_kind"} and figures.figures([draw(1)]) == {}
