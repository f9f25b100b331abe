"""The commands as a user types them: from a recipe to a page, from runs to a table, any text classifier on own texts."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import pandas as pd
import pytest
import yaml

import attnfaith
from attnfaith import cli, recipes, record
from attnfaith.support.files import read_object
from tests.records import draw
from tests.small_classifiers import classifier, tokenizer
from tests.tiny_recipes import tiny_tree


TRAIN = ["train", "--config", "tiny.yaml"]
TEXTS = ["the old ship sank slowly", "good music", "a bad film", "film a film", "good", ""]
OWN = ("--data.path", "mine.csv", "--data.text", "review", "--data.label", "stars")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, quick_figures):
    """The current folder, with tiny.yaml and mine.csv; no data root, cache or Hub of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_DATA", raising=False)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / ".cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree("run", epochs=1)))
    pd.DataFrame({"review": TEXTS, "stars": ["good", "good", "bad", "good", "bad", "bad"]}).to_csv("mine.csv", index=False)
    return tmp_path


@pytest.fixture
def fails(capfd):
    """Run a command that must end with code 2 and one line that gives the reason."""

    def run(*words, message):
        assert cli.main(list(words)) == 2
        error = capfd.readouterr().err
        (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
        assert re.search(message, line) and "Traceback" not in error, error

    return run


# ------------------------------------------------------------------------------------------------ a whole round


@pytest.mark.slow
@pytest.mark.gate
def test_train_measure_report(folder, capfd, fails):
    assert cli.main([*TRAIN, "--encoder", "average"]) == 0
    printed = capfd.readouterr().out
    assert f"report: {folder}/run/report/index.html" in printed and "\nattention: Cannot be told" in printed
    words = ["measure", "run", "--measure.producers", "[leave_one_out]", "--limit", "9", "--output", "part.parquet"]
    assert cli.main(words) == 0 and "record: part.parquet" in capfd.readouterr().out
    part = record.load("part.parquet")
    assert part.num_rows == 9 and part.column("encoder").unique().to_pylist() == ["average"]

    page = Path("run/report/index.html")
    written = page.read_bytes()
    shutil.rmtree("run/report")
    assert cli.main(["report", "run"]) == 0 and page.read_bytes() == written

    assert cli.main([*TRAIN, "--output_dir", "other", "--report.page=false"]) == 0
    assert cli.main(["report", "run/record.parquet", "other", "--output", "both", "--examples", "1"]) == 0
    text = Path("both/index.html").read_text()
    assert "average" in text and "bilstm" in text

    table = record.load("other/record.parquet")
    (settings,) = record.settings(table)
    record.save(record.with_settings(table, [{**settings, "version": "0.0.1"}]), "other/record.parquet")
    fails("report", "run", "other", "--output", "mixed", message="0.0, .*--mix-versions")
    assert cli.main(["report", "run", "other", "--output", "mixed", "--mix-versions"]) == 0
    fails("report", "run", "--examples", "0", message="examples=0")
    fails("report", "run/model", message=r"run/model holds no record.parquet")


@pytest.mark.slow
@pytest.mark.gate
def test_an_interrupted_training_goes_on_to_the_same_weights(folder, repository):
    words = ["--config", "tiny.yaml", "--num_train_epochs", "30", "--report.page=false"]
    command = [sys.executable, str(repository / "recipes" / "train.py"), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(folder.glob("run/checkpoints/checkpoint-*/trainer_state.json")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in error, error
    assert not Path("run/model").exists() and read_object("run/run.json")["status"] == "started"
    Path("run").rename("moved")  # the best checkpoint so far now lies elsewhere, too
    assert cli.main(["train", *words, "--output_dir", "moved", "--resume_from_checkpoint"]) == 0
    assert read_object("moved/run.json")["epochs"] == 30 and cli.main(["train", *words, "--output_dir", "whole"]) == 0
    resumed, whole = (Path(name, "model", "model.safetensors").read_bytes() for name in ("moved", "whole"))
    assert resumed == whole


# ------------------------------------------------------------------------------------------------ many runs


@pytest.fixture
def many(folder):
    """Seeds 1, 2 and 10 of softmax in one folder, one run of sparsemax beside it: records alone."""
    kinds = {f"soft/seed_{seed}": {"seed": seed} for seed in (1, 2, 10)} | {"sparse": {"seed": 1, "projection": "sparsemax"}}
    for name, fields in kinds.items():
        os.makedirs(name)
        record.save(draw(24, **fields), f"{name}/record.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show soft/seed_11 1", "soft/seed_11; did you mean soft/seed_1"),
        ("show alice/none 1", "alice/none cannot be looked up"),
        ("show empty 1", "empty holds no record.parquet"),
        ("show unmeasured 1", "`attnfaith measure unmeasured` makes it"),
        ("show soft 1", "name one of soft/seed_1, soft/seed_2, soft/seed_10$"),
        ("show sparse t/0055", "did you mean 't/005'"),
        ("push alice/tiny --to x --dry-run", "no folder of a run at alice/tiny; .* `attnfaith reproduce OWNER/NAME`"),
        ("measure alice/tiny", "cannot be looked up"),
    ],
)
def test_a_run_that_is_not_there(many, words, message, fails):
    os.makedirs("empty")
    os.makedirs("unmeasured")
    shutil.copy("tiny.yaml", "unmeasured/recipe.yaml")
    fails(*words.split(), message=message)


@pytest.mark.slow
def test_show_and_compare(many, capfd):
    assert cli.main(["show", "sparse", "5", "t/006", "--measures", "gradient"]) == 0
    printed = capfd.readouterr().out
    assert "t/005  (text 5 of 24)" in printed and "t/006  (text 6 of 24)" in printed and "\x1b" not in printed
    assert cli.main(["show", "sparse"]) == 0 and capfd.readouterr().out.count("(text ") == 1, "one of the middle"
    assert cli.main(["compare", "soft/seed_1", "sparse", "--output", "compared.csv", "--page", "compared.html"]) == 0
    assert "cannot be told" in capfd.readouterr().out and Path("compared.html").is_file()
    assert cli.main(["compare", "soft", "sparse"]) == 0
    assert "\nfirst: softmax, second: sparse" in capfd.readouterr().out, "seeds of one kind are one side"
    compared = pd.read_csv("compared.csv")["quantity"].tolist()
    assert compared == ["tau attention–gradient", "tau attention–leave_one_out", "correct"]


@pytest.mark.slow
def test_table(many, capfd):
    words = ["table", "soft", "sparse", "--rows", "projection", "--columns", "measure"]
    starts = {".md": "| projection |", ".tex": "% Kendall's τ", ".csv": "projection,measure,mean,std,n_seeds"}
    for suffix, start in starts.items():
        assert cli.main([*words, "--output", f"table{suffix}"]) == 0
        assert Path(f"table{suffix}").read_text().startswith(start)
    capfd.readouterr()
    assert cli.main([*words, "--format", "latex"]) == 0 and capfd.readouterr().out == Path("table.tex").read_text()
    assert cli.main(["table", "soft"]) == 0 and "over 3 seeds" in capfd.readouterr().out


@pytest.mark.slow
def test_seeds_without_a_study(folder, capfd):
    words = [*TRAIN, "--producers", "gradient", "--add", "leave_one_out", "--report.page=false", "--seeds", "4", "5"]
    assert cli.main(words) == 0
    printed = capfd.readouterr().out
    assert "over 2 seeds" in printed and printed.count("±") > 3
    for seed in (4, 5):
        recipe = recipes.load(f"run/seed_{seed}/recipe.yaml")
        assert (recipe.seed, recipe.name, recipe.measure.producers) == (seed, f"tiny-{seed}", ["gradient", "leave_one_out"])
    stamp = os.stat("run/seed_4/record.parquet").st_mtime_ns
    assert cli.main(words) == 0, "the same command goes on"
    assert os.stat("run/seed_4/record.parquet").st_mtime_ns == stamp


# ------------------------------------------------------------------------------------------------ a model on own texts


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a small BERT with two classes."""
    folder = tmp_path_factory.mktemp("bert")
    classifier("bert", num_labels=2, id2label={0: "bad", 1: "good"}).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_a_model_is_measured_on_a_file_as_by_python(model, capsys):
    words = ["measure", str(model), *OWN, "--producers", "gradient", "occlusion"]
    assert cli.main(words) == 0
    folder = Path(f"runs/{model.name}-mine")
    measured, frame = attnfaith.load(folder), pd.read_csv("mine.csv", keep_default_na=False)
    how = {"measures": ["gradient", "occlusion"], "text": "review", "label": "stars", "name": "mine"}
    assert measured == attnfaith.measure(str(model), frame, **how) and measured.measures == ["gradient", "occlusion"]
    assert cli.main(words) == 2 and "is there already" in capsys.readouterr().err
    assert cli.main([*words, "--overwrite", "--attention", "rollout"]) == 0
    assert attnfaith.load(folder).cells[0].identity.reduction == "rollout"
    Path("split").mkdir()
    for name, texts in (("train", TEXTS), ("test", TEXTS[:4])):
        pd.DataFrame({"text": texts, "label": [0] * len(texts)}).to_csv(f"split/{name}.csv", index=False)
    words = ["measure", str(model), "--data.path", "split", "--producers", "gradient", "--labels", "ids", "--output"]
    assert cli.main([*words, "whole"]) == 0 and attnfaith.load("whole").table["label"].to_pylist() == [0] * 4
    assert cli.main([*words, "some", "--split", "train", "--limit", "3"]) == 0 and len(attnfaith.load("some")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "is a model without a recipe: give its texts, with --data.path or --data.hub_id"),
        (["--attention", "rollout"], "--data.path FILE or --data.hub_id OWNER/NAME"),
        ([*OWN, "--num_train_epochs", "3"], "no option --num_train_epochs"),
        ([*OWN, "--attention", "flows"], "attention='flows' is no reduction; give 'last', 'all', 'rollout'"),
    ],
)
def test_a_model_that_cannot_be_measured_so(model, words, message, fails):
    fails("measure", str(model), *words, message=re.escape(message))
