"""Instances that name their possible answers: every stage, measure and experiment deals with those classes alone."""

import numpy as np
import pytest

from attnfaith.data.collation import POSITION_COLUMNS, pad_batch
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import find
from attnfaith.record import Identity, load
from attnfaith.subjects import SubjectError
from tests.gates import options_of
from tests.impermissible import marked
from tests.measuring import run
from tests.pooled_producers import POOLED


KEPT = [1, 3, 4]
MODELS = (
    {"query": "text", "readout": "tanh"},
    {"query": "text", "readout": "affine", "projection": "sparsemax"},
    {"query": "learned", "readout": "affine", "encoder": "cnn", "kernel_sizes": [1, 3]},
    {"query": "text", "readout": "tanh", "hierarchy": "sentence", "encoder": "bigru"},
    {"query": "text", "readout": "affine", "hierarchy": "word", "encoder": "bigru"},
)
OPTIONS = {  # of producers that take long with their own
    "permutation": {"draws": 20},
    "adversary_search": {"steps": 20},
    "adversary_exact": {"epsilons": [0.05]},
    "kernel_shap": {"samples": 32},
    "lime": {"samples": 32},
    "integrated_gradients": {"tolerance": 1e6},
    "aopc_limits": {"exact_tokens": 6, "beam": 2},
    "weight_aopc_limits": {"exact_tokens": 6, "beam": 2},
}
CHOICES = ("adversary_search_attention", "adversary_search_probs")  # steps in float32, whose rounding differs


@pytest.fixture(params=MODELS, ids=lambda fields: "-".join(map(str, fields.values())))
def fields(request):
    return request.param


def rows_of(tiny_rows, fields, texts=(6, 9, 2, 4), candidates=None):
    rows = tiny_rows(texts, pair=fields["query"] == "text", hierarchy=fields.get("hierarchy", "none"))
    for number, row in enumerate(rows):
        row["candidates"] = KEPT if candidates is None else candidates[number]
    return marked(rows)


def batch_of(rows, num_labels=5, masked=True):
    names = ("input_ids", *POSITION_COLUMNS, *(["candidates"] if masked else []))
    features = [{name: row[name] for name in names if name in row} for row in rows]
    return {**pad_batch(features, 0, num_labels), "instance_id": [row["instance_id"] for row in rows]}


def of_kept_classes(tiny_model, model, fields):
    """The same model without the classes that are barred: its decoder lacks their rows."""
    smaller = tiny_model(num_labels=len(KEPT), **fields)
    one, other = (getattr(made, "classifier", made) for made in (model, smaller))
    last = ("decoder.output." if fields["readout"] == "tanh" else "decoder.context.", "decoder.query.")
    weights = one.state_dict()
    for name in weights:
        if name.startswith(last[0]) or (fields["readout"] == "affine" and name.startswith(last[1])):
            weights[name] = weights[name][KEPT]
    other.load_state_dict(weights)
    return smaller


def measurable(producer, model, rows):
    """Only sums over tokens ask for a read-out that is one; every other producer measures every model."""
    if "affine read-out" in producer.needs and not (model.affine and model.level != "word"):
        with pytest.raises(SubjectError, match="not affine"):
            run(producer, model, batch_of(rows))
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLED)
def test_as_a_model_that_lacks_the_barred_classes(name, fields, tiny_model, tiny_rows):
    producer = find(name)
    model, rows = tiny_model(num_labels=5, **fields), rows_of(tiny_rows, fields)
    if not measurable(producer, model, rows):
        return
    smaller = of_kept_classes(tiny_model, model, fields)
    options = OPTIONS.get(name, {})
    found, expected = (
        run(producer, one, batch, seed=1, **options, **options_of(name, one, batch))
        for one, batch in ((model, batch_of(rows)), (smaller, batch_of(rows, masked=False)))
    )
    assert found.keys() == expected.keys()
    for column, values in found.items():
        by_class = "C" in producer.columns[column].axes
        for value, wanted in zip(values, expected[column], strict=True):
            if by_class:
                barred = np.setdiff1d(np.arange(5), KEPT)
                assert not np.nan_to_num(value)[..., barred].any(), column
                value = np.asarray(value)[..., KEPT]
            if np.asarray(value).dtype.kind == "U":
                assert value == wanted, column
            else:
                atol = 1e-2 if column in CHOICES else 2e-6
                np.testing.assert_allclose(value, wanted, atol=atol, rtol=1e-4, err_msg=column)


def test_a_record_says_only_what_may_be_answered(tmp_path, tiny_model, tiny_rows):
    from datasets import Dataset

    fields = MODELS[0]
    rows = rows_of(tiny_rows, fields, candidates=[[0, 2], [4], [1, 2, 3], [2, 3]])
    for row in rows:
        row["labels"] = row["candidates"][0]
        row["impermissible"] = [0, 1] + [0] * (len(row["input_ids"]) - 2)
    model = tiny_model(num_labels=5, **fields)
    cell = Identity("tiny", "1", "test", 0)
    one, two = (
        load(
            measure(
                model, Dataset.from_list(rows), cell, ["permutation"], tmp_path / f"{tokens}.parquet", batch_tokens=tokens
            )
        )
        for tokens in (1000, 1)
    )
    for name in ("probs", "permuted_probs"):
        for row, values, others in zip(rows, one.column(name).to_pylist(), two.column(name).to_pylist(), strict=True):
            np.testing.assert_allclose(values, others, atol=1e-6)
            barred = np.setdiff1d(np.arange(5), row["candidates"])
            assert not np.asarray(values)[..., barred].any()
    assert one.column("impermissible").to_pylist()[0][:2] == [True, False]
