"""From pairs of sentences to a record: what is in it, shards that are gone on with, and bad input in one line each."""

import numpy as np
import pandas as pd
import pytest
import torch

import attnfaith
from attnfaith import cli, record
from attnfaith.api.measuring import DEFAULTS
from attnfaith.data.in_memory import in_memory
from attnfaith.measurement import engine
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError, find
from attnfaith.support.errors import AttnfaithError
from tests.small_translators import PAIRS, STACKED, WORDS, subject, tokenizer, translator


LINKS = ["0-0 2-1 1p1 6-5", "", "0-0 1p2"]
CELL = record.Identity("toy", "abc", "test", 0)


def pairs(count=20, **columns):
    """Pairs of one to five words each."""
    generator = np.random.default_rng(0)
    words = [word for word in WORDS if not word.startswith("##")]
    sides = [[" ".join(generator.choice(words, generator.integers(1, 6))) for _ in range(count)] for _ in range(2)]
    import pyarrow as pa

    names = [f"p/{number}" for number in range(count)]
    return in_memory(pa.table({"instance_id": names, "source": sides[0], "target": sides[1], **columns}))


@pytest.fixture(scope="module")
def rows():
    return subject("marian").rows(pairs())


# ---------------------------------------------------------------------------------------------- the record


def test_the_record_of_pairs(rows, tmp_path):
    path = measure(subject("marian"), rows, CELL, ["attention", "norm"], tmp_path / "r.parquet", progress=False)
    made = record.load(path)
    assert made.column("instance_id").to_pylist() == [f"p/{number}" for number in range(20)]
    assert made.column("tokens").to_pylist() == [source.split() for source in pairs()["source"]]
    some = subject("marian").encode([(pairs()["source"][7], pairs()["target"][7])])
    with subject("marian").evaluating(), torch.no_grad():
        probs = subject("marian").log_probs(some)[0].exp().numpy()
    words = some["target_words"][0].numpy()
    expected = [np.prod(probs[words == word]) for word in range(words.max() + 1)]
    np.testing.assert_allclose(record.rows(made, "target_probs")[7], expected, rtol=1e-5)
    (settings,) = record.settings(made)
    assert settings["columns"]["alignment_norm"] == "norm" and settings["columns"]["target_probs"] == ""
    identity = record.from_row(made.slice(0, 1).to_pylist()[0])
    assert (identity.model, identity.encoder, identity.level) == ("sequence_to_sequence", "marian", "word")


def test_a_measurement_that_was_stopped_goes_on(rows, tmp_path, monkeypatch):
    inner, counts = engine._read_pairs, []
    options = {"batch_tokens": 40, "shard_instances": 6, "progress": False}
    whole = measure(subject("marian"), rows, CELL, ["attention"], tmp_path / "whole.parquet", **options)

    def stopped(subject, batch, *given):
        counts.append(len(batch["instance_id"]))
        if sum(counts) > 12:
            raise KeyboardInterrupt
        return inner(subject, batch, *given)

    monkeypatch.setattr(engine, "_read_pairs", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure(subject("marian"), rows, CELL, ["attention"], tmp_path / "r.parquet", **options)
    done = len(list((tmp_path / "r.parquet.shards").glob("*.parquet")))
    assert done > 0 and not (tmp_path / "r.parquet").exists()
    again = []
    monkeypatch.setattr(engine, "_read_pairs", lambda *given: again.append(1) or inner(*given))
    path = measure(subject("marian"), rows, CELL, ["attention"], tmp_path / "r.parquet", **options)
    assert 0 < len(again) < len(counts) + 5 and record.equal(record.load(path), record.load(whole))
    (tmp_path / "r.parquet.shards").mkdir()
    (tmp_path / "r.parquet.shards" / "plan.json").write_text('{"seed": 5}')
    with pytest.raises(MeasurementError, match="holds part of another measurement"):
        measure(subject("marian"), rows, CELL, ["attention"], tmp_path / "r.parquet", **options)


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        (["attenton"], None, "'attenton'; did you mean 'attention'"),
        (["norm", "norm"], None, "'norm' is named twice"),
        (["cross_permutation"], {"cross_permutation": {"draws": 0}}, "options of 'cross_permutation': draws=0"),
        (["norm"], {"norm": {"layers": 1}}, "options of 'norm': .*layers"),
        (["norm"], {"alti": {}}, "options for 'alti', which is not measured"),
    ],
)
def test_names_and_options_that_there_are_not(rows, tmp_path, names, options, says):
    with pytest.raises(MeasurementError, match=says):
        measure(subject("marian"), rows, CELL, names, tmp_path / "r.parquet", options=options)


