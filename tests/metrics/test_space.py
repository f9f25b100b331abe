"""What the page of the metric's Space does, without gradio: reading, computing, and the HTML it shows.

The page itself is opened by `browse_space.py`.
"""

import html
import io
import json
import logging
import math
import pickle
import re
import shutil
import subprocess
import unicodedata
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness import app, reading
from attnfaith.metrics.attention_faithfulness.drawing import bars_html, histogram_html
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME


pytestmark = pytest.mark.slow  # its page is called as a reader would


ATTENTION = [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [], [0.4, 0.1, 0.1, 0.4]]
IMPORTANCE = [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3], [], [5.0, 1.0, 2.0, 4.0]]
TOKENS = [["a", "b", "c"], ["d", "e", "f"], [], ["g", "h", "i", "j"]]
# by hand: 2 of 3 pairs agree; 2 of 2 that are untied in attention, of 3; 4 of 4 that are, of 6
TAU = [1 / 3, 2 / math.sqrt(2 * 3), math.nan, 4 / math.sqrt(4 * 6)]
HOSTILE = "<img src=x onerror='hit()'>\"&amp;${hit}\ud800"


@pytest.fixture(scope="module", autouse=True)
def _offline(evaluate):
    """Every computation below is without network, in caches of its own."""


def of_file(data, **chosen):
    return app.answer(lambda: reading.columns_of_file(data, **chosen))


def of_columns(columns):
    return app.answer(lambda: (columns, {"used": list(columns), "aside": []}))[0]


def parquet(columns, **how):
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **how)
    return buffer.getvalue()


