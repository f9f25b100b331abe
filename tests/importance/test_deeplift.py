"""DeepLIFT: complete where the rescale rule is all there is, by hand there, and its residual elsewhere."""

import sys

import numpy as np
import pytest
import torch

from attnfaith.importance.integrated import DeepLift
from attnfaith.measurement.registry import find
from tests.measuring import run


@pytest.fixture
def a_batch(tiny_model, tiny_rows, tiny_batch):
    """Factory of a model and a batch that suits it."""

    def make(texts=(7, 0, [9], 3), **fields):
        rows = tiny_rows(texts, pair=fields.get("query") == "text", hierarchy=fields.get("hierarchy", "none"))
        return tiny_model(**fields), tiny_batch(rows)

    return make


@torch.no_grad()
def logits_of(model, batch, embedded=None, items=None):
    masks = {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}
    ids = batch["input_ids"] if embedded is None else None
    encoded = model.encode(ids, inputs_embeds=embedded, items=items, **masks)
    return model.decode(encoded.hidden, model.attend(*encoded), encoded.query)


@pytest.mark.parametrize("baseline", ["zero", "padding", "mean"])
@pytest.mark.parametrize("scale", [3.0, 300.0])
def test_average_model_by_hand(scale, baseline, a_batch):
    """Under uniform attention: x - b through W, times (tanh(y) - tanh(y0)) / (y - y0), times the class's weights over T.

    Also where tanh is flat: its slope is 0, what it rose by from the baseline is not.
    """
    model, batch = a_batch(encoder="average", projection="uniform", scale=scale)
    columns = run(DeepLift, model, batch, baseline=baseline)
    table, layer = model.get_input_embeddings().weight.detach(), model.model.encoder.projection
    start = {"zero": torch.zeros_like(table[0]), "padding": table[0], "mean": table[1:].mean(0)}[baseline]
    predicted = logits_of(model, batch).argmax(1)
    for row, length in enumerate((7, 0, 1, 3)):
        with torch.no_grad():
            x = table[batch["input_ids"][row, 1 : 1 + length]]
            y, y0 = layer(x), layer(start)
            through = (y.tanh() - y0.tanh()) / (y - y0)
            weight = model.decoder.context.weight[predicted[row]].detach()
            expected = ((x - start) @ layer.weight.t() * through * weight).sum(-1) / max(1, length)
        size = max(1.0, float(weight.abs().max()))
        np.testing.assert_allclose(columns["importance_deeplift"][row], expected, atol=1e-6 * size)
    np.testing.assert_allclose(columns["deeplift_residual"], 0, atol=1e-12 * size)


@pytest.mark.parametrize(
    ("encoder", "fields"),
    [
        ("bilstm", {"query": "text"}),
        ("transformer", {"hierarchy": "sentence"}),
        ("cnn", {"projection": "uniform", "query": "text", "readout": "tanh"}),
    ],
)
def test_residual_is_what_the_parts_miss(encoder, fields, a_batch):
    """Of attention and recurrent steps the slope alone is known; convolutions, ReLU and tanh have the rule."""
    model, batch = a_batch(encoder=encoder, **fields)
    columns = run(DeepLift, model, batch, target=1)
    items = model.items(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    start = model.get_input_embeddings()(batch["input_ids"]).detach() * (items < 0).unsqueeze(-1)
    rise = logits_of(model, batch) - logits_of(model, batch, start, items if "hierarchy" in fields else None)
    sums = [values.sum(dtype=np.float64) for values in columns["importance_deeplift"]]
    np.testing.assert_allclose(sums - rise[:, 1].numpy(), columns["deeplift_residual"], atol=1e-5)
    assert (np.abs(columns["deeplift_residual"]).max() < 1e-12) == (encoder == "cnn")


@pytest.mark.parametrize("package", ["captum", "sklearn"])
@pytest.mark.parametrize("name", ["kernel_shap", "lime"])
def test_without_captum(name, package, a_batch, monkeypatch):
    """Each of these measures says so before any work is done."""
    measure = find(name)()
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    model, batch = a_batch()
    for ask in (find(name), lambda: measure.check(model, None), lambda: run(measure, model, batch)):
        with pytest.raises(ValueError, match=r"attnfaith\[captum\]"):
            ask()
