"""recipes/erasure_definitions/compare.py: by hand, beside numbers that the other tools gave, and on a model."""

import importlib.util
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest

from attnfaith import recipes, runs
from attnfaith.data.collation import pad_batch
from attnfaith.experiments import rationale_erasure
from attnfaith.importance import gradient_x_input
from attnfaith.metrics.attention_faithfulness.erasure_curves import BINS, aopc, comprehensiveness, sufficiency
from attnfaith.subjects import opened


ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location(
    "recipes_compare_erasure_definitions", ROOT / "recipes" / "erasure_definitions" / "compare.py"
)
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)
NAMES = [definition.name for definition in compare.DEFINITIONS]


def defined(scores, probability):
    """`by_definition` of one measure, {definition: (sufficiency, comprehensiveness)}; probability of the tokens left."""
    length = len(scores)

    def each(masks):
        return np.array([[probability(frozenset(np.flatnonzero(mask).tolist())) for mask in masks[0]]])

    ends = probability(frozenset(range(length))), probability(frozenset())
    said = {
        name: compare.Said(masks, each(masks), each(~masks), *ends)
        for name, masks in compare.masks([np.asarray(scores)], 0, "a").items()
    }
    return {name: tuple(numbers[0]) for name, numbers in compare.by_definition(said).items()}


def additive(weights, bias, target):
    """Probability of a class of two, of a model whose log-odds are a sum over tokens."""

    def probability(tokens):
        one = 1 / (1 + np.exp(-(bias + sum(weights[token] for token in tokens))))
        return one if target == 1 else 1 - one

    return probability


def test_four_tokens_by_hand():
    probs = {(): 0.5, (0,): 0.7, (0, 2): 0.95, (0, 2, 3): 0.85, (0, 1, 2, 3): 0.9, (1, 2, 3): 0.6, (1, 3): 0.3, (1,): 0.2}
    values = defined([3.0, -1.0, 2.0, 1.0], {frozenset(tokens): p for tokens, p in probs.items()}.__getitem__)
    expected = {
        "ours": ((4 * 0.2 - 0.05) / 5, (4 * 0.3 + 0.6) / 5),  # 1, 1, 1, 1, 2 tokens
        "eraser_paper": ((4 * 0.2 - 0.05) / 6, (4 * 0.3 + 0.6) / 6),
        "carton": ((4 * 0.5 + 1) / 5, (4 * 0.75 + 1.5) / 5),
        "ferret_on_our_masks": ((0.2 - 0.05) / 2, (0.3 + 0.6) / 2),
        "tenths": ((2 * 0.2 - 3 * 0.05 + 2 * 0.05) / 10, (2 * 0.3 + 3 * 0.6 + 2 * 0.7 + 3 * 0.4) / 10),
        "rounded_down": ((2 * 0.2 - 3 * 0.05 + 2 * 0.05) / 8, (2 * 0.3 + 3 * 0.6 + 2 * 0.7 + 0.4) / 8),
        "repeats_out": ((0.2 - 0.05 + 0.05) / 4, (0.3 + 0.6 + 0.7 + 0.4) / 4),
        "ferret": ((0.2 - 0.05 + 0.05) / 3, (0.3 + 0.6 + 0.7) / 3),
    }
    assert list(values) == list(expected)
    for name, numbers in expected.items():
        assert values[name] == pytest.approx(numbers, abs=1e-12), name


