"""The page over models and data sets, on records whose truth is known."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings, load_analysis
from attnfaith.reporting.cells import split_cells
from tests.identities import typed


saliency_page = load_analysis(Path(__file__).parents[3] / "recipes" / "bastings_filippova_2020" / "analysis.py")


SHARES = (0.1, 0.5)
NAMES = ("attention", "good", "random")


def analyse(cells):
    return saliency_page.tables(cells, Settings())


def one(dataset="sst", projection="softmax", seed=0, objective="classification", falls=(0.3, 0.6, 0.1), texts=30):
    """A cell in which removing what a measure ranks first costs what `falls` says, in the order of NAMES."""
    columns: dict[str, list] = {}
    identity = asdict(typed(projection, objective=objective, dataset=dataset, seed=seed))
    for number in range(texts):
        rng = np.random.default_rng([number, seed, *dataset.encode(), *projection.encode()])
        noise = 0.03 * rng.normal(size=(2, 3, 2))
        weights = rng.dirichlet(np.ones(6))
        values = {
            "instance_id": f"{dataset}/{number}", **identity, "tokens": ["w"] * 6, "label": 1, "truncated": False,
            "probs": [0.05, 0.95], "attention": weights, "importance_good": rng.normal(size=6),
            "importance_random": rng.random(6),
            "rationale_erasure_measures": list(NAMES), "rationale_erasure_shares": list(SHARES),
            "rationale_erasure_kept_probs": np.clip(0.25 + np.array(falls)[:, None] + noise[0], 0, 1),
            "rationale_erasure_removed_probs": np.clip(0.95 - np.array(falls)[:, None] + noise[1], 0, 1),
            "rationale_erasure_whole_prob": 0.95, "rationale_erasure_empty_prob": 0.2,
        }  # fmt: skip
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    extra = {f"importance_{name}": records.Column(("T",)) for name in ("good", "random")}
    for name in (name for name in columns if name.startswith("rationale_erasure")):
        kind = "string" if name.endswith("measures") else "float64"
        extra[name] = records.Column(axes.get(name.removeprefix("rationale_erasure_"), ()), kind)
    return split_cells(records.build(columns, extra))[0]


def test_ranking_over_seeds():
    cells = [one(seed=0), one(seed=1, falls=(0.6, 0.3, 0.1)), one(projection="sparsemax")]
    table = analyse(cells).tables["saliency_ranking"].set_index(["projection", "measure"])
    assert len(table) == 6
    softmax = table.loc["softmax"]
    assert softmax["n_seeds"].tolist() == [2, 2, 2] and softmax["n_tests"].tolist() == [4, 4, 4]
    assert softmax["rank_mean"].tolist() == [1.5, 1.5, 3] and softmax["share_among_best"].tolist() == [0.5, 0.5, 0]
    assert table.loc[("sparsemax", "good"), ["rank_comprehensiveness", "rank_sufficiency"]].tolist() == [1, 1]


def test_twins_trained_with_tokens_erased():
    erased = "classification(tokens erased 0.5)"
    cells = [one(), one(objective=erased, falls=(0.6, 0.3, 0.1)), one(seed=1)]
    table = analyse(cells).tables["saliency_training"]
    assert len(table) == 4 and set(table["objective"]) == {erased} and set(table["seed"]) == {0}
    row = table.set_index("test").loc["comprehensiveness"]
    assert (row["first_plain"], row["first_erased"], row["n_measures"]) == ("good", "attention", 3)
    assert row["tau"] == pytest.approx(kendalltau([0.3, 0.6, 0.1], [0.6, 0.3, 0.1]).statistic)
    assert (row["attention_rank_plain"], row["attention_rank_erased"]) == (2, 1)
    assert row["attention_mean_erased"] == pytest.approx(0.6, abs=0.02)
    page = analyse(cells).texts[saliency_page.PAGE]
    assert "Erasure in a model that is used to it" in page and "No model here has a twin" not in page


def test_the_answer_in_one_sentence():
    good, own, none = {"falls": (0.3, 0.6, 0.1)}, {"falls": (0.6, 0.3, 0.1)}, {"falls": (0.1, 0.1, 0.3)}
    assert saliency_page.lead([one(**good)]) == (
        "To see which inputs mattered, use good: recommended for 1 of 1 model; attention is recommended for 0, and is among "
        "the best measures in 0 of 4 tests."
    )
    both = [one(**good), one(seed=1, **own)]
    assert saliency_page.lead(both).startswith("To see which inputs mattered, use good or attention: recommended for 1 of 2")
    assert "use attention: recommended for 2 of 3 models." in saliency_page.lead([*both, one(seed=2, **own)])
    assert "; for 1 no measure is better than chance" in saliency_page.lead([one(**good), one(seed=1, **none)])
    assert saliency_page.lead([one(**none)]).startswith("Of 1 model, none has a measure that orders its tokens better")


def test_the_page():
    cells = [one(), one(seed=1), one(projection="sparsemax"), one(dataset="a <b>")]
    texts = analyse(cells).texts
    assert list(texts) == ["attention_or_saliency.html"]
    page = texts["attention_or_saliency.html"]
    assert "use good: recommended for 4 of 4 models" in page
    assert "Of 2 training seeds the tests recommend good in 2." in page
    assert "a &lt;b&gt;" in page and "a <b>" not in page
    assert page.count("Ranking of measures by each test</caption>") == 2
    assert "No model here has a twin" in page
    assert "0.600" in page or "(1)*" in page
    assert page == analyse(cells).texts[saliency_page.PAGE]  # the same bytes


def test_records_without_tests():
    cell = one()
    bare = split_cells(cell.table.drop_columns(["rationale_erasure_kept_probs"]))
    assert analyse(bare) == Analysis()
