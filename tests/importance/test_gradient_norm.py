"""Gradient norms against finite differences and captum; the gradient flows through attention or it does not."""

import numpy as np
import pytest
import torch
from captum.attr import Saliency
from scipy.stats import kendalltau

from attnfaith.importance.gradients import Gradient, GradientNorm
from attnfaith.models.encoders import ENCODERS
from tests.measuring import run


CELLS = [(encoder, "learned", "softmax") for encoder in ENCODERS]
CELLS += [("bilstm", "text", "softmax"), ("average", "learned", "sparsemax"), ("transformer", "text", "entmax15")]
STEP = 1e-6
THROUGH, FIXED = ("importance_gradient_norm", False), ("importance_gradient_norm_detached", True)


def close(found, expected, **tolerance):
    torch.testing.assert_close(torch.as_tensor(found).double(), torch.as_tensor(expected).double(), **tolerance)


def log_odds_of(model, batch, fixed=False):
    """Embeddings (B,L,E) to the log-odds of the class predicted for the text as it is, written with log(p / (1 - p)).

    fixed: whatever the embeddings, attention is that of the text as it is.
    """
    inputs = {name: batch.get(name) for name in ("attention_mask", "token_type_ids")}
    with torch.no_grad():
        encoded = model.encode(input_ids=batch["input_ids"], **inputs)
        own = model.attend(*encoded)
        predicted = model.decode(encoded.hidden, own, encoded.query).argmax(-1)

    def log_odds(embedded):
        now = model.encode(inputs_embeds=embedded, **inputs)
        logits = model.decode(now.hidden, own if fixed else model.attend(*now), now.query)
        p = logits.double().softmax(-1)[0, predicted[0]]
        return (p.log() - torch.log1p(-p)).unsqueeze(0)

    return log_odds


