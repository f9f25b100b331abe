"""The rules of a record, each broken in turn, and files that are whole or refused."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith import record
from attnfaith.record import Column, Identity, RecordError, schema
from attnfaith.support.errors import FileError
from tests.identities import columns_of


IDENTITY = Identity("sst", "abc", "test", 10)
DRAWS = {
    "permuted_probs": Column(("K", "C"), distribution=True),
    "adversarial_attention": Column(("K", "T"), distribution=True),
}


def columns(count=2, **changes):
    """Two instances of one cell, the second an empty text without a label, or `count` copies of the first."""
    fields = {key.name for key in dataclasses.fields(Identity) if key.name != "seed"} & changes.keys()
    seeds = changes.get("seed", [IDENTITY.seed] * count)
    cells = [
        replace(IDENTITY, seed=seed, **{name: changes[name][row] for name in fields})
        for row, seed in zip(range(count), [*seeds, *seeds], strict=False)
    ]
    changes = {name: values for name, values in changes.items() if name not in fields}
    made = {name: [columns_of(cell)[name] for cell in cells] for name in record.IDENTITY_COLUMNS}
    made["instance_id"] = [f"sst/test/{number}" for number in range(count)]
    made |= {"tokens": [["a", "b"]] * count, "label": [1] * count, "truncated": [False] * count}
    made |= {"probs": [[0.25, 0.75]] * count, "attention": [[0.5, 0.5]] * count}
    if count == 2:
        made |= {"tokens": [["a", "b"], []], "label": [1, None], "attention": [[0.5, 0.5], []]}
    return {**made, **changes}


def table(**changes):
    return record.build(columns(**changes))


def replaced(name, values, whole=None):
    """A valid record with one column exchanged behind the builder's back."""
    whole = table() if whole is None else whole
    place = whole.schema.get_field_index(name)
    field = whole.schema.field(place)
    return whole.set_column(place, field, pa.array(values, field.type))


def metadata_of(made):
    return {field.name: field.metadata for field in made.schema}


def refused(made, *parts):
    """Also where each row is looked at by itself, as the rows of large records are by thousands."""
    for block in (schema.BLOCK, 1):
        with pytest.MonkeyPatch.context() as patched, pytest.raises(RecordError) as caught:
            patched.setattr(schema, "BLOCK", block)
            record.validate(made)
        for part in parts:
            assert part in str(caught.value)


# ---------------------------------------------------------------------------------------------- schema and build


@pytest.mark.parametrize("name", ["../up", "a/b", "A", "", "_x", "1a", "a b", "a" * 81, "a\n", "ä"])
def test_names_that_could_leave_a_folder_are_refused(name):
    with pytest.raises(RecordError, match="column name .*lower-case letters"):
        Column().field(name)
    hostile = table().append_column(pa.field(name, pa.float32()), pa.array([1.0, 2.0], pa.float32()))
    refused(hostile, "column name", "lower-case letters")


def test_build_keeps_what_it_was_given():
    made = record.build(
        columns(rationale=[[1, 0], []], importance_x=[np.array([3.0, np.nan]), np.array([])]),
        {"rationale": record.OPTIONAL_COLUMNS["rationale"], "importance_x": Column(("T",))},
    )
    assert made.column("label").to_pylist() == [1, None]
    assert made.column("tokens").to_pylist() == [["a", "b"], []]
    assert made.column("encoder").to_pylist() == ["bilstm", "bilstm"]
    assert [list(row) for row in record.rows(made, "rationale")] == [[1, 0], []]
    np.testing.assert_array_equal(record.rows(made, "importance_x")[0], [3, np.nan])  # undefined importance is allowed


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": [1]}, "seed"),
        ({"extra": [1, 2]}, "extra"),
        ({"label": ["x", "y"]}, "'label'"),
        ({"attention": [["x", "y"], []]}, "'attention'"),
        ({"seed": ["x", "y"]}, "'seed'"),
        ({"tokens": [3, []]}, "'tokens'"),
        ({"probs": None}, "probs"),
    ],
)
def test_build_names_what_is_wrong(change, named):
    given = {name: values for name, values in columns(**change).items() if values is not None}
    with pytest.raises(RecordError, match=named):
        record.build(given)


