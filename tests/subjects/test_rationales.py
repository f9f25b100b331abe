"""Classifiers that read a selection, as subjects: attention is what is selected, and another selection can be read."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from attnfaith import record
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError
from attnfaith.subjects import Rationales, SubjectError, subject_of, whole_logits
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
    model, inside = subject.model, subject.attendable(batch)
    assert isinstance(subject, Rationales) and inside.sum(1).tolist() == list(LENGTHS)
    outputs = model(batch["input_ids"], batch["attention_mask"])
    selection, selected, attention = subject.selection(batch), subject.selected(batch), subject.attention(batch)
    assert selection.dtype == torch.float64 and selected.dtype == torch.bool
    assert torch.equal(selection, outputs.selection.double()) and torch.equal(selected, outputs.gates.bool())
    assert bool(((selection >= 0) & (selection <= 1)).all()) and not (selected & ~inside).any()
    for row in range(len(LENGTHS)):
        if selection[row].any():
            torch.testing.assert_close(attention[row].double(), selection[row] / selection[row].sum())
    torch.testing.assert_close(whole_logits(subject, batch), outputs.logits)


def test_other_selections_are_read(opened):
    """Its own gives its prediction, none of the tokens the bias, and its complement something else."""
    subject, batch = opened
    selected, inside = subject.selected(batch), subject.attendable(batch)
    whole = subject.predict(batch)
    torch.testing.assert_close(subject.read_selected(batch, selected), whole, atol=0, rtol=0)
    several = torch.stack([selected, inside & ~selected, torch.zeros_like(inside), inside], 1)
    logits = subject.read_selected(batch, several)
    assert logits.shape == (5, 4, 3)
    for number in range(4):
        torch.testing.assert_close(logits[:, number], subject.read_selected(batch, several[:, number]), atol=1e-6, rtol=1e-5)
    assert (logits[:3, 1] - whole[:3]).abs().amax() > 1e-4
    assert subject.read_selected(batch, several[:, :0]).shape == (5, 0, 3)


def test_under_another_attention_as_many_tokens_are_read(opened):
    subject, batch = opened
    inside, count = subject.attendable(batch), subject.selected(batch).sum(1)
    torch.manual_seed(0)
    weights = torch.rand(inside.shape) * inside
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-9)
    chosen = torch.zeros_like(inside)
    for row, (number, length) in enumerate(zip(count.tolist(), LENGTHS, strict=True)):
        if subject.config.contiguous and number:
            starts = range(1, 2 + length - number)
            start = max(starts, key=lambda start: float(weights[row, start : start + number].sum()))
            chosen[row, start : start + number] = True
        else:
            chosen[row, weights[row].topk(number).indices] = True
    torch.testing.assert_close(subject.intervene(batch, weights), subject.read_selected(batch, chosen), atol=1e-6, rtol=1e-5)
    none = subject.intervene(batch, torch.zeros_like(weights))
    torch.testing.assert_close(none, subject.read_selected(batch, torch.zeros_like(inside)), atol=1e-6, rtol=1e-5)


def test_the_slope_in_attention_is_that_of_what_is_read(opened):
    subject, batch = opened
    selected, count = subject.selected(batch), subject.selected(batch).sum(1, keepdim=True)
    attention = subject.attention(batch).clone().requires_grad_()
    gates = selected.float().requires_grad_()
    (slope,) = torch.autograd.grad(subject.intervene(batch, attention)[:, 0].sum(), attention)
    (gate_slope,) = torch.autograd.grad(subject.read_selected(batch, gates)[:, 0].sum(), gates)
    torch.testing.assert_close(slope, count * gate_slope)
    assert slope.abs().max() > 0


def test_embeddings_are_read(opened):
    """Held, the selection is that of the text; not held, the selector reads them too."""
    subject, batch = opened
    embedded = subject.embed(batch).detach().requires_grad_()
    (slope,) = torch.autograd.grad(subject.predict(batch, embedded).sum(), embedded)
    assert not slope[subject.attendable(batch) & ~subject.selected(batch)].any()
    others = torch.randn_like(embedded)
    held, free = (subject.predict(batch, others, hold=hold) for hold in (True, False))
    texts = subject.model.embed(attention_mask=batch["attention_mask"], inputs_embeds=others)
    torch.testing.assert_close(held, subject.model.read(texts, subject.selected(batch)))
    torch.testing.assert_close(free, subject.model.read(texts, subject.model.select(texts).selected))


def test_nothing_selected_is_uniform_attention(tiny_rows):
    subject = subject_of(rationale_model("budget"))
    with torch.no_grad():
        subject.model.selector.score.bias.fill_(-100)
    batch = subject.collate(tiny_rows((4, 0)))
    assert not subject.selected(batch).any() and not subject.selection(batch).any()
    torch.testing.assert_close(subject.attention(batch)[0, 1:5], torch.full((4,), 0.25))
    assert not subject.attention(batch)[1].any()
    bias = subject.model.decoder.context.bias.detach()
    torch.testing.assert_close(subject.predict(batch), bias.expand(2, -1))
    torch.testing.assert_close(subject.intervene(batch, subject.attention(batch)), bias.expand(2, -1))


def test_in_a_record(tiny_rows):
    """Every value is that of the subject; the identity names the selection."""
    model, rows = rationale_model("transition", num_labels=2), tiny_rows(LENGTHS)
    table = measure(model, Dataset.from_list(rows), CELL, ["gradient", "permutation"], None, progress=False)
    subject = subject_of(model)
    batch = subject.collate(rows)
    for name in ("selection", "selected"):
        expected = record.ragged(getattr(subject, name)(batch), subject.attendable(batch))
        for values, others in zip(record.rows(table, name), expected, strict=True):
            np.testing.assert_allclose(values, others, atol=1e-7)
    assert table.schema.field("selection").type.value_type == "double"
    identity = subject.identity()
    names = ("model", "attention_kind", "selection_kind", "selection_budget", "selection_transition", "selection_contiguous")
    assert [identity[name] for name in names] == ["rationale_classifier", "selection", "budget", 0.4, 0.3, True]


def test_what_it_cannot_is_refused(tiny_rows):
    model, dataset = rationale_model(), Dataset.from_list(tiny_rows([3]))
    with pytest.raises(SubjectError, match="level='word'"):
        subject_of(model, "word")
    with pytest.raises(MeasurementError, match="'lrp' needs"):
        measure(model, dataset, CELL, ["lrp"], None, progress=False)
    with pytest.raises(MeasurementError, match="single texts"):
        measure(model, Dataset.from_list(tiny_rows([3], pair=True)), CELL, [], None, progress=False)
    with torch.no_grad():
        model.selector.score.bias.fill_(torch.nan)
    with pytest.raises(MeasurementError, match="selector.score.bias"):
        measure(model, dataset, CELL, [], None, progress=False)
