"""recipes/any_classifier/architectures.py: the tables that are kept are of every type, and say what is so today."""

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
ROWS = [*(("CLASSIFIERS", kind) for kind in TRIED), *(("SEQUENCES", kind) for kind in ("marian", "fsmt", "t5"))]


def stored(models):
    path = FOLDER / f"{models.stem}.csv"
    return pd.read_csv(path, keep_default_na=False, na_values=[""]).set_index("type")


@pytest.mark.slow
def test_the_table_is_of_all_types_and_most_of_them_work():
    table = stored(architectures().CLASSIFIERS)
    works = table[table["verdict"] == "works"]
    assert table["class"].to_dict() == architectures().CLASSIFIERS.types() and len(table) == 127 and len(works) >= 100
    assert table.loc[table["verdict"] != "works", "reason"].notna().all()
    assert (works["difference"] == 0).all() and (works["own_difference"] < 1e-5).all()
    assert (works["change"] > 1e-4).all() and (works["layers"] >= 1).all()
    assert works["embeddings"].astype(bool).all()  # as the page of the documents says


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_a_type_says_today_what_it_says_in_the_table(name, kind):
    models = getattr(architectures(), name)
    row, before = architectures().tried(kind, models), stored(models).loc[kind]
    for column in ("class", "verdict", *models.columns):
        if column not in ("difference", "own_difference", "change"):
            assert row.get(column) == before[column] or (pd.isna(before[column]) and column not in row), column
    if row["verdict"] != "works":
        assert row["reason"] == before["reason"]
    elif "change" in row:
        assert row["difference"] == 0 and row["change"] == pytest.approx(before["change"], rel=1e-2)


def test_the_command_goes_on_where_it_was_and_tries_again_what_is_named(tmp_path, monkeypatch):
    module, tried_types = architectures(), []

    def tried(kind, seconds, models):
        tried_types.append(kind)
        return {"type": kind, "class": "X", "verdict": "refused", "reason": f"for {seconds:g} s"}

    monkeypatch.setattr(module, "tried_within", tried)
    names = {"bert": "BertForSequenceClassification", "gpt2": "GPT2ForSequenceClassification", "fnet": "FNetForMaskedLM"}
    monkeypatch.setattr(module.modeling_auto, "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", names)
    module.main(["gpt2", "--output", str(tmp_path)])
    module.main(["--output", str(tmp_path), "--seconds", "5"])
    module.main(["fnet", "--output", str(tmp_path)])
    assert tried_types == ["gpt2", "bert", "fnet", "fnet"]
    table = pd.read_csv(tmp_path / "architectures.csv")
    assert list(table["type"]) == ["bert", "gpt2", "fnet"] and list(table["reason"]) == ["for 5 s", "for 60 s", "for 60 s"]
    assert "0 of 3 types work, 3 are refused" in (tmp_path / "architectures.md").read_text()
    with pytest.raises(SystemExit):
        module.main(["brt"])


def test_a_type_that_does_not_end_or_ends_its_process_is_said_to():
    module = architectures()
    row = module.tried_within("bert", 0.2, tried=lambda *_: module.multiprocessing.Event().wait(60))
    assert row["verdict"] == "not built" and "0.2" in row["reason"]
    row = module.tried_within("bert", 30, tried=lambda *_: os._exit(3))
    assert row["verdict"] == "not built" and row["reason"] == "its process ended"