# ---------------------------------------------------------------------------------------------- validate


def test_valid_records_pass():
    for made in (table(), table(count=5), table(label=[None, None]), record.build({name: [] for name in columns()})):
        record.validate(made)
        record.validate(made.select(made.column_names[::-1]))
    for name, kind in (("attention", pa.list_(pa.float64())), ("encoder", pa.string())):
        made = table()
        record.validate(made.set_column(made.schema.get_field_index(name), name, made.column(name).cast(kind)))


@pytest.mark.parametrize(
    ("name", "values", "parts"),
    [
        ("attention", [[1.0], []], ["row 0", "'attention' has 1 values and 'tokens' 2"]),
        ("attention", [[0.5, 0.5], [1.0]], ["row 1", "'attention' has 1 values and 'tokens' 0"]),
        ("attention", [[0.5, 0.4], []], ["'attention' row 0", "sums to 0.9"]),
        ("attention", [[1.5, -0.5], []], ["'attention' row 0", "-0.5 is not a probability"]),
        ("attention", [[np.nan, 1.0], []], ["'attention' row 0", "nan is not a probability"]),
        ("attention", [[None, 1.0], []], ["'attention' row 0", "null"]),
        ("attention", [None, []], ["'attention' row 0", "null"]),
        ("probs", [[0.5, 0.5], [0.6, 0.6]], ["'probs' row 1", "sums to 1.2"]),
        ("probs", [[0.5, 0.5], [np.inf, 0.0]], ["'probs' row 1"]),
        ("probs", [[0.5, 0.5], []], ["row 1", "'probs' is empty"]),
        ("label", [2, None], ["row 0", "label 2 is outside 0..1"]),
        ("label", [None, -1], ["row 1", "label -1 is outside 0..1"]),
        ("tokens", [["a", None], []], ["'tokens' row 0", "null"]),
        ("instance_id", [None, "b"], ["'instance_id' row 0", "null"]),
        ("truncated", [True, None], ["'truncated' row 1", "null"]),
    ],
)
def test_broken_rules_are_named(name, values, parts):
    refused(replaced(name, values), *parts)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("label", pa.array(["x", "y"])),
        ("attention", pa.array([1.0, 2.0])),
        ("tokens", pa.array([[1, 2], []])),
        ("probs", pa.array([["a", "b"], ["c", "d"]])),
        ("encoder", pa.array([1, 2])),
        ("truncated", pa.array([0, 1])),
    ],
)
def test_wrong_types_are_named(name, array):
    made = table()
    made = made.set_column(made.schema.get_field_index(name), name, array)
    refused(made, f"column '{name}' is {array.type}; it must be")


def test_one_instance_once_per_cell():
    refused(replaced("instance_id", ["same", "same"]), "'same' appears 2 times in one cell", "bilstm")
    record.validate(table(instance_id=["same", "same"], seed=[1, 2]))


def test_draws_as_arrays_and_as_lists():
    """One array (K,T) per instance makes the record that nested lists make, and comes back as it was."""
    generator = np.random.default_rng(0)
    tokens, attention = [["a", "b"], [], ["c"]], [[0.5, 0.5], [], [1.0]]
    given = columns(count=3, tokens=tokens, attention=attention)
    drawn = {
        "permuted_probs": [generator.dirichlet([1, 1], size=count) for count in (4, 0, 2)],
        "adversarial_attention": [generator.dirichlet([1, 1], size=3), np.empty((1, 0)), np.empty((0, 1))],
    }
    made = record.build(given | drawn, DRAWS)
    lists = {name: [value.tolist() for value in values] for name, values in drawn.items()}
    assert made.equals(record.build(given | lists, DRAWS))
    for part, first in ((made, 0), (made.slice(1, 2), 1), (made.take([2, 0]), None)):
        for name, values in drawn.items():
            expected = values[first : first + len(part)] if first is not None else [values[2], values[0]]
            found = record.rows(part, name)
            for one, other in zip(found, expected, strict=True):
                assert one.shape == (other.shape if len(other) else (0, 0))
                np.testing.assert_array_equal(one, other.astype(np.float32).reshape(one.shape))
    with pytest.raises(RecordError, match="'permuted_probs' must be list"):
        record.build(columns(permuted_probs=[np.array([["x", "y"]])] * 2), {"permuted_probs": DRAWS["permuted_probs"]})


