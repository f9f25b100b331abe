"""A file of a user's own: every value as it stands, what is assumed said, and one clear line for what cannot be read."""

import bz2
import codecs
import gzip
import json
import lzma
import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data import file_text, own_files
from attnfaith.data.own_files import DatasetError, OwnFile, as_text, draw_rows, read_file


ROWS = [("Schön, und gut", "007"), ('sie sagt "nein",\nund geht', "NA"), ("null", "None")]
CSV = 'text,label\n"Schön, und gut",007\n"sie sagt ""nein"",\nund geht",NA\nnull,None\n'


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def rows_of(table):
    return list(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def assumed(table):
    return table.schema.metadata[b"assumed"].decode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV.encode()),
        ("a.CSV", CSV.replace("\n", "\r\n").replace(",\r\nund", ",\nund").encode()),
        ("bom.csv", CSV.encode("utf-8-sig")),
        ("utf16.csv", CSV.encode("utf-16")),
        ("utf16be.csv", codecs.BOM_UTF16_BE + CSV.encode("utf-16-be")),
        ("utf32.csv", CSV.encode("utf-32")),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.csv.bz2", bz2.compress(CSV.encode())),
        ("a.csv.xz", lzma.compress(CSV.encode())),
        ("blank_lines.csv", CSV.replace("\nnull", "\n\n\nnull").encode() + b"\n\n"),
        ("no_last_end.csv", CSV.encode()[:-1]),
        ("a.jsonl", "".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in ROWS).encode()),
        ("a.ndjson", "\n\n".join(json.dumps({"label": n, "text": t}, ensure_ascii=False) for t, n in ROWS).encode()),
        ("a.json", json.dumps([{"text": t, "label": n, "more": 1} for t, n in ROWS], indent=1).encode()),
        ("lines.json", "".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in ROWS).encode()),
    ],
    ids=lambda value: ascii(value)[1:41],
)
def test_values_are_read_as_they_stand(written, name, content):
    table = read_file(written(name, content), ["text", "label"])
    assert rows_of(table) == ROWS and not assumed(table)
    assert table.schema.types == [pa.large_string()] * 2 and table.schema.metadata[b"rows"] == b"3"


def test_parquet(tmp_path):
    table = pa.table({"more": [1, 2, 3], "text": [t for t, _ in ROWS], "label": pa.array([1, None, 0], pa.int8())})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_file(tmp_path / "a.parquet", ["text", "label"]).to_pydict() == table.select(["text", "label"]).to_pydict()
    assert read_file(tmp_path / "a.parquet").column_names == ["more", "text", "label"]


@pytest.mark.parametrize(("mark", "name"), [(";", "a.csv"), ("\t", "a.csv"), ("|", "a.csv"), ("\t", "a.tsv")])
def test_what_parts_fields_is_seen_and_said(written, mark, name):
    table = read_file(written(name, f"text{mark}label\nja, nein{mark}1\n"))
    assert rows_of(table) == [("ja, nein", "1")]
    assert ("parted by" in assumed(table)) == (name == "a.csv")


def test_a_delimiter_and_quotes_may_be_given(written):
    path = written("a.csv", "a:text;label\nx;y:2\n")
    assert rows_of(read_file(path, delimiter=":")) == [("x;y", "2")]
    path = written("b.tsv", 'text\tlabel\n"Gut" gemacht\t1\n')
    assert rows_of(read_file(path, quotes=False)) == [('"Gut" gemacht', "1")]
    assert rows_of(read_file(written("c.csv", "text\tlabel\na,b\t1\n"), delimiter="tab")) == [("a,b", "1")]


def test_an_old_encoding_is_assumed_and_said(written):
    path = written("a.csv", "text,label\ngrün und weiß,1\n".encode("cp1252"))
    table = read_file(path)
    assert rows_of(table) == [("grün und weiß", "1")] and "read as Windows-1252" in assumed(table)
    assert "at byte 13" in assumed(table)
    table = read_file(written("b.csv", "text,label\nŁódź,1\n".encode("iso8859-2")), encoding="iso8859-2")
    assert rows_of(table) == [("Łódź", "1")] and not assumed(table)


