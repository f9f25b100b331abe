"""A run over subwords from end to end."""

import re

import numpy as np
import pytest
from transformers import AutoTokenizer

from attnfaith import cli, record
from attnfaith.reporting.cells import split_cells
from attnfaith.runs import load_model, load_tokenizer
from attnfaith.subjects import subject_of
from tests.subword_tokenizers import train


pytestmark = pytest.mark.slow


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
