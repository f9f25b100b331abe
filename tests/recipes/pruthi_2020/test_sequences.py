"""Pruthi et al.'s sequence tasks beside ours: the numbers by hand, and the published ones that they stand beside."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnfaith import record
from attnfaith.record import Column
from attnfaith.record.io import with_settings
from attnfaith.reporting.analysis import Settings, load_analysis
from attnfaith.reporting.cells import split_cells


FOLDER = Path(__file__).parents[3] / "recipes" / "pruthi_2020"
ATTENTION = {"alignment_attention_mean": Column(("L", "R", "G", "T")), "gold_links": record.OPTIONAL_COLUMNS["gold_links"]}


@pytest.fixture(scope="module")
def analysis():
    return load_analysis(FOLDER / "sequences_analysis.py")


def cell(dataset="copy", seed=1, penalty=0.0, projection="softmax", weight=0.5, accuracy=0.9, bleu=None):
    """A cell of one pair of two words each, whose linked words get `weight` in the row that predicts."""
    identity = record.Identity(
        dataset, "0" * 12, "test", seed, projection=projection, impermissible_mass=penalty, objective="translation"
    )
    weights = np.full((1, 2, 2, 2), 0.25, np.float32)
    weights[0, 0] = [[weight, 0.1], [0.1, weight]]
    columns = {
        "instance_id": ["a"],
        **record.as_columns(identity, 1),
        "tokens": [["x", "y"]],
        "target_tokens": [["X", "Y"]],
        "truncated": [False],
        "target_probs": [np.array([0.5, 0.5], np.float32)],
    }
    extra = {} if projection == "none" else ATTENTION
    if extra:
        columns |= {"alignment_attention_mean": [weights], "gold_links": [np.array([[2, 0], [0, 1]])]}
    scores = {"word_accuracy": accuracy, "bleu": bleu}
    settings = {"identity": dict(vars(identity)), "run": {"translation": scores}}
    table = record.build(columns, extra)
    return split_cells(with_settings(table, [settings]))[0]


def test_numbers_by_hand(analysis):
    cells = [cell(seed=1), cell(seed=2, weight=0.7, accuracy=0.7), cell(penalty=1.0, weight=0.0), cell(projection="none")]
    made = analysis.over_seeds(cells).set_index(["encoder", "penalty", "statistic"])["measured"]
    dot, hidden, none = (f"gru sequence to sequence, {kind} attention" for kind in ("dot", "manipulated", "none"))
    assert made[dot, 0.0, "accuracy"] == pytest.approx(0.8)
    assert made[dot, 0.0, "impermissible_mass"] == pytest.approx((1.0 + 1.4) / 2 / 3), "the end of the sentence counts"
    assert made[hidden, 1.0, "impermissible_mass"] == 0
    assert (none, 0.0, "impermissible_mass") not in made


def test_published_numbers_stand_beside_ours(analysis):
    settings = Settings(published=FOLDER / "published.csv")
    made = analysis.tables([cell(), cell("multi30k_links", bleu=20.0, weight=0.2)], settings).tables
    beside = made["sequences_beside_published"].set_index(["dataset", "encoder", "penalty", "statistic"])
    dot = "gru sequence to sequence, dot attention"
    row = beside.loc[("sequence_copy", dot, "0.0", "accuracy")]
    assert (row["published"], row["measured"], row["n_seeds"]) == (0.999, 0.9, 1)
    assert row["difference"] == pytest.approx(-0.099)
    assert beside.loc[("multi30k_en_de", dot, "0.0", "bleu"), "measured"] == 20
    assert set(beside.index.get_level_values("dataset")) == {"sequence_copy", "multi30k_en_de"}, "of what was measured"
    assert pd.isna(beside.loc[("sequence_copy", dot.replace("dot", "uniform"), "0.0", "accuracy"), "measured"])
    assert len(made["sequences"]) == 2
    assert analysis.tables([], settings).tables == {}