def test_broken_characters_far_into_a_file_are_seen(written, monkeypatch):
    monkeypatch.setattr(file_text, "CHUNK", 64)
    path = written("a.csv", b"text,label\n" + b"a,1\n" * 100 + "ä,1\n".encode() + "ä,1\n".encode("cp1252"))
    assert OwnFile.of(path).encoding == "cp1252"  # by what stands at its end
    path = written("b.csv", b"text,label\n" + ("ä" * 300 + ",1\n").encode())  # characters over the edge of two blocks
    assert OwnFile.of(path).encoding == "utf-8"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "", "a.csv is empty$"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), "a.csv.gz is empty$"),
        ("a.csv", "\n\n", "has no line with text"),
        ("a.csv", "text,label\n", r"has columns \(text, label\) and no rows"),
        ("a.jsonl", "\n", "has columns|no rows"),
        ("a.csv", "text,label\na,1\nb, 2, 3\n", r"line 3: 3 fields, and the first line names 2 \(text, label\)"),
        ("a.csv", 'text,label\n"a\nb",1\nc\n', "line 4: 1 field,"),
        ("a.csv", "text,label,text\na,1,b\n", "has 2 columns called 'text'"),
        ("a.csv", 'text,label\n"a" b,1\n', "from line 2: .*quotation mark is written twice"),
        ("a.csv", 'text,label\na,1\n"a,1\nb,1\n', "from line 3: unexpected end of data"),
        ("a.csv", b"text,label\na\0b,1\n", "byte 12 is NUL"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is no text: byte 8 is NUL"),
        ("a.csv", b"PK\x03\x04\x14\0\x06", "is no CSV; it is a spreadsheet or a zip archive: .* save the sheet as CSV"),
        ("a.csv", gzip.compress(b"text,label\n", mtime=0), "compressed by gzip: give it a name that ends in .gz"),
        ("a.csv", b"PAR1\x15\x04", "give it a name that ends in .parquet"),
        ("a.docx", b"abcd", "only names that end in .csv"),
        ("a", b"abcd", "only names that end in .csv"),
        ("a.parquet", b"abc", "a.parquet cannot be read"),
        ("a.csv.gz", gzip.compress(CSV.encode() * 50, mtime=0)[:-20], "a.csv.gz cannot be read: Compressed file ended"),
        ("a.csv.gz", b"text,label\na,1\n", "a.csv.gz cannot be read: Not a gzipped file"),
        ("a.csv", b"text,label\na\x81\xff,1\n", r"neither UTF-8 \(see byte 12\) nor Windows-1252"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b",\n', "line 2: no JSON"),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n[1]\n', r"line 3: \[1\] is no object"),
        ("a.jsonl", '{"text": "a\\ud800", "label": 1}\n', "line 1: no JSON"),
        ("a.json", '[{"text": "a"}, 3]', "row 1: 3 is no object"),
        ("a.json", '{"text": "a"} {"text": "b"}', "line 1: no JSON"),
        ("a.json", "[" * 100_000, "no JSON"),
    ],
    ids=lambda value: ascii(value)[1:41],
)
def test_what_cannot_be_read(written, name, content, says):
    with pytest.raises(DatasetError, match=says) as refusal:
        read_file(written(name, content))
    assert "\n" not in str(refusal.value) and name in str(refusal.value)


