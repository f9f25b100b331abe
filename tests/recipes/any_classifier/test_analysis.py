"""The tables of the studies of a fine-tuned encoder, on records whose order of measures is known."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import save_png
from tests.identities import typed


FOLDER = Path(__file__).parents[3] / "recipes" / "any_classifier"
analysis = load_analysis(FOLDER / "analysis.py")
UNTOLD = "cannot be told"
SHARES = (0.1, 0.3)
NAMES = ("attention", "absolute_signed", "signed", "random")
FALLS = (0.3, 0.3, 0.6, 0.1)


def one(seed=0, falls=FALLS, texts=30, label=1, noise=0.03, identifiable=False, projection="softmax"):
    """A cell in which taking away what a measure ranks first costs what `falls` says, in the order of NAMES; leaving nothing
    else costs as much less.
    """
    columns: dict[str, list] = {}
    identity = asdict(typed(projection, seed=seed))
    for number in range(texts):
        rng = np.random.default_rng([number, seed])
        shifts = noise * rng.normal(size=(2, len(NAMES), len(SHARES)))
        values = {
            "instance_id": f"sst/{number}", **identity, "tokens": ["w"] * 6, "label": label, "truncated": False,
            "probs": [0.05, 0.95], "attention": rng.dirichlet(np.ones(6)), "importance_signed": rng.normal(size=6),
            "importance_random": rng.random(6),
            "rationale_erasure_measures": list(NAMES), "rationale_erasure_shares": list(SHARES),
            "rationale_erasure_removed_probs": np.clip(0.95 - np.array(falls)[:, None] + shifts[0], 0, 1),
            "rationale_erasure_kept_probs": np.clip(0.25 + np.array(falls)[:, None] + shifts[1], 0, 1),
            "rationale_erasure_whole_prob": 0.95, "rationale_erasure_empty_prob": 0.2,
        }  # fmt: skip
        if identifiable:
            values |= {f"identifiability_{name}": 0.1 for name in ("tvd", "bound", "support", "top_attention", "top_low")}
            values |= {"identifiability_logit_change": 0.0, "identifiability_certainty": "exact"}
            values |= {"identifiability_low": np.zeros(6), "identifiability_high": np.ones(6)}
            values |= {"identifiability_attention": np.full(6, 1 / 6)}
            values |= {"identifiability_layer_tvd": [0.1, 0.4], "identifiability_layer_rows": [6.0, 1.0]}
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


def tables(cells, **settings):
    return analysis.tables(cells, Settings(**settings)).tables


def test_an_order_is_shown_as_far_as_it_is_known():
    made = tables([one(seed) for seed in (10, 11, 12)])
    ranked = made["measures_ranking"].set_index(["test", "measure"])
    aopc = ranked.loc["aopc_removed"]
    assert aopc.loc["signed", ["rank", "rank_low", "rank_high"]].tolist() == [1, 1, 1]
    assert aopc.loc["random", ["rank", "rank_low", "rank_high"]].tolist() == [4, 4, 4]
    for name in ("attention", "absolute_signed"):  # of one fall: which is the better of the two is noise
        assert aopc.loc[name, ["rank_low", "rank_high"]].tolist() == [2, 3]
    assert aopc.loc["signed", ["n_seeds", "n", "n_undefined"]].tolist() == [3, 90, 0]
    assert aopc.loc["signed", "mean"] == pytest.approx(0.6, abs=0.01)
    assert aopc.loc["signed", "ci_low"] < aopc.loc["signed", "mean"] < aopc.loc["signed", "ci_high"]
    kept = ranked.loc["aopc_kept"]  # what is lost when nothing else is left: the less, the better
    assert kept.loc[["signed", "random"], "rank"].tolist() == [1, 4] and kept.loc["signed", "mean"] == pytest.approx(
        0.1, abs=0.01
    )
    pairs = made["measures_pairs"].query("test == 'aopc_removed'").set_index(["first", "second"])
    assert len(pairs) == 6 and (pairs["n_pairs"] == 6).all() and (pairs["n"] == 90).all()
    sign = pairs.loc[("absolute_signed", "signed")]
    assert sign["verdict"] == "signed" and sign["difference"] == pytest.approx(-0.3, abs=0.02) and sign["ci_high"] < 0
    assert pairs.loc[("attention", "absolute_signed"), "verdict"] == UNTOLD
    assert pairs.loc[("attention", "random"), "verdict"] == "attention"


def test_an_interval_over_seeds_is_as_wide_as_seeds_differ():
    alike = tables([one(seed) for seed in (10, 11, 12)])["measures_ranking"]
    apart = tables([one(seed, (fall, 0.3, 0.6, 0.1)) for seed, fall in zip((10, 11, 12), (0.2, 0.3, 0.4), strict=True)])
    query = "test == 'aopc_removed' and measure == 'attention'"
    narrow, wide = (table.query(query).iloc[0] for table in (alike, apart["measures_ranking"]))
    assert narrow["mean"] == pytest.approx(wide["mean"], abs=0.01)
    assert narrow["ci_high"] - narrow["ci_low"] < 0.03 and wide["ci_high"] - wide["ci_low"] > 0.15


def test_accuracy_of_what_is_left():
    falls = (0.3, 0.25, 0.6, 0.1)  # .65, .7, .35 and .85 of class 1 without the first tokens; .55, .5, .85 and .35 by them
    cell = one(falls=falls, noise=0, texts=2)
    made = analysis.per_text(cell)
    removed, kept = ({name: list(row) for name, row in made[f"accuracy_{end}"].items()} for end in ("removed", "kept"))
    assert removed == {"attention": [1, 1], "absolute_signed": [1, 1], "signed": [0, 0], "random": [1, 1]}
    assert kept == {"attention": [1, 1], "absolute_signed": [0, 0], "signed": [1, 1], "random": [0, 0]}


def test_a_text_where_a_measure_is_undefined_is_in_no_pair():
    cells = [one(seed) for seed in (10, 11)]
    columns = cells[0].table.column("rationale_erasure_removed_probs").to_pylist()
    columns[3][2] = [float("nan")] * len(SHARES)
    place = cells[0].table.column_names.index("rationale_erasure_removed_probs")
    table = cells[0].table.set_column(place, cells[0].table.field(place), [columns])
    made = tables([split_cells(table)[0], cells[1]])
    ranked = made["measures_ranking"].query("test == 'aopc_removed'").set_index("measure")
    assert ranked["n"].to_dict() == {"attention": 60, "absolute_signed": 60, "signed": 59, "random": 60}
    assert ranked["n_undefined"].tolist() == [0, 0, 1, 0]
    pairs = made["measures_pairs"].query("test == 'aopc_removed'")
    assert (pairs["n"] == 59).all() and (pairs["n_left_out"] == 1).all()


def test_published_numbers_stand_beside_measured_ones(tmp_path):
    rows = "dataset,model,measure,published_measure,test,value,definition,source\n"
    rows += "sst2,BERT,signed,Signed,aopc_removed,0.5,the same,a paper\nsst2,BERT,,Other,aopc_removed,0.4,not ours,a paper\n"
    (tmp_path / "published.csv").write_text(rows)
    settings = {"published": tmp_path / "published.csv", "stand_ins": {"sst": "sst2"}}
    made = analysis.tables([one(seed) for seed in (10, 11)], Settings(**settings))
    table = made.tables["measures_published"].set_index("published_measure")
    assert table["published_for"].tolist() == ["sst2", "sst2"] and table["definition"].tolist() == ["the same", "not ours"]
    assert table.loc["Signed", "measured"] == pytest.approx(0.6, abs=0.01)
    assert table.loc["Signed", "difference"] == pytest.approx(table.loc["Signed", "measured"] - 0.5)
    assert np.isnan(table.loc["Other", "measured"])
    assert list(made.figures) == ["sst-measures"]
    assert save_png(made.figures["sst-measures"], tmp_path / "one.png").stat().st_size > 5000
    (tmp_path / "published.csv").write_text("dataset,value\nsst2,0.5\n")
    with pytest.raises(StudyError, match="lacks the columns"):
        analysis.tables([], Settings(**settings))


def test_what_attention_could_be_is_drawn_by_projection(tmp_path):
    cells = [one(seed, identifiable=True, projection=name) for name in ("softmax", "sparsemax") for seed in (10, 11)]
    made = analysis.tables(cells, Settings())
    layers = made.figures["reach"].axes[2]
    assert [line.get_ydata().tolist() for line in layers.lines] == [pytest.approx([0.1, 0.4])] * 2
    assert save_png(made.figures["reach"], tmp_path / "reach.png").stat().st_size > 5000
    means = made.tables["quantities"].set_index(["projection", "quantity"])["mean"]
    assert means["sparsemax", "identifiability_tvd"] == pytest.approx(0.1)


def test_without_cells_there_is_nothing():
    assert analysis.tables([], Settings()) == Analysis()
