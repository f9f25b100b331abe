"""Leave-one-out and occlusion against texts that are really changed and states that are really taken out, one at a time."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnfaith.importance import lstm
from attnfaith.importance.perturbation import LeaveOneOut, Occlusion, without_state
from attnfaith.models import AttentionClassifierConfig
from attnfaith.models.alignments import ALIGNMENTS
from attnfaith.models.hierarchy import HIERARCHIES
from attnfaith.models.projections import PROJECTIONS, project
from attnfaith.subjects import subject_of
from tests import small_encoders
from tests.measuring import run
from tests.small_encoders import SIZE, build, close
from tests.stages import Text, embedded_of, inputs_of, logits_at, logits_of


TOKENS, HIDDEN, REPROJECTED = LeaveOneOut.columns
FALLS, FALLS_HIDDEN = Occlusion.columns


def distance(first, second):
    return np.abs(first - second).sum() / 2


def shorter(row, token, hierarchy):
    """The row of the same text without one token; without one sentence, whose words and mark go."""
    place, stop = token + 1, token + 2
    if hierarchy == "sentence":
        place = 1 + 3 * token
        stop = min(place + 3, row["input_ids"].index(3))  # the end marker stays
    left = {name: row[name][:place] + row[name][stop:] for name in ("input_ids", "token_type_ids") if name in row}
    return {**row, "tokens": row["tokens"][:token] + row["tokens"][token + 1 :], **left}


@pytest.mark.parametrize("hierarchy", HIERARCHIES)
@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "embedding"])
def test_deleting_each_token(encoder, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Leave-one-out is the distance of predictions, occlusion the fall of a probability."""
    for query, projection in (("learned", "softmax"), ("text", "sparsemax")):
        fields = {"encoder": encoder, "query": query, "projection": projection}
        model = tiny_model(**fields, num_hidden_layers=1, hierarchy=hierarchy)
        rows = tiny_rows([6, 1, 9, 9, 0, 3], pair=query == "text", hierarchy=hierarchy)
        distances = run(LeaveOneOut, model, tiny_batch(rows))[TOKENS]
        falls = run(Occlusion, model, tiny_batch(rows), target=1, output="probability")[FALLS]
        for number, row in enumerate(rows):
            texts = [row, *(shorter(row, token, hierarchy) for token in range(len(row["tokens"])))]
            whole, *left = (logits_of(model, tiny_batch([text])).softmax(-1)[0].numpy() for text in texts)
            np.testing.assert_allclose(distances[number], [distance(whole, part) for part in left], atol=2e-6)
            np.testing.assert_allclose(falls[number], [whole[1] - part[1] for part in left], atol=2e-6)
        assert max(values.max() for values in distances if len(values)) > 0.02


STATES = [  # projection, query, readout, hierarchy
    *((projection, "learned", "affine", "none") for projection in PROJECTIONS),
    *((projection, "text", "tanh", "none") for projection in ("softmax", "sparsemax")),
    ("sparsemax", "learned", "affine", "sentence"),
]


