"""Material for a survey: what a reader may see, what only the key says, and what is refused."""

import csv
import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import cli
from attnfaith import record as records
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.survey import QUESTIONS, survey_items, write_survey
from tests.deception import shuffled
from tests.records import build


WORDS = "a <b>bold</b> =SUM(A1) film & \u202eits end <script>alert(1)</script> came too soon for me".split()


def cell(seed=0, texts=12, *, words=WORDS, without=(), fingerprint="abc"):
    """A model whose attention is its own; texts of 3 to 12 words, the first without any."""
    own, instances = np.random.default_rng(seed + 50), []
    for number in range(texts):
        length = 0 if number == 0 else 3 + number % 9
        weights = own.dirichlet(np.ones(length)) if length else []
        probs = own.permutation([0.3, 0.7])
        instances.append(
            {"id": f"sst/test/{number}", "tokens": words[:length], "attention": weights, "probs": probs, "label": number % 2}
        )
    return split_cells(build([row for row in instances if row["id"] not in without], seed=seed, texts=fingerprint))[0]


def rows(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


class Page(HTMLParser):
    """Every tag, the text, and the words of each item with their shades."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.items, self.text, self.shade = [], [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "article":
            self.items.append([])
        if tag == "bdi" and self.items:
            self.shade = dict(attributes).get("class")

    def handle_data(self, data):
        self.text += data
        if self.shade:
            self.items[-1].append((data, int(self.shade[1:])))
            self.shade = None


@pytest.fixture
def material(tmp_path):
    cells = [cell(1), cell(2), cell(3)]
    paths = write_survey(cells, ["runs/honest", "runs/deceiving", "runs/third"], tmp_path / "survey", texts=7, seed=4)
    return cells, *paths


def test_every_item_is_one_text_of_one_model_and_the_key_says_which(material):
    cells, page, answers, key = material
    shown, sheet, kept = Page(page.read_text(encoding="utf-8")), rows(answers), rows(key)
    assert len(shown.items) == len(sheet) == len(kept) == 21
    names = {"runs/honest": cells[0], "runs/deceiving": cells[1], "runs/third": cells[2]}
    for words, answer, truth in zip(shown.items, sheet, kept, strict=True):
        assert answer["item"] == truth["item"]
        of = names[truth["run"]]
        row = of.instance_ids.index(truth["instance_id"])
        weights = of.attention[row]
        assert [shade for _, shade in words] == np.rint(10 * weights / weights.max()).astype(int).tolist()
        assert int(truth["seed"]) == of.identity.seed and answer["prediction"] == truth["predicted"] == str(
            of.predicted[row]
        )
        assert float(truth["probability"]) == pytest.approx(of.probs[row].max())
    assert "sst/test/0" not in {truth["instance_id"] for truth in kept}, "a text without tokens cannot be judged"


def test_every_part_has_each_text_once_and_models_equally_often(material):
    *_, answers, key = material
    kept = [{**truth, "part": answer["part"]} for truth, answer in zip(rows(key), rows(answers), strict=True)]
    assert len({truth["instance_id"] for truth in kept}) == 7
    assert len({(truth["instance_id"], truth["run"]) for truth in kept}) == 21
    for part in "123":
        texts, runs = zip(*((truth["instance_id"], truth["run"]) for truth in kept if truth["part"] == part), strict=True)
        assert len(set(texts)) == 7 and max(map(runs.count, runs)) - min(map(runs.count, runs)) <= 1
        assert len(set(runs)) == 3
    assert [truth["run"] for truth in kept[:3]] != [truth["run"] for truth in kept[7:10]]


def test_nothing_to_hand_out_names_a_model_and_no_answer_is_filled(material):
    _, page, answers, _ = material
    for path in (page, answers):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"honest|deceiving|bilstm|additive|softmax|classification|seed|sst|test/", text)
    assert all(answer[question] == "" for answer in rows(answers) for question in QUESTIONS)


def test_texts_are_escaped_and_the_page_needs_nothing_beside_it(material):
    _, page, answers, key = material
    text = page.read_text(encoding="utf-8")
    shown = Page(text)
    assert not {"script", "b", "img", "link", "a", "iframe"} & set(shown.tags)
    assert "<script>alert(1)</script>" in shown.text and "[U+202E]" in shown.text and "\u202e" not in text
    assert "default-src 'none'" in text and "http" not in text.replace("http-equiv", "")
    assert not any(
        value.startswith(("=", "+", "-", "@")) for path in (answers, key) for row in rows(path) for value in row.values()
    )


def test_a_formula_is_text_in_a_spreadsheet(tmp_path):
    of = cell(1, words=["=HYPERLINK(1)", "so", "it", "is"] + WORDS)
    _, answers, _ = write_survey([of], ["=run"], tmp_path / "survey", texts=3)
    assert all(row["text"].startswith("'=HYPERLINK(1)") for row in rows(answers))
    assert rows(tmp_path / "survey" / "key.csv")[0]["run"] == "'=run"


def test_the_same_seed_gives_the_same_bytes_whatever_the_order_of_rows(tmp_path):
    cells, names = [cell(1), cell(2)], ["one", "two"]
    first = write_survey(cells, names, tmp_path / "first", texts=5, seed=1)
    again = write_survey([shuffled(of) for of in cells], names, tmp_path / "again", texts=5, seed=1)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    drawn = {seed: {cells[item.run].instance_ids[item.row] for item in survey_items(cells, 5, seed)} for seed in range(8)}
    assert len(set(map(frozenset, drawn.values()))) > 1, "another seed draws other texts"
    reverse = {cells[::-1][item.run].instance_ids[item.row] for item in survey_items(cells[::-1], 5, 1)}
    assert reverse == drawn[1], "the texts do not hang on the order of the models"


def test_texts_are_those_that_all_hold():
    cells = [cell(1), cell(2, without=("sst/test/4", "sst/test/5"))]
    drawn = {cells[item.run].instance_ids[item.row] for item in survey_items(cells, 9, 0)}
    assert drawn == {f"sst/test/{number}" for number in (1, 2, 3, 6, 7, 8, 9, 10, 11)}


def says(capsys, *words):
    assert cli.main(["survey", *map(str, words)]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 2
    return shown.splitlines()[0].removeprefix("error: ")


@pytest.fixture
def saved(tmp_path):
    """Paths of records: two of the same texts, one of others, one of subwords."""
    made = {"a": cell(1).table, "b": cell(2).table, "other": cell(3, fingerprint="def").table}
    subwords = build([{"attention": [0.25, 0.25, 0.5], "tokens": ["un", "##seen", "it"]}], seed=5)
    field = records.OPTIONAL_COLUMNS["word_of_token"].field("word_of_token")
    made["subwords"] = subwords.append_column(field, pa.array([[0, 0, 1]], field.type))
    for name, table in made.items():
        records.save(table, tmp_path / f"{name}.parquet")
    return {name: tmp_path / f"{name}.parquet" for name in made}


def test_the_command(saved, tmp_path, capsys):
    words = [saved["a"], saved["b"], "--output", tmp_path / "s", "--texts", "4", "--questions", "Why?"]
    page, answers, key = cli.COMMANDS["survey"]([*map(str, words)])
    assert [path.name for path in (page, answers, key)] == ["survey.html", "answers.csv", "key.csv"]
    assert "texts: 4, models: 2" in capsys.readouterr().out
    assert list(rows(answers)[0]) == ["item", "part", "prediction", "text", "Why?"]
    assert {row["run"] for row in rows(key)} == {str(saved["a"]), str(saved["b"])}


def test_subwords_are_shown_as_words(saved, tmp_path):
    _, answers, _ = cli.COMMANDS["survey"]([str(saved["subwords"]), "--output", str(tmp_path / "s"), "--texts", "1"])
    assert rows(answers)[0]["text"] == "unseen it"


def test_refusals_are_one_line(saved, tmp_path, capsys):
    a, b, output = saved["a"], saved["b"], ["--output", tmp_path / "s"]
    assert says(capsys, a, saved["other"], *output).startswith("the models read different texts: sst (test) · bilstm")
    assert says(capsys, a, b, *output) == (
        "--texts 200: the runs share 11 texts that have a token; ask for at most that many, or measure more"
    )
    assert says(capsys, a, b, *output, "--texts", 0) == "--texts 0: a survey has at least 1 text"
    assert says(capsys, a, *output, "--seed", -1) == "--seed -1: a whole number of 0 or more"
    assert says(capsys, a, *output, "--texts", 2, "--questions", " ") == "--questions: each is at least one word"
    assert not (tmp_path / "s").exists(), "nothing is left of what was refused"
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(a.read_bytes())
    assert says(capsys, a, copy, *output, "--texts", 2).startswith("two of the runs are of one model and seed")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "answers.csv").write_text("mine")
    assert says(capsys, a, b, *output, "--texts", 2) == (
        f"{tmp_path / 's'} is there and not empty: it may hold answers; give a new folder"
    )
    assert (tmp_path / "s" / "answers.csv").read_text() == "mine"
