"""Interventions on attention maps: against the model read without the hook's help, by hand, and whatever the batch."""

import numpy as np
import pytest
import torch

from attnfaith.interventions.erasure import Erased, Scaled
from attnfaith.interventions.permutation import Permuted, read_permuted
from attnfaith.interventions.targets import Maps
from attnfaith.measurement.registry import find
from attnfaith.subjects import Edit
from tests.loud_classifiers import batch_of, classifier
from tests.measuring import run


KINDS = ("bert", "gpt2", "bart")
EXPERIMENTS = {
    "map_permutation": {"draws": 4},
    "map_uniform": {},
    "map_erasure": {"draws": 2},
}
LAYERS = ("last", "all", [0])


def prediction(subject, batch, edit=None):
    with torch.no_grad():
        return subject.read(batch, edit).logits


def owners(batch, copies=1):
    return torch.arange(len(batch["input_ids"])).repeat_interleave(copies)


def edits(target, owner):
    """Every edit, as it changes nothing."""
    shape = len(owner), target.inside.shape[1]
    yield target.edit(Permuted, owner, sources=torch.arange(shape[1]).expand(shape))
    yield target.edit(Erased, owner, gone=torch.zeros(shape, dtype=torch.bool))
    yield target.edit(Scaled, owner, factor=torch.ones(shape), added=torch.zeros(shape))


@pytest.mark.parametrize("rows", ["all", "matter"])
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_that_changes_nothing_leaves_the_logits_to_the_bit(kind, layers, rows):
    subject = classifier(kind)
    batch = batch_of(subject, [5, 3, 1])
    target, owner = Maps(subject, batch, layers, rows), owners(batch)
    own = prediction(subject, batch).double()
    for edit in edits(target, owner):
        assert torch.equal(target.logits(owner, edit), own)


class Reset(Edit):
    """The maps of a layer made anew, one number after the other, by a function of (text, head, row, weights)."""

    def __init__(self, number, make):
        self.number, self.make = number, make

    def weights(self, number, weights):
        if number != self.number:
            return weights
        other = weights.clone()
        for text, head, row in np.ndindex(*weights.shape[:3]):
            other[text, head, row] = torch.tensor(self.make(text, row, weights[text, head, row].tolist()))
        return other


def visible(kind, row, places):
    """Of the places those that a row may look at."""
    return [place for place in places if kind != "gpt2" or place <= row]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_permutation_by_hand(kind, layer):
    subject = classifier(kind)
    batch = batch_of(subject, [4])
    places = subject.attendable(batch)[0].nonzero().squeeze(1).tolist()
    order = [places[one] for one in (2, 0, 3, 1)]

    def dealt(text, row, weights):
        seen, sources = visible(kind, row, places), [one for one in order if one in visible(kind, row, places)]
        other = list(weights)
        for target, source in zip(seen, sources, strict=True):
            other[target] = weights[source]
        return other

    expected = prediction(subject, batch, Reset(subject.sites.layers[layer], dealt)).double().softmax(-1)
    ((probs,),) = read_permuted(Maps(subject, batch, [layer]), [np.array([order])])
    np.testing.assert_allclose(probs, expected, atol=1e-6, rtol=1e-6)
    assert np.abs(probs - prediction(subject, batch).softmax(-1).numpy()).max() > 1e-4


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_uniform_rows_by_hand(kind, layer):
    subject = classifier(kind)
    batch = batch_of(subject, [4])
    places = subject.attendable(batch)[0].nonzero().squeeze(1).tolist()

    def alike(text, row, weights):
        seen, other = visible(kind, row, places), list(weights)
        for place in seen:
            other[place] = sum(weights[one] for one in seen) / len(seen)
        return other

    expected = prediction(subject, batch, Reset(subject.sites.layers[layer], alike)).softmax(-1)
    probs = run("map_uniform", subject, batch, layers=[layer])["map_uniform_probs"]
    np.testing.assert_allclose(probs[0], expected[0], atol=1e-6)
    assert np.abs(probs[0] - prediction(subject, batch).softmax(-1)[0].numpy()).max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_of_the_last_layer_other_rows_do_not_matter(kind):
    subject = classifier(kind)
    batch = batch_of(subject, [6, 4])
    for name, options in EXPERIMENTS.items():
        every, some = (run(name, subject, batch, layers="last", rows=rows, **options) for rows in ("all", "matter"))
        for column in every:
            for one, other in zip(every[column], some[column], strict=True):
                np.testing.assert_allclose(one, other, atol=2e-6)


