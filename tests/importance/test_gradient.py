"""Gradient importance against finite differences, the closed form and captum."""

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient

from attnfaith.importance.gradients import Gradient
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import SelfAttention
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer


CELLS = [(encoder, "learned", "affine") for encoder in ENCODERS] + [("bilstm", "text", "tanh"), ("cnn", "text", "affine")]
STEP = 1e-5


def close(found, expected, **tolerance):
    torch.testing.assert_close(torch.as_tensor(found).double(), torch.as_tensor(expected).double(), **tolerance)


def stages(model, batch):
    inputs = {name: batch.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}
    encoded = model.encode(**inputs)
    return encoded, model.attend(*encoded)


def probability_of_embeddings(model, batch):
    """Embeddings (B,L,E) to the probability of the class predicted for the text as it is, attention held fixed."""
    with torch.no_grad():
        encoded, attention = stages(model, batch)
        predicted = model.decode(encoded.hidden, attention, encoded.query).argmax(-1)

    def probability(embedded):
        now = model.encode(
            inputs_embeds=embedded, attention_mask=batch["attention_mask"], token_type_ids=batch.get("token_type_ids")
        )
        probs = model.decode(now.hidden, attention, now.query).softmax(-1)
        return probs.gather(-1, predicted.expand(len(probs)).unsqueeze(-1)).squeeze(-1)

    return probability, predicted


