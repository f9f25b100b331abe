"""What holds of every section of a report, and numbers of single texts that are worked out by hand."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import entropy

from attnfaith import record as records
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.compare import compare
from attnfaith.reporting.sections import attention, changes, selection, translation
from attnfaith.reporting.study import study_tables
from tests.records import build, draw
from tests.sections import (
    NAN,
    STACK,
    appended,
    check_section,
    flips_and_signs,
    hidden_words,
    stack_of_maps,
    whole,
    with_permutations,
    with_selection,
)
from tests.sequence_records import columns


def drawn():
    """Texts with permutations, marked tokens and a selection of every second token."""
    record = with_permutations(draw(30, rationale=True))
    return with_selection(record, [np.arange(len(row)) % 2 == 0 for row in records.rows(record, "attention")])


RECORDS = {"drawn": drawn, "flips_and_signs": flips_and_signs, "stack_of_maps": stack_of_maps}
SECTIONS = {
    "drawn": ("agreement", "plausibility", "performance", "dispersion", "permutation", "selection", "leakage"),
    "flips_and_signs": (
        *("group_mass", "value_norm_share", "permissible_only", "conicity", "frozen_flip_set", "sign_violations"),
    ),
    "stack_of_maps": ("map_permutation", "map_uniform", "marker_attention", "map_erasure", "map_adversary", "aopc_limits"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SECTIONS.items() for name in names])
def test_every_section_holds_its_contract(kind, name):
    check_section(sections.registry()[name], one_cell(RECORDS[kind]()))


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
    for name in sections.frames([one_cell(record)]):
        for ending in ("csv", "md", "parquet"):
            path = f"tables/{name}.{ending}"
            assert (first.parent / path).read_bytes() == (again.parent / path).read_bytes()
    held = pd.read_parquet(first.parent / "tables" / "summary.parquet")
    assert set(SECTIONS[kind]) - {"plausibility"} <= set(held["section"])


def check_numbers(values, expected):
    for name, numbers in expected.items():
        np.testing.assert_allclose(values[name], numbers, atol=1e-6, err_msg=name)


# ---------- weights permuted, uniform and at random places


@pytest.fixture
def permuted(build_record):
    """Largest weight .5, .25, .5 and 1, then a text of one token and one without tokens."""
    weights = ([0.5, 0.5], [0.25] * 4, [0.5, 0.3, 0.2], [1.0, 0.0], [1.0], [])
    probs = ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [0.9, 0.1])
    draws = (
        [[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]],  # changes 0, .3, .8
        [[0.2, 0.8], [0.185, 0.815], [0.215, 0.785]],  # 0, .015, .015
        [[0.58, 0.42], [0.57, 0.43]],  # .02, .03
        [[0.9, 0.1]],  # .6
        *([], []),
    )
    instances = [{"attention": a, "probs": p} for a, p in zip(weights, probs, strict=True)]
    return with_permutations(build_record(instances), draws)


def test_permutations_by_hand(permuted):
    cell = one_cell(permuted)
    expected = {"permutation_tvd": [0.3, 0.015, 0.025, 0.6, NAN, NAN], "permutation_flips": [1 / 3, 0, 0, 1, NAN, NAN]}
    check_numbers(sections.numbers(cell), expected)
    table = render.summary([cell], [changes.PERMUTATION]).set_index(["quantity", "class"])
    row = table.loc["permutation_tvd", "overall"]
    assert (row["n"], row["n_undefined"], row["beyond"], row["share_beyond"]) == (4, 2, "below 0.05", 0.5)
    assert row["mean"] == pytest.approx(0.94 / 4) and row["median"] == pytest.approx(0.325 / 2)
    assert row["ci_low"] < row["mean"] < row["ci_high"]
    assert table.loc[("permutation_tvd", "0"), "mean"] == pytest.approx(0.325 / 2)
    assert table.loc[("permutation_flips", "1"), "mean"] == 0.5
    (text,) = render.sentences(changes.PERMUTATION, cell)
    assert "by a total variation distance of 0.235 on average over 4 texts" in text and "in 50% of them by less" in text
    assert text.endswith("Left out because it is undefined: 2.")


def test_predictions_under_weights_at_random_places(build_record):
    record = build_record([{"attention": [0.6, 0.4], "probs": [0.8, 0.2]}, {"attention": [1.0], "probs": [0.8, 0.2]}])
    extra = {"random_support_probs": records.Column(("K", "C"), distribution=True)}
    record = appended(record, extra, random_support_probs=[[[0.7, 0.3], [0.9, 0.1]], []])
    check_numbers(sections.numbers(one_cell(record)), {"random_support_tvd": [0.1, NAN], "random_support_flips": [0, NAN]})


@pytest.mark.parametrize(("count", "classes"), [(9, 2), (300, 9)])
def test_violins_count_every_text(draw_record, count, classes):
    cell = one_cell(with_permutations(draw_record(count, classes=classes)))
    drawing = changes.PERMUTATION.figure
    figure, (alt, caption) = drawing.draw(cell), drawing.words(cell)
    (axes,) = figure.axes
    assert sum(int(text.get_text()) for text in axes.texts) == count - 2  # but for the texts of no and of one token
    assert len(axes.get_legend().get_texts()) == min(classes, 7) and "n = " in alt and "points" in caption


# ---------- dispersion


@pytest.fixture
def tiny(build_record):
    """Four tokens of which one to four have a score, one token, none; a row of zeros; a signed row; states."""
    table = build_record(
        [
            {"attention": [0.5, 0.5, 0, 0], "gradient": [1, 1, 1, 1], "signed": [0, 0, 3, 3]},
            {"attention": [1, 0], "gradient": [0, 0], "signed": [-1, 2]},
            {"attention": [1], "gradient": [2], "signed": [1]},
            {"attention": [], "gradient": [], "signed": []},
        ],
        measures=("gradient", "signed"),
    )
    extra = {f"hidden_to_input_{name}": records.Column(("T",)) for name in ("entropy", "own")}
    entropies, own = [[0.25, 0.5, 1.0, NAN], [NAN, NAN], [NAN], []], [[0.5, 0.25, 0.75, NAN], [0.125, 0.375], [NAN], []]
    return appended(table, extra, hidden_to_input_entropy=entropies, hidden_to_input_own=own)


def test_dispersion_by_hand(tiny, draw_record):
    cell = one_cell(tiny)
    expected = {
        "entropy attention": [0.5, 0, NAN, NAN],
        "support attention": [2, 1, 1, NAN],
        "zeros attention": [0.5, 0.5, 0, NAN],
        "entropy gradient": [1, NAN, NAN, NAN],
        "support gradient": [4, 0, 1, NAN],
        "zeros gradient": [0, 1, 0, NAN],
        "entropy signed": [0.5, NAN, NAN, NAN],
        "support signed": [2, NAN, 1, NAN],
        "zeros signed": [0.5, NAN, 0, NAN],
        "entropy hidden_to_input": [1.75 / 3, NAN, NAN, NAN],
        "own hidden_to_input": [0.5, 0.25, NAN, NAN],
    }
    values = attention.dispersion(cell)
    assert list(values) == list(expected) and attention.dispersion(cell) is values, "computed once"
    check_numbers(values, expected)
    assert attention.DISPERSION.quantity("own hidden_to_input").label.startswith("share of its own token")
    assert attention.DISPERSION.quantity("zeros leave_one_out").label == "share of tokens at zero, leave-one-out"
    (axes,) = attention.dispersion_by_scores(cell).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["attention", "gradient", "signed", "inputs of a state"]
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(dots, [0.25, 1, 0.5, 1.75 / 3], atol=1e-6)
    record = draw_record(60)
    rows = [row for row in records.rows(record, "attention") if len(row) > 1]
    by_scipy = np.mean([entropy(row) / np.log(len(row)) for row in rows])
    assert whole(attention.DISPERSION, one_cell(record)).loc["entropy attention", "mean"] == pytest.approx(
        by_scipy, abs=1e-6
    )


# ---------- tokens that should not matter


@pytest.fixture(scope="module")
def words():
    return one_cell(flips_and_signs())


def test_groups_and_norms(words):
    expected = {
        "group_mass_impermissible": [0.72, NAN, NAN, NAN],
        "group_mass_noun": [0.2, 0.5, 0.3, NAN],
        "group_mass_head_max_markers": [0.2, 0.3, 0.4, NAN],
        "value_norm_excess": [0.9 - 0.8, NAN, NAN, NAN],
    }
    numbers = sections.numbers(words)
    check_numbers(numbers, expected)
    assert "group_whole_noun" not in numbers, "not compared"
    rows = whole(attention.GROUP_MASS, words)
    assert rows.loc["group_whole_impermissible", "mean"] == pytest.approx((0.72 + 0 + 1) / 3), "as published means have it"
    assert rows.loc["group_tokens_impermissible", "mean"] == pytest.approx(2 / 3)
    assert np.isnan(rows.loc["group_tokens_markers", "mean"])
    assert whole(attention.VALUE_NORM_SHARE, words).loc["value_norm_attention", "mean"] == pytest.approx(0.8)
    cell = one_cell(hidden_words(mass=NAN, heads=False))
    assert len(render.sentences(attention.GROUP_MASS, cell)) == 1, "no text has both"
    assert "group_mass_head_max_noun" not in attention.group_mass(cell)


def test_without_impermissible_tokens_and_cones(words):
    expected = {f"permissible_only_{name}": [value, NAN, NAN, NAN] for name, value in {"correct": 0, "tvd": 0.5}.items()}
    check_numbers(sections.numbers(words), expected)
    rows = whole(changes.PERMISSIBLE_ONLY, words)["mean"]
    assert rows["permissible_only_before"] == rows["permissible_only_accuracy_lost"] == rows["permissible_only_flips"] == 1
    unlabelled = one_cell(hidden_words(labels=(None,) * 4))
    assert whole(changes.PERMISSIBLE_ONLY, unlabelled).loc["permissible_only_correct", "n"] == 0
    rows = whole(attention.CONICITY, words)["mean"]
    assert rows["conicity_orthogonal"] == pytest.approx((1 / np.sqrt(3) + 1 / np.sqrt(2) + 1 / np.sqrt(3)) / 3)


def test_flip_sets_and_signs(words):
    expected = {
        "frozen_flip_share": [2 / 3, 0.5, NAN, NAN],
        "frozen_flip_agrees": [1, 0, NAN, NAN],
        "frozen_flip_same_class": [1, 0, NAN, NAN],
        "sign_violated_by_attention": [1, 0, 0, NAN],
    }
    check_numbers(sections.numbers(words), expected)
    np.testing.assert_array_equal(changes.sign_violations(words)["sign_violated_by_lime"], [0, 0, NAN, NAN])  # no sign of 0
    rows = whole(changes.SIGN_VIOLATIONS, words)["mean"]
    assert rows["effect_of_lime"] == pytest.approx((-0.3 + 0.0 + 0.1) / 3)


def test_two_models_side_by_side():
    sides = [hidden_words(mass=mass, projection=name) for mass, name in ((0.7, "softmax"), (0.1, "sparsemax"))]
    frame = compare(sides, ["honest", "deceiving"]).frame.set_index("quantity")
    row = frame.loc["group_mass_impermissible"]
    assert (row["mean_first"], row["mean_second"]) == (0.7, 0.1) and (row["n_texts"], row["n_left_out"]) == (1, 3)
    assert set(sections.numbers(one_cell(sides[0]))) <= set(frame.index)


# ---------- a stack of maps


def test_numbers_of_maps():
    cell = one_cell(stack_of_maps())
    expected = {
        "map_permutation_tvd": [0.2, 0.02, NAN, NAN],
        "map_permutation_flips": [1 / 3, 0, NAN, NAN],
        "map_uniform_tvd": [0.1, 0.4, NAN, NAN],
        "map_uniform_flips": [0, 1, NAN, NAN],
        "marker_attention": [0.2, 0.7, 0.3, 1.0],
        "map_erasure_tvd_attention": [0.3, 0.5, NAN, NAN],
        "map_erasure_tvd_gradient": [0.6, 0, NAN, NAN],
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
    numbers = sections.numbers(cell)
    check_numbers(numbers, expected)
    assert "naopc_low_attention" not in numbers and "aopc_attention" not in numbers, "not compared"
    rows = whole(changes.AOPC_LIMITS, cell)["mean"]
    # of the first text 0.2 / 0.6 to 0.4 / 0.6, of the second 0.5
    ends = rows[["naopc_low_attention", "naopc_high_attention"]].tolist()
    assert ends == pytest.approx([(1 / 3 + 0.5) / 2, (2 / 3 + 0.5) / 2]) and rows["aopc_limit_exact"] == pytest.approx(2 / 3)
    assert changes.AOPC_LIMITS.quantity("naopc_low_gradient").label == "certainly from, gradient (tokens taken away)"
    assert whole(attention.MARKER_ATTENTION, cell).loc["marker_attention", "share_beyond"] == 0.5
    rows = whole(changes.MAP_ERASURE, cell)["mean"]
    assert rows["map_erasure_flip_fraction_attention"] == pytest.approx((2 / 3 + 0.5) / 2)
    assert rows["map_erasure_flip_fraction_random"] == 1


def test_nothing_to_change():
    """A record of texts too short for anything says so, once for each intervention."""
    record = build([{"attention": [1.0], "probs": [0.9, 0.1]}], **STACK)
    record = appended(record, "map_permutation", map_permuted_probs=[[]])
    record = appended(record, "map_uniform", map_uniform_probs=[[0.9, 0.1]])
    cell = one_cell(record)
    text = [render.sentences(section, cell) for section in (changes.MAP_PERMUTATION, changes.MAP_UNIFORM)]
    assert [len(texts) for texts in text] == [1, 1] and all("undefined for all texts (1)" in texts[0] for texts in text)


# ---------- what a model selects


TEXTS = [
    {"attention": [0.5, 0.5, 0, 0], "gold": [1, 1, 0, 0], "probs": [0.1, 0.9], "label": 1},
    {"attention": [0.25] * 4, "gold": [0, 0, 0, 1], "probs": [0.8, 0.2], "label": 1},
    {"attention": [1.0, 0], "gold": [1, 0], "probs": [0.6, 0.4], "label": 0},
    {"attention": [0.0, 0.4, 0.6], "gold": [0, 0, 0], "probs": [0.3, 0.7]},
    {"attention": []},
]
SELECTED = [[True, False, True, False], [False] * 4, [True, True], [False, True, True], []]


def test_what_is_selected_by_hand():
    """Nothing selected stays in the denominators; the papers' rule is a number of its own."""
    own = [text.get("probs", [0.4, 0.6]) for text in TEXTS]
    complement = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]
    cell = one_cell(with_selection(build(TEXTS, rationale=True), SELECTED, complement=complement, own=own))
    values = selection.selection(cell)
    expected = {
        "share_selected": [0.5, 0, 1, 2 / 3, NAN],
        "spans_selected": [2, 0, 1, 1, NAN],
        "nothing_selected": [0, 1, 0, 0, NAN],
        "everything_selected": [0, 0, 1, 0, NAN],
        "selection_correct": [1, 0, 1, NAN, NAN],
        "complement_correct": [0, 0, 1, NAN, NAN],
        "complement_same": [0, 1, 1, 1, NAN],
        "selection_precision": [0.5, NAN, 0.5, NAN, NAN],
        "selection_recall": [0.5, 0, 1, NAN, NAN],
        "selection_f1": [0.5, 0, 2 / 3, NAN, NAN],
        "selection_f1_papers": [0.5, NAN, 2 / 3, NAN, NAN],
        "selection_iou_f1": [2 / 3, 0, 1, NAN, NAN],
        "selection_auprc": [0.5, 0.25, 0.5, NAN, NAN],  # equal values pass together
        "marked_selected": [1, 0, 1, NAN, NAN],
        "unmarked_correct": [NAN, 0, NAN, NAN, NAN],
    }
    assert set(values) == set(expected)
    check_numbers(values, expected)
    assert set(expected) - set(sections.numbers(cell)) == {"selection_f1_papers"}
    text = " ".join(render.sentences(selection.SELECTION, cell))
    assert "54.2% of a text is selected" in text and "66.7% of the texts are classified rightly, from all other" in text
    bare = one_cell(with_selection(build(TEXTS), SELECTED))
    assert "selection_f1" not in selection.selection(bare) and len(render.sentences(selection.SELECTION, bare)) == 1