CASES = {
    "positive": (
        [0.9, -0.4, 0.3, 1.1, -0.7, 0.2, 0.5, -0.1, 0.8, -0.6, 0.4, 0.05], -0.3, 1,
        [0.12, 0.01, 0.05, 0.2, 0.07, 0.03, 0.09, 0.02, 0.16, 0.08, 0.11, 0.06],
    ),
    "mixed": ([0.9, -0.4, 0.3, 1.1, -0.7, 0.2, 0.5], -0.3, 1, [0.8, -0.5, 0.1, 0.9, -0.6, 0.3, -0.2]),
    "class 0": (
        [0.9, -0.4, 0.3, 1.1, -0.7, 0.2, 0.5, -1.6, -0.9, 0.6, -1.2], -0.3, 0,
        [-0.8, 0.5, -0.1, -0.9, 0.6, -0.3, 0.2, 1.4, 0.7, -0.4, 1.1],
    ),
    "one positive": ([0.9, -0.4, 0.3, 1.1, -0.7], 0.2, 1, [-0.1, -0.2, 0.4, -0.3, 0.0]),
    "none positive": ([0.9, -0.4, 0.3], 0.2, 1, [-0.1, 0.0, -0.3]),
}  # fmt: skip
FERRET = {
    "positive": (0.00832176476557923, 0.4819329230483074),
    "mixed": (0.005605821993575788, 0.4152269195742737),
    "class 0": (-0.14638771692677102, 0.6619102683856255),
    "one positive": (0.1797245573567272, 0.051923782963464116),
    "none positive": (1.0, 0.0),
}
FERRET_ALL_POSITIVE = {
    "positive": (0.00832176476557923, 0.4819329230483074),
    "mixed": (-0.022777660669427897, 0.4663782596713019),
    "class 0": (-0.1366601225029233, 0.6345870592157035),
    "one positive": (0.17869598627302508, 0.07117838382364769),
    "none positive": (0.11458779413477384, 0.07289950627236681),
}
FERRET_ON_OUR_MASKS = {
    "positive": (0.04846614929564247, 0.4144623370381011),
    "mixed": (0.020098809492460273, 0.3944109956457916),
    "class 0": (-0.1321370885230864, 0.6060093525693798),
    "one positive": (0.15686033687357143, 0.07157908444852096),
    "none positive": (0.17188169120216076, 0.018736968749786753),
}
ERASER = {
    "positive": (0.0799117785871912, 0.3625486451702498),
    "mixed": (0.06887684729800095, 0.3204702189603029),
    "class 0": (-0.11617308070714079, 0.5533182147900206),
    "one positive": (0.1705788691634649, 0.05978590355748685),
    "none positive": (0.23728822204635397, -0.03518039845723138),
}


