"""Commands over runs: a folder, a file, many runs and a repository of the Hub are named alike; seeds without YAML."""

import os
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from attnfaith import cli, locate, record, runs
from tests.hub_server import HubServer
from tests.records import draw


pytestmark = pytest.mark.slow


TINY = """
name: tiny
output_dir: run
seed: 3
data: {arguments: {length: [4, 8], vocabulary_size: 40, sizes: {train: 32, validation: 16, test: 16}}}
model: {encoder: average, embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1, learning_rate: 1e-2, arguments: {disable_tqdm: true}}
measure: {producers: [gradient]}
report: {examples: 1}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, quick_report):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "tiny.yaml").write_text(TINY)


def save(path, **fields):
    """A run folder with nothing but a record."""
    os.makedirs(path)
    record.save(draw(24, **fields), f"{path}/record.parquet")


@pytest.fixture
def runs_there(tmp_path):
    """Seeds 1, 2 and 10 of softmax in one folder, one of sparsemax beside it."""
    for seed in (1, 2, 10):
        save(f"soft/seed_{seed}", seed=seed)
    save("sparse", seed=1, projection="sparsemax")
    return tmp_path


def error(capsys, *words):
    assert cli.main(list(words)) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 2
    return shown.splitlines()[0].removeprefix("error: ")


def test_a_run_a_record_and_a_folder_of_runs(runs_there):
    (one,) = locate.locate_all("soft/seed_1")
    (same,) = locate.locate_all("soft/seed_1/record.parquet")
    assert one.paths == same.paths and str(one.folder) == "soft/seed_1" and same.folder is None
    assert [source.name for source in locate.locate_all("soft")] == [f"soft/seed_{seed}" for seed in (1, 2, 10)]
    assert len(locate.locate_each(["soft", "soft/seed_1"])) == 3, "one that two words name comes once"
    assert one.load().equals(record.load("soft/seed_1/record.parquet"))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("soft/seed_11", r"no run or record at soft/seed_11; did you mean soft/seed_1"),
        ("spars", r"no run or record at spars; did you mean sparse\?"),
        ("nothing.parquet", r"no run or record at nothing.parquet; in \. there are sparse$"),
        ("no/such/place", r"no run or record at no/such/place$"),
        ("alice/none", r"no run or record at alice/none, and on the Hub alice/none cannot be looked up: it is not in "),
        ("x" * 5000, r"is no run, record or repository: File name too long"),
        ("empty", r"empty holds no record.parquet, nor do the folders in it"),
        ("unmeasured", r"unmeasured is a run without a record: `attnfaith measure unmeasured` makes it"),
        ("soft", r"soft holds 3 records: name one of soft/seed_1, soft/seed_2, soft/seed_10$"),
    ],
)
def test_what_is_not_there(runs_there, word, says, capsys):
    os.makedirs("empty")
    os.makedirs("unmeasured")
    (runs_there / "unmeasured" / "recipe.yaml").write_text(TINY)
    assert re.search(says, error(capsys, "show", word, "1"))


@pytest.mark.parametrize(
    "command", [["measure"], ["push", "--to", "x", "--dry-run"], ["cards", "--to", "x"], ["roar", "--output", "x"]]
)
def test_commands_that_need_a_run_say_so(runs_there, command, capsys):
    said = error(capsys, command[0], "soft/seed_1/record.parquet", *command[1:])
    assert re.search(r"record.parquet is a file; \S+( \S+)? needs the folder of a run, with its model and recipe", said)
    said = error(capsys, command[0], "alice/tiny", *command[1:])
    if command == ["measure"]:  # which takes one of the Hub, too
        assert said.startswith("no folder of a run at alice/tiny, and on the Hub alice/tiny cannot be looked up")
        return
    assert "needs that of a run: of a model on the Hub `attnfaith reproduce alice/tiny` makes one" in said


HUB = """
import os, sys
from huggingface_hub import HfApi
from attnfaith import cli, locate, record
api, files = HfApi(), sys.argv[1:]
card = "---\\nattnfaith:\\n  records: alice/attnfaith-records\\n  configuration: tiny\\n---\\n"
api.create_repo("alice/tiny")
api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id="alice/tiny")
api.create_repo("alice/attnfaith-records", repo_type="dataset")
for place, file in zip(("tiny/a-0.parquet", "tiny/a-1.parquet", "other/b-0.parquet"), files):
    api.upload_file(path_or_fileobj=file, path_in_repo=place, repo_id="alice/attnfaith-records", repo_type="dataset")
def show(*words):
    sources = locate.locate_each(words)
    print([(source.name, source.load().num_rows) for source in sources])
