"""The commands as a user types them, from a recipe to a page: folders, files, many runs and the Hub are named alike."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnfaith import cli, recipes, record, runs
from attnfaith.record import lookup
from tests.figures import IN_A_PROCESS
from tests.hub.server import HubServer
from tests.records import draw


pytestmark = pytest.mark.slow


TINY = """
name: tiny
output_dir: run
seed: 3
data: {arguments: {length: [4, 8], vocabulary_size: 40, sizes: {train: 64, validation: 24, test: 24}}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1, learning_rate: 1e-2, arguments: {disable_tqdm: true}}
report: {examples: 1}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, quick_report):
    """With tiny.yaml; no data root and no cache of the user's."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_DATA", raising=False)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / ".cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "tiny.yaml").write_text(TINY)


@pytest.fixture
def fails(capfd):
    """Runs a command that must fail as a user's mistake does: code 2, one line that says it, no traceback."""

    def run(*arguments, says):
        assert cli.main(list(arguments)) == 2
        error = capfd.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, error
        assert re.search(says, lines[0]), lines[0]
        assert "Traceback" not in error
        assert error.rstrip().endswith("(set ATTNFAITH_TRACEBACK=1 for the traceback)")
        return lines[0]

    return run


# ------------------------------------------------------------------------------------------------ a whole round


@pytest.mark.gate
def test_train_measure_report(tmp_path, capfd):
    assert (
        cli.main(["train", "--config", "tiny.yaml", "--encoder", "average", "--training.arguments.disable_tqdm=true"]) == 0
    )
    shown = capfd.readouterr().out
    assert f"report: {tmp_path}/run/report/index.html" in shown
    assert "\nattention: Cannot be told" in shown
    assert (
        cli.main(["measure", "run", "--measure.producers", "[leave_one_out]", "--limit", "9", "--output", "part.parquet"])
        == 0
    )
    assert "record: part.parquet" in capfd.readouterr().out
    part = record.load("part.parquet")
    assert part.num_rows == 9 and part.column("encoder").unique().to_pylist() == ["average"]

    written = (tmp_path / "run" / "report" / "index.html").read_bytes()
    shutil.rmtree(tmp_path / "run" / "report")
    assert cli.main(["report", "run"]) == 0, "the folder of a run is its record, and its report the output"
    assert f"report: {tmp_path}/run/report/index.html" in capfd.readouterr().out
    assert (tmp_path / "run" / "report" / "index.html").read_bytes() == written

    assert cli.main(["train", "--config", "tiny.yaml", "--output_dir", "other", "--seed=4"]) == 0
    capfd.readouterr()
    records = ["run/record.parquet", "other"]
    assert cli.main(["report", *records, "--output", "both", "--examples", "1"]) == 0
    assert "both/index.html" in capfd.readouterr().out
    page = (tmp_path / "both" / "index.html").read_text()
    assert "average" in page and "bilstm" in page

    table = record.load("other/record.parquet")
    older = record.settings(table)
    older[0]["version"] = "0.0.1"
    record.save(record.with_settings(table, older), "other/record.parquet")
    assert cli.main(["report", *records, "--output", "mixed", "--examples", "1"]) == 2
    said = capfd.readouterr().err
    assert "0.0, 0.1" in said and "--mix-versions" in said
    assert cli.main(["report", *records, "--output", "mixed", "--examples", "1", "--mix-versions"]) == 0


def test_overwriting_and_going_on(fails):
    assert cli.main(["train", "--config", "tiny.yaml"]) == 0
    fails("train", "--config", "tiny.yaml", says="holds a run already.*--overwrite_output_dir")
    assert cli.main(["train", "--config", "tiny.yaml", "--resume_from_checkpoint"]) == 0
    fails("train", "--config", "tiny.yaml", "--resume_from_checkpoint", "--seed", "4", says="another recipe .*seed")
    assert cli.main(["train", "--config", "tiny.yaml", "--overwrite_output_dir", "--seed", "4"]) == 0
    assert record.load("run/record.parquet").column("seed").unique().to_pylist() == [4]
    fails("report", "run", "--examples", "0", says="n_examples is 0")
    fails("report", "run/model", says=r"run/model holds no record.parquet, .*; did you mean the run run\?")
    fails("cards", "run", "run", "--to", "somebody", says="two of the runs would be somebody/tiny")


