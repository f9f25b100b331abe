"""Searches for adversarial attention: against a plain version, and by what they may not do."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attnfaith.interventions.adversary_search import AdversarySearch, affine_slope, decoded_slope
from attnfaith.interventions.targets import Readout, read_out, softmax, under
from attnfaith.measurement.registry import find
from attnfaith.subjects import opened
from tests.loud_classifiers import batch_of, classifier
from tests.measuring import run


# --------------------------------------------------------------------------------------- pooled


THEIRS = {"steps": 500, "learning_rate": 0.01, "penalty": 500.0, "epsilon": 0.01}


@pytest.fixture(scope="module")
def golden():
    """The module that builds the reference implementation's tiny models, and their numbers."""
    path = Path(__file__).parents[1] / "models" / "test_golden.py"
    spec = importlib.util.spec_from_file_location("golden_models", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("alignment", ["tanh", "dot"])
@pytest.mark.parametrize("encoder", ["lstm", "cnn", "average"])
def test_the_reference_implementations_search_from_its_noise(encoder, alignment, golden):
    model, expected = golden.single(encoder, alignment)
    texts = read_out(*opened(model, {"input_ids": golden.TOKEN_IDS}))
    inner = [slice(1, length - 1) for length in golden.LENGTHS]
    noise = expected["adversary_noise"].double().numpy()
    starts = [noise[row][:, tokens] for row, tokens in enumerate(inner)]  # the width and 1 / L shift all alike
    found = AdversarySearch(**THEIRS).search(texts, starts, affine_slope(texts))
    for row, attention in enumerate(found):
        probs = softmax(texts[row].logits(attention))
        np.testing.assert_allclose(attention, expected["adversary_attention"][row][:, inner[row]], atol=1e-4)
        np.testing.assert_allclose(probs[:, 1], expected["adversary_p"][row], atol=2e-5)


def texts_of(classes, lengths, seed=0):
    generator = np.random.default_rng(seed)
    texts, starts = [], []
    for length in lengths:
        own, values = generator.dirichlet(np.ones(length)), generator.normal(size=(length, classes))
        bias = generator.normal(size=classes)
        texts.append(Readout(own, values, bias, softmax(own @ values + bias), np.ones(len(bias), bool)))
        starts.append(3 * generator.normal(size=(3, length)))
    return texts, starts


def plainly(text, start, steps):
    """One text, as the method is written down: automatic derivatives and torch's own optimiser, in float64."""
    own, values, bias, probs = (torch.tensor(given) for given in (text.attention, text.values, text.bias, text.probs))
    weights = torch.tensor(start, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=0.01, amsgrad=True)

    def kl(p, q):
        return (p * ((p + 1e-10).log() - (q + 1e-10).log())).sum(-1)

    def jsd(p, q):
        return (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2

    for _ in range(steps):
        optimiser.zero_grad()
        x = weights.softmax(-1)
        moved = ((x @ values + bias).softmax(-1) - probs).abs().sum(-1) / 2
        loss = (500 * (moved - 0.01).relu() - jsd(x, own)).sum() - jsd(x[:, None], x[None]).mean()
        loss.backward()
        optimiser.step()
    return weights.softmax(-1).detach().numpy()


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_plain_version_of_the_method(classes):
    texts, starts = texts_of(classes, [9, 4, 2])
    found = AdversarySearch(**{**THEIRS, "steps": 60}).search(texts, starts, affine_slope(texts))
    for text, start, attention in zip(texts, starts, found, strict=True):
        np.testing.assert_allclose(attention, plainly(text, start, 60), atol=2e-4)
        assert np.abs(attention - plainly(text, start, 0)).max() > 0.01  # it has gone somewhere


def test_the_decoder_asked_gives_what_its_values_give(tiny_model, tiny_rows, tiny_batch):
    """The route for read-outs that are not affine, on one that is."""
    model = tiny_model(query="text", num_labels=3, scale=1.5)
    batch = tiny_batch(tiny_rows([6, 3], pair=True))
    subject, batch = opened(model, batch)
    texts = read_out(subject, batch)
    starts = [np.random.default_rng(row).normal(size=(4, len(text.attention))) for row, text in enumerate(texts)]
    slopes = affine_slope(texts), decoded_slope(under(subject, batch, [0, 1]), texts)
    with torch.no_grad():
        found = [AdversarySearch(**THEIRS | {"steps": 40}).search(texts, starts, slope) for slope in slopes]
    for text, affine, decoded in zip(texts, *found, strict=True):
        np.testing.assert_allclose(affine, decoded, atol=1e-4)
        read = replace(text, values=None, bias=None).logits(affine)
        np.testing.assert_allclose(softmax(read), softmax(text.logits(affine)), atol=1e-5)


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_restarts_keep_the_prediction_and_go_far(readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(readout=readout, encoder="average", scale=1.0)
    batch = tiny_batch(tiny_rows([14, 10, 1, 0]))
    own = read_out(*opened(model, batch))
    found = run("adversary_search", model, batch)
    for row in (0, 1):
        attention, probs = (found[name][row] for name in found)
        assert attention.shape == (5, (14, 10)[row]) and attention.dtype == np.float32
        distances = np.abs(probs - own[row].probs).sum(1) / 2
        assert (distances <= 0.05).mean() > 0.7 and (np.abs(attention - own[row].attention).sum(1) / 2 > 0.3).all()
        assert np.abs(attention[:, None] - attention).sum(-1).max() > 0.5  # restarts differ
    assert [values.shape for values in found["adversary_search_attention"][2:]] == [(0, 1), (0, 0)]
    assert [values.shape for values in found["adversary_search_probs"][2:]] == [(0, 2), (0, 2)]


# --------------------------------------------------------------------------------------- maps


QUICK = {"steps": 8, "restarts": 2}


def columns(subject, batch, **options):
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
    small, large = (columns(subject, batch, epsilon=epsilon) for epsilon in (0.002, 0.2))
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


def test_a_flow_has_no_gradient():
    with pytest.raises(ValueError, match="attention='flow' has no gradient"):
        find("map_adversary")().check(classifier("bert", reduction="flow"), None)
