"""The tables of the studies of a fine-tuned encoder, on records whose order of measures is known."""

from pathlib import Path

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import split_cells
from tests.identities import columns_of, typed


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "any_classifier" / "analysis.py")
SHARES = (0.1, 0.3)
NAMES = ("attention", "absolute_signed", "signed", "random")
FALLS = (0.3, 0.3, 0.6, 0.1)


def draw_cell(seed=0, falls=FALLS, texts=30, noise=0.03, projection="softmax", undefined=()):
    """A cell in which taking away what a measure ranks first costs what `falls` says, in the order of NAMES; leaving nothing
    else costs as much less. undefined: texts on which the third measure is.
    """
    columns: dict[str, list] = {}
    identity = columns_of(typed(projection, seed=seed))
    for number in range(texts):
        rng = np.random.default_rng([number, seed])
        shifts = noise * rng.normal(size=(2, len(NAMES), len(SHARES)))
        removed = np.clip(0.95 - np.array(falls)[:, None] + shifts[0], 0, 1)
        removed[2] = np.nan if number in undefined else removed[2]
        values = {
            "instance_id": f"sst/{number}", **identity, "tokens": ["w"] * 6, "label": 1, "truncated": False,
            "probs": [0.05, 0.95], "attention": rng.dirichlet(np.ones(6)), "importance_signed": rng.normal(size=6),
            "importance_random": rng.random(6), "rationale_erasure_measures": list(NAMES),
            "rationale_erasure_shares": list(SHARES), "rationale_erasure_removed_probs": removed,
            "rationale_erasure_kept_probs": np.clip(0.25 + np.array(falls)[:, None] + shifts[1], 0, 1),
            "rationale_erasure_whole_prob": 0.95, "rationale_erasure_empty_prob": 0.2,
            **{f"identifiability_{name}": 0.1 for name in ("tvd", "bound", "support", "top_attention", "top_low")},
            "identifiability_logit_change": 0.0, "identifiability_certainty": "exact",
            "identifiability_low": np.zeros(6), "identifiability_high": np.ones(6),
            "identifiability_attention": np.full(6, 1 / 6),
            "identifiability_layer_tvd": [0.1, 0.4], "identifiability_layer_rows": [6.0, 1.0],
        }  # fmt: skip
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    extra = {f"importance_{name}": records.Column(("T",)) for name in ("signed", "random")}
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    axes |= {"low": ("T",), "high": ("T",), "attention": ("T",), "layer_tvd": ("K",), "layer_rows": ("K",)}
    for name in (name for name in columns if name.startswith(("rationale_erasure", "identifiability"))):
        kind = "string" if name.endswith(("measures", "certainty")) else "float64"
        part = name.removeprefix("rationale_erasure_").removeprefix("identifiability_")
        extra[name] = records.Column(axes.get(part, ()), kind)
    return split_cells(records.build(columns, extra))[0]


def test_measures_are_held_against_one_rival_and_beside_their_size(monkeypatch):
    monkeypatch.setattr(analysis.saliency, "RIVALS", ("absolute_signed",))
    results = analysis.tables([draw_cell(seed) for seed in (10, 11, 12, 13, 14)], Settings()).tables
    ranked = results["measures_ranking"].set_index(["test", "measure"])
    aopc = ranked.loc["aopc_removed"]
    assert aopc["verdict"].to_dict() == {
        "attention": "cannot be told", "absolute_signed": "undefined", "signed": "better", "random": "worse"
    }  # fmt: skip
    assert aopc.loc["signed", ["n_seeds", "n_texts", "n_undefined"]].tolist() == [5, 150, 0]
    assert aopc.loc["signed", "mean"] == pytest.approx(0.6, abs=0.01)
    assert aopc.loc["signed", "to_rival"] == pytest.approx(0.3, abs=0.02) and aopc.loc["signed", "to_rival_ci_low"] > 0
    assert ranked.loc["aopc_kept"].loc[["signed", "random"], "verdict"].tolist() == ["better", "worse"]  # the less is lost
    signs = results["signs"].set_index("test")
    assert signs.loc["aopc_removed", "verdict"] == "better" and signs.loc["aopc_removed", "mean"] == pytest.approx(
        0.3, abs=0.02
    )
    assert signs.loc["aopc_kept", "verdict"] == "better" and signs.loc["aopc_kept", "ci_high"] < 0


def test_accuracy_of_what_is_left():
    # .65, .7, .35 and .85 of class 1 without the first tokens; .55, .5, .85 and .35 by them
    results = analysis.per_text(draw_cell(falls=(0.3, 0.25, 0.6, 0.1), noise=0, texts=2))
    removed, left = ({name: list(row) for name, row in results[f"accuracy_{end}"].items()} for end in ("removed", "kept"))
    assert removed == {"attention": [1, 1], "absolute_signed": [1, 1], "signed": [0, 0], "random": [1, 1]}
    assert left == {"attention": [1, 1], "absolute_signed": [0, 0], "signed": [1, 1], "random": [0, 0]}


def test_published_numbers_stand_beside_measured_ones(tmp_path):
    rows = "dataset,model,measure,published_measure,test,value,definition,source\n"
    rows += "sst2,BERT,signed,Signed,aopc_removed,0.5,the same,a paper\nsst2,BERT,,Other,aopc_removed,0.4,not ours,a paper\n"
    (tmp_path / "published.csv").write_text(rows)
    settings = Settings(published=tmp_path / "published.csv", stand_ins={"sst": "sst2"})
    results = analysis.tables(
        [draw_cell(seed, projection=name) for name in ("softmax", "sparsemax") for seed in (10, 11)], settings
    )
    table = results.tables["measures_published"].set_index(["projection", "published_measure"])
    assert table.loc[("softmax", "Signed"), "measured"] == pytest.approx(0.6, abs=0.01)
    assert table["measured"].isna().sum() == 1
    means = results.tables["reach"].set_index(["projection", "quantity"])["mean"]
    assert means["sparsemax", "identifiability_tvd"] == pytest.approx(0.1)
    (tmp_path / "published.csv").write_text("dataset,value\nsst2,0.5\n")
    with pytest.raises(StudyError, match="lacks the columns"):
        analysis.tables([], settings)
    assert analysis.tables([], Settings()) == Analysis()