def test_names_that_are_not_there(written, tmp_path):
    path = written("reviews.csv", "Review,Topic\na,1\n")
    with pytest.raises(DatasetError, match=r"no file at .*reviws.csv; did you mean .*reviews.csv\?"):
        read_file(tmp_path / "reviws.csv")
    with pytest.raises(DatasetError, match="no file at .*: there is no folder"):
        read_file(tmp_path / "nowhere" / "reviews.csv")
    with pytest.raises(DatasetError, match="no column 'reviw'; did you mean 'Review'"):
        read_file(path, ["reviw"])
    with pytest.raises(DatasetError, match="no column 'zzz'; there are Review, Topic, the names of its first line"):
        read_file(path, ["zzz"])
    with pytest.raises(DatasetError, match="is a folder"):
        read_file(tmp_path)
    with pytest.raises(DatasetError, match="cannot be read"):
        read_file("a" * 5000 + ".csv")
    with pytest.raises(DatasetError):
        read_file("a\0.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DatasetError, match="neither a file nor a folder"):
        read_file(tmp_path / "pipe.csv")


def test_encodings_and_delimiters_that_there_are_not(written):
    path = written("a.csv", "täxt,label\na,1\n")
    with pytest.raises(DatasetError, match="'utf-88' is none that Python knows; did you mean utf-8"):
        read_file(path, encoding="utf-88")
    with pytest.raises(DatasetError, match="none that Python knows, such as"):
        read_file(path, encoding="qqqqq")
    with pytest.raises(DatasetError, match="'base64' is none"):
        read_file(path, encoding="base64")
    with pytest.raises(DatasetError, match="not in the encoding ascii"):
        read_file(path, encoding="ascii")
    for delimiter in ("", ",,", '"', "\n"):
        with pytest.raises(DatasetError, match="must be one character"):
            read_file(path, delimiter=delimiter)


def test_a_field_that_never_ends_is_no_text(written, monkeypatch):
    monkeypatch.setattr(own_files, "LONGEST", 1000)
    monkeypatch.setattr(file_text, "LONGEST", 1000)
    with pytest.raises(DatasetError, match="from line 2: field larger than field limit"):
        read_file(written("a.csv", 'text,label\n"a,1\n' + "b,1\n" * 1000))
    with pytest.raises(DatasetError, match="line 2: more than 1,000 characters"):
        read_file(written("b.csv", "text,label\n" + "b" * 2000))


def test_a_long_text_is_read_whole(written):
    text = "wort " * 100_000
    assert rows_of(read_file(written("a.csv", f"text,label\n{text},1\n"))) == [(text, "1")]


def test_mixed_types_of_json_become_texts(written):
    lines = [{"a": 1, "b": "x", "c": None, "d": 1}, {"a": 2, "b": 3, "c": 1, "d": 2.5}, {"b": True, "c": [1], "d": None}]
    table = read_file(written("a.jsonl", "\n".join(map(json.dumps, lines))))
    assert table.to_pydict() == {"a": [1, 2, None], "b": ["x", "3", "true"], "c": [None, "1", "[1]"], "d": [1.0, 2.5, None]}
    assert rows_of(read_file(written("b.jsonl", '{"a": NaN}\n{"a": "x"}'))) == [(None,), ("x",)]
    assert [as_text(value) for value in ("a", 1, 1.5, True, {"ä": 1})] == ["a", "1", "1.5", "true", '{"ä": 1}']


def test_types_that_differ_between_batches_become_texts(written, monkeypatch):
    monkeypatch.setattr(own_files, "BATCH", 2)
    path = written("a.jsonl", "\n".join(json.dumps({"a": value}) for value in [1, 2, None, None, "x"]))
    assert rows_of(read_file(path)) == [("1",), ("2",), (None,), (None,), ("x",)]


def test_rows_are_drawn_alike_and_evenly():
    counts = np.zeros(20)
    for seed in range(600):
        n, drawn = draw_rows(range(20), 5, seed)
        assert n == 20 and drawn == sorted(drawn) and len(set(drawn)) == 5
        counts[drawn] += 1
    assert draw_rows(range(20), 5, 1) == draw_rows(iter(range(20)), 5, 1) != draw_rows(range(20), 5, 2)
    assert np.abs(counts / 600 - 0.25).max() < 0.08  # 4.5 standard errors
    assert draw_rows(range(3), 5, 0) == (3, [0, 1, 2])
    with pytest.raises(DatasetError, match="limit=0"):
        draw_rows(range(3), 0, 0)


def test_a_limit_bounds_memory(written):
    path = written("a.csv", "text,label\n" + "".join(f"{'w' * 200} {row},1\n" for row in range(30_000)))
    OwnFile.of(path)  # what is imported is imported
    tracemalloc.start()
    table = read_file(path, limit=10, seed=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) == 10 and table.schema.metadata[b"rows"] == b"30000"
    assert peak < 4_000_000 < path.stat().st_size


def test_the_limit_of_a_field_is_that_of_others_again(written):
    import csv

    before = csv.field_size_limit()
    assert rows_of(read_file(written("a.csv", f'text,label\n"{"a " * before}",1\n'), ["text", "label"]))
    assert csv.field_size_limit() == before
