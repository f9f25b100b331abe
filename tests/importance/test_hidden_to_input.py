"""Eq. 5 of Meister et al. against one backward pass a state in float64, and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from attnfaith.importance import state_lengths
from attnfaith.importance.gradients import GradientHiddenToInput
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import Batch, subject_of
from tests.measuring import classifier_of, run


ENTROPY, OWN, ROWS = GradientHiddenToInput.columns
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def close(values, expected, atol=1e-6, rtol=2e-5):
    np.testing.assert_allclose(np.asarray(values), np.asarray(expected), atol=atol, rtol=rtol)


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


def one_pass_a_state(model, batch):
    """The same by autograd, in the dtype of the model, padding and all."""
    inputs = {name: batch.get(name) for name in ("attention_mask", "token_type_ids")}
    items = model.items(batch["input_ids"], **inputs)
    embedded = classifier_of(model).get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    hidden, mask, _ = model.encode(inputs_embeds=embedded, items=items, **inputs)
    arrays = []
    for row, inside in enumerate(mask):
        expected = np.empty((int(inside.sum()),) * 2)
        numbers = items[row][items[row] >= 0].unique()
        for state, place in enumerate(inside.nonzero().squeeze(1).tolist()):
            (slope,) = torch.autograd.grad(hidden[row, place].norm(), embedded, retain_graph=True)
            expected[state] = [float(slope[row][items[row] == item].norm()) for item in numbers]
        arrays.append(expected)
    return arrays


@pytest.mark.parametrize(
    ("query", "hierarchy"),
    [("learned", "none"), ("text", "none"), ("learned", "word"), pytest.param("text", "sentence", marks=pytest.mark.slow)],
)
@every_encoder
def test_one_backward_pass_a_state(encoder, query, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Rows and what is made of them, in float32, against float64; a sentence is all its words as one vector."""
    model = tiny_model(encoder=encoder, query=query, hierarchy=hierarchy, seed=int(hierarchy != "none"))
    batch = tiny_batch(tiny_rows([7, 0, 1, 12, 7, 2], pair=query == "text", hierarchy=hierarchy))
    norms, columns = sensitivities(model, batch), run(GradientHiddenToInput, model, batch, keep_rows=True)
    without_rows = run(GradientHiddenToInput, model, batch)[ROWS]
    classifier_of(model).double()
    for row, expected in enumerate(one_pass_a_state(model, batch)):
        length = len(expected)
        assert norms[row].dtype == np.float32 and norms[row].shape == (length, length) == columns[ROWS][row].shape
        assert without_rows[row].shape == (0, length)
        if length:
            shares = expected / expected.sum(1, keepdims=True)
            close(norms[row] / expected.max(), expected / expected.max())
            close(columns[ROWS][row], shares)
            close(columns[OWN][row], shares.diagonal())
        if length > 1:
            close(columns[ENTROPY][row], entropy(expected, axis=1) / math.log(length))


@every_encoder
def test_what_is_undefined(encoder, tiny_model, tiny_rows, tiny_batch):
    """The entropy of one share over log 1; a row where states are the same whatever the text, or of length 0."""
    model, batch = tiny_model(encoder=encoder), tiny_batch(tiny_rows([1, 0, 4]))
    columns = run(GradientHiddenToInput, model, batch, keep_rows=True)
    assert np.isnan(columns[ENTROPY][0]).all() and columns[OWN][0].tolist() == [1] and columns[ROWS][0].tolist() == [[1]]
    assert [columns[name][1].shape for name in (ENTROPY, OWN, ROWS)] == [(0,), (0,), (0, 0)]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    for values in run(GradientHiddenToInput, model, batch, keep_rows=True).values():
        assert np.isnan(values[2]).all()
