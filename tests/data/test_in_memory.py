"""Data sets of tables in memory."""

import datasets
import pyarrow as pa

from attnfaith.data.in_memory import in_memory


def test_rows_are_the_tables_and_no_name_is_computed_of_them(monkeypatch):
    table = pa.table({"text": ["a", "b"], "marks": pa.array([[1], []], pa.list_(pa.int8()))})
    expected = datasets.Dataset(table)
    monkeypatch.setattr(datasets.arrow_dataset, "generate_fingerprint", lambda *_: 1 / 0)
    one, other = in_memory(table), in_memory(table)
    assert one.to_list() == expected.to_list() == [{"text": "a", "marks": [1]}, {"text": "b", "marks": []}]
    assert one.features == expected.features
    assert one._fingerprint != other._fingerprint


def test_what_is_made_of_it_has_another_name():
    rows = in_memory(pa.table({"text": ["a", "b"]}))
    names = {rows._fingerprint, rows.select([0])._fingerprint, rows.map(lambda row: {"n": len(row["text"])})._fingerprint}
    assert len(names) == 3
