"""What the page holds of all its texts: the numbers of the record, to the bit, and text that stays text."""

import base64
import json
import zlib

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import visible
from attnfaith.reporting.page.explorer import SAMPLE_SEED, explorer
from tests.affine_records import drawn_cell, drawn_record
from tests.records import build
from tests.reporting.test_page import HOSTILE, Page
from tests.sections import appended
from tests.sequence_records import draw as draw_pairs


TYPES = {"f4": "<f4", "u4": "<u4", "i4": "<i4", "u1": "u1"}


def read(html):
    """What the script reads of an explorer: its data, and the numbers as it unpacks them."""
    page = Page(str(html))
    assert page.open == []
    (text,) = page.data
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
    assert numbers["lengths"].tolist() == cell.lengths.tolist()
    assert [name for name, _ in data["measures"]] == ["attention", "gradient", "exact contribution"]
    names = ("attention", "gradient", "exact_contribution")
    expected = {f"scores{place}": cell.scores(name) for place, name in enumerate(names)}
    expected |= {"values": records.rows(cell.table, "token_logits"), "probs": records.rows(cell.table, "probs")}
    expected["bias"] = records.rows(cell.table, "token_logits_bias")
    for name, values in expected.items():
        np.testing.assert_array_equal(numbers[name], np.concatenate(list(map(np.ravel, values))), err_msg=name)
    for place, name in enumerate(["gradient", "exact_contribution"]):
        np.testing.assert_array_equal(numbers[f"tau{place}"], cell.tau("attention", name).astype(np.float32))
    tokens = [data["vocabulary"][number] for number in numbers["tokens"]]
    assert tokens == [token for text in cell.table.column("tokens").to_pylist() for token in text]
    np.testing.assert_array_equal(numbers["labels"], np.nan_to_num(cell.labels, nan=-1))
    np.testing.assert_array_equal(numbers["truncated"], cell.table.column("truncated").to_pylist())
    np.testing.assert_array_equal(numbers["gold"], np.concatenate(records.rows(cell.table, "rationale")) > 0)


def test_only_what_a_record_holds_is_offered():
    full = explorer(drawn_cell(6), 0)
    assert 'data-do="furthest"' in full and "The answer is exact" in full and "would weigh them anew" not in full
    bare = explorer(drawn_cell(6, without=("token_logits", "token_logits_bias")), 0)
    assert "data-do" not in bare and "fieldset" not in bare, "an empty panel is not shown"
    three = explorer(drawn_cell(6, classes=3), 0)
    assert 'data-do="furthest"' not in three and 'data-do="flip"' in three
    assert "would weigh them anew" in explorer(drawn_cell(6, projection="sparsemax"), 0)


def test_answers_that_were_measured_beforehand():
    cell = drawn_cell(8, affine=False)
    data, numbers = read(explorer(cell, 0))
    labels = ["furthest attention within ε = 0.05 (lower bound)", "smallest set that flips"]
    assert [part["label"] for part in data["recorded"]] == labels
    starts = np.concatenate([[0], np.cumsum(cell.lengths)])
    attention, probs = (records.rows(cell.table, f"adversary_exact_{name}") for name in ("attention", "probs"))
    for row in range(8):
        weights = numbers["recorded0_weights"][starts[row] : starts[row + 1]]
        answer = numbers["recorded0_probs"][2 * row :][:2]
        if row < 2:
            assert np.isnan([*weights, *answer]).all()
            continue
        np.testing.assert_array_equal(weights, attention[row][0])
        np.testing.assert_array_equal(answer, probs[row][0])


def test_an_attention_that_nothing_notices_can_be_tried():
    record = build([{"attention": [0.6, 0.4]}, {"attention": [1.0]}])
    record = appended(record, "identifiability", identifiability_attention=[[0.0, 1.0], [1.0]])
    data, numbers = read(explorer(one_cell(record), 0))
    assert [part["label"] for part in data["recorded"]] == ["another one that nothing notices"]
    assert numbers["recorded0_weights"].tolist() == [0.0, 1.0, 1.0]


def test_above_the_budget_texts_are_a_stated_sample():
    cell = drawn_cell(120)
    whole = explorer(cell, 0)
    assert "All 120 texts;" in whole
    some = explorer(cell, 0, most_bytes=8000)
    data, numbers = read(some)
    assert len(some) < len(whole) and 10 < len(data["ids"]) < 100
    assert f"{len(data['ids'])} of 120 texts, drawn at random (seed {SAMPLE_SEED})" in some
    rows = [cell.instance_ids.index(name) for name in data["ids"]]
    assert rows == sorted(np.random.default_rng(SAMPLE_SEED).permutation(120)[: len(rows)].tolist())
    np.testing.assert_array_equal(numbers["probs"].reshape(-1, 2), cell.probs[rows])


def test_a_barred_class_stays_barred():
    table = drawn_record(6, classes=3)
    place = table.column_names.index("token_logits_bias")
    barred = [[value[0], float("nan"), value[2]] for value in table.column("token_logits_bias").to_pylist()]
    table = table.set_column(place, table.schema.field(place), pa.array(barred, table.schema.field(place).type))
    _, numbers = read(explorer(one_cell(table), 0))
    assert np.isnan(numbers["bias"].reshape(-1, 3)).tolist() == [[False, True, False]] * 6


def test_hostile_texts_and_names_stay_text():
    tokens = [*HOSTILE, "</script><script>window.hit=1</script>", "<!--<script>"]
    names = ["</script><b>", "<img src=x onerror=window.hit=1>"]
    html = explorer(drawn_cell(5, tokens=tokens, label_names=names), 0)
    page = Page(str(html))
    assert page.open == [] and not {"b", "img", "script"} & {tag for tag, _ in page.tags}
    data, _ = read(html)
    assert {visible(token) for token in tokens} <= set(data["vocabulary"]) and "0 </script><b>" in data["classes"]
    assert "<" not in page.data[0]


def test_pairs_and_texts_without_a_token_have_none():
    assert explorer(one_cell(build([{"attention": []}])), 0) == "" == explorer(one_cell(draw_pairs(3)), 0)
