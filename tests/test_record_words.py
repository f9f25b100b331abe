"""A record over subwords summed to words: against sums written out, what is left out and said, and the report of it."""

import re
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import cli, record
from attnfaith.measurement.registry import find, names
from attnfaith.record.words import RULES
from attnfaith.reporting import eraser
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.reporting.errors import ReportError
from tests.records import draw, of_cell
from tests.subword_tokenizers import train


pytestmark = pytest.mark.slow


SUMMED = {
    "integrated_gradients": sum,
    "gradient": sum,
    "gradient_norm": lambda values: np.sqrt(sum(value**2 for value in values)),
}


def subwords(count=30, seed=4):
    """A record of random texts whose tokens are subwords: words of one to four tokens, an empty text, one of one token."""
    generator = np.random.default_rng(seed)
    table = draw(count, measures=(*SUMMED, "leave_one_out"), seed=seed)
    lengths = [len(row) for row in record.rows(table, "attention")]
    owners, tokens, marks = [], [], []
    for length in lengths:
        begins = generator.random(length) < 0.5
        begins[:1] = True
        owners.append(np.cumsum(begins) - 1)
        tokens.append([f"t{place}" if new else f"##s{place}" for place, new in enumerate(begins)])
        marks.append((generator.random(length) < 0.3).astype(np.float32))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    columns |= {"tokens": tokens, "word_of_token": owners, "rationale": marks}
    extra = {f"importance_{name}": module_columns(name)[f"importance_{name}"] for name in (*SUMMED, "leave_one_out")}
    extra |= {name: record.OPTIONAL_COLUMNS[name] for name in ("word_of_token", "rationale")}
    extra["permuted_probs"] = record.Column(("K", "C"))
    columns["permuted_probs"] = [[[0.5, 0.5]]] * count
    made = record.build(columns, extra)
    identity = asdict(one_cell(made).identity)
    return record.with_settings(made, [{"identity": identity, "columns": {}, "label_names": ["a", "b"]}])


def module_columns(name):
    return find(name).columns


def test_words_by_hand():
    table = subwords()
    summed = record.by_word(table)
    rows, words = table.to_pylist(), summed.to_pylist()
    assert len(rows) == len(words) == 30
    for row, of_words in zip(rows, words, strict=True):
        places = [
            [place for place, owner in enumerate(row["word_of_token"]) if owner == word]
            for word in range(max(row["word_of_token"], default=-1) + 1)
        ]
        assert of_words["tokens"] == ["".join(row["tokens"][place].removeprefix("##") for place in word) for word in places]
        expected = {"attention": sum, "rationale": max} | {f"importance_{name}": of for name, of in SUMMED.items()}
        for name, of in expected.items():
            values = [of([row[name][place] for place in word]) for word in places]
            np.testing.assert_allclose(of_words[name], values, rtol=1e-5, atol=1e-6)
        assert record.from_row(of_words).level == "word" and record.from_row(row).level == "token"
        for name in ("instance_id", "probs", "label", "truncated", "texts"):
            assert of_words[name] == row[name]
    assert any(len(row["tokens"]) < len(other["tokens"]) for row, other in zip(words, rows, strict=True))


def test_what_does_not_follow_is_left_out_and_said():
    summed = record.by_word(subwords())
    assert not {"importance_leave_one_out", "permuted_probs", "word_of_token"} & set(summed.column_names)
    (part,) = record.settings(summed)
    assert set(part["words"]["left_out"]) == {"importance_leave_one_out", "permuted_probs"}
    assert part["words"]["rules"]["attention"] == "sum" and part["words"]["rules"]["importance_gradient_norm"] == "length"
    assert one_cell(summed).settings["label_names"] == ["a", "b"]  # the settings are still found by the identity


def test_a_record_of_words_is_refused():
    for words in (draw(4), record.by_word(subwords())):
        with pytest.raises(record.RecordError, match="'word_of_token'"):
            record.by_word(words)


def test_beside_subwords_other_tokens_are_words():
    table = subwords(6).drop_columns(["rationale", "permuted_probs"])
    other = draw(5, measures=(*SUMMED, "leave_one_out"))
    other = other.set_column(other.column_names.index("seed"), other.schema.field("seed"), pa.array([77] * 5))
    joined = record.concatenate([table, other], mix_versions=True)
    alone = [list(range(len(row))) for row in record.rows(other, "attention")]
    assert joined.column("word_of_token").to_pylist()[6:] == alone
    words = record.by_word(joined)
    np.testing.assert_array_equal(record.rows(words, "attention")[-1], record.rows(other, "attention")[-1])


def test_no_files_of_words_are_made_of_subwords():
    with pytest.raises(ReportError, match="the record is of subwords, ERASER's files are of words"):
        eraser.annotations(one_cell(subwords(4)))


