"""KernelSHAP and LIME: Shapley values by brute force, captum on embeddings, sums that add up."""

import itertools
import math
import sys

import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso

from attnfaith.importance.surrogates import KernelShap, Lime
from attnfaith.measurement.registry import find
from attnfaith.subjects import opened
from attnfaith.subjects.protocol import read_parts
from attnfaith.support.draws import generator
from tests.measuring import run


@pytest.mark.parametrize("length", [1, 2, 4, 6])
def test_shapley_values_by_brute_force(length, make_batch):
    """Of few tokens, to the digits of float32, the average over all orders in which they can join; else near it."""
    model, batch = make_batch([length], encoder="bilstm")
    parts = np.array(list(itertools.product([False, True], repeat=length)))
    logits = read_parts(*opened(model, batch), [parts])[0][:, 1]
    value, shapley = dict(zip(map(tuple, parts.tolist()), logits, strict=True)), np.zeros(length)
    for order in itertools.permutations(range(length)):
        present = [False] * length
        for token in order:
            before = value[tuple(present)]
            present[token] = True
            shapley[token] += (value[tuple(present)] - before) / math.factorial(length)
    assert np.abs(shapley).max() > 0.1
    for samples in {max(3, 2**length), 256}:
        columns = run(KernelShap, model, batch, target=1, samples=samples)
        np.testing.assert_array_max_ulp(columns["importance_kernel_shap"][0], shapley.astype(np.float32))
        assert abs(columns["kernel_shap_residual"][0]) < 1e-14
    if length == 6:  # fewer samples than sets: they matter
        few = [run(KernelShap, model, batch, target=1, samples=62, seed=seed) for seed in range(4)]
        values = np.array([columns["importance_kernel_shap"][0] for columns in few])
        assert np.ptp(values, axis=0).max() > 0.01 and np.abs(values.mean(0) - shapley).max() < 0.2


def captums_lime(value):
    """captum's LIME with the measure's penalty and nearness, of the parts that stay and not of their embeddings."""

    def near(_whole, _changed, part, **_):
        distance = 1 - torch.nn.functional.cosine_similarity(part.double(), torch.ones_like(part).double()).item()
        return math.exp(-(distance**2) / (2 * 0.25**2))

    return captum.attr.Lime(value, interpretable_model=SkLearnLasso(alpha=0.01), similarity_func=near)


@pytest.mark.parametrize(("measure", "make"), [(KernelShap, captum.attr.KernelShap), (Lime, captums_lime)])
def test_captum_on_embeddings(measure, make, make_batch):
    """The same samples, given to captum as embeddings with a feature for each token: 1e-5 apart or less."""
    model, batch = make_batch([6, 6], encoder="bilstm", scale=2.0)
    columns = run(measure, model, batch, target=0, absent="zero", samples=40, seed=5)[f"importance_{measure.name}"]
    assert all(np.count_nonzero(scores) for scores in columns)
    embeddings = model.get_input_embeddings()
    for row, instance in enumerate(batch["instance_id"]):
        embedded = embeddings(batch["input_ids"][row, batch["attention_mask"][row].bool()]).detach()[None]

        def value(inner, embedded=embedded):
            ends = embedded[:, [0, -1]].expand(len(inner), 2, -1)
            with torch.no_grad():
                return model(inputs_embeds=torch.cat([ends[:, :1], inner, ends[:, 1:]], 1)).logits[:, 0]

        inner = embedded[:, 1:-1]
        features = torch.arange(inner.shape[1])[None, :, None].expand_as(inner)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(5, instance, measure.name).integers(2**63)))
            scores = make(value).attribute(inner, feature_mask=features, n_samples=40, perturbations_per_eval=7)
        np.testing.assert_allclose(columns[row], scores[0, :, 0], atol=1e-5)


@pytest.mark.parametrize("name", ["kernel_shap", "lime"])
def test_without_captum_both_refuse_at_once(name, monkeypatch):
    find(name)()
    for module in ["captum", *(module for module in sys.modules if module.partition(".")[0] == "captum")]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"attnfaith\[captum\]"):
        find(name)()