show("alice/tiny")
show("alice/attnfaith-records:other")
show("alice/attnfaith-records")
print(cli.main(["table", "alice/attnfaith-records", "--rows", "encoder", "--columns", "measure"]))
print(cli.main(["show", "alice/attnfaith-records", "1"]), cli.main(["show", "alice/tny", "1"]))
print(cli.main(["show", "alice/attnfaith-records:oter", "1"]))
os.environ["HF_HUB_OFFLINE"] = "1"
import huggingface_hub.constants as constants
constants.HF_HUB_OFFLINE = True
show("alice/tiny")
"""


def test_repositories_of_a_hub(tmp_path, warm_python):
    """A model, whose card names its records, and a data set of records; once read, they are there without the Hub too."""
    table = draw(24, seed=1)
    parts = {"a": table.slice(0, 10), "b": table.slice(10), "c": draw(24, seed=2, encoder="cnn")}
    for name, part in parts.items():
        record.save(part, f"{name}.parquet")
    with HubServer() as hub:
        environment = {**hub.environment(tmp_path, token="hf_alice"), "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [warm_python, "-c", HUB, *(f"{name}.parquet" for name in parts)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == "[('alice/tiny', 24)]"
    assert lines[1] == "[('alice/attnfaith-records', 24)]"
    assert lines[2] == "[('alice/attnfaith-records:other', 24), ('alice/attnfaith-records:tiny', 24)]"
    assert [line.split()[0] for line in lines[3:6]] == ["gradient", "encoder", "cnn"] and "0" in lines and "2 2" in lines
    errors = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors[0].startswith("alice/attnfaith-records holds 2 records: name one of alice/attnfaith-records:other, ")
    assert "no run or record at alice/tny, and on the Hub " in errors[1]
    assert errors[2] == "the data set alice/attnfaith-records holds no record of oter; it has other, tiny"


MEASURED = """
from huggingface_hub import HfApi
from pathlib import Path
from attnfaith import cli
api = HfApi()
assert cli.main(["train", "--config", "tiny.yaml"]) == 0
for name in ("alice/tiny", "alice/of_a_file", "alice/no_run"):
    api.create_repo(name)
    api.upload_folder(repo_id=name, folder_path="run/model")
    if name != "alice/no_run":
        recipe = Path("run/recipe.yaml").read_text()
        if name == "alice/of_a_file":
            recipe = recipe.replace("name: planted_evidence", "name: null").replace("path: null", "path: /etc/passwd")
            recipe = recipe.replace("preprocessing: null", "preprocessing: words")
            recipe = recipe.replace("max_length: null", "max_length: 9")
            recipe = recipe[: recipe.index("  arguments:")] + recipe[recipe.index("  limits:"):]
        api.upload_file(path_or_fileobj=recipe.encode(), path_in_repo="recipe.yaml", repo_id=name)
        api.upload_file(path_or_fileobj="run/run.json", path_in_repo="run.json", repo_id=name)
for words in (["alice/tiny", "--producers", "occlusion"], ["alice/tiny", "--producers", "occlusion"], ["alice/of_a_file"],
              ["alice/no_run"], ["alice/tny"]):
    print("code", cli.main(["measure", *words]))
