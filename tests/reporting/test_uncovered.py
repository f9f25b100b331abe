"""Deceiving models told from honest ones: where it is known who deceives, and where nobody does."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.reporting import attention_tests
from attnfaith.reporting.blocks import NAMING, short_names
from attnfaith.reporting.pairings import KEYS, pairings
from attnfaith.reporting.sections.uncovered import COLUMNS, figures, honest_twin, models_table, uncovered_table, verdict
from attnfaith.reporting.study import save_png, study_figures, study_tables
from attnfaith.stats import holm
from tests.deception import model, shuffled


SEEDS = (1, 2, 3)
NAMES = {"tau_gradient", "first_gradient", "from_uniform", "permutation", "minimal_flip_set", "impermissible", "confidence"}


def cells(seeds=SEEDS, **deceiving):
    return [model(seed) for seed in seeds] + [model(seed, 1.0, **deceiving) for seed in seeds]


def of_all(table):
    return table[table["seed"] == "all"].set_index("test")


def test_a_deceiving_model_is_uncovered_by_the_tests_that_see_what_it_hides():
    table = uncovered_table(cells(deceit=3.0))
    assert list(table.columns) == list(COLUMNS) and set(table["test"]) == NAMES
    every = of_all(table)
    assert (every["over"] == "seeds and texts").all() and (every["n_seeds"] == 3).all()
    told = every.loc[["tau_gradient", "first_gradient"]]
    assert (told["verdict"] == "uncovers").all() and (told["matched_verdict"] == "uncovers").all()
    assert (told["ci_low"] > 0.5).all() and (told["p_holm"] <= 0.05).all()
    assert every.loc["minimal_flip_set", "verdict"] == "cannot be told", "it is drawn alike in both"
    assert every.loc["impermissible", "auc"] > 0.9 and every.loc["impermissible", "verdict"] == "", "a control is no test"
    assert (every["p_holm"].isna() == (every["kind"] == "control")).all()
    tests = every[every["kind"] == "test"]
    for start in ("", "matched_"):
        np.testing.assert_allclose(tests[f"{start}p_holm"], holm(tests[f"{start}p_value"]))


def test_a_row_for_each_seed_speaks_of_its_two_models():
    table = uncovered_table(cells(deceit=3.0))
    parts = table[table["test"] == "tau_gradient"].set_index("seed")
    assert list(parts.index) == ["1", "2", "3", "all"]
    assert parts.loc["all", "auc"] == pytest.approx(parts["auc"].iloc[:3].mean())
    assert parts["over"].tolist() == ["texts"] * 3 + ["seeds and texts"] and (parts["verdict"].iloc[:3] == "").all()
    alone = of_all(uncovered_table(cells([2], deceit=3.0)))
    assert set(alone.loc[alone["kind"] == "test", "verdict"]) == {"one seed"}


def test_a_test_that_is_led_astray_is_called_misled_and_not_turned_round():
    """Attention of these deceiving models is further from equal weights, where a test expects it to be nearer."""
    every = of_all(uncovered_table(cells(deceit=-2.0)))
    assert every.loc["from_uniform", "verdict"] == "misled" and every.loc["from_uniform", "ci_high"] < 0.5
    assert every.loc["from_uniform", "mean_deceiving"] > every.loc["from_uniform", "mean_honest"]
    assert attention_tests.named("from_uniform").suspect == -1


def test_what_only_confidence_makes_is_gone_where_texts_are_matched():
    pair = [model(seed, weight, doubt=1.5 * weight, texts=200) for weight in (0.0, 1.0) for seed in SEEDS]
    every = of_all(uncovered_table(pair))
    assert every.loc["permutation", "verdict"] == "uncovers", "a model in doubt moves less"
    assert every.loc["permutation", "matched_verdict"] == "cannot be told"
    assert abs(every.loc["confidence", "matched_auc"] - 0.5) < 0.05 and every.loc["confidence", "auc"] > 0.8
    (row,) = models_table(pair).to_dict("records")
    assert row["imbalance"] < -1 and abs(row["imbalance_matched"]) < 0.05
    assert row["confidence_deceiving"] < row["confidence_honest"] and 0 < row["share_matched"] < 1
    assert row["accuracy_honest"] == pytest.approx(0.8, abs=0.1) and row["n_texts"] == 200


def test_undefined_texts_are_counted():
    every = of_all(uncovered_table(cells()))
    assert every.loc["tau_gradient", ["n_honest", "n_undefined_honest"]].tolist() == [3 * 58, 3 * 2]
    assert every.loc["impermissible", "n_undefined_deceiving"] >= 3 * 3, "no token, one token, no marked word"
    assert every.loc["minimal_flip_set", "n_honest"] == 3 * 58, "what never flips needs more than all"
    assert every.loc["confidence", "n_undefined_honest"] == 0


def test_no_order_of_rows_or_cells_matters():
    pair = cells(deceit=1.0)
    expected = uncovered_table(pair)
    again = uncovered_table([shuffled(cell, number) for number, cell in enumerate(pair)][::-1])
    pd.testing.assert_frame_equal(again, expected)
    pd.testing.assert_frame_equal(uncovered_table(pair), expected)


def test_models_of_one_kind_are_not_told_apart():
    """Studies of two kinds that are one: every model has some deceit and doubt of its own by chance."""
    told, p_values, studies = 0, [], 10
    for study in range(studies):
        group = [model(seed, weight, luck=0.7, name=100 * study, texts=30) for weight in (0.0, 1.0) for seed in SEEDS]
        table = of_all(uncovered_table(group)).query("kind == 'test'")
        told += table["verdict"].isin(["uncovers", "misled"]).any()
        p_values += table["p_value"].tolist()
    assert told <= 0.05 * studies + 3 * np.sqrt(0.05 * 0.95 * studies), "of a whole study, after the correction"
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(p_values))


def test_pairs_are_of_one_kind_and_seed():
    group = [model(1), model(2), model(2, 0.1), model(3, 0.1), model(2, 1.0), model(2, 1.0, encoder="embedding")]
    made = pairings(group, honest_twin)
    assert [(list(pairing.plain), pairing.identity.impermissible_mass) for pairing in made] == [([2], 0.1), ([2], 1.0)]
    assert made[0].plain[2] is group[1] and made[0].changed[2] is group[2]
    assert len(uncovered_table([model(1), model(2)])) == 0 and list(uncovered_table([]).columns) == list(COLUMNS)


def test_a_text_that_one_model_did_not_read_is_no_undefined_one():
    short = model(1, 1.0)
    short = type(short)(short.identity, short.table.slice(0, 40))
    row = of_all(uncovered_table([model(1), short])).loc["confidence"]
    assert (row["n_honest"], row["n_deceiving"], row["n_undefined_deceiving"]) == (60, 40, 0)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0.9, 0.05, 3), "uncovers"),
        ((0.1, 0.05, 3), "misled"),
        ((0.9, 0.06, 3), "cannot be told"),
        ((0.9, 0.01, 1), "one seed"),
        ((np.nan, np.nan, 0), "undefined"),
    ],
)
def test_verdicts(numbers, expected):
    assert verdict(*numbers) == expected


def test_a_study_that_names_it_has_its_tables_and_a_figure(tmp_path):
    group = [*cells(deceit=3.0), *(model(seed, 0.1, deceit=0.5) for seed in SEEDS)]
    tables = study_tables(group, ["uncovered"])
    assert set(tables) == {"uncovered", "uncovered_models"}, "they are over seeds already"
    figures = study_figures(group, ["uncovered"], tables)
    assert set(figures) == {"sst_wiki-uncovered"}
    (panel,) = figures["sst_wiki-uncovered"].axes
    assert {label.get_text() for label in panel.get_yticklabels()} == set(tables["uncovered"]["label"])
    values = {round(float(line.get_xdata()[0]), 6) for line in panel.lines if len(line.get_xdata()) == 1}
    shown = tables["uncovered"].query("seed == 'all'")
    assert values == {round(value, 6) for name in ("auc", "matched_auc") for value in shown[name]}
    assert save_png(figures["sst_wiki-uncovered"], tmp_path / "a.png").stat().st_size > 10_000
    honest = [model(seed) for seed in SEEDS]
    assert study_tables(honest, ["uncovered"]) == {} == study_figures(honest, ["uncovered"], {})


DIGESTS = ("0f3a5b7c9d1e", "a1b2c3d4e5f6")
KINDS = (
    {"encoder": "embedding", "vectors": "pretrained", "vectors_digest": DIGESTS[0]},
    {"encoder": "bilstm", "vectors": "pretrained", "vectors_digest": DIGESTS[0]},
    {
        **{"encoder": "bert", "model": "BertForSequenceClassification", "tokenizer_digest": DIGESTS[1], "level": "word"},
        **{"alignment": "self-attention", "reduction": "mean", "reduction_layers": "last", "training_texts": DIGESTS[1]},
    },
)


def heads(kinds):
    table = uncovered_table([model(seed, weight, **kind) for kind in kinds for weight in (0.0, 1.0) for seed in (1, 2)])
    figure = figures({"uncovered": table})["sst_wiki-uncovered"]
    return figure, [panel.get_title(loc="left") for panel in figure.axes]


def test_panels_are_named_by_what_tells_them_apart_alone():
    assert heads(KINDS)[1] == ["embedding", "bilstm", "bert"]
    assert heads(KINDS[1:2])[1] == ["bilstm"], "one panel has nothing to be told from"
    sparse = {**KINDS[1], "projection": "sparsemax"}
    assert heads([KINDS[1], sparse])[1] == ["softmax", "sparsemax"]
    assert heads([*KINDS[:2], sparse])[1] == ["embedding · softmax", "bilstm · softmax", "bilstm · sparsemax"]


def test_panels_that_differ_in_a_fingerprint_alone_say_it():
    other = {**KINDS[1], "vectors_digest": DIGESTS[1]}
    names = [name.replace("\n", "") for name in heads([KINDS[1], other])[1]]
    assert names == [f"pretrained({digest})" for digest in DIGESTS]
    trained = [{"encoder": "bert", "training_texts": digest} for digest in DIGESTS]
    assert heads(trained)[1] == list(DIGESTS)


def test_heads_of_panels_do_not_run_into_one_another(tmp_path):
    """Names as long as an identity can make them, laid out as for a file."""
    long = "an-organisation/an-encoder-with-a-long-name-of-many-parts-and-a-size"
    figure, names = heads([{"encoder": f"{long}-{number} $x$"} for number in "123"])
    assert all(name.count("\n") >= 1 and "$x$" in name for name in names)
    save_png(figure, tmp_path / "a.png")
    boxes = [panel._left_title.get_window_extent() for panel in figure.axes]
    assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:], strict=False))
    assert boxes[-1].x1 <= figure.bbox.x1


@settings(deadline=None)
@given(st.data())
def test_short_names_tell_all_models_apart_with_as_few_labels_as_will_do(data):
    label = st.sampled_from(["one", "two", "one(a)", "one(b)"])
    keys = data.draw(st.lists(st.sampled_from(NAMING), min_size=1, max_size=4, unique=True))
    rows = data.draw(st.lists(st.tuples(*[label] * len(keys)), min_size=1, max_size=5, unique=True))
    headings = [dict(zip(keys, row, strict=True)) for row in rows]
    names = short_names(headings, keys)
    assert len(set(names)) == len(headings)
    fewest = min(
        size
        for size in range(1, len(keys) + 1)
        for chosen in combinations(keys, size)
        if len({tuple(heading[key] for key in chosen) for heading in headings}) == len(headings)
    )
    prints = {"texts", "training_texts"} & set(keys)
    assert names[0].count(" · ") + 1 == fewest or prints, "a fingerprint gives way to more labels"
    assert set(NAMING) == set(KEYS), "every key has a place in the order"


def test_models_that_are_alike_have_no_names():
    with pytest.raises(ValueError, match="alike in encoder"):
        short_names([{"encoder": "bert"}, {"encoder": "bert"}], ["encoder"])
