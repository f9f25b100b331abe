"""Tests x models on planted evidence: pairs found by what they were trained on, and numbers by hand."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from attnfaith.reporting.analysis import Analysis, Settings, load_analysis
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.figures import save_figure


planted = load_analysis(Path(__file__).parents[3] / "recipes" / "planted_evidence" / "analysis.py")


WHOLE = "generated-1(distractors=2,length=[10, 30],seed=0)"
BARE = "generated-1(distractors=2,evidence_removed=['train', 'validation'],length=[10, 30],seed=0)"


@pytest.fixture
def cells(draw_record):
    """Two seeds of each; the model that uses the evidence attends to it."""

    def make(number, revision, seed):
        # of the same lengths: draw_record draws texts by its seed, which is set afterwards
        record = draw_record(60, seed=0, rationale=True, dataset="planted_evidence", revision=revision)
        cell = split_cells(record)[0]
        cell.heading["seed"] = seed
        if revision == WHOLE:
            gold = [row.copy() for row in planted.records.rows(cell.table, "rationale")]
            cell.attention = [(marks + 0.01) / (marks + 0.01).sum() for marks in gold]
        return cell

    return [make(number, revision, seed) for number, revision in enumerate((WHOLE, BARE)) for seed in (10, 11)]


def test_pairs_differ_in_the_evidence_of_their_training_alone(cells):
    found = planted.pairs(cells)
    assert [(one.heading["seed"], other.heading["seed"]) for one, other in found] == [(10, 10), (11, 11)]
    assert [planted.without_evidence(cell) for pair in found for cell in pair] == [False, True] * 2
    assert planted.pairs(cells[:2]) == [] and planted.tables(cells[:2], Settings()) == Analysis()
    cells[2].heading["encoder"] = "average"
    assert len(planted.pairs(cells)) == 1, "another encoder is no pair"
    alone = "generated-1(evidence_removed=['train'])"
    assert planted._REMOVED.sub("", alone) == "generated-1()"


def test_the_order_of_arguments_does_not_matter(cells):
    cells[0].heading["revision"] = "generated-1(distractors=2,seed=0)"
    cells[2].heading["revision"] = "generated-1(distractors=2,evidence_removed=['train'],seed=0)"
    assert len(planted.pairs(cells)) == 2


def test_a_test_that_sees_the_evidence_tells_the_models_apart(cells):
    table = planted.tests_table(cells).set_index(["seed", "statistic"])
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


def test_verdicts():
    many = np.linspace(0, 1, 200)
    assert planted._row(many + 2, many, np.full(200, 2.0) + many / 100)["tells_apart"] == "yes"
    assert planted._row(many - 2, many, np.full(200, -2.0) + many / 100)["tells_apart"] == "yes", "in either direction"
    barely = planted._row(many + 0.05, many, np.full(200, 0.05))
    assert barely["tells_apart"] == "barely" and 0.5 < barely["auc"] < 0.75
    assert planted._row(many, many, many - 0.5)["tells_apart"] == "no"
    nothing = planted._row(np.full(3, np.nan), many, np.full(3, np.nan))
    assert nothing["tells_apart"] == "undefined" and np.isnan(nothing["auc"]) and nothing["uses_n_undefined"] == 3


def test_over_seeds(cells):
    tables = planted.tables(cells, Settings()).tables
    rows = tables["planted_tests_over_seeds"].set_index("statistic")
    mass = rows.loc["attention on the evidence"]
    assert (mass["n_seeds"], mass["seeds_yes"], mass["seeds_no"], mass["same_direction"]) == (2, 2, 0, "yes")
    assert rows.loc["average precision of gradient", "same_direction"] == "no", "no difference has no direction"
    assert mass["auc_min"] <= mass["auc_mean"] <= mass["auc_max"]


def test_figure(cells, tmp_path):
    figure = planted.tables(cells, Settings()).figures["planted_tests"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[-1].startswith("tau attention–") and "attention on the evidence" in labels
    save_figure(figure, tmp_path / "planted")
