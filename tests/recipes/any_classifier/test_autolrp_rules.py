"""recipes/any_classifier/autolrp_rules.py: each rule against its formula, without autoLRP."""

import importlib

import pytest
import torch
from torch import nn

from attnfaith.recipes import library
from attnfaith.subjects.backward_rules import Rules
from tests.small_classifiers import classifier


torch.manual_seed(0)
VALUES, GIVEN, OTHER = torch.randn(3, 3, 6, dtype=torch.float64)
NORM, LINEAR = nn.LayerNorm(6).double(), nn.Linear(6, 6).double()
nn.init.normal_(NORM.weight)
nn.init.normal_(NORM.bias)
same = torch.testing.assert_close


@pytest.fixture
def rules(monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder() / "any_classifier"))
    return importlib.import_module("autolrp_rules")


def relevance(function, within):
    """What function(VALUES) hands on of the relevance GIVEN, as slope times input; its values are its own."""
    leaf = VALUES.clone().requires_grad_()
    with within:
        result = function(leaf)
    same(result, function(VALUES))
    return torch.autograd.grad(result, leaf, GIVEN / result.detach())[0] * VALUES


def test_sums_biases_and_layer_norms_share_by_size(rules):
    same(relevance(lambda x: x + OTHER, rules.BySize()), GIVEN * VALUES.abs() / (VALUES.abs() + OTHER.abs()))
    parts = VALUES.unsqueeze(1) * LINEAR.weight.detach()
    product = parts.sum(2)
    share = product.abs() / (product.abs() + LINEAR.bias.detach().abs())
    same(relevance(LINEAR, rules.BySize()), (parts * (GIVEN * share / product).unsqueeze(2)).sum(1))
    straight = (NORM(VALUES) - NORM.bias).detach()
    same(relevance(NORM, rules.BySize()), GIVEN * straight.abs() / (straight.abs() + NORM.bias.detach().abs()))


def test_what_autolrp_is_told_are_our_rules(rules):
    """Its rules get the relevance of a result, and give that of what it was made of: ours, slope times input."""
    spread = 1 / (VALUES.var(-1, unbiased=False, keepdim=True) + NORM.eps).sqrt()
    saved = {"weight": NORM.weight.detach(), "bias": NORM.bias.detach(), "mean": VALUES.mean(-1, keepdim=True)}
    theirs = rules.spread_held(VALUES, None, GIVEN, 0, normalized_shape=(6,), rstd=spread, **saved)
    same(theirs, relevance(NORM, Rules(NORM, "halved")))
    first, second = rules.signed_sum(VALUES, OTHER, GIVEN, 0, attribute="both")
    same(first, relevance(lambda x: x + OTHER, Rules(NORM, "halved")))
    same(first + second, GIVEN)
    same(rules.linear_as_sum(VALUES, LINEAR.weight, LINEAR.bias), LINEAR(VALUES))


def test_the_relevance_of_a_model_is_shares_of_one(rules):
    """Whatever the size of the logit."""
    model = classifier("bert").double()
    model.set_attn_implementation("eager")
    embedded = model.get_input_embeddings()(torch.tensor([[5, 9, 13, 7]])).detach()
    given = {"attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    shares = rules.relevance_by_size(model, given, embedded)
    assert shares.shape == (4,) and (shares != 0).all() and not shares.requires_grad
    with torch.no_grad():
        model.classifier.weight *= 3
        model.classifier.bias *= 3
    same(rules.relevance_by_size(model, given, embedded), shares)