def same_rows(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            np.testing.assert_array_equal(one, np.array(other, dtype=float))


class Elements(HTMLParser):
    """What a browser would make of the HTML; fails where elements do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def is_safe(text):
    """Only elements and attributes that the page writes itself, and text that UTF-8 can hold."""
    text.encode()
    elements = Elements(text)
    shown = "div p strong span b i table tr th td code details summary svg line rect text title bdi"
    assert set(elements.tags) <= set(shown.split())
    assert not [one for one in elements.attributes if one[1].startswith("on") or one[1] in ("src", "href")]
    return elements


# ---------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0.1 0.9\n1", [[0.1, 0.9], [1]]),
        (" 0.1, 0.9 \n\t1;0\n", [[0.1, 0.9], [1, 0]]),
        ("[[0.1, 0.9], [1]]", [[0.1, 0.9], [1]]),
        ("[\n [0.1, 0.9],\n [],\n null]", [[0.1, 0.9], [], None]),
        ("[0.1, 0.9]", [[0.1, 0.9]]),
        ("[0.1, 0.9]\r\n[]\r\nnull", [[0.1, 0.9], [], None]),
        ("[]", [[]]),
        ("[[]]", [[]]),
        ("7", [[7]]),
        ("-1e-3 null NaN inf", [[-1e-3, math.nan, math.nan, math.inf]]),
        ("[[1, null, NaN]]", [[1, math.nan, math.nan]]),
        ("9" * 5000 + " 1", [[math.inf, 1]]),
    ],
)
def test_typed_rows(text, rows):
    same_rows(reading.columns_of_texts({"importance": text})["importance"], rows)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=False), max_size=4) | st.none(), min_size=1, max_size=5))
def test_both_ways_to_type_say_the_same(rows):
    lines = "\n".join("null" if row is None else str(row) for row in rows)
    same_rows(reading.columns_of_texts({"importance": lines})["importance"], rows)
    text = json.dumps(rows)
    if any(row is not None for row in rows):
        same_rows(reading.columns_of_texts({"importance": text})["importance"], rows)


def test_an_empty_box_leaves_the_column_out():
    assert list(reading.columns_of_texts({"attention": "1", "importance": " \n"})) == ["attention"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5 half", "attention, line 1: 'half' is not a number; write numbers"),
        ("0.5\n\n0.5", r"attention, line 2 is blank: write \[\] for an empty text"),
        ("[[0.5, 0.5]", "attention is not valid JSON"),
        ("[[0.5], 1]", "attention, row 1 is '1.0'; give a list of numbers"),
        ('[["0.5"]]', "attention, row 0: '0.5' is not a number"),
        ("[[true]]", "attention, row 0: 'True' is not a number"),
        ("[[[0.5]]]", r"attention, row 0: '\[0.5\]' is not a number"),
        ("[" * 100_000, "attention is nested too deeply"),
        ("x" * 100, f"line 1: '{'x' * reading.MAX_TOKEN}…' is not"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(reading.InputError, match=message):
        reading.columns_of_texts({"attention": text})


AS_JSON = json.dumps({"attention": ATTENTION, "importance": IMPORTANCE, "tokens": TOKENS})
AS_OBJECTS = json.dumps(
    [
        {"attention": attention, "importance": importance, "tokens": tokens}
        for attention, importance, tokens in zip(ATTENTION, IMPORTANCE, TOKENS, strict=True)
    ]
)
AS_CSV = "tokens;attention;importance\r\na b c;0.1 0.2 0.7;1 3 2\r\nd e f;0,0,1;[0.1, 0.2, 0.3]\r\n[];[];[]\r\n" + (
    '"[""g"", ""h"", ""i"", ""j""]";"0.4 0.1 0.1 0.4";5 1 2 4\r\n'
)
AS_TOKENS = "instance,token,attention,importance\n" + "".join(
    f"{name},{token},{weight},{score}\n"
    for name, tokens, weights, scores in zip("wxyz", TOKENS, ATTENTION, IMPORTANCE, strict=True)
    for token, weight, score in zip(tokens, weights, scores, strict=True)
)


@pytest.mark.parametrize("text", [AS_JSON, AS_OBJECTS, AS_CSV, AS_TOKENS], ids=["json", "objects", "csv", "tokens"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_files_of_text(text, encoding):
    columns, choices = reading.columns_of_file(text.encode(encoding))
    # a text without tokens has no line in a file with a token a line
    kept = [place for place, tokens in enumerate(TOKENS) if tokens or text != AS_TOKENS]
    same_rows(columns["attention"], [ATTENTION[place] for place in kept])
    same_rows(columns["importance"], [IMPORTANCE[place] for place in kept])
    assert columns["tokens"] == [TOKENS[place] for place in kept]
    assert choices["aside"] == [] and set(choices["used"]) == {"attention", "importance", "tokens"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x93NUMPY\x01\x00", "neither Parquet nor text"),
        (b"PK\x03\x04\xff", "neither Parquet nor text"),
        (b"a,b\n1,2\n", "the file has the columns a, b; none of them is one of attention, importance"),
        (b'{"attentions": [[1]]}', "the file has the columns attentions"),
        (b"[[1.0]]", "a list of other things than objects: name the columns"),
        (b'{"attention": [[1.0]', "the file is not valid JSON"),
        (b'{"attention": 1}', "attention is '1.0'; give a list"),
        (b'{"attention": [[1]], "tokens": ["a"]}', "tokens: give a list with one list of words"),
        (b"attention,importance\n1\n", "line 2 of the file has not the 2 cells of the header"),
        (b"attention,importance\n1,2,3\n", "line 2 of the file has not the 2 cells"),
        (b"attention,attention\n1,2\n", "the header names a column twice"),
        (b'attention,importance\n"1"2,3\n', "line 2 of the file cannot be read as CSV"),
        (b"instance,attention\na,1\nb,1\na,1\n", "line 4: instance 'a' comes again"),
        (b"instance,attention\na,0.5 0.5\n", "attention, line 2 holds 2 numbers"),
        (b"attention\n" + b"1" * 200_000, "cannot be read as CSV: field larger"),
        (b"PAR1", "not a readable Parquet file"),
        (b"PAR1" + bytes(100) + b"PAR1", "not a readable Parquet file"),
        (parquet({"attention": ATTENTION})[:-20], "not a readable Parquet file"),
        (parquet({"weights": [1.0]}), "the file has the columns weights; none"),
        (parquet({"attention": [1.0]}), "column 'attention' holds double; give one list of numbers"),
        (parquet({"attention": [["a"]]}), r"column 'attention' holds list<\w+: string>; give one list of numbers"),
        (parquet({"attention": [[1.0]], "tokens": [[1]]}), r"column 'tokens' holds list<\w+: int64>"),
        (parquet({"attention": [[1.0]], "tokens": [None]}), "column 'tokens' holds"),
    ],
)
def test_files_that_cannot_be_used(data, message):
    with pytest.raises(reading.InputError, match=message):
        reading.columns_of_file(data)


class Trap:
    def __reduce__(self):
        return open, ("sprung", "w")


@pytest.mark.parametrize("protocol", [0, 5])
def test_nothing_is_unpickled(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Trap(), protocol)
    array = io.BytesIO()
    np.save(array, np.array([Trap()], dtype=object), allow_pickle=True)
    for bad in (data, array.getvalue()):
        with pytest.raises(reading.InputError):
            reading.columns_of_file(bad)
    assert not Path("sprung").exists()
    pickle.loads(data).close()
    assert Path("sprung").exists()  # the trap works


def a_record():
    """A record of several cells with two measures of importance; the second cell has the texts in another order."""
    rng = np.random.default_rng(5)
    n = len(ATTENTION)
    turn = {1: 1, 2: -1}
    return records.concatenate(
        records.build(
            {
                "instance_id": [f"text/{place}" for place in range(n)],
                **records.as_columns(records.Identity("x", "x", "x", seed), n),
                "tokens": TOKENS[:: turn[seed]],
                "label": [0] * n,
                "truncated": [False] * n,
                "probs": [[0.25, 0.75]] * n,
                "attention": [np.array(row, np.float32) for row in ATTENTION[:: turn[seed]]],
                "importance_gradient": [np.array(row, np.float32) for row in IMPORTANCE[:: turn[seed]]],
                "importance_random": [rng.random(len(row), dtype=np.float32) for row in TOKENS[:: turn[seed]]],
            },
            {name: records.Column(("T",)) for name in ("importance_gradient", "importance_random")},
        )
        for seed in turn
    )


@pytest.fixture(scope="module")
def record_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("record") / "record.parquet"
    records.save(a_record(), path)
    return path.read_bytes()


def test_the_page_tells_cells_apart_as_a_record_does():
    assert sorted(reading.IDENTITY) == sorted(records.IDENTITY_COLUMNS)


def test_a_record(record_file):
    found, choices = of_file(record_file)
    assert choices["importance"] == ["importance_gradient", "importance_random"]
    assert choices["cell"] == ["seed 1", "seed 2"]
    assert choices["used"] == ["attention", "probs", "importance_gradient", "tokens"]
    assert choices["aside"] == ["instance_id", "label", "truncated", "importance_random"]
    np.testing.assert_allclose(found.columns["tau"], TAU, rtol=1e-6)
    assert found.results["n"] == 4 and found.results["kendall_tau_class_1_n"] == 3
    assert found.results["kendall_tau"] == pytest.approx(np.nanmean(TAU))
    assert [Elements(bars_html(found.columns, 3)).text.count(token) for token in "ghij"] == [1] * 4


def test_another_measure_and_cell_of_a_record(record_file):
    found, _ = of_file(record_file, importance="importance_random", cell="seed 2")
    table = a_record().slice(4, 4)
    attention, importance = records.rows(table, "attention"), records.rows(table, "importance_random")
    np.testing.assert_array_equal(found.columns["tau"], kendall_tau(attention, importance)[0])
    same_rows(found.columns["importance"], importance)
    np.testing.assert_allclose(of_file(record_file, cell="seed 2")[0].columns["tau"], TAU[::-1], rtol=1e-6)


def test_what_a_record_does_not_have(record_file):
    found, _ = of_file(record_file, importance="importance_other")
    assert "no column 'importance_other'; its importance columns are importance_gradient" in found.results["error"]
    found, _ = of_file(record_file, cell="seed 3")
    assert "no cell 'seed 3'; its cells are seed 1, seed 2" in found.results["error"]
    one, choices = of_file(parquet({"attention": ATTENTION}))
    assert choices["importance"] == choices["cell"] == [] and "kendall_tau" not in one.results and not one.histogram


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"row_group_size": 1},
        {"use_dictionary": False, "compression": "zstd"},
        {"dictionary_pagesize_limit": 1, "write_batch_size": 1, "data_page_size": 1},
    ],
)
def test_any_parquet_file_with_the_columns(how):
    columns = {"attention": [*ATTENTION, None], "importance": [*IMPORTANCE, [1.0]], "tokens": [*TOKENS, ["k"]]}
    columns["attention"] = pa.array(columns["attention"], pa.large_list(pa.float64()))
    found, choices = of_file(parquet(columns, **how))
    assert choices["used"] == ["attention", "importance", "tokens"]
    np.testing.assert_allclose(found.columns["tau"], [*TAU, math.nan])
    assert found.columns["attention"][-1] is None and found.results["kendall_tau_undefined"] == 2
    assert "".join(is_safe(bars_html(found.columns, 4)).text).count("k") == 3  # in "rank" twice, and the token


# ---------------------------------------------------------------------------------------------- bounds


def test_a_file_that_ends_its_reader():
    """Found by random changes to a small file: pyarrow 26.0.1 aborts the process that opens it."""
    data = Path(__file__).with_name("ends_its_reader.parquet").read_bytes()
    assert "not a readable Parquet file" in of_file(data)[0].results["error"]


def test_a_file_is_tried_before_it_is_read(monkeypatch):
    data = parquet({"attention": ATTENTION})
    monkeypatch.setattr(reading, "MAX_SECONDS", 0)
    with pytest.raises(reading.InputError, match="not a readable Parquet file"):
        reading.columns_of_file(data)


def test_sizes(monkeypatch):
    data = parquet({"attention": ATTENTION, "importance": IMPORTANCE, "other": [[0.0] * 50] * 4})
    monkeypatch.setattr(reading, "MAX_VALUES", 24)  # 10 numbers and a place for the empty row, twice
    reading.columns_of_file(data)
    monkeypatch.setattr(reading, "MAX_VALUES", 21)
    with pytest.raises(reading.InputError, match="22 values to read; at most 21 are"):
        reading.columns_of_file(data)
    monkeypatch.setattr(reading, "MAX_VALUES", 19)
    found, _ = of_file(AS_JSON.encode())
    assert "the columns hold 20 numbers; at most 19" in found.results["error"]
    monkeypatch.setattr(reading, "MAX_TEXT", 10)
    with pytest.raises(reading.InputError, match="JSON and CSV at most 10"):
        reading.columns_of_file(AS_JSON.encode())
    with pytest.raises(reading.InputError, match="attention has 11 characters; at most 10"):
        reading.columns_of_texts({"attention": "0.5 0.5 0.5"})
    monkeypatch.setattr(reading, "MAX_FILE", 100)
    with pytest.raises(reading.InputError, match="at most 100 are read"):
        reading.columns_of_file(data)


def test_a_small_file_does_not_unfold():
    """A text of 100,000 letters that comes 20,000 times is 2 GB, and one text in the file."""
    n, long = 20_000, "x" * 100_000
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n), pa.int32()), pa.array([long]))
    offsets = pa.array(np.arange(n + 1), pa.int32())
    tokens = pa.ListArray.from_arrays(offsets, words)
    attention = pa.ListArray.from_arrays(offsets, pa.array(np.ones(n)))
    data = parquet({"attention": attention, "tokens": tokens}, store_schema=False)
    assert len(data) < 200_000
    columns, _ = reading.columns_of_file(data)
    assert pa.default_memory_pool().max_memory() < 500_000_000
    assert bars_html(columns, n - 1).count("x") < 100


def test_a_parquet_file_that_names_another_file(tmp_path):
    """A column chunk may say that it lies elsewhere; nothing but the bytes that came is looked at."""
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"attention": [[0.5, 0.5]]}), secret)
    data = parquet({"attention": [[0.25, 0.75]]})
    metadata = pq.read_metadata(io.BytesIO(data))
    metadata.set_file_path(str(secret))
    footer = io.BytesIO()
    metadata.write_metadata_file(footer)
    length = int.from_bytes(data[-8:-4], "little")
    crafted = data[: -8 - length] + footer.getvalue()[4:]
    assert str(secret).encode() in crafted
    try:
        columns, _ = reading.columns_of_file(crafted)
    except reading.InputError:
        return
    same_rows(columns["attention"], [[0.25, 0.75]])


# ---------------------------------------------------------------------------------------------- what is shown


def test_the_example():
    columns = reading.columns_of_texts(app.EXAMPLE)
    found = of_columns(columns)
    np.testing.assert_allclose(found.columns["tau"], [TAU[0], TAU[1], TAU[3]])
    assert found.n == found.results["n"] == 3
    for text in (found.message, found.numbers, found.histogram, found.bars):
        assert is_safe(text).tags
    assert ">0.655<" in found.numbers
    json.dumps(found.results, allow_nan=False)


def test_every_number_is_shown_with_what_it_means():
    columns = {
        "attention": ATTENTION,
        "importance": IMPORTANCE,
        "probs": [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]],
        "counterfactual_attention": ATTENTION[:3] + [[0.1, 0.4, 0.4, 0.1]],
        "counterfactual_probs": [[0.5, 0.5]] * 4,
    }
    found = of_columns({name: [np.array(row) for row in rows] for name, rows in columns.items()})
    names = re.findall(
        r"<code>(\w+)</code></td><td class=\"number\">([^<]+)</td><td>([^<]+)</td><td[^>]*>([^<]+)<", found.numbers
    )
    assert sorted(name for name, *_ in names) == sorted(found.results)
    shown = {name: (value, extent, meaning) for name, value, extent, meaning in names}
    assert shown["flip_fraction"][0] == f"{found.results['flip_fraction']:.3f}"
    assert shown["jsd"][1] == "0 to ln 2 = 0.693"
    assert shown["tie_ceiling"][2].startswith("mean of the largest |tau-b| that the ties allow")
    assert shown["kendall_tau_class_1_n"] == ("2", "0 to n", shown["kendall_tau_class_0_n"][2])
    assert shown["kendall_tau_class_0_ci_low"][0] == "undefined"  # of one instance
    assert len(Elements(found.numbers).tags) > 4 * len(names)


def test_histogram_counts_every_defined_instance():
    tau = np.array([-1, -0.95, 0.0, 0.05, 0.05, 1, np.nan])
    text = histogram_html(tau)
    bars = re.findall(r"<title>(\d+) between (-?[\d.]+) and (-?[\d.]+)</title>", text)
    assert bars == [("2", "-1.0", "-0.9"), ("3", "0.0", "0.1"), ("1", "0.9", "1.0")]
    heights = [float(height) for height in re.findall(r'height="([\d.]+)" fill', text)]
    assert heights == pytest.approx([heights[1] * 2 / 3, heights[1], heights[1] / 3], abs=0.1)
    words = "".join(is_safe(text).text)
    assert "6 of 7 instances; undefined for 1" in words and "mean \u22120.142" in words
    assert "0 of 1 instances" in histogram_html(np.array([np.nan]))


def test_bars_of_an_instance():
    columns = {
        "attention": [np.array([0.5, 0.0, 0.25, 0.25, 0.0])],
        "importance": [np.array([-1.0, 3.0, 1.0, 0.0, 3.0])],
        "tokens": [["a", "b", "c", "d", "e" * 50]],
        "tau": np.array([0.125]),
    }
    text = bars_html(columns, 0)
    elements = is_safe(text)
    cells = re.findall(r"<tr>(<td.*?)</tr>", text)
    values = [re.sub(r"<[^>]+>", " ", cell).split() for cell in cells]
    assert values[0] == ["1", "0.5", "a", "\u22121", "5"]
    assert values[1] == ["4=", "0", "b", "3", "1="]
    assert values[2] == ["2=", "0.25", "c", "1", "3"]
    assert values[4][2] == "e" * reading.MAX_TOKEN + "…"
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", text)]
    assert widths == [100, 25, 0, 75, 50, 25, 50, 0, 0, 75]  # attention of 0.5, importance of 4 from -1 to 3
    starts = re.findall(r"margin-left:(auto|[\d.]+%)", text)
    assert starts[1::2] == ["0.00%", "25.00%", "25.00%", "25.00%", "25.00%"]
    assert "τ-b 0.125" in "".join(elements.text)


def test_bars_where_there_is_little_to_draw():
    columns = {"attention": [None, np.array([]), np.array([1.0]), np.full(1000, 1e-3)], "importance": [np.array([1.0])] * 4}
    assert "undefined" not in bars_html({"attention": columns["attention"]}, 2)
    assert "no tokens, or is undefined" in bars_html({"attention": columns["attention"]}, 0)
    assert "no tokens, or is undefined" in bars_html({"attention": columns["attention"]}, 1)
    text = bars_html({"attention": columns["attention"]}, 3)
    assert "The first 400 of 1,000 tokens." in text and text.count('class="token"') == 400
    assert is_safe(bars_html(columns, 0)).text.count("1") == 2  # importance alone: its value and rank
    for outside in (-1, 4):
        assert "There is no row" in bars_html(columns, outside)
    assert bars_html({}, 0) == ""
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    is_safe(bars_html({"attention": [np.full(4, 0.25)], "importance": [values]}, 0))


def test_text_of_strangers_stays_text(record_file):
    columns, _ = reading.columns_of_file(
        json.dumps({"attention": [[1.0]], "importance": [[1.0]], "tokens": [[HOSTILE]]}).encode()
    )
    found = of_columns(columns)
    shown = reading.cut(HOSTILE).encode("utf-8", "replace").decode()
    assert shown in is_safe(found.bars).text
    bad = json.dumps({HOSTILE: 1}).encode()
    for data in (bad, HOSTILE.encode("utf-8", "replace") + b",b\n1,2\n", json.dumps({"attention": [[HOSTILE]]}).encode()):
        is_safe(of_file(data)[0].message)
    for chosen in ({"importance": HOSTILE}, {"cell": HOSTILE}):
        assert "<img" not in of_file(record_file, **chosen)[0].message
    with_other = json.dumps({"attention": [[1.0]], HOSTILE: 1}).encode()
    assert "Not used:" in "".join(is_safe(of_file(with_other)[0].message).text)
    hostile = parquet({"attention": [[1.0]], "tokens": [["</table><script>"]], "encoder": ["<b>"]})
    is_safe(of_file(hostile)[0].bars)


def test_what_does_not_fit_is_told():
    cases = {
        "row 0: attention sums to 3": {"attention": [[1, 2]]},
        "differ in their number of rows": {"attention": [[1]], "importance": [[1], [2]]},
        "row 0: tokens has 1 words for 2 values of attention": {"attention": [[0.5, 0.5]], "tokens": [["a"]]},
        "tokens has 2 rows and attention 1": {"attention": [[1]], "tokens": [["a"], ["b"]]},
        "there is no instance": {"attention": [], "importance": []},
        "Give attention": {"importance": [[1]]},
    }
    for message, columns in cases.items():
        found, _ = of_file(json.dumps(columns).encode())
        assert message in found.results["error"]
        assert html.escape(found.results["error"]) in found.message and 'role="alert"' in found.message
        assert (found.numbers, found.histogram, found.bars, found.columns, found.n) == ("", "", "", {}, 0)


def test_an_error_of_the_page_is_told_without_its_trace(logged):
    def fails():
        raise KeyError("secret")

    found, choices = app.answer(fails)
    assert choices is None and "secret" not in found.message + str(found.results)
    assert "the page failed on this input" in found.message
    assert any("KeyError" in logging.Formatter().format(record) for record in logged)


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")),
    st.sampled_from(["{", "[", "", "a,"]),
)
def test_whatever_comes_is_answered(text, start):
    """Either numbers or what is wrong; never another exception than those of `answer`."""
    for read in (
        lambda: (reading.columns_of_texts({"attention": text}), {"used": [], "aside": []}),
        lambda: reading.columns_of_file((start + text).encode("utf-8", "replace")),
    ):
        try:
            columns, _ = read()
        except reading.InputError as error:
            assert str(error)
        else:
            assert all(row is None or row.ndim == 1 for row in columns.get("attention", ()))


# ---------------------------------------------------------------------------------------------- the folder


def front_matter():
    return yaml.safe_load((METRIC_DIR / "README.md").read_text(encoding="utf-8").split("---", 2)[1])


def test_front_matter_of_a_space():
    found = front_matter()
    assert found["sdk"] == "gradio" and (METRIC_DIR / found["app_file"]).is_file()
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {found["colorFrom"], found["colorTo"]} <= colours
    assert len(found["emoji"]) == 1 and unicodedata.category(found["emoji"]) == "So"
    assert len(found["short_description"]) <= 60
    assert "evaluate" in found["tags"] and "metric" in found["tags"]


def test_requirements_are_what_was_tried(repository):
    lines = (METRIC_DIR / "requirements.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert set(pins) == {"datasets", "evaluate", "gradio", "numpy", "pyarrow", "scipy"}
    assert pins.pop("gradio") == front_matter()["sdk_version"]
    constraints = dict(line.split("==") for line in (repository / "constraints.txt").read_text().split())
    assert pins == {name: constraints[name] for name in pins}
    assert all(version(name) == pin for name, pin in pins.items())


def test_the_metric_loads_from_a_folder_of_any_name(evaluate, tmp_path):
    """A Space is checked out under a name of its own, and the page beside the script is no part of the metric."""
    folder = shutil.copytree(METRIC_DIR, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    metric = evaluate.load(str(folder / f"{METRIC_NAME}.py"))
    assert metric.compute(attention=ATTENTION, importance=IMPORTANCE)["kendall_tau"] == pytest.approx(np.nanmean(TAU))


def test_the_page_runs_as_a_script(tmp_path, warm_python):
    """As a Space runs it: by its file, in a folder of any name, and not as a part of a package."""
    folder = shutil.copytree(METRIC_DIR, tmp_path / "my.space", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "two.parquet").write_bytes(parquet({"attention": [[0.5, 0.5]], "importance": [[1.0, 2.0]]}))
    program = (
        "import runpy, sys\n"
        "page = runpy.run_path('app.py')\n"
        "columns, choices = page['columns_of_file'](open('../two.parquet', 'rb').read())\n"
        "print([row.tolist() for row in columns['importance']], choices['used'])\n"
        "print(sys.modules[page['columns_of_file'].__module__].__file__)"
    )
    done = subprocess.run([warm_python, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[[1.0, 2.0]] ['attention', 'importance']", str(folder / "reading.py")]