def test_selections_of_one_size_by_hand():
    table = appended(
        build(TEXTS[:2], rationale=True),
        "selection",
        selection_measures=[["attention", "gradient"]] * 2,
        selection_shares=[[0.0, 0.2]] * 2,
        selection_chosen=[[[True, False, False, False], [False, False, True, True]], [[False] * 4, [False] * 4]],
        selection_kept_probs=[[[0.3, 0.7], [0.8, 0.2]], [[0.7, 0.3], [np.nan, np.nan]]],
        selection_removed_probs=[[[0.6, 0.4], [0.2, 0.8]], [[0.1, 0.9], [np.nan, np.nan]]],
    )
    everything = selection.budgets(one_cell(table))
    assert list(everything) == [("as many as selected", "attention"), ("20%", "gradient")]
    own, other = everything.values()
    # the predicted classes are 1 (0.9) and 0 (0.8), the labels 1 and 1
    check_numbers(
        own, {"sufficiency": [0.2, 0.1], "comprehensiveness": [0.5, 0.7], "correct": [1, 0], "rest_correct": [0, 1]}
    )
    check_numbers(own, {"token_f1": [2 / 3, 0]})
    check_numbers(other, {"sufficiency": [0.9 - 0.2, NAN], "correct": [0, NAN], "token_f1": [0, NAN]})
    check_section(selection.SELECTION_BUDGETS, one_cell(table))