def test_columns_that_a_model_cannot_give_are_left_out_and_measures_refused(tmp_path):
    of = subject("luong")
    path = measure(of, of.rows(pairs(3)), CELL, ["alti"], tmp_path / "r.parquet", progress=False)
    assert "alignment_alti_total" not in record.load(path).column_names
    of = type(of)(of.model, of.tokenizer)
    of.lacks = {"cross vectors": "it has none"}
    with pytest.raises(MeasurementError, match=r"'norm' needs 'cross vectors' .*of this one it has none"):
        measure(of, of.rows(pairs(3)), CELL, ["norm"], tmp_path / "r.parquet")


# ---------------------------------------------------------------------------------------------- attnfaith.measure


def test_pairs_with_links_by_the_front_door(capsys):
    made = attnfaith.measure(translator("marian"), PAIRS, tokenizer=tokenizer(), links=LINKS, name="toy", progress=False)
    assert {column for name in DEFAULTS["pairs"] for column in _columns(name)} <= set(made.table.column_names)
    links = record.rows(made.table, "gold_links")
    assert links[0].tolist()[1] == [0, 1, 2, 0, 0, 0, 0] and links[0].sum() == 7 and links[1].sum() == 0
    assert links[2].tolist() == [[2, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    counted = [" ".join(f"{int(a) + 1}{k}{int(b) + 1}" for a, k, b in map(_parts, line.split())) for line in LINKS]
    again = attnfaith.measure(translator("marian"), PAIRS, measures=[], tokenizer=tokenizer(), links=counted, links_from=1)
    assert [one.tolist() for one in record.rows(again.table, "gold_links")] == [one.tolist() for one in links]
    assert again.measures == [] and made.of_sequences and len(made) == 3


def _columns(name):
    return find(name, "pairs").columns


def _parts(link):
    kind = "p" if "p" in link else "-"
    return (*link.split(kind)[:1], kind, link.split(kind)[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*STACKED[:1], "t5", "luong"])
def test_a_folder_a_frame_and_a_file_of_links(kind, tmp_path):
    translator(kind).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "links").write_text("\n".join(LINKS) + "\n")
    frame = pd.DataFrame(PAIRS, columns=["from", "to"])
    asked = {"measures": ["attention"], "progress": False}
    made = attnfaith.measure(tmp_path / "model", frame, text="from", text_pair="to", links=str(tmp_path / "links"), **asked)
    same = attnfaith.measure(translator(kind), PAIRS, tokenizer=tokenizer(), links=LINKS, **asked)
    for one, other in zip(made.alignment(), same.alignment(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert record.rows(made.table, "gold_links")[0].tolist() == record.rows(same.table, "gold_links")[0].tolist()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"links": LINKS[:2]}, "2 lines for 3 pairs of sentences; give one for each"),
        (
            {"links": ["0-0 7-0", "", ""]},
            r"links line 0: the link 7-0 names source word 7, and the source sentence has 7 words",
        ),
        ({"links": ["0-0", "", ""], "links_from": 1}, "counted from 1: the links count from 0, so give links_from=0"),
        ({"links": ["0-0", "1:1", ""]}, "links line 1: '1:1' is no link"),
        ({"links": "nowhere.align"}, "links='nowhere.align' cannot be read"),
        ({"links": LINKS, "links_from": 2}, "links_from=2: words are counted from 0 or from 1"),
        ({"texts": [("a man", "ein man"), ("a", " ")]}, "pair 'texts/1' has an empty target sentence: leave the pair out"),
        ({"texts": ["a man"]}, "reads pairs of sentences: give a list of"),
        ({"labels": [0, 1, 1]}, "labels=.*give links"),
        ({"level": "word"}, "a model from sequences to sequences is measured by words"),
        ({"measures": ["attention_norm"]}, "no measure is called 'attention_norm'; did you mean 'attention'"),
        (
            {"attention": "rollout"},
            "attention='rollout': models of transformers from sequences to sequences have one attention",
        ),
    ],
)
def test_bad_input_gets_one_line_before_any_work(given, says, monkeypatch):
    monkeypatch.setattr(engine, "_read_pairs", lambda *given: pytest.fail("work was done"))
    given = {"texts": PAIRS, **given}
    with pytest.raises(AttnfaithError, match=says) as caught:
        attnfaith.measure(subject("marian"), given.pop("texts"), progress=False, **given)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------------- words of tokens


