"""The data of all texts in the page: the numbers of the record, to the bit."""

import base64
import json
import zlib

import numpy as np

from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.page import SAMPLE_SEED, explorer
from tests.affine_records import drawn_cell
from tests.records import build
from tests.reporting.test_page import Page
from tests.sequence_records import draw as draw_pairs


TYPES = {"f4": "<f4", "u4": "<u4", "i4": "<i4", "u1": "u1"}


def read(html):
    """The data that the script reads, and the numbers as it unpacks them."""
    (text,) = Page(str(html)).data
    data = json.loads(text)
    packed = zlib.decompress(base64.b64decode(data["numbers"]))
    numbers, start = {}, 0
    for name, kind, size in data["layout"]:
        width = np.dtype(TYPES[kind]).itemsize
        planes = np.frombuffer(packed, np.uint8, size * width, start).reshape(width, size)
        numbers[name] = np.ascontiguousarray(planes.T).view(TYPES[kind])[:, 0]
        start += size * width
    assert start == len(packed)
    return data, numbers


def test_numbers_are_those_of_the_record():
    cell = drawn_cell(30, label_names=["bad", "good"])
    data, numbers = read(explorer(cell, 0))
    assert data["ids"] == cell.instance_ids and data["classes"] == ["0 bad", "1 good"]
    assert [name for name, _ in data["measures"]] == ["attention", "gradient", "exact contribution"]
    names = ("attention", "gradient", "exact_contribution")
    expected = {f"scores{place}": cell.scores(name) for place, name in enumerate(names)}
    columns = {"values": "token_logits", "probs": "probs", "bias": "token_logits_bias", "gold": "rationale"}
    expected |= {name: cell.rows(column) for name, column in columns.items()}
    expected |= {f"tau{place}": cell.tau("attention", name).astype(np.float32) for place, name in enumerate(names[1:])}
    expected |= {
        "lengths": cell.lengths,
        "labels": np.nan_to_num(cell.labels, nan=-1),
        "truncated": cell.column("truncated"),
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(numbers[name], np.concatenate(list(map(np.ravel, values))), err_msg=name)
    tokens = [data["vocabulary"][number] for number in numbers["tokens"]]
    assert tokens == [token for text in cell.table.column("tokens").to_pylist() for token in text]


def test_only_the_parts_of_a_record_are_offered():
    full = explorer(drawn_cell(6), 0)
    assert 'data-do="furthest"' in full and "The answer is exact" in full and "would weigh them anew" not in full
    bare = explorer(drawn_cell(6, without=("token_logits", "token_logits_bias")), 0)
    assert "data-do" not in bare and "fieldset" not in bare, "an empty panel is not shown"
    three = explorer(drawn_cell(6, classes=3), 0)
    assert 'data-do="furthest"' not in three and 'data-do="flip"' in three
    assert "would weigh them anew" in explorer(drawn_cell(6, projection="sparsemax"), 0)
    assert explorer(one_cell(build([{"attention": []}])), 0) == "" == explorer(one_cell(draw_pairs(3)), 0)


def test_above_the_budget_texts_are_a_stated_sample():
    cell = drawn_cell(120)
    html = explorer(cell, 0, most_bytes=8000)
    data, numbers = read(html)
    rows = [cell.instance_ids.index(name) for name in data["ids"]]
    assert 10 < len(rows) < 100 and f"{len(rows)} of 120 texts, drawn at random (seed {SAMPLE_SEED})" in html
    assert rows == sorted(np.random.default_rng(SAMPLE_SEED).permutation(120)[: len(rows)].tolist())
    np.testing.assert_array_equal(numbers["probs"].reshape(-1, 2), cell.probs[rows])
