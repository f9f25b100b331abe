"""Tests x models on planted evidence: pairs found by what they were trained on, and numbers by hand."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, split_cells
from recipes.planted_evidence import analysis as planted


WHOLE = {"distractors": 2, "length": [10, 30]}
BARE = {"length": [10, 30], "evidence_removed": ["train", "validation"], "distractors": 2}


@pytest.fixture
def make(draw_record):
    """A cell of a model trained on texts of these arguments; one that uses the evidence attends to it."""

    def cell(arguments, seed, **fields):
        # of the same lengths: draw_record draws texts by its seed, which is set afterwards
        (drawn,) = split_cells(draw_record(60, seed=0, rationale=True, dataset="planted_evidence"))
        identity = replace(drawn.identity, seed=seed, training_texts=f"{sorted(arguments.items())}", **fields)
        settings = [{"identity": asdict(identity), "recipe": {"data": {"arguments": arguments}}}]
        cell = Cell(identity, records.with_settings(drawn.table, settings))
        if "evidence_removed" not in arguments:
            gold = [row.copy() for row in records.rows(cell.table, "rationale")]
            cell.attention = [(marks + 0.01) / (marks + 0.01).sum() for marks in gold]
        return cell

    return cell


@pytest.fixture
def cells(make):
    """Two seeds of each."""
    return [make(arguments, seed) for arguments in (WHOLE, BARE) for seed in (10, 11)]


def test_pairs_differ_in_the_evidence_of_their_training_alone(make, cells):
    assert planted.pairs(cells) == [(cells[0], cells[2]), (cells[1], cells[3])]
    assert planted.pairs(cells[:2]) == [] and planted.tables(cells[:2], Settings()) == Analysis()
    assert len(planted.pairs([*cells[:2], make(BARE, 10, encoder="average"), cells[3]])) == 1, "another encoder is no pair"
    assert len(planted.pairs([*cells[:2], make(BARE | {"distractors": 3}, 10), cells[3]])) == 1, "nor are other texts"


def test_a_test_that_sees_the_evidence_tells_the_models_apart(cells):
    tables = planted.tables(cells, Settings()).tables
    table = tables["planted_tests"].set_index(["seed", "statistic"])
    mass = table.loc[(10, "attention on the evidence")]
    assert mass["tells_apart"] == "yes" and mass["auc"] > 0.9 and mass["ci_low"] > 0
    uses, cannot = (planted.instance_statistics(cells[place])["attention on the evidence"] for place in (0, 2))
    assert mass["uses_mean"] == pytest.approx(np.nanmean(uses)) and mass["cannot_mean"] == pytest.approx(np.nanmean(cannot))
    assert mass["difference"] == pytest.approx(np.nanmean(uses - cannot))
    assert mass["uses_n_undefined"] == np.isnan(uses).sum() > 0
    defined = [values[~np.isnan(values)] for values in (uses, cannot)]
    labels = np.repeat([1, 0], list(map(len, defined)))
    assert mass["auc"] == pytest.approx(roc_auc_score(labels, np.concatenate(defined)))
    same = table.loc[(10, "average precision of gradient")]
    assert (same["auc"], same["difference"], same["tells_apart"]) == (0.5, 0, "no"), "both hold the same gradient"
    rows = tables["planted_tests_over_seeds"].set_index("statistic")
    mass = rows.loc["attention on the evidence"]
    assert (mass["n_seeds"], mass["seeds_yes"], mass["seeds_no"], mass["same_direction"]) == (2, 2, 0, "yes")
    assert rows.loc["average precision of gradient", "same_direction"] == "no", "no difference has no direction"
    assert mass["auc_min"] <= mass["auc_mean"] <= mass["auc_max"]


@pytest.mark.parametrize(("above", "verdict"), [(73, "barely"), (75, "yes"), (27, "barely"), (25, "yes")])
def test_apart_is_an_auc_of_three_in_four(above, verdict):
    """So many of a hundred texts lie above all of the other model's, the rest below: that share is the AUC."""
    uses, cannot = np.where(np.arange(100) < above, 1.0, -1.0), np.zeros(100)
    row = planted.compared(uses, cannot, uses - cannot)
    assert row["auc"] == above / 100 and (row["ci_low"] > 0) == (above > 50) and (row["ci_high"] < 0) == (above < 50)
    assert row["tells_apart"] == verdict


def test_texts_apart_without_a_mean_apart_are_not():
    """Nineteen of twenty texts are larger by one, the last smaller by fifteen: some draws have a mean below 0."""
    cannot = np.linspace(0, 0.5, 20)
    uses = cannot + np.where(np.arange(20) < 19, 1.0, -15.0)
    row = planted.compared(uses, cannot, uses - cannot)
    assert row["auc"] == 0.95 and row["difference"] == pytest.approx(0.2) and row["ci_low"] < 0 < row["ci_high"]
    assert row["tells_apart"] == "no"
    nothing = planted.compared(np.full(3, np.nan), cannot, np.full(3, np.nan))
    assert nothing["tells_apart"] == "undefined" and np.isnan(nothing["auc"]) and nothing["uses_n_undefined"] == 3