"""


def test_a_run_of_the_hub_is_measured(tmp_path, warm_python):
    """Its model and its texts, by its recipe; the run is put below runs/hub. One that was made of a file reads none here."""
    with HubServer() as hub:
        environment = {**hub.environment(tmp_path, token="hf_alice"), "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [warm_python, "-c", MEASURED]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall("code (.)", done.stdout) == ["0", "0", "2", "2", "2"], done.stderr
    made, first = (record.load(folder / "record.parquet") for folder in (locate.FETCHED / "alice--tiny", tmp_path / "run"))
    assert made["attention"].equals(first["attention"]) and "importance_occlusion" in made.column_names
    errors = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "`attnfaith reproduce alice/of_a_file --data.path FILE` makes it anew" in errors[0]
    assert errors[1].startswith("alice/no_run on the Hub is no run of this package: it lacks recipe.yaml, run.json")
    assert errors[2].startswith("no folder of a run at alice/tny, and on the Hub ")


def test_compare(runs_there, capsys):
    assert cli.main(["compare", "soft/seed_1", "sparse", "--output", "compared.csv"]) == 0
    shown = capsys.readouterr().out
    assert "\nfirst: soft/seed_1\n" in shown and "cannot be told" in shown
    compared = pd.read_csv("compared.csv")["quantity"].tolist()
    assert compared == ["tau attention–gradient", "tau attention–leave_one_out", "correct"]
    assert cli.main(["compare", "soft", "sparse"]) == 0
    assert "\nfirst: softmax\n" in capsys.readouterr().out, "seeds of one kind are one side"
    assert "a comparison needs two models or more; given: sparse" in error(capsys, "compare", "sparse")


TABLES = {
    "text": (".txt", " " * 17 + "gradient  leave-one-out\nprojection "),
    "markdown": (".md", "| projection | gradient | leave-one-out |\n| --- | ---: | ---: |\n| softmax | 0."),
    "latex": (".tex", "% Kendall's τ of attention: mean ± standard deviation (n - 1) over "),
    "csv": (".csv", "projection,gradient mean,gradient std,gradient n,leave_one_out mean,"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_table(runs_there, kind, capsys):
    suffix, start = TABLES[kind]
    words = ["table", "soft", "sparse", "--rows", "projection", "--columns", "measure"]
    assert cli.main([*words, "--format", kind]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(start) and ("±" in shown or kind == "csv")
    assert cli.main([*words, "--output", f"table{suffix}"]) == 0
    assert (runs_there / f"table{suffix}").read_text() == shown, "the suffix says the format"


def test_table_without_names_shows_what_there_is(runs_there, capsys):
    assert cli.main(["table", "soft", "sparse"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("projection") == 2 and "accuracy" in shown and "(n = 1)" in shown
    assert "a CSV holds one table" in error(capsys, "table", "soft", "--format", "csv")


def test_show(runs_there, capsys):
    assert cli.main(["show", "sparse", "5", "t/006", "--measures", "gradient"]) == 0
    shown = capsys.readouterr().out
    assert "t/005  (text 5 of 24)" in shown and "t/006  (text 6 of 24)" in shown and "\x1b" not in shown
    assert cli.main(["show", "sparse"]) == 0
    assert capsys.readouterr().out.count("(text ") == 2, "the best and the worst"
    assert "did you mean t/005?" in error(capsys, "show", "sparse", "t/0055")


def test_report_takes_a_folder_of_runs(runs_there, capsys):
    assert "--output is needed" in error(capsys, "report", "soft")
    assert cli.main(["report", "soft", "--output", "page", "--examples", "1"]) == 0
    assert (runs_there / "page" / "index.html").is_file()


def test_seeds_without_yaml(tmp_path, capsys, monkeypatch):
    words = ["train", "--config", "tiny.yaml", "--producers", "gradient", "--add", "leave_one_out", "--seeds", "4", "5"]
    started, run = [], runs.run
    monkeypatch.setattr(runs, "run", lambda recipe, **how: started.append((recipe, how)) or run(recipe, **how))
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    recipes_run = [recipe for recipe, _ in started]
    assert [(recipe.seed, recipe.output_dir, recipe.name) for recipe in recipes_run] == [
        (4, "run/seed_4", "tiny-4"),
        (5, "run/seed_5", "tiny-5"),
    ]
    assert all(recipe.measure.producers == ["gradient", "leave_one_out"] for recipe in recipes_run)
    assert "over 2 seeds" in shown and (tmp_path / "run" / "seeds.md").read_text().count("±") > 3
    table = pd.read_csv("run/seeds-agreement.csv")
    states = [runs.read_state(f"run/seed_{seed}") for seed in (4, 5)]
    taus = [state["attention_faithfulness"]["gradient"]["kendall_tau"] for state in states]
    assert table["gradient mean"].item() == pytest.approx(sum(taus) / 2) and table["gradient n"].item() == 2

    stamps = {seed: os.stat(f"run/seed_{seed}/record.parquet").st_mtime_ns for seed in (4, 5)}
    shutil.rmtree("run/seed_5")
    assert cli.main(words) == 0, "the same command goes on"
    assert os.stat("run/seed_4/record.parquet").st_mtime_ns == stamps[4] and os.path.isfile("run/seed_5/record.parquet")
    capsys.readouterr()
    assert error(capsys, "train", "--config", "tiny.yaml", "--output_dir", "run/seed_4", "--seeds", "1").startswith(
        "run/seed_4 is a run: its seeds go into folders in it"
    )


def test_seeds_in_several_processes(monkeypatch):
    launched = []
    monkeypatch.setattr(cli.common, "launch", lambda *given: launched.append(given) or 3)
    with pytest.raises(SystemExit, match="^3$"):
        cli.main(["train", "--config", "tiny.yaml", "--seeds", "4", "5", "--processes", "2", "--limit", "9"])
    own = ["--seed=4", '--output_dir="run/seed_4"', '--name="tiny-4"', "--resume_from_checkpoint"]
    assert launched == [("train", ["--config", "tiny.yaml", "--limit", "9", *own], 2)]


def test_add_goes_to_the_producers_of_the_recipe(monkeypatch, capsys):
    given = []
    monkeypatch.setattr(runs, "run", lambda recipe, **how: given.append(recipe) or "page")
    assert cli.main(["train", "--config", "tiny.yaml", "--add", "lime,gradient", "lrp"]) == 0
    assert given[0].measure.producers == ["gradient", "lime", "lrp"], "once each"
