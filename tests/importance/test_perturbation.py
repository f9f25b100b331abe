"""Leave-one-out and occlusion against texts that are really changed and states that are really taken out, one at a time."""

import numpy as np
import pytest
import torch
from captum.attr import FeatureAblation

from attnfaith.importance import ablation
from attnfaith.importance.perturbation import LeaveOneOut, Occlusion
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES
from attnfaith.models.projections import PROJECTIONS
from attnfaith.subjects import subject_of
from tests.measuring import classifier_of, run
from tests.small_encoders import FEW_FIRST


TOKENS, HIDDEN, REPROJECTED = LeaveOneOut.columns
FALLS, FALLS_HIDDEN = Occlusion.columns
LEVELS = (*HIERARCHIES, "word")
MARK, UNKNOWN = 4, 1


def close(values, expected, atol=2e-6):
    torch.testing.assert_close(torch.as_tensor(values).double(), torch.as_tensor(expected).double(), atol=atol, rtol=0)


def inputs(batch):
    return {name: value for name, value in batch.items() if name != "instance_id"}


@torch.no_grad()
def probabilities(model, batch):
    return model(**inputs(batch)).logits.double().softmax(-1)[0]


def distance(one, other):
    return float((one - other).abs().sum() / 2)


def shorter(row, token, hierarchy):
    """The row of the same text without one token; without one sentence, whose words and mark go; without one word of a
    sentence, which goes with it where it is empty then.
    """
    place, stop = token + 1, token + 2
    if hierarchy == "sentence":
        place = 1 + 3 * token
        stop = min(place + 3, row["input_ids"].index(3))  # the end marker stays
    if hierarchy == "word":
        place = 1 + token + token // 2  # a mark after every second word
        stop, ids = place + 1, row["input_ids"]
        if ids[place - 1] in (2, MARK) and ids[place + 1] in (3, MARK):
            place -= ids[place - 1] == MARK
    left = {name: row[name][:place] + row[name][stop:] for name in ("input_ids", "token_type_ids") if name in row}
    return {**row, "tokens": row["tokens"][:token] + row["tokens"][token + 1 :], **left}


