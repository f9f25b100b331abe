"""Occlusion against texts that are really changed, one token at a time, captum, and a linear model."""

import numpy as np
import pytest
import torch
from captum.attr import FeatureAblation

from attnfaith.importance.perturbation import LeaveOneOut, Occlusion
from attnfaith.models.encoders import ENCODERS
from tests.measuring import classifier_of, run
from tests.small_encoders import FEW_FIRST


TOKENS, STATES = Occlusion.columns
UNKNOWN = 1
LEVELS = ("none", "sentence", "word")


def value(logits, predicted, output):
    logits = logits.double()
    p = logits.softmax(-1)[..., predicted]
    return {"logit": logits[..., predicted], "probability": p, "log_odds": p.log() - torch.log1p(-p)}[output]


def brute_force(model, row, batch, by, output):
    """f - f with each item's embeddings replaced, or barred from attention, one pass each."""
    rest = {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}
    parts = model.items(batch["input_ids"], **rest)
    embedded = classifier_of(model).get_input_embeddings()(batch["input_ids"])
    filling = (
        classifier_of(model).get_input_embeddings()(torch.tensor(UNKNOWN))
        if by == "unknown"
        else torch.zeros(embedded.shape[-1])
    )

    def logits(points, blocked=None):
        encoded = model.encode(inputs_embeds=points, items=parts, **rest)
        mask = encoded.mask.clone()
        if blocked is not None:
            mask[0, mask[0].nonzero()[blocked]] = False
        attention = model.attend(encoded.hidden, mask, encoded.query)
        return model.decode(encoded.hidden, attention, encoded.query)[0]

    whole = logits(embedded)
    predicted, found = int(whole.argmax()), []
    numbers = parts[0][parts[0] >= 0].unique()
    for place, number in enumerate(numbers.tolist()):
        points = embedded if by == "mask" else torch.where((parts == number).unsqueeze(-1), filling, embedded)
        changed = logits(points, place if by == "mask" else None)
        found.append(float(value(whole, predicted, output) - value(changed, predicted, output)))
    return found


@pytest.mark.parametrize("by", ["zero", pytest.param("unknown", marks=pytest.mark.slow), "mask"])
@pytest.mark.parametrize("hierarchy", LEVELS)
@pytest.mark.parametrize(("query", "readout"), [("learned", "affine"), ("text", "tanh")])
@pytest.mark.parametrize("encoder", FEW_FIRST)
@torch.no_grad()
def test_brute_force(encoder, query, readout, hierarchy, by, tiny_model, tiny_rows, tiny_batch):
    fields = {"encoder": encoder, "query": query, "readout": readout, "hierarchy": hierarchy}
    model = tiny_model(**fields, projection="sparsemax" if encoder == "bilstm" else "softmax", num_labels=3)
    rows = tiny_rows([7, 1, 5, 5], pair=query == "text", hierarchy=hierarchy)
    output = "log_odds" if by == "unknown" else "logit"
    found = run(Occlusion, model, tiny_batch(rows), by=by, output=output)[TOKENS]
    for row, scores in zip(rows, found, strict=True):
        np.testing.assert_allclose(scores, brute_force(model, row, tiny_batch([row]), by, output), atol=1e-5, rtol=1e-4)
    assert max(np.abs(scores).max() for scores in found) > 0.01


