"""The training loss against torch's own, and weights that balance."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from attnfaith.objectives import balancing_weights, classification_loss, reduce


def logits_and_labels(count, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, classes, generator=generator) * 5, torch.randint(classes, (count,), generator=generator)


@pytest.mark.parametrize("weight", [1.0, 0.91358, 7.0])
def test_two_classes_are_the_weighted_binary_loss(weight):
    """Jain & Wallace: one logit, BCE with positives weighted by N_neg / N_pos, summed over the batch."""
    logits, labels = logits_and_labels(40, 2)
    ours = reduce(classification_loss(logits, labels, torch.tensor([1.0, weight])), "sum")
    single = logits[:, 1] - logits[:, 0]
    theirs = binary_cross_entropy_with_logits(single, labels.float(), pos_weight=torch.tensor(weight), reduction="sum")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


def test_several_classes_and_no_weights():
    logits, labels = logits_and_labels(30, 4)
    losses = classification_loss(logits, labels)
    assert losses.shape == (30,)
    torch.testing.assert_close(losses, cross_entropy(logits, labels, reduction="none"))
    torch.testing.assert_close(reduce(losses, "mean"), cross_entropy(logits, labels))
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0])
    torch.testing.assert_close(classification_loss(logits, labels, weights), losses * weights[labels])


def test_half_precision_logits_are_summed_in_full():
    logits, labels = logits_and_labels(20, 2)
    rough = logits.bfloat16()
    losses = classification_loss(rough, labels, torch.tensor([1.0, 2.0]))
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, classification_loss(rough.float(), labels, torch.tensor([1.0, 2.0])))


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 20), size=st.integers(1, 20), classes=st.integers(2, 4), seed=st.integers(0, 1000))
def test_a_sum_does_not_depend_on_the_batches(count, size, classes, seed):
    logits, labels = logits_and_labels(count, classes, seed)
    weights = torch.rand(classes, generator=torch.Generator().manual_seed(seed)) + 0.5
    whole = reduce(classification_loss(logits, labels, weights), "sum")
    parts = [
        reduce(classification_loss(one, other, weights), "sum")
        for one, other in zip(logits.split(size), labels.split(size), strict=True)
    ]
    torch.testing.assert_close(sum(parts), whole, rtol=1e-5, atol=1e-5)


def test_gradient_of_the_weighted_loss():
    logits, labels = logits_and_labels(6, 3)
    logits = logits.double().requires_grad_()
    weights = torch.tensor([1.0, 2.0, 3.0])
    (found,) = torch.autograd.grad(reduce(classification_loss(logits, labels, weights), "sum"), logits)
    expected = (logits.softmax(-1) - torch.eye(3)[labels]) * weights[labels].unsqueeze(-1)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)


def test_balancing_weights():
    labels = torch.tensor([0] * 6 + [1] * 2 + [2] * 12)
    weights = balancing_weights(labels, 3)
    torch.testing.assert_close(weights, torch.tensor([1.0, 3.0, 0.5]))
    assert len({float(weights[c] * (labels == c).sum()) for c in range(3)}) == 1  # every class weighs the same
    assert balancing_weights(torch.tensor([0, 1] * 5), 2).tolist() == [1, 1]
    torch.testing.assert_close(  # Jain & Wallace's SST
        balancing_weights(torch.tensor([0] * 3034 + [1] * 3321), 2)[1], torch.tensor(0.913580, dtype=torch.float32)
    )


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([1, 1], 2, r"no training instance of class \[0\], counts \[0, 2\]"),
        ([0, 0, 2], 3, r"no training instance of class \[1\], counts \[2, 0, 1\]"),
        ([0, 1, 2], 2, r"cannot balance 2 classes"),
        ([], 2, r"no training instance of class \[0, 1\]"),
    ],
)
def test_balancing_needs_every_class(labels, classes, message):
    with pytest.raises(ValueError, match=message):
        balancing_weights(torch.tensor(labels, dtype=torch.int64), classes)


def test_unknown_reduction():
    with pytest.raises(ValueError, match="reduction='max' is not known; choose one of sum, mean"):
        reduce(torch.ones(2), "max")
