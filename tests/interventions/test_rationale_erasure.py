"""Sufficiency and comprehensiveness, against texts that were shortened by hand and read by the whole model."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.interventions.explanation_tests import rationales
from attnfaith.subjects import removal
from tests.measuring import run


SHARES = (0.1, 0.5)


def measured(model, batch, scores=None, **options):
    batch = dict(batch) if scores is None else {**batch, "scores": scores}
    return run("rationale_erasure", model, batch, **options)


@torch.no_grad()
def of_class(model, rows, tiny_batch, number):
    """The class's probability for one text, by the model itself, the batch holding nothing else."""
    batch = tiny_batch(rows)
    given = {name: value for name, value in batch.items() if name != "instance_id"}
    encoded = model.encode(**given)
    return float(model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().softmax(-1)[0, number])


def random_scores(rows, seed=0):
    generator = np.random.default_rng(seed)
    return {name: [generator.normal(size=len(row["tokens"])) for row in rows] for name in ("one", "other")}


@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "average", "cnn"])
@pytest.mark.parametrize(("projection", "readout"), [("softmax", "affine"), ("sparsemax", "tanh")])
@pytest.mark.parametrize("query", ["learned", "text"])
def test_deleted_tokens_are_gone_from_the_input(query, projection, readout, encoder, tiny_model, tiny_rows, tiny_batch):
    """Second route: new rows with the ids left out, one at a time."""
    model = tiny_model(encoder=encoder, projection=projection, readout=readout, query=query, num_labels=3)
    rows = tiny_rows([6, 9, 2], pair=query == "text")
    scores = random_scores(rows)
    found = measured(model, tiny_batch(rows), scores, shares=SHARES)
    differences = 0
    for row, one in enumerate(rows):
        length = len(one["tokens"])
        whole = [of_class(model, [one], tiny_batch, number) for number in range(3)]
        predicted = int(np.argmax(whole))
        assert found["rationale_erasure_whole_prob"][row] == pytest.approx(whole[predicted], abs=1e-6)
        assert found["rationale_erasure_measures"][row] == ["one", "other"]
        for number, values in enumerate(scores.values()):
            for place, share in enumerate(SHARES):
                first = set(np.argsort(-values[row])[: math.ceil(share * length)].tolist())
                for column, left in (("kept", first), ("removed", set(range(length)) - first), ("empty", set())):
                    expected = of_class(model, [without(one, left)], tiny_batch, predicted)
                    value = found[f"rationale_erasure_{column}_prob" + "s" * (column != "empty")][row]
                    value = value if column == "empty" else value[number, place]
                    assert value == pytest.approx(expected, abs=1e-6)
                    differences += abs(value - whole[predicted]) > 1e-3
    assert differences > 10  # erasing does something in these models


def without(row, left):
    """A row in which only the tokens `left` of the first text are, markers and question as they were."""
    length = len(row["tokens"])
    stays = [place - 1 in left or place in (0, length + 1) or place > length for place in range(len(row["input_ids"]))]
    cut = {
        name: [v for v, keep in zip(row[name], stays, strict=True) if keep]
        for name in ("input_ids", "token_type_ids")
        if name in row
    }
    return {**row, **cut}


@pytest.mark.parametrize("hierarchy", ["sentence", "word"])
def test_sentences_and_words_of_sentences(hierarchy, tiny_model, tiny_rows, tiny_batch):
    """A sentence goes with its words; a word goes from its sentence, and the only word takes its sentence with it."""
    model = tiny_model(hierarchy=hierarchy, encoder="bilstm")
    (row,) = tiny_rows([8], hierarchy=hierarchy)  # ids 2 a b MARK c d MARK e f 3
    ids = row["input_ids"]
    scores = {"one": [np.arange(len(row["tokens"]), dtype=float)]}  # the last first
    found = measured(model, tiny_batch([row]), scores, shares=(0.5,))
    whole = [of_class(model, [row], tiny_batch, number) for number in range(2)]
    predicted = int(np.argmax(whole))
    left = {"sentence": ids[:3], "word": [*ids[:3], 4, ids[4]]}[hierarchy]  # 2 of 3 sentences, or 3 of 6 words, removed
    expected = of_class(model, [{**row, "input_ids": [*left, 3]}], tiny_batch, predicted)
    assert found["rationale_erasure_removed_probs"][0][0, 0] == pytest.approx(expected, abs=1e-6)
    assert abs(expected - max(whole)) > 1e-3