def test_long_sentences_are_cut_at_words_and_said_to_be(capsys):
    of = subject("marian")
    long = " ".join(["old"] * 28 + ["boats"] * 6)
    made = of.rows(pairs(1).map(lambda row: {"source": long, "links": [[33, 0, 2], [3, 0, 2]]}))
    assert made["truncated"] == [True] and len(made["input_ids"][0]) == 32
    assert made["tokens"][0] == ["old"] * 28 + ["boats"] * 2 and made["source_words"][0][-4:] == [28, 28, 29, -1]
    assert np.array(made["gold_links"][0]).sum() == 2
    record_of = attnfaith.measure(of, [(long, "ein")], measures=["attention"])
    assert record_of.table.column("truncated").to_pylist() == [True]
    assert "1 of 1 pair: cut, being longer than the model reads" in capsys.readouterr().err


def test_a_word_that_the_tokenizer_makes_nothing_of_and_a_target_without_an_end():
    from tokenizers import normalizers

    of, odd = subject("marian"), tokenizer()
    odd.backend_tokenizer.normalizer = normalizers.Replace("!", "")
    with pytest.raises(AttnfaithError, match="no token for word 1 of the source sentence, '!': leave it out, in the links"):
        type(of)(of.model, odd).encode([("a !", "ein")])
    endless = type(of)(of.model, tokenizer("$A"))
    pair = endless.encode([("a man", "ein boot")])
    assert pair["labels"].tolist()[0][-1] == 2 and pair["target_words"].tolist()[0][-1] == -1
    assert pair["source_words"].tolist() == [[0, 1]]


# ---------------------------------------------------------------------------------------------- attnfaith measure


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    translator("luong").save_pretrained("model")
    tokenizer().save_pretrained("model")
    pd.DataFrame(PAIRS, columns=["de", "en"]).to_csv("pairs.csv", index=False)
    (tmp_path / "gold.align").write_text("\n".join(LINKS) + "\n")
    return ["measure", "model", "--data.path", "pairs.csv", "--data.text", "de", "--data.text_pair", "en"]


@pytest.mark.slow
def test_the_command_line_measures_pairs(files):
    assert cli.main([*files, "--measure.producers", "[attention]", "--links", "gold.align", "--output", "made"]) == 0
    made = attnfaith.load("made/record.parquet")
    assert [links.sum() for links in record.rows(made.table, "gold_links")] == [7, 0, 3]
    same = attnfaith.measure(translator("luong"), PAIRS, measures=["attention"], tokenizer=tokenizer(), links=LINKS)
    for one, other in zip(made.alignment(), same.alignment(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
