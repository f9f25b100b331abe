"""The contract of every section of a report, and numbers of single texts that are worked out by hand."""

import functools
import sys

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import study_tables
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.page import write_report
from attnfaith.reporting.sections import adversary, attention, changes, translation
from tests.records import build, draw
from tests.sections import (
    NAN,
    appended,
    check_section,
    drawn_texts,
    hidden_words,
    identifiable,
    stack_of_maps,
    whole,
    with_permutations,
    with_selection,
)
from tests.sequence_records import columns


# ---------- records


def permuted():
    """Largest weight .5, .25, .5 and 1, then a text of one token and one without tokens; changes are written beside."""
    weights = ([0.5, 0.5], [0.25] * 4, [0.5, 0.3, 0.2], [1.0, 0.0], [1.0], [])
    probs = ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [0.9, 0.1])
    draws = (
        [[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]],  # 0, .3, .8
        [[0.2, 0.8], [0.185, 0.815], [0.215, 0.785]],  # 0, .015, .015
        [[0.58, 0.42], [0.57, 0.43]],  # .02, .03
        [[0.9, 0.1]],  # .6
        *([], []),
    )
    return with_permutations(build([{"attention": a, "probs": p} for a, p in zip(weights, probs, strict=True)]), draws)


def signed():
    return build([{"attention": [0.5, 0.5], "lrp": lrp} for lrp in ([-1.0, 1.0], [2.0, 2.0])], measures=("lrp",))


def random_places():
    """Predictions .1 and .7 away, and .1 away; then a text of one token and one without tokens."""
    probs = [[[0.7, 0.3], [0.1, 0.9]], [[0.3, 0.7]], [], []]
    own, weights = [[0.8, 0.2], [0.2, 0.8], [0.9, 0.1], [0.9, 0.1]], [[0.5, 0.5, 0], [0.4, 0.6], [1.0], []]
    texts = [{"attention": a, "probs": p} for a, p in zip(weights, own, strict=True)]
    return appended(build(texts), "random_support", random_support_probs=probs)


TEXTS = [
    {"attention": [0.5, 0.5, 0, 0], "gold": [1, 1, 0, 0], "probs": [0.1, 0.9], "label": 1},
    {"attention": [0.25] * 4, "gold": [0, 0, 0, 1], "probs": [0.8, 0.2], "label": 1},
    {"attention": [1.0, 0], "gold": [1, 0], "probs": [0.6, 0.4], "label": 0},
    {"attention": [0.0, 0.4, 0.6], "gold": [0, 0, 0], "probs": [0.3, 0.7]},
    {"attention": []},
]
SELECTED = [[True, False, True, False], [False] * 4, [True, True], [False, True, True], []]


def selecting():
    own = [text.get("probs", [0.4, 0.6]) for text in TEXTS]
    own[1] = [0.3, 0.7]  # right without a word that is marked, as its complement is not
    complement = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]
    return with_selection(build(TEXTS, rationale=True), SELECTED, complement, own)


def budgets():
    """The predicted classes are 1 (0.9) and 0 (0.8), the labels 1 and 1."""
    return appended(
        build(TEXTS[:2], rationale=True),
        "selection",
        selection_measures=[["attention", "gradient"]] * 2,
        selection_shares=[[0.0, 0.2]] * 2,
        selection_chosen=[[[True, False, False, False], [False, False, True, True]], [[False] * 4, [False] * 4]],
        selection_kept_probs=[[[0.3, 0.7], [0.8, 0.2]], [[0.7, 0.3], [NAN, NAN]]],
        selection_removed_probs=[[[0.6, 0.4], [0.2, 0.8]], [[0.1, 0.9], [NAN, NAN]]],
    )


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
LOW, HIGH = [[[0.0, 0.2], [0.5, 0.1]], [[0.1, 0.0, 0.0]]], [[[0.8, 1.0], [0.9, 0.5]], [[0.9, 0.5, 0.4]]]
WEIGHTS = [[[0.6, 0.4], [0.7, 0.3]], [[0.3, 0.5, 0.2]]]


def pairs(extra=CROSS):
    values = columns(PAIRS, measures={name: column for name, (_, column) in extra.items()})
    values["target_probs"] = [[0.8, 0.6], [0.4]]
    return records.build(values, {name: records.Column(axes, "float64") for name, (axes, _) in extra.items()})


def cross_identifiable():
    """One layer, one head, both rows alike."""

    def both(values):
        return [np.array(row, float)[None, None, None].repeat(2, 2) for row in values]

    axes, start = ("L", "A", "R", "G", "T"), "cross_identifiability_"
    extra = {f"{start}low": (axes, both(LOW)), f"{start}high": (axes, both(HIGH))}
    return pairs({**extra, "alignment_attention": (axes, both(WEIGHTS))})


