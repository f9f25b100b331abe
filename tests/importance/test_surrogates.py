"""KernelSHAP and LIME through captum: additive models by hand, captum on embeddings, Shapley values by brute force."""

import itertools
import math

import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso

from attnfaith.importance.surrogates import KernelShap, Lime
from attnfaith.subjects import opened
from attnfaith.subjects.text_parts import read_parts
from attnfaith.support.draws import generator
from tests.measuring import run


@pytest.fixture
def a_batch(tiny_model, tiny_rows, tiny_batch):
    """Factory of a model and a batch that suits it."""

    def make(texts=(6, 0, [9], 4), **fields):
        model = tiny_model(**fields)
        hierarchy = fields.get("hierarchy", "none")
        return model, tiny_batch(tiny_rows(texts, pair=fields.get("query") == "text", hierarchy=hierarchy))

    return make


def additive(model, batch, target):
    """x . w_c / T of each token: what it adds to a class's logit under uniform attention to embeddings."""
    weight = model.decoder.context.weight[target].detach()
    columns = []
    for ids, present in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        inner = ids[present.bool()][1:-1]
        columns.append((model.get_input_embeddings()(inner).detach() @ weight / max(1, len(inner))).numpy())
    return columns


@pytest.mark.parametrize("length", range(1, 7))
def test_shapley_values_by_brute_force(length, a_batch):
    """Of few tokens, to the digits of float32, the average over all orders in which they can join; else near it."""
    model, batch = a_batch([length], encoder="bilstm")
    parts = np.array(list(itertools.product([False, True], repeat=length)))
    logits = read_parts(*opened(model, batch), [parts])[0][:, 1]
    value = {tuple(part): v for part, v in zip(parts.tolist(), logits, strict=True)}
    expected = np.zeros(length)
    for order in itertools.permutations(range(length)):
        here = [False] * length
        for token in order:
            before = value[tuple(here)]
            here[token] = True
            expected[token] += (value[tuple(here)] - before) / math.factorial(length)
    assert np.abs(expected).max() > 0.1
    for samples in {max(3, 2**length), 256}:
        columns = run(KernelShap, model, batch, target=1, samples=samples)
        np.testing.assert_array_max_ulp(columns["importance_kernel_shap"][0], expected.astype(np.float32))
        assert abs(columns["kernel_shap_residual"][0]) < 1e-14
    if length == 5:
        few = [run(KernelShap, model, batch, target=1, samples=31, seed=seed) for seed in range(4)]
        values = np.array([columns["importance_kernel_shap"][0] for columns in few])
        assert np.ptp(values, axis=0).max() > 0.02 and np.abs(values.mean(0) - expected).max() < 0.2  # samples matter


def captums_lime(value):
    """captum's LIME with the measure's penalty and nearness, of the parts kept and not of their embeddings."""

    def near(_whole, _changed, part, **_):
        distance = 1 - torch.nn.functional.cosine_similarity(part.double(), torch.ones_like(part).double()).item()
        return math.exp(-(distance**2) / (2 * 0.25**2))

    return captum.attr.Lime(value, interpretable_model=SkLearnLasso(alpha=0.01), similarity_func=near)


@pytest.mark.parametrize(("name", "make"), [("kernel_shap", captum.attr.KernelShap), ("lime", captums_lime)])
def test_as_captum_has_it_on_embeddings(name, make, a_batch):
    """The same samples, given to captum as embeddings with a feature for each token: 1e-5 apart or less."""
    model, batch = a_batch([6, 6], encoder="bilstm", scale=2.0)
    measure = {"kernel_shap": KernelShap, "lime": Lime}[name]
    columns = run(measure, model, batch, target=0, absent="zero", samples=40, seed=5)[f"importance_{name}"]
    assert all(np.count_nonzero(scores) for scores in columns)
    embeddings = model.get_input_embeddings()
    for row, instance in enumerate(batch["instance_id"]):
        ids = batch["input_ids"][row, batch["attention_mask"][row].bool()]

        def value(inner, ids=ids):
            ends = embeddings(ids[[0, -1]]).detach().expand(len(inner), 2, -1)
            embedded = torch.cat([ends[:, :1], inner, ends[:, 1:]], 1)
            with torch.no_grad():
                encoded = model.encode(inputs_embeds=embedded)
                return model.decode(encoded.hidden, model.attend(*encoded), encoded.query)[:, 0]

        inner = embeddings(ids[1:-1]).detach()[None]
        features = torch.arange(inner.shape[1])[None, :, None].expand_as(inner)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(5, instance, name).integers(2**63)))
            expected = make(value).attribute(inner, feature_mask=features, n_samples=40, perturbations_per_eval=7)
        np.testing.assert_allclose(columns[row], expected[0, :, 0], atol=1e-5)


@pytest.mark.parametrize("absent", ["deleted", "zero"])
@pytest.mark.parametrize(("query", "hierarchy"), [("learned", "none"), ("text", "none"), ("learned", "word")])
def test_scores_add_up(query, hierarchy, absent, a_batch):
    model, batch = a_batch(encoder="bigru", query=query, hierarchy=hierarchy)
    columns = run(KernelShap, model, batch, absent=absent, samples=50)
    lengths = [len(values) for values in columns["importance_kernel_shap"]]
    ends = read_parts(*opened(model, batch), [np.array([[False] * length, [True] * length]) for length in lengths], absent)
    predicted = [logits[1].argmax() for logits in ends]
    rise = [logits[1, c] - logits[0, c] if length else 0 for logits, c, length in zip(ends, predicted, lengths, strict=True)]
    sums = [values.sum(dtype=np.float64) for values in columns["importance_kernel_shap"]]
    np.testing.assert_allclose(np.subtract(sums, rise), columns["kernel_shap_residual"], atol=1e-6)
    np.testing.assert_allclose(columns["kernel_shap_residual"], 0, atol=2e-4)
    single = [row for row, length in enumerate(lengths) if length == 1]
    assert single and all(sums[row] == pytest.approx(rise[row], abs=1e-6) for row in single)


@pytest.mark.parametrize("measure", [KernelShap, Lime])
def test_undefined_is_nan(measure, a_batch):
    """Log-odds of the only class that is allowed: there is nothing it could be held against."""
    model, batch = a_batch([5, 3], num_labels=3)
    batch["answer_mask"] = torch.tensor([[True, False, False], [True, True, False]])
    columns = run(measure, model, batch, output="log_odds", samples=20)
    assert all(np.isnan(values[0]).all() and np.isfinite(values[1]).all() for values in columns.values())
