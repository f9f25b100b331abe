"""Published numbers beside measured ones: each cell once, with what is published for its data set, encoder and alignment."""

from pathlib import Path

import numpy as np
import pytest

from attnfaith.reporting.analysis import Settings, StudyError
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import study_tables
from recipes.jain_wallace_2019 import analysis


PUBLISHED = Path(analysis.__file__).with_name("published.csv")


def test_every_cell_stands_beside_the_numbers_of_its_kind(draw_record):
    kinds = [{"seed": 1}, {"seed": 2}, {"dataset": "ade", "seed": 1}, {"encoder": "mlp", "seed": 1}]
    cells = [split_cells(draw_record(12, **kind))[0] for kind in kinds]
    tables = study_tables(cells, ["performance", "agreement"])
    settings = Settings(published=PUBLISHED, stand_ins={"ade": "adr"}, tables=tables)
    rows = analysis.tables(cells, settings).tables["side_by_side"].set_index(["dataset", "encoder", "seed"])
    assert len(rows) == 4 and rows.loc[("ade", "bilstm", 1), "published_for"] == "adr"
    sst = rows.loc[("sst", "bilstm")]
    assert set(sst["published_accuracy"]) == {0.8081} and set(sst["published tau attention–gradient"]) == {0.3512}
    tau = tables["agreement"].query("seed == 2 and pair == 'attention–gradient' and `class` == 'overall'")["tau_mean"]
    assert sst.loc[2, "tau attention–gradient"] == tau.item()
    assert np.isnan(rows.loc[("sst", "mlp", 1), "published_accuracy"])


def test_without_published_numbers_or_tables_nothing_is_made():
    assert analysis.tables([], Settings(published=PUBLISHED)).tables == {}
    with pytest.raises(StudyError, match="published"):
        analysis.tables([], Settings())
