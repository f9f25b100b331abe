"""A text as a plain table: a row for each token, a column for each measure."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.errors import AttnfaithError
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.page.heatmap import scores_of
from attnfaith.reporting.shown import row_of, show
from tests.records import build, draw


def cell_of(tokens, attention, **scores):
    instances = [{"id": "d/test/7", "tokens": tokens, "attention": attention, "label": 1, "probs": [0.25, 0.75], **scores}]
    return split_cells(build(instances, measures=tuple(scores)))[0]


def words(shown):
    return [line.split() for line in shown.splitlines()]


def test_a_row_for_each_token():
    cell = cell_of(["a", "moving", "film"], [0.1, 0.5, 0.4], gradient=[-2.0, 4.0, 0.0], lime=[float("nan"), 0.5, 2.0])
    lines = show(cell, 0).splitlines()
    assert lines[0] == "d/test/7  (text 0 of 1)" and "predicted: 1 (0.75)   label: 1" in lines
    assert words(show(cell, 0))[-4:] == [
        ["attention", "gradient", "LIME"],
        ["a", "0.1", "-2", "–"],
        ["moving", "0.5", "4", "0.5"],
        ["film", "0.4", "0", "2"],
    ]
    assert ["attention", "LIME"] in words(show(cell, 0, ["lime"]))
    with pytest.raises(AttnfaithError, match="'limes'; did you mean 'lime'"):
        show(cell, 0, ["limes"])


def test_a_table_of_many_measures_fits_100_columns():
    measures = ("gradient", "lime", "leave_one_out", "integrated_gradients", "gradient_x_input", "occlusion", "deeplift")
    tokens = ["超长的文字", "x" * 90, "naïve"]
    cell = cell_of(tokens, [0.2, 0.3, 0.5], **{name: [1e-9, -123456.0, 0.25] for name in measures})
    assert max(map(len, show(cell, 0).splitlines())) <= 100


def test_a_text_cannot_write_to_the_terminal():
    cell = cell_of(["\x1b[2J", "a\rb", "\u202e"], [0.2, 0.3, 0.5], gradient=[1.0, 2.0, 3.0])
    shown = show(cell, 0)
    assert not {"\x1b", "\r", "\u202e"} & set(shown) and "[U+202E]" in shown


def test_gold_evidence():
    cell = split_cells(build([{"attention": [1.0, 0.0], "gold": [1.0, 0.0]}], rationale=True, measures=()))[0]
    assert words(show(cell, 0))[-2:] == [["w0", "1", "*"], ["w1", "0"]] and "label: unknown" in show(cell, 0)


def test_an_infinite_score_has_no_share():
    assert scores_of(np.array([np.inf, 1.0]), "lime")[0].value == "lime: infinite"


def test_a_text_by_number_and_by_id():
    cell = split_cells(draw(30))[0]
    assert row_of(cell, "17") == 17 and row_of(cell, "t/017") == 17 and row_of(cell, "017") == 17
    with pytest.raises(AttnfaithError, match="there is no text 30"):
        row_of(cell, "30")
    with pytest.raises(AttnfaithError, match="did you mean t/017"):
        row_of(cell, "t/0177")
    with pytest.raises(AttnfaithError, match="xyz"):
        row_of(cell, "xyz")


def test_sentences_are_rows():
    cell = cell_of(["one two", "three"], [0.4, 0.6], gradient=[1.0, 2.0])
    table = cell.table
    for name, values in (("words", [[["one", "two"], ["three"]]]), ("word_attention", [[[0.5, 0.5], [1.0]]])):
        field = records.OPTIONAL_COLUMNS[name].field(name)
        table = table.append_column(field, pa.array(values, field.type))
    assert words(show(split_cells(table)[0], 0))[-2:] == [["one", "two", "0.4", "1"], ["three", "0.6", "2"]]
