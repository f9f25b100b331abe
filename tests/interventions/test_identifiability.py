"""What a model's own sums leave open of its attention: pooled, and every row, head and layer at once."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention, SubjectError, opened, subject_of
from tests.measuring import run


# --------------------------------------------------------------------------------------- pooled


LOW, HIGH, ATTENTION, TVD, BOUND, CERTAINTY, SUPPORT, TOP, TOP_LOW, CHANGE, *OF_MAPS = find("identifiability").columns
DOUBLE, LAYER_TVD, LAYER_ROWS = OF_MAPS


def sums(model, batch, row):
    """States (T,H) and attention (T,) of a text, float64."""
    encoded = model.encode(**{name: value for name, value in batch.items() if name != "instance_id"})
    keep = encoded.mask[row]
    attention = model.attend(*encoded)[row, keep].detach().double().numpy()
    return encoded.hidden[row, keep].detach().double().numpy(), attention / attention.sum()


def interval(values, attention, token):
    """By two linear programmes of another solver call each."""
    matrix, kept = np.vstack([values.T, np.ones(len(values))]), np.append(values.T @ attention, 1)
    costs = np.eye(len(values))[token]
    return [sign * linprog(sign * costs, A_eq=matrix, b_eq=kept).fun for sign in (1, -1)]


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_up_to_as_many_tokens_as_numbers_there_is_one_attention(readout, tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(readout=readout), tiny_batch(tiny_rows([9, 4]))
    found = run("identifiability", model, batch)
    assert not set(OF_MAPS) & set(found)
    for row in range(2):
        _, attention = sums(model, batch, row)
        for name in (LOW, HIGH, ATTENTION):
            np.testing.assert_allclose(found[name][row], attention, atol=1e-7)
        assert (found[TVD][row], found[BOUND][row], found[CERTAINTY][row]) == (0, 0, "exact")
        assert found[TOP][row] == pytest.approx(np.sort(attention)[-3:].sum()) == pytest.approx(found[TOP_LOW][row])


@pytest.mark.slow
@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "cnn"])
def test_more_tokens_leave_an_interval_that_the_model_cannot_see(encoder, readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, readout=readout, dtype=torch.float64)
    batch = tiny_batch(tiny_rows([25, 0, 14, 10]))
    found = run("identifiability", model, batch)
    subject, read = opened(model, batch)
    own = subject.predict(read).detach()
    for row in (0, 2, 3):
        states, attention = sums(model, batch, row)
        for token in (0, int(attention.argmax())):
            low, high = interval(states, attention, token)
            assert found[LOW][row][token] == pytest.approx(low, abs=1e-6)
            assert found[HIGH][row][token] == pytest.approx(high, abs=1e-6)
        other = found[ATTENTION][row].astype(np.float64)
        assert np.abs(other - attention).sum() / 2 == pytest.approx(found[TVD][row], abs=1e-5) and found[TVD][row] > 1e-3
        assert found[CHANGE][row] < 1e-10
        spread = torch.zeros(1, int(batch["input_ids"].shape[1]), dtype=torch.float64)
        spread[0, 1 : 1 + len(other)] = torch.from_numpy(other)
        again = subject.intervene(read.take(torch.tensor([row])), spread).detach()
        np.testing.assert_allclose(again[0], own[row], atol=1e-5)
    assert found[TVD][3] == pytest.approx(found[BOUND][3], abs=1e-12)  # ten tokens, nine equations: a segment
    assert found[ATTENTION][1].shape == (0,) and np.isnan(found[TVD][1]) and found[CERTAINTY][1] == "undefined"


@pytest.mark.parametrize(("num_labels", "query"), [(2, "learned"), (3, "text")])
def test_logits_leave_more_open_than_contexts(num_labels, query, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(num_labels=num_labels, query=query)
    batch = tiny_batch(tiny_rows([12, 5], pair=query == "text"))
    contexts, logits = (run("identifiability", model, batch, of=of) for of in ("context", "logits"))
    for row in range(2):
        assert (logits[LOW][row] <= contexts[LOW][row] + 1e-6).all() and (
            logits[HIGH][row] >= contexts[HIGH][row] - 1e-6
        ).all()
        assert logits[TVD][row] > contexts[TVD][row] + 0.1
        assert logits[CERTAINTY][row] == "exact" and logits[SUPPORT][row] <= num_labels + 1
        assert max(logits[CHANGE][row], contexts[CHANGE][row]) < 1e-5
    states, attention = sums(model, batch, 0)
    subject, read = opened(model, batch)
    weight, _ = subject.decoder_weights(subject.encoded(read).query)
    values = states @ weight.detach().double().numpy().T
    token = int(attention.argmax())
    np.testing.assert_allclose(
        [logits[LOW][0][token], logits[HIGH][0][token]], interval(values, attention, token), atol=1e-5
    )


def test_words_of_sentences_are_summed_by_sentence(tiny_model, tiny_rows, tiny_batch):
    """Each sentence keeps its weight; the model says the same, though logits are not affine in the weights of words."""
    model = tiny_model(hierarchy="word", dtype=torch.float64)
    batch = tiny_batch(tiny_rows([[5, 6, 4, *[8] * 12, 4, 9, 10]], hierarchy="none"))
    found = run("identifiability", model, batch)
    subject, one = opened(model, batch)
    numbers = subject.encoded(one).query.sentences[0].numpy()
    own = subject.attention(one)[0].numpy()
    assert len(set(numbers.tolist())) == 3 and (numbers == 1).sum() == 12
    other = found[ATTENTION][0].astype(np.float64)
    for sentence in range(3):
        members = numbers == sentence
        assert other[members].sum() == pytest.approx(own[members].sum(), abs=1e-6)
    np.testing.assert_allclose(found[HIGH][0][numbers != 1], own[numbers != 1], atol=1e-7)
    assert found[TVD][0] > 1e-3 and found[CHANGE][0] < 1e-10


def test_what_rounding_alone_tells_apart_is_the_same(tiny_model, tiny_rows, tiny_batch):
    """One word five times, without an encoder: any weights give the same sum."""
    found = run("identifiability", tiny_model(encoder="average"), tiny_batch(tiny_rows([[12] * 5])))
    np.testing.assert_allclose(found[LOW][0], 0, atol=1e-6)
    np.testing.assert_allclose(found[HIGH][0], 1, atol=1e-6)
    assert found[TVD][0] == pytest.approx(0.8, abs=0.1) and found[SUPPORT][0] == 1 and found[CHANGE][0] < 1e-5


def test_logits_that_are_not_affine_cannot_have_to_stay(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(readout="tanh")
    for call in (
        lambda: find("identifiability")(of="logits").check(subject_of(model), None),
        lambda: run("identifiability", model, tiny_batch(tiny_rows([3])), of="logits"),
    ):
        with pytest.raises(SubjectError, match="'identifiability with of='logits'' needs 'affine read-out'"):
            call()
    find("identifiability")().check(subject_of(model), None)


# --------------------------------------------------------------------------------------- maps


SIZES = {"vocab_size": 60, "num_labels": 3, "pad_token_id": 0, "initializer_range": 0.4}


def bert(reduction="last", **fields):
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 16}
    config = BertConfig(**SIZES, **sizes, **fields, cls_token_id=2, sep_token_id=3)
    return SelfAttention(BertForSequenceClassification(config).eval(), reduction=reduction)


def gpt(reduction="last"):
    torch.manual_seed(1)
    config = GPT2Config(**SIZES, n_embd=12, n_head=3, n_layer=2, n_positions=40, bos_token_id=2, eos_token_id=3)
    return SelfAttention(GPT2ForSequenceClassification(config).eval(), reduction=reduction)


def texts(subject, *lengths, seed=0):
    generator = np.random.default_rng(seed)
    rows = [
        {"instance_id": str(number), "input_ids": [2, *generator.integers(5, 60, length).tolist(), 3]}
        for number, length in enumerate(lengths)
    ]
    return subject.collate(rows)


def shown(subject, batch, row):
    return subject.attention(batch)[row][subject.attendable(batch)[row]].double().numpy()


@pytest.mark.parametrize("make", [bert, gpt])
def test_all_rows_of_all_layers_at_once(make):
    """The logits stay, in float64 to its rounding; other weights of the same distance change them by far more."""
    subject = make()
    batch = texts(subject, 14, 3, 20)
    found = run("identifiability", subject, batch)
    for row, length in enumerate((14, 3, 20)):
        own = shown(subject, batch, row)
        np.testing.assert_allclose(own.sum(), 1, atol=1e-6)
        assert (found[LOW][row] <= own + 1e-6).all() and (own <= found[HIGH][row] + 1e-6).all()
        assert found[LOW][row].shape == (length,) and found[LAYER_TVD][row].shape == (2,)
        assert found[CHANGE][row] < 1e-5 and found[DOUBLE][row] < 1e-11
        other = found[ATTENTION][row]
        assert (other >= found[LOW][row] - 1e-6).all() and (other <= found[HIGH][row] + 1e-6).all()
        assert other.sum() == pytest.approx(1, abs=1e-6)
        assert np.abs(other - own).sum() / 2 == pytest.approx(found[TVD][row], abs=1e-5)
        assert found[TVD][row] <= found[BOUND][row]
    assert found[TVD][1] == pytest.approx(0, abs=1e-9)  # three tokens, five equations
    assert found[CERTAINTY][1] == "exact"
    assert found[TVD][2] > 0.2 and (found[LAYER_TVD][2] > 0.05).all()


def test_rows_that_matter():
    """Of a BERT all in the first layer, the first token's in the last; of a GPT, the last token's there."""
    subject = bert()
    batch = texts(subject, 9)
    assert run("identifiability", subject, batch)[LAYER_ROWS][0].tolist() == [3 * 11, 3]
    subject = gpt()
    assert run("identifiability", subject, texts(subject, 9))[LAYER_ROWS][0].tolist() == [3 * 11, 3]


@pytest.mark.parametrize(
    ("make", "reduction"),
    [(bert, {"layers": 1, "head": 2}), (bert, "last"), (bert, "all"), (gpt, {"layers": 0, "head": 1}), (gpt, "last")],
)
def test_intervals_are_means_of_intervals_of_heads(make, reduction):
    """By a linear programme for each head, row, token and end; markers keep their weights."""
    subject = make(reduction)
    batch = texts(subject, 12)
    found = run("identifiability", subject, batch)
    read = subject.in_double().read(batch, rows=True)
    inside = subject.attendable(batch)[0].numpy()
    heads = range(3) if subject.reduction.head is None else [subject.reduction.head]
    bounds, total = np.zeros((2, 12)), 0.0
    for layer in subject.reduction.chosen(2):
        for head in heads:
            for row in read.rows[0].nonzero()[:, 0].tolist():
                own = read.maps[layer].weights[0, head, row].detach().numpy()
                values = read.maps[layer].values[0, head].detach().numpy()
                free = inside & (own > 0)
                matrix = np.vstack([values[free].T, np.ones(free.sum())])
                total += own[free].sum()
                for token, place in enumerate(np.flatnonzero(inside)):
                    if not free[place]:
                        continue
                    costs = np.zeros(free.sum())
                    costs[free[:place].sum()] = 1
                    for end, sign in ((0, 1), (1, -1)):
                        least = linprog(sign * costs, A_eq=matrix, b_eq=matrix @ own[free])
                        bounds[end, token] += sign * least.fun
    np.testing.assert_allclose(found[LOW][0], bounds[0] / total, atol=1e-6)
    np.testing.assert_allclose(found[HIGH][0], bounds[1] / total, atol=1e-6)
    assert found[TVD][0] > 0.02


@pytest.mark.parametrize("where", ["in_double", "read"])
def test_a_model_that_does_not_run_in_float64(where, monkeypatch):
    """Its own precision has to do: the limits are the same to rounding, and no change in float64 is claimed."""
    subject = bert()
    batch = texts(subject, 14, 9)
    exact = run("identifiability", subject, batch)
    read = SelfAttention.read

    def refusing(self, *given, **options):
        if where == "in_double" or self.model.dtype == torch.float64:
            raise RuntimeError("expected Float32, got Double")
        return read(self, *given, **options)

    monkeypatch.setattr(SelfAttention, where, refusing)
    found = run("identifiability", subject, batch)
    for row in range(2):
        np.testing.assert_allclose(found[HIGH][row], exact[HIGH][row], atol=1e-4)
        assert found[CHANGE][row] < 1e-5 and np.isnan(found[DOUBLE][row]) and found[TVD][row] > 0.01
