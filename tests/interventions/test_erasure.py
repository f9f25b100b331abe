"""Erased weights against attentions that are really erased and decoded, one at a time.

The orders against exact arithmetic are in test_flip_sets.py.
"""

import numpy as np
import pytest
import torch

from attnfaith.interventions import erasure
from attnfaith.interventions.pooled_erasure import erasing
from attnfaith.subjects import opened
from tests.measuring import run


ORDERS = ("random", *erasure.RANKINGS)
PROJECTIONS = ("softmax", "sparsemax", "sparsegen", "entmax15", "entmax", "uniform")
TEXTS = [6, 1, 9, 0, 4]


def setting(tiny_model, tiny_rows, tiny_batch, texts=TEXTS, **fields):
    model = tiny_model(**{"sparsegen_lambda": 0.4, "entmax_alpha": 1.25, "num_labels": 3, **fields})
    batch = tiny_batch(tiny_rows(texts, pair=fields.get("query") == "text"))
    with torch.no_grad():  # no class far ahead of the others in every text
        logits = model(**{name: value for name, value in batch.items() if name != "instance_id"}).logits
        last_layer(model).bias -= logits.mean(0)
    return model, batch


def last_layer(model):
    return model.decoder.context if model.decoder.affine else model.decoder.output


class Text:
    """One instance of a batch, read stage by stage."""

    def __init__(self, model, batch, row):
        hidden, mask, query = model.encode(**{name: value for name, value in batch.items() if name != "instance_id"})
        self.model, self.hidden, self.mask = model, hidden[row, None].detach(), mask[row, None]
        self.query = None if query is None else query[row, None].detach()
        self.attention = model.attend(hidden, mask, query)[row].detach().double()
        self.places = mask[row].nonzero().squeeze(1).tolist()

    @torch.no_grad()
    def logits(self, attention):
        return self.model.decode(self.hidden, attention.float()[None], self.query)[0].double()

    def probs(self, attention):
        return self.logits(attention).softmax(-1).numpy()

    def without(self, removed):
        """Attention with these tokens at 0, renormalised."""
        left = self.attention.clone()
        left[[self.places[t] for t in removed]] = 0
        return left / left.sum() if left.sum() > 0 else left

    @torch.no_grad()
    def reprojected(self, removed):
        """Attention of the model when it may not attend to these tokens."""
        mask = self.mask.clone()
        mask[0, [self.places[t] for t in removed]] = False
        return self.model.attend(self.hidden, mask, self.query)[0].double()

    def first_flip(self, order, attend):
        own = int(self.logits(self.attention).argmax())
        for size in range(1, len(order) + 1):
            if int(self.logits(attend(order[:size])).argmax()) != own:
                return size
        return np.nan


