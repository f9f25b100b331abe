"""Measures of stacks of layers against second routes: the authors' decompositions written out, captum, plain loops."""

import numpy as np
import pytest
import torch
from captum import attr
from torch.nn import functional

from attnfaith.importance.attention_based import AttentionXGradient
from attnfaith.importance.gradients import GradientNorm, GradientXInput
from attnfaith.importance.integrated import IntegratedGradients
from attnfaith.importance.perturbation import Occlusion
from attnfaith.importance.relevance import AttnLrp, Chefer, DecompX
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from tests.measuring import run
from tests.small_classifiers import classifier, texts


def exact(kind="bert", **fields):
    """A small classifier in float64 whose biases are not 0, and a batch of two texts."""
    model = classifier(kind, **fields).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    subject = SelfAttention(model)
    return model, subject, Batch.of(texts(model), subject)


@pytest.fixture(scope="module")
def bert():
    return exact()


class Written:
    """A BERT's forward pass for one text, layer by layer, with all that a decomposition asks for."""

    def __init__(self, model, ids):
        self.model, self.heads = model, model.config.num_attention_heads
        with torch.no_grad():
            self.start = model.bert.embeddings(input_ids=ids)[0]

    def split(self, states):
        return states.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def attention(self, layer, states):
        own = layer.attention.self
        query, key = self.split(own.query(states)), self.split(own.key(states))
        return (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)


