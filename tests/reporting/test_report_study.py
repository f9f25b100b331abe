"""Tables of many cells that hold different columns."""

from types import SimpleNamespace

import pandas as pd
import pytest

from attnfaith.reporting import study
from attnfaith.reporting.cells import CELL, split_cells


@pytest.fixture
def cells(draw_record):
    """Two seeds that were measured, and a third of which only attention and predictions are known."""
    measured = [draw_record(20, seed=seed) for seed in (1, 2)]
    return [split_cells(record)[0] for record in (*measured, draw_record(20, seed=3, measures=()))]


def of_epsilons(cells):
    """A table with a number among what names its rows."""
    rows = [{**cell.heading, "epsilon": e, "n": 20, "jsd": e * cell.heading["seed"]} for cell in cells for e in (0.5, 1.0)]
    return {"attack": pd.DataFrame(rows)}


def test_cells_without_importance_are_in_the_tables_they_allow(cells):
    tables = study.study_tables(cells)
    names = {"performance", "agreement", "dispersion"}
    assert set(tables) == names | {f"{name}_over_seeds" for name in names}
    assert len(tables["performance"]) == 3 and set(tables["agreement"]["seed"]) == {1, 2}
    assert set(tables["performance"].columns[: len(CELL)]) == set(CELL)


def test_one_seed_has_no_mean_over_seeds(cells):
    assert set(study.study_tables(cells[:1])) == {"performance", "agreement", "dispersion"}


def test_numbers_that_name_a_row_are_no_statistics(cells, monkeypatch):
    monkeypatch.setitem(study.INTERVENTIONS, "attack", SimpleNamespace(tables=of_epsilons))
    monkeypatch.setattr(study, "KNOWN", (*study.KNOWN, "attack"))
    table = study.study_tables(cells, ["attack"])["attack_over_seeds"]
    found = table[table["statistic"] == "jsd"].set_index("epsilon")
    assert found.loc["0.5", "mean"] == pytest.approx(1.0) and found.loc["1.0", "mean"] == pytest.approx(2.0)
    assert set(table["statistic"]) == {"n", "jsd"}


def test_comparisons_are_made_where_they_are_asked_for(draw_record):
    pair = [split_cells(draw_record(20, seed=1, projection=name))[0] for name in ("softmax", "sparsemax")]
    assert "comparisons" not in study.study_tables(pair)
    found = study.study_tables(pair, ["performance"], ["projection"])["comparisons"]
    assert set(found["first"]) == {"softmax"} and set(found["second"]) == {"sparsemax"}


def test_protocols_get_the_published_numbers_that_they_ask_for(cells, monkeypatch):
    published = pd.DataFrame({"mean": [0.5]})

    def beside(cells, published=None):
        value = None if published is None else published["mean"].item()
        return {"beside": pd.DataFrame({"n": [len(cells)], "published": [value]})}

    def said(cells, published=None):
        return {"summary.md": f"{len(cells)} cells, {'nothing' if published is None else len(published)} published"}

    asks = SimpleNamespace(tables=beside, texts=said, figures=lambda cells, published=None: {"drawn": published})
    plain = SimpleNamespace(
        tables=lambda cells: {"plain": pd.DataFrame({"n": [len(cells)]})}, figures=lambda cells: {"plain": len(cells)}
    )
    for name, protocol in (("asks", asks), ("plain", plain)):
        monkeypatch.setitem(study.PROTOCOLS, name, protocol)
    monkeypatch.setattr(study, "KNOWN", (*study.KNOWN, "asks", "plain"))
    names = ["asks", "plain"]
    found = study.study_tables(cells, names, published=published)
    assert found["beside"].to_dict("list") == {"n": [3], "published": [0.5]} and found["plain"]["n"].item() == 3
    assert study.study_tables(cells, names)["beside"]["published"].isna().all()
    assert study.study_texts(cells, [*names, "performance"], published) == {"summary.md": "3 cells, 1 published"}
    assert study.study_texts(cells, names) == {"summary.md": "3 cells, nothing published"}
    assert study.study_texts(cells, ["plain", "agreement"], published) == {}
    figures = study.study_figures(cells, names, published)
    assert figures["drawn"] is published and figures["plain"] == 3


def test_names_that_do_not_exist(cells):
    with pytest.raises(ValueError, match=r"tables \['x'\] are not known; choose from performance, "):
        study.study_tables(cells, ["x"])
    with pytest.raises(ValueError, match=r"compare \['seed'\]: cells can be compared by encoder"):
        study.study_tables(cells, compare=["seed"])


def test_figures_are_of_the_first_cell_of_a_data_set(cells, draw_record, tmp_path):
    other = split_cells(draw_record(10, seed=4, dataset="imdb", measures=("gradient",)))[0]
    figures = study.study_figures([*cells, other], ["agreement"])
    assert {name.partition("-")[0] for name in figures} == {"sst", "imdb"}
    assert "sst-gradient_vs_leave_one_out" in figures and "imdb-gradient_vs_leave_one_out" not in figures
    assert study.study_figures(cells, ["performance"]) == {}
    again = study.study_figures([*cells, other], ["agreement"])
    paths = [
        study.save_png(found["imdb-attention_overview"], tmp_path / f"{place}.png")
        for place, found in enumerate((figures, again))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