def test_columns_that_only_some_records_have_are_filled():
    """Beside a hierarchical model each token is an item of one word; beside pairs a text has a second one without words."""
    extra = {name: record.OPTIONAL_COLUMNS[name] for name in ("words", "word_attention", "query_tokens")}
    asked = [["where", "is", "he", "?", "now"], []]
    lists = {"words": [[["a"], ["b", "c"]], []], "word_attention": [[[1], [0.5, 0.5]], []], "query_tokens": asked}
    flat, divided = table(), record.build(columns(encoder=["cnn"] * 2, **lists), extra)
    joined = record.concatenate([flat, divided])
    assert joined.column("words").to_pylist() == [[["a"], ["b"]], [], *lists["words"]]
    assert joined.column("word_attention").to_pylist() == [[[1.0], [1.0]], [], *lists["word_attention"]]
    assert joined.column("query_tokens").to_pylist() == [[], [], *asked]
    assert {*extra}.isdisjoint(record.concatenate([flat, table(encoder=["cnn"] * 2)]).column_names)
    for wrong in ([["a"], [None]], [["a"], None], [[1], []]):
        with pytest.raises(RecordError, match="'query_tokens'"):
            record.build(columns(query_tokens=wrong), {"query_tokens": extra["query_tokens"]})


# ---------------------------------------------------------------------------------------------- rows, ragged, concatenate


def test_concatenate_keeps_settings_and_cells():
    first = record.with_settings(table(), [{"run": 1}])
    second = record.with_settings(table(seed=[11, 11], encoder=["cnn", "cnn"]), [{"run": 2}])
    joined = record.concatenate(iter([first, second, table(seed=[12, 12])]))
    assert joined.num_rows == 6
    assert joined.column("encoder").to_pylist() == ["bilstm"] * 2 + ["cnn"] * 2 + ["bilstm"] * 2
    assert record.settings(joined) == [{"run": 1}, {"run": 2}]
    assert record.settings(table()) == []
    assert record.column_of(joined.schema.field("attention")).axes == ("T",)


def test_concatenate_refuses():
    other = table(seed=[11, 11])
    wide = record.build(columns(importance_x=[[1, 2], []], seed=[11, 11]), {"importance_x": Column(("T",))})
    texts = other.set_column(other.schema.get_field_index("label"), "label", other.column("label").cast(pa.string()))
    for tables, message in (
        ([], "nothing to concatenate"),
        ([table(), table()], r"appears 2 times in one cell \(dataset .*, seed \d+\)"),
        ([table(), wide], "record 1 .*importance_x"),
        ([table(), texts], "different types"),
    ):
        with pytest.raises(RecordError, match=message):
            record.concatenate(tables)


# ---------------------------------------------------------------------------------------------- versions


def test_records_of_different_versions_do_not_mix():
    one, patched, other = (made_by(version, seed=seed) for seed, version in ((1, "1.0.0"), (2, "1.0.7"), (3, "1.1.0")))
    assert record.concatenate([one, patched]).num_rows == 4
    with pytest.raises(RecordError, match=r"1\.0, 1\.1"):
        record.concatenate([one, other, patched])
    mixed = record.concatenate([one, other, patched], mix_versions=True)
    assert mixed.num_rows == 6
    with pytest.raises(RecordError, match=r"1\.0, 1\.1"):  # it keeps what it is made of
        record.concatenate([mixed, made_by("1.0.0", seed=4)])
    with pytest.raises(RecordError, match="do this$"):
        record.check_one_version([one, other], remedy="do this")


def made_by(version, seed):
    """A record that one version of the package made."""
    columns = {"attention": "", "probs": ""}
    return record.with_settings(table(seed=[seed] * 2), [{"version": version, "columns": columns}])


# ---------------------------------------------------------------------------------------------- files


