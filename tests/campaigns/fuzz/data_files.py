"""Files of data: a user's own in every format, data sets in the form of their publication, sentence pairs and vectors."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith import recipes
from attnfaith.api.texts import Columns, read_texts
from attnfaith.data.eraser import read_annotations, read_results, write_annotations, write_results
from attnfaith.data.own_data import read_own
from attnfaith.data.own_data import read_texts as read_own_texts
from attnfaith.data.own_files import read_file
from attnfaith.data.pairs.links import read_links
from attnfaith.data.pairs.loading import load_pairs
from attnfaith.data.registry import DATASETS
from attnfaith.data.stories import rows_of_stories
from attnfaith.data.vectors import load_vectors
from tests.campaigns.fuzz.hostile import as_json, changed, damaged, displaced, value
from tests.campaigns.fuzz.probe import Case


ROWS = [
    {"text": f"the {word} film, “{word}”", "label": label, "rationale": [0, 1, 0, 0][: 2 + number % 3], "text_pair": "why"}
    for number, (word, label) in enumerate(zip("good bad fine poor old new dull fast".split(), [1, 0] * 4, strict=True))
]


def _csv(mark: str) -> bytes:
    lines = [mark.join(("text", "label", "text_pair"))]
    lines += [mark.join((f'"{row["text"]}"', str(row["label"]), row["text_pair"])) for row in ROWS]
    return "\n".join([*lines, ""]).encode()


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


CONTENTS: dict[str, bytes] = {
    "a.csv": _csv(","),
    "b.csv": _csv(";"),
    "a.tsv": _csv("\t"),
    "a.csv.gz": gzip.compress(_csv(","), mtime=0),
    "a.json": json.dumps(ROWS).encode(),
    "a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "a.ndjson.gz": gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode(), mtime=0),
    "a.parquet": _parquet(pa.Table.from_pylist(ROWS)),
}


def _data(path: Path, chance: Random) -> recipes.Data:
    words = {} if chance.random() < 0.8 else {"impermissible_words": ["film", "the"]}
    return recipes.Data(path=str(path), text="text", label="label", validation_share=0.25, test_share=0.25, **words)


class OwnFiles:
    """A file of a user's own texts, by each of the ways that it is read: alone, as texts to measure, as data to train on."""

    name, inputs, batch = "own files", 2000, 250

    def __init__(self, folder: Path):
        pass

    def case(self, chance: Random, folder: Path) -> Case:
        name = chance.choice([*CONTENTS])
        path, kind = folder / name, chance.random()
        path.write_bytes(CONTENTS[name])
        if kind < 0.03:
            said = displaced(chance, path)
        elif kind < 0.5 and name in ("a.json", "a.jsonl", "a.parquet"):
            said = _rewritten(chance, path)
        elif name.endswith(".gz") and kind < 0.7:
            content, said = damaged(chance, gzip.decompress(CONTENTS[name]))
            path.write_bytes(gzip.compress(content))
        else:
            content, said = damaged(chance, CONTENTS[name])
            path.write_bytes(content)
        how = (
            {}
            if chance.random() < 0.7
            else {"encoding": chance.choice(("utf-16", "latin-1", "cp1252", "utf-7", "idna", "x"))}
        )
        ways: tuple[Callable[[], object], ...] = (
            lambda: read_file(path, **how),
            lambda: read_file(path, ["text", "label"], limit=3, **how),
            lambda: read_texts(str(path), None, Columns(), None).labelled(("0", "1"), 2),
            lambda: read_own(_data(path, Random(0))),
            lambda: read_own_texts(_data(path, Random(0)), "train", 3),
        )
        way = chance.randrange(len(ways))
        return Case(ways[way], f"{name} read in way {way} {how or ''}: {said}", path)


def _rewritten(chance: Random, path: Path) -> str:
    """Change values of a file of rows; what was done."""
    if path.suffix == ".parquet":
        for _ in range(20):
            rows, said = changed(chance, ROWS)
            try:
                columns = {name: [row.get(name) for row in rows] for name in ROWS[0]}
                table = pa.table({name: _array(chance, values) for name, values in columns.items()})
            except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
                continue
            pq.write_table(table, path)
            return said
        return "unchanged"
    rows, said = changed(chance, ROWS)
    if path.suffix == ".jsonl" and isinstance(rows, list):
        path.write_bytes(b"\n".join(map(as_json, rows)))
    else:
        path.write_bytes(as_json(rows))
    return said


def _array(chance: Random, values: list) -> pa.Array:
    kind = chance.choice(
        (None, None, None, pa.string(), pa.binary(), pa.int8(), pa.list_(pa.string()), pa.float16(), pa.timestamp("s"))
    )
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        return pa.array(values)


