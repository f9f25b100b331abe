"""Thinned embeddings, against models that read the masked embeddings themselves."""

import math

import numpy as np
import pytest
import torch

from attnfaith.draws import generator
from tests.measuring import classifier_of, run


def measured(model, batch, scores=None, **options):
    batch = dict(batch) if scores is None else {**batch, "scores": scores}
    return {name.removeprefix("soft_erasure_"): v for name, v in run("soft_erasure", model, batch, **options).items()}


@torch.no_grad()
def probability(model, batch, row, factors, number):
    """The class's probability when the embeddings of a text's tokens are multiplied by factors (T,E)."""
    given = {name: value[row : row + 1] for name, value in batch.items() if name != "instance_id"}
    embedded = classifier_of(model).get_input_embeddings()(given.pop("input_ids"))
    embedded[0, 1 : 1 + len(factors)] *= torch.as_tensor(factors, dtype=embedded.dtype)
    encoded = model.encode(inputs_embeds=embedded, **given)
    return float(model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().softmax(-1)[0, number])


@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "average"])
@pytest.mark.parametrize(("projection", "readout"), [("softmax", "affine"), ("sparsemax", "tanh")])
@pytest.mark.parametrize("query", ["learned", "text"])
def test_elements_stay_by_the_scores(query, projection, readout, encoder, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, projection=projection, readout=readout, query=query, num_labels=3)
    batch = tiny_batch(tiny_rows([5, 8], pair=query == "text"))
    rng = np.random.default_rng(0)
    scores = {name: [rng.normal(size=5), rng.normal(size=8)] for name in ("one", "other")}
    found = measured(model, batch, scores, draws=3, seed=7)
    for row, length in enumerate((5, 8)):
        assert found["measures"][row] == ["one", "other"]
        ones = np.ones((length, 8))
        by_class = [probability(model, batch, row, ones, number) for number in range(3)]
        predicted = int(np.argmax(by_class))
        assert found["whole_prob"][row] == pytest.approx(max(by_class), abs=1e-6)
        assert found["empty_prob"][row] == pytest.approx(probability(model, batch, row, 0 * ones, predicted), abs=1e-6)
        draws = generator(7, batch["instance_id"][row], "soft_erasure").random((3, length, 8), np.float32)
        for number, values in enumerate(scores.values()):
            x = values[row]
            shares = ((x - x.min()) / (x.max() - x.min())).astype(np.float32)
            for draw in range(3):
                kept = draws[draw] < shares[:, None]
                for name, factors in (("kept", kept), ("removed", ~kept)):
                    expected = probability(model, batch, row, factors, predicted)
                    assert found[f"{name}_probs"][row][number, draw] == pytest.approx(expected, abs=1e-6)
    assert np.ptp(found["kept_probs"][1]) > 1e-3


@pytest.mark.parametrize("hierarchy", ["sentence", "word"])
def test_hierarchies(hierarchy, tiny_model, tiny_rows, tiny_batch):
    """What is erased of a sentence is erased of its words, and no mark between sentences is touched."""
    model = tiny_model(hierarchy=hierarchy)
    rows = tiny_rows([8], hierarchy=hierarchy)  # a b MARK c d MARK e f
    batch, count = tiny_batch(rows), len(rows[0]["tokens"])
    scores = np.zeros(count)
    scores[-1] = 1
    found = measured(model, batch, {"x": [scores]}, draws=2)
    given = {name: value for name, value in batch.items() if name != "instance_id"}
    ids = given.pop("input_ids")
    with torch.no_grad():
        embedded = classifier_of(model).get_input_embeddings()(ids)
        first_erased = {"sentence": [1, 2, 4, 5], "word": [1, 2, 4, 5, 7]}[hierarchy]
        embedded[0, first_erased] = 0
        encoded = model.encode(inputs_embeds=embedded, items=model.items(ids), **given)
        probs = model.decode(encoded.hidden, model.attend(*encoded), encoded.query).double().softmax(-1)[0]
        whole = model.encode(ids, **given)
        predicted = int(model.decode(whole.hidden, model.attend(*whole), whole.query)[0].argmax())
    np.testing.assert_allclose(found["kept_probs"][0], probs[predicted].item(), atol=1e-6)


def test_a_middle_score_keeps_its_share_of_elements(tiny_model, tiny_rows, tiny_batch, monkeypatch):
    """Counted over draws: a token of score 3 between 0 and 4 keeps three quarters of its elements."""
    seen, model = [], tiny_model()
    real = model.encode
    monkeypatch.setattr(
        model, "encode", lambda *args, **given: seen.append(given.get("inputs_embeds")) or real(*args, **given)
    )
    batch = tiny_batch(tiny_rows([[5, 6, 7]]))
    measured(model, batch, {"x": [np.array([0, 3.0, 4.0])]}, draws=500)
    kept = torch.cat([texts for texts in seen if texts is not None])[:500]
    shares = (kept[:, 1:4] != 0).double().mean((0, 2))
    np.testing.assert_allclose(shares, [0, 0.75, 1], atol=5 * math.sqrt(0.25 / 4000))
    assert (kept[:, [0, 4]] == kept[:1, [0, 4]]).all()  # the markers


def test_undefined(tiny_model, tiny_rows, tiny_batch):
    rows = tiny_rows([4, 0, 1])
    flat = [np.ones(4), np.zeros(0), np.ones(1)]
    scores = {
        "good": [np.arange(4.0), np.zeros(0), np.ones(1)],
        "flat": flat,
        "bad": [np.array([0, 1, np.nan, 2]), np.zeros(0), np.ones(1)],
    }
    found = measured(tiny_model(), tiny_batch(rows), scores, draws=2)
    for name in ("kept_probs", "removed_probs"):
        np.testing.assert_array_equal(np.isnan(found[name][0]), [[False] * 2, [True] * 2, [True] * 2])
        assert np.isnan(found[name][1]).all() and np.isnan(found[name][2]).all()
    assert np.isfinite(found["empty_prob"]).all() and np.isfinite(found["whole_prob"]).all()
    assert found["empty_prob"][1] == pytest.approx(found["whole_prob"][1], abs=1e-7)
