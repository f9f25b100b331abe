"""Seeds, adversaries, uniform and guided models beside a base: by hand, by brute force, matched by text."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from recipes.wiegreffe_pinter_2019 import analysis
from tests.identities import typed
from tests.recipes.cells import cell_of


COUNT, SEEDS = 40, (10, 11)
NEAR, FROZEN = "adversarial(kl, 0.002)", "adversarial(jsd, 0.1, frozen)"


def make(rows, **labels):
    """A cell of rows (id, attention, probs, label)."""
    rows = [dict(zip(("instance_id", "attention", "probs", "label"), row, strict=True)) for row in rows]
    return cell_of(typed(**{"vectors": "random(1)", "seed": 10} | labels), rows)


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
    kinds = [{}, {"projection": "uniform"}, {"objective": NEAR}, {"objective": FROZEN}]
    kinds += [{"encoder": "average"}, {"encoder": "average", "projection": "uniform"}]
    kinds += [{"encoder": "average", "objective": f"guided({base})"} for base in ("bilstm+additive+softmax", NEAR)]
    return [draw(10 * seed + place, seed=seed, **kind) for seed in SEEDS for place, kind in enumerate(kinds)]


def test_distances_by_hand():
    """Rows in another order: the JSD is ln 2 and 0, the TVD 0 and .4, and the empty text has no JSD."""
    base = [("a", [1.0, 0.0], [0.9, 0.1], 0), ("b", [0.5, 0.5], [0.2, 0.8], 1), ("c", [], [0.4, 0.6], None)]
    other = [("b", [0.5, 0.5], [0.6, 0.4], 1), ("c", [], [0.4, 0.6], None), ("a", [0.0, 1.0], [0.9, 0.1], 0)]
    other.append(("d", [1.0], [0.4, 0.6], 1))
    first, second = make(base), make(other, seed=50)
    np.testing.assert_allclose(analysis.distance(first, second, "jsd"), [0, np.nan, np.log(2), np.nan], atol=1e-7)
    np.testing.assert_allclose(analysis.distance(first, second, "tvd"), [0.4, 0, 0, np.nan], atol=1e-7)


def test_every_kind_of_model_beside_its_base(study):
    (family,) = analysis.families(study)
    guided = [f"MLP guided by {name}" for name in ("base", NEAR)]
    assert list(family) == ["base", "uniform attention", NEAR, FROZEN, "MLP", "MLP, uniform attention", *guided]
    table = analysis.models_table(study).set_index("model")
    pairs = [(family["base"][seed], family[NEAR][seed]) for seed in SEEDS]
    jsd = [[jensenshannon(a.attention[i], b.attention[i]) ** 2 for i in range(COUNT) if i != 3] for a, b in pairs]
    tvd = [np.abs(base.probs - other.probs).sum(axis=1).mean() / 2 for base, other in pairs]
    row = table.loc[NEAR]
    assert row["jsd"] == pytest.approx(np.mean(jsd), abs=1e-6) and row["tvd"] == pytest.approx(np.mean(tvd))
    assert row["tvd_std"] == pytest.approx(np.std(tvd, ddof=1)) and row["n_seeds"] == 2
    first, second = family["base"].values()
    between = np.abs(first.probs - second.probs).sum(axis=1).mean() / 2
    assert table.loc["other seeds", "tvd"] == pytest.approx(between) and np.isnan(table.loc["MLP", "jsd"])
    claims = analysis.claims(study).set_index(["model", "claim"])
    gap = claims.loc[(NEAR, "its predictions are nearer to the base's than another seed's"), "mean"]
    assert gap == pytest.approx(between - np.mean(tvd))
    right = {name: np.nanmean([analysis.correct(cell) for cell in models.values()]) for name, models in family.items()}
    worse = claims.loc[(NEAR, "its attention guides an MLP worse than the base's own"), "mean"]
    assert worse == pytest.approx(right[guided[0]] - right[guided[1]])
    assert set(claims["verdict"]) == {"cannot be told"}, "two seeds"
    assert (FROZEN, "its attention guides an MLP worse than the base's own") not in claims.index
