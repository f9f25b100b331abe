"""Eq. 5 against one backward pass a state in float64, finite differences and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from attnfaith import record
from attnfaith.importance import state_lengths
from attnfaith.importance.gradients import GradientHiddenToInput
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import Batch, subject_of
from tests.measuring import run


ENTROPY, OWN, ROWS = GradientHiddenToInput.columns
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
STEP = 1e-6


def close(found, expected, atol=1e-6, rtol=2e-5):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=atol, rtol=rtol)


def sensitivities(model, batch):
    """One array (T,T) for each instance: ||d ||h_p||_2 / d x_i||_2 of state p (row) in token i (column)."""
    subject = subject_of(model)
    batch = Batch.of(batch, subject)
    lengths = subject.attendable(batch).sum(1).tolist()
    rows = [np.empty((length, length), np.float32) for length in lengths]
    for texts, states, norms in state_lengths.norms_of_states(subject, batch):
        for text, values in zip(texts, norms.cpu().numpy(), strict=True):
            rows[text][states] = values
    return rows


def one_pass_a_state(model, batch, row):
    """||d ||h_p|| / d x_i|| (T,T) of one text by autograd, in the dtype of the model, padding and all."""
    inputs = {name: batch.get(name) for name in ("attention_mask", "token_type_ids")}
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    hidden, mask, _ = model.encode(inputs_embeds=embedded, **inputs)
    places = mask[row].nonzero().squeeze(1)
    found = []
    for place in places.tolist():
        (slope,) = torch.autograd.grad(hidden[row, place].norm(), embedded, retain_graph=True)
        found.append(slope[row, places].norm(dim=-1))
    return torch.stack(found).detach().numpy() if found else np.empty((0, 0))


def shares(rows):
    return rows / rows.sum(1, keepdims=True)


@pytest.mark.parametrize("query", ["learned", "text"])
@every_encoder
def test_one_backward_pass_a_state(encoder, query, tiny_model, tiny_rows, tiny_batch):
    """Rows and what is made of them, in float32, against float64."""
    model = tiny_model(encoder=encoder, query=query)
    rows = tiny_rows([7, 0, 1, 12, 7, 2], pair=query == "text")
    batch = tiny_batch(rows)
    found, made = sensitivities(model, batch), run(GradientHiddenToInput, model, batch, keep_rows=True)
    assert [values.dtype for values in found] == [np.float32] * 6
    precise = model.double()
    for row, length in enumerate((7, 0, 1, 12, 7, 2)):
        expected = one_pass_a_state(precise, batch, row)
        assert found[row].shape == (length, length) == made[ROWS][row].shape
        if length == 0:
            continue
        assert (expected.sum(1) > 0).all()
        close(found[row] / expected.max(), expected / expected.max())
        close(made[ROWS][row], shares(expected))
        close(made[OWN][row], shares(expected).diagonal())
        if length > 1:
            close(made[ENTROPY][row], entropy(expected, axis=1) / math.log(length))


def test_embeddings_reach_their_own_state_only(tiny_model, tiny_rows, tiny_batch):
    """||x|| grows by 1 along x."""
    made = run(GradientHiddenToInput, tiny_model(encoder="embedding"), tiny_batch(tiny_rows([5])), keep_rows=True)
    close(sensitivities(tiny_model(encoder="embedding"), tiny_batch(tiny_rows([5])))[0], np.eye(5))
    close(made[ROWS][0], np.eye(5))
    assert (made[OWN][0] == 1).all() and (made[ENTROPY][0] == 0).all()


def test_a_window_is_all_that_a_convolution_sees(tiny_model, tiny_rows, tiny_batch):
    (found,) = sensitivities(tiny_model(encoder="cnn", kernel_sizes=(1, 5)), tiny_batch(tiny_rows([9])))
    near = abs(np.subtract.outer(np.arange(9), np.arange(9))) <= 2
    assert (found[~near] == 0).all() and (found[near] > 0).all()


@every_encoder
def test_texts_of_one_token_and_of_none(encoder, tiny_model, tiny_rows, tiny_batch):
    """One token: it has all of the row; the entropy of one share over log 1 is not defined."""
    made = run(GradientHiddenToInput, tiny_model(encoder=encoder), tiny_batch(tiny_rows([1, 0])), keep_rows=True)
    assert np.isnan(made[ENTROPY][0]).all() and made[OWN][0].tolist() == [1] and made[ROWS][0].tolist() == [[1]]
    assert [made[name][1].shape for name in (ENTROPY, OWN, ROWS)] == [(0,), (0,), (0, 0)]


@every_encoder
def test_states_that_depend_on_no_token_are_undefined(encoder, tiny_model, tiny_rows, tiny_batch):
    """With all weights 0 states are 0, or the same whatever the text; of ||0|| there is no derivative."""
    model = tiny_model(encoder=encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    made = run(GradientHiddenToInput, model, tiny_batch(tiny_rows([4])), keep_rows=True)
    for name in (ENTROPY, OWN, ROWS):
        assert np.isnan(made[name][0]).all(), name


@pytest.mark.parametrize("keep", [True, False])
def test_kept_rows_are_read_back_from_a_record(keep, tiny_model, tiny_rows, tiny_batch):
    rows = tiny_rows([3, 0, 5])
    made = run(GradientHiddenToInput, tiny_model(), tiny_batch(rows), keep_rows=keep)
    columns = record.as_columns(record.Identity("x", "x", "x", 0), 3) | {
        "instance_id": [row["instance_id"] for row in rows],
        "tokens": [row["tokens"] for row in rows],
        "label": [None] * 3,
        "truncated": [False] * 3,
        "probs": [[0.5, 0.5]] * 3,
        "attention": [np.full(length, 1 / max(1, length)) for length in (3, 0, 5)],
    }
    table = record.build(columns | made, GradientHiddenToInput.columns)
    for one, other in zip(record.rows(table, ROWS), made[ROWS], strict=True):
        np.testing.assert_array_equal(one, other if len(other) else np.empty((0, 0)))


@pytest.mark.parametrize("query", ["learned", "text"])
def test_the_second_text_has_no_part(query, tiny_model, tiny_rows, tiny_batch):
    """Nor has anything beyond the first text: the same text alone and before a question has the same rows."""
    model = tiny_model(query=query)
    rows = tiny_rows([6, 6], pair=query == "text")
    rows[1]["input_ids"][:8] = rows[0]["input_ids"][:8]
    first, other = sensitivities(model, tiny_batch(rows))
    close(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["learned", "text"])
@every_encoder
def test_sentences(encoder, query, tiny_model, tiny_rows, tiny_batch):
    """A sentence's part in the length of a state: the gradient in all its words as one vector."""
    model = tiny_model(encoder=encoder, query=query, hierarchy="sentence", seed=1)
    batch = tiny_batch(tiny_rows([7, 0, 1, 12, 6], pair=query == "text", hierarchy="sentence"))
    found = sensitivities(model, batch)
    made = run(GradientHiddenToInput, model, batch, keep_rows=True)
    model.double()
    given = {name: batch.get(name) for name in ("attention_mask", "token_type_ids")}
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    hidden = model.encode(inputs_embeds=embedded, items=model.model.items(batch["input_ids"], **given), **given).hidden
    for row, sentences in enumerate((3, 0, 1, 4, 2)):
        assert found[row].shape == (sentences, sentences)
        expected = np.empty((sentences, sentences))
        for state in range(sentences):
            (slope,) = torch.autograd.grad(hidden[row, state].norm(), embedded, retain_graph=True)
            expected[state] = [slope[row, 1 + 3 * place : 3 + 3 * place].norm() for place in range(sentences)]
        if sentences:
            close(found[row] / expected.max(), expected / expected.max())
            close(made[ROWS][row], shares(expected))
            close(made[OWN][row], shares(expected).diagonal())


@every_encoder
def test_words_of_sentences(encoder, tiny_model, tiny_rows, tiny_batch):
    """A word's state depends on its own sentence: the gradients of each state in all words of the document."""
    model = tiny_model(encoder=encoder, hierarchy="word", seed=1)
    rows = tiny_rows([7, 0, 1, 12], hierarchy="word")
    batch = tiny_batch(rows)
    found, made = sensitivities(model, batch), run(GradientHiddenToInput, model, batch, keep_rows=True)
    model.classifier.double()
    items, given = model.items(batch["input_ids"]), {"attention_mask": batch["attention_mask"]}
    embedded = model.classifier.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    hidden = model.encode(inputs_embeds=embedded, items=items, **given).hidden
    for row, words in enumerate(len(row["tokens"]) for row in rows):
        assert found[row].shape == (words, words)
        expected = np.empty((words, words))
        for state in range(words):
            (slope,) = torch.autograd.grad(hidden[row, state].norm(), embedded, retain_graph=True)
            expected[state] = slope[row, items[row] >= 0].norm(dim=-1)
        if words:
            assert (expected[:2, 2:] == 0).all()
            close(found[row] / expected.max(), expected / expected.max())
            close(made[ROWS][row], shares(expected))
