"""Attentions that a model could not tell from its own, on texts whose numbers are worked out by hand."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith.measurement.registry import find
from attnfaith.reporting import render, sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections.identifiability import SECTION
from tests.sections import NAN, check_section, whole


def with_columns(record, **columns):
    """The record with the experiment's columns, by their names without the beginning."""
    for name, values in columns.items():
        declared = find("identifiability").columns[f"identifiability_{name}"]
        plain = pa.array([np.asarray(value).tolist() for value in values])
        field = declared.field(f"identifiability_{name}")
        record = record.append_column(field, plain.cast(field.type))
    return record


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


def test_numbers_by_hand(by_hand):
    """Two layers; a text that has none is undefined in both."""
    layers = {"layer_tvd": ([0.1, 0.4], [0.0, 0.0], [0.2, 0.3], [], []), "layer_rows": ([30, 3], [20, 3], [40, 3], [], [])}
    cell = one_cell(with_columns(by_hand, logit_change_double=[1e-12, 0.0, 2e-12, NAN, NAN], **layers))
    check_section(SECTION, cell)
    table = whole(SECTION, cell).rename(lambda name: name.removeprefix("identifiability_"))
    expected = {
        **{"tvd": 0.76 / 3, "bound": 0.3, "exact": 2 / 3, "weight": 1.51 / 3, "low": 0.85 / 3, "high": 1.97 / 3},
        **{"top_attention": 2.51 / 3, "top_low": 0.6, "support": 7 / 3, "logit_change_double": 1e-12},
        **{"tvd layer 0": 0.1, "tvd layer 1": 0.7 / 3, "rows layer 0": 30, "rows layer 1": 3},
    }
    for name, value in expected.items():
        assert table.loc[name, "mean"] == pytest.approx(value, rel=1e-5), name
    assert (table["n"] == 3).all() and (table["n_undefined"] == 2).all()
    assert table.loc["tvd", "median"] == pytest.approx(0.26)
    for name in ("tvd", "low", "tvd layer 1"):  # determined, could be 0
        assert table.loc[name, "share_beyond"] == pytest.approx(1 / 3)
    numbers = sections.numbers(cell)
    np.testing.assert_allclose(numbers["identifiability_width"], [0.7, 0, 0.42, NAN, NAN], atol=1e-6)
    assert "identifiability_exact" not in numbers, "not compared"


def test_sentences(by_hand):
    first, second = render.sentences(SECTION, one_cell(by_hand))
    assert "is 0.50 on average over 3 texts; it could be anything from 0.28 to 0.66" in first
    assert "in 33% of the texts there is only one attention. Left out because it is undefined: 2." in first
    assert "more than 3.0e-07" in second
    (none,) = render.sentences(SECTION, one_cell(by_hand.slice(3)))
    assert "2 undefined" in none


def test_the_figure_in_words_and_of_nothing(by_hand):
    for record in (by_hand, by_hand.slice(3)):
        assert len(SECTION.figure.draw(one_cell(record)).axes) == 2
    alt, _ = sections.figure_words(one_cell(by_hand), "identifiability_by_length")
    assert "mean 0.253, n = 3 (2 undefined); width of the interval of its largest weight: mean 0.373, n = 3" in alt
