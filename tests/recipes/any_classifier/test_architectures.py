"""recipes/any_classifier/architectures.py: the table that is kept is of every type, and says what is so today."""

import os

import pandas as pd
import pytest

from attnfaith.recipes import library
from tests.small_classifiers import architectures


FOLDER = library.folder() / "any_classifier"
TRIED = (  # a type that works in every way of reading, and refusals of every kind
    *("bert", "gpt2", "xlnet", "t5", "bart", "zamba2", "gpt_oss", "layoutlm", "gemma3"),
    *("fnet", "longformer", "funnel", "diffllama", "perceiver"),
)


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(FOLDER / "architectures.csv", keep_default_na=False, na_values=[""]).set_index("type")


def test_the_table_is_of_all_types_and_most_of_them_work(table):
    known = architectures().CLASSIFIERS.types()
    assert list(table.index) == list(known) and len(known) == 127
    assert table["class"].to_dict() == known
    assert (table["verdict"] == "works").sum() >= 100
    assert set(table["verdict"]) <= {"works", "refused", "not built"}
    assert table.loc[table["verdict"] != "works", "reason"].notna().all()


def test_what_works_is_read_as_the_model_reads_and_is_what_it_computes_with(table):
    works = table[table["verdict"] == "works"]
    assert (works["difference"] == 0).all() and (works["own_difference"] < 1e-5).all()
    assert (works["change"] > 1e-4).all() and (works["layers"] >= 1).all()
    assert set(works["rows"]) <= {"first", "last", "all"} and works["reason"].isna().all()
    assert works["embeddings"].astype(bool).all()  # as the page of the documents says


@pytest.mark.parametrize("kind", ["marian", "fsmt", "t5"])
def test_a_type_from_sequences_to_sequences_says_today_what_it_says_in_the_table(kind):
    module = architectures()
    table = pd.read_csv(FOLDER / "sequence_architectures.csv", keep_default_na=False, na_values=[""]).set_index("type")
    assert list(table.index) == list(module.SEQUENCES.types())
    row, kept = module.tried(kind, module.SEQUENCES), table.loc[kind]
    assert {name: row[name] for name in ("verdict", "layers", "heads", "together", "lacks")} == {
        name: kept[name] for name in ("verdict", "layers", "heads", "together", "lacks")
    }


@pytest.mark.parametrize("kind", TRIED)
def test_a_type_says_today_what_it_says_in_the_table(kind, table):
    row, kept = architectures().tried(kind), table.loc[kind]
    for name in ("class", "verdict", "layers", "maps", "heads", "rows", "together", "embeddings"):
        assert row.get(name) == kept[name] or (pd.isna(kept[name]) and name not in row), name
    if row["verdict"] == "works":
        assert row["difference"] == 0 and row["change"] == pytest.approx(kept["change"], rel=1e-2)
    else:
        assert row["reason"] == kept["reason"]


def test_the_page_is_that_of_the_table(table):
    page = (FOLDER / "architectures.md").read_text(encoding="utf-8")
    counts = table["verdict"].value_counts()
    assert f"{counts['works']} of 127 types work, {counts['refused']} are refused and {counts['not built']} could" in page
    assert all(f"| {kind} " in page for kind in table.index)


def test_the_command_goes_on_where_it_was_and_tries_again_what_is_named(tmp_path, monkeypatch, capsys):
    module, asked = architectures(), []

    def tried(kind, seconds, models):
        asked.append(kind)
        return {"type": kind, "class": "X", "verdict": "refused", "reason": f"for {seconds:g} s"}

    monkeypatch.setattr(module, "tried_within", tried)
    names = {"bert": "BertForSequenceClassification", "gpt2": "GPT2ForSequenceClassification", "fnet": "FNetForMaskedLM"}
    monkeypatch.setattr(module.modeling_auto, "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", names)
    module.main(["gpt2", "--output", str(tmp_path)])
    module.main(["--output", str(tmp_path), "--seconds", "5"])
    module.main(["fnet", "--output", str(tmp_path)])
    assert asked == ["gpt2", "bert", "fnet", "fnet"]
    made = pd.read_csv(tmp_path / "architectures.csv")
    assert list(made["type"]) == ["bert", "gpt2", "fnet"] and list(made["reason"]) == ["for 5 s", "for 60 s", "for 60 s"]
    assert "0 of 3 types work, 3 are refused" in (tmp_path / "architectures.md").read_text()
    with pytest.raises(SystemExit):
        module.main(["brt"])
    assert "type brt" in capsys.readouterr().err


def test_a_type_that_does_not_end_or_ends_its_process_is_said_to():
    module = architectures()
    row = module.tried_within("bert", 0.2, tried=lambda *_: module.multiprocessing.Event().wait(60))
    assert row["reason"] == "no result within 0.2 s"
    row = module.tried_within("bert", 30, tried=lambda *_: os._exit(3))
    assert row["verdict"] == "not built" and row["reason"] == "its process ended"
