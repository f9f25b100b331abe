"""What holds of every section of a report, and numbers of single texts and of tables that are worked out by hand."""

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.compare import compare
from attnfaith.reporting.sections import summaries
from tests.records import build, draw
from tests.sections import (
    GROUPS,
    NAN,
    STACK,
    appended,
    check_section,
    flips_and_signs,
    hidden_words,
    stack_of_maps,
    with_permutations,
    with_selection,
)


def drawn():
    """Texts with permutations, marked tokens and a selection of every second token."""
    record = with_permutations(draw(30, rationale=True))
    return with_selection(record, [np.arange(len(row)) % 2 == 0 for row in records.rows(record, "attention")])


RECORDS = {"drawn": drawn, "flips_and_signs": flips_and_signs, "stack_of_maps": stack_of_maps}
SECTIONS = {
    "drawn": ("agreement", "plausibility", "performance", "dispersion", "permutation", "selection", "leakage"),
    "flips_and_signs": (
        "group_mass",
        "value_norm_share",
        "permissible_only",
        "conicity",
        "frozen_flip_set",
        "sign_violations",
    ),
    "stack_of_maps": ("map_interventions", "marker_attention", "map_erasure", "map_adversary", "aopc_limits"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SECTIONS.items() for name in names])
def test_every_section_holds_its_contract(kind, name):
    check_section(sections.known()[name], one_cell(RECORDS[kind]()))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("kind", RECORDS)
def test_a_report_holds_them_and_is_the_same_every_time(kind, tmp_path):
    settings = [{"label_names": ["bad", "<b>go$od</b>"], "identity": {"dataset": "sst"}}]
    record = records.with_settings(RECORDS[kind](), settings)
    first, again = (write_report(record, tmp_path / name, facts={}) for name in ("first", "again"))
    page = first.read_text(encoding="utf-8")
    assert again.read_text(encoding="utf-8") == page
    assert "<b>go" not in page and ">nan<" not in page and "<w0>" not in page
    cell = one_cell(record)
    for name in SECTIONS[kind]:
        section = sections.known()[name]
        for table in render.frames(section, [cell]):
            for ending in ("csv", "md", "parquet"):
                path = f"tables/{table}.{ending}"
                assert (first.parent / path).read_bytes() == (again.parent / path).read_bytes()
            assert f'href="tables/{table}.csv"' in page


# ------------------------------------------------------------------------------------- tokens that should not matter


@pytest.fixture(scope="module")
def words():
    return one_cell(flips_and_signs())


def overall(section, cell):
    return render.frames(section, [cell])[section.table.name].set_index("class").loc["overall"]


def test_groups(words):
    numbers = sections.numbers(words)
    np.testing.assert_array_equal(numbers["group_mass_impermissible"], [0.72, NAN, NAN, NAN])
    np.testing.assert_array_equal(numbers["group_mass_noun"], [0.2, 0.5, 0.3, NAN])
    np.testing.assert_array_equal(numbers["group_mass_head_max_markers"], [0.2, 0.3, 0.4, NAN])
    df = render.frames(summaries.GROUP_MASS, [words])["group_mass"].set_index("group")
    assert list(df.index) == GROUPS and list(df["n"]) == [1, 3, 3] and list(df["n_undefined"]) == [3, 1, 1]
    row = df.loc["impermissible"]
    assert row["mass_mean"] == pytest.approx(0.72) and row["tokens_mean"] == pytest.approx(2 / 3)
    assert row["whole_mean"] == pytest.approx((0.72 + 0 + 1) / 3)  # as published means have it
    assert row["head_max_mean"] == pytest.approx(0.9)
    assert np.isnan(df.loc["markers", "tokens_mean"])


def test_no_text_has_both():
    cell = one_cell(hidden_words(mass=NAN, heads=False))
    assert len(render.sentences(summaries.GROUP_MASS, cell)) == 1
    assert "head_max" not in summaries.group_mass(cell)["NOUN"] and "group_mass_head_max_noun" not in sections.numbers(cell)