def test_what_places_tell():
    random = np.random.default_rng(0)
    texts, selected = [], []
    for number in range(120):
        label, length = number % 2, int(random.integers(6, 12))
        texts.append(
            {"attention": random.dirichlet(np.ones(length)), "probs": [1 - 0.8 * label, 0.8 * label], "label": label}
        )
        selected.append(np.arange(length) == (0 if label else length - 1))
    cell = one_cell(with_selection(build(texts), selected))
    rows = whole(selection.LEAKAGE, cell)["mean"]
    assert rows["places_accuracy gold label"] == 1 and rows["majority_accuracy predicted class"] <= 0.5
    text, _ = render.sentences(selection.LEAKAGE, cell)
    assert "predicts the gold label of 100.0% of 120 texts" in text and "the places tell it (p = 0.001)" in text
    assert render.sentences(selection.LEAKAGE, one_cell(with_selection(build(texts[:10]), selected[:10]))) == []


# ---------- cross-attention


PAIRS = [(["a", "b"], ["x", "y"]), (["a", "b", "c"], ["z"])]
CROSS = {
    "cross_permuted_probs": (("K", "G"), [np.array([[0.4, 0.2], [0.6, 0.6]]), np.array([[0.3], [0.1]])]),
    "cross_permuted_tvd": (("K", "G"), [np.array([[0.5, 0.5], [0.1, 0.3]]), np.array([[0.2], [0.4]])]),
    "cross_uniform_probs": (("G",), [[0.7, 0.6], [0.11]]),
    "cross_uniform_tvd": (("G",), [[0.1, 0.0], [0.5]]),
    "cross_uniform_layer_probs": (("L", "G"), [np.array([[0.8, 0.6], [0.7, 0.6]]), np.array([[0.4], [0.2]])]),
    "cross_uniform_layer_tvd": (("L", "G"), [np.array([[0.0, 0.0], [0.1, 0.1]]), np.array([[0.0], [0.4]])]),
    "knock_out_probs": (("G",), [[0.3, np.nan], [0.4]]),
    "knock_out_tvd": (("G",), [[0.6, np.nan], [0.0]]),
    "knock_out_other_probs": (("G",), [[0.8, 0.5], [np.nan]]),
    "knock_out_other_tvd": (("G",), [[0.0, 0.2], [np.nan]]),
    "knock_out_removed_probs": (("G",), [[0.2, 0.1], [0.3]]),
    "knock_out_other_removed_probs": (("G",), [[0.9, 0.6], [0.4]]),
}
HEAD = ("L", "A", "R", "G", "T")


