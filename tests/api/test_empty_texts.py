"""Texts that are empty after cleaning, from encoding to the report: kept, counted, never scored."""

import os
from pathlib import Path

import pytest


def genuine():
    root = os.environ.get("ATTNFAITH_DATA")
    if not root or not (Path(root) / "SetFit" / "20_newsgroups").is_dir():
        pytest.skip("ATTNFAITH_DATA names no folder with SetFit/20_newsgroups")
    import pandas as pd

    texts = pd.read_parquet(Path(root) / "SetFit" / "20_newsgroups" / "train.parquet")["text"]
    empty = texts.str.strip() == ""
    return texts[empty].tolist(), texts[~empty].head(20).tolist()


def generated():
    return ["", " ", "\n\t"], ["the old ship", "a new ship and a crew", "one"]


@pytest.mark.parametrize(("source", "count"), [(generated, 3), (genuine, 301)])
def test_empty_texts_are_counted_and_never_scored(source, count, tmp_path, quick_report):
    import datasets

    from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification, record
    from attnfaith.data.tokenization import build_tokenizer, encode
    from attnfaith.measurement.engine import measure
    from attnfaith.record import Identity
    from attnfaith.reporting import agreement_table, performance_table, write_report

    empty, full = source()
    assert len(empty) == count
    texts = [*full, *empty]
    rows = {"instance_id": [f"x/test/{n}" for n in range(len(texts))], "text": texts, "label": [0] * len(texts)}
    tokenizer = build_tokenizer(full, preprocessing="default", max_length=60)
    model = AttentionClassifierForSequenceClassification(
        AttentionClassifierConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=8)
    )
    encoded = encode(datasets.Dataset.from_dict(rows), tokenizer)
    path = measure(
        model,
        encoded,
        Identity("x", "1", "test", 0),
        ["gradient", "leave_one_out"],
        tmp_path / "record.parquet",
        progress=False,
    )
    table = record.load(path)

    lengths = [len(row) for row in record.rows(table, "attention")]
    assert lengths.count(0) == count and lengths[len(full) :] == [0] * count
    overall = agreement_table(table).query("`class` == 'overall'")
    undefined = sum(length < 2 for length in lengths)
    assert (overall["n_undefined"] >= undefined).all() and (overall["n"] + overall["n_undefined"] == len(texts)).all()
    assert performance_table(table)["n_empty"].item() == count
    assert write_report(table, tmp_path / "report").is_file()
