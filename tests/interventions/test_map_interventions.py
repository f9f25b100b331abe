"""Interventions on attention maps: against the model read without the hook's help, by hand, and whatever the batch."""

import functools

import numpy as np
import pytest
import torch

from attnfaith.interventions.erasure import Erased
from attnfaith.interventions.permutation import Permuted, read_permuted
from attnfaith.interventions.targets import Maps, Scaled
from attnfaith.measurement.registry import find
from attnfaith.subjects import Edit, SelfAttention
from tests.measuring import run
from tests.small_classifiers import batch_of
from tests.small_classifiers import classifier as small_classifier


KINDS = ("bert", "gpt2", "bart")


@functools.cache
def classifier(kind, **fields):
    return SelfAttention(small_classifier(kind, **fields))


def prediction(subject, batch, edit=None):
    with torch.no_grad():
        return subject.read(batch, edit).logits


@pytest.mark.parametrize(("layers", "matter"), [("last", True), ("all", False), ([0], False)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_that_changes_nothing_leaves_the_logits_to_the_bit(kind, layers, matter):
    subject = classifier(kind)
    batch = batch_of(subject, [5, 3, 1])
    target, owner = Maps(subject, batch, layers, matter), torch.arange(3)
    shape = 3, target.inside.shape[1]
    for edit in (
        target.edit(Permuted, owner, sources=torch.arange(shape[1]).expand(shape)),
        target.edit(Erased, owner, gone=torch.zeros(shape, dtype=torch.bool)),
        target.edit(Scaled, owner, factor=torch.ones(shape), added=torch.zeros(shape)),
    ):
        assert torch.equal(target.logits(owner, edit), prediction(subject, batch).double())


class Reset(Edit):
    """The rows of a layer's map made anew, one after the other, by a function of (row, weights)."""

    def __init__(self, number, make):
        self.number, self.make = number, make

    def weights(self, number, weights):
        if number != self.number:
            return weights
        changed = weights.clone()
        for text, head, row in np.ndindex(*weights.shape[:3]):
            changed[text, head, row] = torch.tensor(self.make(row, weights[text, head, row].tolist()))
        return changed


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_permuted_and_uniform_rows_by_hand(kind, layer):
    subject = classifier(kind)
    batch = batch_of(subject, [4])
    places = subject.attendable(batch)[0].nonzero().squeeze(1).tolist()
    order = [places[number] for number in (2, 0, 3, 1)]

    def visible(row, places):
        return [place for place in places if kind != "gpt2" or place <= row]

    def dealt(row, weights):
        changed = list(weights)
        for receiver, giver in zip(visible(row, places), visible(row, order), strict=True):
            changed[receiver] = weights[giver]
        return changed

    def shared(row, weights):
        in_view, changed = visible(row, places), list(weights)
        for place in in_view:
            changed[place] = sum(weights[number] for number in in_view) / len(in_view)
        return changed

    ((permuted,),) = read_permuted(Maps(subject, batch, [layer]), [np.array([[2, 0, 3, 1]])])
    uniform = run("map_uniform", subject, batch, layers=[layer])["map_uniform_probs"]
    own = prediction(subject, batch).softmax(-1).numpy()
    for probs, make in ((permuted, dealt), (uniform, shared)):
        expected = prediction(subject, batch, Reset(subject.sites.layers[layer], make)).double().softmax(-1)
        np.testing.assert_allclose(probs, expected, atol=1e-6, rtol=1e-6)
        assert np.abs(probs - own).max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_orders_and_flips(kind):
    """Each number of tokens is where the decision first changes, read anew one removal at a time."""
    subject, lengths = classifier(kind, **({"initializer_range": 0.6} if kind == "bert" else {})), [6, 4, 7, 8, 9, 5]
    batch = batch_of(subject, lengths, seed=3)
    batch["instance_id"] = [f"text {row}" for row in range(6)]
    columns = run("map_erasure", subject, batch, layers="all", draws=3)
    own, reduced = prediction(subject, batch).argmax(1).tolist(), subject.attention(batch).double().numpy()
    target, sizes = Maps(subject, batch, "all"), set()
    for row, places in enumerate(target.places):
        rankings = {name: columns[f"map_erasure_{name}"][row] for name in ("gradient", "attention_gradient")}
        for name, values in {"attention": reduced[row, places], **rankings}.items():
            order, size = np.argsort(-values, kind="stable"), np.nan
            for count in range(1, len(places) + 1):
                gone = torch.zeros(1, target.inside.shape[1], dtype=torch.bool)
                gone[0, places[order[:count]]] = True
                edit = target.edit(Erased, torch.tensor([row]), gone=gone)
                if int(target.logits(torch.tensor([row]), edit).argmax()) != own[row]:
                    size = count
                    break
            np.testing.assert_equal(columns[f"map_erasure_flip_size_{name}"][row], np.float32(size))
            mass = reduced[row, places[order[: int(size)]]].sum() if size == size else np.nan
            np.testing.assert_allclose(columns[f"map_erasure_flip_mass_{name}"][row], mass, atol=1e-6)
            assert columns[f"map_erasure_flip_empty_{name}"][row] == (size == len(places))
            sizes.add(size)
        assert all(sorted(order) == list(range(len(places))) for order in columns["map_erasure_order"][row].tolist())
    assert any(size < 4 for size in sizes), sizes


@pytest.mark.parametrize(("kind", "layers"), [("bert", "last"), ("gpt2", "all"), ("bart", [0])])
def test_gradients_are_slopes(kind, layers):
    """A number added to the columns of a token, or a factor of them, in double precision, against differences."""
    subject = classifier(kind)
    batch = batch_of(subject, [4])
    columns = run("map_erasure", subject, batch, layers=layers, draws=1)
    target = Maps(subject, batch, layers)
    subject.model.double()
    try:
        own, shape = prediction(subject, batch)[0].softmax(-1), (1, target.inside.shape[1])
        for token, place in enumerate(target.places[0]):
            for name, part in (("gradient", "added"), ("attention_gradient", "factor")):
                probs = []
                for step in (1e-5, -1e-5):
                    numbers = {"factor": torch.ones(shape).double(), "added": torch.zeros(shape).double()}
                    numbers[part][0, place] += step
                    edit = target.edit(Scaled, torch.arange(1), **numbers)
                    probs.append(prediction(subject, batch, edit)[0].softmax(-1)[own.argmax()])
                slope = float(probs[0] - probs[1]) / 2e-5
                assert columns[f"map_erasure_{name}"][0][token] == pytest.approx(slope, abs=1e-5, rel=1e-3)
    finally:
        subject.model.float()


@pytest.mark.parametrize(
    ("kind", "reduction"), [("bert", "rollout"), ("gpt2", "last"), ("bart", "all"), ("bart", {"layers": 0, "head": 1})]
)
def test_the_share_on_markers(kind, reduction):
    """1 less what the reduced row has on the text; nothing where a model has no markers."""
    subject = SelfAttention(small_classifier(kind), reduction=reduction)
    batch = batch_of(subject, [5, 3, 1])
    shares = np.array(run("marker_attention", subject, batch)["marker_attention"])
    maps = subject.read(batch, rows=True)
    weights = [maps.maps[layer].weights for layer in subject.reduction.chosen(2)]
    whole = subject.reduction(weights, maps.rows).detach().numpy()
    np.testing.assert_allclose(shares, (whole * ~subject.attendable(batch).numpy()).sum(1), atol=1e-6)
    assert (shares < 1e-6).all() if kind == "gpt2" else (shares > 0.01).all()


@pytest.mark.parametrize("name", ["map_permutation", "map_uniform", "map_erasure"])
def test_a_layer_that_does_not_exist_is_refused(name):
    with pytest.raises(ValueError, match=r"layers=\[0, 2\]: .*no layer 2"):
        find(name)(layers=[0, 2]).check(classifier("bert"), None)