def test_only_the_order_of_scores_counts(tiny_model, tiny_rows, tiny_batch):
    model, rows = tiny_model(), tiny_rows([7, 12])
    values = random_scores(rows)["one"]
    same = {"a": values, "b": [np.exp(v) for v in values], "c": [-v for v in values]}
    found = measured(model, tiny_batch(rows), same)
    for row in range(2):
        kept, removed = (found[f"rationale_erasure_{name}_probs"][row] for name in ("kept", "removed"))
        np.testing.assert_array_equal(kept[0], kept[1])
        np.testing.assert_array_equal(removed[0], removed[1])
        assert not np.allclose(kept[0], kept[2])


def test_each_part_is_read_once(tiny_model, tiny_rows, tiny_batch, monkeypatch):
    """Ten tokens, four measures of which three rank alike, two shares: 4 + 4 parts and the empty text."""
    rows, read = tiny_rows([10]), []
    values = random_scores(rows)["one"]
    scores = {"a": values, "b": [2 * v for v in values], "c": [v + 1 for v in values], "d": [-v for v in values]}
    real = removal._read
    monkeypatch.setattr(
        removal, "_read", lambda model, batch, owner, *rest: read.append(len(owner)) or real(model, batch, owner, *rest)
    )
    measured(tiny_model(), tiny_batch(rows), scores, shares=(0.1, 0.3))
    assert sum(read) == 9 and len(read) == 1


def test_equal_scores_are_erased_in_a_random_order_which_measures_share(tiny_model, tiny_rows, tiny_batch):
    """Uniform scores are a random ranking, not the order of the text; of one text the same for all that are uniform."""
    rows = tiny_rows([[5, 6, 7, 8]] * 400)
    for number, row in enumerate(rows):
        row["instance_id"] = f"tiny/test/{number}"
    flat = [np.zeros(4)] * 400
    found = measured(tiny_model(), tiny_batch(rows), {"a": flat, "b": flat}, shares=(0.25,))
    kept = np.stack(found["rationale_erasure_kept_probs"])[..., 0]
    np.testing.assert_array_equal(kept[:, 0], kept[:, 1])
    singles = measured(tiny_model(), tiny_batch(rows[:1]), {str(t): [np.eye(4)[t]] for t in range(4)}, shares=(0.25,))
    tokens = singles["rationale_erasure_kept_probs"][0][:, 0]
    assert np.ptp(tokens) > 1e-3
    nearest = np.abs(kept[:, :1] - tokens).argmin(1)
    counts = np.bincount(nearest, minlength=4)
    assert (np.abs(counts - 100) < 5 * math.sqrt(400 * 0.25 * 0.75)).all()


def test_undefined(tiny_model, tiny_rows, tiny_batch):
    rows = tiny_rows([4, 0, 1])
    scores = {
        "good": [np.arange(4.0), np.zeros(0), np.ones(1)],
        "bad": [np.array([1, np.nan, 0, 2]), np.zeros(0), np.ones(1)],
    }
    found = measured(tiny_model(), tiny_batch(rows), scores, shares=SHARES)
    for name in ("kept", "removed"):
        values = found[f"rationale_erasure_{name}_probs"]
        np.testing.assert_array_equal(np.isnan(values[0]), [[False] * 2, [True] * 2])
        assert np.isnan(values[1]).all() and not np.isnan(values[2]).any()
    # one token: what is kept is the text, what is left is nothing
    assert found["rationale_erasure_kept_probs"][2] == pytest.approx(found["rationale_erasure_whole_prob"][2], abs=1e-7)
    assert found["rationale_erasure_removed_probs"][2] == pytest.approx(found["rationale_erasure_empty_prob"][2], abs=1e-7)
    assert found["rationale_erasure_empty_prob"][1] == pytest.approx(found["rationale_erasure_whole_prob"][1], abs=1e-7)


@settings(max_examples=60)
@given(st.integers(1, 300), st.floats(0.001, 0.999))
def test_a_share_is_rounded_up_and_holds_a_token(length, share):
    """By whole numbers: the fewest tokens whose share is not below the one asked for."""
    kept = rationales([np.zeros(length)], (share,), np.random.default_rng(0))
    count = int(kept.sum())
    assert count >= 1 and count / length >= share - 1e-9
    assert count == 1 or (count - 1) / length < share


def test_shares_that_floats_miss():
    assert rationales([np.zeros(100)], (0.07,), np.random.default_rng(0)).sum() == 7
