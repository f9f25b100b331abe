"""Own data as a user types it: one command from a file to a page, and what comes after; bad input in one clear line."""

import csv
import json
import re
import shutil
import subprocess

import pytest
import yaml
from sklearn.metrics import accuracy_score

from attnfaith import cli, hub, recipes, record, reproduction
from attnfaith.support import provenance


pytestmark = pytest.mark.slow


TOPICS = ("Kultur", "Politik", "Sport")
SMALL = (
    "--embedding_size",
    "4",
    "--hidden_size",
    "4",
    "--num_train_epochs",
    "1",
    "--training.arguments.disable_tqdm",
    "true",
)
SMALL += ("--measure.producers", "[gradient]")


def rows(n=40):
    return [(f"Satz {row} über {TOPICS[row % 3]}, schön", TOPICS[row % 3]) for row in range(n)]


def write(path, rows, head=("review", "topic"), **how):
    with path.open("w", newline="", **{"encoding": "utf-8", **how}) as stream:
        csv.writer(stream).writerows([head, *rows])


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, quick_report):
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_DATA", raising=False)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with reviews.csv and runs/reviews, made by one command; not to be changed."""
    from tests.figures import REPORT, one_small_figure

    folder = tmp_path_factory.mktemp("own")
    write(folder / "reviews.csv", [*rows(), ("ohne Thema", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, one_small_figure())
        patch.chdir(folder)
        assert (
            cli.main(["train", "--data.path", "reviews.csv", "--data.text", "review", "--data.label", "topic", *SMALL]) == 0
        )
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of it, the working folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def fails(capfd):
    def run(*arguments, says):
        assert cli.main(list(arguments)) == 2
        (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
        assert re.search(says, line), line

    return run


def test_one_command_from_a_file_to_a_page(finished):
    run = finished / "runs" / "reviews"
    recipe = recipes.load(run / "recipe.yaml")
    assert (recipe.name, recipe.data.path, recipe.data.label) == ("reviews", "reviews.csv", "topic")
    assert recipe.data.preprocessing == "words" and recipe.data.max_length == 1000 and recipe.data.split_seed == 0
    assert recipes.parse(recipes.dump(recipe)) == recipe
    state = json.loads((run / "run.json").read_text())
    assert state["dataset"]["name"] == "reviews" and state["dataset"]["about"]["classes"]["Sport"]["test"] == 2
    table = record.load(run / "record.parquet")
    assert table.column("dataset").unique().to_pylist() == ["reviews"]
    assert record.settings(table)[0]["label_names"] == list(TOPICS)
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["id2label"] == {str(number): name for number, name in enumerate(TOPICS)}
    page = (run / "report" / "index.html").read_text()
    for said in (
        "41 rows read; left out: 1 without a label",
        "15% test, 15% validation",
        "Sport 9, 2, 2",
        "0 Kultur, 1 Politik",
    ):
        assert said in page


def test_what_was_read_is_printed(copied, capsys):
    assert cli.main(["train", "--data.path", "reviews.csv", "--data.text", "review", "--output_dir", "again", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "reviews: 41 rows read; left out: 1 without a label" in lines
    assert any(line.split() == ["Kultur", "10", "2", "2"] for line in lines)
    table = record.load("again/record.parquet")
    gold, predicted = table.column("label").to_pylist(), [probs.argmax() for probs in record.rows(table, "probs")]
    accuracy = f"reviews test: accuracy {accuracy_score(gold, predicted):.2f} ("
    assert sum(line.startswith(accuracy) and "of Kultur" in line for line in lines) == 1


def test_a_run_is_measured_and_reproduced(copied, fails):
    assert cli.main(["measure", "runs/reviews", "--limit", "3", "--output", "part.parquet"]) == 0
    assert record.load("part.parquet").num_rows == 3
    (copied / "elsewhere").mkdir()
    (copied / "reviews.csv").rename("elsewhere/reviews.csv")
    says = r"no file at reviews.csv.* The run was trained on reviews.csv \(SHA-256 \w{16}\), at data.path='reviews.csv'"
    fails("measure", "runs/reviews", "--limit", "3", "--output", "more.parquet", says=says)
    fails("reproduce", "runs/reviews", says=says)
    fails("reproduce", "runs/reviews", "--data.path", "elsewhere/other.csv", says="it must be called 'reviews.csv'")
    assert cli.main(["reproduce", "runs/reviews", "--data.path", "elsewhere/reviews.csv"]) == 0
    assert reproduction.reproduce("runs/reviews", data_path="elsewhere/reviews.csv").agrees


def test_a_file_that_changed_is_not_measured(copied, fails):
    write(copied / "reviews.csv", [("anders", "Sport"), *rows()[1:], ("ohne Thema", "")])
    says = r"'reviews' has changed since the run in runs/reviews was trained: .*\(local-\w+ then, local-\w+ now\)"
    fails("measure", "runs/reviews", "--limit", "3", "--output", "part.parquet", says=says)
    fails("reproduce", "runs/reviews", says="was trained on other texts")


def test_a_recipe_of_the_hub_reads_no_file_of_this_machine(copied):
    recipe = recipes.load("runs/reviews/recipe.yaml")
    with pytest.raises(reproduction.ReproductionError, match="'reviews.csv', .* --data.path"):
        reproduction._with_data(recipe, "a", None, local=False)
    assert reproduction._with_data(recipe, "a", "a/reviews.csv", local=False).data.path == "a/reviews.csv"
    other = recipes.build({"name": "a", "output_dir": "b"})
    assert reproduction._with_data(other, "a", None, local=False) == other
    with pytest.raises(reproduction.ReproductionError, match="was not trained on a file"):
        reproduction._with_data(other, "a", "a/reviews.csv", local=False)


def test_a_push_sends_the_recipe_and_not_the_file(copied, monkeypatch):
    assert cli.main(["cards", "runs/reviews", "--to", "alice"]) == 0
    card = (copied / "model_cards" / "reviews.md").read_text()
    assert "own data, reviews.csv, which is not part of this repository" in card
    assert "Sport 9, 2, 2" in card and "drawn at random (seed 0)" in card
    place = str(copied / "reviews.csv")
    monkeypatch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
    how = ["--data.text", "review", "--output_dir", "runs/absolute", *SMALL]
    assert cli.main(["train", "--data.path", place, *how]) == 0
    planned = hub.plan("runs/absolute", "alice")
    (model,) = [repo for repo in planned.repos if repo.role == "checkpoint"]
    assert yaml.safe_load(model.files["recipe.yaml"])["data"]["path"] == "reviews.csv"
    for repo in planned.repos:
        assert not any(path.endswith(".csv") for path in repo.files)
        for content in repo.files.values():
            assert place.encode() not in (content if isinstance(content, bytes) else content.read_bytes())


@pytest.mark.parametrize(
    ("labels", "arguments", "says"),
    [
        (["a", "b"] * 9, ["--data.label", "topc"], "no column 'topc'; did you mean 'topic'"),
        ([f"id {row}" for row in range(30)] * 2, ["--data.label", "topic"], "30 different values in 60 rows"),
        ([""] * 9, ["--data.label", "topic"], "none of 9 rows has a label"),
    ],
)
def test_labels_are_checked_before_the_folder_of_the_run(tmp_path, fails, labels, arguments, says):
    write(tmp_path / "reviews.csv", [(f"t{row}", label) for row, label in enumerate(labels)])
    (tmp_path / "runs" / "reviews").mkdir(parents=True)
    (tmp_path / "runs" / "reviews" / "run.json").write_text("{}")
    fails("train", "--data.path", "reviews.csv", "--data.text", "review", *arguments, *SMALL, says=says)
    fails("train", "--data.path", "reviws.csv", *SMALL, says="no file at reviws.csv; did you mean reviews.csv")


def test_a_data_set_of_the_hub(hub, tmp_path, warm_python):
    """Its commit is read and recorded, its classes keep their names; what is not there is one line."""
    code = """if True:
        import json, sys
        from datasets import ClassLabel, Dataset, Features, Value
        from attnfaith import cli

        features = Features(sentence=Value("string"), label=ClassLabel(names=["pos", "neg"]))
        rows = Dataset.from_dict({"sentence": [f"text {row}" for row in range(40)], "label": [0, 1] * 20}, features)
        rows.push_to_hub("alice/mine", split="train")
        small = json.loads(sys.argv[1])
        where = ["train", "--data.hub_id", "alice/mine", "--data.text", "sentence", *small]
        assert cli.main(where) == 0
        assert cli.main(["train", "--data.hub_id", "alice/none", *small]) == 2
        assert cli.main([*where, "--data.revision", "nope", "--output_dir", "b"]) == 2
        assert cli.main([*where, "--data.config", "nope", "--output_dir", "c"]) == 2
    """
    done = subprocess.run(
        [warm_python, "-c", code, json.dumps(SMALL)],
        env=hub.environment(tmp_path / "home"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    state = json.loads((tmp_path / "runs" / "alice-mine" / "run.json").read_text())
    assert state["dataset"]["name"] == "alice/mine"
    assert state["dataset"]["revision"] == hub.history("dataset", "alice/mine")[-1].id
    assert state["dataset"]["about"]["classes"]["pos"] == {"train": 14, "validation": 3, "test": 3}
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3 and all("cannot be read from the Hub" in line for line in errors), errors
