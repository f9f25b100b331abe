"""Published alignment error rates beside measured ones that are scored; readings carried from one seed to another."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections.alignment import BY_LAYER, WHOLE
from recipes.alignment import analysis
from tests.sequence_records import aligned


PUBLISHED = Path(analysis.__file__).with_name("published.csv")


@pytest.fixture(scope="module")
def cells():
    """Three seeds, the third with its links in another head."""
    places = {1: (1, 0, 1), 2: (1, 0, 1), 3: (1, 1, 1)}
    tables = [aligned(12, layers=2, heads=2, where=where, seed=seed, dataset="rwth_de_en") for seed, where in places.items()]
    return [split_cells(table)[0] for table in tables]


@pytest.fixture(scope="module")
def results(cells):
    return analysis.tables(cells, Settings(published=PUBLISHED)).tables


def test_layers_stand_beside_published_ones(cells, results):
    table = results["beside_published"].set_index(["measure", "row", "layer"])
    own = frame(BY_LAYER, cells)
    own = own[(own["measure"] == "attention_mean") & (own["layer"] == "1") & (own["row"] == "input")]["error_rate"]
    row = table.loc[("attention_mean", "input", "1")]
    assert row["measured"] == pytest.approx(own.mean()) and row["n_seeds"] == 3 and row["published"] == 0.282
    assert row["difference"] == pytest.approx(own.mean() - 0.282)
    assert table.loc[[("attention_mean", "input", "5"), ("alti", "input", "1")], "measured"].isna().all()


def test_aligners_stand_beside_chosen_readings(cells, results):
    table = results["aligners"]
    theirs = table[table["kind"] == "aligner"].set_index(["model", "measure"])
    assert theirs.loc[("fast_align", "grow_diagonal"), "error_rate"] == 0.27
    assert np.isnan(theirs.loc[("GIZA++", "forward"), "recall"])
    ours = table[table["kind"] == "model"].set_index("measure")
    expected = frame(WHOLE, cells).groupby("measure")["error_rate"].mean()
    assert ours.loc["attention", "error_rate"] == expected["attention"] == 0 and ours.loc["attention", "n_seeds"] == 3
    assert ours["error_rate"].to_dict() == pytest.approx(expected.to_dict())


def test_translation_stands_beside_alignment(cells):
    table = aligned(12, layers=2, heads=2, where=(1, 0, 1), seed=1, dataset="rwth_de_en")
    (cell,) = split_cells(table)
    scores = {"bleu": 31.5, "chrf": None, "word_accuracy": 0.5, "pairs": 100, "exact": 0.25, "split": "test"}
    (scored,) = split_cells(
        records.with_settings(table, [{"identity": asdict(cell.identity), "run": {"translation": scores}}])
    )
    results = analysis.beside_translation([scored, cells[1]])
    assert results.loc[0, ["bleu", "word_accuracy", "translated"]].tolist() == [31.5, 0.5, 100]
    assert results[["chrf"]].isna().all().all() and np.isnan(results.loc[1, "bleu"]) and results.loc[1, "translated"] == 0
    expected = frame(WHOLE, [scored, cells[1]])
    for column, measure in (("error_rate", "any_measure"), ("attention_error_rate", "attention")):
        assert results[column].tolist() == expected[expected["measure"] == measure]["error_rate"].tolist()


def test_a_head_is_not_carried_over_to_a_seed_that_has_it_elsewhere(cells, results):
    table = results["carried_over"].set_index(["measure", "seed", "from_seed"])["error_rate"]
    assert table[("attention", 1, 2)] == table[("attention", 2, 1)] == 0
    assert table[("attention", 1, 3)] > 0.5 and table[("attention", 3, 1)] > 0.5
    own = results["carried_over"].set_index(["measure", "seed", "from_seed"])
    assert (own["difference"] == own["error_rate"] - own["own_error_rate"]).all()
    assert len(own.loc["attention"]) == 6
    (other,) = split_cells(aligned(6, layers=2, heads=2, where=(1, 0, 1), seed=1, projection="sparsemax"))
    (unknown,) = split_cells(aligned(6, layers=2, heads=2, where=(1, 0, 1), seed=-1))
    assert not len(analysis.carried_over([cells[0], other, unknown])), "another kind of model, and an unknown seed"