def pairs(extra):
    result = columns(PAIRS, measures={name: values for name, (_, values) in extra.items()})
    result["target_probs"] = [[0.8, 0.6], [0.4]]
    return split_cells(records.build(result, {name: records.Column(axes, "float64") for name, (axes, _) in extra.items()}))[
        0
    ]


def test_cross_interventions_by_hand():
    cell = pairs(CROSS)
    check_section(translation.CROSS_INTERVENTIONS, cell)
    # permuted: pair 0 has 0.45 of 0.7, pair 1 0.2 of 0.4; of the words 2 in 4 and 1 in 2 fall by half or more
    expected = {
        "cross_permutation_probability": [0.45, 0.2],
        "cross_permutation_probability_drop": [0.25, 0.2],
        "cross_permutation_fallen": [0.5, 0.5],  # 0.4 of 0.8 and 0.2 of 0.6; 0.1 of 0.4
        "cross_permutation_tvd": [0.35, 0.3],
        # one word of pair 0 cannot be knocked out: neither its own probability nor its fall counts
        "cross_best_weight_before": [0.8, 0.4],
        "cross_best_weight_probability_drop": [0.5, 0],
        "cross_other_weight_probability_drop": [0.05, NAN],
        "cross_other_weight_tvd": [0.1, NAN],
        "cross_other_word_probability_drop": [-0.05, 0],  # one target word becomes more probable
        "cross_uniform_probability_drop": [0.05, 0.29],
        "cross_uniform_probability_drop layer 1": [0.05, 0.2],
        "cross_uniform_tvd layer 1": [0.1, 0.4],
    }
    values = translation.cross_interventions(cell)
    check_numbers(values, expected)
    assert "cross_best_word_tvd" not in values
    text = " ".join(render.sentences(translation.CROSS_INTERVENTIONS, cell))
    assert "With uniform weights a target word has a probability of 0.38 in place of 0.55." in text
    assert "loses its weight, a target word’s probability falls by 0.25, of another one by 0.05" in text
    one_way = pairs({name: CROSS[name] for name in ("cross_uniform_probs", "cross_uniform_tvd")})
    assert len(render.sentences(translation.CROSS_INTERVENTIONS, one_way)) == 1, "of the others there is nothing"
    # K = 0 draws of one source word: undefined, and no warning
    draws = {"cross_permuted_probs": [np.zeros((0, 2)), np.array([[0.3], [0.1]])]}
    none = pairs({"cross_permuted_probs": (("K", "G"), draws["cross_permuted_probs"]), "cross_permuted_tvd": (("K", "G"),
                  [np.zeros((0, 2)), np.array([[0.2], [0.4]])])})  # fmt: skip
    check_numbers(translation.cross_interventions(none), {"cross_permutation_probability_drop": [NAN, 0.2]})


