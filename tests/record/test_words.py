"""A record over subwords summed to words: against sums written out, what is left out, and a run from end to end."""

import re
from dataclasses import asdict

import numpy as np
import pytest
from transformers import AutoTokenizer

from attnfaith import cli, record
from attnfaith.measurement.registry import classes
from attnfaith.reporting.cells import one_cell, split_cells
from attnfaith.runs import load_model, load_tokenizer
from attnfaith.subjects import subject_of
from tests.records import draw, of_cell
from tests.subword_tokenizers import train


pytestmark = pytest.mark.slow


MEASURES = {cls.name: cls.columns for cls in classes()}
SUMMED = {
    "integrated_gradients": sum,
    "gradient": sum,
    "gradient_norm": lambda values: np.sqrt(sum(value**2 for value in values)),
}


def subwords(count=30, seed=4):
    """A record of random texts whose tokens are subwords: words of one to four tokens, an empty text, one of one token."""
    random = np.random.default_rng(seed)
    table = draw(count, measures=(*SUMMED, "leave_one_out"), seed=seed)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    for name in ("tokens", "word_of_token", "rationale"):
        columns[name] = []
    for length in map(len, record.rows(table, "attention")):
        begins = random.random(length) < 0.5
        begins[:1] = True
        columns["word_of_token"].append(np.cumsum(begins) - 1)
        columns["tokens"].append([f"t{place}" if new else f"##s{place}" for place, new in enumerate(begins)])
        columns["rationale"].append((random.random(length) < 0.3).astype(np.float32))
    extra = {f"importance_{name}": MEASURES[name][f"importance_{name}"] for name in (*SUMMED, "leave_one_out")}
    extra |= {name: record.OPTIONAL_COLUMNS[name] for name in ("word_of_token", "rationale")}
    extra["permuted_probs"] = record.Column(("K", "C"))
    columns["permuted_probs"] = [[[0.5, 0.5]]] * count
    own = record.build(columns, extra)
    identity = asdict(one_cell(own).identity)
    return record.with_settings(own, [{"identity": identity, "columns": {}, "label_names": ["a", "b"]}])


def test_words_by_hand():
    table = subwords()
    summed = record.by_word(table)
    for row, by_word in zip(table.to_pylist(), summed.to_pylist(), strict=True):
        owners = row["word_of_token"]
        places = [
            [place for place, owner in enumerate(owners) if owner == word] for word in range(max(owners, default=-1) + 1)
        ]
        assert by_word["tokens"] == ["".join(row["tokens"][place].removeprefix("##") for place in word) for word in places]
        rules = {"attention": sum, "rationale": max} | {f"importance_{name}": rule for name, rule in SUMMED.items()}
        for name, rule in rules.items():
            values = [rule([row[name][place] for place in word]) for word in places]
            np.testing.assert_allclose(by_word[name], values, rtol=1e-5, atol=1e-6)
        assert record.from_row(by_word).level == "word" and record.from_row(row).level == "token"
        for name in ("instance_id", "probs", "label", "truncated", "texts"):
            assert by_word[name] == row[name]
    assert not {"importance_leave_one_out", "permuted_probs", "word_of_token"} & set(summed.column_names)
    (part,) = record.settings(summed)
    assert set(part["words"]["left_out"]) == {"importance_leave_one_out", "permuted_probs"}
    assert part["words"]["rules"]["attention"] == "sum" and part["words"]["rules"]["importance_gradient_norm"] == "length"
    assert one_cell(summed).settings["label_names"] == ["a", "b"]  # the settings are still found by the identity


def test_a_run_over_subwords(tmp_path):
    """The tokenizer is named and digested, words are whole evidence, and transformers alone reads the checkpoint."""
    tokenizer = train("wordpiece", tmp_path / "tokenizer", texts=["the abcdefghijklmnopqrstuvwxyz . great awful film"])
    sizes = "{length: [4, 8], vocabulary_size: 40, sizes: {train: 32, validation: 16, test: 16}}"
    run = tmp_path / "run"
    cli.COMMANDS["train"](
        [
            *("--name", "subwords", "--output_dir", str(run), "--data.tokenizer", str(tokenizer)),
            *("--data.arguments", sizes, "--model.embedding_size", "8", "--model.hidden_size", "8"),
            *("--training.num_train_epochs", "1", "--training.arguments", "{disable_tqdm: true}"),
            *("--measure.producers", "[gradient_norm, integrated_gradients, leave_one_out]"),
        ]
    )
    table = record.load(run / "record.parquet")
    about = record.settings(table)[0]["run"]["tokenizer"]
    assert about["name"] == "tokenizer" and about["revision"] == "local" and re.fullmatch("[0-9a-f]{12}", about["digest"])
    (cell,) = split_cells(table)
    assert cell.heading["encoder"] == f"bilstm(tokenizer {about['digest']})"
    twin = of_cell(table, tokenizer_digest="0123456789ab")
    assert [len(part) for part in split_cells(record.concatenate([table, twin]))] == [16, 16]  # told apart by that alone
    marks, owners = record.rows(table, "rationale"), record.rows(table, "word_of_token")
    assert any(row.any() for row in marks)
    for row, owner in zip(marks, owners, strict=True):  # all tokens of a word are evidence, or none
        assert len({(word, mark) for word, mark in zip(owner.tolist(), row.tolist(), strict=True)}) == owner.max() + 1
    assert "subwords; ## stands before one" in (run / "report" / "index.html").read_text()

    loaded, model = AutoTokenizer.from_pretrained(run / "model", trust_remote_code=False), load_model(run)
    assert model.config.pad_token_id == loaded.pad_token_id and model.config.unk_token_id == loaded.unk_token_id
    subject, texts = subject_of(model), ["the great film", "awful"]
    subject.tokenizer = load_tokenizer(run)
    batch, plain = subject.encode(texts), loaded(texts, padding=True, return_tensors="pt")
    assert batch["input_ids"].equal(plain["input_ids"])
    with subject.evaluating():
        np.testing.assert_allclose(subject.predict(batch).detach(), model(**plain).logits.detach(), atol=1e-6)
    assert subject.attendable(batch).sum(1).tolist() == (plain["attention_mask"].sum(1) - 2).tolist()
