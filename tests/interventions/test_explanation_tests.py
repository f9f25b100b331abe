"""Tests of explanations against texts that were shortened, thinned or selected by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith import record
from attnfaith.interventions.explanation_tests import budget, rationales
from attnfaith.measurement.registry import find
from attnfaith.models.rationale_samplers import budget_tokens
from attnfaith.subjects import SelfAttention, subject_of, text_parts
from attnfaith.subjects.text_parts import read_parts
from attnfaith.support.draws import generator
from tests.measuring import classifier_of, run
from tests.small_classifiers import classifier, tokenizer
from tests.small_rationales import rationale_model


# --------------------------------------------------------------------------------------- rationale


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


def test_each_part_is_read_once(tiny_model, tiny_rows, tiny_batch, monkeypatch):
    """Ten tokens, four measures of which three rank alike, two shares: 4 + 4 parts and the empty text."""
    rows, read = tiny_rows([10]), []
    values = random_scores(rows)["one"]
    scores = {"a": values, "b": [2 * v for v in values], "c": [v + 1 for v in values], "d": [-v for v in values]}
    real = text_parts._read
    monkeypatch.setattr(
        text_parts, "_read", lambda model, batch, owner, *rest: read.append(len(owner)) or real(model, batch, owner, *rest)
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


# --------------------------------------------------------------------------------------- selection


def scored(rows, seed=0):
    generator = np.random.default_rng(seed)
    return {"attention": [generator.random(len(row["tokens"])) for row in rows]} | {
        "other": [generator.normal(size=len(row["tokens"])) for row in rows]
    }


def first(values, count):
    return np.isin(np.arange(len(values)), np.argsort(-values)[:count])


def test_of_a_model_that_reads_the_whole_text(tiny_model, tiny_rows):
    """Second route: rows from which the other ids are taken by hand."""
    model, rows = tiny_model(num_labels=3), tiny_rows((7, 4, 1, 0))
    subject = subject_of(model)
    scores = scored(rows)
    columns = run("selection", subject, {**subject.collate(rows), "scores": scores}, shares=(0.2, 0.5))
    sizes = {(7, 0.2): 1, (7, 0.5): 4, (4, 0.2): 1, (4, 0.5): 2, (1, 0.2): 1, (1, 0.5): 1, (0, 0.2): 0, (0, 0.5): 0}
    assert list(columns) == list(find("selection").columns_for(subject)) and "complement_probs" not in columns
    for number, row in enumerate(rows):
        assert columns["selection_measures"][number] == ["attention"] * 2 + ["other"] * 2
        assert list(columns["selection_shares"][number]) == [0.2, 0.5] * 2
        for place, (name, share) in enumerate(
            zip(columns["selection_measures"][number], columns["selection_shares"][number], strict=True)
        ):
            values = scores[name][number]
            chosen = first(values, sizes[len(values), share])
            assert (columns["selection_chosen"][number][place] == chosen).all()
            for column, stays in (("kept", chosen), ("removed", ~chosen)):
                left = [2, *np.array(row["input_ids"][1:-1], int)[stays].tolist(), 3]
                batch = subject.collate([{**row, "input_ids": left}])
                expected = subject.predict(batch).detach().double().softmax(-1)[0]
                np.testing.assert_allclose(columns[f"selection_{column}_probs"][number][place], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["bernoulli", "deleted", "hardkuma", "transition"])
def test_of_a_model_that_selects(kind, tiny_rows):
    model, rows = rationale_model(kind), tiny_rows((9, 5, 1, 0))
    subject = subject_of(model)
    batch, scores = subject.collate(rows), scored(rows)
    columns = run("selection", subject, {**batch, "scores": scores}, shares=(0.3,))
    own = subject.predict(batch).detach().double().softmax(-1).numpy()
    selected, inside = subject.selected(batch), subject.attendable(batch)
    complement = subject.read_selected(batch, inside & ~selected).detach().double().softmax(-1).numpy()
    for number, row in enumerate(rows):
        np.testing.assert_allclose(columns["selection_probs"][number], own[number], atol=1e-6)
        np.testing.assert_allclose(columns["complement_probs"][number], complement[number], atol=1e-6)
        mine = selected[number, inside[number]].numpy()
        assert list(columns["selection_shares"][number]) == [0.0, 0.3] * 2
        assert (columns["selection_chosen"][number][0] == mine).all()
        np.testing.assert_allclose(columns["selection_kept_probs"][number][0], own[number], atol=1e-6)
        np.testing.assert_allclose(columns["selection_removed_probs"][number][0], complement[number], atol=1e-6)
        chosen = first(scores["other"][number], mine.sum())  # of the same size, read in place of its own
        assert (columns["selection_chosen"][number][2] == chosen).all()
        mask = torch.zeros_like(inside[:1])
        mask[0, inside[number]] = torch.from_numpy(chosen)
        alone = subject.read_selected(batch.take(torch.tensor([number])), mask).detach().double().softmax(-1)[0]
        np.testing.assert_allclose(columns["selection_kept_probs"][number][2], alone, atol=1e-6)
        assert columns["selection_chosen"][number].shape == (4, len(row["tokens"]))


def test_a_share_holds_as_many_tokens_as_a_budget():
    for share in (0.01, 0.1, 0.15, 0.2, 0.3, 0.5, 0.99):
        lengths = torch.arange(1, 41)
        mask = torch.arange(40) < lengths.unsqueeze(1)
        assert [budget(share, int(length)) for length in lengths] == budget_tokens(mask, share).tolist()


def test_an_undefined_measure_is_undefined_and_equal_scores_are_cut_at_random(tiny_model, tiny_rows):
    subject, rows = subject_of(tiny_model()), tiny_rows([10] * 30)
    scores = {"attention": [np.ones(10)] * 30, "other": [np.full(10, np.nan)] * 30}
    columns = run("selection", subject, {**subject.collate(rows), "scores": scores}, shares=(0.2,))
    chosen = np.stack(columns["selection_chosen"])
    assert (chosen[:, 0].sum(1) == 2).all() and not chosen[:, 1].any() and len(np.unique(chosen[:, 0], axis=0)) > 10
    assert np.isnan(np.stack(columns["selection_kept_probs"])[:, 1]).all()
    assert np.isnan(np.stack(columns["selection_removed_probs"])[:, 1]).all()


# --------------------------------------------------------------------------------------- signs


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "good"]


@torch.no_grad()
def test_by_a_plain_loop():
    subject = SelfAttention(classifier("bert"), tokenizer())
    batch = subject.encode(TEXTS)
    counts = subject.attendable(batch).sum(1).tolist()
    random = np.random.default_rng(0)
    signed = [random.normal(size=count) for count in counts]
    broken = [np.full(count, np.nan) if row == 1 else np.ones(count) for row, count in enumerate(counts)]
    batch["scores"] = {
        "attention": [random.random(count) for count in counts],
        "signed": signed,
        record.ABSOLUTE + "signed": [np.abs(values) for values in signed],
        "nothing": [np.zeros(count) for count in counts],
        "broken": broken,
    }
    whole = subject.predict(batch).double().softmax(-1).numpy()
    for absent in ("deleted", "mask_token"):
        columns = run("sign_violations", subject, batch, absent=absent)
        assert columns["sign_violations_measures"] == [list(batch["scores"])] * 4
        for row, count in enumerate(counts):
            signs, effects = columns["sign_violations_signs"][row], columns["sign_violations_effects"][row]
            for place, values in enumerate(batch["scores"].values()):
                if not count or np.isnan(values[row]).any():
                    assert np.isnan(signs[place]) and np.isnan(effects[place])
                    continue
                if place == 3:
                    assert signs[place] == 0
                    continue
                if place == 4:
                    assert signs[place] == 1
                    continue
                first = int(np.abs(values[row]).argmax())
                assert signs[place] == np.sign(values[row][first])
                parts = [np.ones((0, other), bool) for other in counts]
                parts[row] = (np.arange(count) != first)[None]
                prediction = read_parts(subject, batch, parts, absent)[row][0]
                own = whole[row].argmax()
                assert effects[place] == pytest.approx(
                    whole[row, own] - np.exp(prediction[own]) / np.exp(prediction).sum(), abs=1e-6
                )


# --------------------------------------------------------------------------------------- soft


def measured_soft(model, batch, scores=None, **options):
    batch = dict(batch) if scores is None else {**batch, "scores": scores}
    return {name.removeprefix("soft_erasure_"): v for name, v in run("soft_erasure", model, batch, **options).items()}


@torch.no_grad()
def probability(model, batch, row, factors, number):
    """The class's probability when the embeddings of a text's tokens are multiplied by factors (T,E)."""
    given = {name: value[row : row + 1] for name, value in batch.items() if name != "instance_id"}
    embedded = classifier_of(model).get_input_embeddings()(given.pop("input_ids"))
    embedded[0, 1 : 1 + len(factors)] *= torch.as_tensor(factors, dtype=embedded.dtype)
    encoded = model.encode(inputs_embeds=embedded, **given)
    return float(model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().softmax(-1)[0, number])


@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "average"])
@pytest.mark.parametrize(("projection", "readout"), [("softmax", "affine"), ("sparsemax", "tanh")])
@pytest.mark.parametrize("query", ["learned", "text"])
def test_elements_stay_by_the_scores(query, projection, readout, encoder, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, projection=projection, readout=readout, query=query, num_labels=3)
    batch = tiny_batch(tiny_rows([5, 8], pair=query == "text"))
    rng = np.random.default_rng(0)
    scores = {name: [rng.normal(size=5), rng.normal(size=8)] for name in ("one", "other")}
    found = measured_soft(model, batch, scores, draws=3, seed=7)
    for row, length in enumerate((5, 8)):
        assert found["measures"][row] == ["one", "other"]
        ones = np.ones((length, 8))
        by_class = [probability(model, batch, row, ones, number) for number in range(3)]
        predicted = int(np.argmax(by_class))
        assert found["whole_prob"][row] == pytest.approx(max(by_class), abs=1e-6)
        assert found["empty_prob"][row] == pytest.approx(probability(model, batch, row, 0 * ones, predicted), abs=1e-6)
        draws = generator(7, batch["instance_id"][row], "soft_erasure").random((3, length, 8), np.float32)
        for number, values in enumerate(scores.values()):
            x = values[row]
            shares = ((x - x.min()) / (x.max() - x.min())).astype(np.float32)
            for draw in range(3):
                kept = draws[draw] < shares[:, None]
                for name, factors in (("kept", kept), ("removed", ~kept)):
                    expected = probability(model, batch, row, factors, predicted)
                    assert found[f"{name}_probs"][row][number, draw] == pytest.approx(expected, abs=1e-6)
    assert np.ptp(found["kept_probs"][1]) > 1e-3


def test_undefined_soft(tiny_model, tiny_rows, tiny_batch):
    rows = tiny_rows([4, 0, 1])
    flat = [np.ones(4), np.zeros(0), np.ones(1)]
    scores = {
        "good": [np.arange(4.0), np.zeros(0), np.ones(1)],
        "flat": flat,
        "bad": [np.array([0, 1, np.nan, 2]), np.zeros(0), np.ones(1)],
    }
    found = measured_soft(tiny_model(), tiny_batch(rows), scores, draws=2)
    for name in ("kept_probs", "removed_probs"):
        np.testing.assert_array_equal(np.isnan(found[name][0]), [[False] * 2, [True] * 2, [True] * 2])
        assert np.isnan(found[name][1]).all() and np.isnan(found[name][2]).all()
    assert np.isfinite(found["empty_prob"]).all() and np.isfinite(found["whole_prob"]).all()
    assert found["empty_prob"][1] == pytest.approx(found["whole_prob"][1], abs=1e-7)
