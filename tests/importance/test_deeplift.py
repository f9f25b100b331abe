"""DeepLIFT through captum: complete where captum has the rule, by hand there, and its residual told elsewhere."""

import numpy as np
import pytest
import torch

from attnfaith.importance import integrated
from attnfaith.importance.integrated import DeepLift
from attnfaith.measurement.registry import find
from tests.measuring import run


@pytest.fixture
def a_batch(tiny_model, tiny_rows, tiny_batch):
    """Factory of a model in float64 and a batch that suits it."""

    def make(texts=(7, 0, [9], 3), **fields):
        model = tiny_model(**{"dtype": torch.float64, **fields})
        hierarchy = fields.get("hierarchy", "none")
        return model, tiny_batch(tiny_rows(texts, pair=fields.get("query") == "text", hierarchy=hierarchy))

    return make


def logits_of(model, batch, **given):
    names = ("attention_mask", "token_type_ids") + (() if given else ("input_ids",))
    with torch.no_grad():
        encoded = model.encode(**{name: batch[name] for name in names if name in batch}, **given)
        return model.decode(encoded.hidden, model.attend(*encoded), encoded.query)


@pytest.mark.parametrize("baseline", ["zero", "padding", "mean"])
def test_average_model_by_hand(baseline, a_batch):
    """Under uniform attention: x - b through W, times (tanh(y) - tanh(y0)) / (y - y0), times the class's weights over T."""
    model, batch = a_batch(encoder="average", projection="uniform")
    found = run(DeepLift, model, batch, baseline=baseline)
    table, layer = model.get_input_embeddings().weight.detach(), model.model.encoder.projection
    start = {"zero": torch.zeros_like(table[0]), "padding": table[0], "mean": table[1:].mean(0)}[baseline]
    predicted = logits_of(model, batch).argmax(1)
    for row, length in enumerate((7, 0, 1, 3)):
        with torch.no_grad():
            x = table[batch["input_ids"][row, 1 : 1 + length]]
            y, y0 = layer(x), layer(start)
            through = (y.tanh() - y0.tanh()) / (y - y0)
            weight = model.decoder.context.weight[predicted[row]]
            expected = ((x - start) @ layer.weight.t() * through * weight).sum(-1) / max(1, length)
        np.testing.assert_allclose(found["importance_deeplift"][row], expected, atol=1e-6)
    np.testing.assert_allclose(found["deeplift_residual"], 0, atol=1e-12)


@pytest.mark.parametrize(
    ("encoder", "kinds"),
    [
        ("transformer", ["ReLU", "ReLU", "Tanh"]),  # two layers, the scores of attention
        ("cnn", ["ReLU", "Tanh"]),
        ("average", ["Tanh", "Tanh"]),
        ("bilstm", ["Tanh"]),
    ],
)
def test_nonlinearities_that_captum_is_shown(encoder, kinds, a_batch):
    model, batch = a_batch(encoder=encoder)
    view = integrated._Modules(
        lambda points: model.decode(
            (encoded := model.encode(inputs_embeds=points, attention_mask=batch["attention_mask"])).hidden,
            model.attend(*encoded),
        ).sum(1)
    )
    view.find(model.get_input_embeddings()(batch["input_ids"]))
    assert [type(module).__name__ for module in view.nonlinearities] == kinds


def test_scores_in_float32_are_shown_as_in_float64(a_batch):
    """There a tanh is made of a sigmoid."""
    fields = {"encoder": "embedding", "embedding_size": 8, "hidden_size": 8, "alignment": "additive", "dtype": torch.float32}
    model, batch = a_batch(**fields)
    with torch.no_grad():
        model.model.alignment.key.weight.mul_(30)  # so that a tanh is far from straight
        model.model.alignment.value.weight.mul_(30)
    found, exact = run(DeepLift, model, batch), run(DeepLift, model.double(), batch)
    for one, other in zip(found["importance_deeplift"], exact["importance_deeplift"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max(initial=0.01))


@pytest.mark.parametrize(("query", "hierarchy"), [("learned", "none"), ("text", "none"), ("learned", "sentence")])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer"])
def test_residual_is_what_the_parts_miss(encoder, query, hierarchy, a_batch):
    model, batch = a_batch(encoder=encoder, query=query, hierarchy=hierarchy)
    found = run(DeepLift, model, batch, target=1)
    items = model.items(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach() * (items < 0).unsqueeze(-1)
    given = {} if hierarchy == "none" else {"items": items}
    rise = (logits_of(model, batch) - logits_of(model, batch, inputs_embeds=embedded, **given))[:, 1]
    sums = [values.sum(dtype=np.float64) for values in found["importance_deeplift"]]
    np.testing.assert_allclose(sums - rise.numpy(), found["deeplift_residual"], atol=1e-5)
    assert np.abs(found["deeplift_residual"]).max() > 1e-3  # of attention and recurrent steps captum knows the slope alone


def test_what_is_refused(a_batch, monkeypatch):
    model, batch = a_batch()
    with pytest.raises(ValueError, match="baseline='mask'"):
        DeepLift(baseline="mask")
    with pytest.raises(ValueError, match="there is no class 5"):
        run(DeepLift, model, batch, target=5)
    model.config.pad_token_id = None
    with pytest.raises(ValueError, match="no pad_token_id; choose zero or mean"):
        run(DeepLift, model, batch, baseline="padding")


@pytest.mark.parametrize("package", ["captum", "sklearn"])
@pytest.mark.parametrize("name", ["deeplift", "kernel_shap", "lime"])
def test_without_captum(name, package, a_batch, monkeypatch):
    """Each of these measures says so before any work is done."""
    import sys

    measure = find(name)()
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    model, batch = a_batch()
    for ask in (find(name), lambda: measure.check(model, None), lambda: run(measure, model, batch)):
        with pytest.raises(ValueError, match=r"pip install 'attnfaith\[captum\]'"):
            ask()