def named(batch):
    batch["instance_id"] = [f"text {row}" for row in range(len(batch["input_ids"]))]
    return batch


@pytest.mark.parametrize("kind", KINDS)
def test_orders_and_flips(kind):
    """Each number of tokens is where the decision first changes, read anew one removal at a time."""
    subject = classifier(kind, scale=30.0 if kind == "bert" else 12.0)
    batch = named(batch_of(subject, [6, 4, 7, 8, 9, 5], seed=3))
    columns = run("map_erasure", subject, batch, layers="all", draws=3)
    own, shown = prediction(subject, batch).argmax(1).tolist(), subject.attention(batch).double().numpy()
    target = Maps(subject, batch, "all")
    sizes = set()
    for row in range(6):
        places = target.places[row]
        rankings = {
            "attention": shown[row, places],
            "gradient": columns["map_erasure_gradient"][row],
            "attention_gradient": columns["map_erasure_attention_gradient"][row],
        }
        orders = {name: np.argsort(-values, kind="stable") for name, values in rankings.items()}
        for name, order in orders.items():
            size = np.nan
            for count in range(1, len(places) + 1):
                gone = torch.zeros(1, target.inside.shape[1], dtype=torch.bool)
                gone[0, places[order[:count]]] = True
                edit = target.edit(Erased, torch.tensor([row]), gone=gone)
                if int(target.logits(torch.tensor([row]), edit).argmax()) != own[row]:
                    size = count
                    break
            np.testing.assert_equal(columns[f"map_erasure_flip_size_{name}"][row], np.float32(size))
            mass = shown[row, places[order[: int(size)]]].sum() if size == size else np.nan
            np.testing.assert_allclose(columns[f"map_erasure_flip_mass_{name}"][row], mass, atol=1e-6)
            assert columns[f"map_erasure_flip_empty_{name}"][row] == (size == len(places))
            sizes.add(size)
        assert all(sorted(order) == list(range(len(places))) for order in columns["map_erasure_order"][row].tolist())
    assert any(size < 4 for size in sizes), sizes


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_slopes(kind, layers):
    """A number added to the columns of a token, or a factor of them, in double precision, against differences."""
    subject = classifier(kind)
    batch = batch_of(subject, [4])
    columns = run("map_erasure", subject, batch, layers=layers, draws=1)
    target = Maps(subject, batch, layers)
    subject.model.double()
    try:
        own = prediction(subject, batch)[0].softmax(-1)
        for token, place in enumerate(target.places[0]):
            for name, part in (("gradient", "added"), ("attention_gradient", "factor")):
                differences = []
                for step in (1e-5, -1e-5):
                    shape = (1, target.inside.shape[1])
                    numbers = {"factor": torch.ones(shape).double(), "added": torch.zeros(shape).double()}
                    numbers[part][0, place] += step
                    edit = target.edit(Scaled, owners(batch), **numbers)
                    differences.append(prediction(subject, batch, edit)[0].softmax(-1)[own.argmax()])
                slope = float(differences[0] - differences[1]) / 2e-5
                assert columns[f"map_erasure_{name}"][0][token] == pytest.approx(slope, abs=1e-5, rel=1e-3)
    finally:
        subject.model.float()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_layer_that_there_is_not(name):
    with pytest.raises(ValueError, match=r"layers=\[0, 2\]: there is no layer 2; the model has 2, counted from 0"):
        find(name)(layers=[0, 2]).check(classifier("bert"), None)


SHOWN = [(kind, way) for kind in KINDS for way in ("last", "all", "rollout", {"layers": 0, "head": 1})]
SHOWN.remove(("bart", "rollout"))  # which is of a stack of layers over one text


@pytest.mark.parametrize(("kind", "reduction"), SHOWN)
def test_the_share_on_markers(kind, reduction):
    """1 less what the reduced row has on the text; nothing where a model has no markers."""
    subject = classifier(kind, reduction=reduction)
    batch = batch_of(subject, [5, 3, 1])
    shares = run("marker_attention", subject, batch)["marker_attention"]
    read = subject.read(batch, rows=True)
    chosen = subject.reduction.chosen(2)
    whole = subject.reduction([read.maps[layer].weights for layer in chosen], read.rows).detach().numpy()
    outside = ~subject.attendable(batch).numpy()
    np.testing.assert_allclose(shares, (whole * outside).sum(1), atol=1e-6)
    assert (np.array(shares) > 0.01).all() or kind == "gpt2"
    if kind == "gpt2":
        np.testing.assert_allclose(shares, 0, atol=1e-6)
