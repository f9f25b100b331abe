"""Rows of a table read as those of a data set."""

import pyarrow as pa
import pytest

from attnfaith.data.fingerprint import digest_data, fingerprint
from attnfaith.data.in_memory import Rows, in_memory


def test_rows_are_read_as_those_of_a_data_set():
    table = pa.table({"instance_id": ["a", "b", "c"], "text": ["x", "y é", "z"], "label": [0, None, 1]})
    rows, dataset = Rows(table), in_memory(table)
    assert (len(rows), rows.column_names, rows.to_list()) == (len(dataset), dataset.column_names, dataset.to_list())
    for key in (0, -1, slice(1, 3), [2, 0]):
        assert rows[key] == dataset[key]
    assert rows["label"] == dataset["label"][:]
    assert rows.select([2, 1]).to_list() == dataset.select([2, 1]).to_list()
    assert (fingerprint(rows), digest_data(rows)) == (fingerprint(dataset), digest_data(dataset))
    with pytest.raises(IndexError):
        rows[3]
