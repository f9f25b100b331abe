"""Gradient measures against closed forms, captum and one backward pass a state in float64."""

import math

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, Saliency
from scipy.stats import entropy, kendalltau

from attnfaith.importance import state_lengths
from attnfaith.importance.gradients import (
    Gradient,
    GradientAttentionHeld,
    GradientHiddenToInput,
    GradientNorm,
    GradientXInput,
)
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import Batch, SelfAttention, SubjectError, subject_of
from attnfaith.subjects.protocol import log_odds
from tests.measuring import classifier_of, run
from tests.small_classifiers import classifier, texts, tokenizer


TOKENS, STATES = GradientXInput.columns
CELLS = [(encoder, "learned", "affine", "softmax") for encoder in ENCODERS]
CELLS += [("bilstm", "text", "tanh", "sparsemax"), ("cnn", "text", "affine", "softmax")]
every_cell = pytest.mark.parametrize(("encoder", "query", "readout", "projection"), CELLS)


def close(actual, expected, **tolerance):
    torch.testing.assert_close(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), **tolerance)


def masks(batch):
    return {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}


@torch.no_grad()
def stages(model, batch):
    encoded = model.encode(batch["input_ids"], **masks(batch))
    attention = model.attend(*encoded)
    return encoded, attention, model.decode(encoded.hidden, attention, encoded.query)


def embedded_of(model, batch):
    return classifier_of(model).get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()


def logits_at(model, batch, held):
    """Embeddings (B,L,E) to logits; held: whatever the embeddings, attention is that of the text as it is."""
    _, own, _ = stages(model, batch)

    def logits(embedded):
        encoded = model.encode(inputs_embeds=embedded, **masks(batch))
        return model.decode(encoded.hidden, own if held else model.attend(*encoded), encoded.query)

    return logits