@pytest.mark.parametrize("hierarchy", LEVELS)
@pytest.mark.parametrize(("query", "projection", "score_scale"), [("learned", "softmax", None), ("text", "sparsemax", 1.0)])
@pytest.mark.parametrize("encoder", FEW_FIRST)
def test_deleting_each_token(encoder, query, projection, score_scale, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Leave-one-out is the distance of predictions, occlusion the fall of a logit."""
    factors = {"encoder": encoder, "query": query, "projection": projection, "score_scale": score_scale}
    model = tiny_model(**factors, num_hidden_layers=1, hierarchy=hierarchy)
    rows = tiny_rows([6, 1, 9, 9, 0, 3], pair=query == "text", hierarchy=hierarchy)
    distances = run(LeaveOneOut, model, tiny_batch(rows))[TOKENS]
    falls = run(Occlusion, model, tiny_batch(rows), target=1, output="probability")[FALLS]
    for row, values, changes in zip(rows, distances, falls, strict=True):
        whole = probabilities(classifier_of(model), tiny_batch([row]))
        assert len(values) == len(row["tokens"])
        for token, (value, change) in enumerate(zip(values, changes, strict=True)):
            left = probabilities(classifier_of(model), tiny_batch([shorter(row, token, hierarchy)]))
            close(value, distance(left, whole))
            close(change, whole[1] - left[1])
    assert max(value.max() for value in distances if len(value)) > 0.02


STATES = [  # projection, score_scale, query, readout, hierarchy
    *((projection, None, "learned", "affine", "none") for projection in PROJECTIONS),
    *((projection, 1.0, "text", "tanh", "none") for projection in ("softmax", "sparsemax", "entmax15")),
    *((projection, None, "learned", "affine", "word") for projection in ("softmax", "sparsemax")),
]


@pytest.mark.parametrize(("projection", "score_scale", "query", "readout", "hierarchy"), STATES)
@torch.no_grad()
def test_removing_each_state(projection, score_scale, query, readout, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Weights renormalised, which is projecting again for softmax and uniform attention below a single level."""
    factors = {"projection": projection, "score_scale": score_scale, "query": query, "readout": readout}
    model = tiny_model(**factors, hierarchy=hierarchy, sparsegen_lambda=0.4, entmax_alpha=1.25, num_labels=4)
    batch = tiny_batch(tiny_rows([6, 1, 9], pair=query == "text", hierarchy=hierarchy))
    columns = run(LeaveOneOut, model, batch)
    hidden, mask, query_states = model.encode(**inputs(batch))
    attention = model.attend(hidden, mask, query_states)
    whole = model.decode(hidden, attention, query_states).softmax(-1)
    for row in range(3):
        states, query_state = hidden[row : row + 1], None if query_states is None else query_states[row : row + 1]
        for token, place in enumerate(mask[row].nonzero().squeeze(1).tolist()):
            left = attention[row : row + 1].clone()
            left[0, place] = 0
            left = left / left.sum() if float(left.sum()) else left
            again = model.decode(states, left, query_state).softmax(-1)[0]
            close(columns[HIDDEN][row][token], distance(again, whole[row]))
            others = mask[row : row + 1].clone()
            others[0, place] = False
            again = model.decode(states, model.attend(states, others, query_state), query_state).softmax(-1)[0]
            close(columns[REPROJECTED][row][token], distance(again, whole[row]))
    difference = abs(np.concatenate(columns[HIDDEN]) - np.concatenate(columns[REPROJECTED])).max()
    alike = projection == "uniform" or (projection == "softmax" and score_scale is None)
    assert (difference < 1e-7) == (alike and hierarchy == "none")


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@torch.no_grad()
def test_one_token_holding_nearly_all_weight(readout, tiny_model):
    """1 - 1e-9 of the weight: subtracting the token from the total would leave noise."""
    model = tiny_model(readout=readout, scale=1.0, dtype=torch.float32)
    torch.manual_seed(1)
    hidden = torch.randn(1, 6, 8)
    weights = torch.tensor([[1e-10, 2e-10, 0, 1 - 1e-9, 3e-10, 4e-10]], dtype=torch.float64)
    weights[0, 3] = 1 - (weights.sum() - weights[0, 3])
    without = ablation.without_state(subject_of(model), hidden, weights.float()).double().softmax(-1)[0]
    precise = tiny_model(readout=readout, scale=1.0)
    for token in range(6):
        left = weights.clone()
        left[0, token] = 0
        expected = precise.decoder((left.unsqueeze(-1) * hidden.double()).sum(1) / left.sum()).softmax(-1)[0]
        close(without[token], expected, atol=1e-6)


def value(logits, predicted, output):
    p = logits.softmax(-1)[..., predicted]
    return {"logit": logits[..., predicted], "probability": p, "log_odds": p.log() - torch.log1p(-p)}[output]


@torch.no_grad()
def occluded(model, batch, by, output):
    """f - f with each item's embeddings replaced, or barred from attention, one pass each."""
    rest = {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}
    items, table = model.items(batch["input_ids"], **rest), classifier_of(model).get_input_embeddings()
    embedded = table(batch["input_ids"])
    filling = table(torch.tensor(UNKNOWN)) if by == "unknown" else torch.zeros(embedded.shape[-1])

    def logits(points, blocked=None):
        encoded = model.encode(inputs_embeds=points, items=items, **rest)
        mask = encoded.mask.clone()
        if blocked is not None:
            mask[0, mask[0].nonzero()[blocked]] = False
        return model.decode(encoded.hidden, model.attend(encoded.hidden, mask, encoded.query), encoded.query)[0]

    whole, falls = logits(embedded), []
    for place, number in enumerate(items[0][items[0] >= 0].unique().tolist()):
        points = embedded if by == "mask" else torch.where((items == number).unsqueeze(-1), filling, embedded)
        changed = logits(points, place if by == "mask" else None)
        predicted = int(whole.argmax())
        falls.append(float(value(whole, predicted, output) - value(changed, predicted, output)))
    return falls


@pytest.mark.parametrize(("by", "output"), [("zero", "logit"), ("unknown", "log_odds"), ("mask", "probability")])
@pytest.mark.parametrize("hierarchy", LEVELS)
@pytest.mark.parametrize(("encoder", "query", "readout"), [("bilstm", "text", "tanh"), ("transformer", "learned", "affine")])
def test_occlusion_by_brute_force(encoder, query, readout, hierarchy, by, output, tiny_model, tiny_rows, tiny_batch):
    fields = {"encoder": encoder, "query": query, "readout": readout, "hierarchy": hierarchy}
    model = tiny_model(**fields, projection="sparsemax" if encoder == "bilstm" else "softmax", num_labels=3)
    rows = tiny_rows([7, 1, 5, 5], pair=query == "text", hierarchy=hierarchy)
    columns = run(Occlusion, model, tiny_batch(rows), by=by, output=output)[FALLS]
    for row, falls in zip(rows, columns, strict=True):
        np.testing.assert_allclose(falls, occluded(model, tiny_batch([row]), by, output), atol=1e-5, rtol=1e-4)
    assert max(np.abs(falls).max() for falls in columns) > 1e-3


@pytest.mark.parametrize("encoder", ENCODERS)
def test_occlusion_by_zeros_is_captums_feature_ablation(encoder, tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(encoder=encoder, num_labels=3), tiny_batch(tiny_rows([6]))
    with torch.no_grad():
        embedded = model.get_input_embeddings()(batch["input_ids"])
        predicted = int(model(inputs_embeds=embedded).logits.argmax())
        groups = torch.arange(embedded.shape[1])[None, :, None].expand_as(embedded)
        ablation = FeatureAblation(lambda points: model(inputs_embeds=points).logits)
        expected = ablation.attribute(embedded, target=predicted, feature_mask=groups, perturbations_per_eval=3)
    (falls,) = run(Occlusion, model, batch, by="zero")[FALLS]
    np.testing.assert_allclose(falls, expected[0, 1:-1, 0], atol=1e-5)


def test_occlusion_of_a_linear_model(tiny_model, tiny_rows, tiny_batch):
    """Uniform attention on embeddings: zeroed w . x / T; deleted, s / T - (s - w . x) / (T - 1) with s the sum of all."""
    model, batch = tiny_model(encoder="embedding", projection="uniform"), tiny_batch(tiny_rows([5]))
    evidence = model.get_input_embeddings()(batch["input_ids"][0, 1:-1]) @ model.decoder_weights()[0][1]
    evidence = evidence.detach().numpy()
    zeroed, deleted = (run(Occlusion, model, batch, target=1, by=by) for by in ("zero", "delete"))
    np.testing.assert_allclose(zeroed[FALLS][0], evidence / 5, atol=1e-6)
    expected = evidence.sum() / 5 - (evidence.sum() - evidence) / 4
    for falls in (deleted[FALLS][0], deleted[FALLS_HIDDEN][0], zeroed[FALLS_HIDDEN][0]):
        np.testing.assert_allclose(falls, expected, atol=1e-6)


@pytest.mark.parametrize("hierarchy", LEVELS)
def test_what_is_there_already_takes_nothing(hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Exact zeros, so that rounding breaks no ties: an unknown word by the unknown word, zero vectors by zeros."""
    model = tiny_model(hierarchy=hierarchy)
    row, other = tiny_rows([[UNKNOWN] * 2, [20, 21]], hierarchy=hierarchy)
    row["input_ids"] = [2, UNKNOWN, UNKNOWN, 3]
    batch = tiny_batch([row, other])
    unknown = run(Occlusion, model, batch, by="unknown")[FALLS]
    assert (unknown[0] == 0).all() and (unknown[1] != 0).all()
    with torch.no_grad():
        classifier_of(model).get_input_embeddings().weight[20:22] = 0
    zeroed = run(Occlusion, model, batch, by="zero")[FALLS]
    assert (zeroed[0] != 0).all() and (zeroed[1] == 0).all()
