"""From pairs of sentences to a record: what is in it, and bad input in one line each."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from tokenizers import normalizers

import attnfaith
from attnfaith import cli, record
from attnfaith.api.measuring import DEFAULTS
from attnfaith.data.in_memory import in_memory
from attnfaith.measurement import engine
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError, find
from attnfaith.support.errors import AttnfaithError
from tests.small_translators import PAIRS, WORDS, subject, tokenizer, translator


LINKS = ["0-0 2-1 1p1 6-5", "", "0-0 1p2"]
CELL = record.Identity("toy", "abc", "test", 0)


def pairs(count=20):
    """Pairs of one to five words each."""
    random, words = np.random.default_rng(0), [word for word in WORDS if not word.startswith("##")]
    sides = [[" ".join(random.choice(words, random.integers(1, 6))) for _ in range(count)] for _ in range(2)]
    names = [f"p/{number}" for number in range(count)]
    return in_memory(pa.table({"instance_id": names, "source": sides[0], "target": sides[1]}))


def test_the_record_of_pairs(tmp_path, monkeypatch):
    """In shards, as in memory."""
    texts, own = pairs(), subject("marian")
    monkeypatch.setitem(engine.SIZES, "pairs", (2048, 32, 6))
    options = {"batch_tokens": 40, "progress": False}
    path = measure(own, own.rows(texts), CELL, ["attention", "norm"], tmp_path / "r.parquet", **options)
    table = record.load(path)
    assert table.column("instance_id").to_pylist() == [f"p/{number}" for number in range(20)]
    assert table.column("tokens").to_pylist() == [source.split() for source in texts["source"]]
    some = own.encode([(texts["source"][7], texts["target"][7])])
    with own.evaluating(), torch.no_grad():
        probs = own.log_probs(some)[0].exp().numpy()
    words = some["target_words"][0].numpy()
    expected = [np.prod(probs[words == word]) for word in range(words.max() + 1)]
    np.testing.assert_allclose(record.rows(table, "target_probs")[7], expected, rtol=1e-5)
    (settings,) = record.settings(table)
    assert settings["columns"]["alignment_norm"] == "norm" and settings["columns"]["target_probs"] == ""
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert (identity.model, identity.encoder, identity.level) == ("sequence_to_sequence", "marian", "word")
    again = measure(own, own.rows(texts), CELL, ["attention", "norm"], None, progress=False)
    for values, expected in zip(*(record.rows(t, "alignment_norm") for t in (table, again)), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


def test_columns_that_a_model_cannot_give_are_left_out_and_measures_refused():
    luong, rows = subject("luong"), subject("luong").rows(pairs(3))
    table = measure(luong, rows, CELL, ["norm"], None, progress=False)
    assert "alignment_alti_total" not in table.column_names
    lacking = type(luong)(luong.model, luong.tokenizer)
    lacking.lacks = {"cross vectors": "it has none"}
    with pytest.raises(MeasurementError, match=r"'norm' needs 'cross vectors' .*lacks: it has none"):
        measure(lacking, rows, CELL, ["norm"], None)


def test_pairs_with_links_by_the_front_door():
    own = attnfaith.measure(translator("marian"), PAIRS, tokenizer=tokenizer(), links=LINKS, name="toy", progress=False)
    assert {column for name in DEFAULTS["pairs"] for column in find(name, "pairs").columns} <= set(own.table.column_names)
    links = [row.tolist() for row in record.rows(own.table, "gold_links")]
    assert links[0][1] == [0, 1, 2, 0, 0, 0, 0] and np.sum(links[0]) == 7 and not np.any(links[1])
    assert links[2] == [[2, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    from_one = ["1-1 3-2 2p2 7-6", "", "1-1 2p3"]
    again = attnfaith.measure(translator("marian"), PAIRS, measures=[], tokenizer=tokenizer(), links=from_one, links_from=1)
    assert [row.tolist() for row in record.rows(again.table, "gold_links")] == links
    assert again.measures == [] and own.of_sequences and len(own) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"links": LINKS[:2]}, "links has 2 rows"),
        ({"links": ["0-0", "", ""], "links_from": 1}, "link 0-0"),
        ({"links": "nowhere.align"}, "links='nowhere.align' cannot be read"),
        ({"texts": [("a man", "ein man"), ("a", " ")]}, "'texts/1': .*target"),
        ({"texts": ["a man"]}, "pairs of sentences"),
        ({"labels": [0, 1, 1]}, "labels: .*links="),
        ({"measures": ["attention_norm"]}, "'attention_norm'.*'attention'"),
        ({"attention": "rollout"}, "attention='rollout'"),
    ],
)
def test_bad_input_gets_one_line_before_any_work(arguments, message, monkeypatch):
    monkeypatch.setattr(engine, "_read_pairs", lambda *arguments: pytest.fail("work was done"))
    arguments = {"texts": PAIRS, **arguments}
    with pytest.raises(AttnfaithError, match=message) as caught:
        attnfaith.measure(subject("marian"), arguments.pop("texts"), progress=False, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_folder_a_frame_a_file_and_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    translator("luong").save_pretrained("model")
    tokenizer().save_pretrained("model")
    (tmp_path / "gold.align").write_text("\n".join(LINKS) + "\n")
    frame = pd.DataFrame(PAIRS, columns=["de", "en"])
    frame.to_csv("pairs.csv", index=False)
    options = {"measures": ["attention"], "progress": False}
    by_frame = attnfaith.measure("model", frame, text="de", text_pair="en", links="gold.align", **options)
    plain = attnfaith.measure(translator("luong"), PAIRS, tokenizer=tokenizer(), links=LINKS, **options)
    command = ["measure", "model", "--data.path", "pairs.csv", "--data.text", "de", "--data.text_pair", "en"]
    assert cli.main([*command, "--measure.producers", "[attention]", "--links", "gold.align", "--output", "made"]) == 0
    for own in (by_frame, attnfaith.load("made/record.parquet")):
        for values, expected in zip(own.alignment(), plain.alignment(), strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
        assert [links.sum() for links in record.rows(own.table, "gold_links")] == [7, 0, 3]


def test_long_sentences_are_cut_at_words_and_marked(capsys):
    own, long = subject("marian"), " ".join(["old"] * 28 + ["boats"] * 6)
    rows = own.rows(pairs(1).map(lambda row: {"source": long, "links": [[33, 0, 2], [3, 0, 2]]}))
    assert rows["truncated"] == [True] and len(rows["input_ids"][0]) == 32
    assert rows["tokens"][0] == ["old"] * 28 + ["boats"] * 2 and rows["source_words"][0][-4:] == [28, 28, 29, -1]
    assert np.array(rows["gold_links"][0]).sum() == 2
    attnfaith.measure(own, [(long, "ein")], measures=["attention"])
    assert "1 of 1 pair: cut" in capsys.readouterr().err


def test_a_word_without_a_token_and_a_target_without_an_end():
    own, odd = subject("marian"), tokenizer()
    odd.backend_tokenizer.normalizer = normalizers.Replace("!", "")
    with pytest.raises(AttnfaithError, match="word 1, '!', of the source sentence"):
        type(own)(own.model, odd).encode([("a !", "ein")])
    pair = type(own)(own.model, tokenizer("$A")).encode([("a man", "ein boot")])
    assert pair["labels"].tolist()[0][-1] == 2 and pair["target_words"].tolist()[0][-1] == -1
    assert pair["source_words"].tolist() == [[0, 1]]
