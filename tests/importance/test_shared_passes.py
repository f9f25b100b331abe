"""What measures of one batch share is computed once, is the same to the bit, and goes with the batch."""

import gc
import weakref

import numpy as np
import pytest
import torch

from attnfaith.importance.explained import Explain
from attnfaith.subjects import Batch, SelfAttention, subject_of
from attnfaith.subjects.protocol import SHARED
from tests.measuring import run
from tests.small_classifiers import classifier, texts


def measured(subject, batch, name, options):
    return run(name, subject, batch, **options)


def alike(one, other):
    assert one.keys() == other.keys()
    for name in one:
        for a, b in zip(one[name], other[name], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.fixture
def bert():
    return SelfAttention(classifier("bert"))


def fresh(subject):
    return Batch.of(texts(subject.model), subject)


class Readings:
    """How often a model is read."""

    def __init__(self, model):
        self.count = 0
        model.register_forward_pre_hook(self._read)

    def _read(self, module, given):
        self.count += 1


ALL = [
    *(("gradient", {}), ("gradient_norm", {}), ("gradient_x_input", {}), ("gradient_x_input", {"output": "log_odds"})),
    *(("attention_x_gradient", {}), ("chefer", {}), ("chefer", {"target": 0}), ("attention_x_gradient", {"target": 0})),
    *(("leave_one_out", {}), ("occlusion", {}), ("leave_one_out", {"by": "hide"}), ("occlusion", {"by": "hide"})),
    *(("occlusion", {"target": {"of": 1, "against": 0}}), ("decompx", {}), ("integrated_gradients", {"tolerance": 1e6})),
]


@pytest.mark.parametrize("order", [ALL, ALL[::-1]], ids=["onward", "backward"])
def test_values_are_those_that_each_measure_has_alone(bert, order):
    together = fresh(bert)
    for name, options in order:
        alike(measured(bert, together, name, options), measured(bert, fresh(bert), name, options))


@pytest.mark.parametrize("hierarchy", ["none", "sentence"])
def test_values_of_our_own_models_are_those_that_each_measure_has_alone(hierarchy, tiny_model, tiny_rows):
    subject = subject_of(tiny_model(hierarchy=hierarchy))
    rows = tiny_rows([6, 4, 5])
    together = subject.collate(rows)
    for name in ("gradient_norm", "gradient", "gradient_x_input", "occlusion", "leave_one_out", "attention_x_gradient"):
        alike(measured(subject, together, name, {}), measured(subject, subject.collate(rows), name, {}))


@pytest.mark.parametrize(
    ("pairs", "alone"),
    [
        # the text as it is, and the texts without a token, which fit in one reading
        ([("leave_one_out", {}), ("occlusion", {})], [2, 2]),
        ([("occlusion", {"by": "mask_token"}), ("leave_one_out", {"by": "mask_token"})], [2, 2]),
        # attention held fixed; and not
        ([("gradient_norm", {}), ("gradient", {})], [2, 1]),
        ([("gradient", {}), ("gradient_norm", {})], [1, 2]),
        # all layers serve for the one that is shown
        ([("chefer", {}), ("attention_x_gradient", {})], [1, 1]),
    ],
)
def test_readings_are_counted(bert, pairs, alone, monkeypatch):
    monkeypatch.setattr(SelfAttention, "mask_token_id", 4)
    counted, together = Readings(bert.model), fresh(bert)
    for (name, options), expected in zip(pairs, alone, strict=True):
        counted.count = 0
        measured(bert, fresh(bert), name, options)
        assert counted.count == expected
    counted.count = 0
    for name, options in pairs:
        measured(bert, together, name, options)
    assert counted.count == max(alone)


def test_another_way_another_class_and_another_batch_are_read_anew(bert):
    counted, batch = Readings(bert.model), fresh(bert)
    for given, expected in [({}, 2), ({"by": "hide"}, 1), ({"by": "hide"}, 0)]:
        counted.count = 0
        measured(bert, batch, "occlusion", given)
        assert counted.count == expected
    for given, expected in [({}, 1), ({}, 0), ({"target": 0}, 1), ({"output": "probability"}, 1)]:
        counted.count = 0
        measured(bert, batch, "chefer", given)
        assert counted.count == expected
    taken = batch.take(torch.tensor([1]))
    assert not set(SHARED) & set(taken) and set(SHARED) >= {"without", "logits", "map_products"} & set(batch)


def test_all_that_is_shared_goes_with_the_batch(bert):
    batch = fresh(bert)
    for name, options in ALL:
        measured(bert, batch, name, options)
    assert set(SHARED) <= set(batch)
    kept = [weakref.ref(value) for value in batch["without"].values()]
    kept += [weakref.ref(one) for slopes in batch["slopes"].values() for one in slopes.products]
    kept += [weakref.ref(layer) for parts in batch["map_products"].values() for layer in parts[0].positive.values()]
    assert len(kept) > 8
    gc.disable()  # nothing waits for the collector of cycles
    try:
        del batch
        assert not any(one() is not None for one in kept)
    finally:
        gc.enable()


def test_questions_are_equal_that_ask_the_same():
    first, second = {"label": [0, 1], "instance_id": ["a", "b"]}, {"label": [1, 0], "instance_id": ["a", "b"]}
    assert Explain(first) == Explain(second) != Explain(first, target=0) != Explain(first, target=0, output="probability")
    contrast = {"of": 1, "against": 0}
    assert Explain(first, contrast) == Explain(first, {"against": 0, "of": 1}) != Explain(first, {"of": 0, "against": 1})
    gold = Explain({**first, "answer_mask": None}, "gold")
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert gold(logits, torch.tensor([1, 0])).tolist() == [2.0, 3.0]
    answers = Explain({"answer_mask": torch.tensor([[True, True], [False, True]])}, "predicted", "log_odds")
    assert (
        torch.isnan(answers(logits[1:], torch.tensor([1]))).all() and answers(logits[:1], torch.tensor([0])).isfinite().all()
    )
