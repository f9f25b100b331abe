"""Tests of explanations against texts that were shortened, thinned or selected by hand."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnfaith import record
from attnfaith.interventions.explanation_tests import AOPCLimits, rationales
from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention, subject_of
from attnfaith.subjects.protocol import read_parts
from attnfaith.support.draws import generator
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer
from tests.small_rationales import rationale_model
from tests.stages import embedded_of, logits_at, stages


SHARES = (0.1, 0.5)
MODELS = pytest.mark.parametrize(
    ("encoder", "projection", "readout", "query"),
    [
        ("bilstm", "softmax", "affine", "text"),
        ("transformer", "sparsemax", "tanh", "learned"),
        ("average", "sparsemax", "tanh", "text"),
        ("cnn", "softmax", "affine", "learned"),
    ],
)


def scored(lengths, seed=0, names=("attention", "other")):
    random = np.random.default_rng(seed)
    return {name: [random.random(length) - 0.5 * number for length in lengths] for number, name in enumerate(names)}


def probs_of(model, rows, tiny_batch):
    return stages(model, tiny_batch(rows))[2].double().softmax(-1)[0].numpy()


def without(row, left):
    """A row in which only the tokens `left` of the first text are, markers and question as they were."""
    length = len(row["tokens"])
    stays = [place - 1 in left or place in (0, length + 1) or place > length for place in range(len(row["input_ids"]))]
    names = {"input_ids", "token_type_ids"} & set(row)
    return {**row, **{name: [v for v, stay in zip(row[name], stays, strict=True) if stay] for name in names}}


def first(values, count):
    return np.isin(np.arange(len(values)), np.argsort(-values)[:count])


@MODELS
def test_deleted_tokens_are_gone_from_the_input(encoder, projection, readout, query, tiny_model, tiny_rows, tiny_batch):
    """Second route: new rows with the ids left out, each alone in a batch."""
    model = tiny_model(encoder=encoder, projection=projection, readout=readout, query=query, num_labels=3)
    rows, differences = tiny_rows([6, 9, 2], pair=query == "text"), 0
    scores = scored([6, 9, 2])
    columns = run("rationale_erasure", model, {**tiny_batch(rows), "scores": scores}, shares=SHARES)
    columns = {name.removeprefix("rationale_erasure_"): values for name, values in columns.items()}
    for number, row in enumerate(rows):
        length, whole = len(row["tokens"]), probs_of(model, [row], tiny_batch)
        predicted = whole.argmax()
        assert columns["whole_prob"][number] == pytest.approx(whole[predicted], abs=1e-6)
        assert columns["measures"][number] == ["attention", "other"]
        empty = probs_of(model, [without(row, set())], tiny_batch)[predicted]
        assert columns["empty_prob"][number] == pytest.approx(empty, abs=1e-6)
        for measure, values in enumerate(scores.values()):
            for place, share in enumerate(SHARES):
                chosen = set(np.argsort(-values[number])[: math.ceil(share * length)].tolist())
                for column, left in (("kept_probs", chosen), ("removed_probs", set(range(length)) - chosen)):
                    expected = probs_of(model, [without(row, left)], tiny_batch)[predicted]
                    assert columns[column][number][measure, place] == pytest.approx(expected, abs=1e-6)
                    differences += abs(expected - whole[predicted]) > 1e-3
    assert differences > 8  # erasing does something in these models


def test_comprehensiveness_by_texts_without_the_first_tokens(tiny_model, tiny_rows, tiny_batch):
    """Losses of log-odds: of attention and one other measure, of all sets of that size at random, and of marked tokens."""
    model, lengths, shares = tiny_model(num_labels=3), (7, 4, 0), (0.2, 0.5)
    rows, scores = tiny_rows(lengths), scored(lengths, names=("attention", "other", "leave_one_out"))
    batch = {**tiny_batch(rows), "scores": scores, "rationale": [[1, 0, 0, 1, 0, 0, 0], [0] * 4, []]}
    columns = run("comprehensiveness", model, batch, shares=shares, draws=2000)
    columns = {name.removeprefix("comprehensiveness_"): values for name, values in columns.items()}
    assert columns["orders"] == [["attention", "leave_one_out"]] * 3
    reference = record.ABSOLUTE + "integrated_gradients"
    both = {"leave_one_out": scores["leave_one_out"], reference: scores["other"]}
    assert run("comprehensiveness", model, batch, scores=both)["comprehensiveness_orders"] == [["attention", reference]] * 3
    assert all(np.isnan(columns[name][2]).all() for name in ("losses", "random", "evidence"))
    assert np.isnan(columns["evidence"][1]) and np.isnan(columns["evidence_random"][1])  # nothing is marked
    for number, row in enumerate(rows[:2]):
        predicted, everything = probs_of(model, [row], tiny_batch).argmax(), set(range(lengths[number]))

        def odds(left, row=row, predicted=predicted):
            p = probs_of(model, [without(row, left)], tiny_batch)[predicted]
            return math.log(p / (1 - p))

        def losses(sets, everything=everything, odds=odds):
            return np.array([odds(everything) - odds(everything - set(removed)) for removed in sets])

        sizes = [math.ceil(share * len(everything)) for share in shares]
        for place, name in enumerate(("attention", "leave_one_out")):
            order = np.argsort(-scores[name][number]).tolist()
            expected = losses([order[:size] for size in sizes]).mean()
            assert columns["losses"][number][place] == pytest.approx(expected, abs=1e-6)
        at_random = [losses(itertools.combinations(everything, size)) for size in sizes]
        expected, error = np.mean([part.mean() for part in at_random]), 5 * max(part.std() for part in at_random) / 2000**0.5
        assert columns["random"][number] == pytest.approx(expected, abs=error)
        if number == 0:
            pairs = losses(itertools.combinations(everything, 2))
            assert columns["evidence"][0] == pytest.approx(losses([{0, 3}])[0], abs=1e-6)
            assert columns["evidence_random"][0] == pytest.approx(pairs.mean(), abs=5 * pairs.std() / 2000**0.5)


def test_equal_scores_are_erased_in_a_random_order_which_measures_share(tiny_model, tiny_rows, tiny_batch):
    """Uniform scores are a random ranking, not the order of the text; of one text the same for all that are uniform."""
    rows, model = tiny_rows([[5, 6, 7, 8]] * 400), tiny_model()
    flat = [np.zeros(4)] * 400
    columns = run("rationale_erasure", model, {**tiny_batch(rows), "scores": {"a": flat, "b": flat}}, shares=(0.25,))
    probs = np.stack(columns["rationale_erasure_kept_probs"])[..., 0]
    np.testing.assert_array_equal(probs[:, 0], probs[:, 1])
    scores = {str(t): [np.eye(4)[t]] for t in range(4)}
    singles = run("rationale_erasure", model, {**tiny_batch(rows[:1]), "scores": scores}, shares=(0.25,))
    tokens = singles["rationale_erasure_kept_probs"][0][:, 0]
    assert np.ptp(tokens) > 1e-3
    counts = np.bincount(np.abs(probs[:, :1] - tokens).argmin(1), minlength=4)
    assert (np.abs(counts - 100) < 5 * math.sqrt(400 * 0.25 * 0.75)).all()


def test_undefined(tiny_model, tiny_rows, tiny_batch):
    """A measure with a NaN score, and an empty text; of one token, what is kept is the text and what is left is nothing."""
    empty, single = np.zeros(0), np.ones(1)
    scores = {
        "good": [np.arange(4.0), empty, single],
        "flat": [np.ones(4), empty, single],
        "bad": [np.array([1, np.nan, 0, 2]), empty, single],
    }
    batch = {**tiny_batch(tiny_rows([4, 0, 1])), "scores": scores}
    hard = run("rationale_erasure", tiny_model(), batch, shares=SHARES)
    soft = run("soft_erasure", tiny_model(), batch, draws=2)
    for part in ("kept_probs", "removed_probs"):
        values = hard[f"rationale_erasure_{part}"], soft[f"soft_erasure_{part}"]
        np.testing.assert_array_equal(np.isnan(values[0][0]).all(1), [False, False, True])
        np.testing.assert_array_equal(np.isnan(values[1][0]).all(1), [False, True, True])  # equal scores thin nothing
        assert np.isnan(values[0][1]).all() and np.isnan(values[1][1]).all() and not np.isnan(values[0][2]).any()
    for columns, start in ((hard, "rationale_erasure"), (soft, "soft_erasure")):
        assert columns[f"{start}_empty_prob"][1] == pytest.approx(columns[f"{start}_whole_prob"][1], abs=1e-7)
    for part, end in (("kept_probs", "whole_prob"), ("removed_probs", "empty_prob")):
        assert hard[f"rationale_erasure_{part}"][2] == pytest.approx(hard[f"rationale_erasure_{end}"][2], abs=1e-7)


def test_a_share_is_rounded_up():
    for share in (0.01, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.99):
        for length in (1, 7, 100, 300):
            count = int(rationales([np.zeros(length)], (share,), np.random.default_rng(0)).sum())
            assert count >= 1 and count / length >= share - 1e-9 and (count == 1 or (count - 1) / length < share)


def test_selections_of_a_model_that_reads_the_whole_text(tiny_model, tiny_rows, tiny_batch):
    """Second route: rows from which the other ids are taken by hand. Undefined is NaN; equal scores are cut at random."""
    model, lengths = tiny_model(num_labels=3), (7, 4, 1, 0)
    subject, rows = subject_of(model), tiny_rows(lengths)
    scores = scored(lengths)
    columns = run("selection", subject, {**subject.collate(rows), "scores": scores}, shares=(0.2, 0.5))
    sizes = {(7, 0.2): 1, (7, 0.5): 4, (4, 0.2): 1, (4, 0.5): 2, (1, 0.2): 1, (1, 0.5): 1, (0, 0.2): 0, (0, 0.5): 0}
    assert list(columns) == list(find("selection").columns_for(subject)) and "complement_probs" not in columns
    for number, row in enumerate(rows):
        names, shares = columns["selection_measures"][number], columns["selection_shares"][number]
        assert names == ["attention"] * 2 + ["other"] * 2 and list(shares) == [0.2, 0.5] * 2
        for place, (name, share) in enumerate(zip(names, shares, strict=True)):
            values = scores[name][number]
            chosen = first(values, sizes[len(values), share])
            assert (columns["selection_chosen"][number][place] == chosen).all()
            for column, stays in (("kept", chosen), ("removed", ~chosen)):
                expected = probs_of(model, [without(row, set(np.flatnonzero(stays).tolist()))], tiny_batch)
                np.testing.assert_allclose(columns[f"selection_{column}_probs"][number][place], expected, atol=1e-6)
    scores = {"attention": [np.ones(10)] * 30, "other": [np.full(10, np.nan)] * 30}
    columns = run("selection", subject, {**subject.collate(tiny_rows([10] * 30)), "scores": scores}, shares=(0.2,))
    chosen = np.stack(columns["selection_chosen"])
    assert (chosen[:, 0].sum(1) == 2).all() and not chosen[:, 1].any() and len(np.unique(chosen[:, 0], axis=0)) > 10
    assert np.isnan(np.stack(columns["selection_kept_probs"])[:, 1]).all()


@pytest.mark.parametrize("kind", ["max", "hardkuma", "budget"])
def test_selections_of_a_model_that_selects(kind, tiny_rows):
    lengths = (9, 5, 1, 0)
    subject, rows = subject_of(rationale_model(kind)), tiny_rows(lengths)
    batch, scores = subject.collate(rows), scored(lengths)
    columns = run("selection", subject, {**batch, "scores": scores}, shares=(0.3,))
    own = subject.predict(batch).detach().double().softmax(-1).numpy()
    selected, inside = subject.selected(batch), subject.attendable(batch)
    complement = subject.read_selected(batch, inside & ~selected).detach().double().softmax(-1).numpy()
    for number in range(4):
        chosen = selected[number, inside[number]].numpy()
        assert list(columns["selection_shares"][number]) == [0.0, 0.3] * 2
        assert (columns["selection_chosen"][number][0] == chosen).all()
        for name, expected in (("selection_probs", own), ("complement_probs", complement)):
            np.testing.assert_allclose(columns[name][number], expected[number], atol=1e-6)
        np.testing.assert_allclose(columns["selection_kept_probs"][number][0], own[number], atol=1e-6)
        np.testing.assert_allclose(columns["selection_removed_probs"][number][0], complement[number], atol=1e-6)
        of_scores = first(scores["other"][number], chosen.sum())  # of the same size, read in place of its own
        assert (columns["selection_chosen"][number][2] == of_scores).all()
        mask = torch.zeros_like(inside[:1])
        mask[0, inside[number]] = torch.from_numpy(of_scores)
        alone = subject.read_selected(batch.take(torch.tensor([number])), mask).detach().double().softmax(-1)[0]
        np.testing.assert_allclose(columns["selection_kept_probs"][number][2], alone, atol=1e-6)


@pytest.mark.parametrize("absent", ["deleted", "mask_token"])
@torch.no_grad()
def test_signs_by_a_plain_loop(absent):
    subject = SelfAttention(classifier("bert"), tokenizer())
    batch = subject.encode(["the old ships sailed slowly !", "a new ship sank", "", "good"])
    counts, random = subject.attendable(batch).sum(1).tolist(), np.random.default_rng(0)
    signed = [random.normal(size=count) for count in counts]
    batch["scores"] = {
        "attention": [random.random(count) for count in counts],
        "signed": signed,
        record.ABSOLUTE + "signed": [np.abs(values) for values in signed],
        "nothing": [np.zeros(count) for count in counts],
        "broken": [np.full(count, np.nan) if row == 1 else np.ones(count) for row, count in enumerate(counts)],
    }
    whole = subject.predict(batch).double().softmax(-1).numpy()
    columns = run("sign_violations", subject, batch, absent=absent)
    assert columns["sign_violations_measures"] == [list(batch["scores"])] * 4
    for row, count in enumerate(counts):
        for place, (name, values) in enumerate(batch["scores"].items()):
            sign, effect = (columns[f"sign_violations_{part}"][row][place] for part in ("signs", "effects"))
            if not count or np.isnan(values[row]).any():
                assert np.isnan(sign) and np.isnan(effect)
            elif name in ("nothing", "broken"):
                assert sign == (name == "broken")
            else:
                largest = int(np.abs(values[row]).argmax())
                assert sign == np.sign(values[row][largest])
                parts = [np.ones((0, length), bool) for length in counts]
                parts[row] = (np.arange(count) != largest)[None]
                logits, own = read_parts(subject, batch, parts, absent)[row][0], whole[row].argmax()
                probs = torch.from_numpy(logits).softmax(0)
                assert effect == pytest.approx(whole[row, own] - float(probs[own]), abs=1e-6)


@MODELS
def test_elements_stay_by_the_scores(encoder, projection, readout, query, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, projection=projection, readout=readout, query=query, num_labels=3)
    batch, scores = tiny_batch(tiny_rows([5, 8], pair=query == "text")), scored([5, 8])
    columns = run("soft_erasure", model, {**batch, "scores": scores}, draws=3, seed=7)
    columns = {name.removeprefix("soft_erasure_"): values for name, values in columns.items()}

    @torch.no_grad()
    def probs(row, factors):
        """When the embeddings of a text's tokens are multiplied by factors (T,E)."""
        embedded = embedded_of(model, batch)
        embedded[row, 1 : 1 + len(factors)] *= torch.as_tensor(factors, dtype=embedded.dtype)
        return logits_at(model, batch, embedded).double().softmax(-1)[row].numpy()

    for row, length in enumerate((5, 8)):
        ones = np.ones((length, 8))
        whole = probs(row, ones)
        predicted = whole.argmax()
        assert columns["measures"][row] == ["attention", "other"]
        assert columns["whole_prob"][row] == pytest.approx(whole[predicted], abs=1e-6)
        assert columns["empty_prob"][row] == pytest.approx(probs(row, 0 * ones)[predicted], abs=1e-6)
        draws = generator(7, batch["instance_id"][row], "soft_erasure").random((3, length, 8), np.float32)
        for number, values in enumerate(scores.values()):
            shares = ((values[row] - values[row].min()) / np.ptp(values[row])).astype(np.float32)
            for draw in range(3):
                stays = draws[draw] < shares[:, None]
                for name, factors in (("kept", stays), ("removed", ~stays)):
                    expected = probs(row, factors)[predicted]
                    assert columns[f"{name}_probs"][row][number, draw] == pytest.approx(expected, abs=1e-6)
    assert np.ptp(columns["kept_probs"][1]) > 1e-3


