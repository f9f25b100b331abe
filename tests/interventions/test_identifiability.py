"""What a model's own sums leave open of its attention: pooled, and every row, head and layer at once."""

import numpy as np
import pytest
from scipy.optimize import linprog

from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention
from tests.measuring import run
from tests.small_classifiers import classifier
from tests.stages import Text


LOW, HIGH, ATTENTION, TVD, BOUND, CERTAINTY, SUPPORT, TOP, TOP_LOW, CHANGE = find("identifiability").columns


def interval(values, attention, token):
    """By two linear programmes of another solver's call each."""
    matrix = np.vstack([values.T, np.ones(len(values))])
    costs = np.eye(len(values))[token]
    return [sign * linprog(sign * costs, A_eq=matrix, b_eq=matrix @ attention).fun for sign in (1, -1)]


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_up_to_as_many_tokens_as_numbers_there_is_one_attention(readout, tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(readout=readout), tiny_batch(tiny_rows([9, 4]))
    columns = run("identifiability", model, batch)
    for row in range(2):
        attention = Text(model, batch, row).attention
        for name in (LOW, HIGH, ATTENTION):
            np.testing.assert_allclose(columns[name][row], attention, atol=1e-7)
        assert (columns[TVD][row], columns[BOUND][row], columns[CERTAINTY][row]) == (0, 0, "exact")
        assert columns[TOP][row] == pytest.approx(np.sort(attention)[-3:].sum()) == pytest.approx(columns[TOP_LOW][row])


@pytest.mark.parametrize(("encoder", "readout"), [("bilstm", "tanh"), ("cnn", "affine")])
def test_more_tokens_leave_an_interval_that_the_model_cannot_see(encoder, readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, readout=readout)
    batch = tiny_batch(tiny_rows([18, 0, 14, 10]))
    columns = run("identifiability", model, batch)
    for row in (0, 2, 3):
        text = Text(model, batch, row)
        for token in (0, int(text.attention.argmax())):
            limits = columns[LOW][row][token], columns[HIGH][row][token]
            assert limits == pytest.approx(interval(text.states, text.attention, token), abs=1e-6)
        furthest = columns[ATTENTION][row].astype(np.float64)
        assert np.abs(furthest - text.attention).sum() / 2 == pytest.approx(columns[TVD][row], abs=1e-5)
        assert columns[TVD][row] > 1e-3 and columns[CHANGE][row] < 1e-10
        np.testing.assert_allclose(text.logits(furthest), text.logits(text.attention), atol=1e-5)
    assert columns[TVD][3] == pytest.approx(columns[BOUND][3], abs=1e-12)  # ten tokens, nine equations: a segment
    assert columns[ATTENTION][1].shape == (0,) and np.isnan(columns[TVD][1]) and columns[CERTAINTY][1] == "undefined"


@pytest.mark.parametrize(("num_labels", "query"), [(2, "learned"), (3, "text")])
def test_logits_leave_more_open_than_contexts(num_labels, query, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(num_labels=num_labels, query=query)
    batch = tiny_batch(tiny_rows([12, 5], pair=query == "text"))
    contexts, logits = (run("identifiability", model, batch, of=of) for of in ("context", "logits"))
    for row in range(2):
        assert (logits[LOW][row] <= contexts[LOW][row] + 1e-6).all()
        assert (logits[HIGH][row] >= contexts[HIGH][row] - 1e-6).all()
        assert logits[TVD][row] > contexts[TVD][row] + 0.1
        assert logits[CERTAINTY][row] == "exact" and logits[SUPPORT][row] <= num_labels + 1
        assert max(logits[CHANGE][row], contexts[CHANGE][row]) < 1e-5
    text = Text(model, batch)
    values, token = text.logits(np.eye(len(text))), int(text.attention.argmax())
    limits = logits[LOW][0][token], logits[HIGH][0][token]
    np.testing.assert_allclose(limits, interval(values, text.attention, token), atol=1e-5)


FIELDS = {"bert": {"hidden_size": 12, "num_attention_heads": 3}, "gpt2": {"n_embd": 12, "n_head": 3}}
"""Heads of four numbers, which leave much open."""


def subject_of(kind, reduction="last"):
    return SelfAttention(classifier(kind, initializer_range=0.4, **FIELDS[kind]), reduction=reduction)


def texts(subject, *lengths):
    random = np.random.default_rng(0)
    ids = [[1, *random.integers(5, 60, length).tolist(), 2] for length in lengths]
    return subject.collate([{"instance_id": str(number), "input_ids": row} for number, row in enumerate(ids)])


@pytest.mark.parametrize("kind", FIELDS)
def test_the_rows_that_are_shown_can_be_others(kind):
    """The logits stay, to rounding."""
    subject, lengths = subject_of(kind), (14, 3, 20)
    batch = texts(subject, *lengths)
    columns, inside = run("identifiability", subject, batch), subject.attendable(batch)
    for row, length in enumerate(lengths):
        own = subject.attention(batch)[row][inside[row]].double().numpy()
        low, high, furthest = (columns[name][row] for name in (LOW, HIGH, ATTENTION))
        assert (low <= own + 1e-6).all() and (own <= high + 1e-6).all()
        assert (furthest >= low - 1e-6).all() and (furthest <= high + 1e-6).all()
        assert low.shape == (length,) and furthest.sum() == pytest.approx(1, abs=1e-6)
        assert columns[CHANGE][row] < 1e-5
        assert np.abs(furthest - own).sum() / 2 == pytest.approx(columns[TVD][row], abs=1e-5)
        assert columns[TVD][row] <= columns[BOUND][row]
    assert columns[TVD][1] == pytest.approx(0, abs=1e-6)  # three tokens, five equations
    assert columns[CERTAINTY][1] == "exact"
    assert columns[TVD][2] > 0.2


@pytest.mark.parametrize(("kind", "reduction"), [("bert", "all"), ("bert", {"layers": 1, "head": 2}), ("gpt2", "last")])
def test_intervals_are_means_of_intervals_of_heads(kind, reduction):
    """By a linear programme for each head, row, token and end; markers keep their weights."""
    subject = subject_of(kind, reduction)
    batch = texts(subject, 12)
    columns = run("identifiability", subject, batch)
    read = subject.read(batch, rows=True)
    inside = subject.attendable(batch)[0].numpy()
    heads = range(3) if subject.reduction.head is None else [subject.reduction.head]
    bounds, total = np.zeros((2, 12)), 0.0
    for layer in subject.reduction.chosen(2):
        for head in heads:
            for row in read.rows[0].nonzero()[:, 0].tolist():
                own = read.maps[layer].weights[0, head, row].detach().double().numpy()
                free = inside & (own > 0)
                values, mass = read.maps[layer].values[0, head].detach().double().numpy()[free], own[free].sum()
                total += mass
                for token in np.flatnonzero(free[inside]):
                    place = free[: np.flatnonzero(inside)[token]].sum()
                    bounds[:, token] += mass * np.array(interval(values, own[free] / mass, place))
    np.testing.assert_allclose(columns[LOW][0], bounds[0] / total, atol=1e-6)
    np.testing.assert_allclose(columns[HIGH][0], bounds[1] / total, atol=1e-6)
    assert columns[TVD][0] > 0.02
