"""What reports say of selections: by hand, with nothing selected in all denominators, and by the papers' rule."""

import numpy as np
import pytest

from attnfaith.reporting import sections
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.render import frames, sentences
from attnfaith.reporting.sections import selection
from tests import records as made
from tests.sections import appended, with_selection


TEXTS = [
    {"attention": [0.5, 0.5, 0, 0], "gold": [1, 1, 0, 0], "probs": [0.1, 0.9], "label": 1},
    {"attention": [0.25] * 4, "gold": [0, 0, 0, 1], "probs": [0.8, 0.2], "label": 1},
    {"attention": [1.0, 0], "gold": [1, 0], "probs": [0.6, 0.4], "label": 0},
    {"attention": [0.0, 0.4, 0.6], "gold": [0, 0, 0], "probs": [0.3, 0.7]},
    {"attention": []},
]
SELECTED = [[True, False, True, False], [False] * 4, [True, True], [False, True, True], []]


@pytest.fixture(scope="module")
def table():
    own = [text.get("probs", [0.4, 0.6]) for text in TEXTS]
    complement = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]
    built = made.build(TEXTS, rationale=True)
    return with_selection(built, SELECTED, complement=complement, own=own)


def test_what_is_selected_by_hand(table):
    (cell,) = split_cells(table)
    values = selection.selection(cell)
    expected = {
        "share_selected": [0.5, 0, 1, 2 / 3, np.nan],
        "spans_selected": [2, 0, 1, 1, np.nan],
        "nothing_selected": [0, 1, 0, 0, np.nan],
        "everything_selected": [0, 0, 1, 0, np.nan],
        "selection_correct": [1, 0, 1, np.nan, np.nan],
        "complement_correct": [0, 0, 1, np.nan, np.nan],
        "complement_same": [0, 1, 1, 1, np.nan],
        "selection_precision": [0.5, np.nan, 0.5, np.nan, np.nan],
        "selection_recall": [0.5, 0, 1, np.nan, np.nan],
        "selection_f1": [0.5, 0, 2 / 3, np.nan, np.nan],
        "selection_iou_f1": [2 / 3, 0, 1, np.nan, np.nan],
        "selection_auprc": [0.5, 0.25, 0.5, np.nan, np.nan],  # equal values pass together
        "marked_selected": [1, 0, 1, np.nan, np.nan],
        "unmarked_correct": [np.nan, 0, np.nan, np.nan, np.nan],
    }
    assert set(values) == set(expected)
    for name, hand in expected.items():
        np.testing.assert_allclose(values[name], hand, err_msg=name)


def test_nothing_selected_stays_in_the_denominators_and_the_papers_rule_is_a_row_of_its_own(table):
    whole, papers = frames(selection.SELECTION, split_cells(table))["selection"].to_dict("records")
    assert (whole["over"], papers["over"]) == ("all", "with a selection (papers)")
    assert (whole["n"], whole["n_undefined"], papers["n"]) == (4, 1, 3)
    assert whole["nothing_selected_share"] == 0.25 and whole["everything_selected_share"] == 0.25
    assert papers["nothing_selected_share"] == 0
    assert whole["token_f1_mean"] == pytest.approx((0.5 + 0 + 2 / 3) / 3)
    assert papers["token_f1_mean"] == pytest.approx((0.5 + 2 / 3) / 2)
    assert whole["share_selected_mean"] == pytest.approx((0.5 + 0 + 1 + 2 / 3) / 4)
    assert whole["selection_accuracy"] == pytest.approx(2 / 3) and whole["complement_accuracy"] == pytest.approx(1 / 3)
    assert papers["complement_accuracy"] == 0.5
    assert whole["recall_mean"] == 0.5 and whole["precision_mean"] == 0.5 and whole["f1_of_means"] == 0.5
    assert papers["recall_mean"] == 0.75 and papers["f1_of_means"] == pytest.approx(0.6)
    assert whole["marked_selected_share"] == pytest.approx(2 / 3) and whole["unmarked_accuracy"] == 0
    assert papers["marked_selected_share"] == 1 and np.isnan(papers["unmarked_accuracy"])
    (cell,) = split_cells(table)
    said = " ".join(sentences(selection.SELECTION, cell))
    assert "54.2% of a text is selected" in said and "In 25.0% of the texts nothing is; they are in all means." in said
    assert "66.7% of the texts are classified rightly, from all other tokens 33.3%" in said