@pytest.mark.parametrize(("projection", "query", "readout", "hierarchy"), STATES)
def test_removing_each_state(projection, query, readout, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Weights renormalised, which is projecting again for softmax and uniform attention below a single level."""
    fields = {"projection": projection, "query": query, "readout": readout}
    model = tiny_model(**fields, hierarchy=hierarchy, sparsegen_lambda=0.4, entmax_alpha=1.25, num_labels=4)
    batch = tiny_batch(tiny_rows([6, 1, 9], pair=query == "text", hierarchy=hierarchy))
    columns = run(LeaveOneOut, model, batch)
    falls = run(Occlusion, model, batch, target=1, output="probability")[FALLS_HIDDEN]
    for row in range(3):
        text = Text(model, batch, row)
        whole = text.probs(text.attention)
        for name, left in ((HIDDEN, text.without), (REPROJECTED, text.reprojected)):
            distances = [distance(text.probs(left([token])), whole) for token in range(len(text))]
            np.testing.assert_allclose(columns[name][row], distances, atol=2e-6)
        changes = [whole[1] - text.probs(text.without([token]))[1] for token in range(len(text))]
        np.testing.assert_allclose(falls[row], changes, atol=2e-6)
    difference = abs(np.concatenate(columns[HIDDEN]) - np.concatenate(columns[REPROJECTED])).max()
    alike = projection in ("uniform", "softmax")
    assert (difference < 1e-7) == (alike and hierarchy == "none")


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@torch.no_grad()
def test_one_token_holding_nearly_all_weight(readout, tiny_model):
    """1 - 1e-9 of the weight: subtracting the token from the total would leave noise."""
    model = tiny_model(readout=readout, scale=1.0, dtype=torch.float32)
    torch.manual_seed(1)
    hidden = torch.randn(1, 6, 8)
    weights = torch.tensor([[1e-10, 2e-10, 0, 1 - 1e-9, 3e-10, 4e-10]], dtype=torch.float64)
    without = without_state(subject_of(model), hidden, weights.float()).double().softmax(-1)[0]
    precise = tiny_model(readout=readout, scale=1.0)
    for token in range(6):
        left = weights.clone()
        left[0, token] = 0
        probs = precise.decoder((left.unsqueeze(-1) * hidden.double()).sum(1) / left.sum()).softmax(-1)[0]
        close(without[token], probs, 1e-6)


@torch.no_grad()
def occluded(model, batch, by, output):
    """f - f with each item's embeddings replaced, or barred from attention, one pass each."""
    items, embedded = model.items(**inputs_of(batch)), embedded_of(model, batch)

    def value(logits):
        p = logits.softmax(-1)[predicted]
        return float({"logit": logits[predicted], "probability": p, "log_odds": p.log() - torch.log1p(-p)}[output])

    whole, text, falls = logits_at(model, batch, embedded, items=items)[0], Text(model, batch), []
    predicted = int(whole.argmax())
    for place, number in enumerate(items[0][items[0] >= 0].unique().tolist()):
        if by == "mask":
            changed = torch.from_numpy(text.logits(text.reprojected([place])))
        else:
            points = torch.where((items == number).unsqueeze(-1), 0.0, embedded)
            changed = logits_at(model, batch, points, items=items)[0]
        falls.append(value(whole) - value(changed))
    return falls


@pytest.mark.parametrize(("by", "output"), [("zero", "logit"), ("zero", "log_odds"), ("mask", "probability")])
@pytest.mark.parametrize("hierarchy", HIERARCHIES)
def test_occlusion_by_brute_force(hierarchy, by, output, tiny_model, tiny_rows, tiny_batch):
    for encoder, query, readout in (("bilstm", "text", "tanh"), ("transformer", "learned", "affine")):
        fields = {"encoder": encoder, "query": query, "readout": readout, "hierarchy": hierarchy}
        model = tiny_model(**fields, projection="sparsemax" if encoder == "bilstm" else "softmax", num_labels=3)
        rows = tiny_rows([7, 1, 5, 5], pair=query == "text", hierarchy=hierarchy)
        columns = run(Occlusion, model, tiny_batch(rows), by=by, output=output)[FALLS]
        for row, falls in zip(rows, columns, strict=True):
            np.testing.assert_allclose(falls, occluded(model, tiny_batch([row]), by, output), atol=1e-5, rtol=1e-4)
        assert max(np.abs(falls).max() for falls in columns) > 1e-3


def check_deletions(encoder, lengths, edge=(0, 0), alignment="additive", query="learned", classes=3):
    """Sums under attention of every shorter text against the text itself, read alone."""
    embedded, present = small_encoders.texts(lengths)
    mask = present.clone()
    for row, length in enumerate(lengths):
        mask[row, : edge[0]] = mask[row, length - edge[1] : length] = False
    config = AttentionClassifierConfig(hidden_size=SIZE, alignment=alignment, query=query)
    torch.manual_seed(2)
    module = ALIGNMENTS[alignment](config).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    random = torch.Generator().manual_seed(3)
    queries = torch.randn(len(lengths), SIZE, dtype=torch.float64, generator=random) if query == "text" else None
    values = None if classes is None else torch.randn(classes, SIZE, dtype=torch.float64, generator=random)
    with torch.no_grad():
        states, _ = encoder(embedded, present)
        sums = lstm.sums_without_each(
            SimpleNamespace(encoder=encoder, alignment=module, config=config),
            *(values, queries, SimpleNamespace(inputs=embedded, present=present), states, mask),
        )
        assert (sums[~mask] == 0).all()
        for row, place in mask.nonzero().tolist():
            stays = torch.arange(lengths[row]) != place
            alone, left = embedded[row, : lengths[row]][stays], mask[row, : lengths[row]][stays]
            if not left.any():
                close(sums[row, place], torch.zeros_like(sums[row, place]))
                continue
            again, _ = encoder(alone[None], torch.ones(1, len(alone), dtype=torch.bool))
            weights = project(module(again, None if queries is None else queries[[row]]), left[None], config)[0]
            close(sums[row, place], weights @ (again[0] if values is None else again[0] @ values.t()), 1e-9)


def test_a_subclass_reads_by_its_own_forward_pass(tiny_model, tiny_rows, tiny_batch):
    """The engine of its parent knows another encoder."""
    model, batch = tiny_model(), tiny_batch(tiny_rows([5, 3, 5]))
    own = run(LeaveOneOut, model, batch)[TOKENS]
    model.model.encoder.__class__ = type("Subclass", (type(model.model.encoder),), {})
    for values, expected in zip(run(LeaveOneOut, model, batch)[TOKENS], own, strict=True):
        np.testing.assert_allclose(values, expected, atol=2e-6)
    model.model.encoder.__class__.forward = lambda self, embedded, mask: type(self).__base__.forward(
        self, 2 * embedded, mask
    )
    assert np.abs(np.concatenate(run(LeaveOneOut, model, batch)[TOKENS]) - np.concatenate(own)).max() > 1e-3


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    edge=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    alignment=st.sampled_from(list(ALIGNMENTS)),
    query=st.sampled_from(["learned", "text"]),
    classes=st.sampled_from([None, 2]),
)
def test_an_lstm_on_texts_of_many_lengths(lengths, edge, alignment, query, classes):
    """Markers at either end are read and not deleted; values are of classes, or the states themselves."""
    check_deletions(build("bilstm"), [length + sum(edge) for length in lengths], edge, alignment, query, classes)


@pytest.mark.parametrize(("gate", "forgets"), [(-4.0, {True}), (-1.0, {False, True}), (40.0, {False})])
def test_deletions_that_an_lstm_forgets(gate, forgets, monkeypatch):
    """Once the forget gates let a deletion go, the rest is that of the whole text, also when shorter texts have ended."""
    encoder = build("bilstm")
    for layer in encoder.directions:
        layer.weight_hh_l0.data *= 0.05
        layer.bias_ih_l0.data[SIZE // 2 : SIZE] = gate
    inner, answers = lstm.forgotten, []
    monkeypatch.setattr(lstm, "forgotten", lambda *states: answers.append(inner(*states)) or answers[-1])
    check_deletions(encoder, (40, 25, 40), (1, 1))
    assert set(torch.cat(answers).tolist()) == forgets