def aopc_of_all_orders(p, length):
    """p: a function of sets (V,T) of removed tokens."""
    orders = np.array(list(itertools.permutations(range(length))))
    removed = np.argsort(orders, 1)[:, None] <= np.arange(length)[:, None]
    return p(np.zeros((1, length), bool))[0] - p(removed.reshape(-1, length)).reshape(len(orders), length).mean(1)


def drawn_probabilities(length, seed):
    """A probability for each set of tokens, drawn at random."""
    values = np.random.default_rng(seed).random(2**length)
    return lambda sets: values[(sets * 2 ** np.arange(length)).sum(1)]


def limits_of(p, orders, exact_tokens, beam):
    limits = AOPCLimits(exact_tokens=exact_tokens, beam=beam).limits(np.asarray(orders), p)
    return SimpleNamespace(**dict(zip(("aopc", "low", "high", "certainty"), limits, strict=True)))


@pytest.mark.parametrize("length", [1, 3, 5])
def test_exact_limits_are_those_of_all_orders(length):
    for seed in range(3):
        p, order = drawn_probabilities(length, seed), np.random.default_rng(seed).permutation(length)
        limits, values = limits_of(p, [order], length, 1), aopc_of_all_orders(p, length)
        assert (limits.low, limits.high) == pytest.approx((values.min(), values.max()), abs=1e-12)
        assert limits.certainty == "exact"
        removed = np.argsort(order)[None] <= np.arange(length)[:, None]
        assert limits.aopc == pytest.approx([p(np.zeros((1, length), bool))[0] - p(removed).mean()])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_lies_within_the_limits(seed):
    length = 6
    p = drawn_probabilities(length, seed)
    values = aopc_of_all_orders(p, length)
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(length), (3, 1)), axis=1)
    for beam in (1, 3, 1000):
        limits = limits_of(p, orders, 0, beam)
        assert values.min() <= limits.low + 1e-12 <= limits.aopc.min() + 2e-12
        assert values.max() >= limits.high - 1e-12 >= limits.aopc.max() - 2e-12
        assert limits.certainty == "met"
        assert min(np.abs(values - limits.low)) < 1e-12 and min(np.abs(values - limits.high)) < 1e-12  # of an order
    assert (limits.low, limits.high) == pytest.approx((values.min(), values.max()))
