"""Tests x models on planted evidence: pairs found by what they were trained on, and numbers by hand."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from attnfaith import record as records
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import Cell, split_cells
from recipes.planted_evidence import analysis as planted
from tests.records import draw


WHOLE = {"distractors": 2, "length": [10, 30]}
BARE = {"length": [10, 30], "evidence_removed": ["train", "validation"], "distractors": 2}


def make(arguments, seed, **fields):
    """A cell of a model trained on texts of these arguments; one that uses the evidence attends to it."""
    # of the same lengths: texts are drawn by the seed, which is set afterwards
    (drawn,) = split_cells(draw(60, seed=0, rationale=True, dataset="planted_evidence"))
    identity = replace(drawn.identity, seed=seed, training_texts=f"{sorted(arguments.items())}", **fields)
    settings = [{"identity": asdict(identity), "recipe": {"data": {"arguments": arguments}}}]
    cell = Cell(identity, records.with_settings(drawn.table, settings))
    if "evidence_removed" not in arguments:
        gold = [row.copy() for row in records.rows(cell.table, "rationale")]
        rest = 0.01 * (seed % 10 + 1)
        cell.attention = [(marks + rest) / (marks + rest).sum() for marks in gold]

    return cell


SEEDS = (10, 11, 12, 13, 14)


@pytest.fixture
def cells():
    """Five seeds of each."""
    return [make(arguments, seed) for arguments in (WHOLE, BARE) for seed in SEEDS]


def test_pairs_differ_in_the_evidence_of_their_training_alone(cells):
    (pair,) = planted.pairs(cells)
    assert list(pair.changed) == list(pair.plain) == list(SEEDS)
    assert pair.changed[10] is cells[0] and pair.plain[10] is cells[5]
    assert planted.pairs(cells[:5]) == []
    assert planted.pairs([*cells[:5], make(BARE, 10, encoder="average")]) == [], "another encoder is no pair"
    assert planted.pairs([*cells[:5], make(BARE | {"distractors": 3}, 10)]) == [], "nor are other texts"


def test_a_test_that_sees_the_evidence_tells_the_models_apart(cells):
    results = planted.tables(cells, Settings()).tables
    table = results["planted_tests"].set_index("statistic")
    mass = table.loc["attention on the evidence"]
    assert mass["tells_apart"] == "yes" and mass["ci_low"] > 0 and mass["n_seeds"] == 5
    sides = [[planted.statistics(cell)["attention on the evidence"] for cell in part] for part in (cells[:5], cells[5:])]
    assert mass["uses"] == pytest.approx(np.nanmean(sides[0])) and mass["mean"] == pytest.approx(
        np.nanmean(sides[0]) - np.nanmean(sides[1])
    )
    areas = []
    for pair in zip(*sides, strict=True):
        uses, cannot = (side[~np.isnan(side)] for side in pair)
        areas.append(roc_auc_score(np.repeat([1, 0], [len(uses), len(cannot)]), np.concatenate([uses, cannot])))
    assert mass["auc"] == pytest.approx(np.mean(areas)) and np.mean(areas) > planted.APART
    same = table.loc["average precision of gradient"]
    assert (same["auc"], same["mean"], same["tells_apart"]) == (0.5, 0, "cannot be told"), "both hold the same gradient"
    evidence = results["evidence"].set_index("statistic")
    assert set(evidence["evidence"]) == {"one word"} and evidence.loc["attention on the evidence", "mean"] == mass["uses"]
