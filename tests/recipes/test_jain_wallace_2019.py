"""Published numbers beside measured ones: each kind of model once, with what is published for it."""

from pathlib import Path

import numpy as np
import pytest

from attnfaith.reporting.analysis import Settings, StudyError
from attnfaith.reporting.cells import split_cells
from recipes.jain_wallace_2019 import analysis
from tests.records import draw


PUBLISHED = Path(analysis.__file__).with_name("published.csv")


def test_every_kind_of_model_stands_beside_its_published_numbers():
    kinds = [{"seed": 1}, {"seed": 2}, {"dataset": "ade", "seed": 1}, {"encoder": "average", "seed": 1}]
    cells = [split_cells(draw(12, **kind))[0] for kind in kinds]
    analysed = analysis.tables(cells, Settings(published=PUBLISHED, stand_ins={"ade": "adr"}))
    rows = analysed.tables["side_by_side"].set_index(["dataset", "encoder"])
    assert len(rows) == 3 and rows.loc[("ade", "bilstm"), "published_for"] == "adr"
    sst = rows.loc[("sst", "bilstm")]
    assert (sst["n_seeds"], sst["published_accuracy"], sst["published tau attention–gradient"]) == (2, 0.8081, 0.3512)
    taus = [np.nanmean(cell.tau("attention", "gradient")) for cell in cells[:2]]
    assert sst["tau attention–gradient"] == pytest.approx(np.mean(taus))
    row = analysed.tables["differences"].set_index("pair").loc["attention–gradient"]
    gaps = rows["tau attention–gradient"] - rows["published tau attention–gradient"]
    assert (row["n_models"], row["mean"], row["mean_size"]) == (
        3,
        pytest.approx(gaps.mean()),
        pytest.approx(gaps.abs().mean()),
    )
    assert set(analysed.tables["questions"]["verdict"]) == {"cannot be told"}, "fewer than five seeds"
    assert " / .35 |" in analysed.texts["side_by_side.md"] and analysed.texts["made.md"].startswith("Numbers of 4 models")


def test_without_published_numbers_nothing_is_made():
    assert analysis.tables([], Settings(published=PUBLISHED)).tables == {}
    with pytest.raises(StudyError, match="published"):
        analysis.tables([], Settings())