def test_save_and_load(tmp_path):
    path = tmp_path / "seed=3" / "record.parquet"  # a folder whose name looks like a partition
    made = record.with_settings(table(), [{"note": "ü"}])
    record.save(made, path)
    loaded = record.load(path)
    assert loaded.equals(made) and metadata_of(loaded) == metadata_of(made)
    assert record.concatenate([loaded, table(seed=[11, 11])]).num_rows == 4
    assert record.settings(loaded) == [{"note": "ü"}]
    assert os.listdir(path.parent) == ["record.parquet"]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["os.fsync", "pyarrow.parquet.write_table", "os.replace"])
def test_what_stops_a_write_keeps_the_old_file(tmp_path, monkeypatch, step, error):
    path = tmp_path / "r.parquet"
    record.save(table(), path)

    def stop(*_args, **_kwargs):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(step, stop)
        with pytest.raises((FileError, KeyboardInterrupt)):
            record.save(table(count=5), path)
    assert os.listdir(tmp_path) == ["r.parquet"] and record.load(path).num_rows == 2


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "no footer", "flipped"])
def test_unreadable_files(tmp_path, damage):
    path = tmp_path / "r.parquet"
    record.save(table(count=300), path)
    whole = path.read_bytes()
    contents = {
        "empty": b"",
        "text": b"instance_id,label\n",
        "truncated": whole[: len(whole) // 2],
        "no footer": whole[:-8],
        "flipped": whole[:-200] + bytes(byte ^ 0xFF for byte in whole[-200:-8]) + whole[-8:],
    }
    path.write_bytes(contents[damage])
    with pytest.raises(RecordError, match="not a readable record"):
        record.load(path)
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RecordError, match="no record at"):
            record.load(place)


def test_a_record_of_an_older_schema_gets_one_line(tmp_path):
    record.save(table(), tmp_path / "r.parquet")
    old = pq.read_table(tmp_path / "r.parquet").drop_columns(["texts", "cell"])
    for version, metadata in (("1", {}), ("2", {b"attnfaith_schema": b"2"})):
        pq.write_table(old.replace_schema_metadata(metadata), tmp_path / "old.parquet")
        says = f"version {version} of the record's schema.*reads {record.VERSION}: measure the model anew$"
        with pytest.raises(RecordError, match=says):
            record.load(tmp_path / "old.parquet")


@st.composite
def instances(draw):
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    classes = draw(st.integers(1, 4))
    rows = []
    for number in range(draw(st.integers(0, 5))):
        length = draw(st.integers(0, 6))
        weights = np.array(draw(st.lists(st.floats(0.01, 1), min_size=length, max_size=length)), np.float64)
        probs = np.array(draw(st.lists(st.floats(0.01, 1), min_size=classes, max_size=classes)))
        rows.append(
            {
                "instance_id": f"{number}/{draw(text)}",
                "tokens": draw(st.lists(text, min_size=length, max_size=length)),
                "label": draw(st.none() | st.integers(0, classes - 1)),
                "truncated": draw(st.booleans()),
                "probs": (probs / probs.sum()).tolist(),
                "attention": (weights / weights.sum()).tolist() if length else [],
                "importance_x": draw(st.lists(st.floats(width=32), min_size=length, max_size=length)),
                **columns_of(Identity(draw(text), "abc", "test", draw(st.integers(-(2**62), 2**62)), objective=draw(text))),
            }
        )
    return rows


@pytest.mark.slow
@settings(max_examples=40)
@given(rows=instances())
def test_round_trip(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("r") / "r.parquet"
    given = {name: [row[name] for row in rows] for name in [*columns(), "importance_x"]}
    made = record.build(given, {"importance_x": Column(("T",))})
    record.save(made, path)
    loaded = record.load(path)
    assert loaded.schema.equals(made.schema) and metadata_of(loaded) == metadata_of(made)
    for name, values in given.items():
        if name in ("probs", "attention", "importance_x"):
            for found, value in zip(record.rows(loaded, name), values, strict=True):
                np.testing.assert_array_equal(found, np.array(value, np.float32))
        else:
            assert loaded.column(name).to_pylist() == values


def test_record_needs_no_torch():
    code = "import sys, attnfaith.record; print(json.dumps(sorted({'torch','transformers','datasets'} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", "import json;" + code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
    assert Path(record.__file__).parent.name == "record"