BABI = (
    "1 Mary moved to the bathroom.\n2 John went to the hallway.\n3 Where is Mary?\tbathroom\t1\n"
    "4 Daniel went back.\n5 Where is John?\thallway\t2\n1 Sandra moved.\n2 Where is Sandra?\tgarden\t1\n"
)
NEWS = (
    "http://a.b/c\n\n@entity1 said so about @entity2 .\n\nwho did @placeholder say ?\n\n@entity1\n\n@entity1:A\n@entity2:B\n"
)
ZHANG = '"1","a title","a text"\n"2","another","the ""text"""\n"4","x","y"\n'
STORIES = [
    {
        "story": {
            "id": ["1", "2"],
            "type": [0, 1],
            "text": ["Mary moved.", "Where is Mary?"],
            "supporting_ids": [[], ["1"]],
            "answer": ["", "garden"],
        }  # fmt: skip
    }
]
TEXTS = [
    {"instance_id": "a", "text": "a b c\nd e", "label": "POS", "rationale": [1, 1, 0, 0, 1], "text_pair": "q"},
    {"instance_id": "b", "text": "f g", "label": "NEG", "rationale": [0, 0]},
]
RESULTS = [
    {"instance_id": "a", "scores": [0.1, 0.2, 0.3, 0.1, 0], "chosen": [0, 1, 1, 0, 0], "classification": "POS"},
    {"instance_id": "b", "scores": [1, 2], "chosen": [0, 1], "classification_scores": {"POS": 0.5, "NEG": 0.5}},
]


class Published:
    """ERASER's files, and bAbI's table of the Hub."""

    name, inputs, batch = "published forms", 1200, 300

    def __init__(self, folder: Path):
        folder.mkdir(exist_ok=True)
        write_annotations(folder, "val", TEXTS)
        write_results(folder / "results.jsonl", RESULTS)
        self.lines = {name: (folder / name).read_bytes() for name in ("val.jsonl", "docs.jsonl", "results.jsonl")}

    def case(self, chance: Random, folder: Path) -> Case:
        kind = chance.choice(("eraser", "eraser", "results", "table"))
        if kind == "table":
            rows, said = changed(chance, STORIES)
            return Case(lambda: rows_of_stories(_stories(rows), DATASETS["babi_qa_1"], "train"), said)
        for name, content in self.lines.items():
            (folder / name).write_bytes(content)
        path = folder / ("results.jsonl" if kind == "results" else chance.choice(("val.jsonl", "docs.jsonl")))
        if (how := chance.random()) < 0.05:
            said = displaced(chance, path)
        elif how < 0.6:
            rows, said = changed(chance, [json.loads(line) for line in path.read_text().splitlines()])
            path.write_bytes(b"\n".join(map(as_json, rows)) if isinstance(rows, list) else as_json(rows))
        else:
            content, said = damaged(chance, path.read_bytes())
            path.write_bytes(content)
        if kind == "results":
            return Case(lambda: read_results(path, {"a": 5, "b": 2}), f"{path.name}: {said}", path)
        return Case(lambda: read_annotations(folder, "val"), f"{path.name}: {said}", path)


def _stories(rows) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows) if isinstance(rows, list) else pa.table({"story": [None]})
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):  # no table holds such rows
        return pa.table({"story": [None]})


PAIRS = {"src": "das Haus\nein altes Haus\n", "trg": "the house\nan old house\n", "align": "0-0 1-1\n0-0 1p1 2-2\n"}
VECTORS = "good 0.1 0.2 0.3\nbad 1 2 3\n. . . 4 5 6\n"


class Pairs:
    """A folder of sentence pairs with their links, a line of links, and files of word vectors."""

    name, inputs, batch = "pairs, links and vectors", 1200, 300

    def __init__(self, folder: Path):
        pass

    def case(self, chance: Random, folder: Path) -> Case:
        kind = chance.choice(("pairs", "pairs", "links", "vectors"))
        if kind == "links":
            content, said = damaged(chance, b"0-0 1-1 2p2 3?1")
            line = content.decode("utf-8", "replace")
            first = chance.choice((0, 0, 0, 1, value(chance)))
            return Case(lambda: read_links(line, 4, 3, first=first), f"{line[:200]!r}, first={str(type(first))}: {said}")
        if kind == "vectors":
            path = folder / chance.choice(("v.txt", "v.txt.gz", "v.parquet"))
            if path.suffix == ".parquet":
                content = _parquet(pa.table({"word": ["good", "bad"], "vector": [[0.1, 0.2], [1.0, 2.0]]}))
            else:
                content = VECTORS.encode()
            content, said = damaged(chance, content)
            path.write_bytes(gzip.compress(content) if path.suffix == ".gz" and chance.random() < 0.7 else content)
            if path.suffix == ".parquet" and chance.random() < 0.6:
                rows, said = changed(chance, [{"word": "good", "vector": [0.1, 0.2]}, {"word": "bad", "vector": [1, 2]}])
                pq.write_table(_words(rows), path)
            return Case(lambda: load_vectors(path, ["<pad>", "good", "bad"]), f"{path.name}: {said}", path)
        for split in ("train", "dev", "test"):
            for ending, text in PAIRS.items():
                (folder / f"{split}.{ending}").write_text(text)
        path = folder / f"train.{chance.choice([*PAIRS])}"
        content, said = damaged(chance, path.read_bytes())
        path.write_bytes(content)
        if chance.random() < 0.05:
            said = displaced(chance, path)
        first = chance.choice((0, 0, 1))
        return Case(lambda: load_pairs(path=str(folder), links_from=first), f"{path.name}, from {first}: {said}", path)


def _words(rows) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        return pa.table({"word": [1], "vector": [["a"]]})
