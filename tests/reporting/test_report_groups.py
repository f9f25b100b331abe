"""Attention on groups of tokens, value norms, what is said without impermissible tokens, conicity: records made by hand."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.measurement.registry import find
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cards.findings import Checkpoint
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.compare import compare
from attnfaith.reporting.sections import summaries
from tests.sections import check_columns


NAN = float("nan")
ATTENTION = ([0.5, 0.3, 0.2], [0.6, 0.4], [0.3, 0.41, 0.29], [])
MARKED = ([True, True, False], [False, False], [True, True, True], [])
GROUPS = ["impermissible", "NOUN", "markers"]
SECTIONS = (summaries.GROUP_MASS, summaries.VALUE_NORM_SHARE, summaries.PERMISSIBLE_ONLY, summaries.CONICITY)


def appended(record, declared, columns):
    for name, values in columns.items():
        field = declared[name].field(name)
        record = record.append_column(field, pa.array([np.asarray(value).tolist() for value in values], field.type))
    return record


def measured(build_record, *, seed=0, mass=0.72, heads=True, labels=(1, 1, 1, None), **identity):
    """Four texts: with impermissible tokens and others, without, with no other, and without tokens."""
    record = build_record(
        [
            {"attention": weights, "tokens": [f"<w{t}>" for t in range(len(weights))], "probs": [0.2, 0.8], "label": label}
            for weights, label in zip(ATTENTION, labels, strict=True)
        ],
        seed=seed,
        **identity,
    )
    record = appended(record, records.OPTIONAL_COLUMNS, {"impermissible": MARKED})
    columns = {
        "group_mass_names": [GROUPS] * 4,
        "group_mass": [[mass, 0.2, 0.1], [NAN, 0.5, 0.2], [NAN, 0.3, 0.3], [NAN] * 3],
        "group_mass_tokens": [[2, 1, 2], [0, 1, 2], [3, 1, 2], [0, 0, 2]],
    }
    if heads:
        columns["group_mass_head_max"] = [[0.9, 0.4, 0.2], [NAN, 0.6, 0.3], [NAN, 0.4, 0.4], [NAN] * 3]
        record = appended(record, find("value_norm_share").columns, {"value_norm_share_head_max": [0.95, NAN, NAN, NAN]})
    record = appended(record, find("group_mass").columns, columns)
    record = appended(record, find("value_norm_share").columns, {"value_norm_share": [0.9, NAN, NAN, NAN]})
    probs = [[0.7, 0.3], [NAN, NAN], [NAN, NAN], [NAN, NAN]]
    record = appended(record, find("permissible_only").columns, {"permissible_only_probs": probs})
    cones = {"conicity_absolute": [0.8, 0.6, 0.7, NAN], "conicity_signed": [0.8, -0.2, 0.6, NAN]}
    return appended(record, find("conicity").columns, cones)


@pytest.fixture
def record(build_record):
    return measured(build_record)


def frame(section, record):
    return render.frames(section, split_cells(record))[section.name]


def test_groups(record):
    numbers = sections.numbers(one_cell(record))
    np.testing.assert_array_equal(numbers["group_mass_impermissible"], [0.72, NAN, NAN, NAN])
    np.testing.assert_array_equal(numbers["group_mass_noun"], [0.2, 0.5, 0.3, NAN])
    np.testing.assert_array_equal(numbers["group_mass_head_max_markers"], [0.2, 0.3, 0.4, NAN])
    df = frame(summaries.GROUP_MASS, record).set_index("group")
    assert list(df.index) == GROUPS and list(df["n"]) == [1, 3, 3] and list(df["n_undefined"]) == [3, 1, 1]
    row = df.loc["impermissible"]
    assert row["mass_mean"] == pytest.approx(0.72) and row["tokens_mean"] == pytest.approx(2 / 3)
    assert row["whole_mean"] == pytest.approx((0.72 + 0 + 1) / 3)  # as published means have it
    assert row["head_max_mean"] == pytest.approx(0.9)
    assert np.isnan(df.loc["markers", "tokens_mean"])
    said = render.sentences(summaries.GROUP_MASS, one_cell(record))
    assert said == [
        "On average 72.0% of the attention lies on impermissible tokens, which are 66.7% of the tokens of 1 text; 90.0% in "
        "the head that has most there.",
        "Little attention on them does not say that the model does without them: it may be trained to hide them.",
    ]


def test_no_text_has_both(build_record):
    cell = one_cell(measured(build_record, mass=NAN, heads=False))
    assert render.sentences(summaries.GROUP_MASS, cell) == [
        "No text has both impermissible tokens and other tokens, so that attention could choose between them."
    ]
    assert "head_max" not in summaries.group_mass(cell)["NOUN"]
    said = render.sentences(summaries.GROUP_MASS, one_cell(measured(build_record, heads=False)))
    assert said[0].endswith("which are 66.7% of the tokens of 1 text.")
    assert "group_mass_head_max_noun" not in sections.numbers(cell)


def test_norms_beside_attention(record):
    numbers = sections.numbers(one_cell(record))
    np.testing.assert_allclose(numbers["value_norm_excess"], [0.9 - 0.8, NAN, NAN, NAN], atol=1e-7)
    row = frame(summaries.VALUE_NORM_SHARE, record).set_index("class").loc["overall"]
    assert row["share_mean"] == 0.9 and row["attention_mean"] == pytest.approx(0.8) and row["head_max_mean"] == 0.95
    (sentence,) = render.sentences(summaries.VALUE_NORM_SHARE, one_cell(record))
    assert "Impermissible tokens have 90.0% of the length of all vectors that attention weighs and 80.0%" in sentence
    assert sentence.endswith("they have none of them, or nothing else: 3.")


def test_without_impermissible_tokens(record, build_record):
    numbers = sections.numbers(one_cell(record))
    for name, value in {"correct": 0, "accuracy_lost": 1, "flips": 1, "tvd": 0.5}.items():
        np.testing.assert_allclose(numbers[f"permissible_only_{name}"], [value, NAN, NAN, NAN])
    row = frame(summaries.PERMISSIBLE_ONLY, record).set_index("class").loc["overall"]
    assert (row["before_mean"], row["correct_mean"], row["lost_mean"], row["n_undefined"]) == (1, 0, 1, 3)
    first, second = render.sentences(summaries.PERMISSIBLE_ONLY, one_cell(record))
    assert first == (
        "Without the impermissible tokens the decision changes in 100.0% of 1 text and accuracy is 0.0% in place of "
        "100.0%; lost are 1.000."
    )
    assert "a shortened text is unlike those of training" in second
    unlabelled = one_cell(measured(build_record, labels=(None,) * 4))
    assert render.sentences(summaries.PERMISSIBLE_ONLY, unlabelled)[0].endswith("changes in 100.0% of 1 text.")


def test_cones(record):
    row = frame(summaries.CONICITY, record).set_index("class").loc["overall"]
    assert row["absolute_mean"] == pytest.approx(0.7) and row["signed_mean"] == pytest.approx(0.4)
    assert row["orthogonal_mean"] == pytest.approx((3**-0.5 + 2**-0.5 + 3**-0.5) / 3)
    (sentence,) = render.sentences(summaries.CONICITY, one_cell(record))
    assert (
        "is 0.70 (95 % interval 0.600 to 0.800) on average over 3 texts; as many orthogonal states would have 0.62."
        in sentence
    )
    assert sentence.endswith("Left out because they have fewer than two tokens: 1.")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_columns_that_are_used(section, record):
    check_columns(section, one_cell(record.append_column("importance_x", record.column("attention"))))


def test_records_side_by_side(build_record):
    """An honest model and one that hides: every number of these sections is compared, text by text."""
    sides = [measured(build_record, mass=mass, projection=name) for mass, name in ((0.7, "softmax"), (0.1, "sparsemax"))]
    made = compare(sides, ["honest", "deceiving"])
    frame = made.frame.set_index("quantity")
    row = frame.loc["group_mass_impermissible"]
    assert (row["mean_first"], row["mean_second"]) == (0.7, 0.1) and (row["n_texts"], row["n_left_out"]) == (1, 3)
    names = {"conicity_absolute", "conicity_signed", "group_mass_noun", "group_mass_head_max_impermissible"}
    names |= {"value_norm_share", "value_norm_excess", "permissible_only_correct", "permissible_only_accuracy_lost"}
    names |= {"permissible_only_flips", "permissible_only_tvd"}
    assert names <= set(frame.index)
    assert "group mass impermissible" in str(made) and "permissible only accuracy lost" in str(made)


@pytest.mark.slow
def test_on_the_page_and_the_card(record, tmp_path):
    records.save(record, tmp_path / "record.parquet")
    write_report(records.load(tmp_path / "record.parquet"), tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    for section in SECTIONS:
        assert section.table.caption.replace("’", "&#8217;") in page or section.table.caption in page
    assert "72.0% of the attention lies on impermissible tokens" in page
    checkpoint = Checkpoint({}, record)
    assert checkpoint.numbers["conicity"].value == pytest.approx(0.7)
    assert checkpoint.numbers["value_norm_share"].n_undefined == 3
