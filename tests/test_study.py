"""The study script: cells of a grid, resumable runs, tables beside published numbers."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest


ROOT = Path(__file__).resolve().parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(f"recipes_{name}", ROOT / "recipes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


study = script("study")
TINY = """
name: tiny
output_dir: unused
data:
  name: planted_evidence
  arguments: {sizes: {train: 40, validation: 20, test: 12}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1}
measure: {producers: [gradient, leave_one_out]}
report: {examples: 1}
"""


def test_cells_are_the_product_of_the_grid():
    plan = {
        "output_dir": "runs/x",
        "blocks": [{"recipe": "a/sst.yaml", "set": {"bf16": True}, "grid": {"encoder": ["cnn", "average"], "seed": [1, 2]}}],
    }
    found = study.cells(plan)
    assert [name for name, _, _ in found] == ["sst-cnn-1", "sst-cnn-2", "sst-average-1", "sst-average-2"]
    assert found[1][2] == ["--bf16=True", "--encoder=cnn", "--seed=2", "--output_dir=runs/x/sst-cnn-2", "--name=sst-cnn-2"]


def test_two_cells_of_one_name_are_refused():
    block = {"recipe": "a/sst.yaml", "grid": {"seed": [1]}}
    with pytest.raises(ValueError, match="cells of one name: \\['sst-1'\\]"):
        study.cells({"output_dir": "x", "blocks": [block, block]})


def test_unknown_key_of_a_study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("output_dir: x\nblcks: []\n")
    with pytest.raises(ValueError, match="unknown keys \\['blcks'\\]"):
        study.main(["--config", str(path)])


def test_missing_key_of_a_study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("output_dir: x\nblocks: []\n")
    with pytest.raises(ValueError, match="lacks \\['results'\\]"):
        study.main(["--config", str(path)])


def test_null_in_a_grid_is_yaml_null():
    plan = {"output_dir": "x", "blocks": [{"recipe": "a/sst.yaml", "grid": {"early_stopping_patience": [None]}}]}
    assert "--early_stopping_patience=null" in study.cells(plan)[0][2]


@pytest.mark.slow
def test_a_study_runs_keeps_what_is_complete_and_says_what_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "tiny.yaml").write_text(TINY)
    published = pd.DataFrame(
        {
            "dataset": ["planted_evidence"] * 2,
            "encoder": ["average", "bilstm"],
            "alignment": ["additive"] * 2,
            "pair": ["attention–gradient"] * 2,
            "class": ["overall"] * 2,
            "statistic": ["tau_mean"] * 2,
            "value": [0.5, 0.25],
        }
    )
    published.to_csv(tmp_path / "published.csv", index=False)
    scores = published[["dataset", "encoder", "alignment"]].assign(
        published_accuracy=[0.9, 0.8], published_roc_auc=[0.95, 0.85]
    )
    scores.to_csv(tmp_path / "published_performance.csv", index=False)
    plan = tmp_path / "study.yaml"
    plan.write_text(
        f"output_dir: {tmp_path}/runs\nresults: {tmp_path}/results\npublished: {tmp_path}/published.csv\n"
        f"blocks:\n- recipe: {tmp_path}/tiny.yaml\n  grid: {{encoder: [average], seed: [1, 2]}}\n"
        f"- recipe: {tmp_path}/tiny.yaml\n  grid: {{encoder: [no_such]}}\n"
    )
    with pytest.raises(ValueError, match="1 cells failed: \\['tiny-no_such'\\]"):
        study.main(["--config", str(plan)])
    printed = capsys.readouterr().out
    assert "tables of 2 cells" in printed and "1 cells are missing" in printed
    assert "encoder='no_such' is not known" in (tmp_path / "runs" / "tiny-no_such.log").read_text()

    table = pd.read_csv(tmp_path / "results" / "side_by_side.csv")
    assert len(table) == 2 and set(table["encoder"]) == {"average"}
    assert (table["published tau attention–gradient"] == 0.5).all() and (table["published_accuracy"] == 0.9).all()
    beside = pd.read_csv(tmp_path / "results" / "beside_published.csv")
    assert beside.loc[beside["encoder"] == "bilstm", "measured"].isna().all()
    agreement = pd.read_csv(tmp_path / "results" / "agreement.csv")
    for row in table.to_dict("records"):
        same = (agreement["seed"] == row["seed"]) & (agreement["class"] == "overall")
        mean = agreement.loc[same & (agreement["pair"] == "attention–gradient"), "tau_mean"].item()
        assert row["tau attention–gradient"] == mean
    assert (tmp_path / "results" / "agreement_over_seeds.csv").is_file()
    assert (tmp_path / "results" / "plausibility.csv").is_file()

    record = tmp_path / "runs" / "tiny-average-1" / "record.parquet"
    before = record.stat().st_mtime_ns
    with pytest.raises(ValueError, match="1 cells failed"):
        study.main(["--config", str(plan)])
    assert record.stat().st_mtime_ns == before


def test_the_naive_twin_gives_the_same_numbers():
    rows = script("benchmark").measure_length(3, 1)
    assert [row["step"] for row in rows] == [
        "evaluation",
        "gradient",
        "leave-one-out, inputs",
        "leave-one-out, hidden",
        "Kendall with p-value",
        "training step",
    ]
    assert all(row["ms_per_text"] > 0 and row["naive_twin_ms_per_text"] > 0 for row in rows)


def test_the_benchmark_refuses_twins_that_differ():
    with pytest.raises(ValueError, match="gradient: ours and the naive twin differ by 1.0e-01"):
        script("benchmark").same([[0.1]], [[0.2]], "gradient")