@every_cell
def test_captum(encoder, query, readout, projection, tiny_model, tiny_rows, tiny_batch):
    """Of each measure, text by text; also of states where the gradient goes through attention."""
    model = tiny_model(encoder=encoder, query=query, readout=readout, projection=projection, num_labels=3, scale=2.0)
    for row in tiny_rows([6, 2, 9], pair=query == "text"):
        batch, inner = tiny_batch([row]), slice(1, 1 + len(row["tokens"]))
        embedded, (encoded, _, logits) = embedded_of(model, batch), stages(model, batch)
        predicted = int(logits.argmax())
        held, through = (logits_at(model, batch, flag) for flag in (True, False))

        products = InputXGradient(lambda x, f=held: f(x).softmax(-1)).attribute(embedded, target=predicted)
        (values,) = run(Gradient, model, batch)["importance_gradient"]
        close(values, products.sum(-1).abs()[0, inner].detach(), atol=1e-7, rtol=1e-4)

        columns = run(GradientXInput, model, batch)
        products = InputXGradient(through).attribute(embedded, target=predicted).sum(-1)[0, inner]
        close(columns[TOKENS][0], products.detach(), atol=1e-5, rtol=1e-5)
        of_states = InputXGradient(lambda h, e=encoded: model.decode(h, model.attend(h, *e[1:]), e.query))
        products = of_states.attribute(encoded.hidden.clone().requires_grad_(), target=predicted).sum(-1)[0, inner]
        close(columns[STATES][0], products.detach(), atol=1e-5, rtol=1e-5)

        norms = run(GradientNorm, model, batch)
        classes = torch.tensor([predicted])
        for ending, logits in (("", through), ("_detached", held)):
            slopes = Saliency(lambda x, f=logits: log_odds(f(x), classes)).attribute(embedded, abs=False)  # noqa: B023
            close(norms[f"importance_gradient_norm{ending}"][0], slopes.norm(dim=-1)[0, inner], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_states_under_held_attention_in_closed_form(projection, query, tiny_model, tiny_rows, tiny_batch):
    """p (1-p) a_t |s_t|, s_t what a state adds to a difference of logits; a_t ||w_1 - w_0||, in the order of attention."""
    model = tiny_model(projection=projection, query=query)
    batch = tiny_batch(tiny_rows([5, 8, 30], pair=query == "text"))
    encoded, attention, logits = stages(model, batch)
    p, weight = logits.softmax(-1)[:, 1:], model.decoder_weights(encoded.query)[0].detach()
    difference = weight[1] - weight[0]
    products = p * (1 - p) * attention * (encoded.hidden @ difference).abs()
    columns = run(Gradient, model, batch) | run(GradientNorm, model, batch)
    for row, mask in enumerate(encoded.mask):
        close(columns["importance_gradient_hidden"][row], products[row][mask], atol=1e-7, rtol=1e-4)
        norms = columns["importance_gradient_norm_detached_hidden"][row]
        close(norms, attention[row][mask] * difference.norm(), atol=0, rtol=1e-5)
        assert kendalltau(attention[row][mask], norms).statistic == pytest.approx(1, abs=1e-12)


def test_norms_of_states_through_attention_in_closed_form(tiny_model, tiny_rows, tiny_batch):
    """Two classes, dot alignment, softmax: d z / d h_t = a_t (w + (s_t - z) q / sqrt(H)), z and s without the bias."""
    model, batch = tiny_model(alignment="dot"), tiny_batch(tiny_rows([6]))
    encoded, attention, _ = stages(model, batch)
    with torch.no_grad():
        w = model.decoder.context.weight[1] - model.decoder.context.weight[0]
        q = model.model.alignment.query.weight[0] * model.model.alignment.scale
        s = encoded.hidden @ w
        z = (attention * s).sum(-1, keepdim=True)
        slopes = attention.unsqueeze(-1) * (w + (s - z).unsqueeze(-1) * q)
    (norms,) = run(GradientNorm, model, batch)["importance_gradient_norm_hidden"]
    close(norms, slopes.norm(dim=-1)[0, 1:7], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("difference", [30.0, 60.0])
def test_saturated_predictions_keep_their_ranks(difference, tiny_model, tiny_rows, tiny_batch):
    """At a logit difference of 30 a float32 softmax is exactly 0 and 1, and its gradient 0; at 60 a float64 one too."""
    model, batch = tiny_model(dtype=torch.float32), tiny_batch(tiny_rows([7]))
    _, _, logits = stages(model, batch)
    with torch.no_grad():
        model.decoder.context.bias[1] += difference - float(logits[0, 1] - logits[0, 0])
    encoded, attention, logits = stages(model, batch)
    assert float(logits.softmax(-1)[0, 1]) == 1.0
    p, weight = logits.double().softmax(-1)[0], model.decoder.context.weight.detach()
    expected = p[0] * p[1] * attention * (encoded.hidden @ (weight[1] - weight[0])).abs()
    columns = run(Gradient, model, batch)
    (tokens,), (states,) = columns["importance_gradient"], columns["importance_gradient_hidden"]
    assert len(set(tokens.tolist())) == 7 and (tokens > 0).all()
    close(states, expected[encoded.mask], atol=0, rtol=1e-4)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_of_a_stack_the_gradient_is_the_size_of_what_captum_gives(kind):
    """Through attention; with attention held fixed the order is another."""
    subject = SelfAttention(classifier(kind).double(), tokenizer())
    batch = subject.encode(["the old ship man good bad"])
    embedded, predicted = subject.embed(batch).detach(), subject.predict(batch).argmax(-1)

    def probability(values):
        return subject.model(inputs_embeds=values, **masks(batch)).logits.softmax(-1)

    products = InputXGradient(probability).attribute(embedded.requires_grad_(), target=predicted).sum(-1)
    expected = products[0][subject.attendable(batch)[0]].abs().detach().numpy()
    (values,) = run(Gradient, subject, batch)["importance_gradient"]
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    (held,) = run(GradientAttentionHeld, subject, batch)["importance_gradient_attention_held"]
    assert np.abs(held - values).max() > 1e-3 * values.max()


@pytest.mark.parametrize(
    ("positions", "kind"), [(True, "deberta-v2"), (False, "deberta-v2"), (None, "bert"), (None, "llama")]
)
def test_products_are_refused_where_a_norm_takes_the_length_of_embeddings_away(positions, kind):
    """In the layout of DeBERTa-v3, f(10 x) = f(x) and so x . df/dx = 0, token by token, up to the norm's epsilon."""
    fields = {} if positions is None else {"position_biased_input": positions, "relative_attention": True}
    model = classifier(kind, **fields).double()
    subject = SelfAttention(model)
    batch = Batch.of(texts(model), subject)
    embedded = subject.embed(batch).detach().requires_grad_()
    (slopes,) = torch.autograd.grad(subject.predict(batch, embedded)[:, 0].sum(), embedded)
    cosines = torch.cosine_similarity(embedded, slopes, dim=-1)[batch["attention_mask"].bool()].abs()
    has_length = "embedding length" in subject.capabilities
    assert has_length == (positions is not False) and (cosines.max() > 0.03) == has_length
    if not has_length:
        assert cosines.max() < 0.01
        with pytest.raises(SubjectError, match="embedding length"):
            run(GradientXInput, subject, batch)
        assert np.isfinite(run(GradientNorm, subject, batch)["importance_gradient_norm"][0]).all()


ENTROPY, OWN, ROWS = GradientHiddenToInput.columns
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def close_rows(values, expected, atol=1e-6, rtol=2e-5):
    np.testing.assert_allclose(np.asarray(values), np.asarray(expected), atol=atol, rtol=rtol)


def sensitivities(model, batch):
    """One array (T,T) for each instance: ||d ||h_p||_2 / d x_i||_2 of state p (row) in token i (column)."""
    subject = subject_of(model)
    batch = Batch.of(batch, subject)
    lengths = subject.attendable(batch).sum(1).tolist()
    rows = [np.empty((length, length), np.float32) for length in lengths]
    for numbers, states, norms in state_lengths.norms_of_states(subject, batch):
        for text, values in zip(numbers, norms.cpu().numpy(), strict=True):
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
            close_rows(norms[row] / expected.max(), expected / expected.max())
            close_rows(columns[ROWS][row], shares)
            close_rows(columns[OWN][row], shares.diagonal())
        if length > 1:
            close_rows(columns[ENTROPY][row], entropy(expected, axis=1) / math.log(length))


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
