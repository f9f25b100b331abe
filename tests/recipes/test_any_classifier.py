"""A fine-tuned encoder: measures held against a rival, accuracy of parts, published numbers; the scripts beside it."""

import importlib
import importlib.util
import os

import numpy as np
import pandas as pd
import pytest
import torch

from attnfaith import record as records
from attnfaith.recipes import library
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from tests.identities import typed
from tests.recipes.cells import erased_cell
from tests.small_classifiers import WORDS, architectures, classifier, tokenizer


FOLDER = library.folder() / "any_classifier"
analysis = load_analysis(FOLDER / "analysis.py")
FALLS = {"attention": 0.3, "absolute_signed": 0.3, "signed": 0.6, "random": 0.1}
IDENTIFIED = {
    **{f"identifiability_{name}": 0.1 for name in ("tvd", "bound", "support", "top_attention", "top_low")},
    **{"identifiability_logit_change": 0.0, "identifiability_certainty": "exact", "identifiability_low": np.zeros(6)},
    **{"identifiability_high": np.ones(6), "identifiability_attention": np.full(6, 1 / 6)},
    **{"identifiability_layer_tvd": [0.1, 0.4], "identifiability_layer_rows": [6.0, 1.0]},
}
AXES = dict.fromkeys(("low", "high", "attention"), ("T",)) | dict.fromkeys(("layer_tvd", "layer_rows"), ("K",))
KINDS = dict.fromkeys(IDENTIFIED, "float64") | {"identifiability_certainty": "string"}
COLUMNS = {name: records.Column(AXES.get(name.partition("_")[2], ()), kind) for name, kind in KINDS.items()}


def draw_cell(seed=0, projection="softmax", falls=FALLS, **how):
    return erased_cell(typed(projection, seed=seed), falls, more=IDENTIFIED, kinds=COLUMNS, **how)


def test_measures_are_held_against_a_rival_and_beside_their_size(monkeypatch):
    monkeypatch.setattr(analysis.saliency, "RIVALS", ("absolute_signed",))
    results = analysis.tables([draw_cell(seed) for seed in (10, 11, 12, 13, 14)], Settings()).tables
    ranked = results["measures_ranking"].set_index(["test", "measure"])
    aopc = ranked.loc["aopc_removed"]
    verdicts = {"attention": "cannot be told", "absolute_signed": "undefined", "signed": "better", "random": "worse"}
    assert aopc["verdict"].to_dict() == verdicts
    row = aopc.loc["signed"]
    assert row[["n_seeds", "n_texts", "n_undefined"]].tolist() == [5, 150, 0] and row["to_rival_ci_low"] > 0
    assert (row["mean"], row["to_rival"]) == pytest.approx((0.6, 0.3), abs=0.02)
    assert ranked.loc["aopc_kept"].loc[["signed", "random"], "verdict"].tolist() == ["better", "worse"]
    signs = results["signs"].set_index("test")
    assert signs.loc["aopc_removed", "mean"] == pytest.approx(0.3, abs=0.02)
    assert signs.loc[["aopc_removed", "aopc_kept"], "verdict"].tolist() == ["better", "better"]


def test_accuracy_of_parts():
    # .65, .7, .35 and .85 of class 1 without the first tokens; .55, .5, .85 and .35 by them
    falls = dict(zip(FALLS, (0.3, 0.25, 0.6, 0.1), strict=True))
    results = analysis.per_text(draw_cell(falls=falls, noise=0, texts=2))
    removed, left = ({name: list(row) for name, row in results[f"accuracy_{end}"].items()} for end in ("removed", "kept"))
    assert removed == {"attention": [1, 1], "absolute_signed": [1, 1], "signed": [0, 0], "random": [1, 1]}
    assert left == {"attention": [1, 1], "absolute_signed": [0, 0], "signed": [1, 1], "random": [0, 0]}


