"""What heads' own sums leave open of a Transformer's attention: every row, head and layer replaced at once."""

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

from attnfaith.interventions.identifiability import Heads
from attnfaith.measurement.registry import find
from attnfaith.subjects import SubjectError
from attnfaith.subjects.classifier import SelfAttention
from tests.measuring import run


LOW, HIGH, ATTENTION, TVD, BOUND, CERTAINTY, SUPPORT, TOP, TOP_LOW, CHANGE, DOUBLE, LAYER_TVD, LAYER_ROWS = find(
    "identifiability"
).columns
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
    made = run("identifiability", subject, batch)
    for row, length in enumerate((14, 3, 20)):
        own = shown(subject, batch, row)
        np.testing.assert_allclose(own.sum(), 1, atol=1e-6)
        assert (made[LOW][row] <= own + 1e-6).all() and (own <= made[HIGH][row] + 1e-6).all()
        assert made[LOW][row].shape == (length,) and made[LAYER_TVD][row].shape == (2,)
        assert made[CHANGE][row] < 1e-5 and made[DOUBLE][row] < 1e-11
        other = made[ATTENTION][row]
        assert (other >= made[LOW][row] - 1e-6).all() and (other <= made[HIGH][row] + 1e-6).all()
        assert other.sum() == pytest.approx(1, abs=1e-6)
        assert np.abs(other - own).sum() / 2 == pytest.approx(made[TVD][row], abs=1e-5)
        assert made[TVD][row] <= made[BOUND][row]
    assert made[TVD][1] == pytest.approx(0, abs=1e-9)  # three tokens, five equations
    assert made[CERTAINTY][1] == "exact"
    assert made[TVD][2] > 0.2 and (made[LAYER_TVD][2] > 0.05).all()


def test_rows_that_matter():
    """Of a BERT all in the first layer, the first token's in the last; of a GPT, the last token's there."""
    subject = bert()
    batch = texts(subject, 9)
    assert run("identifiability", subject, batch)[LAYER_ROWS][0].tolist() == [3 * 11, 3]
    subject = gpt()
    assert run("identifiability", subject, texts(subject, 9))[LAYER_ROWS][0].tolist() == [3 * 11, 3]


def test_other_weights_of_the_same_size_change_the_logits():
    """The check of the change can fail: the same replacement with tokens in another order is noticed."""
    subject = bert()
    text = texts(subject, 16)
    heads = Heads(subject)
    others = {}
    heads.change = lambda of, batch, given: others.update(given=given) or 0.0
    heads.alternatives(text, 0.0, 1)
    assert Heads.change(heads.twin, text, others["given"]) < 1e-11
    turned = [weights[:, :, ::-1].copy() for weights in others["given"]]
    assert Heads.change(heads.twin, text, turned) > 1e-2


@pytest.mark.parametrize(
    ("make", "reduction"),
    [(bert, {"layers": 1, "head": 2}), (bert, "last"), (bert, "all"), (gpt, {"layers": 0, "head": 1}), (gpt, "last")],
)
def test_intervals_are_means_of_intervals_of_heads(make, reduction):
    """By a linear programme for each head, row, token and end; markers keep their weights."""
    subject = make(reduction)
    batch = texts(subject, 12)
    made = run("identifiability", subject, batch)
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
    np.testing.assert_allclose(made[LOW][0], bounds[0] / total, atol=1e-6)
    np.testing.assert_allclose(made[HIGH][0], bounds[1] / total, atol=1e-6)
    assert made[TVD][0] > 0.02


def test_a_causal_mask_holds():
    """No row of a decoder looks at tokens behind it, before or after."""
    subject = gpt()
    text = texts(subject, 15)
    heads, others = Heads(subject), {}
    heads.change = lambda of, batch, given: others.update(given=given) or 0.0
    heads.alternatives(text, 0.0, 1)
    for weights in others["given"]:
        assert np.abs(np.triu(weights, 1)).max() == 0
        np.testing.assert_allclose(weights.sum(2), 1, atol=1e-9)
    assert np.abs(others["given"][0] - heads.twin.read(text).maps[0].weights[0].detach().numpy()).max() > 0.05


def test_padding_on_the_left_is_refused():
    subject = bert()
    ids = torch.nn.functional.pad(texts(subject, 14)["input_ids"], (4, 0))
    with pytest.raises(SubjectError, match="padded on the left"):
        run("identifiability", subject, {"input_ids": ids, "attention_mask": (ids != 0).long()})


def test_within_epsilon():
    """More is open behind the attention shown; the logits change, by little."""
    subject = bert()
    batch = texts(subject, 12)
    exact, near = (run("identifiability", subject, batch, epsilon=epsilon) for epsilon in (0.0, 0.02))
    assert near[TVD][0] > exact[TVD][0] + 1e-3
    assert (near[HIGH][0] >= exact[HIGH][0] - 1e-6).all() and (near[LOW][0] <= exact[LOW][0] + 1e-6).all()
    assert 1e-4 < near[DOUBLE][0] < 1


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
    made = run("identifiability", subject, batch)
    for row in range(2):
        np.testing.assert_allclose(made[HIGH][row], exact[HIGH][row], atol=1e-4)
        assert made[CHANGE][row] < 1e-5 and np.isnan(made[DOUBLE][row]) and made[TVD][row] > 0.01


@pytest.mark.parametrize("reduction", ["rollout", "flow"])
def test_a_reduction_that_is_no_mean_is_refused(reduction):
    subject = bert(reduction)
    with pytest.raises(
        SubjectError, match=f"'identifiability' needs 'weighted sums'.*what {reduction} gives weighs no vectors"
    ):
        run("identifiability", subject, texts(subject, 3))