def test_norms_beside_attention(words):
    np.testing.assert_allclose(sections.numbers(words)["value_norm_excess"], [0.9 - 0.8, NAN, NAN, NAN], atol=1e-7)
    row = overall(summaries.VALUE_NORM_SHARE, words)
    assert row["share_mean"] == 0.9 and row["attention_mean"] == pytest.approx(0.8) and row["head_max_mean"] == 0.95


def test_without_impermissible_tokens(words):
    numbers = sections.numbers(words)
    for name, value in {"correct": 0, "accuracy_lost": 1, "flips": 1, "tvd": 0.5}.items():
        np.testing.assert_allclose(numbers[f"permissible_only_{name}"], [value, NAN, NAN, NAN])
    row = overall(summaries.PERMISSIBLE_ONLY, words)
    assert (row["before_mean"], row["correct_mean"], row["lost_mean"], row["n_undefined"]) == (1, 0, 1, 3)
    (first, _) = render.sentences(summaries.PERMISSIBLE_ONLY, one_cell(hidden_words(labels=(None,) * 4)))
    assert "accuracy" not in first


def test_cones(words):
    row = overall(summaries.CONICITY, words)
    assert row["absolute_mean"] == pytest.approx(0.7) and row["signed_mean"] == pytest.approx(0.4)
    assert row["orthogonal_mean"] == pytest.approx((3**-0.5 + 2**-0.5 + 3**-0.5) / 3)


def test_records_side_by_side():
    """An honest model and one that hides: every number of these sections is compared, text by text."""
    sides = [hidden_words(mass=mass, projection=name) for mass, name in ((0.7, "softmax"), (0.1, "sparsemax"))]
    frame = compare(sides, ["honest", "deceiving"]).frame.set_index("quantity")
    row = frame.loc["group_mass_impermissible"]
    assert (row["mean_first"], row["mean_second"]) == (0.7, 0.1) and (row["n_texts"], row["n_left_out"]) == (1, 3)
    assert set(sections.numbers(one_cell(sides[0]))) <= set(frame.index)


def test_flip_sets(words):
    numbers = sections.numbers(words)
    np.testing.assert_allclose(numbers["frozen_flip_share"], [2 / 3, 0.5, NAN, NAN])
    np.testing.assert_array_equal(numbers["frozen_flip_agrees"], [1, 0, NAN, NAN])
    np.testing.assert_array_equal(numbers["frozen_flip_same_class"], [1, 0, NAN, NAN])
    row = overall(summaries.FROZEN_FLIP_SET, words)
    assert row["agreement"] == row["same_class"] == 0.5 and row["random_share"] == pytest.approx(0.1)


def test_signs(words):
    by_measure = summaries.sign_violations(words)
    np.testing.assert_array_equal(by_measure["attention"]["violated"], [1, 0, 0, NAN])
    np.testing.assert_array_equal(by_measure["lime"]["violated"], [0, 0, NAN, NAN])  # no sign, no violation
    frame = render.frames(summaries.SIGN_VIOLATIONS, [words])["sign_violations"].set_index("measure")
    assert list(frame["n"]) == [3, 2] and frame.loc["attention", "violated_share"] == pytest.approx(1 / 3)
    assert frame.loc["lime", "effect_mean"] == pytest.approx((-0.3 + 0.0 + 0.1) / 3)
    (sentence,) = render.sentences(summaries.SIGN_VIOLATIONS, words)
    assert "in 0% of the texts" in sentence and "in 33%" in sentence


# ------------------------------------------------------------------------------------------------ a stack of maps


