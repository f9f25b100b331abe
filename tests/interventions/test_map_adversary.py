"""The search for adversarial maps: what it reports is there, is allowed, and is a lower bound."""

import math

import numpy as np
import pytest
import torch

from attnfaith.interventions.adversary_search import MapAdversary, _MapSearch
from attnfaith.interventions.targets import Maps
from attnfaith.measurement.registry import find
from tests.loud_classifiers import batch_of, classifier
from tests.measuring import run


QUICK = {"steps": 8, "restarts": 2}


def made(subject, batch, **options):
    batch["instance_id"] = [f"text {row}" for row in range(len(batch["input_ids"]))]
    return run("map_adversary", subject, batch, **{**QUICK, **options})


SHOWN = [(kind, way) for kind in ("bert", "gpt2", "bart") for way in ("last", "rollout", {"layers": 0, "head": 1})]
SHOWN.remove(("bart", "rollout"))  # which is of a stack of layers over one text


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reduction"), SHOWN)
def test_nothing_beyond_epsilon_is_reported(kind, reduction):
    subject = classifier(kind, reduction=reduction)
    batch = batch_of(subject, [6, 4])
    own = subject.predict(batch).double().softmax(-1).detach().numpy()
    shown = subject.attention(batch).numpy()
    small, large = (made(subject, batch, epsilon=epsilon) for epsilon in (0.002, 0.2))
    for result, epsilon in ((small, 0.002), (large, 0.2)):
        for row, mask in enumerate(subject.attendable(batch).numpy()):
            change = np.abs(result["map_adversary_probs"][row] - own[row]).sum() / 2
            assert result["map_adversary_change"][row] == pytest.approx(change, abs=1e-6) and change <= epsilon + 1e-6
            x, a = result["map_adversary_attention"][row], shown[row, mask]
            m = (x + a) / 2
            jsd = sum(np.sum(v * np.log(np.where(v > 0, v / m, 1))) for v in (x, a)) / 2
            assert result["map_adversary_jsd"][row] == pytest.approx(jsd, abs=1e-6)
            assert x.sum() == pytest.approx(1) and 0 <= jsd <= math.log(2)
            assert result["map_adversary_certainty"][row] == "lower bound"
    assert max(large["map_adversary_jsd"]) > 0.02


def test_maps_that_decide_nothing_can_be_anything():
    """Of a model that reads its first state by nothing but a bias, every attention is allowed: the search goes far."""
    subject = classifier("bert")
    batch = batch_of(subject, [6])
    weight = subject.model.classifier.weight
    kept = weight.detach().clone()
    before = made(subject, batch, steps=40, epsilon=1e-4)
    with torch.no_grad():
        weight.mul_(1e-6)
    try:
        free = made(subject, batch, steps=40, epsilon=1e-4)
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    assert free["map_adversary_jsd"][0] > max(0.4, before["map_adversary_jsd"][0])


def test_markers_keep_their_weight():
    subject = classifier("bert")
    batch = batch_of(subject, [5])
    options = MapAdversary(epsilon=0.5, restarts=2, steps=5)
    search = _MapSearch(options, Maps(subject, batch.alone(0), "last", "all"))
    search.run(np.random.default_rng(0))
    (own,), (found,) = (list(maps.values()) for maps in (search.maps, search._read(search.best)[1]))
    outside = ~search.inside
    torch.testing.assert_close(found[..., outside], own[..., outside], atol=1e-6, rtol=1e-5)
    assert (found - own).abs().max() > 1e-3


def test_what_rounding_puts_beyond_epsilon_is_not_taken(monkeypatch):
    """The reading that counts is the last one, from the beginning; where it says too much, the model's own is given."""
    subject = classifier("bert")
    batch = batch_of(subject, [5])
    honest = _MapSearch._read

    def beyond(self, free, whole=False):
        probs, maps = honest(self, free, whole)
        return (probs.flip(-1) if whole else probs), maps

    monkeypatch.setattr(_MapSearch, "_read", beyond)
    result = made(subject, batch, epsilon=0.05)
    assert (result["map_adversary_jsd"], result["map_adversary_change"]) == ([0.0], [0.0])


def test_a_flow_has_no_gradient():
    with pytest.raises(ValueError, match="attention='flow' has no gradient"):
        find("map_adversary")().check(classifier("bert", reduction="flow"), None)