@pytest.mark.slow
@pytest.mark.parametrize(("num_labels", "column", "fixed"), [(2, *THROUGH), (3, *THROUGH), (2, *FIXED), (3, *FIXED)])
@pytest.mark.parametrize(("encoder", "query", "projection"), CELLS)
def test_finite_differences(encoder, query, projection, num_labels, column, fixed, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(
        encoder=encoder, query=query, projection=projection, num_labels=num_labels, dtype=torch.float64, scale=1.5
    )
    batch = tiny_batch(tiny_rows([4], pair=query == "text"))
    log_odds = log_odds_of(model, batch, fixed)
    with torch.no_grad():
        embedded = model.get_input_embeddings()(batch["input_ids"])
        slopes = torch.zeros(4, embedded.shape[-1])
        for token in range(4):
            for place in range(embedded.shape[-1]):
                up, down = embedded.clone(), embedded.clone()
                up[0, token + 1, place] += STEP
                down[0, token + 1, place] -= STEP
                slopes[token, place] = (log_odds(up) - log_odds(down))[0] / (2 * STEP)
    (found,) = run(GradientNorm, model, batch)[column]
    assert slopes.norm(dim=-1).max() > 1e-3
    close(found, slopes.norm(dim=-1), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("column", "fixed"), [THROUGH, FIXED])
@pytest.mark.parametrize(("encoder", "query", "projection"), CELLS)
def test_captum(encoder, query, projection, column, fixed, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, query=query, projection=projection, num_labels=3, scale=2.0)
    for row in tiny_rows([6, 9], pair=query == "text"):
        batch = tiny_batch([row])
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        slopes = Saliency(log_odds_of(model, batch, fixed)).attribute(embedded, abs=False)
        (found,) = run(GradientNorm, model, batch)[column]
        close(found, slopes.norm(dim=-1)[0, 1 : 1 + len(row["tokens"])], atol=1e-5, rtol=1e-3)


def test_states_in_closed_form(tiny_model, tiny_rows, tiny_batch):
    """Two classes, dot alignment, softmax: d z / d h_t = a_t (w + (s_t - z) q / sqrt(H)), z and s without the bias."""
    model, batch = tiny_model(alignment="dot"), tiny_batch(tiny_rows([6]))
    (found,) = run(GradientNorm, model, batch)["importance_gradient_norm_hidden"]
    with torch.no_grad():
        hidden, mask, _ = model.encode(batch["input_ids"], batch["attention_mask"])
        attention = model.attend(hidden, mask)
        w = model.decoder.context.weight[1] - model.decoder.context.weight[0]
        q = model.model.alignment.query.weight[0] * model.model.alignment.scale
        s = hidden @ w
        z = (attention * s).sum(-1, keepdim=True)
        slopes = attention.unsqueeze(-1) * (w + (s - z).unsqueeze(-1) * q)
    close(found, slopes.norm(dim=-1)[0, 1:7], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("column", ["importance_gradient_norm", "importance_gradient_norm_hidden"])
def test_through_attention_differs_from_fixed_attention(column, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([6]))
    measured = run(GradientNorm, model, batch)
    (through,), (fixed,) = measured[column], measured[column.replace("norm", "norm_detached")]
    assert abs(through - fixed).max() > 1e-3
    attend = model.model.attend
    monkeypatch.setattr(model.model, "attend", lambda *args: attend(*args).detach())
    close(fixed, run(GradientNorm, model, batch)[column][0], atol=0, rtol=1e-6)


@pytest.mark.parametrize("column", ["importance_gradient_norm", "importance_gradient_norm_hidden"])
def test_uniform_attention_is_fixed_attention(column, tiny_model, tiny_rows, tiny_batch):
    measured = run(GradientNorm, tiny_model(projection="uniform"), tiny_batch(tiny_rows([6, 3])))
    for through, fixed in zip(measured[column], measured[column.replace("norm", "norm_detached")], strict=True):
        close(fixed, through, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer"])
def test_states_under_fixed_attention_repeat_attention(encoder, projection, tiny_model, tiny_rows, tiny_batch):
    """a_t ||w_1 - w_0||: the order of attention, whatever the weights."""
    model, batch = tiny_model(encoder=encoder, projection=projection), tiny_batch(tiny_rows([30, 12, 6]))
    with torch.no_grad():
        w = (model.decoder.context.weight[1] - model.decoder.context.weight[0]).norm()
        attention = model.attend(*model.encode(batch["input_ids"], batch["attention_mask"]))
    found = run(GradientNorm, model, batch)["importance_gradient_norm_detached_hidden"]
    for row, values in enumerate(found):
        weights = attention[row, 1 : 1 + len(values)].numpy()
        close(values, weights * w.numpy(), atol=0, rtol=1e-5)
        assert kendalltau(weights, values).statistic == pytest.approx(1, abs=1e-12)


def test_states_under_fixed_attention_of_several_classes(tiny_model, tiny_rows, tiny_batch):
    """a_t ||w_c - sum_j q_j w_j||, q the other classes' shares of what is left."""
    model, batch = tiny_model(num_labels=4), tiny_batch(tiny_rows([9]))
    with torch.no_grad():
        encoded = model.encode(batch["input_ids"], batch["attention_mask"])
        attention = model.attend(*encoded)
        logits = model.decode(encoded.hidden, attention)[0].double()
        best = logits.argmax()
        others = torch.arange(4) != best
        weight = model.decoder.context.weight.double()
        slope = weight[best] - logits[others].softmax(-1) @ weight[others]
    (found,) = run(GradientNorm, model, batch)["importance_gradient_norm_detached_hidden"]
    close(found, attention[0, 1:10].double() * slope.norm(), atol=0, rtol=1e-5)


def test_products_never_exceed_norms(tiny_model, tiny_rows, tiny_batch):
    """Jain & Wallace's |x . dp/dx| <= p(1-p) ||x|| ||df/dx||, by Cauchy and Schwarz."""
    model, batch = tiny_model(), tiny_batch(tiny_rows([9, 4]))
    with torch.no_grad():
        p = model(batch["input_ids"], batch["attention_mask"]).logits.double().softmax(-1).amax(-1)
        lengths = model.get_input_embeddings()(batch["input_ids"]).norm(dim=-1)
    products = run(Gradient, model, batch)["importance_gradient"]
    norms = run(GradientNorm, model, batch)["importance_gradient_norm_detached"]
    for row, (product, norm) in enumerate(zip(products, norms, strict=True)):
        bound = norm * lengths[row, 1 : 1 + len(norm)].numpy() * float(p[row] * (1 - p[row]))
        ratio = product / bound
        assert (ratio <= 1 + 1e-5).all() and np.median(ratio) > 0.01


def test_uniform_attention_has_nothing_to_flow_through(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(projection="uniform", encoder="average"), tiny_batch(tiny_rows([5]))
    (found,) = run(GradientNorm, model, batch)["importance_gradient_norm_hidden"]
    w = (model.decoder.context.weight[1] - model.decoder.context.weight[0]).detach()
    close(found, (w.norm() / 5).expand(5), atol=1e-6, rtol=1e-5)


def test_saturated_predictions(tiny_model, tiny_rows, tiny_batch):
    """With two classes the log-odds are a difference of logits: a bias cannot saturate them."""
    model, batch = tiny_model(), tiny_batch(tiny_rows([6]))
    with torch.no_grad():
        model.decoder.context.bias[1] += 20  # class 1 is predicted before and after
        (before,) = run(GradientNorm, model, batch)["importance_gradient_norm"]
        model.decoder.context.bias[1] += 40
        (after,) = run(GradientNorm, model, batch)["importance_gradient_norm"]
    close(after, before, atol=1e-5, rtol=1e-5)
    assert before.min() > 0


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_sentence_is_all_its_words(encoder, fixed, tiny_model, tiny_rows, tiny_batch):
    """The gradient in the embeddings of its words as one vector, by autograd over the classifier as a whole."""
    model = tiny_model(encoder=encoder, hierarchy="sentence", dtype=torch.float64)
    batch = tiny_batch(tiny_rows([8], hierarchy="sentence"))
    (found,) = run(GradientNorm, model, batch)[(FIXED if fixed else THROUGH)[0]]
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    items = model.model.items(batch["input_ids"], batch["attention_mask"])
    encoded = model.encode(inputs_embeds=embedded, items=items)
    attention = model.attend(*encoded)
    logits = model.decode(encoded.hidden, attention.detach() if fixed else attention)
    (slopes,) = torch.autograd.grad((logits[0, 1] - logits[0, 0]).abs(), embedded)
    expected = [slopes[0, 1 + 3 * sentence : 3 + 3 * sentence].norm() for sentence in range(3)]
    close(found, torch.stack(expected), atol=1e-9, rtol=1e-5)
