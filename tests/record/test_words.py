"""A record over subwords summed to words: against sums written out, what is left out and said, and the report of it."""

import re
from dataclasses import asdict

import numpy as np
import pytest

from attnfaith import cli, record
from attnfaith.measurement.registry import find, names
from attnfaith.record.words import RULES
from attnfaith.reporting.cells import one_cell, split_cells
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


def test_a_checkpoint_over_subwords_is_loaded_without_our_code(run):
    from transformers import AutoTokenizer

    from attnfaith.runs import load_model, load_tokenizer
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