@pytest.mark.parametrize(
    ("definition", "numbers"),
    [
        ("ours", ERASER),
        ("ferret_on_our_masks", FERRET_ON_OUR_MASKS),
        ("repeats_out", FERRET_ALL_POSITIVE),
        ("ferret", FERRET),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_numbers_of_the_other_tools(definition, numbers, case):
    """Given by their own code on these toys, whose log-odds of class 1 are bias + the sum of the weights of the tokens left.

    ferret-xai 0.4.2 (PyPI) under numpy 2.4.6 and torch 2.13.0: `compute_evaluation(explanation, target=target)` of
    AOPC_Sufficiency_Evaluation and AOPC_Comprehensiveness_Evaluation, with a tokenizer of one number per token between two
    markers, and a model whose logits are 0 and the log-odds in float64. Everything by default (FERRET); scores + 10, which
    stand in the same order and are all above 0 (FERRET_ALL_POSITIVE); these with removal_args={"based_on": "k",
    "thresholds": sizes of the first 1, 5, 10, 20, 50 %, rounded up} (FERRET_ON_OUR_MASKS). only_pos=False, which would
    say the same, raises ValueError under this numpy.

    ERASER: `compute_aopc_scores([instance], [0.01, 0.05, 0.1, 0.2, 0.5])` of rationale_benchmark/metrics.py, jayded/
    eraserbenchmark at 3ae7641a699eeffbed1259d277bb88f3a905b2c9, with the probabilities of those sizes as thresholded_scores.
    """
    weights, bias, target, scores = CASES[case]
    assert defined(scores, additive(weights, bias, target))[definition] == pytest.approx(numbers[case], abs=1e-9)


def test_where_all_agree():
    """Distinct rationales at each share, nothing to round, no score below 0: ferret's mean is ours of the same shares."""
    random = np.random.default_rng(0)
    values = defined(random.random(100), additive(random.normal(size=100), 0.1, 1))
    assert values["ferret_on_our_masks"] == pytest.approx(values["ours"], abs=1e-12)
    for name in ("rounded_down", "repeats_out", "ferret"):
        assert values[name] == pytest.approx(values["tenths"], abs=1e-12)
    assert values["tenths"] != pytest.approx(values["ours"], abs=1e-3)


@pytest.mark.parametrize("length", [1, 2, 7, 10, 90, 170])
def test_how_many_tokens(length):
    scores = np.random.default_rng(length).normal(size=length)
    chosen = {name: masks[0] for name, masks in compare.masks([scores], 0, "a").items()}
    shares = np.arange(0.1, 1.1, 0.1)  # ferret's, which are not quite tenths
    assert chosen["down"].sum(1).tolist() == [int(share * length) for share in shares]
    assert chosen["tenths"].sum(1).tolist() == [-(-length * tenth // 10) for tenth in range(1, 11)]
    assert chosen["bins"].sum(1).tolist() == [-(-length * share // 100) for share in (1, 5, 10, 20, 50)]
    assert (chosen["positive"] == chosen["down"] & (scores > 0)).all()


def test_one_order_of_ties():
    chosen = compare.masks([np.ones(30)], 0, "a")
    sets = sorted((row for masks in chosen.values() for row in masks[0]), key=np.sum)
    assert all((small <= large).all() for small, large in zip(sets, sets[1:], strict=False))
    assert (compare.masks([np.ones(30)], 0, "b")["bins"] != chosen["bins"]).any()


@pytest.fixture
def model(tiny_model):
    return tiny_model(scale=1.5, seed=6)


def test_on_a_model(model, tiny_rows, tiny_batch, tiny_recipe):
    rows = tiny_rows([9, 23, 1, 0, 14])
    measured, values = compare.instances(
        model, datasets.Dataset.from_list(rows), tiny_recipe(), ["attention", "gradient_x_input"]
    )
    assert measured == ["attention", "gradient_x_input"] and list(values) == NAMES
    assert all(numbers.shape == (5, 2, 2) for numbers in values.values())

    # ours, as the experiment measures it
    batch = tiny_batch(rows)
    alone = gradient_x_input.measure(model, batch)["importance_gradient_x_input"]
    attention = compare.scores(*opened(model, batch))["attention"]
    erased = rationale_erasure.measure(
        model, {**batch, "scores": {"attention": attention, "gradient_x_input": alone}}, seed=tiny_recipe().measure.seed,
        shares=BINS,
    )  # fmt: skip
    whole = np.array(erased["rationale_erasure_whole_prob"])
    for place in range(2):
        kept, removed = (
            np.stack(erased[f"rationale_erasure_{name}_probs"])[:, place] for name in ("kept", "removed")
        )  # fmt: skip
        expected = np.stack([aopc(sufficiency(whole, kept)), aopc(comprehensiveness(whole, removed))], 1)
        np.testing.assert_allclose(values["ours"][:, place], expected, atol=1e-7)
    assert all(np.isnan(numbers[3]).all() for numbers in values.values())  # a text without tokens

    # ferret's, text by text: of the predicted class, and of class 1
    def probability(ids):
        read = pad_batch([{"input_ids": [2, *ids, 3]}], 0)
        return model(**read).logits.double().softmax(-1)[0].detach().numpy()

    for number, name in ((None, "ferret"), (1, "ferret_class_1")):
        for row in (0, 1, 2, 4):
            ids = np.array(rows[row]["input_ids"][1:-1])
            own = int(probability(ids).argmax()) if number is None else number
            single = tiny_batch([rows[row]])
            scores = gradient_x_input.measure(model, single, target=own)["importance_gradient_x_input"][0]
            falls, before = [], set()
            for tenth in range(1, 11):
                top = {token for token in np.argsort(-scores)[: len(ids) * tenth // 10] if scores[token] > 0}
                if top and top != before:
                    inside = np.isin(np.arange(len(ids)), list(top))
                    falls.append([probability(ids)[own] - probability(ids[part])[own] for part in (inside, ~inside)])
                    before = top
            expected = np.mean(falls, 0) if falls else [1.0, 0.0]
            np.testing.assert_allclose(values[name][row, 1], expected, atol=1e-6)
    predicted = [int(probability(row["input_ids"][1:-1]).argmax()) for row in rows]
    same = [row for row in (0, 1, 2, 4) if predicted[row] == 1]
    np.testing.assert_allclose(values["ferret_class_1"][same], values["ferret"][same], atol=1e-6)
    assert len(same) < 4  # or the class would change nothing


def test_answers_that_texts_name_leave_class_1_out(model, tiny_rows, tiny_recipe):
    rows = datasets.Dataset.from_list([{**row, "candidates": [0, 1]} for row in tiny_rows([5, 6])])
    _, values = compare.instances(model, rows, tiny_recipe(), ["attention"])
    assert list(values) == NAMES[:-1]
    table = compare.table_rows(["attention"], values)
    assert [row["definition"] for row in table] == NAMES[:-1]


def test_the_table_by_hand():
    values = {
        name: np.array([[[0.1, 0.2]], [[0.3, 0.6]], [[np.nan, np.nan]]]) + step
        for name, step in zip(NAMES, np.arange(len(NAMES)) / 100, strict=True)
    }
    values["carton"][0] = np.nan
    table = pd.DataFrame(compare.table_rows(["attention"], values)).set_index("definition")
    assert table.loc["ours", ["n", "n_undefined"]].tolist() == [2, 1]
    assert table.loc["ours", ["sufficiency", "comprehensiveness"]].tolist() == pytest.approx([0.2, 0.4])
    assert table.loc["carton", ["n", "n_undefined"]].tolist() == [1, 2]
    assert table.loc["carton", ["sufficiency", "sufficiency_to_ours"]].tolist() == pytest.approx([0.32, 0.02])
    assert table.loc["ferret", "compared_with"] == "repeats_out"
    assert table.loc["ferret", "comprehensiveness_to_ours"] == pytest.approx(0.07)
    assert table.loc["ferret", "comprehensiveness_by_change"] == pytest.approx(0.01)


@pytest.mark.slow
def test_a_run(tiny_recipe, tmp_path, quick_report, capsys):
    runs.run(tiny_recipe(measure__producers=[], training__num_train_epochs=1))
    arguments = [str(tmp_path / "run"), "--output", str(tmp_path / "out"), "--measures", "attention", "gradient_x_input"]
    compare.main([*arguments, "--limit", "12"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"erasure_definitions.{suffix}" for suffix in ("csv", "md", "parquet")
    }
    table = pd.read_csv(tmp_path / "out" / "erasure_definitions.csv")
    assert table["definition"].tolist() == [name for name in NAMES for _ in range(2)]
    assert (table["n"] + table["n_undefined"] == 12).all() and set(table["run"]) == {"run"}
    assert "ferret_class_1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "limit", "message"),
    [
        (["permutation"], 5, r"no measure is called \['permutation'\]; choose from attention, .*gradient"),
        (["attention"], 0, "--limit 0: at least 1 text"),
    ],
)
def test_arguments_that_do_not_do(tmp_path, names, limit, message):
    (tmp_path / "model").mkdir()
    with pytest.raises(recipes.RecipeError, match=message):
        compare.check(tmp_path, names, limit)


def test_runs_that_do_not_do(tmp_path, tiny_recipe, monkeypatch):
    with pytest.raises(recipes.RecipeError, match="holds no trained model"):
        compare.main([str(tmp_path), "--output", str(tmp_path / "out")])
    (tmp_path / "model").mkdir()
    guided = tiny_recipe(objective__kind="guided", objective__base="base", measure__producers=[])
    monkeypatch.setattr(compare.recipes, "load", lambda _path: guided)
    with pytest.raises(recipes.RecipeError, match="guided by another one's attention"):
        compare.main([str(tmp_path), "--output", str(tmp_path / "out")])
