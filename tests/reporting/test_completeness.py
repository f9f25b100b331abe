"""What parts leave of the number that they are parts of, on records whose sums are known."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import completeness
from tests.sections import check_columns


def with_column(table, name, values, dtype="float64"):
    field = records.Column((), dtype, doc="x").field(name)
    return table.append_column(field, pa.array(values, field.type))


@pytest.fixture
def record(build_record):
    """Parts that sum to 2, 2, 4 and to what cannot be divided by: of 2.2 and 2 and 4.01 and 0."""
    texts = [{"attention": [0.5, 0.5], "integrated_gradients": row} for row in ([1, 1], [3, -1], [2, 2], [1, -1])]
    for text, relevance in zip(texts, ([1, 1], [1, 2], [0, 4], [np.nan, 1]), strict=True):
        text["lrp"] = relevance
    table = build_record(texts, measures=("integrated_gradients", "lrp"))
    table = with_column(table, "integrated_gradients_residual", [-0.2, 0.0, -0.01, 0.0])
    table = with_column(table, "integrated_gradients_steps", [540, 20, 60, 20], "int64")
    table = with_column(table, "lrp_residual", [2.0, 1.0, 0.0, np.nan])
    return with_column(table, "lrp_unaccounted", [0.4, 0.0, 0.0, np.nan])


def test_what_is_left(record):
    made = frame(completeness.TABLE, split_cells(record)).set_index("measure")
    line = made.loc["integrated_gradients"]
    assert (line["n"], line["n_undefined"]) == (3, 1)
    assert line["left_max"] == pytest.approx(0.2 / 2.2) and line["left_median"] == pytest.approx(0.01 / 4.01)
    assert line["share_incomplete"] == pytest.approx(1 / 3)
    assert (line["steps_median"], line["steps_max"]) == (40, 540)
    relevance = made.loc["lrp"]
    assert (relevance["n"], relevance["n_undefined"]) == (3, 1)
    assert relevance["left_max"] == pytest.approx(0.1) and relevance["left_median"] == 0
    assert np.isnan(relevance["steps_median"])


def test_for_reading(record):
    made = completeness.grid(frame(completeness.TABLE, split_cells(record)))
    assert [row[-6:] for row in made.rows] == [
        ("3", "0.25%", "9.09%", "33.33%", "40", "540"),
        ("3", "0.00%", "10.00%", "33.33%", "–", "–"),
    ]
    exploded = frame(completeness.TABLE, split_cells(record))
    exploded.loc[1, ["left_median", "left_max"]] = [np.nan, 3e9]
    assert completeness.grid(exploded).rows[1][-5:-3] == ("undefined", "3.0e+09 ×")


def test_a_data_set_says_its_texts(record):
    table = frame(completeness.TABLE, split_cells(record))
    both = pd.concat([table, table.assign(dataset="another", texts="long")])
    assert completeness.grid(both).columns[:2] == ("dataset", "measure")
    two = pd.concat([table, table.assign(texts="other")])
    assert completeness.grid(two).columns[:2] == ("texts", "measure")
    same = pd.concat([table, table.assign(dataset="another")])
    assert completeness.grid(same).columns[:2] == ("dataset", "measure")


def test_records_without_it(build_record):
    bare = split_cells(build_record([{"attention": [0.5, 0.5], "lrp": [1, 2]}], measures=("lrp",)))
    assert frame(completeness.TABLE, bare).empty and completeness.grid(frame(completeness.TABLE, bare)).rows == ()


def test_it_uses_no_more_than_it_says(record):
    (cell,) = split_cells(record)
    check_columns(completeness.SECTION, cell)