def identifiable(tvd, low, high, attention=None):
    """One layer, one head, both rows alike."""

    def both(values):
        return [np.array(item, float)[None, None, None].repeat(2, 2) for item in values]

    begin = "cross_identifiability_"
    options = {f"{begin}low": (HEAD, both(low)), f"{begin}high": (HEAD, both(high)), f"{begin}tvd": (HEAD[:-1], both(tvd))}
    options |= {f"{begin}change": ((), [1e-7, 3e-7]), f"{begin}change_double": ((), [1e-15, np.nan])}
    return pairs(options | ({"alignment_attention": (HEAD, both(attention))} if attention else {}))


LOW, HIGH = [[[0.0, 0.2], [0.5, 0.1]], [[0.1, 0.0, 0.0]]], [[[0.8, 1.0], [0.9, 0.5]], [[0.9, 0.5, 0.4]]]
WEIGHTS = [[[0.6, 0.4], [0.7, 0.3]], [[0.3, 0.5, 0.2]]]


def test_identifiability_of_cross_attention_by_hand():
    cell = identifiable([[0.4, 0.2], [0.0]], LOW, HIGH, WEIGHTS)
    check_section(translation.CROSS_IDENTIFIABILITY, cell)
    # of the heaviest words: 0..0.8 and 0.5..0.9 of the first pair, 0..0.5 of the second
    expected = {"tvd": [0.3, 0], "top": [0.65, 0.5], "low": [0.25, 0], "high": [0.85, 0.5], "zero": [0.5, 1]}
    expected |= {"width": [0.6, (0.8 + 0.5 + 0.4) / 3], "change": [1e-7, 3e-7], "tvd layer 0, predicting": [0.3, 0]}
    check_numbers(
        translation.cross_identifiability(cell), {f"cross_identifiability_{name}": of for name, of in expected.items()}
    )
    text = " ".join(render.sentences(translation.CROSS_IDENTIFIABILITY, cell))
    assert "distance of 0.150 on average" in text and "0.57 on average, could be anything from 0.12 to 0.68" in text
    label = translation.CROSS_IDENTIFIABILITY.quantity("cross_identifiability_tvd layer 0, predicting").label
    assert label == "TVD reached layer 0, predicting"
    determined = identifiable([[0.0, 0.0], [0.0]], WEIGHTS, WEIGHTS)
    (text,) = render.sentences(translation.CROSS_IDENTIFIABILITY, determined)
    assert text == "In every row that predicts a target word attention is the only one."


