"""What a report says of the fewest tokens that carry a decision, and of violated signs, from records made by hand."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.measurement.registry import find
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.sections import summaries
from tests.sections import check_columns


NAN = float("nan")
ATTENTION = ([0.5, 0.3, 0.2], [0.6, 0.4], [0.3, 0.41, 0.29], [])


def with_columns(record, declared, **columns):
    """The record with an experiment's columns, given by their names without the beginning."""
    for name, column in declared.items():
        values = next(values for end, values in columns.items() if name.endswith(f"_{end}"))
        field = column.field(name)
        record = record.append_column(field, pa.array([np.asarray(value).tolist() for value in values], field.type))
    return record


@pytest.fixture
def plain(build_record):
    """Three texts that the model calls class 1, and one without tokens."""
    return build_record(
        [
            {"attention": weights, "tokens": [f"<w{t}>" for t in range(len(weights))], "probs": [0.2, 0.8]}
            for weights in ATTENTION
        ]
    )


@pytest.fixture
def flipped(plain):
    """Sets of two tokens of three, of one of two, none, none; the model agrees on the first alone."""
    return with_columns(
        plain,
        find("frozen_flip_set").columns,
        set=([1, 1, 0], [0, 1], [0, 0, 0], []),
        size=[2.0, 1.0, NAN, NAN],
        **{"class": [0.0, 0.0, NAN, NAN]},
        probs=([0.7, 0.3], [0.4, 0.6], [NAN, NAN], [NAN, NAN]),
        random=[0.2, 0.0, NAN, NAN],
    )


@pytest.fixture
def violated(plain):
    """Attention is wrong on the first text, the signed measure never; the last text has no token."""
    return with_columns(
        plain,
        find("sign_violations").columns,
        measures=[["attention", "lime"]] * 4,
        signs=[[1.0, -1.0], [1.0, 1.0], [1.0, 0.0], [NAN, NAN]],
        effects=[[-0.1, -0.3], [0.2, 0.0], [0.0, 0.1], [NAN, NAN]],
    )


def with_other(record):
    return record.append_column("importance_x", record.column("attention"))


def test_flip_sets(flipped):
    numbers = sections.numbers(one_cell(flipped))
    np.testing.assert_allclose(numbers["frozen_flip_share"], [2 / 3, 0.5, NAN, NAN])
    np.testing.assert_array_equal(numbers["frozen_flip_agrees"], [1, 0, NAN, NAN])
    np.testing.assert_array_equal(numbers["frozen_flip_same_class"], [1, 0, NAN, NAN])
    frame = render.frames(summaries.FROZEN_FLIP_SET, split_cells(flipped))["frozen_flip_set"]
    row = frame.set_index("class").loc["overall"]
    assert (row["n"], row["n_undefined"]) == (2, 2)
    assert row["agreement"] == row["same_class"] == 0.5
    assert row["random_share"] == pytest.approx(0.1)
    (sentence,) = render.sentences(summaries.FROZEN_FLIP_SET, one_cell(flipped))
    check_columns(summaries.FROZEN_FLIP_SET, one_cell(with_other(flipped)))
    assert "2 tokens carry the decision of a text (median over 2 texts, exact)" in sentence
    assert "the model itself decides otherwise in 50%" in sentence and "In 2 texts no tokens do." in sentence


def test_signs(violated):
    by_measure = summaries.sign_violations(one_cell(violated))
    np.testing.assert_array_equal(by_measure["attention"]["violated"], [1, 0, 0, NAN])
    np.testing.assert_array_equal(by_measure["lime"]["violated"], [0, 0, NAN, NAN])  # no sign, no violation
    frame = render.frames(summaries.SIGN_VIOLATIONS, split_cells(violated))["sign_violations"].set_index("measure")
    assert list(frame["n"]) == [3, 2] and list(frame["n_undefined"]) == [1, 2]
    assert frame.loc["attention", "violated_share"] == pytest.approx(1 / 3)
    assert frame.loc["lime", "effect_mean"] == pytest.approx((-0.3 + 0.0 + 0.1) / 3)
    check_columns(summaries.SIGN_VIOLATIONS, one_cell(violated))
    (sentence,) = render.sentences(summaries.SIGN_VIOLATIONS, one_cell(violated))
    assert "in 0% of the texts, the least of all measures; attention, read as evidence for the class, in 33%." in sentence


@pytest.mark.slow
def test_on_the_page(flipped, violated, tmp_path):
    for number, (record, words) in enumerate(((flipped, "carry the decision"), (violated, "Signs that are violated"))):
        records.save(record, tmp_path / f"{number}.parquet")
        folder = tmp_path / str(number)
        write_report(records.load(tmp_path / f"{number}.parquet"), folder)
        assert words in (folder / "index.html").read_text()
