"""What measures of one batch share is computed once, is the same to the bit, and goes with the batch."""

import gc
import weakref

import numpy as np
import pytest
import torch

from attnfaith.importance.targets import BatchTarget
from attnfaith.subjects import Batch, SelfAttention, subject_of
from tests.measuring import run
from tests.small_classifiers import classifier, texts


MEASURES = [
    *(("gradient", {}), ("gradient_norm", {}), ("gradient_x_input", {}), ("gradient_x_input", {"output": "log_odds"})),
    *(("attention_x_gradient", {}), ("occlusion", {}), ("leave_one_out", {})),
]
OF_STACKS = [
    *(("chefer", {}), ("chefer", {"target": 0}), ("attention_x_gradient", {"target": 0}), ("decompx", {})),
    *(("leave_one_out", {"by": "hide"}), ("occlusion", {"by": "hide"}), ("occlusion", {"target": {"of": 1, "against": 0}})),
    ("integrated_gradients", {"tolerance": 1e6}),
]


@pytest.fixture
def bert():
    return SelfAttention(classifier("bert"))


def fresh(subject):
    return Batch.of(texts(subject.model), subject)


@pytest.mark.parametrize("step", [1, -1], ids=["onward", "backward"])
@pytest.mark.parametrize("hierarchy", ["bert", "none", "sentence"])
def test_values_are_those_that_each_measure_has_alone(hierarchy, step, bert, tiny_model, tiny_rows):
    if hierarchy == "bert":
        subject, batches, measures = bert, lambda: fresh(bert), [*MEASURES, *OF_STACKS]
    else:
        subject, measures = subject_of(tiny_model(hierarchy=hierarchy)), MEASURES
        batches = lambda: subject.collate(tiny_rows([6, 4, 5]))  # noqa: E731
    together = batches()
    for name, options in measures[::step]:
        columns, alone = (run(name, subject, batch, **options) for batch in (together, batches()))
        assert columns.keys() == alone.keys()
        for column, values in columns.items():
            for value, expected in zip(values, alone[column], strict=True):
                np.testing.assert_array_equal(value, expected, err_msg=column)


def test_readings_are_counted(bert, monkeypatch):
    """Each measure alone, and then together: another way, class or batch is read anew."""
    monkeypatch.setattr(SelfAttention, "mask_token_id", 4)
    readings = []
    bert.model.register_forward_pre_hook(lambda *_: readings.append(1))

    def count(batch, name, **options):
        readings.clear()
        run(name, bert, batch, **options)
        return len(readings)

    for by in ({}, {"by": "mask_token"}):  # the text as it is, and the texts without a token, which fit in one reading
        batch = fresh(bert)
        assert [count(batch, name, **by) for name in ("leave_one_out", "occlusion")] == [2, 0]
        assert [count(fresh(bert), name, **by) for name in ("leave_one_out", "occlusion")] == [2, 2]
    batch = fresh(bert)  # attention held fixed, and not
    assert [count(batch, name) for name in ("gradient", "gradient_norm", "gradient_attention_held")] == [1, 1, 0]
    batch = fresh(bert)  # all layers serve for the one that is shown
    assert [count(batch, name) for name in ("chefer", "attention_x_gradient")] == [1, 0]
    assert [count(batch, "chefer", **options) for options in ({}, {"target": 0}, {"output": "probability"})] == [0, 1, 1]
    assert not batch.take(torch.tensor([1])).results


def test_all_that_is_shared_goes_with_the_batch(bert):
    batch = fresh(bert)
    for name, options in [*MEASURES, *OF_STACKS]:
        run(name, bert, batch, **options)
    results = {name: [value for key, value in batch.results.items() if key[0] == name] for name in ("without", "slopes")}
    shared = [weakref.ref(values) for values in results["without"]]
    shared += [weakref.ref(values) for slopes in results["slopes"] for values in slopes.products]
    products = batch.results["map_products"].values()
    shared += [weakref.ref(layer) for parts in products for layer in parts[0].positive.values()]
    del results, products
    assert len(shared) > 8
    gc.disable()  # nothing waits for the collector of cycles
    try:
        del batch
        assert not any(reference() is not None for reference in shared)
    finally:
        gc.enable()


def test_questions_are_equal_that_ask_the_same():
    first, second = {"label": [0, 1], "instance_id": ["a", "b"]}, {"label": [1, 0], "instance_id": ["a", "b"]}
    assert (
        BatchTarget(first)
        == BatchTarget(second)
        != BatchTarget(first, target=0)
        != BatchTarget(first, target=0, output="probability")
    )
    contrast = {"of": 1, "against": 0}
    assert (
        BatchTarget(first, contrast)
        == BatchTarget(first, {"against": 0, "of": 1})
        != BatchTarget(first, {"of": 0, "against": 1})
    )
    gold = BatchTarget({**first, "answer_mask": None}, "gold")
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert gold(logits, torch.tensor([1, 0])).tolist() == [2.0, 3.0]
    odds = BatchTarget({"answer_mask": torch.tensor([[True, True], [False, True]])}, "predicted", "log_odds")
    assert odds(logits[1:], torch.tensor([1])).isnan().all() and odds(logits[:1], torch.tensor([0])).isfinite().all()
