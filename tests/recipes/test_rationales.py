"""Selections over seeds beside attention of the same size, on records whose numbers are known."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.measurement.registry import find
from attnfaith.reporting import leakage
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import split_cells
from attnfaith.stats import over_seeds_and_texts
from recipes.rationales import analysis
from tests import records as made


TEXTS = 30
HIT = {"attention": 0.2, "hardkuma": 0.9}
SEEDS = (1, 2, 3, 4, 5)


def cell(kind, seed):
    """A model of texts of ten tokens, the first of which is marked; it ranks that first in a known share of the texts."""
    random = np.random.default_rng([seed, kind == "attention"])
    hits = random.random(TEXTS) < HIT[kind]
    texts = [
        {"attention": np.eye(10)[0 if hit else 4], "gold": np.eye(10)[0], "probs": [0.2, 0.8], "label": number % 2}
        for number, hit in enumerate(hits)
    ]
    fields = {}
    if kind != "attention":
        fields = {"selection_kind": kind, "selection_threshold": 0.0, "selection_reads": "zeroed", "selection_target": 0.1}
        fields |= {"selection_pooling": "average", "selection_vectors_shared": True, "selection_encoder": "bilstm"}
        fields |= {"attention_kind": "selection", "alignment": "selector", "projection": kind}
        fields |= {"objective": "classification(selected 0.1)"}
    table = made.build(texts, seed=seed, rationale=True, encoder="bilstm", **fields)
    sizes = [0.1, 0.2] if kind == "attention" else [0.0, 0.1, 0.2]
    chosen = [[text["attention"] > 0] * len(sizes) for text in texts]
    columns = {
        "selection_measures": [["attention"] * len(sizes)] * TEXTS,
        "selection_shares": [sizes] * TEXTS,
        "selection_chosen": chosen,
        "selection_kept_probs": [[[0.2, 0.8]] * len(sizes)] * TEXTS,
        "selection_removed_probs": [[[0.5, 0.5]] * len(sizes)] * TEXTS,
    }
    declared = {name: find("selection").columns[name] for name in columns}
    if kind != "attention":
        columns |= {"selected": [row[0] for row in chosen], "selection": [text["attention"] for text in texts]}
        declared |= {name: records.OPTIONAL_COLUMNS[name] for name in ("selected", "selection")}
    for name, values in columns.items():
        field = declared[name].field(name)
        lists = [np.asarray(value).tolist() for value in values]
        table = table.append_column(field, pa.array(lists, field.type))
    return split_cells(table)[0], hits


@pytest.fixture(scope="module")
def measured():
    pairs = {(kind, seed): cell(kind, seed) for kind in HIT for seed in SEEDS}
    tables = analysis.tables([drawn for drawn, _ in pairs.values()], Settings()).tables
    hits = {kind: np.array([pairs[kind, seed][1] for seed in SEEDS], float) for kind in HIT}
    return tables, hits


def row(table, **values):
    matches = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    (record,) = table[matches].to_dict("records")
    return record


def without_each(numbers):
    """The mean over seeds when one text is left out."""
    return np.array([np.delete(numbers, place, axis=1).mean() for place in range(TEXTS)])


def test_means_are_over_seeds_and_texts_with_an_interval_over_both(measured):
    tables, hits = measured
    for kind, numbers in hits.items():
        line = row(tables["budgets"], model=kind, size="10%", statistic="token_f1")
        by_hand = over_seeds_and_texts(numbers.mean(1), without_each(numbers))
        assert (line["n_seeds"], line["n_texts"], line["n_undefined"]) == (5, 5 * TEXTS, 0)
        np.testing.assert_allclose([line["mean"], line["ci_low"], line["ci_high"]], by_hand[:3])
    assert row(tables["models"], model="attention", statistic="accuracy")["mean"] == pytest.approx(0.5)
    precise = row(tables["models"], model="attention", statistic="auprc_attention")
    assert precise["mean"] == pytest.approx((hits["attention"] + 0.1 * (1 - hits["attention"])).mean())
    own = row(tables["models"], model="hardkuma", statistic="selection_f1")
    assert own["mean"] == pytest.approx(hits["hardkuma"].mean()) and own["budget"] == "10%"


def test_a_selector_is_compared_with_attention_at_the_share_that_it_aims_at(measured):
    tables, hits = measured
    budgets = tables["budgets"]
    line = row(budgets, model="hardkuma", size="10%", statistic="token_f1")
    gain = hits["hardkuma"] - hits["attention"]
    by_hand = over_seeds_and_texts(gain.mean(1), without_each(gain))
    np.testing.assert_allclose([line["difference"], line["diff_low"], line["diff_high"], line["p_value"]], by_hand)
    assert line["verdict"] == "higher" and line["diff_seeds"] == 5
    equal = row(budgets, model="hardkuma", size="10%", statistic="sufficiency")
    assert equal["difference"] == 0 and equal["verdict"] == "cannot be told"
    assert set(budgets[budgets["model"] == "hardkuma"]["size"]) == {"own", "10%"}
    assert set(budgets[budgets["model"] == "attention"]["size"]) == {"10%", "20%"}
    untold = budgets[budgets["verdict"] == ""]
    assert set(untold["model"] + untold["size"]) == {"attention10%", "attention20%", "hardkumaown"}
    alone = analysis.tables([cell("hardkuma", 1)[0], cell("attention", 1)[0]], Settings()).tables["budgets"]
    assert set(alone["verdict"]) == {"", "cannot be told"}, "one seed"


def test_places_of_the_section_counted_over_seeds(measured):
    tables, _ = measured
    places = tables["places"]
    assert list(places["of"]) == ["gold label", "predicted class"] and set(places["model"]) == {"hardkuma"}
    label, predicted = places.to_dict("records")
    assert label["n_seeds"] == 5 and label["n_texts"] == 5 * TEXTS and 0 <= label["told"] <= 5
    assert label["difference"] == pytest.approx(label["places"] - label["lengths"])
    assert 0 < label["p_least"] <= label["p_most"] <= 1
    assert predicted["n_texts"] == 0 and np.isnan(predicted["difference"]) and predicted["told"] == 0  # one class alone


def test_other_kinds_of_texts_do_not_change_what_stands():
    """With the least p-value of 999 permutations, six models of five seeds can be told; so they can beside others."""
    kinds = [{"dataset": "planted_evidence", "evidence": kind, "of": of} for kind in "ab" for of in ("label", "class")]
    rows = pd.DataFrame([kind for kind in kinds for _ in range(6)] + [{"dataset": "sst", "of": "label"}] * 6)
    least = 1 / (1 + leakage.PERMUTATIONS)
    of_row = np.where(np.arange(len(rows)) < 6, least, 0.5)
    tests = pd.DataFrame([(row, p) for row, p in enumerate(of_row) for _ in range(5)], columns=["row", "p_value"])
    tests.loc[len(tests) - 1, "p_value"] = np.nan
    assert analysis.tests_that_stand(rows, tests).tolist() == [5] * 6 + [0] * (len(rows) - 6)
