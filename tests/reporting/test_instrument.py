"""What the page holds of all its texts: the numbers of the record, to the bit, and text that stays text."""

import base64
import json
import zlib

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.heatmap import visible
from attnfaith.reporting.page.instrument import SAMPLE_SEED, instrument, scripts_of
from tests.instruments import drawn_cell, drawn_record
from tests.reporting.test_report_page import HOSTILE, Page
from tests.sequence_records import draw as draw_pairs


TYPES = {"f4": "<f4", "u4": "<u4", "i4": "<i4", "u1": "u1"}


def read(one):
    """What the script reads of an instrument: its data, and the numbers as it unpacks them."""
    page = Page(str(one.html))
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
    data, numbers = read(instrument(cell, 0))
    assert data["ids"] == cell.instance_ids and data["classes"] == ["0 bad", "1 good"]
    assert numbers["lengths"].tolist() == cell.lengths.tolist()
    assert [name for name, _ in data["measures"]] == ["attention", "gradient", "exact contribution"]
    names = ("attention", "gradient", "exact_contribution")
    wanted = {f"scores{place}": cell.scores(name) for place, name in enumerate(names)}
    for name in ("token_logits", "token_logits_bias"):
        wanted[{"token_logits": "values", "token_logits_bias": "bias"}[name]] = records.rows(cell.table, name)
    wanted["probs"] = records.rows(cell.table, "probs")
    for name, values in wanted.items():
        np.testing.assert_array_equal(numbers[name], np.concatenate([np.ravel(one) for one in values]), err_msg=name)
    for place, name in enumerate(["gradient", "exact_contribution"]):
        np.testing.assert_array_equal(numbers[f"tau{place}"], cell.tau("attention", name).astype(np.float32))
    tokens = [data["vocabulary"][number] for number in numbers["tokens"]]
    assert tokens == [token for text in cell.table.column("tokens").to_pylist() for token in text]
    np.testing.assert_array_equal(numbers["labels"], np.nan_to_num(cell.labels, nan=-1))
    np.testing.assert_array_equal(numbers["truncated"], cell.table.column("truncated").to_pylist())
    np.testing.assert_array_equal(numbers["gold"], np.concatenate(records.rows(cell.table, "rationale")) > 0)


def test_what_a_record_lacks_is_said_and_not_offered():
    full = str(instrument(drawn_cell(6), 0).html)
    assert 'data-do="furthest"' in full and "The answer is exact" in full
    bare = str(instrument(drawn_cell(6, without=("token_logits", "token_logits_bias")), 0).html)
    assert "data-do" not in bare and "fieldset" not in bare, "an empty panel is not shown"
    assert 'name="flips"' not in bare and 'name="flips"' in full
    three = str(instrument(drawn_cell(6, classes=3), 0).html)
    assert 'data-do="furthest"' not in three and 'data-do="flip"' in three and "closed form for two classes alone" in three
    sparse = str(instrument(drawn_cell(6, projection="sparsemax"), 0).html)
    assert "would weigh them anew" in sparse and "would weigh them anew" not in full


def test_answers_that_were_measured_beforehand():
    cell = drawn_cell(8, affine=False)
    data, numbers = read(instrument(cell, 0))
    labels = [one["label"] for one in data["recorded"]]
    assert labels == [
        "furthest attention within ε = 0.05 (lower bound)",
        "smallest set that flips",
        "weights permuted",
    ]
    starts = np.concatenate([[0], np.cumsum(cell.lengths)])
    given = records.rows(cell.table, "adversary_exact_attention"), records.rows(cell.table, "adversary_exact_probs")
    permuted = records.rows(cell.table, "permuted_probs")
    for row in range(8):
        weights, probs = (
            numbers["recorded0_weights"][starts[row] : starts[row + 1]],
            numbers["recorded0_probs"][2 * row :][:2],
        )
        change, flips = numbers["recorded2_change"][row], numbers["recorded2_flips"][row]
        if row < 2:
            assert np.isnan(weights).all() and np.isnan(probs).all() and np.isnan([change, flips]).all()
            continue
        np.testing.assert_array_equal(weights, given[0][row][0])
        np.testing.assert_array_equal(probs, given[1][row][0])
        assert change == pytest.approx(np.abs(permuted[row] - cell.probs[row]).sum() / 2, abs=1e-6)
        assert flips == (permuted[row][0].argmax() != cell.predicted[row])


def test_above_the_budget_texts_are_a_stated_sample():
    cell = drawn_cell(120)
    whole = instrument(cell, 0)
    assert (whole.shown, whole.of) == (120, 120) and "Here are all texts, 120:" in whole.html
    size = len(Page(str(whole.html)).data[0])
    some = instrument(cell, 0, most_bytes=size // 2)
    data, numbers = read(some)
    assert len(Page(str(some.html)).data[0]) <= size // 2 and 30 < some.shown < 80
    assert f"Here are {some.shown} of 120 texts, drawn at random (seed {SAMPLE_SEED})" in some.html
    rows = [cell.instance_ids.index(name) for name in data["ids"]]
    assert rows == sorted(np.random.default_rng(SAMPLE_SEED).permutation(120)[: some.shown].tolist())
    np.testing.assert_array_equal(numbers["probs"].reshape(-1, 2), cell.probs[rows])
    assert instrument(cell, 0, most_bytes=size // 2) == some


def test_a_barred_class_stays_barred():
    table = drawn_record(6, classes=3)
    place = table.column_names.index("token_logits_bias")
    barred = [[value[0], float("nan"), value[2]] for value in table.column("token_logits_bias").to_pylist()]
    table = table.set_column(place, table.schema.field(place), pa.array(barred, table.schema.field(place).type))
    _, numbers = read(instrument(one_cell(table), 0))
    assert np.isnan(numbers["bias"].reshape(-1, 3)).tolist() == [[False, True, False]] * 6


def test_hostile_texts_and_names_stay_text():
    tokens = [*HOSTILE, "</script><script>window.hit=1</script>", "<!--<script>"]
    names = ["</script><b>", "<img src=x onerror=window.hit=1>"]
    one = instrument(drawn_cell(5, tokens=tokens, label_names=names), 0)
    page = Page(str(one.html))
    assert page.open == [] and not {"b", "img"} & {tag for tag, _ in page.tags}
    assert "script" not in {tag for tag, _ in page.tags}  # what is no data of ours would be a tag
    data, _ = read(one)
    assert {visible(token) for token in tokens} <= set(data["vocabulary"]) and "0 </script><b>" in data["classes"]
    assert "<" not in page.data[0]


def test_pairs_and_texts_without_a_token_have_none(build_record):
    assert instrument(one_cell(build_record([{"attention": []}])), 0) is None
    assert instrument(one_cell(draw_pairs(3)), 0) is None and scripts_of([None, None]) == ()