def test_published_numbers_stand_beside_measured_ones(tmp_path):
    rows = "dataset,model,measure,published_measure,test,value,definition,source\n"
    rows += "sst2,BERT,signed,Signed,aopc_removed,0.5,the same,a paper\nsst2,BERT,,Other,aopc_removed,0.4,not ours,a paper\n"
    (tmp_path / "published.csv").write_text(rows)
    settings = Settings(published=tmp_path / "published.csv", stand_ins={"sst": "sst2"})
    cells = [draw_cell(seed, projection) for projection in ("softmax", "sparsemax") for seed in (10, 11)]
    results = analysis.tables(cells, settings).tables
    table = results["measures_published"].set_index(["projection", "published_measure"])
    assert table.loc[("softmax", "Signed"), "measured"] == pytest.approx(0.6, abs=0.01)
    assert table["measured"].isna().sum() == 1
    means = results["reach"].set_index(["projection", "quantity"])["mean"]
    assert means["sparsemax", "identifiability_tvd"] == pytest.approx(0.1)
    (tmp_path / "published.csv").write_text("dataset,value\nsst2,0.5\n")
    with pytest.raises(StudyError, match="lacks the columns"):
        analysis.tables([], settings)
    assert analysis.tables([], Settings()) == Analysis()


# ------------------------------------------------------------------------------------------------ architectures

TRIED = (  # a type that works in every way of reading, and refusals of every kind
    *("bert", "gpt2", "xlnet", "t5", "bart", "zamba2", "gpt_oss", "layoutlm", "gemma3"),
    *("fnet", "longformer", "funnel", "diffllama", "perceiver"),
)
ROWS = [*(("CLASSIFIERS", kind) for kind in TRIED), *(("SEQUENCES", kind) for kind in ("marian", "fsmt", "t5"))]


def stored(models):
    return pd.read_csv(FOLDER / f"{models.stem}.csv", keep_default_na=False, na_values=[""]).set_index("type")


def test_the_table_has_all_types_and_most_of_them_work():
    table = stored(architectures().CLASSIFIERS)
    works = table[table["verdict"] == "works"]
    assert table["class"].to_dict() == architectures().CLASSIFIERS.types() and len(table) == 127 and len(works) >= 100
    assert table.loc[table["verdict"] != "works", "reason"].notna().all()
    assert (works["difference"] == 0).all() and (works["own_difference"] < 1e-5).all() and (works["change"] > 1e-4).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_a_type_is_read_as_the_table_has_it(name, kind):
    models = getattr(architectures(), name)
    row, expected = architectures().tried(kind, models), stored(models).loc[kind]
    for column in ("class", "verdict", *models.columns):
        if column not in ("difference", "own_difference", "change"):
            assert row.get(column) == expected[column] or (pd.isna(expected[column]) and column not in row), column
    if row["verdict"] != "works":
        assert row["reason"] == expected["reason"]
    elif "change" in row:
        assert row["difference"] == 0 and row["change"] == pytest.approx(expected["change"], rel=1e-2)


def test_a_type_that_does_not_end_or_ends_its_process():
    module = architectures()
    row = module.tried_within("bert", 0.2, tried=lambda *_: module.multiprocessing.Event().wait(60))
    assert row["verdict"] == "not built" and "0.2" in row["reason"]
    assert module.tried_within("bert", 30, tried=lambda *_: os._exit(3))["reason"] == "its process ended"


# ------------------------------------------------------------------------------------------------ other libraries


def test_other_libraries_give_the_same_numbers(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    peers = importlib.import_module("compare_peers")
    classifier("bert").save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    pd.DataFrame({"text": [" ".join(WORDS[start : start + 6]) for start in range(4)]}).to_parquet(tmp_path / "texts.parquet")
    words = [str(tmp_path / "model"), str(tmp_path / "texts.parquet"), "--texts", "3", "--long", "1", "--lengths", "7"]
    monkeypatch.setattr(
        "sys.argv", ["compare_peers.py", *words, "--output", str(tmp_path / "peers"), "--named", "a small one"]
    )
    find = importlib.util.find_spec
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: find(name) if name == "captum" else None)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    peers.main()
    page, table = (tmp_path / "peers.md").read_text(), pd.read_csv(tmp_path / "peers.csv")
    assert ". captum " in page and "Model: a small one. 3 texts as they are" in page and str(tmp_path) not in page
    missing = table[table["definition"] == "not installed"]
    assert set(missing["peer"]) == {"interpreto", "explainkit"} and len(missing) == 8
    rows = table[table["peer"] == "captum"].set_index("tokens")
    assert rows.index.tolist() == ["those of the texts", "7"] and rows["texts"].tolist() == [3, 1]
    assert (rows["largest_difference"] < 1e-5).all() and (rows["largest_value"] > 1e-3).all()
    assert (rows["ours_reads"] == 19).all() and (rows["theirs_reads"] == 16).all()
