"""Interventions on cross-attention: against a model whose attention is changed from within, and closed forms."""

import functools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from transformers.models.marian import modeling_marian

from attnfaith.subjects import subject_of
from attnfaith.subjects.translator import word_sums
from attnfaith.support.draws import generator
from tests import tolerances
from tests.measuring import run_pairs
from tests.small_translators import INPUTS, PAIRS, batch, subject, tokenizer, translator


PAIR = PAIRS[0]
close = functools.partial(tolerances.close, dtype=torch.float32, depth=8)  # an encoder and a decoder of two layers


@pytest.fixture(autouse=True)
def mode():
    with torch.no_grad():
        yield


@pytest.fixture
def changed(monkeypatch):
    """Probability and distance (G,) of each target word of a Marian whose cross-attention is changed in its own code."""

    def measure(pair, change, layers=(0, 1)):
        model, eager = subject("marian").model, modeling_marian.eager_attention_forward

        def edited(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
            output, weights = eager(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
            crosses = [layer.encoder_attn for layer in model.model.decoder.layers]
            if module in crosses and crosses.index(module) in layers:
                output = (change(weights) @ value).transpose(1, 2)
            return output, weights

        with monkeypatch.context() as patch, subject("marian").evaluating():
            patch.setattr(modeling_marian, "eager_attention_forward", edited)
            after = model(**{name: pair[name] for name in INPUTS}).logits[0].softmax(1)
        own, probs, distances = subject("marian").logits(pair)[0].softmax(1), [], []
        words = pair["target_words"][0].tolist()
        for word in range(max(words) + 1):
            rows = [row for row, number in enumerate(words) if number == word]
            probs.append(np.prod([float(after[row, pair["labels"][0, row]]) for row in rows]))
            distances.append(np.mean([float((after[row] - own[row]).abs().sum() / 2) for row in rows]))
        return np.array(probs), np.array(distances)

    return measure


def test_uniform_weights_in_all_layers_and_in_each(changed):
    pair = batch("marian", [PAIR])
    inside = pair["source_words"][0] >= 0

    def uniform(weights):
        shared = weights.clone()
        shared[..., inside] = weights[..., inside].sum(-1, keepdim=True) / inside.sum()
        return shared

    columns = {
        name.removeprefix("cross_uniform_"): c[0] for name, c in run_pairs("cross_uniform", subject("marian"), pair).items()
    }
    for layers in ((0, 1), (0,), (1,)):
        names = ("probs", "tvd") if len(layers) == 2 else ("layer_probs", "layer_tvd")
        for name, expected in zip(names, changed(pair, uniform, layers), strict=True):
            close(columns[name] if len(layers) == 2 else columns[name][layers[0]], expected, of_size=1)


def test_permuted_weights(changed):
    pair = batch("marian", [PAIR])
    columns = run_pairs("cross_permutation", subject("marian"), pair, seed=3, draws=4)
    places = np.flatnonzero((pair["source_words"][0] >= 0).numpy())
    orders = generator(3, "0", "cross_permutation").permuted(np.broadcast_to(places, (4, len(places))), axis=1)
    assert len({tuple(order) for order in orders}) > 1
    for draw, order in enumerate(orders):
        sources = np.arange(pair["input_ids"].shape[1])
        sources[places] = order
        expected = changed(pair, lambda weights, sources=sources: weights[..., sources])
        for name, values in zip(("cross_permuted_probs", "cross_permuted_tvd"), expected, strict=True):
            close(columns[name][0][draw], values, of_size=1)


def test_knock_out_of_one_word_for_one_target_word_at_a_time(changed):
    pair = batch("marian", [PAIR])
    columns = run_pairs("knock_out", subject("marian"), pair)
    weights = subject("marian").attention(pair)[0].mean((0, 1))
    source, target = pair["source_words"][0], pair["target_words"][0]
    for word in range(6):
        rows = target == word
        masses = [float(weights[rows][:, source == number].sum()) for number in range(7)]
        best, random = int(np.argmax(masses)), int(columns["knock_out_other"][0][word])
        assert columns["knock_out_best"][0][word] == best != random
        for chosen, ending in ((best, ""), (random, "other_")):
            gone = rows[:, None] & (source == chosen)

            def change(weights, gone=gone):
                left = weights * ~gone
                return left / left.sum(-1, keepdim=True)

            probs, distances = changed(pair, change)
            close(columns[f"knock_out_{ending}probs"][0][word], probs[word])
            close(columns[f"knock_out_{ending}tvd"][0][word], distances[word], of_size=1)
            words = PAIR[0].split()
            shorter = subject("marian").encode([(" ".join(words[:chosen] + words[chosen + 1 :]), PAIR[1])])
            left = float(word_sums(shorter, subject("marian").log_probs(shorter))[0, word].exp())
            close(columns[f"knock_out_{ending}removed_probs"][0][word], left)


def test_knock_out_of_the_only_word():
    """No other word can be drawn; the end marker holds the weight that is left."""
    columns = run_pairs("knock_out", subject("marian"), batch("marian", [("man", "ein man")]))
    words = columns["knock_out_best"][0], columns["knock_out_other"][0]
    assert [values.tolist() for values in words] == [[0, 0], [-1, -1]]
    for name in ("probs", "tvd", "removed_probs"):
        assert np.isfinite(columns[f"knock_out_{name}"][0]).all() and np.isnan(columns[f"knock_out_other_{name}"][0]).all()


def test_limits_by_another_solver():
    """Two numbers of a value, so that nine tokens leave much open."""
    narrow = subject_of(translator("marian", d_model=8), tokenizer())
    pair = narrow.encode([PAIR])
    columns = {
        name.removeprefix("cross_identifiability_"): column[0]
        for name, column in run_pairs("cross_identifiability", narrow, pair).items()
    }
    low, high = columns["low"], columns["high"]
    source, target = pair["source_words"][0].numpy(), pair["target_words"][0].numpy()
    own, inside = narrow.attention(pair)[0].numpy(), source >= 0
    layers = narrow.head_values(pair)
    for layer, head, word, column in ((0, 0, 0, 5), (1, 2, 0, 6), (1, 3, 3, 0)):
        weights, values = (array[head].double().numpy() for array in layers[layer])
        costs, equal = (source[inside] == column).astype(float), np.vstack([values[inside].T, np.ones(inside.sum())])
        for later in (0, 1):
            limits, rows = np.zeros(2), [row + later for row in np.flatnonzero(target == word)]
            for row in rows:
                for place, sign in enumerate((1, -1)):
                    solved = linprog(sign * costs, A_eq=equal, b_eq=equal @ weights[row, inside], bounds=(0, None))
                    limits[place] += sign * solved.fun / len(rows)
            close([low[layer, head, later, word, column], high[layer, head, later, word, column]], limits)
            mean = np.mean([own[layer, head, row, source == column].sum() for row in rows])
            assert limits[0] - 1e-6 <= mean <= limits[1] + 1e-6
    assert (high - low).max() > 0.1 and low[1, 2, 0, 0, 6] > 1e-3, "some word cannot be without weight"