@pytest.mark.parametrize(("encoder", "query", "readout"), CELLS)
@pytest.mark.parametrize("num_labels", [2, 3])
def test_finite_differences(encoder, query, readout, num_labels, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(
        encoder=encoder,
        query=query,
        readout=readout,
        num_labels=num_labels,
        dtype=torch.float64,
        embedding_size=8,
        scale=2.0,
    )
    batch = tiny_batch(tiny_rows([5], pair=query == "text"))
    probability, _ = probability_of_embeddings(model, batch)
    with torch.no_grad():
        embedded = model.get_input_embeddings()(batch["input_ids"])
        expected = []
        for token in range(1, 6):  # position 0 is the begin marker
            total = 0.0
            for place in range(embedded.shape[-1]):
                moved = embedded.repeat(2, 1, 1)
                moved[0, token, place] += STEP
                moved[1, token, place] -= STEP
                up, down = (probability(one.unsqueeze(0))[0] for one in moved)
                total += embedded[0, token, place] * (up - down) / (2 * STEP)
            expected.append(abs(float(total)))
    (found,) = run(Gradient, model, batch)["importance_gradient"]
    assert max(expected) > 1e-4
    close(found, expected, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_states_in_closed_form(encoder, query, tiny_model, tiny_rows, tiny_batch):
    """p (1-p) a_t |s_t|, s_t what the state adds to the difference of logits."""
    model = tiny_model(encoder=encoder, query=query)
    batch = tiny_batch(tiny_rows([5, 8], pair=query == "text"))
    found = run(Gradient, model, batch)["importance_gradient_hidden"]
    with torch.no_grad():
        encoded, attention = stages(model, batch)
        p = model.decode(encoded.hidden, attention, encoded.query).double().softmax(-1)[:, 1:]
        weight, _ = model.decoder_weights(encoded.query)
        s = encoded.hidden @ (weight[1] - weight[0])
        expected = p * (1 - p) * attention * s.abs()
    for row, value in enumerate(found):
        close(value, expected[row][encoded.mask[row]], atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize(("encoder", "query", "readout"), CELLS)
def test_captum(encoder, query, readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, query=query, readout=readout, num_labels=3)
    for row in tiny_rows([6, 2, 9], pair=query == "text"):
        batch = tiny_batch([row])
        probability, _ = probability_of_embeddings(model, batch)
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        expected = InputXGradient(probability).attribute(embedded).sum(-1).abs()[0, 1 : 1 + len(row["tokens"])]
        (found,) = run(Gradient, model, batch)["importance_gradient"]
        close(found, expected, atol=1e-7, rtol=1e-4)


def test_predicted_class_and_class_one_agree_for_two_classes(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model()
    batch = tiny_batch(tiny_rows([6]))
    (predicted,) = run(Gradient, model, batch)["importance_gradient"]
    with torch.no_grad():
        model.decoder.context.weight.copy_(model.decoder.context.weight.flip(0))
        model.decoder.context.bias.copy_(model.decoder.context.bias.flip(0))
    (turned,) = run(Gradient, model, batch)["importance_gradient"]
    close(turned, predicted, atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("difference", [30.0, 60.0])
def test_saturated_predictions_keep_their_ranks(difference, tiny_model, tiny_rows, tiny_batch):
    """At a logit difference of 30 a float32 softmax is exactly 0 and 1, and its gradient 0; at 60 a float64 one too."""
    model, batch = tiny_model(dtype=torch.float32), tiny_batch(tiny_rows([7]))
    with torch.no_grad():
        encoded, attention = stages(model, batch)
        logits = model.decode(encoded.hidden, attention)[0]
        model.decoder.context.bias[1] += difference - float(logits[1] - logits[0])
        logits = model.decode(encoded.hidden, attention)[0]
        assert float(logits.softmax(-1)[1]) == 1.0
        p = logits.double().softmax(-1)
        s = encoded.hidden @ (model.decoder.context.weight[1] - model.decoder.context.weight[0])
        expected = (p[0] * p[1] * attention * s.abs())[0][encoded.mask[0]]
    made = run(Gradient, model, batch)
    (tokens,), (states,) = made["importance_gradient"], made["importance_gradient_hidden"]
    assert len(set(tokens.tolist())) == 7 and (tokens > 0).all()
    close(states, expected, atol=0, rtol=1e-4)


def test_attention_is_held_fixed(tiny_model, tiny_rows, tiny_batch):
    """Where all states are one vector, moving attention changes nothing; where they differ it would."""
    model = tiny_model(encoder="embedding", alignment="dot", scale=4.0)
    batch = tiny_batch(tiny_rows([6]))
    (fixed,) = run(Gradient, model, batch)["importance_gradient"]
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    encoded = model.encode(inputs_embeds=embedded, attention_mask=batch["attention_mask"])
    probs = model.decode(encoded.hidden, model.attend(*encoded)).softmax(-1)
    (through,) = torch.autograd.grad(probs.amax(), embedded)
    through = (embedded * through).sum(-1).abs()[0, 1:7]
    assert float((torch.as_tensor(fixed) - through.detach()).abs().max()) > 1e-3


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_sentence_is_all_its_words(encoder, tiny_model, tiny_rows, tiny_batch):
    """Its importance is how fast the probability moves when its embeddings grow together, those of others staying."""
    model = tiny_model(encoder=encoder, hierarchy="sentence", dtype=torch.float64, num_labels=3)
    rows = tiny_rows([8], hierarchy="sentence")
    batch = tiny_batch(rows)
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    items = model.model.items(**given)
    (found,) = run(Gradient, model, batch)["importance_gradient"]
    assert len(found) == len(rows[0]["tokens"]) == 3
    with torch.no_grad():
        attention = model(**given).attention
        embedded = model.get_input_embeddings()(given["input_ids"])
        predicted = model(**given).logits.argmax(-1).item()

        def probability(factors):
            encoded = model.encode(inputs_embeds=embedded * factors, attention_mask=given["attention_mask"], items=items)
            return model.decode(encoded.hidden, attention).softmax(-1)[0, predicted]

        for sentence, value in enumerate(found):
            words = torch.zeros(1, embedded.shape[1], 1, dtype=torch.float64)
            words[0, 1 + 3 * sentence : 3 + 3 * sentence] = STEP
            close(value, ((probability(1 + words) - probability(1 - words)) / (2 * STEP)).abs(), atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_word_of_a_sentence(encoder, tiny_model, tiny_rows, tiny_batch):
    """The same of words: neither their weight in the sentence nor the sentence's moves."""
    model = tiny_model(encoder=encoder, hierarchy="word", dtype=torch.float64, num_labels=3)
    batch = tiny_batch(tiny_rows([8], hierarchy="word"))
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    items, rest = model.items(**given), {"attention_mask": given["attention_mask"]}
    found = run(Gradient, model, batch)
    with torch.no_grad():
        encoded = model.encode(**given)
        attention, embedded = model.attend(*encoded), model.classifier.get_input_embeddings()(given["input_ids"])
        predicted = model.classifier(**given).logits.argmax(-1).item()

        def probability(hidden):
            return model.decode(hidden, attention, encoded.query).softmax(-1)[0, predicted]

        for word in range(6):
            inner = (items == word).double().unsqueeze(-1) * STEP
            ends = [
                model.encode(inputs_embeds=embedded * (1 + step), items=items, **rest).hidden for step in (inner, -inner)
            ]
            expected = (probability(ends[0]) - probability(ends[1])).abs() / (2 * STEP)
            close(found["importance_gradient"][0][word], expected, atol=1e-8, rtol=1e-5)
            inner = torch.zeros(1, 6, 1, dtype=torch.float64)
            inner[0, word] = STEP
            ends = [encoded.hidden * (1 + step) for step in (inner, -inner)]
            expected = (probability(ends[0]) - probability(ends[1])).abs() / (2 * STEP)
            close(found["importance_gradient_hidden"][0][word], expected, atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_of_a_stack_it_is_the_size_of_what_captum_gives(kind):
    """Through attention; with attention held fixed the order is another."""
    subject = SelfAttention(classifier(kind).double(), tokenizer())
    batch = subject.encode(["the old ship man good bad"])
    embedded, predicted = subject.embed(batch).detach(), subject.predict(batch).argmax(-1)

    def probability(values):
        others = {name: batch[name] for name in ("attention_mask", "token_type_ids")}
        return subject.model(inputs_embeds=values, **others).logits.softmax(-1)

    products = InputXGradient(probability).attribute(embedded.requires_grad_(), target=predicted).sum(-1)
    expected = products[0][subject.attendable(batch)[0]].abs().detach().numpy()
    (found,) = run("gradient", subject, batch)["importance_gradient"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    (held,) = run("gradient_attention_held", subject, batch)["importance_gradient_attention_held"]
    assert np.abs(held - found).max() > 1e-3 * found.max()


def test_of_one_attention_over_states_it_is_the_one_that_holds_attention(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([5, 3, 1, 0]))
    one = run("gradient", model, batch)["importance_gradient"]
    for row, held in zip(
        one, run("gradient_attention_held", model, batch)["importance_gradient_attention_held"], strict=True
    ):
        np.testing.assert_array_equal(row, held)
