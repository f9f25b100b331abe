"""The rules of a record, each broken in turn, and files that are whole or refused."""

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith import record
from attnfaith.record import Column, Identity, RecordError
from tests.identities import columns_of


IDENTITY = Identity("sst", "abc", "test", 10)


def columns(count=2, cell=IDENTITY, **changes):
    """Two instances of a cell, the second an empty text without a label, or `count` copies of the first."""
    values = {name: [value] * count for name, value in columns_of(cell).items()}
    values["instance_id"] = [f"sst/test/{number}" for number in range(count)]
    values |= {"tokens": [["a", "b"]] * count, "label": [1] * count, "truncated": [False] * count}
    values |= {"probs": [[0.25, 0.75]] * count, "attention": [[0.5, 0.5]] * count}
    if count == 2:
        values |= {"tokens": [["a", "b"], []], "label": [1, None], "attention": [[0.5, 0.5], []]}
    return {**values, **changes}


def table(**changes):
    return record.build(columns(**changes))


def replaced(name, values):
    """A valid record with one column exchanged behind the builder's back."""
    whole = table()
    field = whole.schema.field(name)
    values = values if isinstance(values, pa.Array) else pa.array(values, field.type)
    place = whole.schema.get_field_index(name)
    return whole.set_column(place, field if values.type == field.type else name, values)


def refused(broken, *parts):
    with pytest.raises(RecordError) as caught:
        record.validate(broken)
    assert all(part in str(caught.value) for part in parts), caught.value


# ---------------------------------------------------------------------------------------------- build and validate


@pytest.mark.parametrize("name", ["../up", "A", "", "a" * 81, "a\n", "ä"])
def test_names_that_could_leave_a_folder_are_refused(name):
    with pytest.raises(RecordError, match="column name .*lower-case letters"):
        Column().field(name)
    refused(table().append_column(pa.field(name, pa.float32()), pa.array([1.0, 2.0], pa.float32())), "column name")


@pytest.mark.parametrize(
    ("change", "name"),
    [({"seed": [1]}, "seed"), ({"extra": [1, 2]}, "extra"), ({"label": ["x", "y"]}, "'label'"), ({"probs": None}, "probs")],
)
def test_build_names_what_is_wrong(change, name):
    with pytest.raises(RecordError, match=name):
        record.build({name: values for name, values in columns(**change).items() if values is not None})


def test_valid_records_pass():
    for valid in (table(), table(label=[None, None]), record.build({name: [] for name in columns()})):
        record.validate(valid.select(valid.column_names[::-1]))
    for name, kind in (("attention", pa.list_(pa.float64())), ("encoder", pa.string())):
        record.validate(replaced(name, table().column(name).combine_chunks().cast(kind)))


@pytest.mark.parametrize(
    ("name", "values", "parts"),
    [
        ("attention", [[1.0], []], ["row 0", "'attention' has 1 values and 'tokens' 2"]),
        ("attention", [[0.5, 0.4], []], ["'attention' row 0", "sums to 0.9"]),
        ("attention", [[np.nan, 1.0], []], ["'attention' row 0", "nan is not a probability"]),
        ("attention", [[None, 1.0], []], ["'attention' row 0", "null"]),
        ("attention", [None, []], ["'attention' row 0", "null"]),
        ("probs", [[0.5, 0.5], []], ["row 1", "'probs' is empty"]),
        ("label", [2, None], ["row 0", "label 2 is outside 0..1"]),
        ("label", [None, -1], ["row 1", "label -1 is outside 0..1"]),
        ("truncated", [True, None], ["'truncated' row 1", "null"]),
        ("instance_id", ["same", "same"], ["'same' appears 2 times in one cell", "bilstm"]),
        ("label", pa.array(["x", "y"]), ["column 'label' is string; it must be"]),
        ("attention", pa.array([1.0, 2.0]), ["column 'attention' is double; it must be"]),
        ("tokens", pa.array([[1, 2], []]), ["column 'tokens' is list", "it must be"]),
    ],
)
def test_broken_rules_are_named(name, values, parts):
    refused(replaced(name, values), *parts)


# ---------------------------------------------------------------------------------------------- concatenate


def test_concatenate_keeps_settings():
    first = record.with_settings(table(), [{"seed": 1}])
    second = record.with_settings(table(cell=replace(IDENTITY, encoder="cnn")), [{"seed": 2}])
    joined = record.concatenate([first, second])
    assert joined.column("encoder").to_pylist() == ["bilstm"] * 2 + ["cnn"] * 2
    assert record.settings(joined) == [{"seed": 1}, {"seed": 2}]
    assert record.column_of(joined.schema.field("attention")).axes == ("T",)


def test_concatenate_refuses():
    def measured_by(version, seed):
        return record.with_settings(
            table(cell=replace(IDENTITY, seed=seed)), [{"version": version, "columns": {"attention": ""}}]
        )

    cell = replace(IDENTITY, seed=11)
    other = table(cell=cell)
    wide = record.build(columns(cell=cell, importance_x=[[1, 2], []]), {"importance_x": Column(("T",))})
    texts = other.set_column(other.schema.get_field_index("label"), "label", other.column("label").cast(pa.string()))
    first, patched, later = (measured_by(version, seed) for seed, version in ((1, "1.0.0"), (2, "1.0.7"), (3, "1.1.0")))
    record.check_one_version([first, patched])
    for tables in (
        [first, later, patched],
        [record.concatenate([first, later]), patched],
    ):  # a record keeps what it is made of
        with pytest.raises(RecordError, match=r"1\.0, 1\.1"):
            record.check_one_version(tables)
    for tables, message in (
        ([], "nothing to concatenate"),
        ([table(), table()], r"appears 2 times in one cell \(dataset .*, seed \d+\)"),
        ([table(), wide], "record 1 .*importance_x"),
        ([table(), texts], "different types"),
    ):
        with pytest.raises(RecordError, match=message):
            record.concatenate(tables)


# ---------------------------------------------------------------------------------------------- files


def test_save_and_load(tmp_path):
    path = tmp_path / "seed=3" / "record.parquet"  # a folder whose name looks like a partition
    own = record.with_settings(table(), [{"note": "ü"}])
    record.save(own, path)
    loaded = record.load(path)
    assert loaded.equals(own) and [field.metadata for field in loaded.schema] == [field.metadata for field in own.schema]
    assert record.settings(loaded) == [{"note": "ü"}]
    assert os.listdir(path.parent) == ["record.parquet"] and path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "flipped"])
def test_unreadable_files(tmp_path, damage):
    path = tmp_path / "r.parquet"
    record.save(table(count=300), path)
    whole = path.read_bytes()
    contents = {
        "empty": b"",
        "text": b"instance_id,label\n",
        "truncated": whole[: len(whole) // 2],
        "flipped": whole[:-200] + bytes(byte ^ 0xFF for byte in whole[-200:-8]) + whole[-8:],
    }
    path.write_bytes(contents[damage])
    with pytest.raises(RecordError, match="not a readable record"):
        record.load(path)


def test_a_record_of_an_older_schema_gets_one_line(tmp_path):
    record.save(table(), tmp_path / "r.parquet")
    old = pq.read_table(tmp_path / "r.parquet").drop_columns(["texts", "cell"])
    for version, metadata in (("1", {}), ("2", {b"attnfaith_schema": b"2"})):
        pq.write_table(old.replace_schema_metadata(metadata), tmp_path / "old.parquet")
        message = f"version {version} of the record's schema.*reads {record.VERSION}: measure the model anew$"
        with pytest.raises(RecordError, match=message):
            record.load(tmp_path / "old.parquet")
