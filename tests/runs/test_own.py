"""Own data by the command line: from a file to a page, measured and pushed; mistakes are one clear line."""

import csv
import json

import datasets
import pytest
import yaml

from attnfaith import cli, hub, recipes, record
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
    """The current folder, with reviews.csv and runs/reviews, by one command."""
    folder = tmp_path_factory.mktemp("own")
    write(folder / "reviews.csv", ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SAVE, without_pixels)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        patch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
        patch.chdir(folder)
        assert cli.main(["train", "--data.path", str(folder / "reviews.csv"), *COLUMNS, *SMALL]) == 0
        yield folder


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


def test_a_run_is_measured_on_the_same_texts_alone(finished, capfd):
    assert cli.main(["measure", "runs/reviews", "--limit", "3", "--output", "part.parquet"]) == 0
    assert record.load("part.parquet").num_rows == 3
    (finished / "reviews.csv").rename("away.csv")
    words = ["measure", "runs/reviews", "--limit", "3", "--output", "more.parquet"]
    assert cli.main(words) == 2 and "reviews.csv" in capfd.readouterr().err
    write(finished / "reviews.csv", [("anders", "Sport"), *ROWS[1:]])
    assert cli.main(words) == 2 and "has changed since the run in" in capfd.readouterr().err