@pytest.mark.parametrize("hierarchy", LEVELS)
@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "average"])
def test_deleting_is_leave_one_out_with_a_sign(encoder, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """With two classes its distance is |change of p|; texts that are really shorter are tested there."""
    model, batch = tiny_model(encoder=encoder, hierarchy=hierarchy), tiny_batch(tiny_rows([7, 4], hierarchy=hierarchy))
    made, distances = run(Occlusion, model, batch, output="probability"), run(LeaveOneOut, model, batch)
    columns = {TOKENS: "importance_leave_one_out", STATES: "importance_leave_one_out_hidden"}
    signs = set()
    for name, unsigned in columns.items():
        for found, expected in zip(made[name], distances[unsigned], strict=True):
            np.testing.assert_allclose(np.abs(found), expected, atol=1e-6)
            signs |= set(np.sign(found))
    assert {-1, 1} <= signs


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_deleting_is_the_fall_to_the_shorter_text(encoder, tiny_model, tiny_rows, tiny_batch):
    model, (row,) = tiny_model(encoder=encoder, num_labels=3), tiny_rows([6])
    (scores,) = run(Occlusion, model, tiny_batch([row]), target=2)[TOKENS]
    ids = row["input_ids"]
    shorter = [ids[:place] + ids[place + 1 :] for place in range(1, len(ids) - 1)]
    whole, without = (model(torch.tensor(texts)).logits[:, 2] for texts in ([ids], shorter))
    np.testing.assert_allclose(scores, whole - without, atol=1e-5)
    assert np.abs(scores).max() > 0.02


@pytest.mark.parametrize("encoder", ENCODERS)
def test_captum(encoder, tiny_model, tiny_rows, tiny_batch):
    """Feature ablation of whole tokens by zeros."""
    model = tiny_model(encoder=encoder, num_labels=3)
    for row in tiny_rows([6, 2]):
        batch = tiny_batch([row])
        with torch.no_grad():
            embedded = classifier_of(model).get_input_embeddings()(batch["input_ids"])
            predicted = int(model(inputs_embeds=embedded).logits.argmax())
            groups = torch.arange(embedded.shape[1])[None, :, None].expand_as(embedded)
            expected = FeatureAblation(lambda x: model(inputs_embeds=x).logits).attribute(
                embedded, target=predicted, feature_mask=groups, perturbations_per_eval=3
            )[0, 1:-1, 0]
        (found,) = run(Occlusion, model, batch, by="zero")[TOKENS]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_linear_model(tiny_model, tiny_rows, tiny_batch):
    """Uniform attention on embeddings: zeroed w . x / T; deleted, s / T - (s - w . x) / (T - 1) with s the sum of all."""
    model = tiny_model(encoder="embedding", projection="uniform")
    (row,) = rows = tiny_rows([5])
    evidence = model.get_input_embeddings()(torch.tensor(row["input_ids"][1:-1])) @ model.decoder_weights()[0][1]
    evidence = evidence.detach().double().numpy()
    zeroed, deleted = (run(Occlusion, model, tiny_batch(rows), target=1, by=by) for by in ("zero", "delete"))
    np.testing.assert_allclose(zeroed[TOKENS][0], evidence / 5, atol=1e-6)
    expected = evidence.sum() / 5 - (evidence.sum() - evidence) / 4
    for scores in (deleted[TOKENS][0], deleted[STATES][0], zeroed[STATES][0]):
        np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("hierarchy", LEVELS)
def test_what_is_there_already_takes_nothing(hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Exact zeros, so that rounding breaks no ties: an unknown word by the unknown word, zero vectors by zeros."""
    model = tiny_model(hierarchy=hierarchy)
    row, other = tiny_rows([[UNKNOWN] * 2, [20, 21]], hierarchy=hierarchy)
    row["input_ids"] = [2, UNKNOWN, UNKNOWN, 3]
    batch = tiny_batch([row, other])
    found = run(Occlusion, model, batch, by="unknown")[TOKENS]
    assert (found[0] == 0).all() and (found[1] != 0).all()
    with torch.no_grad():
        classifier_of(model).get_input_embeddings().weight[20:22] = 0
    found = run(Occlusion, model, batch, by="zero")[TOKENS]
    assert (found[0] != 0).all() and (found[1] == 0).all()


def test_states_without_weight_take_nothing(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(projection="sparsemax", scale=5.0), tiny_batch(tiny_rows([12]))
    attention = model(batch["input_ids"]).attention[0, 1:-1].detach().numpy()
    assert 0 < (attention == 0).sum() < 12
    (states,) = run(Occlusion, model, batch)[STATES]
    (masked,) = run(Occlusion, model, batch, by="mask")[TOKENS]
    assert (states[attention == 0] == 0).all() and (states[attention > 0] != 0).all()
    assert (masked[attention == 0] == 0).all() and (masked[attention > 0] != 0).all()


def test_ways_that_do_not_exist(tiny_model, tiny_rows, tiny_batch):
    message = "by='blur'"
    with pytest.raises(ValueError, match=message):
        Occlusion(by="blur")
    with pytest.raises(ValueError, match=message):
        run(Occlusion, tiny_model(), tiny_batch(tiny_rows([2])), by="blur")