RECORDS = {
    record: (build_record, names.split())
    for record, build_record, names in (
        ("drawn", drawn_texts, "agreement plausibility performance dispersion permutation selection leakage"),
        ("words", hidden_words, "group_mass permissible_only frozen_flip_set sign_violations"),
        ("maps", stack_of_maps, "map_permutation map_uniform map_erasure aopc_limits"),
        ("identifiable", identifiable, "identifiability"),
        ("permuted", permuted, "permutation"),
        ("states", lambda: draw(30, measures=("gradient_norm", "gradient_norm_hidden")), "dispersion"),
        ("random_places", random_places, "random_support"),
        ("signed", signed, "dispersion"),
        ("selecting", selecting, "selection"),
        ("budgets", budgets, "selection_budgets"),
        ("cross", pairs, "cross_interventions"),
        ("cross_identifiable", cross_identifiable, "cross_identifiability"),
    )
}


@functools.cache
def cell_of(record):
    return one_cell(RECORDS[record][0]())


@pytest.mark.parametrize(("record", "name"), [(key, name) for key, (_, names) in RECORDS.items() for name in names])
def test_every_section_holds_its_contract(record, name):
    check_section(sections.registry()[name], cell_of(record))


# ---------- numbers by hand, of each text


NUMBERS = {
    "permuted": {"permutation_tvd": [0.3, 0.015, 0.025, 0.6, NAN, NAN], "permutation_flips": [1 / 3, 0, 0, 1, NAN, NAN]},
    "signed": {"entropy lrp": [NAN, 1], "support lrp": [NAN, 2], "zeros lrp": [NAN, 0]},  # no share is below 0
    "random_places": {"random_support_tvd": [0.4, 0.1, NAN, NAN], "random_support_flips": [0.5, 0, NAN, NAN]},
    "words": {
        "group_mass_impermissible": [0.72, NAN, NAN, NAN],
        "group_mass_noun": [0.2, 0.5, 0.3, NAN],
        "group_mass_head_max_markers": [0.2, 0.3, 0.4, NAN],
        "value_norm_share": [0.9, NAN, NAN, NAN],
        "permissible_only_tvd": [0.5, NAN, NAN, NAN],
        "permissible_only_flips": [1, NAN, NAN, NAN],
        "frozen_flip_set_flips": [1, 0, NAN, NAN],
        "sign_violated_by_attention": [1, 0, 0, NAN],
        "sign_violated_by_lime": [0, 0, NAN, NAN],  # 0 has no sign
    },
    "maps": {
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
        "map_erasure_flip_fraction_random": [1, 1, NAN, NAN],
        "map_erasure_mass_gradient": [0.2, NAN, NAN, NAN],
        "map_adversary_jsd": [0.05, 0.4, NAN, NAN],
        "naopc_attention": [0.5, 0.5, NAN, NAN],
        "naopc_gradient": [0, NAN, NAN, NAN],
    },
    "identifiable": {"identifiability_width": [0.7, 0, 0.42, NAN, NAN]},
    "selecting": {  # nothing selected stays in the denominators; the papers' rule is a number of its own
        "share_selected": [0.5, 0, 1, 2 / 3, NAN],
        "spans_selected": [2, 0, 1, 1, NAN],
        "nothing_selected": [0, 1, 0, 0, NAN],
        "everything_selected": [0, 0, 1, 0, NAN],
        "selection_correct": [1, 1, 1, NAN, NAN],
        "complement_correct": [0, 0, 1, NAN, NAN],
        "complement_same": [0, 1, 1, 1, NAN],
        "selection_precision": [0.5, NAN, 0.5, NAN, NAN],
        "selection_recall": [0.5, 0, 1, NAN, NAN],
        "selection_f1": [0.5, 0, 2 / 3, NAN, NAN],
        "selection_f1_papers": [0.5, NAN, 2 / 3, NAN, NAN],
        "selection_iou_f1": [2 / 3, 0, 1, NAN, NAN],
        "selection_auprc": [0.5, 0.25, 0.5, NAN, NAN],  # equal values pass together
        "marked_selected": [1, 0, 1, NAN, NAN],
        "unmarked_correct": [NAN, 1, NAN, NAN, NAN],
    },
    "budgets": {
        "sufficiency as many as selected attention": [0.2, 0.1],
        "comprehensiveness as many as selected attention": [0.5, 0.7],
        "correct as many as selected attention": [1, 0],
        "rest_correct as many as selected attention": [0, 1],
        "token_f1 as many as selected attention": [2 / 3, 0],
        "sufficiency 20% gradient": [0.9 - 0.2, NAN],
        "correct 20% gradient": [0, NAN],
        "token_f1 20% gradient": [0, NAN],
    },
    "cross": {
        "cross_permutation_probability": [0.45, 0.2],
        "cross_permutation_probability_drop": [0.25, 0.2],
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
    },
    "cross_identifiable": {  # of the heaviest words: 0..0.8 and 0.5..0.9 of the first pair, 0..0.5 of the second
        "cross_identifiability_top": [0.65, 0.5],
        "cross_identifiability_low": [0.25, 0],
        "cross_identifiability_high": [0.85, 0.5],
        "cross_identifiability_zero": [0.5, 1],
        "cross_identifiability_width": [0.6, (0.8 + 0.5 + 0.4) / 3],
        "cross_identifiability_low layer 0, predicting": [0.25, 0],
    },
}


