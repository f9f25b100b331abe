"""Interventions on cross-attention: against a model whose attention is changed from within, and closed forms."""

import functools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from transformers.models.marian import modeling_marian

from attnfaith.subjects import sequence_subject
from attnfaith.subjects.pairs import word_sums
from attnfaith.support.draws import generator
from tests import tolerances
from tests.measuring import run_pairs
from tests.small_translators import PAIRS, batch, subject, tokenizer, translator


PAIR = PAIRS[0]
GIVEN = ("input_ids", "attention_mask", "decoder_input_ids")


close = functools.partial(tolerances.close, dtype=torch.float32, depth=8)  # an encoder and a decoder of two layers


@pytest.fixture(autouse=True)
def mode():
    with torch.no_grad():
        yield


@pytest.fixture
def changed(monkeypatch):
    """What a Marian says of a pair under changed weights of its cross-attention, changed in its own code."""

    def says(pair, change, layers=(0, 1)):
        model, own = subject("marian").model, modeling_marian.eager_attention_forward

        def other(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
            output, weights = own(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
            crosses = [layer.encoder_attn for layer in model.model.decoder.layers]
            if module in crosses and crosses.index(module) in layers:
                output = (change(weights) @ value).transpose(1, 2)
            return output, weights

        with monkeypatch.context() as patch, subject("marian").evaluating():
            patch.setattr(modeling_marian, "eager_attention_forward", other)
            return model(**{name: pair[name] for name in GIVEN}).logits

    return says


def expected(pair, logits):
    """Probability and distance of each target word, by loops."""
    of, own = subject("marian"), subject("marian").logits(pair)[0].softmax(1)
    probs, distances = [], []
    after = logits[0].softmax(1)
    for word in range(of.encode([PAIR]).words[1][0]):
        rows = [row for row, number in enumerate(pair["target_words"][0].tolist()) if number == word]
        probs.append(np.prod([float(after[row, pair["labels"][0, row]]) for row in rows]))
        distances.append(np.mean([float((after[row] - own[row]).abs().sum() / 2) for row in rows]))
    return np.array(probs), np.array(distances)


def uniform(pair):
    inside = pair["source_words"][0] >= 0

    def change(weights):
        other = weights.clone()
        other[..., inside] = weights[..., inside].sum(-1, keepdim=True) / inside.sum()
        return other

    return change


# ---------------------------------------------------------------------------------------------- uniform, permuted


def test_uniform_weights_in_all_layers_and_in_each(changed):
    pair = batch("marian", [PAIR])
    columns = run_pairs("cross_uniform", subject("marian"), pair)
    for layers, names in (((0, 1), ("probs", "tvd")), ((0,), None), ((1,), None)):
        both = expected(pair, changed(pair, uniform(pair), layers))
        given = [columns[f"cross_uniform_{name}"][0] for name in names or ()]
        given = given or [columns[f"cross_uniform_layer_{name}"][0][layers[0]] for name in ("probs", "tvd")]
        for one, other in zip(given, both, strict=True):
            close(one, other, of_size=1)


@pytest.mark.parametrize("layers", ["all", [1]])
def test_permuted_weights(changed, layers):
    pair = batch("marian", [PAIR])
    columns = run_pairs("cross_permutation", subject("marian"), pair, seed=3, draws=4, layers=layers)
    places = np.flatnonzero((pair["source_words"][0] >= 0).numpy())
    orders = generator(3, "0", "cross_permutation").permuted(np.broadcast_to(places, (4, len(places))), axis=1)
    assert len({tuple(order) for order in orders}) > 1
    for draw, order in enumerate(orders):
        sources = np.arange(pair["input_ids"].shape[1])
        sources[places] = order
        logits = changed(pair, lambda weights, sources=sources: weights[..., sources], (0, 1) if layers == "all" else (1,))
        for one, other in zip(
            (columns["cross_permuted_probs"], columns["cross_permuted_tvd"]), expected(pair, logits), strict=True
        ):
            close(one[0][draw], other, of_size=1)


def test_a_uniform_model_loses_nothing_by_a_uniform_intervention():
    of = sequence_subject(translator("bahdanau", projection="uniform"), tokenizer())
    columns = run_pairs("cross_uniform", of, of.encode(PAIRS))
    assert max(values.max() for values in columns["cross_uniform_tvd"]) <= 1e-6


# ---------------------------------------------------------------------------------------------- knock-out


@pytest.mark.parametrize("layer", [None, 1])
def test_knock_out_of_one_word_for_one_target_word_at_a_time(changed, layer):
    pair = batch("marian", [PAIR])
    columns = run_pairs("knock_out", subject("marian"), pair, layer=layer)
    weights = subject("marian").attention(pair)[0].mean(1)
    weights = weights.mean(0) if layer is None else weights[layer]
    source, target = pair["source_words"][0], pair["target_words"][0]
    for word in range(6):
        rows = target == word
        masses = [float(weights[rows][:, source == number].sum()) for number in range(7)]
        best, other = int(np.argmax(masses)), int(columns["knock_out_other"][0][word])
        assert columns["knock_out_best"][0][word] == best != other
        for chosen, ending in ((best, ""), (other, "other_")):
            gone = rows[:, None] & (source == chosen)

            def change(weights, gone=gone):
                left = weights * ~gone
                return left / left.sum(-1, keepdim=True)

            probs, distances = expected(pair, changed(pair, change))
            close(columns[f"knock_out_{ending}probs"][0][word], probs[word])
            close(columns[f"knock_out_{ending}tvd"][0][word], distances[word], of_size=1)
            words = PAIR[0].split()
            shorter = subject("marian").encode([(" ".join(words[:chosen] + words[chosen + 1 :]), PAIR[1])])
            left = float(word_sums(shorter, subject("marian").log_probs(shorter))[0, word].exp())
            close(columns[f"knock_out_{ending}removed_probs"][0][word], left)


def test_knock_out_of_all_weight_is_undefined():
    of = sequence_subject(translator("luong", projection="sparsemax", alignment="general", embedding_std=9.0), tokenizer())
    pair = of.encode([PAIR])
    alone = (of.attention(pair)[0, 0, 0].max(1).values == 1)[:6]
    assert alone.any()  # a row with one weight of 1
    columns = run_pairs("knock_out", of, pair)
    rows = pair["target_words"][0]
    for word in range(6):
        whole = of.attention(pair)[0, 0, 0][rows == word][:, pair["source_words"][0] == columns["knock_out_best"][0][word]]
        assert np.isnan(columns["knock_out_probs"][0][word]) == bool((whole.sum(1) >= 1 - 1e-7).any())


# ---------------------------------------------------------------------------------------------- identifiability


@pytest.fixture(scope="module")
def narrow():
    """Two numbers of a value, so that nine tokens leave much open."""
    return sequence_subject(translator("marian", d_model=8), tokenizer())


def test_limits_by_another_solver_and_alternatives_change_nothing(narrow):
    pair = narrow.encode([PAIR])
    columns = run_pairs("cross_identifiability", narrow, pair)
    low, high = (columns[f"cross_identifiability_{name}"][0] for name in ("low", "high"))
    source, target = pair["source_words"][0].numpy(), pair["target_words"][0].numpy()
    own = narrow.attention(pair)[0].numpy()
    layers = narrow.in_double().head_values(pair)
    for layer, head, word, column in ((0, 0, 0, 5), (1, 2, 1, 5), (1, 3, 3, 0)):
        weights, values = (one[head].numpy() for one in layers[layer])
        for later in (0, 1):
            limits = np.zeros(2)
            rows = [row + later for row in np.flatnonzero(target == word)]
            for row in rows:
                inside = source >= 0
                equal = np.vstack([values[inside].T, np.ones(inside.sum())])
                costs = (source[inside] == column).astype(float)
                for place, sign in enumerate((1, -1)):
                    solved = linprog(sign * costs, A_eq=equal, b_eq=equal @ weights[row, inside], bounds=(0, None))
                    limits[place] += sign * solved.fun / len(rows)
            close([low[layer, head, later, word, column], high[layer, head, later, word, column]], limits)
            mean = np.mean([own[layer, head, row, source == column].sum() for row in rows])
            assert limits[0] - 1e-6 <= mean <= limits[1] + 1e-6
    assert (high - low).max() > 0.1 and columns["cross_identifiability_tvd"][0].max() > 0.1
    assert columns["cross_identifiability_change_double"][0] < 1e-9 and columns["cross_identifiability_change"][0] < 1e-3


def test_few_tokens_have_one_attention():
    """Four numbers of a value and three tokens."""
    of = subject("marian")
    columns = run_pairs("cross_identifiability", of, of.encode([("a man old", "ein man")]))
    attention = columns["cross_identifiability_low"][0], columns["cross_identifiability_high"][0]
    close(*attention)
    assert columns["cross_identifiability_tvd"][0].max() < 1e-9 and attention[0].max() > 0.1
