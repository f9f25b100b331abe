"""What a report says of the attentions that a model could not tell from its own."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.measurement.registry import find
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.page import alternatives
from attnfaith.reporting.sections import identifiability
from tests.sections import check_section


def with_columns(record, **columns):
    """The record with the experiment's columns, given by their names without the beginning."""
    for name, declared in find("identifiability").columns.items():
        if name.removeprefix("identifiability_") not in columns:
            continue
        values = [np.asarray(value).tolist() for value in columns[name.removeprefix("identifiability_")]]
        plain = pa.array(values, pa.string() if declared.dtype == "category" else None)
        field = declared.field(name)
        record = record.append_column(field, plain.cast(field.type))
    return record


NAN = float("nan")


@pytest.fixture
def by_hand(build_record):
    """Largest weight .5 in .0 to .7, .6 in .6 to .6, .41 in .25 to .67; a text of one token and one without."""
    attention = ([0.5, 0.3, 0.2], [0.6, 0.4], [0.3, 0.41, 0.29], [1.0], [])
    instances = [{"attention": weights, "tokens": [f"<w{t}>" for t in range(len(weights))]} for weights in attention]
    return with_columns(
        build_record(instances),
        low=([0.0, 0.1, 0.2], [0.6, 0.4], [0.1, 0.25, 0.2], [1.0], []),
        high=([0.7, 0.5, 0.9], [0.6, 0.4], [0.4, 0.67, 0.5], [1.0], []),
        attention=([0.0, 0.3, 0.7], [0.6, 0.4], [0.13, 0.67, 0.2], [1.0], []),
        tvd=[0.5, 0.0, 0.26, NAN, NAN],
        bound=[0.5, 0.0, 0.4, NAN, NAN],
        certainty=["exact", "exact", "bounded", "undefined", "undefined"],
        support=[2, 2, 3, NAN, NAN],
        top_attention=[0.8, 1.0, 0.71, NAN, NAN],
        top_low=[0.3, 1.0, 0.5, NAN, NAN],
        logit_change=[1e-8, 0.0, 3e-7, NAN, NAN],
    )


def test_numbers_of_single_texts(by_hand):
    numbers = sections.numbers(one_cell(by_hand))
    check_section(identifiability.SECTION, one_cell(by_hand))
    np.testing.assert_allclose(numbers["identifiability_tvd"], [0.5, 0, 0.26, NAN, NAN])
    np.testing.assert_allclose(numbers["identifiability_weight"], [0.5, 0.6, 0.41, NAN, NAN], rtol=1e-6)
    np.testing.assert_allclose(numbers["identifiability_width"], [0.7, 0, 0.42, NAN, NAN], atol=1e-6)
    np.testing.assert_allclose(numbers["identifiability_low"], [0, 0.6, 0.25, NAN, NAN], atol=1e-6)


def test_the_tables_by_hand(by_hand):
    frames = render.frames(identifiability.SECTION, split_cells(by_hand))
    row = frames["identifiability"].set_index("class").loc["overall"]
    assert (row["n"], row["n_undefined"]) == (3, 2)
    expected = {
        "tvd_mean": 0.76 / 3,
        "tvd_median": 0.26,
        "bound_mean": 0.3,
        "share_exact": 2 / 3,
        "share_determined": 1 / 3,
        "weight_mean": 1.51 / 3,
        "low_mean": 0.85 / 3,
        "high_mean": 1.97 / 3,
        "share_low_zero": 1 / 3,
        "top_attention_mean": 2.51 / 3,
        "top_low_mean": 0.6,
        "support_mean": 7 / 3,
        "logit_change_max": 3e-7,
    }
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-5), name
    lengths = frames["identifiability_by_length"].set_index("tokens")
    assert lengths["n"].tolist() == [3, 0, 0, 0, 0, 0] and lengths["n_undefined"].tolist() == [2, 0, 0, 0, 0, 0]


def test_layers_by_hand(by_hand):
    """Two layers; a text that has none is undefined in both."""
    assert "identifiability_by_layer" not in render.frames(identifiability.SECTION, split_cells(by_hand))
    cell = one_cell(
        with_columns(
            by_hand,
            logit_change_double=[1e-12, 0.0, 2e-12, NAN, NAN],
            layer_tvd=([0.1, 0.4], [0.0, 0.0], [0.2, 0.3], [], []),
            layer_rows=([30, 3], [20, 3], [40, 3], [], []),
        )
    )
    frames = render.frames(identifiability.SECTION, [cell])
    layers = frames["identifiability_by_layer"].set_index("layer")
    assert layers["n"].tolist() == [3, 3] and layers["n_undefined"].tolist() == [2, 2]
    np.testing.assert_allclose(layers["tvd_mean"], [0.1, 0.7 / 3])
    np.testing.assert_allclose(layers["share_determined"], [1 / 3, 1 / 3])
    np.testing.assert_allclose(layers["rows_mean"], [30, 3])
    assert frames["identifiability"]["logit_change_double_max"][0] == 2e-12
    check_section(identifiability.SECTION, cell)


def test_what_is_said(by_hand):
    (said,) = render.sentences(identifiability.SECTION, one_cell(by_hand))
    assert said.startswith(
        "The weight of a text’s most attended token is 0.50 on average over 3 texts; it could be anything"
    )
    assert "from 0.28 to 0.66 and nothing in the model would notice" in said
    assert "in 33% of the texts there is only one attention. Left out because they have fewer than two tokens: 2." in said


def test_texts_are_shown_with_their_intervals(by_hand):
    """The widest first; none where there is nothing else; what tokens hold is escaped."""
    html = alternatives.of_section("identifiability", one_cell(by_hand), 5)
    assert html.count('<article class="example">') == 2
    assert html.index("t/000") < html.index("t/002") and "t/001" not in html
    assert "<w1>" not in html
    assert 'The weight 0.41 of <bdi lang="" dir="auto">&lt;w1&gt;</bdi> could be anything from 0.25 to 0.67' in html
    assert "Nothing in the model would notice." in html
    assert "0.500, the largest there is." in html and "0.260; none is above 0.400." in html


def test_nothing_to_show_where_attention_is_determined(by_hand):
    cell = one_cell(by_hand.slice(1, 3).filter([True, False, True]))
    assert alternatives.of_section("identifiability", cell, 5) == ""
    (said,) = render.sentences(identifiability.SECTION, cell)
    assert "in 100% of the texts" in said
    (none,) = render.sentences(identifiability.SECTION, one_cell(by_hand.slice(3)))
    assert none == "No text has two tokens, so attention could not be anything else (2 undefined)."


def test_the_figure_in_words_and_of_nothing(by_hand):
    for record in (by_hand, by_hand.slice(3)):
        (drawing,) = render.figures(identifiability.SECTION, one_cell(record))
        assert drawing.name == "identifiability_by_length" and len(drawing.draw(one_cell(record)).axes) == 2
    alt, _ = sections.figure_words(one_cell(by_hand), "identifiability_by_length")
    assert "mean 0.253, n = 3 (2 undefined); width of the interval of its largest weight: mean 0.373, n = 3" in alt


@pytest.mark.slow
def test_the_page_has_it(by_hand, tmp_path):
    write_report(by_hand, tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Identifiability of attention" in page and "What else could be shown of these texts" in page
    assert (tmp_path / "tables" / "identifiability_by_length.csv").exists()
    assert list((tmp_path / "figures").glob("*identifiability_by_length*"))
    records.validate(by_hand)
