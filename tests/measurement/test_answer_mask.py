"""Instances that name their possible answers: every stage, measure and experiment deals with those classes alone."""

import numpy as np
import pytest
from datasets import Dataset

from attnfaith.data.collation import POSITION_COLUMNS, pad_batch
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import find
from attnfaith.record import Identity, load
from attnfaith.subjects import SubjectError
from tests.gates import options_of
from tests.measuring import POOLED, classifier_of, marked, run


ALLOWED = [1, 3, 4]
MODELS = (
    {"query": "text", "readout": "tanh"},
    {"query": "learned", "readout": "affine", "projection": "sparsemax", "encoder": "cnn", "kernel_sizes": [1, 3]},
    {"query": "text", "readout": "affine", "hierarchy": "sentence", "encoder": "bigru"},
)
OPTIONS = {  # of measures that take long with their own
    "permutation": {"draws": 20},
    "adversary_search": {"steps": 20},
    "adversary_exact": {"epsilons": [0.05]},
    "kernel_shap": {"samples": 32},
    "lime": {"samples": 32},
    "integrated_gradients": {"tolerance": 1e6},
    "aopc_limits": {"exact_tokens": 6, "beam": 2},
}
STEPPED = ("adversary_search_attention", "adversary_search_probs")  # steps in float32, whose rounding differs


def rows_of(tiny_rows, fields, candidates=(ALLOWED,) * 4):
    rows = tiny_rows((6, 9, 2, 4), pair=fields["query"] == "text", hierarchy=fields.get("hierarchy", "none"))
    return marked([{**row, "candidates": list(allowed)} for row, allowed in zip(rows, candidates, strict=True)])


def batch_of(rows, *names):
    features = [{name: row[name] for name in ("input_ids", *POSITION_COLUMNS, *names) if name in row} for row in rows]
    return {**pad_batch(features, 0, 5), "instance_id": [row["instance_id"] for row in rows]}


def without_barred_classes(tiny_model, model, fields):
    """The same model, whose decoder lacks the rows of the barred classes."""
    smaller = tiny_model(num_labels=len(ALLOWED), **fields)
    last = ["decoder.output."] if fields["readout"] == "tanh" else ["decoder.context.", "decoder.query."]
    weights = classifier_of(model).state_dict()
    cut = {name: values[ALLOWED] for name, values in weights.items() if name.startswith(tuple(last))}
    classifier_of(smaller).load_state_dict(weights | cut)
    return smaller


@pytest.mark.slow
@pytest.mark.parametrize("fields", MODELS, ids=lambda fields: "-".join(map(str, fields.values())))
@pytest.mark.parametrize("name", POOLED)
def test_as_a_model_that_lacks_the_barred_classes(name, fields, tiny_model, tiny_rows):
    producer = find(name)
    model, rows = tiny_model(num_labels=5, **fields), rows_of(tiny_rows, fields)
    if "affine read-out" in producer.needs and not model.affine:
        with pytest.raises(SubjectError, match="no affine"):
            run(producer, model, batch_of(rows, "candidates"))
        return
    smaller, batches = without_barred_classes(tiny_model, model, fields), (batch_of(rows, "candidates"), batch_of(rows))
    columns, expected = (
        run(producer, subject, batch, seed=1, **OPTIONS.get(name, {}), **options_of(name, subject, batch))
        for subject, batch in zip((model, smaller), batches, strict=True)
    )
    assert columns.keys() == expected.keys()
    for column, values in columns.items():
        for value, other in zip(values, expected[column], strict=True):
            if "C" in producer.columns[column].axes:
                assert not np.nan_to_num(value)[..., [0, 2]].any(), column
                value = np.asarray(value)[..., ALLOWED]
            if np.asarray(value).dtype.kind == "U":
                assert value == other, column
            else:
                atol = 1e-2 if column in STEPPED else 2e-6
                np.testing.assert_allclose(value, other, atol=atol, rtol=1e-4, err_msg=column)


def test_a_record_has_probabilities_of_possible_answers_alone(tmp_path, tiny_model, tiny_rows):
    rows = rows_of(tiny_rows, MODELS[0], candidates=[[0, 2], [4], [1, 2, 3], [2, 3]])
    for row in rows:
        row["labels"] = row["candidates"][0]
    model, identity = tiny_model(num_labels=5, **MODELS[0]), Identity("tiny", "1", "test", 0)
    tables = [
        load(measure(model, Dataset.from_list(rows), identity, ["permutation"], tmp_path / f"{size}", batch_tokens=size))
        for size in (1000, 1)
    ]
    for name in ("probs", "permuted_probs"):
        for row, values, alone in zip(rows, *(table.column(name).to_pylist() for table in tables), strict=True):
            np.testing.assert_allclose(values, alone, atol=1e-6)
            assert not np.asarray(values)[..., np.setdiff1d(np.arange(5), row["candidates"])].any()
