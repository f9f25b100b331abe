"""Tables of many cells that hold different columns."""

import pytest

from attnfaith.reporting import sections, study
from attnfaith.reporting.cells import CELL, split_cells
from attnfaith.reporting.spec import Section, Table


@pytest.fixture
def cells(draw_record):
    """Two seeds that were measured, and a third of which only attention and predictions are known."""
    measured = [draw_record(20, seed=seed) for seed in (1, 2)]
    return [split_cells(record)[0] for record in (*measured, draw_record(20, seed=3, measures=()))]


def of_epsilons(cell):
    """Rows with a number among what names them."""
    for epsilon in (0.5, 1.0):
        yield {"epsilon": epsilon, "n": 20, "jsd": epsilon * cell.heading["seed"]}


def test_cells_without_importance_are_in_the_tables_they_allow(cells):
    tables = study.study_tables(cells)
    names = {"performance", "agreement", "summary"}
    assert set(tables) == names | {f"{name}_over_seeds" for name in names}
    assert len(tables["performance"]) == 3 and set(tables["agreement"]["seed"]) == {1, 2}
    assert set(tables["performance"].columns[: len(CELL)]) == set(CELL)


def test_one_seed_has_no_mean_over_seeds(cells):
    assert set(study.study_tables(cells[:1])) == {"performance", "agreement", "summary"}


def test_numbers_that_name_a_row_are_no_statistics(cells, monkeypatch):
    attack = Section(name="attack", tables=(Table(name="attack", rows=of_epsilons),))
    monkeypatch.setitem(sections.registry(), "attack", attack)
    table = study.study_tables(cells, ["attack"])["attack_over_seeds"]
    results = table[table["statistic"] == "jsd"].set_index("epsilon")
    assert results.loc["0.5", "mean"] == pytest.approx(1.0) and results.loc["1.0", "mean"] == pytest.approx(2.0)
    assert set(table["statistic"]) == {"n", "jsd"}


def test_names_that_do_not_exist(cells):
    with pytest.raises(ValueError, match=r"tables \['x'\] are not known; choose from sentence_pairs, .*, agreement, "):
        study.study_tables(cells, ["x"])


def test_figures_are_of_the_first_cell_of_a_data_set(cells, draw_record):
    other = split_cells(draw_record(10, seed=4, dataset="imdb", measures=("gradient",)))[0]
    figures = study.study_figures([*cells, other], ["agreement"])
    assert {name.partition("-")[0] for name in figures} == {"sst", "imdb"}
    assert set(figures) == {
        f"{data}-{name}" for data in ("sst", "imdb") for name in ("tau_by_measure", "dispersion_by_scores")
    }
    assert study.study_figures(cells, ["performance"]) == {}
