"""Texts of many lengths without each token, read together: against each text read again, alone, without the token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.importance._fast import lstm_without
from attnfaith.importance._fast.entering import enter
from attnfaith.importance._fast.lstm_without import readings_without
from attnfaith.importance._fast.removal import without_token
from attnfaith.importance._fast.views import Reading
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from tests.small_encoders import SIZE, close


VOCABULARY = 12


def build(encoder="bilstm", **fields):
    torch.manual_seed(0)
    fields = {"vocab_size": VOCABULARY, "embedding_size": 5, "hidden_size": SIZE, "num_labels": 3, **fields}
    model = AttentionClassifierForSequenceClassification(AttentionClassifierConfig(encoder=encoder, **fields))
    for parameter in model.double().eval().parameters():  # biases too: none may hide behind a 0
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def texts(lengths, padding):
    """Ids and mask of texts, padded by some places more than the longest needs."""
    mask = torch.arange(max(lengths) + padding) < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(1))
    return torch.where(mask, ids, 0), mask


def embeddings_without(model, ids, position):
    """(1,T-1,E) of one text (T,) that lacks a token."""
    kept = torch.cat([ids[:position], ids[position + 1 :]])
    return model.get_input_embeddings()(kept)[None]


@torch.no_grad()
def check_readings(model, lengths, padding, start, end):
    ids, mask = texts(lengths, padding)
    encoder, reading = model.model.encoder, Reading(model)
    embedded = model.get_input_embeddings()(ids)
    states, _ = encoder(embedded, mask)
    gates = enter(encoder, embedded, mask, states)
    falling = mask.sum(1)[gates.texts]
    made = readings_without(encoder, gates, states, falling, start, end, reading)
    longest = max(lengths)
    assert made.shape == (longest - start - end, len(lengths), longest - 1, 4)
    for row, (text, length) in enumerate(zip(gates.texts.tolist(), falling.tolist(), strict=True)):
        inside = slice(start, length - 1 - end)
        for number in range(length - start - end):
            alone = embeddings_without(model, ids[text, :length], start + number)
            if length > 1:
                states_alone, _ = encoder(alone, torch.ones(alone.shape[:2], dtype=torch.bool))
                scores, values = reading.of(reading.view.of(states_alone[None]))
                close(made[number, row, : length - 1, 0][inside], scores[0, 0, inside])
                close(made[number, row, : length - 1, 1:][inside], values[0, 0, inside])


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@pytest.mark.parametrize("alignment", ["additive", "dot"])
@settings(max_examples=30)
@given(lengths=LENGTHS, padding=st.integers(0, 3))
def test_readings_are_those_of_texts_that_lack_a_token(alignment, lengths, padding):
    check_readings(build(alignment=alignment), lengths, padding, 0, 0)


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(3, 9), min_size=1, max_size=5), start=st.integers(0, 2), end=st.integers(0, 1))
def test_markers_at_either_end_are_read_and_not_deleted(lengths, start, end):
    check_readings(build(), [length + start + end - 2 for length in lengths], 1, start, end)


@pytest.mark.parametrize("lengths", [(1,), (1, 1), (2,), (1, 2, 1), (2, 9, 2)])
def test_texts_of_one_token_and_of_two(lengths):
    check_readings(build(), lengths, 0, 0, 0)


@pytest.mark.parametrize("forgets", [True, False])
def test_deletions_that_an_lstm_forgets(forgets, monkeypatch):
    """What the forget gates let go is that of the whole text from there on, also when shorter texts have ended."""
    model = build()
    for lstm in model.model.encoder.directions:
        lstm.weight_hh_l0.data *= 0.05
        lstm.bias_ih_l0.data[SIZE // 2 : SIZE] = -4.0 if forgets else 40.0
    inner, asked = lstm_without.forgotten, []
    monkeypatch.setattr(lstm_without, "forgotten", lambda *rows: asked.append(inner(*rows)) or asked[-1])
    check_readings(model, (40, 25, 40), 2, 1, 1)
    assert sum(asked) > 40 if forgets else asked and not any(asked)


@pytest.mark.parametrize("encoder", ["bilstm", "bigru"])
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@settings(max_examples=15)
@given(lengths=LENGTHS, padding=st.integers(0, 3))
def test_logits_are_those_of_texts_that_lack_a_token(encoder, projection, lengths, padding):
    """Of an encoder with an engine for texts of many lengths, and of one without; a text may lose its only token."""
    model = build(encoder, projection=projection, markers=False)
    ids, mask = texts(lengths, padding)
    with torch.no_grad():
        given_ids = {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": None}
        encoded = model.encode(**given_ids)
        logits = without_token(model, given_ids, encoded)
        assert (logits[~mask] == 0).all()
        for row, length in enumerate(lengths):
            for position in range(length):
                kept = torch.cat([ids[row, :position], ids[row, position + 1 : length]])
                if len(kept):
                    expected = model(input_ids=kept[None], attention_mask=torch.ones(1, len(kept), dtype=torch.int64)).logits
                else:
                    nothing = torch.zeros(1, mask.shape[1], dtype=torch.float32)
                    expected = model.decode(encoded.hidden[[row]], nothing, None)
                close(logits[row, position], expected[0], 1e-9)