@pytest.mark.slow
@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize(
    ("projection", "score_scale"), [*((name, None) for name in PROJECTIONS), ("softmax", 1.0), ("sparsemax", 1.0)]
)
def test_each_removal_decoded_anew(projection, score_scale, query, readout, tiny_model, tiny_rows, tiny_batch):
    factors = {"projection": projection, "score_scale": score_scale, "query": query, "readout": readout}
    model, batch = setting(tiny_model, tiny_rows, tiny_batch, **factors, seed=1)
    found = run("erasure", model, batch, seed=3)
    flips = 0
    for row, tokens in enumerate(TEXTS):
        text = Text(model, batch, row)
        for token in range(tokens):
            removed = text.probs(text.without([token]))
            np.testing.assert_allclose(found["erasure_probs"][row][token], removed, atol=2e-6)
            again = text.probs(text.reprojected([token]))
            np.testing.assert_allclose(found["erasure_reprojected_probs"][row][token], again, atol=2e-6)
        if tokens < 2:
            continue
        weights, gradient = text.attention[text.places].numpy(), found["erasure_gradient"][row]
        scores = {"attention": weights, "gradient": gradient, "attention_gradient": weights * gradient}
        orders = {name: [np.argsort(-score, kind="stable")] for name, score in scores.items()}
        for name, ranked in (orders | {"random": found["erasure_order"][row]}).items():
            for draw, order in enumerate(ranked):
                order = order.tolist()
                size = text.first_flip(order, text.without)
                parts = ("flip_size", "flip_mass", "flip_empty", "reprojected_flip_size")
                columns = [np.atleast_1d(found[f"erasure_{part}_{name}"][row])[draw] for part in parts]
                np.testing.assert_equal(float(columns[0]), float(size))
                np.testing.assert_equal(float(columns[3]), float(text.first_flip(order, text.reprojected)))
                if size > 0:
                    flips += 1
                    mass = weights[order[:size]].sum()
                    np.testing.assert_allclose(columns[1], mass, rtol=1e-5)
                    assert columns[2] == (text.without(order[:size]).sum() == 0)
                else:
                    assert np.isnan(columns[1]) and not columns[2]
    assert flips > 3


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("query", ["learned", "text"])
def test_gradient_by_finite_differences(query, readout, tiny_model, tiny_rows, tiny_batch):
    """The signed derivative of the predicted class's probability, one weight alone, nothing renormalised."""
    fields = {"query": query, "readout": readout, "dtype": torch.float64, "scale": 1.5, "seed": 1}
    model, batch = setting(tiny_model, tiny_rows, tiny_batch, **fields)
    found = run("erasure", model, batch)["erasure_gradient"]
    signs = set()
    for row, tokens in enumerate(TEXTS):
        text = Text(model, batch, row)
        predicted = int(text.logits(text.attention).argmax())

        def probability(shift, text=text, predicted=predicted):
            weights = (text.attention + shift)[None]
            with torch.no_grad():
                return text.model.decode(text.hidden, weights, text.query)[0].softmax(-1)[predicted].item()

        for token in range(tokens):
            shift = torch.zeros_like(text.attention)
            shift[text.places[token]] = 1e-5
            slope = (probability(shift) - probability(-shift)) / 2e-5
            np.testing.assert_allclose(found[row][token], slope, atol=1e-7, rtol=1e-4)
            signs.add(np.sign(found[row][token]))
    assert signs >= {1, -1}


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_a_saturated_probability_keeps_its_ranking(readout, tiny_model, tiny_rows, tiny_batch):
    """With logits 50 apart p is 1 in float64 too: its derivative is tiny, never 0, and the same weights come first."""
    model, batch = setting(tiny_model, tiny_rows, tiny_batch, texts=[8, 8, 8], num_labels=2, readout=readout)
    texts = [Text(model, batch, row) for row in range(3)]
    before = run("erasure", model, batch)["erasure_gradient"]
    factor = 50 / min(float(text.logits(text.attention).diff().abs()) for text in texts)
    with torch.no_grad():
        last_layer(model).weight.mul_(factor)
        last_layer(model).bias.mul_(factor)
    after = run("erasure", model, batch)["erasure_gradient"]
    for text, one, other in zip(texts, before, after, strict=True):
        assert text.probs(text.attention).max() == 1
        assert (other != 0).all() and np.abs(other).max() < 1e-12
        np.testing.assert_array_equal(np.argsort(-other, kind="stable"), np.argsort(-one, kind="stable"))


@pytest.mark.parametrize("projection", ["softmax", "uniform"])
def test_reprojecting_is_renormalising(projection, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    """Where both are the same nothing is projected again."""
    monkeypatch.setattr(erasure, "_projection", lambda *_args: 1 / 0)
    model, batch = setting(tiny_model, tiny_rows, tiny_batch, projection=projection)
    found = run("erasure", model, batch)
    for name in ORDERS:
        for one, other in zip(
            found[f"erasure_flip_size_{name}"], found[f"erasure_reprojected_flip_size_{name}"], strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_a_weight_of_zero_takes_nothing_with_it(tiny_model, tiny_rows, tiny_batch):
    """Under sparse attention: exactly the same prediction for every token without weight."""
    model, batch = setting(tiny_model, tiny_rows, tiny_batch, projection="sparsemax", texts=[30, 30, 30], scale=1.5)
    logits, found, idle = erasing(*opened(model, batch)).without_each(), run("erasure", model, batch), 0
    for row in range(3):
        text = Text(model, batch, row)
        without = (text.attention[text.places] == 0).numpy()
        idle += without.sum()
        assert (logits[row][without] == logits[row][without][:1]).all()
        for name in ("erasure_probs", "erasure_reprojected_probs"):
            kept = found[name][row][without]
            assert (kept == kept[:1]).all()
            np.testing.assert_allclose(kept, np.tile(text.probs(text.attention), (len(kept), 1)), atol=1e-6)
    assert idle > 5
