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
from tests.records import draw
from tests.subword_tokenizers import train


pytestmark = pytest.mark.slow


MEASURES = {cls.name: cls.columns for cls in classes()}
SUMMED = {"integrated_gradients": [-1.0, 2.0], "gradient": [-1.0, 2.0], "gradient_norm": [5.0, 2.0]}


def test_words_by_hand():
    """Three tokens of two words, and an empty text."""
    table = draw(1, measures=(*SUMMED, "leave_one_out"))
    columns = {name: table.column(name).to_pylist() * 2 for name in table.column_names} | {"instance_id": ["a", "b"]}
    columns |= {
        "tokens": [["un", "##real", "film"], []],
        "word_of_token": [[0, 0, 1], []],
        "rationale": [[0.0, 1.0, 0.0], []],
    }
    columns |= {"attention": [[0.5, 0.25, 0.25], []], "permuted_probs": [[[0.5, 0.5]]] * 2}
    scores = {name: [[3.0, -4.0, 2.0], []] for name in (*SUMMED, "leave_one_out")}
    columns |= {f"importance_{name}": rows for name, rows in scores.items()}
    extra = {f"importance_{name}": MEASURES[name][f"importance_{name}"] for name in scores}
    extra |= {name: record.OPTIONAL_COLUMNS[name] for name in ("word_of_token", "rationale")}
    own = record.build(columns, extra | {"permuted_probs": record.Column(("K", "C"))})
    settings = {"identity": asdict(one_cell(own).identity), "columns": {}, "label_names": ["a", "b"]}
    summed = record.by_word(record.with_settings(own, [settings]))
    first, empty = summed.to_pylist()
    assert first["tokens"] == ["unreal", "film"] and first["attention"] == [0.75, 0.25] and first["rationale"] == [1, 0]
    assert {name: first[f"importance_{name}"] for name in SUMMED} == SUMMED and empty["tokens"] == []
    assert record.from_row(first).level == "word" and record.from_row(own.to_pylist()[0]).level == "token"
    (part,) = record.settings(summed)
    assert set(part["words"]["left_out"]) == {"importance_leave_one_out", "permuted_probs"}
    assert part["words"]["rules"]["importance_gradient_norm"] == "length"
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
    marks, owners = record.rows(table, "rationale"), record.rows(table, "word_of_token")
    assert any(row.any() for row in marks)
    for row, owner in zip(marks, owners, strict=True):  # all tokens of a word are evidence, or none
        assert len({(word, mark) for word, mark in zip(owner.tolist(), row.tolist(), strict=True)}) == owner.max() + 1
    assert "subwords; ## stands before one" in (run / "report" / "index.html").read_text()

    loaded, model = AutoTokenizer.from_pretrained(run / "model", trust_remote_code=False), load_model(run)
    subject, texts = subject_of(model), ["the great film", "awful"]
    subject.tokenizer = load_tokenizer(run)
    batch, plain = subject.encode(texts), loaded(texts, padding=True, return_tensors="pt")
    assert batch["input_ids"].equal(plain["input_ids"])
    with subject.evaluating():
        np.testing.assert_allclose(subject.predict(batch).detach(), model(**plain).logits.detach(), atol=1e-6)
    assert subject.attendable(batch).sum(1).tolist() == (plain["attention_mask"].sum(1) - 2).tolist()