def test_a_data_set_without_a_recipe(fails, tmp_path, capfd):
    """The quickstart's settings are for its own texts: another data set has the defaults and a folder of its own."""
    assert cli.main(["train", "--data.name=planted_evidence", "--num_train_epochs", "0"]) == 2
    assert "no --config is given: " not in capfd.readouterr().out, "a recipe that is refused is not announced"
    assert cli.main(["train", "--data.name", "sst"]) == 2
    shown = capfd.readouterr()
    assert "no --config is given: sst, in runs/sst\n" in shown.out and "Cannot read 'sst'" in shown.err
    assert recipes.load(tmp_path / "runs" / "sst" / "recipe.yaml").data == recipes.Data("sst")


NEWS = ["train", "--config", "tiny.yaml", "--data.name", "cnn_qa", "--data.arguments", "{}", "--min_df", "1"]
NEWS += ["--readout", "tanh", "--num_train_epochs", "1"]


@pytest.fixture
def news(tmp_path, monkeypatch, quick_report):
    """A data root of questions; returns a function that writes one split of [(entities, answer)], and others beside it."""
    usual = [[f"@entity{(number + place) % 9}" for place in range(5)] for number in range(12)]
    usual = [(entities, entities[number % 5]) for number, entities in enumerate(usual)]
    folder = tmp_path / "data" / "cnn"
    folder.mkdir(parents=True)

    def write(split, questions):
        lines = []
        for entities, answer in questions:
            passage = " . ".join(f"{name} met {entities[0]}" for name in entities)
            lines.append(json.dumps({"passage": f"{passage} .", "question": "who is @placeholder", "answer": answer}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        return questions

    parts = {split: write(split, usual[:count]) for split, count in (("train", 12), ("validation", 6), ("test", 6))}
    monkeypatch.setenv("ATTNFAITH_DATA", str(tmp_path / "data"))
    return lambda split, more: write(split, [*parts[split], *more])


def test_news_questions_from_training_to_page(news, capfd):
    """What cannot be answered is left out and said; the classes that a text does not name have probability 0 exactly."""
    news("test", [(["@entity1", "@entity2"], "@entity3"), (["@entity1", "@entity77"], "@entity77")])
    news("validation", [(["@entity1", "@entity88"], "@entity1")])
    assert cli.main([*NEWS, "--measure.producers", "[gradient, permutation]"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("cnn_qa: ")] == [
        "cnn_qa: questions left out, as their answer is not in their text: 1",
        "cnn_qa: questions left out, as their answer is not one of training: 1",
        "cnn_qa: candidates left out, as no training text has them: 1",
    ]
    table = record.load("run/record.parquet")
    assert table.num_rows == 6
    names = record.settings(table)[0]["label_names"]
    for column in ("probs", "permuted_probs"):
        for tokens, values in zip(table.column("tokens").to_pylist(), record.rows(table, column), strict=True):
            assert (np.atleast_2d(values)[:, [name not in tokens for name in names]] == 0).all()
            assert (np.atleast_2d(values)[:, [name in tokens for name in names]] > 0).all()
    page = Path("run/report/index.html").read_text(encoding="utf-8")
    assert 'query: <span lang="" dir="auto"><bdi>who</bdi> <bdi>is</bdi> <bdi>@placeholder</bdi>' in page


# ------------------------------------------------------------------------------------------------ many runs


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


def test_a_run_a_record_and_a_folder_of_runs(runs_there):
    (one,) = lookup.find_records("soft/seed_1")
    (same,) = lookup.find_records("soft/seed_1/record.parquet")
    assert one.paths == same.paths and str(one.folder) == "soft/seed_1" and same.folder is None
    assert [source.name for source in lookup.find_records("soft")] == [f"soft/seed_{seed}" for seed in (1, 2, 10)]
    assert len(lookup.find_records("soft", "soft/seed_1")) == 3, "one that two words name comes once"
    assert one.load().equals(record.load("soft/seed_1/record.parquet"))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("soft/seed_11", r"no run or record at soft/seed_11; did you mean soft/seed_1"),
        ("spars", r"no run or record at spars; did you mean sparse\?"),
        ("nothing.parquet", r"no run or record at nothing.parquet; in \. there are sparse$"),
        ("no/such/place", r"no run or record at no/such/place$"),
        ("alice/none", r"no run or record at alice/none, and on the Hub alice/none cannot be looked up: it is not in "),
        ("x" * 5000, r"no run or record at xxx"),
        ("empty", r"empty holds no record.parquet, nor do the folders in it"),
        ("unmeasured", r"unmeasured is a run without a record: `attnfaith measure unmeasured` makes it"),
        ("soft", r"soft holds 3 records: name one of soft/seed_1, soft/seed_2, soft/seed_10$"),
    ],
)
def test_what_is_not_there(runs_there, word, says, fails):
    os.makedirs("empty")
    os.makedirs("unmeasured")
    (runs_there / "unmeasured" / "recipe.yaml").write_text(TINY)
    fails("show", word, "1", says=says)


@pytest.mark.parametrize("command", ["measure", "push --to x --dry-run", "cards --to x", "roar --output x"])
def test_commands_that_need_a_run_say_so(runs_there, command, fails):
    name, *more = command.split()
    fails(name, "soft/seed_1/record.parquet", *more, says="record.parquet is a file; .* needs the folder of a run")
    says = "cannot be looked up" if name == "measure" else "`attnfaith reproduce alice/tiny` makes one"
    fails(name, "alice/tiny", *more, says=says)


HUB = """
import os, sys
from huggingface_hub import HfApi
from attnfaith import cli, record
from attnfaith.record import lookup
api, files = HfApi(), sys.argv[1:]
card = "---\\nattnfaith:\\n  records: alice/attnfaith-records\\n  configuration: tiny\\n---\\n"
api.create_repo("alice/tiny")
api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id="alice/tiny")
api.create_repo("alice/attnfaith-records", repo_type="dataset")
for place, file in zip(("tiny/a-0.parquet", "tiny/a-1.parquet", "other/b-0.parquet"), files):
    api.upload_file(path_or_fileobj=file, path_in_repo=place, repo_id="alice/attnfaith-records", repo_type="dataset")
def show(*words):
    sources = lookup.find_records(*words)
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
    made, first = (record.load(folder / "record.parquet") for folder in (lookup.FETCHED / "alice--tiny", tmp_path / "run"))
    assert made["attention"].equals(first["attention"]) and "importance_occlusion" in made.column_names
    errors = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "`attnfaith reproduce alice/of_a_file --data.path FILE` makes it anew" in errors[0]
    assert errors[1].startswith("alice/no_run on the Hub is no run of this package: it lacks recipe.yaml, run.json")
    assert errors[2].startswith("no folder of a run at alice/tny, and on the Hub ")


def test_compare(runs_there, capfd, fails):
    assert cli.main(["compare", "soft/seed_1", "sparse", "--output", "compared.csv"]) == 0
    shown = capfd.readouterr().out
    assert "\nfirst: soft/seed_1\n" in shown and "cannot be told" in shown
    compared = pd.read_csv("compared.csv")["quantity"].tolist()
    assert compared == ["tau attention–gradient", "tau attention–leave_one_out", "correct"]
    assert cli.main(["compare", "soft", "sparse"]) == 0
    assert "\nfirst: softmax\n" in capfd.readouterr().out, "seeds of one kind are one side"
    fails("compare", "sparse", says="a comparison needs two models or more; given: sparse")


TABLES = {
    "text": (".txt", " " * 17 + "gradient  leave-one-out\nprojection "),
    "markdown": (".md", "| projection | gradient | leave-one-out |\n| --- | ---: | ---: |\n| softmax | 0."),
    "latex": (".tex", "% Kendall's τ of attention: mean ± standard deviation (n - 1) over "),
    "csv": (".csv", "projection,gradient mean,gradient std,gradient n,leave_one_out mean,"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_table(runs_there, kind, capfd):
    suffix, start = TABLES[kind]
    words = ["table", "soft", "sparse", "--rows", "projection", "--columns", "measure"]
    assert cli.main([*words, "--format", kind]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith(start) and ("±" in shown or kind == "csv")
    assert cli.main([*words, "--output", f"table{suffix}"]) == 0
    assert (runs_there / f"table{suffix}").read_text() == shown, "the suffix says the format"


def test_show(runs_there, capfd, fails):
    assert cli.main(["show", "sparse", "5", "t/006", "--measures", "gradient"]) == 0
    shown = capfd.readouterr().out
    assert "t/005  (text 5 of 24)" in shown and "t/006  (text 6 of 24)" in shown and "\x1b" not in shown
    assert cli.main(["show", "sparse"]) == 0
    assert capfd.readouterr().out.count("(text ") == 2, "the best and the worst"
    fails("show", "sparse", "t/0055", says="did you mean t/005")


def test_seeds_without_yaml(tmp_path, capfd, monkeypatch, fails):
    words = ["train", "--config", "tiny.yaml", "--producers", "gradient", "--add", "leave_one_out", "--seeds", "4", "5"]
    started, run = [], runs.run
    monkeypatch.setattr(runs, "run", lambda recipe, **how: started.append((recipe, how)) or run(recipe, **how))
    assert cli.main(words) == 0
    shown = capfd.readouterr().out
    recipes_run = [recipe for recipe, _ in started]
    assert [(recipe.seed, recipe.output_dir, recipe.name) for recipe in recipes_run] == [
        (4, "run/seed_4", "tiny-4"),
        (5, "run/seed_5", "tiny-5"),
    ]
    assert all(recipe.measure.producers == ["gradient", "leave_one_out"] for recipe in recipes_run)
    assert "over 2 seeds" in shown and (tmp_path / "run" / "seeds.md").read_text().count("±") > 3
    table = pd.read_csv("run/seeds-agreement.csv")
    assert abs(table["gradient mean"].item()) <= 1 and table["gradient n"].item() == 2

    stamps = {seed: os.stat(f"run/seed_{seed}/record.parquet").st_mtime_ns for seed in (4, 5)}
    shutil.rmtree("run/seed_5")
    assert cli.main(words) == 0, "the same command goes on"
    assert os.stat("run/seed_4/record.parquet").st_mtime_ns == stamps[4] and os.path.isfile("run/seed_5/record.parquet")
    fails(
        "train", "--config", "tiny.yaml", "--output_dir", "run/seed_4", "--seeds", "1", says="run/seed_4 is a run: its seeds"
    )


# ------------------------------------------------------------------------------------------------ processes

LAUNCH = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",  # any free port
]  # fmt: skip
# The script, with a list of the texts that each process trains on.
SPY = """
import json, os, runpy, sys
from attnfaith.training import trainers
seen, pad = [], trainers.pad_batch
def spy(rows, *given):
    seen.append([row["input_ids"] for row in rows])
    return pad(rows, *given)
trainers.pad_batch = spy
try:
    runpy.run_path({script!r}, run_name="__main__")
finally:
    with open(f"seen{{os.environ['RANK']}}.json", "w") as file:
        json.dump(seen, file)
"""


@pytest.mark.gate
def test_two_processes_train_one_model(tmp_path, repository, warm_attnfaith):
    """Told nothing about the CPU, they still are one training; with dropout, each text is seen once in every epoch."""
    (tmp_path / "spy.py").write_text(IN_A_PROCESS + SPY.format(script=str(repository / "recipes" / "train.py")))
    arguments = ["--config", "tiny.yaml", "--num_train_epochs", "3", "--dropout", "0.3"]
    arguments += ["--per_device_train_batch_size", "8"]
    done = subprocess.run(
        [warm_attnfaith, *LAUNCH, "spy.py", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("run/report/index.html") == 1
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    assert state["processes"] == 2 and state["status"] == "complete"
    assert record.load(tmp_path / "run" / "record.parquet").num_rows == 24
    batches = [json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in (0, 1)]
    orders = []
    for epoch in range(3):
        seen = []
        for process in batches:  # of an epoch: 64 texts / 2 processes / 8 = 4 batches, and those of validation
            length = len(process) // 3
            seen += [tuple(text) for batch in process[epoch * length : epoch * length + 4] for text in batch]
        assert len(seen) == 64 and len(set(seen)) == 64
        orders.append(seen)
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.gate
def test_interrupted_and_gone_on(tmp_path, repository, warm_attnfaith):
    """Ctrl-C while training: code 130; then the same weights as without it."""
    arguments = ["--config", "tiny.yaml", "--num_train_epochs", "30"]
    process = subprocess.Popen(
        [warm_attnfaith, str(repository / "recipes" / "train.py"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("run/checkpoints/checkpoint-*/trainer_state.json")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert not (tmp_path / "run" / "model").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "started"

    assert cli.main(["train", *arguments, "--resume_from_checkpoint"]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["epochs"] == 30
    assert cli.main(["train", *arguments, "--output_dir", "whole"]) == 0
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole"))
    assert one == other
