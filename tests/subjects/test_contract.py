"""What every kind of subject promises, see `attnfaith.subjects.Subject`: one contract over all kinds."""

import functools

import pytest
import torch

from attnfaith.subjects import Batch, SelfAttention, subject_of
from tests import tolerances
from tests.small_classifiers import classifier, texts, tokenizer
from tests.small_rationales import KINDS as RATIONALES
from tests.small_rationales import rationale_model
from tests.toy_subject import Toy


LENGTHS = (9, 4, 1, 0, 7)
HIERARCHIES = ("none", "sentence")
TRANSFORMERS = ("bert", "gpt2", "t5", "xlnet")

# the deepest: two layers of an encoder and of a decoder
close = functools.partial(tolerances.close, dtype=torch.float32, depth=8)


MODELS = (*HIERARCHIES, *RATIONALES, *TRANSFORMERS)


@pytest.fixture(params=[*MODELS, "toy"])
def cell(request, tiny_model, tiny_rows):
    """A subject and a batch of it."""
    kind = request.param
    if kind in TRANSFORMERS:
        subject = SelfAttention(classifier(kind), tokenizer(kind != "gpt2"))
        return subject, Batch.of(texts(subject.model, (9, 4, 6, 7)), subject)
    if kind in HIERARCHIES:
        subject, rows = subject_of(tiny_model(hierarchy=kind)), tiny_rows(LENGTHS, hierarchy=kind)
    else:
        subject = Toy() if kind == "toy" else subject_of(rationale_model(kind, num_labels=3))
        rows = tiny_rows(LENGTHS)
    return subject, subject.collate(rows)


def test_attention_is_a_distribution_whose_place_another_can_take(cell):
    """The model's own gives the prediction, and all weight on the first token another."""
    subject, batch = cell
    attention, inside, whole = subject.attention(batch), subject.attendable(batch), subject.predict(batch)
    assert attention.shape == inside.shape and not attention.requires_grad
    assert bool((attention >= 0).all()) and not attention[~inside].any()
    close(attention.sum(1), inside.any(1).to(attention))
    first = torch.zeros_like(attention)
    first[torch.arange(len(first)), inside.to(torch.int8).argmax(1)] = inside.any(1).to(first)
    if "intervention" not in subject.capabilities:
        return
    several = subject.intervene(batch, torch.stack([attention, first], 1))
    close(subject.intervene(batch, attention), whole)
    close(several[:, 0], whole)
    close(several[:, 1], subject.intervene(batch, first))
    assert float((several[:, 1] - several[:, 0]).detach().abs().max()) > 1e-5


def test_embeddings_of_the_ids_are_read_as_the_ids(cell):
    """Gradients reach them, also where attention is held fixed, and come from attended positions alone."""
    subject, batch = cell
    embedded, whole, slopes = subject.embed(batch).detach().requires_grad_(), subject.predict(batch), []
    for hold in (False, True):
        logits = subject.predict(batch, embedded, hold=hold)
        close(logits, whole)
        (slope,) = torch.autograd.grad(logits[:, 0].sum(), [embedded])
        assert slope.any() and not slope[batch["attention_mask"] == 0].any()
        slopes.append(slope)
    assert not torch.equal(*slopes) or "selection" in subject.capabilities  # whole tokens are selected: no slope passes


def test_a_text_is_the_same_alone_in_a_batch_and_in_any_order(cell):
    subject, batch = cell
    logits, attention, order = subject.predict(batch), subject.attention(batch), torch.tensor([2, 0, 3, 1])
    shuffled = batch.take(order)
    close(subject.predict(shuffled), logits[order])
    close(subject.attention(shuffled), attention[order])
    for row in range(len(logits)):
        alone = batch.alone(row)
        own = subject.attention(alone)[0]
        close(subject.predict(alone)[0], logits[row])
        close(own, attention[row, : len(own)])
    close(subject.predict(subject.keep(batch, batch["attention_mask"].bool())), logits)


@pytest.mark.parametrize("cell", MODELS, indirect=True)
def test_the_mode_of_a_model_is_back_after_an_error(cell):
    model = cell[0].model.train()
    with pytest.raises(KeyError), cell[0].evaluating():
        assert not model.training
        raise KeyError
    assert model.training