def test_a_record_without_marks_or_complement_has_the_rest():
    built = with_selection(made.build(TEXTS), SELECTED)
    (row, _) = frames(selection.SELECTION, split_cells(built))["selection"].to_dict("records")
    assert row["spans_mean"] == 1 and np.isnan(row["token_f1_mean"]) and np.isnan(row["complement_accuracy"])
    assert not selection.SELECTION.applies(split_cells(made.build(TEXTS))[0])


def budgets(names, shares, chosen, kept, removed, texts):
    table = made.build(texts, rationale=True)
    columns = {
        "selection_measures": [names] * len(texts),
        "selection_shares": [shares] * len(texts),
        "selection_chosen": chosen,
        "selection_kept_probs": kept,
        "selection_removed_probs": removed,
    }
    return appended(table, "selection", **columns)


def test_selections_of_one_size_by_hand():
    texts = TEXTS[:2]
    chosen = [[[True, False, False, False], [False, False, True, True]], [[False] * 4, [False] * 4]]
    kept = [[[0.3, 0.7], [0.8, 0.2]], [[0.7, 0.3], [np.nan, np.nan]]]
    removed = [[[0.6, 0.4], [0.2, 0.8]], [[0.1, 0.9], [np.nan, np.nan]]]
    table = budgets(["attention", "gradient"], [0.0, 0.2], chosen, kept, removed, texts)
    own, other = frames(selection.SELECTION_BUDGETS, split_cells(table))["selection_budgets"].to_dict("records")
    assert (own["size"], own["scores"], other["size"], other["scores"]) == (
        "as many as selected",
        "attention",
        "20%",
        "gradient",
    )
    assert own["n"] == 2 and other["n"] == 1 and other["n_undefined"] == 1
    # the predicted classes are 1 (0.9) and 0 (0.8), the labels 1 and 1
    assert own["sufficiency_mean"] == pytest.approx((0.9 - 0.7 + 0.8 - 0.7) / 2)
    assert own["comprehensiveness_mean"] == pytest.approx((0.9 - 0.4 + 0.8 - 0.1) / 2)
    assert own["accuracy"] == 0.5 and own["rest_accuracy"] == 0.5 and other["accuracy"] == 0 and other["rest_accuracy"] == 1
    assert own["token_f1_mean"] == pytest.approx((2 / 3 + 0) / 2) and other["token_f1_mean"] == 0


def test_what_places_tell_is_on_the_page():
    random = np.random.default_rng(0)
    texts, selected = [], []
    for number in range(120):
        label, length = number % 2, int(random.integers(6, 12))
        attention = random.dirichlet(np.ones(length))
        texts.append({"attention": attention, "probs": [1 - 0.8 * label, 0.8 * label], "label": label})
        row = np.zeros(length, bool)
        row[0 if label else -1] = True
        selected.append(row)
    (cell,) = split_cells(with_selection(made.build(texts), selected))
    gold, predicted = frames(selection.LEAKAGE, [cell])["leakage"].to_dict("records")
    assert (gold["of"], predicted["of"]) == ("gold label", "predicted class")
    assert gold["places_accuracy"] == 1 and gold["majority_accuracy"] <= 0.5 and gold["p_value"] == 0.001
    (said,) = sentences(selection.LEAKAGE, cell)
    assert "tells the label of 100.0% of 120 texts" in said and "they tell the label (p = 0.001)" in said
    assert {"selection", "leakage"} <= {section.name for section in sections.of_cell(cell)}
    few = split_cells(with_selection(made.build(texts[:10]), selected[:10]))[0]
    assert sentences(selection.LEAKAGE, few) == []
