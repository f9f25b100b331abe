"""Conicity against closed forms, plain loops, scikit-learn and the states that a classifier itself gives out."""

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention, SubjectError, subject_of
from attnfaith.training.penalties import conicity as penalty
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "good", "the film was never bad"]


class Given:
    """A subject of two layers, of which nothing but states (B,T,H) is known; a state of NaN is no token's."""

    kind, num_labels, level, pad_token_id, device = "states of the tests", 2, "token", 0, torch.device("cpu")
    can = capabilities = frozenset({"token states"})
    depth = 2

    def __init__(self, *layers):
        self.layers = [torch.tensor(states) for states in layers]

    def attendable(self, batch):
        return ~self.layers[0].isnan().any(2)

    def token_states(self, batch, layer):
        return self.layers[layer]


def of_states(*texts, **options):
    """(absolute, signed) of each text, given by its states."""
    longest, size = max(map(len, texts)), len(texts[0][0])
    padded = [[*states, *[[np.nan] * size] * (longest - len(states))] for states in texts]
    other = np.where(np.isnan(padded), np.nan, 1.0).tolist()
    ids = {"input_ids": torch.ones(len(texts), longest, dtype=torch.long)}
    return list(zip(*run("conicity", Given(other, padded), ids, **options).values(), strict=True))


def test_closed_forms():
    orthogonal = (3 * np.eye(4)).tolist()
    values = of_states(
        orthogonal,
        [[1.0, 2.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0]],  # one way
        [[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]],  # no mean
        [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]],
        [[3.0, 4.0, 0.0, 0.0], [3.0, -4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],  # cos 3/5 twice, and a state of zeros
    )
    np.testing.assert_allclose(values, [(0.5, 0.5), (1, 1), (0, 0), (1, 1 / 3), (0.4, 0.4)], atol=1e-12)


def test_too_few_tokens():
    values = of_states([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], [])
    assert np.isnan(values[0]).all() and np.isnan(values[2]).all()
    np.testing.assert_allclose(values[1], (1, 1))


def loops(states):
    """Of one text (T,H), as the paper writes it."""
    mean = sum(states) / len(states)
    cosines = [float(one @ mean) / (np.sqrt(one @ one) * np.sqrt(mean @ mean)) for one in states]
    return sum(map(abs, cosines)) / len(states), sum(cosines) / len(states)


@pytest.mark.parametrize("hierarchy", ["none", "sentence", "word"])
@pytest.mark.parametrize("encoder", ["bilstm", "average", "embedding"])
def test_pooled_states_by_plain_loops(encoder, hierarchy, tiny_model, tiny_rows):
    subject = subject_of(tiny_model(encoder=encoder, hierarchy=hierarchy))
    batch = subject.collate(tiny_rows((9, 0, 12, [9], 7), hierarchy=hierarchy))
    hidden, mask, _ = subject.encoded(batch)
    made = run("conicity", subject, batch)
    for row, inside in enumerate(mask):
        states = hidden[row, inside].double().numpy()
        values = made["conicity_absolute"][row], made["conicity_signed"][row]
        if len(states) < 2:
            assert np.isnan(values).all()
            continue
        np.testing.assert_allclose(values, loops(states), atol=1e-9)
        cosines = cosine_similarity(states, states.mean(0, keepdims=True))
        np.testing.assert_allclose(values, (np.abs(cosines).mean(), cosines.mean()), atol=1e-9)
    with pytest.raises(SubjectError, match=r"layer=1: there is none of that number; the model has 1, counted from 0"):
        find("conicity")(layer=1).check(subject, None)


@pytest.mark.parametrize("kind", ["bert", "albert", "distilbert"])  # an albert's layers are one module
@torch.no_grad()
def test_states_that_a_classifier_gives_out(kind):
    """Those of the last layer, or of another, of tokens alone; texts are read alone, so without padding."""
    subject = SelfAttention(classifier(kind), tokenizer())
    batch = subject.encode(TEXTS)
    assert subject.depth > 1
    for layer in ("last", 0, subject.depth - 1):
        made = run("conicity", subject, batch, layer=layer)
        for row in range(len(TEXTS)):
            text = batch.alone(row)
            with subject.evaluating():
                every = subject.model(**subject.model_inputs(text), output_hidden_states=True).hidden_states
            states = every[-1 if layer == "last" else layer + 1][subject.attendable(text)].double().numpy()
            values = made["conicity_absolute"][row], made["conicity_signed"][row]
            np.testing.assert_allclose(values, loops(states) if len(states) > 1 else (np.nan, np.nan), atol=1e-5)
    first, last = (run("conicity", subject, batch, layer=layer)["conicity_signed"][0] for layer in (0, "last"))
    assert abs(first - last) > 1e-3


def test_padding_that_disturbs():
    """A model that must not be padded is read by length, and the states come back in their places."""
    subject = SelfAttention(classifier("bert"), tokenizer())
    together = run("conicity", subject, subject.encode(TEXTS))
    for way in ("by length", "one at a time"):
        subject.sites = subject.sites.__class__(**{**vars(subject.sites), "together": way})
        batch = subject.encode(TEXTS)
        assert len(subject.groups(batch)) > 1
        for name, values in run("conicity", subject, batch).items():
            np.testing.assert_allclose(values, together[name], atol=1e-6)


def test_the_penalty_of_training_has_the_same_formula():
    """But of too few tokens, where a penalty is 0 and a measure undefined."""
    states = torch.randn(4, 7, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(7) < torch.tensor([7, 4, 2, 1]).unsqueeze(1)
    subject = Given(torch.where(mask.unsqueeze(2), states, torch.nan).tolist())
    subject.depth = 1
    made = run("conicity", subject, {"input_ids": torch.ones(4, 7, dtype=torch.long)})["conicity_absolute"]
    np.testing.assert_allclose(made[:3], penalty(states, mask)[:3], atol=1e-6)
    assert np.isnan(made[3]) and penalty(states, mask)[3] == 0


def test_a_layer_that_there_is_not():
    subject = SelfAttention(classifier("bert"), tokenizer())
    message = f"layer=9: there is none of that number; the model has {subject.depth}, counted from 0"
    with pytest.raises(SubjectError, match=message):
        run("conicity", subject, subject.encode(TEXTS), layer=9)