def test_numbers_of_maps():
    values = sections.numbers(one_cell(stack_of_maps()))
    expected = {
        "map_permutation_tvd": [0.2, 0.02, NAN, NAN],
        "map_permutation_flips": [1 / 3, 0, NAN, NAN],
        "map_uniform_tvd": [0.1, 0.4, NAN, NAN],
        "map_uniform_flips": [0, 1, NAN, NAN],
        "marker_attention": [0.2, 0.7, 0.3, 1.0],
        "map_erasure_tvd_attention": [0.3, 0.5, NAN, NAN],
        "map_erasure_tvd_gradient": [0.6, 0, NAN, NAN],
        "map_erasure_tvd_attention_gradient": [0.3, 0.5, NAN, NAN],
        "map_erasure_tvd_random": [0, 0, NAN, NAN],
        "map_erasure_top_flips_gradient": [1, 0, NAN, NAN],
        "map_erasure_flip_fraction_attention": [2 / 3, 0.5, NAN, NAN],
        "map_erasure_flip_fraction_gradient": [1 / 3, NAN, NAN, NAN],
        "map_erasure_mass_gradient": [0.2, NAN, NAN, NAN],
        "map_adversary_jsd": [0.05, 0.4, NAN, NAN],
        "map_adversary_tvd": [0.3, 0.8, NAN, NAN],
        "naopc_attention": [0.5, 0.5, NAN, NAN],
        "naopc_gradient": [0, NAN, NAN, NAN],
    }
    for name, numbers in expected.items():
        np.testing.assert_allclose(values[name], numbers, atol=1e-6, err_msg=name)


def test_tables_of_maps():
    cell = one_cell(stack_of_maps())
    frames = sections.frames([cell])
    maps = frames["map_interventions"].set_index(["maps", "class"])
    row = maps.loc["map_permutation", "overall"]
    assert (row["n"], row["n_undefined"]) == (2, 2) and row["share_below_0.05"] == 0.5
    assert row["tvd_mean"] == pytest.approx(0.11) and row["flip_share"] == pytest.approx(1 / 6)
    assert maps.loc[("map_uniform", "overall"), "tvd_mean"] == pytest.approx(0.25)
    erased = frames["map_erasure"].set_index("ranking")
    assert erased.loc["gradient", "n_never"] == 1 and erased.loc["gradient", "n_averaged"] == 1
    assert erased.loc["gradient", "censored_median"] == pytest.approx((1 / 3 + 1) / 2)
    assert erased.loc["random", "fraction_mean"] == 1
    row = frames["aopc_limits"].set_index("scores").loc["attention"]
    assert (row["n"], row["n_undefined"], row["removal"]) == (2, 2, "aopc_limits")
    # of the first text 0.2 / 0.6 to 0.4 / 0.6, of the second 0.5
    assert (row["naopc_low_mean"], row["naopc_high_mean"]) == pytest.approx(((1 / 3 + 0.5) / 2, (2 / 3 + 0.5) / 2))
    assert row["share_exact"] == pytest.approx(2 / 3)
    assert frames["marker_attention"].iloc[0]["share_above_0.5"] == 0.5
    assert frames["map_adversary"].iloc[0]["change_max"] == pytest.approx(0.01)
    said = " ".join(render.sentences(sections.known()["map_erasure"], cell))
    assert "by gradient 33% on average (1 never change)" in said


def test_nothing_to_change():
    """A record of texts too short for anything says so, once for each intervention."""
    record = build([{"attention": [1.0], "probs": [0.9, 0.1]}], **STACK)
    record = appended(record, "map_permutation", map_permuted_probs=[[]])
    record = appended(record, "map_uniform", map_uniform_probs=[[0.9, 0.1]])
    record = appended(
        record,
        "map_adversary",
        map_adversary_attention=[[1.0]],
        map_adversary_probs=[[0.9, 0.1]],
        map_adversary_jsd=[NAN],
        map_adversary_change=[NAN],
        map_adversary_certainty=["undefined"],
    )
    cell = one_cell(record)
    said = [render.sentences(sections.known()[name], cell) for name in ("map_interventions", "map_adversary")]
    assert [len(sentences) for sentences in said] == [2, 1]
    assert all("(1 undefined)" in sentence for sentences in said for sentence in sentences)
