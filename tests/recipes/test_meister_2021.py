"""The analysis of Meister et al. (2021): numbers of a text by hand, and a whole study at tiny size."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings, load_analysis
from attnfaith.reporting.cells import Cell, split_cells
from tests.records import build, draw_sparse


pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "recipes" / "meister_2021"
analysis = load_analysis(FOLDER / "analysis.py")
numbers = import_module(".numbers", analysis.__package__)
SEEDS = (10, 11, 12, 13, 14)


def test_numbers_of_a_text_by_hand():
    text = {"attention": [0.5, 0.3, 0.2, 0, 0], "gradient_norm": [5.0, 4, 3, 2, 1]}
    cell_numbers = numbers.of_cell(split_cells(build([text], measures=["gradient_norm"]))[0])
    assert cell_numbers["support_share"] == pytest.approx(0.6)
    assert cell_numbers["tau_gradient_norm"] == pytest.approx(9 / np.sqrt(9 * 10)), "one pair of ten is tied"
    assert cell_numbers["entropy_gradient_norm"] == pytest.approx(stats.entropy([5, 4, 3, 2, 1]) / np.log(5))
    assert "tau_leave_one_out" not in cell_numbers


def test_ties_alone_cut_the_dense_attention_to_the_support():
    dense, sparse = draw_sparse("softmax"), draw_sparse("sparsegen(-1)", scale=0.5)
    sparse = Cell(sparse.identity, sparse.table.slice(0, 20))
    taus = numbers.cut_tau(sparse, dense, "leave_one_out")
    assert len(taus) == 20 and np.isnan(taus[:2]).all()
    for text in range(2, 20):
        size, weights = np.count_nonzero(sparse.attention[text]), dense.attention[text]
        cut = np.where(weights >= np.sort(weights)[-size], weights, 0)
        assert taus[text] == pytest.approx(stats.kendalltau(cut, dense.scores("leave_one_out")[text]).statistic)


@pytest.mark.parametrize("measure", numbers.MEASURES)
def test_random_places_are_averaged_over_draws(measure):
    cell = draw_sparse("sparsemax")
    averages = numbers.of_cell(cell)[f"random_tau_{measure}"]
    draws = records.rows(cell.table, "random_support_attention")
    importance = records.rows(cell.table, numbers.null_of(measure))
    for text in range(2, len(cell)):
        rows = importance[text] if measure in numbers.STATES else [importance[text]] * 2
        taus = [stats.kendalltau(places, row).statistic for places, row in zip(draws[text], rows, strict=True)]
        assert averages[text] == pytest.approx(np.mean(taus))
    assert np.isnan(averages[:2]).all()


def test_a_study_end_to_end():
    names = ("softmax", "sparsemax", "sparsegen(-3)", "sparsegen(0.5)")
    cells = [draw_sparse(name, seed, texts=22) for name in names for seed in SEEDS]
    cells += [draw_sparse("sparsemax", seed, objective="untrained", relation=0.0, texts=22) for seed in SEEDS]
    analysed = analysis.tables(cells, Settings(published=FOLDER / "published.csv"))
    assert set(analysed.texts) == {"side_by_side.md", "sweep.md", "claims.md", "made.md"}
    sides = analysed.tables["side_by_side"].set_index("projection")
    taus = [np.nanmean(numbers.of_cell(cell)["tau_leave_one_out"]) for cell in cells[5:10]]
    assert sides.loc["sparsemax", "tau_leave_one_out"] == pytest.approx(np.mean(taus))
    assert sides.loc["sparsemax", "tau_leave_one_out_std"] == pytest.approx(np.std(taus, ddof=1))
    assert sides.loc["softmax", "tau_gradient_norm_published"] == 0.25 and sides.loc["softmax", "accuracy_published"] == 0.82
    sweep = analysed.tables["sweep"].set_index("measure")
    row = sweep.loc["gradient norm"]
    assert (row["n_lambdas"], row["n_seeds"], row["published"]) == (3, 5, pytest.approx(-0.87, abs=0.01))
    claims = analysed.tables["claims"].set_index(["claim", "measure"])
    cost = claims.loc[("sparse attention costs less than .02 of accuracy", "")]
    assert (cost["mean"], cost["n_seeds"]) == (pytest.approx(0.02), 5)
    places = claims.loc["and better than the same weights at random places"]
    assert "yes" not in set(places["verdict"]), "importance of a state is its weight times noise, wherever it stands"
    assert claims.loc[("and better than before training", "gradient norm hidden"), "n_seeds"] == 5