def forward_decomposition(model, ids):
    """DecompX without biases as its authors compute it: vectors (source, place, size) carried through every layer; (T,C)."""
    text = Written(model, ids)
    states = text.start
    length, size = states.shape
    parts = torch.zeros(length, length, size, dtype=states.dtype)
    parts[torch.arange(length), torch.arange(length)] = states

    def normalised(norm, parts, states):
        spread = (states.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        return (parts - parts.mean(-1, keepdim=True)) / spread * norm.weight

    for layer in model.bert.encoder.layer:
        weights, own, out = text.attention(layer, states), layer.attention.self, layer.attention.output
        values = text.split(own.value(states))
        attended = out.dense((weights @ values).transpose(0, 1).flatten(1)) + states
        carried = text.split(parts @ own.value.weight.T)  # (source, head, place, size of a head)
        carried = (weights @ carried).transpose(1, 2).flatten(2) @ out.dense.weight.T + parts
        parts, states = normalised(out.LayerNorm, carried, attended), out.LayerNorm(attended)
        inner = layer.intermediate.dense(states)
        slope = functional.gelu(inner) / inner
        fed = layer.output.dense(functional.gelu(inner)) + states
        carried = ((parts @ layer.intermediate.dense.weight.T) * slope) @ layer.output.dense.weight.T + parts
        parts, states = normalised(layer.output.LayerNorm, carried, fed), layer.output.LayerNorm(fed)
    inner = model.bert.pooler.dense(states[0])
    pooled = (parts[:, 0] @ model.bert.pooler.dense.weight.T) * (inner.tanh() / inner)
    return pooled @ model.classifier.weight.T


@torch.no_grad()
def test_decompx_is_the_authors_forward_decomposition(bert):
    model, subject, batch = bert
    for number in range(model.num_labels):
        columns = run(DecompX, subject, batch, target=number)
        for row in range(2):
            alone = batch.alone(row)
            expected = forward_decomposition(model, alone["input_ids"])[:, number]
            np.testing.assert_allclose(columns["importance_decompx"][row], expected, atol=1e-6)
            whole = float(subject.predict(alone)[0, number])
            total = float(expected.sum()) + columns["decompx_markers"][row] + columns["decompx_rest"][row]
            assert total == pytest.approx(whole, abs=1e-6)


def linear_back(weight, values, result, relevance):
    """The epsilon rule with epsilon 0, a bias keeping what is its."""
    return values * ((relevance / result) @ weight)


def relevance_by_rules(model, ids, number):
    """AttnLRP through a BERT by its rules, each as the paper has it: relevance (T,) of what the first layer reads."""
    text = Written(model, ids)
    states, layers = text.start, []
    for layer in model.bert.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        query, key, value = own.query(states), own.key(states), own.value(states)
        scores = text.split(query) @ text.split(key).transpose(1, 2) / (text.split(query).shape[-1] ** 0.5)
        context = (scores.softmax(-1) @ text.split(value)).transpose(0, 1).flatten(1)
        dense = out.dense(context)
        middle = out.LayerNorm(dense + states)
        inner = layer.intermediate.dense(middle)
        outer = layer.output.dense(functional.gelu(inner))
        after = layer.output.LayerNorm(outer + middle)
        layers.append((layer, states, query, key, value, scores, context, dense, middle, inner, outer, after))
        states = after
    pooled = model.bert.pooler.dense(states[0])
    logits = model.classifier(pooled.tanh())
    relevance = torch.zeros_like(logits)
    relevance[number] = logits[number]
    relevance = linear_back(model.classifier.weight, pooled.tanh(), logits, relevance)  # and tanh passes it on
    first = linear_back(model.bert.pooler.dense.weight, states[0], pooled, relevance)
    relevance = torch.zeros_like(states)
    relevance[0] = first

    def norm_back(norm, values, result, relevance):
        spread = (values.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        slope = relevance / result * norm.weight / spread
        return values * (slope - slope.mean(-1, keepdim=True))

    for layer, states, query, key, value, scores, context, dense, middle, inner, outer, after in reversed(layers):
        own, out = layer.attention.self, layer.attention.output
        summed = norm_back(layer.output.LayerNorm, outer + middle, after, relevance)
        to_outer, to_middle = summed * outer / (outer + middle), summed * middle / (outer + middle)
        to_inner = linear_back(layer.output.dense.weight, functional.gelu(inner), outer, to_outer)
        to_middle = to_middle + linear_back(layer.intermediate.dense.weight, middle, inner, to_inner)
        summed = norm_back(out.LayerNorm, dense + states, middle, to_middle)
        to_dense, relevance = summed * dense / (dense + states), summed * states / (dense + states)
        to_context = linear_back(out.dense.weight, context, dense, to_dense)
        weights, values = scores.softmax(-1), text.split(value)
        half = text.split(to_context / context) / 2
        to_value = values * (weights.transpose(1, 2) @ half)
        to_weights = weights * (half @ values.transpose(1, 2))
        to_scores = scores * (to_weights - weights * to_weights.sum(-1, keepdim=True))
        part = to_scores / scores / 2 / (text.split(query).shape[-1] ** 0.5)
        to_query = text.split(query) * (part @ text.split(key))
        to_key = text.split(key) * (part.transpose(1, 2) @ text.split(query))
        for module, result, to_result in (
            (own.query, query, to_query),
            (own.key, key, to_key),
            (own.value, value, to_value),
        ):
            of_result = to_result.transpose(0, 1).flatten(1)
            relevance = relevance + linear_back(module.weight, states, result, of_result)
    return relevance.sum(-1)


@torch.no_grad()
def test_attn_lrp_is_relevance_by_its_rules(bert):
    model, subject, batch = bert
    columns = run(AttnLrp, subject, batch, target=1)
    for row in range(2):
        expected = relevance_by_rules(model, batch.alone(row)["input_ids"], 1)
        np.testing.assert_allclose(columns["importance_attn_lrp"][row], expected, atol=1e-6, rtol=1e-5)


def own_attentions(model, batch, row, number):
    """The attentions (H,T,T) of a model as it returns them, and their slopes, of a logit of one text."""
    alone = batch.alone(row)
    model.set_attn_implementation("eager")
    output = model(input_ids=alone["input_ids"], output_attentions=True)
    model.set_attn_implementation("sdpa")
    slopes = torch.autograd.grad(output.logits[0, number], output.attentions)
    return [weights[0].detach().numpy() for weights in output.attentions], [slope[0].numpy() for slope in slopes]


@pytest.mark.parametrize(("kind", "row_of"), [("bert", 0), ("gpt2", -1)])
def test_chefer_and_attention_times_gradient_by_the_models_own_attentions(kind, row_of):
    model, subject, batch = exact(kind)
    rolled = run(Chefer, subject, batch, target=2)["importance_chefer"]
    last = run(AttentionXGradient, subject, batch, target=2)["importance_attention_x_gradient"]
    one_head = subject.shown_by({"layers": 0, "head": 1})
    head = run(AttentionXGradient, one_head, batch, target=2)["importance_attention_x_gradient"]
    for row in range(2):
        weights, slopes = own_attentions(model, batch, row, 2)
        length = weights[0].shape[1]
        whole = np.eye(length)
        for layer_weights, slope in zip(weights, slopes, strict=True):
            whole = whole + np.maximum(layer_weights * slope, 0).mean(0) @ whole
        np.testing.assert_allclose(rolled[row], (whole - np.eye(length))[row_of], atol=1e-7, rtol=1e-5)
        np.testing.assert_allclose(last[row], (weights[-1] * slopes[-1]).sum(0)[row_of], atol=1e-7, rtol=1e-5)
        np.testing.assert_allclose(head[row], (weights[0] * slopes[0])[1, row_of], atol=1e-7, rtol=1e-5)


def test_chefer_refuses_an_encoder_decoder():
    model = classifier("bart")
    subject = SelfAttention(model)
    with pytest.raises(SubjectError, match="chefer goes through layers of self-attention, and this model has 6 maps"):
        run(Chefer, subject, Batch.of(texts(model), subject))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_measures_of_embeddings_are_captums(kind):
    """Through the model's own inputs_embeds, one text at a time, where our measures give embeddings by a hook."""
    model, subject, batch = exact(kind)
    paths = run(IntegratedGradients, subject, batch, target=1, baseline="zero", tolerance=1e-5)
    products = run(GradientXInput, subject, batch, target=1)["importance_gradient_x_input"]
    norms = run(GradientNorm, subject, batch)["importance_gradient_norm"]
    zeroed = run(Occlusion, subject, batch, target=1, by="zero")["importance_occlusion"]
    for row in range(2):
        alone = batch.alone(row)
        embedded = subject.embed(alone).detach()
        mask = torch.ones_like(alone["input_ids"])

        def logit(points, mask=mask):
            return model(inputs_embeds=points, attention_mask=mask.expand(len(points), -1)).logits

        expected = attr.InputXGradient(logit).attribute(embedded.clone().requires_grad_(), target=1).sum(-1)[0]
        np.testing.assert_allclose(products[row], expected.detach(), atol=1e-5)
        path = attr.IntegratedGradients(logit, multiply_by_inputs=True)
        expected = path.attribute(embedded, torch.zeros_like(embedded), target=1, n_steps=200, method="gausslegendre")
        np.testing.assert_allclose(paths["importance_integrated_gradients"][row], expected.sum(-1)[0], atol=1e-5)
        assert paths["integrated_gradients_residual"][row] == pytest.approx(0, abs=1e-5)
        places = torch.arange(embedded.shape[1]).view(1, -1, 1).expand_as(embedded)
        expected = attr.FeatureAblation(logit).attribute(embedded, target=1, feature_mask=places)[0, :, 0]
        np.testing.assert_allclose(zeroed[row], expected.detach(), atol=1e-5)
        leaf = embedded.clone().requires_grad_()
        logits = logit(leaf)[0]
        best = int(logits.argmax())
        others = torch.cat([logits[:best], logits[best + 1 :]]).logsumexp(0)
        (slope,) = torch.autograd.grad(logits[best] - others, leaf)
        np.testing.assert_allclose(norms[row], slope[0].norm(dim=-1), atol=1e-5)
