"""Today's numbers against the stored ones, through the doors that people use: `python -m tests.golden.write` stores them."""

import functools

import pytest
import torch

import attnfaith
from tests.golden import reports, subjects, values


read = functools.cache(values.read)
CASES = [(subject, group) for subject in subjects.SUBJECTS for group in read(f"record_{subject}")["groups"]]


@pytest.fixture(scope="module", autouse=True)
def _imported():
    """What measures import on use takes longer than to measure."""
    subjects.measured("bilstm", ["deeplift", "lime"])


@pytest.mark.parametrize(("subject", "group"), CASES)
def test_every_column_is_what_it_was(subject, group):
    golden = read(f"record_{subject}")["groups"][group]
    assert not values.moved(golden["columns"], subjects.columns(subject, group, golden["names"]))


@pytest.mark.parametrize("subject", subjects.SUBJECTS)
def test_nothing_of_the_catalogue_is_left_out(subject):
    golden = read(f"record_{subject}")
    names = {name for group in golden["groups"].values() for name in group["names"]} | {*golden["absent"]}
    listed = attnfaith.measures("pairs" if subjects.of_pairs(subject) else "texts").index
    assert {values.MEASURES.get(name, name) for name in names} | {*subjects.PLAN["left_out"]} >= {*listed}


@pytest.mark.slow
@pytest.mark.parametrize("subject", subjects.SUBJECTS)
def test_what_a_model_cannot_be_measured_by_is_refused(subject):
    absent = read(f"record_{subject}")["absent"]
    assert absent == [name for name in absent if values.lacks(subjects.measured, subject, [name])]


def test_frames_of_a_record_are_what_they_were():
    assert not values.moved(read("report_frames"), reports.frames())


@pytest.mark.slow
def test_tables_of_the_report_are_what_they_were():
    assert not values.moved(read("report_tables"), reports.tables())


def test_metadata_of_a_card_are_what_they_were():
    assert not values.moved(read("card"), reports.card())


def test_gates_that_are_trained_score_as_they_did():
    assert not values.moved(read("diffmask"), reports.diffmask())


@pytest.mark.parametrize("name", subjects.FAMILIES)
def test_a_checkpoint_loads_and_says_what_it_said(name):
    model, loading = reports.loaded(name)
    assert not any(loading.values())
    weights = subjects.model(name).state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert not values.moved({name: read("predictions")[name]}, {name: reports.logits(name, model.eval())})


def test_values_are_compared_by_size_kind_and_shape():
    golden = {"column": [[0.5, 2.0], float("nan")], "names": ["a"]}
    assert not values.moved(golden, {"column": [[0.5 + 4e-7, 2], float("nan")], "names": ["a"], "more": []})
    for other in ([[0.5, 2.00001], float("nan")], [[0.5, 2.0], 0.0], [[0.5], float("nan")], [[0.5, True], float("nan")]):
        assert [*values.changes(golden, {"column": other, "names": ["a"]})] == ["/column"]
        assert len(values.moved(golden, {"column": other, "names": ["a"]})) == 1
    assert [*values.changes(golden, {"column": golden["column"]})] == ["/names"]


def test_what_is_written_is_read_as_it_was():
    numbers = torch.rand(99, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).tolist()
    assert values.parsed(values.text_of({"provenance": {}, "a": [numbers, [float("nan")]]}))["a"][0] == numbers
