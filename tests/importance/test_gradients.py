"""Measures of gradients and of attention against closed forms, captum, differences and one backward pass a state."""

import math

import numpy as np
import pytest
import torch
from captum import attr
from captum.attr import InputXGradient, Saliency
from scipy.stats import entropy, kendalltau

from attnfaith.importance.attention_based import AttentionNorm, AttentionXGradient, ExactContribution
from attnfaith.importance.gradients import (
    Gradient,
    GradientAttentionHeld,
    GradientHiddenToInput,
    GradientNorm,
    GradientXInput,
)
from attnfaith.importance.integrated import IntegratedGradients
from attnfaith.importance.perturbation import Occlusion
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from attnfaith.subjects.protocol import log_odds
from tests.measuring import run
from tests.small_classifiers import biased, classifier, texts
from tests.stages import embedded_of, inputs_of, logits_at, stages


TOKENS, STATES = GradientXInput.columns


def close(actual, expected, **tolerance):
    torch.testing.assert_close(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), **tolerance)


@pytest.mark.parametrize(
    ("encoder", "query", "readout", "projection"),
    [
        ("bilstm", "text", "tanh", "sparsemax"),
        ("transformer", "learned", "affine", "softmax"),
        ("cnn", "text", "affine", "softmax"),
        ("embedding", "learned", "tanh", "softmax"),
    ],
)
def test_captum(encoder, query, readout, projection, tiny_model, tiny_rows, tiny_batch):
    """Each measure, text by text; also of states, where the gradient goes through attention."""
    model = tiny_model(encoder=encoder, query=query, readout=readout, projection=projection, num_labels=3, scale=2.0)
    for row in tiny_rows([6, 2, 9], pair=query == "text"):
        batch, inner = tiny_batch([row]), slice(1, 1 + len(row["tokens"]))
        embedded, (encoded, own, logits) = embedded_of(model, batch).requires_grad_(), stages(model, batch)
        predicted = int(logits.argmax())
        held, through = (lambda x, a=a: logits_at(model, batch, x, attention=a) for a in (own, None))  # noqa: B023

        products = InputXGradient(lambda x, f=held: f(x).softmax(-1)).attribute(embedded, target=predicted)
        columns = run(Gradient, model, batch) | run(GradientXInput, model, batch) | run(GradientNorm, model, batch)
        close(columns["importance_gradient"][0], products.sum(-1).abs()[0, inner].detach(), atol=1e-7, rtol=1e-4)
        products = InputXGradient(through).attribute(embedded, target=predicted).sum(-1)[0, inner]
        close(columns[TOKENS][0], products.detach(), atol=1e-5, rtol=1e-5)
        of_states = InputXGradient(lambda h, e=encoded: model.decode(h, model.attend(h, *e[1:]), e.query))
        products = of_states.attribute(encoded.hidden.clone().requires_grad_(), target=predicted).sum(-1)[0, inner]
        close(columns[STATES][0], products.detach(), atol=1e-5, rtol=1e-5)
        classes = torch.tensor([predicted])
        for ending, f in (("", through), ("_detached", held)):
            slopes = Saliency(lambda x, f=f: log_odds(f(x), classes)).attribute(embedded, abs=False)  # noqa: B023
            norms = columns[f"importance_gradient_norm{ending}"][0]
            close(norms, slopes.norm(dim=-1)[0, inner], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(("query", "projection"), [("learned", "softmax"), ("text", "sparsemax")])
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


@pytest.mark.parametrize(
    ("encoder", "projection", "query", "hierarchy"),
    [("transformer", "sparsemax", "text", "none"), ("embedding", "uniform", "learned", "sentence")],
)
def test_contributions_sum_to_the_logit(encoder, projection, query, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """And are attention x gradient, and attention times w . h; those of a contrast are a difference."""
    model = tiny_model(encoder=encoder, projection=projection, query=query, num_labels=3, hierarchy=hierarchy)
    batch = tiny_batch(tiny_rows([7, 0, 1, 4], pair=query == "text", hierarchy=hierarchy))
    encoded, attention, logits = stages(model, batch)
    weight, bias = (values.detach() for values in model.decoder_weights(encoded.query))
    by_class = [run(ExactContribution, model, batch, target=number)["importance_exact_contribution"] for number in range(3)]
    for number, contributions in enumerate(by_class):
        rise, (linear,) = (logits - bias)[:, number], run(AttentionXGradient, model, batch, target=number).values()
        expected = attention * (encoded.hidden @ weight[number])
        for row, (values, products) in enumerate(zip(contributions, linear, strict=True)):
            assert values.sum() == pytest.approx(float(rise[row]), abs=2e-5)
            np.testing.assert_allclose(values, expected[row, encoded.mask[row]], atol=2e-5)
            np.testing.assert_allclose(values, products, atol=2e-5)
    (contrast,) = run(ExactContribution, model, batch, target={"of": 0, "against": 2}).values()
    difference = np.concatenate(by_class[0]) - np.concatenate(by_class[2])
    np.testing.assert_allclose(np.concatenate(contrast), difference, atol=2e-5)


@pytest.mark.parametrize(
    ("output", "fields"), [("logit", {"hierarchy": "sentence"}), ("probability", {"readout": "tanh"}), ("log_odds", {})]
)
def test_attention_x_gradient_by_differences_and_attention_norm_by_hand(fields, output, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(num_labels=3, scale=2.0, **fields)
    batch = tiny_batch(tiny_rows([6], hierarchy=fields.get("hierarchy", "none")))
    encoded, attention, logits = stages(model, batch)
    (products,) = run(AttentionXGradient, model, batch, output=output)["importance_attention_x_gradient"]
    predicted, step = int(logits.argmax()), 1e-6

    @torch.no_grad()
    def value(weights):
        logits = model.decode(encoded.hidden, weights, encoded.query)[0]
        p = logits.softmax(-1)[predicted]
        return {"logit": logits[predicted], "probability": p, "log_odds": (p / (1 - p)).log()}[output]

    places = encoded.mask[0].nonzero().squeeze(1).tolist()
    for place, product in zip(places, products, strict=True):
        change = step * torch.eye(attention.shape[1])[None, place]
        slope = (value(attention + change) - value(attention - change)) / (2 * step)
        assert product == pytest.approx(float(attention[0, place] * slope), abs=1e-6, rel=1e-4)
    (norms,) = run(AttentionNorm, model, batch)["importance_attention_norm"]
    close(norms, (attention * encoded.hidden.norm(dim=-1))[encoded.mask].detach(), atol=0, rtol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_measures_of_embeddings_are_captums(kind):
    """Through the model's own inputs_embeds, one text at a time, where our measures give embeddings by a hook."""
    model, subject, batch = biased(kind)
    paths = run(IntegratedGradients, subject, batch, target=1, baseline="zero", tolerance=1e-5)
    columns = (
        run(GradientXInput, subject, batch, target=1) | run(GradientNorm, subject, batch) | run(Gradient, subject, batch)
    )
    zeroed = run(Occlusion, subject, batch, target=1, by="zero")["importance_occlusion"]
    held = run(GradientAttentionHeld, subject, batch)["importance_gradient_attention_held"]
    for row in range(2):
        alone = batch.alone(row)
        embedded, mask = subject.embed(alone).detach(), torch.ones_like(alone["input_ids"])

        def logit(points, mask=mask):
            return model(inputs_embeds=points, attention_mask=mask.expand(len(points), -1)).logits

        leaf = embedded.clone().requires_grad_()
        predicted = logit(embedded).argmax(-1)
        expected = InputXGradient(logit).attribute(leaf, target=1).sum(-1)[0].detach()
        np.testing.assert_allclose(columns[TOKENS][row], expected, atol=1e-5)
        sizes = InputXGradient(lambda x, f=logit: f(x).softmax(-1)).attribute(leaf, target=predicted)
        sizes = sizes.sum(-1)[0].abs().detach().numpy()
        np.testing.assert_allclose(columns["importance_gradient"][row], sizes, rtol=1e-4, atol=1e-7)
        assert np.abs(held[row] - sizes).max() > 1e-3 * sizes.max()  # another order
        path = attr.IntegratedGradients(logit, multiply_by_inputs=True)
        expected = path.attribute(embedded, torch.zeros_like(embedded), target=1, n_steps=200, method="gausslegendre")
        np.testing.assert_allclose(paths["importance_integrated_gradients"][row], expected.sum(-1)[0], atol=1e-5)
        assert paths["integrated_gradients_residual"][row] == pytest.approx(0, abs=1e-5)
        places = torch.arange(embedded.shape[1]).view(1, -1, 1).expand_as(embedded)
        expected = attr.FeatureAblation(logit).attribute(embedded, target=1, feature_mask=places)[0, :, 0]
        np.testing.assert_allclose(zeroed[row], expected.detach(), atol=1e-5)
        (slope,) = torch.autograd.grad(log_odds(logit(leaf)).sum(), leaf)
        np.testing.assert_allclose(columns["importance_gradient_norm"][row], slope[0].norm(dim=-1), atol=1e-5)


@pytest.mark.parametrize("positions", [True, False])
def test_products_are_refused_where_a_norm_takes_the_length_of_embeddings_away(positions):
    """In the layout of DeBERTa-v3, f(10 x) = f(x) and so x . df/dx = 0, token by token, up to the norm's epsilon."""
    model = classifier("deberta-v2", position_biased_input=positions, relative_attention=True).double()
    subject = SelfAttention(model)
    batch = Batch.of(texts(model), subject)
    embedded = subject.embed(batch).detach().requires_grad_()
    (slopes,) = torch.autograd.grad(subject.predict(batch, embedded)[:, 0].sum(), embedded)
    cosines = torch.cosine_similarity(embedded, slopes, dim=-1)[batch["attention_mask"].bool()].abs()
    assert ("embedding length" in subject.capabilities) == positions == (cosines.max() > 0.03)
    if not positions:
        assert cosines.max() < 0.01
        with pytest.raises(SubjectError, match="embedding length"):
            run(GradientXInput, subject, batch)
        assert np.isfinite(run(GradientNorm, subject, batch)["importance_gradient_norm"][0]).all()


ENTROPY, OWN = GradientHiddenToInput.columns


def one_pass_a_state(model, batch):
    """||d ||h_p||_2 / d x_i||_2 of each state p (row) in token i (column) by autograd, padding and all."""
    items = model.items(**{name: batch.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")})
    embedded = embedded_of(model, batch).requires_grad_()
    hidden, mask, _ = model.encode(inputs_embeds=embedded, items=items, **{**inputs_of(batch), "input_ids": None})
    for row, inside in enumerate(mask):
        norms, numbers = np.empty((int(inside.sum()),) * 2), items[row][items[row] >= 0].unique()
        for state, place in enumerate(inside.nonzero().squeeze(1).tolist()):
            (slope,) = torch.autograd.grad(hidden[row, place].norm(), embedded, retain_graph=True)
            norms[state] = [float(slope[row][items[row] == item].norm()) for item in numbers]
        yield norms


@pytest.mark.parametrize(
    ("encoder", "fields"),
    [
        *((encoder, {"query": "text"}) for encoder in ENCODERS),
        ("bilstm", {"hierarchy": "sentence"}),
    ],
)
def test_one_backward_pass_a_state(encoder, fields, tiny_model, tiny_rows, tiny_batch):
    """Of one token the entropy of one share is undefined."""
    model = tiny_model(encoder=encoder, **fields, seed=1)
    rows = tiny_rows([7, 0, 1, 12, 7, 2], pair="query" in fields, hierarchy=fields.get("hierarchy", "none"))
    batch = tiny_batch(rows)
    columns = run(GradientHiddenToInput, model, batch)
    for row, norms in enumerate(one_pass_a_state(model, batch)):
        length = len(norms)
        assert columns[OWN][row].shape == (length,)
        if not length:
            continue
        shares = norms / norms.sum(1, keepdims=True)
        np.testing.assert_allclose(columns[OWN][row], shares.diagonal(), atol=1e-6, rtol=2e-5)
        entropies = entropy(norms, axis=1) / math.log(length) if length > 1 else [np.nan]
        np.testing.assert_allclose(columns[ENTROPY][row], entropies, atol=1e-6, rtol=2e-5)
