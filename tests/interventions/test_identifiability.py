"""What a pooled model's own sums leave open of its attention, against the model itself."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attnfaith.measurement.registry import find
from attnfaith.subjects import SubjectError, opened, subject_of
from tests.measuring import run


LOW, HIGH, ATTENTION, TVD, BOUND, CERTAINTY, SUPPORT, TOP, TOP_LOW, CHANGE, *OF_MAPS = find("identifiability").columns


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
    made = run("identifiability", model, batch)
    assert not set(OF_MAPS) & set(made)
    for row in range(2):
        _, attention = sums(model, batch, row)
        for name in (LOW, HIGH, ATTENTION):
            np.testing.assert_allclose(made[name][row], attention, atol=1e-7)
        assert (made[TVD][row], made[BOUND][row], made[CERTAINTY][row]) == (0, 0, "exact")
        assert made[TOP][row] == pytest.approx(np.sort(attention)[-3:].sum()) == pytest.approx(made[TOP_LOW][row])


@pytest.mark.slow
@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "cnn"])
def test_more_tokens_leave_an_interval_that_the_model_cannot_see(encoder, readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, readout=readout, dtype=torch.float64)
    batch = tiny_batch(tiny_rows([25, 0, 14, 10]))
    made = run("identifiability", model, batch)
    subject, read = opened(model, batch)
    own = subject.predict(read).detach()
    for row in (0, 2, 3):
        states, attention = sums(model, batch, row)
        for token in (0, int(attention.argmax())):
            low, high = interval(states, attention, token)
            assert made[LOW][row][token] == pytest.approx(low, abs=1e-6)
            assert made[HIGH][row][token] == pytest.approx(high, abs=1e-6)
        other = made[ATTENTION][row].astype(np.float64)
        assert np.abs(other - attention).sum() / 2 == pytest.approx(made[TVD][row], abs=1e-5) and made[TVD][row] > 1e-3
        assert made[CHANGE][row] < 1e-10
        spread = torch.zeros(1, int(batch["input_ids"].shape[1]), dtype=torch.float64)
        spread[0, 1 : 1 + len(other)] = torch.from_numpy(other)
        again = subject.intervene(read.take(torch.tensor([row])), spread).detach()
        np.testing.assert_allclose(again[0], own[row], atol=1e-5)
    assert made[TVD][3] == pytest.approx(made[BOUND][3], abs=1e-12)  # ten tokens, nine equations: a segment
    assert made[ATTENTION][1].shape == (0,) and np.isnan(made[TVD][1]) and made[CERTAINTY][1] == "undefined"


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


def test_within_epsilon_the_logits_change_by_no_more(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(dtype=torch.float64), tiny_batch(tiny_rows([8, 12]))
    exact, near = (run("identifiability", model, batch, of="logits", epsilon=epsilon) for epsilon in (0.0, 0.05))
    for row in range(2):
        assert 1e-3 < near[CHANGE][row] <= 0.05 + 1e-9 and exact[CHANGE][row] < 1e-10
        assert near[TVD][row] >= exact[TVD][row] - 1e-6
        assert (near[HIGH][row] >= exact[HIGH][row] - 1e-6).all() and (near[HIGH][row] > exact[HIGH][row] + 1e-4).any()


def test_the_change_is_that_of_the_class_that_changes_most(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(num_labels=3, readout="tanh", dtype=torch.float64)
    batch = tiny_batch(tiny_rows([12, 9, 14]))
    made = run("identifiability", model, batch, epsilon=0.05)
    largest = set()
    for row in range(3):
        states, attention = sums(model, batch, row)
        both = torch.from_numpy(np.array([attention, made[ATTENTION][row].astype(np.float64)]))
        logits = model.decode(torch.from_numpy(states)[None], both[None]).detach()[0]
        changes = (logits[1] - logits[0]).abs().numpy()
        assert made[CHANGE][row] == pytest.approx(changes.max(), abs=1e-5) and changes.max() > 1e-3
        largest.add(int(changes.argmax()))
    assert largest != {0}


def test_words_of_sentences_are_summed_by_sentence(tiny_model, tiny_rows, tiny_batch):
    """Each sentence keeps its weight; the model says the same, though logits are not affine in the weights of words."""
    model = tiny_model(hierarchy="word", dtype=torch.float64)
    batch = tiny_batch(tiny_rows([[5, 6, 4, *[8] * 12, 4, 9, 10]], hierarchy="none"))
    made = run("identifiability", model, batch)
    subject, one = opened(model, batch)
    numbers = subject.encoded(one).query.sentences[0].numpy()
    own = subject.attention(one)[0].numpy()
    assert len(set(numbers.tolist())) == 3 and (numbers == 1).sum() == 12
    other = made[ATTENTION][0].astype(np.float64)
    for sentence in range(3):
        members = numbers == sentence
        assert other[members].sum() == pytest.approx(own[members].sum(), abs=1e-6)
    np.testing.assert_allclose(made[HIGH][0][numbers != 1], own[numbers != 1], atol=1e-7)
    assert made[TVD][0] > 1e-3 and made[CHANGE][0] < 1e-10


def test_what_rounding_alone_tells_apart_is_the_same(tiny_model, tiny_rows, tiny_batch):
    """One word five times, without an encoder: any weights give the same sum."""
    made = run("identifiability", tiny_model(encoder="average"), tiny_batch(tiny_rows([[12] * 5])))
    np.testing.assert_allclose(made[LOW][0], 0, atol=1e-6)
    np.testing.assert_allclose(made[HIGH][0], 1, atol=1e-6)
    assert made[TVD][0] == pytest.approx(0.8, abs=0.1) and made[SUPPORT][0] == 1 and made[CHANGE][0] < 1e-5


def test_logits_that_are_not_affine_cannot_have_to_stay(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(readout="tanh")
    for call in (
        lambda: find("identifiability")(of="logits").check(subject_of(model), None),
        lambda: run("identifiability", model, tiny_batch(tiny_rows([3])), of="logits"),
    ):
        with pytest.raises(SubjectError, match="'identifiability with of='logits'' needs 'affine read-out'"):
            call()
    find("identifiability")().check(subject_of(model), None)
