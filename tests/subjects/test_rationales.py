"""Classifiers that read a selection, as subjects: attention is what is selected, and another selection can be read."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from attnfaith import record
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError
from attnfaith.subjects import Rationales, subject_of
from tests.small_rationales import KINDS, rationale_model


LENGTHS = (9, 4, 1, 0, 7)
CELL = record.Identity(dataset="tiny", texts="0" * 12, split="test", seed=3)


@pytest.fixture(params=KINDS)
def opened(request, tiny_rows):
    """A subject and a batch of it."""
    subject = subject_of(rationale_model(request.param, num_labels=3))
    return subject, subject.collate(tiny_rows(LENGTHS))


def test_its_attention_is_its_selection(opened):
    subject, batch = opened
    inside, outputs = subject.attendable(batch), subject.model(batch["input_ids"], batch["attention_mask"])
    assert isinstance(subject, Rationales) and inside.sum(1).tolist() == list(LENGTHS)
    selection, selected, attention = subject.selection(batch), subject.selected(batch), subject.attention(batch)
    assert torch.equal(selection, outputs.selection.double()) and torch.equal(selected, outputs.gates.bool())
    assert bool(((selection >= 0) & (selection <= 1)).all()) and not (selected & ~inside).any()
    for row in range(len(LENGTHS)):
        if selection[row].any():
            torch.testing.assert_close(attention[row].double(), selection[row] / selection[row].sum())
    torch.testing.assert_close(subject.predict(batch), outputs.logits)


def test_other_selections_are_read(opened):
    """Its own gives its prediction, none of the tokens the bias, and its complement something else."""
    subject, batch = opened
    selected, inside, whole = subject.selected(batch), subject.attendable(batch), subject.predict(batch)
    several = torch.stack([selected, inside & ~selected, torch.zeros_like(inside), inside], 1)
    logits = subject.read_selected(batch, several)
    torch.testing.assert_close(logits[:, 0], whole, atol=1e-6, rtol=1e-5)
    for number in range(4):
        torch.testing.assert_close(logits[:, number], subject.read_selected(batch, several[:, number]), atol=1e-6, rtol=1e-5)
    assert (logits[:3, 1] - whole[:3]).abs().amax() > 1e-4
    assert subject.read_selected(batch, several[:, :0]).shape == (5, 0, 3)


def test_under_another_attention_as_many_tokens_are_read(opened):
    """Those of most weight; the slope in attention is that of the gates that are read."""
    subject, batch = opened
    inside, selected = subject.attendable(batch), subject.selected(batch)
    count = selected.sum(1)
    torch.manual_seed(0)
    weights = torch.rand(inside.shape) * inside
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-9)
    chosen = torch.zeros_like(inside)
    for row, number in enumerate(count.tolist()):
        chosen[row, weights[row].topk(number).indices] = True
    for attention, gates in ((weights, chosen), (torch.zeros_like(weights), torch.zeros_like(inside))):
        expected = subject.read_selected(batch, gates)
        torch.testing.assert_close(subject.intervene(batch, attention), expected, atol=1e-6, rtol=1e-5)
    attention, gates = subject.attention(batch).clone().requires_grad_(), selected.float().requires_grad_()
    (slope,) = torch.autograd.grad(subject.intervene(batch, attention)[:, 0].sum(), attention)
    (gate_slope,) = torch.autograd.grad(subject.read_selected(batch, gates)[:, 0].sum(), gates)
    torch.testing.assert_close(slope, count.unsqueeze(1) * gate_slope)
    assert slope.abs().max() > 0


def test_nothing_selected_is_uniform_attention(tiny_rows):
    subject = subject_of(rationale_model("budget"))
    with torch.no_grad():
        subject.model.selector.score.bias.fill_(-100)
    batch = subject.collate(tiny_rows((4, 0)))
    attention, bias = subject.attention(batch), subject.model.decoder.context.bias.detach().expand(2, -1)
    assert not subject.selected(batch).any() and not subject.selection(batch).any() and not attention[1].any()
    torch.testing.assert_close(attention[0, 1:5], torch.full((4,), 0.25))
    torch.testing.assert_close(subject.predict(batch), bias)
    torch.testing.assert_close(subject.intervene(batch, attention), bias)


def test_in_a_record(tiny_rows):
    """Every value is that of the subject; the identity names the selection."""
    model, rows = rationale_model("budget", num_labels=2), tiny_rows(LENGTHS)
    table = measure(model, Dataset.from_list(rows), CELL, ["gradient", "permutation"], None, progress=False)
    subject = subject_of(model)
    batch = subject.collate(rows)
    for name in ("selection", "selected"):
        expected = record.ragged(getattr(subject, name)(batch), subject.attendable(batch))
        for values, numbers in zip(record.rows(table, name), expected, strict=True):
            np.testing.assert_allclose(values, numbers, atol=1e-7)
    identity = subject.identity()
    names = ("model", "attention_kind", "selection_kind", "selection_budget")
    assert [identity[name] for name in names] == ["rationale_classifier", "selection", "budget", 0.4]


def test_refusals(tiny_rows):
    model, dataset = rationale_model(), Dataset.from_list(tiny_rows([3]))
    pairs = Dataset.from_list(tiny_rows([3], pair=True))
    for rows, names, message in ((dataset, ["lrp"], "'lrp' needs"), (pairs, [], "single texts")):
        with pytest.raises(MeasurementError, match=message):
            measure(model, rows, CELL, names, None, progress=False)
    with torch.no_grad():
        model.selector.score.bias.fill_(torch.nan)
    with pytest.raises(MeasurementError, match="selector.score.bias"):
        measure(model, dataset, CELL, [], None, progress=False)
