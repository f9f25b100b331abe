"""Gradient x input against captum, a closed form and its own linearity in what is explained."""

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient

from attnfaith.importance.gradients import GradientNorm, GradientXInput
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from tests.measuring import run
from tests.small_classifiers import classifier, texts


TOKENS, STATES = GradientXInput.columns
CELLS = [(encoder, "learned", "affine") for encoder in ENCODERS] + [("bilstm", "text", "tanh"), ("cnn", "text", "affine")]


def given(batch):
    return {name: batch.get(name) for name in ("attention_mask", "token_type_ids")}


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@pytest.mark.parametrize(("encoder", "query", "readout"), CELLS)
def test_captum(encoder, query, readout, projection, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, query=query, readout=readout, projection=projection, num_labels=3)
    for row in tiny_rows([6, 2, 9], pair=query == "text"):
        batch = tiny_batch([row])
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        encoded = model.encode(batch["input_ids"], **given(batch))
        encoded = type(encoded)(*(None if part is None else part.detach() for part in encoded))
        inner = slice(1, 1 + len(row["tokens"]))
        predicted = int(model(batch["input_ids"], **given(batch)).logits.argmax())
        made = run(GradientXInput, model, batch)
        expected = InputXGradient(lambda x: model(inputs_embeds=x, **given(batch)).logits)  # noqa: B023
        expected = expected.attribute(embedded, target=predicted).sum(-1)[0, inner]
        np.testing.assert_allclose(made[TOKENS][0], expected.detach(), atol=1e-5, rtol=1e-5)
        expected = InputXGradient(lambda h: model.decode(h, model.attend(h, *encoded[1:]), encoded.query))  # noqa: B023
        expected = expected.attribute(encoded.hidden.requires_grad_(), target=predicted).sum(-1)[0, inner]
        np.testing.assert_allclose(made[STATES][0], expected.detach(), atol=1e-5, rtol=1e-5)


def test_a_linear_model(tiny_model, tiny_rows, tiny_batch):
    """Attention 1 / T on embeddings: w . x / T each, and with the bias they sum to the logit."""
    model = tiny_model(encoder="embedding", projection="uniform", num_labels=3)
    row, *_ = rows = tiny_rows([5, 3])
    made = run(GradientXInput, model, tiny_batch(rows), target=2)
    with torch.no_grad():
        weight, bias = model.decoder_weights()
        expected = model.get_input_embeddings()(torch.tensor(row["input_ids"][1:-1])) @ weight[2] / 5
        logits = model(tiny_batch(rows)["input_ids"][:1]).logits
    np.testing.assert_allclose(made[TOKENS][0], expected, atol=1e-6)
    np.testing.assert_allclose(made[STATES][0], expected, atol=1e-6)
    assert made[TOKENS][0].sum() + bias[2].item() == pytest.approx(logits[0, 2].item(), abs=1e-5)
    assert made[TOKENS][0].min() < 0 < made[TOKENS][0].max()


@pytest.mark.parametrize("hierarchy", ["none", "sentence", "word"])
def test_targets(hierarchy, tiny_model, tiny_rows, tiny_batch):
    """A contrast is the difference of two classes', gold is a class's, and with two classes log-odds are a contrast."""
    model = tiny_model(num_labels=3, hierarchy=hierarchy)
    batch = {**tiny_batch(tiny_rows([6, 4], hierarchy=hierarchy)), "label": [2, 0]}

    def tokens(model=model, **options):
        return [np.concatenate(values) for values in run(GradientXInput, model, batch, **options).values()]

    classes = [tokens(target=number) for number in range(3)]
    for place, found in enumerate(tokens(target={"of": 1, "against": 2})):
        np.testing.assert_allclose(found, classes[1][place] - classes[2][place], atol=1e-5)
    first = len(run(GradientXInput, model, batch)[TOKENS][0])
    for place, found in enumerate(tokens(target="gold")):
        expected = np.concatenate([classes[2][place][:first], classes[0][place][first:]])
        np.testing.assert_allclose(found, expected, atol=1e-6)
    two = tiny_model(hierarchy=hierarchy)
    for found, expected in zip(
        tokens(two, target=0, output="log_odds"), tokens(two, target={"of": 0, "against": 1}), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_saturated_probabilities_keep_their_order(tiny_model, tiny_rows, tiny_batch):
    """dp = p (1 - p) d log-odds: at log-odds of 60 all of it is below 1e-25, and in order."""
    model, batch = tiny_model(), tiny_batch(tiny_rows([7]))
    with torch.no_grad():
        model.decoder.context.bias[1] += 60
    probability = run(GradientXInput, model, batch, output="probability")[TOKENS][0]
    odds = run(GradientXInput, model, batch, output="log_odds")[TOKENS][0]
    assert 0 < np.abs(probability).max() < 1e-20
    assert (probability.argsort() == odds.argsort()).all()


@pytest.mark.parametrize(
    ("positions", "kind"), [(True, "deberta-v2"), (False, "deberta-v2"), (None, "bert"), (None, "llama")]
)
def test_products_are_refused_where_a_norm_takes_the_length_of_embeddings_away(positions, kind):
    """In the layout of DeBERTa-v3, f(10 x) = f(x) and so x . df/dx = 0, token by token, up to the norm's epsilon."""
    fields = {} if positions is None else {"position_biased_input": positions, "relative_attention": True}
    model = classifier(kind, **fields).double()
    subject = SelfAttention(model)
    batch = Batch.of(texts(model), subject)
    embedded = subject.embed(batch).detach().requires_grad_()
    (slopes,) = torch.autograd.grad(subject.predict(batch, embedded)[:, 0].sum(), embedded)
    cosines = torch.cosine_similarity(embedded, slopes, dim=-1)[batch["attention_mask"].bool()].abs()
    has_length = "embedding length" in subject.capabilities
    assert has_length == (positions is not False) and (cosines.max() > 0.03) == has_length
    if not has_length:
        assert cosines.max() < 0.01
        with pytest.raises(SubjectError, match="embedding length"):
            run(GradientXInput, subject, batch)
        assert np.isfinite(run(GradientNorm, subject, batch)["importance_gradient_norm"][0]).all()
