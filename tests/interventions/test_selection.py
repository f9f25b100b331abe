"""Selections of one size, read by hand; a model that selects is told what to read, others lose the rest of the text."""

import numpy as np
import pytest
import torch

from attnfaith.interventions.explanation_tests import budget
from attnfaith.measurement.registry import find
from attnfaith.models.rationale_samplers import budget_tokens
from attnfaith.subjects import subject_of
from tests.measuring import run
from tests.small_rationales import rationale_model


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
    made = run("selection", subject, {**subject.collate(rows), "scores": scores}, shares=(0.2, 0.5))
    sizes = {(7, 0.2): 1, (7, 0.5): 4, (4, 0.2): 1, (4, 0.5): 2, (1, 0.2): 1, (1, 0.5): 1, (0, 0.2): 0, (0, 0.5): 0}
    assert list(made) == list(find("selection").columns_for(subject)) and "complement_probs" not in made
    for number, row in enumerate(rows):
        assert made["selection_measures"][number] == ["attention"] * 2 + ["other"] * 2
        assert list(made["selection_shares"][number]) == [0.2, 0.5] * 2
        for place, (name, share) in enumerate(
            zip(made["selection_measures"][number], made["selection_shares"][number], strict=True)
        ):
            values = scores[name][number]
            chosen = first(values, sizes[len(values), share])
            assert (made["selection_chosen"][number][place] == chosen).all()
            for column, stays in (("kept", chosen), ("removed", ~chosen)):
                left = [2, *np.array(row["input_ids"][1:-1], int)[stays].tolist(), 3]
                batch = subject.collate([{**row, "input_ids": left}])
                expected = subject.predict(batch).detach().double().softmax(-1)[0]
                np.testing.assert_allclose(made[f"selection_{column}_probs"][number][place], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["bernoulli", "deleted", "hardkuma", "transition"])
def test_of_a_model_that_selects(kind, tiny_rows):
    model, rows = rationale_model(kind), tiny_rows((9, 5, 1, 0))
    subject = subject_of(model)
    batch, scores = subject.collate(rows), scored(rows)
    made = run("selection", subject, {**batch, "scores": scores}, shares=(0.3,))
    own = subject.predict(batch).detach().double().softmax(-1).numpy()
    selected, inside = subject.selected(batch), subject.attendable(batch)
    complement = subject.read_selected(batch, inside & ~selected).detach().double().softmax(-1).numpy()
    for number, row in enumerate(rows):
        np.testing.assert_allclose(made["selection_probs"][number], own[number], atol=1e-6)
        np.testing.assert_allclose(made["complement_probs"][number], complement[number], atol=1e-6)
        mine = selected[number, inside[number]].numpy()
        assert list(made["selection_shares"][number]) == [0.0, 0.3] * 2
        assert (made["selection_chosen"][number][0] == mine).all()
        np.testing.assert_allclose(made["selection_kept_probs"][number][0], own[number], atol=1e-6)
        np.testing.assert_allclose(made["selection_removed_probs"][number][0], complement[number], atol=1e-6)
        chosen = first(scores["other"][number], mine.sum())  # of the same size, read in place of its own
        assert (made["selection_chosen"][number][2] == chosen).all()
        told = torch.zeros_like(inside[:1])
        told[0, inside[number]] = torch.from_numpy(chosen)
        alone = subject.read_selected(batch.take(torch.tensor([number])), told).detach().double().softmax(-1)[0]
        np.testing.assert_allclose(made["selection_kept_probs"][number][2], alone, atol=1e-6)
        assert made["selection_chosen"][number].shape == (4, len(row["tokens"]))


def test_a_share_holds_as_many_tokens_as_a_budget():
    for share in (0.01, 0.1, 0.15, 0.2, 0.3, 0.5, 0.99):
        lengths = torch.arange(1, 41)
        mask = torch.arange(40) < lengths.unsqueeze(1)
        assert [budget(share, int(length)) for length in lengths] == budget_tokens(mask, share).tolist()


def test_nothing_selected_is_read_and_counted(tiny_rows):
    model, rows = rationale_model("bernoulli"), tiny_rows((6, 3))
    model.selector.score.bias.data.fill_(-50.0)
    subject = subject_of(model)
    batch = subject.collate(rows)
    made = run("selection", subject, batch)
    empty = subject.read_selected(batch, torch.zeros_like(subject.attendable(batch))).detach().double().softmax(-1)
    whole = subject.read_selected(batch, subject.attendable(batch)).detach().double().softmax(-1)
    for number in range(2):
        assert not made["selection_chosen"][number][0].any()
        np.testing.assert_allclose(made["selection_probs"][number], empty[number], atol=1e-6)
        np.testing.assert_allclose(made["complement_probs"][number], whole[number], atol=1e-6)


def test_an_undefined_measure_is_undefined_and_equal_scores_are_cut_at_random(tiny_model, tiny_rows):
    subject, rows = subject_of(tiny_model()), tiny_rows([10] * 30)
    scores = {"attention": [np.ones(10)] * 30, "other": [np.full(10, np.nan)] * 30}
    made = run("selection", subject, {**subject.collate(rows), "scores": scores}, shares=(0.2,))
    chosen = np.stack(made["selection_chosen"])
    assert (chosen[:, 0].sum(1) == 2).all() and not chosen[:, 1].any() and len(np.unique(chosen[:, 0], axis=0)) > 10
    assert np.isnan(np.stack(made["selection_kept_probs"])[:, 1]).all()
    assert np.isnan(np.stack(made["selection_removed_probs"])[:, 1]).all()
