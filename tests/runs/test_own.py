"""Own data by the command line: from a file to a page, measured, reproduced and pushed; mistakes are one clear line."""

import csv
import json
import re
import shutil

import datasets
import pytest
import yaml

from attnfaith import cli, hub, recipes, record, reproduction
from attnfaith.support import provenance
from tests.figures import SAVE, without_pixels


pytestmark = pytest.mark.slow
TOPICS = ("Kultur", "Politik", "Sport")
SMALL = ("--embedding_size=4", "--hidden_size=4", "--num_train_epochs=1", "--training.arguments.disable_tqdm")
SMALL += ("--measure.producers", "[gradient]")
COLUMNS = ("--data.text", "review", "--data.label", "topic")
ROWS = [(f"Satz {row} über {TOPICS[row % 3]}, schön", TOPICS[row % 3]) for row in range(40)]


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("review", "topic"), *rows, ("ohne Thema", "")])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with reviews.csv and runs/reviews, by one command; not to be changed."""
    folder = tmp_path_factory.mktemp("own")
    write(folder / "reviews.csv", ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SAVE, without_pixels)
        patch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
        patch.chdir(folder)
        assert cli.main(["train", "--data.path", str(folder / "reviews.csv"), *COLUMNS, *SMALL]) == 0
    return folder


@pytest.fixture
def copied(finished, tmp_path, monkeypatch):
    """A copy of it, the current folder; the recipe names the file by its name alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "runs" / "reviews" / "recipe.yaml"
    path.write_text(path.read_text().replace(f"{finished}/", ""))
    return tmp_path


@pytest.fixture
def fails(capfd):
    def run(*arguments, message):
        assert cli.main(list(arguments)) == 2
        (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
        assert re.search(message, line), line

    return run


def test_one_command_from_a_file_to_a_page_and_a_push_without_the_file(finished):
    run = finished / "runs" / "reviews"
    recipe = recipes.load(run / "recipe.yaml")
    assert (recipe.name, recipe.data.label, recipe.data.preprocessing) == ("reviews", "topic", "words")
    state = json.loads((run / "run.json").read_text())
    assert state["dataset"]["name"] == "reviews" and state["dataset"]["about"]["classes"]["Sport"]["test"] == 2
    assert record.settings(record.load(run / "record.parquet"))[0]["label_names"] == list(TOPICS)
    page = (run / "report" / "index.html").read_text()
    facts = ("41 rows read; left out: 1 without a label", "15% test, 15% validation", "Sport 9, 2, 2", "0 Kultur, 1 Politik")
    assert [fact for fact in facts if fact not in page] == []

    plan = hub.plan(run, "alice")
    model = plan[-1]
    assert yaml.safe_load(model.files["recipe.yaml"])["data"]["path"] == "reviews.csv"
    card = model.files["README.md"].decode()
    assert "own data, reviews.csv, which is not part of this repository" in card and "Sport 9, 2, 2" in card
    for path, content in ((path, content) for repo in plan for path, content in repo.files.items()):
        assert not path.endswith("reviews.csv") and str(finished).encode() not in content, path


def test_a_run_is_measured_and_reproduced_on_the_same_file_alone(copied, fails, quick_figures):
    assert cli.main(["measure", "runs/reviews", "--limit", "3", "--output", "part.parquet"]) == 0
    assert record.load("part.parquet").num_rows == 3
    (copied / "elsewhere").mkdir()
    (copied / "reviews.csv").rename("elsewhere/reviews.csv")
    fails("measure", "runs/reviews", "--limit", "3", "--output", "more.parquet", message="no file at reviews.csv")
    fails("reproduce", "runs/reviews", "--data.path", "elsewhere/other.csv", message="reviews was trained on 'reviews.csv'")
    _, compared = reproduction.reproduce("runs/reviews", data_path="elsewhere/reviews.csv")
    assert set(compared["agreement"]) == {reproduction.EXACTLY}
    write(copied / "reviews.csv", [("anders", "Sport"), *ROWS[1:]])
    message = "'reviews' has changed since the run in runs/reviews was trained: other texts or labels in"
    fails("measure", "runs/reviews", "--limit", "3", "--output", "more.parquet", message=message)
    fails("reproduce", "runs/reviews", message="was trained on other texts")


def test_labels_are_checked_before_the_folder_of_the_run(tmp_path, monkeypatch, fails):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews.csv", [(f"t{row}", f"id {row % 30}") for row in range(60)])
    words = ("train", "--data.path", "reviews.csv", "--data.text", "review", *SMALL, "--data.label")
    for label, message in (("topc", "no column 'topc'; did you mean 'topic'"), ("topic", "30 different values in 60 rows")):
        fails(*words, label, message=message)
    assert not (tmp_path / "runs").exists()
