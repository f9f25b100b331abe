"""Helpers that the analyses of several papers share: by hand, and by the definitions of the statistics."""

import numpy as np
import pandas as pd
import pytest

from attnfaith.reporting.analysis import StudyError
from attnfaith.stats import over_seeds_and_texts
from recipes import pages, shared
from tests.deception import model


def test_twins_are_of_one_kind_and_seed():
    group = [model(1), model(2), model(2, 0.1), model(3, 0.1), model(2, 1.0), model(2, 1.0, encoder="embedding")]
    pairs = shared.twins(group, lambda own: shared.replace(own, impermissible_mass=0.0, impermissible_heads=None))
    weights = [shared.first(pair.changed).identity.impermissible_mass for pair in pairs]
    assert weights == [0.1, 1.0] and [list(pair.plain) for pair in pairs] == [[2], [2]]
    assert pairs[0].plain[2] is group[1] and pairs[0].changed[2] is group[2]


def test_values_are_placed_by_text_and_summed_up_over_seeds_and_texts():
    cells = [model(1), model(2)]
    short = type(cells[1])(cells[1].identity, cells[1].table.slice(0, 40))
    table = shared.values({1: cells[0], 2: short}, lambda cell: cell.probs[:, 0])
    assert table.shape == (2, 60) and np.isnan(table[1, 40:]).all()
    np.testing.assert_array_equal(table[0], cells[0].probs[:, 0])
    means = np.array([table[0].mean(), table[1, :40].mean()])
    without = [np.nanmean(np.delete(table, text, 1), axis=1).mean() for text in range(60)]
    expected = over_seeds_and_texts(means, np.array(without))
    columns = shared.answer(table)
    assert [columns[name] for name in ("mean", "ci_low", "ci_high", "p_value")] == pytest.approx(list(expected))
    assert (columns["n_seeds"], columns["n_texts"], columns["n_undefined"]) == (2, 100, 20)
    assert columns["std"] == pytest.approx(np.std(means, ddof=1))
    seeds_apart = np.array([[1.0] * 60, [0.9] * 60])
    assert shared.summary(seeds_apart)["ci_high"] > 1 and shared.summary(seeds_apart, (0, 1))["ci_high"] == 1
    assert np.isnan(shared.summary(np.full((2, 5), np.nan))["mean"]) and np.isnan(shared.mean_of_means(table[:0]))


def test_verdicts():
    undefined, numbers = (
        (np.nan, np.nan, 0),
        [(0.4, 0.05, 5), (-0.4, 0.05, 5), (0.4, 0.06, 5), (0.4, 0.01, 4), (0.4, np.nan, 5)],
    )
    words = [shared.verdict(*row, "up", "down") for row in (*numbers, undefined)]
    assert words == ["up", "down", *["cannot be told"] * 3, "undefined"]


def test_published_numbers_beside_measured_ones(tmp_path):
    (tmp_path / "published.csv").write_text("dataset,seed,value\nsst,1,0.5\nimdb,1,0.7\n")
    published = pages.read_published(tmp_path / "published.csv", ["dataset", "value"], ["value"])
    measured = pages.over_seeds(pd.DataFrame({"dataset": ["sst", "sst"], "value": [0.5, 0.7]}), ["dataset"])
    joined = pages.join_published(published, measured, ["dataset"])
    row = joined.set_index("dataset").loc["sst", ["published", "measured", "n_seeds", "difference"]]
    assert row.tolist() == pytest.approx([0.5, 0.6, 2, 0.1]) and np.isnan(joined["measured"][1])
    for arguments in ((tmp_path / "none.csv", []), (tmp_path / "published.csv", ["source"])):
        with pytest.raises(StudyError, match="published"):
            pages.read_published(*arguments)


def test_models_are_named_by_what_tells_them_apart():
    def names(*changes):
        plain = dict.fromkeys(shared.KIND, "x") | {"encoder": "bilstm", "vectors": "random(0.25)"}
        return [name for name, _ in pages.panels(pd.DataFrame([plain | change for change in changes]))]

    assert names({"encoder": "bert(a)"}, {}) == ["bert", "bilstm"]
    assert names({}, {"projection": "y"}, {"encoder": "z"}) == ["bilstm · x", "bilstm · y", "z · x"]
    assert names({"vectors": "pretrained(a)"}, {"vectors": "pretrained(b)"}) == ["pretrained(a)", "pretrained(b)"]


def test_a_table_of_a_page():
    rows = {"data": ["sst", "a|b"], "n": [5175, 3], "tau": [0.8, -0.06], "tau_std": [0.01, np.nan]}
    grid = pages.page_grid("Toys", pd.DataFrame(rows), {"data": "{data}", "n": "{n}", "τ": "{tau} ± {tau_std}"})
    assert grid.columns == ("data", "n", "τ") and grid.heads == 1
    assert grid.rows == (("sst", "5,175", ".80 ± .01"), ("a|b", "3", "−.06"))