@pytest.mark.parametrize("record", NUMBERS)
def test_numbers_of_each_text_by_hand(record):
    cell = cell_of(record)
    numbers = {name: values for section in sections.of_cell(cell) for name, values in section.numbers(cell).items()}
    for name, expected in NUMBERS[record].items():
        np.testing.assert_allclose(numbers[name], expected, atol=1e-6, err_msg=name)


SUMMARIES = {  # of quantities, their means, or another column of `summary`
    ("words", attention.GROUP_MASS): {
        "group_whole_impermissible": (0.72 + 0 + 1) / 3,  # as published means have it
        "group_tokens_impermissible": 2 / 3,
        "group_tokens_markers": NAN,
    },
    ("words", sections.COLUMNS): {"conicity_absolute": 0.7},
    ("words", changes.SIGN_VIOLATIONS): {"effect_of_lime": (-0.3 + 0.0 + 0.1) / 3},
    ("maps", changes.AOPC_LIMITS): {"aopc_limit_exact": 2 / 3},
    ("maps", sections.COLUMNS): {("marker_attention", "share_beyond"): 0.5},
    ("permuted", changes.PERMUTATION): {("permutation_tvd", "share_beyond"): 0.5},
    ("identifiable", adversary.IDENTIFIABILITY): {
        **{"tvd": 0.76 / 3, "bound": 0.3, "exact": 2 / 3, "weight": 1.51 / 3, "low": 0.85 / 3, "high": 1.97 / 3},
        **{"top_attention": 2.51 / 3, "top_low": 0.6, "support": 7 / 3},
        **{(name, "share_beyond"): 1 / 3 for name in ("tvd", "low")},  # determined, could be 0
    },
}


@pytest.mark.parametrize(("record", "section"), SUMMARIES)
def test_the_summary_of_a_record_by_hand(record, section):
    rows = whole(section, cell_of(record)).rename(lambda name: name.removeprefix("identifiability_"))
    for name, expected in SUMMARIES[record, section].items():
        quantity, column = (name, "mean") if isinstance(name, str) else name
        assert rows.loc[quantity, column] == pytest.approx(expected, rel=1e-5, nan_ok=True), name


# ---------- columns of one's own, and sections in one more file


def test_a_number_that_no_section_reads_has_a_row():
    own = {"my_number": records.Column((), "float64", doc="mine")}
    cell = one_cell(appended(build([{"attention": [1.0]}] * 3), own, my_number=[1.0, np.nan, 4.0]))
    row = whole(sections.registry()["columns"], cell).loc["my_number"]
    assert (row["n"], row["n_undefined"], row["mean"]) == (2, 1, 2.5)


def test_sentences_hold_the_numbers_and_say_what_is_undefined():
    text = " ".join(adversary.IDENTIFIABILITY.sentences(cell_of("identifiable")))
    assert "in 33% of them. Left out because it is undefined: 2." in text
    text, *_ = adversary.IDENTIFIABILITY.sentences(one_cell(identifiable().slice(3)))
    assert text.endswith("undefined for all texts (2).")
    uniform = one_cell(pairs({name: CROSS[name] for name in ("cross_uniform_probs", "cross_uniform_tvd")}))
    assert len(translation.CROSS_INTERVENTIONS.sentences(uniform)) == 1
    no_draw = [np.zeros((0, 2)), np.array([[0.3], [0.1]])]  # of a single source word: undefined, and no warning
    no_draws = one_cell(pairs({f"cross_permuted_{name}": (("K", "G"), no_draw) for name in ("probs", "tvd")}))
    drops = translation.cross_interventions(no_draws)["cross_permutation_probability_drop"]
    np.testing.assert_allclose(drops, [NAN, 0.2])


MODULE = """
import numpy as np
from attnfaith.reporting.spec import Quantity, Section

SECTION = Section(
    name="weights",
    needs=("attention",),
    per_text=lambda cell: {"largest": np.array([row.max() for row in cell.attention], float)},
    quantities={"largest": Quantity("largest <weight>", above=0.6)},
    caption="Largest <weights>",
    lead=("largest",),
)
"""


@pytest.mark.usefixtures("quick_figures")
def test_a_section_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "weights.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    sections.registry.cache_clear()
    try:
        assert list(sections.registry())[-1] == "weights"
        record = build([{"attention": weights} for weights in ([0.5, 0.5], [1.0], [0.2, 0.8], [0.25] * 4)])
        html = write_report(record, tmp_path / "report").read_text(encoding="utf-8")
        tables = study_tables([*split_cells(record), *split_cells(build([{"attention": [1.0]}], seed=1))], ["weights"])
    finally:
        sections.registry.cache_clear()
        sys.modules.pop("attnfaith.reporting.sections.weights")
    assert "largest &lt;weight&gt; 0.63" in html and "above 0.6 in 50% of them" in html
    summary = tables["summary_over_seeds"].set_index(["quantity", "statistic"])
    assert summary.loc[("largest", "mean"), "n_seeds"] == 2
