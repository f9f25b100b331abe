"""Words of a hierarchical model as what attention is over: its definition by loops, by hand, and against flat models."""

import numpy as np
import pytest
import torch

from attnfaith.measurement.registry import find
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.projections import project
from attnfaith.subjects import word_level
from tests.gates import options_of
from tests.measuring import POOLED, marked, run
from tests.stages import inputs_of


TEXTS = (10, 0, [9], [12] * 5, 7)


@pytest.fixture
def setting(tiny_model, tiny_rows, tiny_batch):
    def make(texts=TEXTS, **fields):
        rows = tiny_rows(texts, hierarchy="word", pair=fields.get("query") == "text")
        return tiny_model(hierarchy="word", **fields), inputs_of(tiny_batch(rows))

    return make


def close(actual, expected, atol=2e-6):
    torch.testing.assert_close(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), atol=atol, rtol=0)


def by_loops(model, hidden, attention, query, row):
    """Logits (C,) of one document from the definition: sentences one by one, words one by one."""
    numbers, classifier = query.sentences[row], model.classifier
    count = int(numbers.max()) + 1
    totals, vectors = torch.zeros(count, dtype=attention.dtype), torch.zeros(count, hidden.shape[2], dtype=hidden.dtype)
    for sentence in range(count):
        words = [word for word in range(len(numbers)) if numbers[word] == sentence]
        totals[sentence] = sum(attention[word] for word in words)
        for word in words:
            share = attention[word] / totals[sentence] if totals[sentence] > 0 else query.weights[row, word]
            vectors[sentence] += share * hidden[row, word]
    states, _ = classifier.model.encoder(vectors[None], torch.ones(1, count, dtype=torch.bool))
    return classifier.decode(states, totals[None], query[row : row + 1])[0]


def attention_by_loops(model, hidden, allowed, query, row):
    """Attention (T,) over the words that `allowed` (T,) leaves, sentence by sentence; one without any is read as it was."""
    numbers, inner = query.sentences[row], model.classifier.model
    count = int(numbers.max()) + 1
    weights = query.weights[row].clone()
    for sentence in range(count):
        words = (numbers == sentence) & allowed
        if words.any():
            weights[numbers == sentence] = 0
            scores = inner.sentence_reader.scores(hidden[row : row + 1])[0, words]
            weights[words] = project(scores, words[words], model.config)
    vectors = torch.stack([weights[numbers == sentence] @ hidden[row, numbers == sentence] for sentence in range(count)])
    states, _ = inner.encoder(vectors[None], torch.ones(1, count, dtype=torch.bool))
    mask = torch.zeros(count, dtype=torch.bool)
    mask[numbers[allowed]] = True
    above = project(inner.alignment(states)[0], mask, model.config)
    return torch.where(numbers >= 0, above[numbers] * weights, 0.0)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_own_attention_is_the_product_and_gives_the_prediction(encoder, setting):
    for projection, query, readout in (("sparsemax", "text", "tanh"), ("softmax", "learned", "affine")):
        fields = {"projection": projection, "query": query, "readout": readout, "num_labels": 3}
        model, batch = setting(encoder=encoder, scale=12.0, **fields)
        output, encoded = model.classifier(**batch), model.encode(**batch)
        attention = model.attend(*encoded)
        close(model.decode(encoded.hidden, attention, encoded.query), output.logits, 1e-5)  # of logits up to 20
        sentences, words = model.sentences(**batch), model.items(**batch)
        for row in range(len(TEXTS)):
            inside = sentences[row] >= 0
            product = output.attention[row, sentences[row, inside]] * output.word_attention[row, inside]
            assert words[row, inside].tolist() == list(range(int(inside.sum()))) and (words[row, ~inside] == -1).all()
            close(attention[row, : len(product)], product)
            assert (attention[row, len(product) :] == 0).all() and not encoded.mask[row, len(product) :].any()
        assert torch.equal(model.attendable(**batch), encoded.mask)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_any_attention_by_loops_and_in_parts(encoder, setting, monkeypatch):
    model, batch = setting(encoder=encoder, projection="sparsemax", num_labels=3)
    hidden, mask, query = model.encode(**batch)
    attention = torch.rand(len(TEXTS), 9, mask.shape[1], generator=torch.Generator().manual_seed(0))
    attention[:, 1:4][attention[:, 1:4] < 0.7] = 0  # sentences without any weight, and with one word
    attention[:, 4] = 0
    attention *= mask.unsqueeze(1)
    masks = (attention > 0.4) & mask.unsqueeze(1)
    logits, parts = model.decode(hidden, attention, query), model.attend(hidden, masks, query)
    for row in (0, 2, 3, 4):
        for draw in range(9):
            close(logits[row, draw], by_loops(model, hidden, attention[row, draw], query, row))
            close(parts[row, draw], attention_by_loops(model, hidden, masks[row, draw], query, row))
    close(logits[0, 4], model.classifier.decode(hidden[:1], torch.zeros_like(attention[:1, 0]), query[:1])[0])  # the bias
    monkeypatch.setattr(word_level, "NUMBERS_AT_ONCE", 1)
    close(model.decode(hidden, attention, query), logits, 1e-6)
    close(model.attend(hidden, masks, query), parts, 1e-6)


# exact for flat models; words of documents are searched, or lack it
EXACT = {"adversary_exact", "minimal_flip_set", "exact_contribution", "token_logits"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(POOLED) - EXACT))
def test_a_document_of_one_sentence_is_a_flat_text(name, tiny_model, tiny_rows, tiny_batch):
    """Where sentence states are the vectors themselves, a flat model with the weights of the lower level gives the same."""
    fields = {"encoder": "embedding", "projection": "sparsemax", "num_labels": 3}
    model, flat = tiny_model(hierarchy="word", **fields), tiny_model(**fields)
    weights = model.classifier.state_dict()
    lower = {name.replace("sentence_reader.word_", ""): weights[name] for name in weights if "sentence_reader" in name}
    flat.load_state_dict({name: lower.get(name, weights[name]) for name in flat.state_dict()})
    batch = tiny_batch(marked(tiny_rows([[20, 21, 30, 45, 7, 12], [9], [], [33, 8, 33]])))
    # a further level is a further sum for the epsilon of relevance to take from
    options = {"adversary_search": {"steps": 5}, "lrp": {"epsilon": 0.0}}.get(name, {})
    columns, expected = (
        run(find(name), subject, batch, seed=3, **options, **options_of(name, subject, batch)) for subject in (model, flat)
    )
    for column, values in expected.items():
        for row, value in zip(columns[column], values, strict=True):
            if np.asarray(value).dtype.kind == "U":
                assert row == value, column
            else:
                np.testing.assert_allclose(row, value, atol=1e-5, rtol=1e-4, err_msg=column)