# ---------- columns of one's own, and sections in one more file


def test_a_number_that_no_section_reads_has_a_row(build_record):
    own = {"my_number": records.Column((), "float64", doc="mine")}
    cell = one_cell(appended(build_record([{"attention": [1.0]}] * 3), own, my_number=[1.0, np.nan, 4.0]))
    row = whole(sections.registry()["columns"], cell).loc["my_number"]
    assert (row["n"], row["n_undefined"], row["mean"]) == (2, 1, 2.5)


MODULE = """
import numpy as np
from attnfaith.reporting.spec import Quantity, Section

SECTION = Section(
    name="weights",
    needs=("attention",),
    per_text=lambda cell: {"largest": np.array([row.max() if len(row) else np.nan for row in cell.attention], float)},
    quantities={"largest": Quantity("largest <weight>", above=0.6)},
    caption="Largest <weights>",
    sentences=("On average {largest.mean:.2f} & more, above in {largest.share:.0%}.",),
)
"""


@pytest.fixture
def one_file_more(tmp_path, monkeypatch):
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "weights.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(folder)])
    sections.registry.cache_clear()
    yield
    sections.registry.cache_clear()
    sys.modules.pop("attnfaith.reporting.sections.weights", None)


@pytest.mark.usefixtures("one_file_more", "quick_figures")
def test_a_section_is_one_file(tmp_path, build_record):
    record = build_record([{"attention": weights} for weights in ([0.5, 0.5], [1.0], [0.2, 0.8], [0.25] * 4, [])])
    assert list(sections.registry())[-1] == "weights"
    index = write_report(record, tmp_path / "report", facts={})
    saved = pd.read_parquet(index.parent / "tables" / "summary.parquet").set_index("quantity").loc["largest"]
    assert saved["mean"] == pytest.approx((0.5 + 1 + 0.8 + 0.25) / 4) and saved["n_undefined"] == 1
    html = index.read_text(encoding="utf-8")
    assert "On average 0.64 &amp; more, above in 50%." in html and "largest &lt;weight&gt;" in html
    cells = [one_cell(record), one_cell(build_record([{"attention": [1.0]}], seed=1))]
    tables = study_tables(cells, ["weights"])
    assert set(tables) == {"summary", "summary_over_seeds"} and set(tables["summary"]["section"]) == {"weights"}
    spread = tables["summary_over_seeds"].set_index(["quantity", "statistic"])
    assert spread.loc[("largest", "mean"), "n_seeds"] == 2