def test_every_measure_says_how_it_is_of_words():
    """A measure that is signed adds up, but those that take tokens away; a rule is one of RULES."""
    said = {
        name: column.words
        for module in names()
        for name, column in module_columns(module).items()
        if name.startswith("importance_")
    }
    assert set(said.values()) <= {"", *RULES}
    without = {name.removeprefix("importance_") for name, rule in said.items() if not rule}
    assert without == {
        *("leave_one_out", "leave_one_out_hidden", "leave_one_out_reproject_hidden"),
        *("occlusion", "occlusion_hidden", "random", "uniform"),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A complete run over subwords of the planted evidence, whose tokenizer was trained on letters."""
    folder = tmp_path_factory.mktemp("subwords")
    tokenizer = train("wordpiece", folder / "tokenizer", texts=["the abcdefghijklmnopqrstuvwxyz . great awful film"])
    sizes = "{length: [4, 8], vocabulary_size: 40, sizes: {train: 32, validation: 16, test: 16}}"
    cli.COMMANDS["train"](
        [
            *("--name", "subwords", "--output_dir", str(folder / "run"), "--data.tokenizer", str(tokenizer)),
            *("--data.arguments", sizes, "--model.embedding_size", "8", "--model.hidden_size", "8"),
            *("--training.num_train_epochs", "1", "--training.arguments", "{disable_tqdm: true}"),
            *("--measure.producers", "[gradient_norm, integrated_gradients, leave_one_out]"),
        ]
    )
    return folder / "run"


def test_a_run_over_subwords(run):
    table = record.load(run / "record.parquet")
    (part,) = record.settings(table)
    assert part["run"]["tokenizer"]["name"] == "tokenizer" and part["run"]["tokenizer"]["revision"] == "local"
    assert re.fullmatch("[0-9a-f]{12}", part["run"]["tokenizer"]["digest"])
    (cell,) = split_cells(table)
    assert cell.heading["encoder"] == f"bilstm(tokenizer {part['run']['tokenizer']['digest']})"
    twin = of_cell(table, tokenizer_digest="0123456789ab")
    assert [len(one) for one in split_cells(record.concatenate([table, twin]))] == [16, 16]  # told apart by that alone
    marks, owners = record.rows(table, "rationale"), record.rows(table, "word_of_token")
    assert any(row.any() for row in marks)
    for row, owner in zip(marks, owners, strict=True):  # all tokens of a word are evidence, or none
        assert len({(word, mark) for word, mark in zip(owner.tolist(), row.tolist(), strict=True)}) == owner.max() + 1
    assert "subwords; ## stands before one" in (run / "report" / "index.html").read_text()


def test_its_report_on_words(run, capsys):
    page = cli.COMMANDS["report"]([str(run), "--words"])
    assert page == run / "report_words" / "index.html"
    html = page.read_text()
    assert "words, each made of its subwords: " in html
    assert re.search("Left out, for it does not follow from subwords: [^<]*leave_one_out", html)
    table = record.by_word(record.load(run / "record.parquet"))
    texts = [" ".join(tokens) for tokens in table.column("tokens").to_pylist()]
    assert not any("##" in text for text in texts)
    agreement = (run / "report_words" / "tables" / "agreement.csv").read_text()
    assert "gradient_norm" in agreement and "leave_one_out" not in agreement


def test_a_checkpoint_over_subwords_is_loaded_without_our_code(run):
    from transformers import AutoTokenizer

    from attnfaith.runs.checkpoint import load_model, load_tokenizer
    from attnfaith.subjects import subject_of

    loaded = AutoTokenizer.from_pretrained(run / "model", trust_remote_code=False)
    model = load_model(run)
    assert model.config.pad_token_id == loaded.pad_token_id and model.config.unk_token_id == loaded.unk_token_id
    subject = subject_of(model)
    subject.tokenizer = load_tokenizer(run)
    batch = subject.encode(["the great film", "awful"])
    plain = loaded(["the great film", "awful"], padding=True, return_tensors="pt")
    assert batch["input_ids"].equal(plain["input_ids"])
    with subject.evaluating():
        expected = model(**plain).logits
        np.testing.assert_allclose(subject.predict(batch).detach(), expected.detach(), atol=1e-6)
    assert subject.attendable(batch).sum(1).tolist() == (plain["attention_mask"].sum(1) - 2).tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--data.tokenizer", "x", "--data.min_df", "2"], "data.min_df=2 with data.tokenizer='x', which brings its own"),
        (["--data.tokenizer", "x", "--model.hierarchy", "sentence"], "with model.hierarchy='sentence'"),
        (["--data.tokenizer_revision", "x"], "data.tokenizer_revision='x' is of data.tokenizer, which is not given"),
        (["--data.tokenizer", "/nowhere"], "data.tokenizer='/nowhere' cannot be loaded"),
    ],
)
def test_what_does_not_go_together(given, message, tmp_path, capsys):
    assert cli.main(["train", "--name", "t", "--output_dir", str(tmp_path / "run"), *given]) == 2
    assert message in capsys.readouterr().err
