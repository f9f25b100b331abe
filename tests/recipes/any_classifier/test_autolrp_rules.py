"""recipes/any_classifier/autolrp_rules.py: each rule against its formula, without autoLRP."""

import copy
import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnfaith.recipes import library
from attnfaith.subjects.backward_rules import Rules
from tests.small_classifiers import classifier


@pytest.fixture
def rules(monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder() / "any_classifier"))
    return importlib.import_module("autolrp_rules")


@pytest.fixture
def values():
    return torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def relevance(function, values, relevance, within):
    """What function(values) hands on to these of its relevance, as slope times input; and that its values are its own."""
    leaf = values.clone().requires_grad_()
    with within:
        result = function(leaf)
    torch.testing.assert_close(result, function(values))
    (slope,) = torch.autograd.grad(result, leaf, relevance / result.detach())
    return slope * values


def norm_of(values):
    norm = nn.LayerNorm(values.shape[-1]).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm.requires_grad_()


def test_sums_and_biases_share_by_size(rules, values):
    given = torch.randn_like(values)
    other = torch.randn_like(values)
    share = values.abs() / (values.abs() + other.abs())
    torch.testing.assert_close(relevance(lambda x: x + other, values, given, rules.BySize()), given * share)
    torch.testing.assert_close(relevance(lambda x: other + x, values, given, rules.BySize()), given * share)
    linear = nn.Linear(6, 6).double()
    parts = values.unsqueeze(1) * linear.weight.detach()
    product = parts.sum(2)
    share = product.abs() / (product.abs() + linear.bias.detach().abs())
    expected = (parts * (given * share / product).unsqueeze(2)).sum(1)
    torch.testing.assert_close(relevance(linear, values, given, rules.BySize()), expected)
    expected = (parts * (given / product).unsqueeze(2)).sum(1)
    linear.bias = None
    torch.testing.assert_close(relevance(linear, values, given, rules.BySize()), expected)


def test_a_layer_norm_hands_on_all_but_its_biass_part(rules, values):
    norm, given = norm_of(values), torch.randn_like(values)
    straight = (norm(values) - norm.bias).detach()
    share = straight.abs() / (straight.abs() + norm.bias.detach().abs())
    torch.testing.assert_close(relevance(norm, values, given, rules.BySize()), given * share)


def test_what_autolrp_is_told_are_our_rules(rules, values):
    """Its rules get the relevance of a result, and give that of what it was made of: ours, slope times input."""
    norm, given, other = norm_of(values), torch.randn_like(values), torch.randn_like(values)
    ours = relevance(norm, values, given, Rules(norm, "halved"))
    mean = values.mean(-1, keepdim=True)
    spread = 1 / (values.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    saved = {"weight": norm.weight.detach(), "bias": norm.bias.detach(), "mean": mean, "rstd": spread}
    theirs = rules.spread_held(values, None, given, 0, normalized_shape=(6,), **saved)
    torch.testing.assert_close(theirs, ours)
    ours = relevance(lambda x: x + other, values, given, Rules(norm, "halved"))
    one, two = rules.signed_sum(values, other, given, 0, attribute="both")
    torch.testing.assert_close(one, ours)
    torch.testing.assert_close(one + two, given)
    linear = nn.Linear(6, 4).double()
    torch.testing.assert_close(rules.linear_as_sum(values, linear.weight, linear.bias), linear(values))
    torch.testing.assert_close(rules.linear_as_sum(values, linear.weight), functional.linear(values, linear.weight))


def test_the_relevance_of_a_model_is_shares_of_one(rules):
    """Whatever the size of the logit; and all is the first token's, read for the answer, where nothing adds to it."""
    model = classifier("bert").double()
    model.set_attn_implementation("eager")
    embedded = model.get_input_embeddings()(torch.tensor([[5, 9, 13, 7]])).detach()
    given = {"attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    shares = rules.relevance_by_size(model, given, embedded)
    larger = copy.deepcopy(model)
    with torch.no_grad():
        larger.classifier.weight *= 3
        larger.classifier.bias *= 3
    assert shares.shape == (4,) and (shares != 0).all() and not shares.requires_grad
    torch.testing.assert_close(rules.relevance_by_size(larger, given, embedded), shares)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith("bias") or "position_embeddings" in name or "token_type" in name:
                values.zero_()
            if "attention.output.dense" in name:
                values *= 1e-9
    alone = rules.relevance_by_size(model, given, embedded)
    torch.testing.assert_close(alone, torch.tensor([1.0, 0, 0, 0]).double(), atol=1e-6, rtol=0)
