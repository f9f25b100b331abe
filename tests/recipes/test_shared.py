"""Helpers that the analyses of several papers share: by hand, and by the definitions of the statistics."""

import numpy as np
import pandas as pd
import pytest

from attnfaith.reporting.analysis import StudyError
from attnfaith.stats import over_seeds_and_texts
from recipes import shared
from tests.deception import model


TAU = "tau attention–gradient"


def honest(identity):
    return shared.replace(identity, impermissible_mass=0.0, impermissible_heads=None)


def test_twins_are_of_one_kind_and_seed():
    group = [model(1), model(2), model(2, 0.1), model(3, 0.1), model(2, 1.0), model(2, 1.0, encoder="embedding")]
    pairs = shared.twins(group, honest)
    assert [(list(pair.plain), pair.identity.impermissible_mass) for pair in pairs] == [([2], 0.1), ([2], 1.0)]
    assert pairs[0].plain[2] is group[1] and pairs[0].changed[2] is group[2]
    assert shared.twins(group[:2], honest) == []


def test_values_are_placed_by_text_and_estimated_over_seeds_and_texts():
    cells = [model(1), model(2)]
    short = type(cells[1])(cells[1].identity, cells[1].table.slice(0, 40))
    table = shared.values({1: cells[0], 2: short}, lambda cell: cell.probs[:, 0])
    assert table.shape == (2, 60) and np.isnan(table[1, 40:]).all()
    np.testing.assert_array_equal(table[0], cells[0].probs[:, 0])
    means = np.array([table[0].mean(), table[1, :40].mean()])
    without = [np.nanmean(np.delete(table, text, 1), axis=1).mean() for text in range(60)]
    assert shared.estimate(table) == pytest.approx(over_seeds_and_texts(means, np.array(without)))
    assert shared.mean_of_means(table) == pytest.approx(means.mean())
    columns = shared.summary(table)
    assert (columns["n_seeds"], columns["n_texts"], columns["n_undefined"]) == (2, 100, 20)
    seeds_apart = np.array([[1.0] * 60, [0.9] * 60])
    assert shared.estimate(seeds_apart).ci_high > 1 and shared.summary(seeds_apart, (0, 1))["ci_high"] == 1
    assert np.isnan(shared.estimate(np.full((2, 5), np.nan))).all() and np.isnan(shared.mean_of_means(table[:0]))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0.4, 0.05, 5), "up"),
        ((-0.4, 0.05, 5), "down"),
        ((0.4, 0.06, 5), "cannot be told"),
        ((0.4, 0.01, 4), "cannot be told"),
        ((0.4, np.nan, 5), "cannot be told"),
        ((np.nan, np.nan, 0), "undefined"),
    ],
)
def test_verdicts(numbers, expected):
    assert shared.verdict(*numbers, "up", "down") == expected


def test_published_numbers(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text("dataset,seed,value\nsst,1,0.5\nimdb,1,0.7\n")
    published = shared.for_stand_ins(shared.read_published(path, ["dataset", "value"], ["value"]), {"mine": "sst"})
    assert published["published_for"].tolist() == ["sst", "imdb", "sst"]
    measured = shared.over_seeds(pd.DataFrame({"dataset": ["mine", "mine"], "value": [0.5, 0.7]}), ["dataset"])
    joined = shared.join_published(published, measured, ["dataset"]).set_index("dataset")
    assert joined.loc["mine", ["published", "measured", "n_seeds"]].tolist() == [0.5, pytest.approx(0.6), 2]
    assert joined.loc["mine", "difference"] == pytest.approx(0.1) and np.isnan(joined.loc["imdb", "measured"])
    for stand_ins in ({"mine": "snli"}, {"imdb": "sst"}):
        with pytest.raises(StudyError, match="stand_ins"):
            shared.for_stand_ins(shared.read_published(path, []), stand_ins)
    path.write_text("dataset,value\nsst,high\n")
    for arguments in ((tmp_path / "none.csv", []), (path, ["source"]), (path, [], ["value"])):
        with pytest.raises(StudyError, match="published"):
            shared.read_published(*arguments)


def test_models_are_named_by_what_tells_them_apart():
    def names(*changes):
        plain = dict.fromkeys(shared.KIND, "x") | {"encoder": "bilstm", "vectors": "random(0.25)"}
        return [name for name, _ in shared.panels(pd.DataFrame([plain | change for change in changes]))]

    assert names({}) == ["bilstm"]
    assert names({"encoder": "bert(a)"}, {}) == ["bert", "bilstm"]
    assert names({}, {"projection": "y"}, {"encoder": "z"}) == ["bilstm · x", "bilstm · y", "z · x"]
    assert names({"vectors": "pretrained(a)"}, {"vectors": "pretrained(b)"}) == ["pretrained(a)", "pretrained(b)"]
    assert names({"texts": "a"}, {"texts": "b"}) == ["a", "b"]


def test_a_figure_has_every_interval_and_fills_the_marks_that_stand():
    rows = [
        ("first", "a", 0.9, 0.8, 1.0, True),
        ("first", "b", 0.4, 0.1, 0.7, False),
        ("second $x$", "a", *[np.nan] * 3, False),
    ]
    table = pd.DataFrame(rows, columns=["label", "series", "value", "ci_low", "ci_high", "stands"])
    (axes,) = shared.interval_figure([("a panel", table)], "Title", "subject", 10, reference=0.5).axes
    points = {line.get_xdata()[0]: line.get_markerfacecolor() for line in axes.lines if len(line.get_xdata()) == 1}
    assert points[0.4] == "white" and points[0.9] != "white" and len(points) == 2
    assert [len(part.get_segments()) for part in axes.collections] == [1, 1]


def test_a_table_of_a_page():
    rows = {"data": ["sst", "a|b"], "n": [5175, 3], "tau": [0.8, -0.06], "tau_std": [0.01, np.nan]}
    text = shared.page_table(pd.DataFrame(rows), {"data": "{data}", "n": "{n}", "τ": "{tau} ± {tau_std}"})
    assert text == "| data | n | τ |\n| --- | ---: | --- |\n| sst | 5,175 | .80 ± .01 |\n| a\\|b | 3 | −.06 |\n"
    assert shared.made_by([model(1), model(2)]) == "Numbers of 2 models by attnfaith ?, commit ?.\n"
