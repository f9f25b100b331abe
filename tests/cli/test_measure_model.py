"""`attnfaith measure MODEL --data.path FILE`: any text classifier, on texts of one's own, without a recipe."""

from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoTokenizer, BertForSequenceClassification

import attnfaith
from attnfaith import cli
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ship sank slowly", "good music", "a bad film", "film a film", "good", ""]
OWN = ("--data.path", "mine.csv", "--data.text", "review", "--data.label", "stars")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a small BERT with two classes."""
    folder = tmp_path_factory.mktemp("bert")
    classifier("bert", num_labels=2, id2label={0: "bad", 1: "good"}).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch, quick_figures):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    pd.DataFrame({"review": TEXTS, "stars": ["good", "good", "bad", "good", "bad", "bad"]}).to_csv("mine.csv", index=False)


@pytest.mark.slow
def test_a_model_is_measured_on_a_file_as_by_python(model, capsys):
    words = ["measure", str(model), *OWN, "--producers", "gradient", "occlusion"]
    assert cli.main(words) == 0
    folder = Path(f"runs/{model.name}-mine")
    measured, frame = attnfaith.load(folder), pd.read_csv("mine.csv", keep_default_na=False)
    how = {"measures": ["gradient", "occlusion"], "text": "review", "label": "stars", "name": "mine"}
    assert measured == attnfaith.measure(str(model), frame, **how) and measured.measures == ["gradient", "occlusion"]
    text = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "last layer" in text
    assert cli.main(["report", str(folder)]) == 0 and "report: " in capsys.readouterr().out
    assert cli.main(words) == 2 and "is there already" in capsys.readouterr().err
    assert cli.main([*words, "--overwrite", "--attention", "rollout"]) == 0
    assert attnfaith.load(folder).cells[0].identity.reduction == "rollout"
    Path("split").mkdir()
    for name, texts in (("train", TEXTS), ("test", TEXTS[:4])):
        pd.DataFrame({"text": texts, "label": [0] * len(texts)}).to_csv(f"split/{name}.csv", index=False)
    words = ["measure", str(model), "--data.path", "split", "--producers", "gradient"]
    assert cli.main([*words, "--output", "whole"]) == 0 and len(attnfaith.load("whole")) == 4
    assert cli.main([*words, "--output", "some", "--split", "train", "--limit", "3"]) == 0
    assert len(attnfaith.load("some")) == 3


def test_classes_with_numbers_as_names_are_asked_for(model, capsys):
    """Star 1 of classes "1" and "2": by name class 0, by id class 1; the accuracy is that of the logits in float64."""
    stars = BertForSequenceClassification.from_pretrained(model, id2label={0: "1", 1: "2"})
    words = AutoTokenizer.from_pretrained(model)
    for part in (stars, words):
        part.save_pretrained("stars")
    predicted = stars.double()(**words(TEXTS[:3], padding=True, return_tensors="pt")).logits.argmax(1)
    pd.DataFrame({"text": TEXTS[:3], "labels": 1}).to_csv("one.csv", index=False)
    line = ["measure", "stars", "--data.path", "one.csv", "--producers", "gradient", "--output", "measured"]
    assert cli.main(line) == 2 and "--labels" in capsys.readouterr().err
    for reading, label in (("names", 0), ("ids", 1)):
        assert cli.main([*line, "--labels", reading, "--overwrite"]) == 0
        expected = (predicted == label).double().mean().item()
        assert pd.read_parquet("measured/report/tables/performance.parquet")["accuracy"].tolist() == [expected]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "is a model without a recipe: give its texts, with --data.path or --data.hub_id"),
        (["--attention", "rollout"], "--attention is for a model on texts of your own: give --data.path FILE too"),
        (["--data.text", "review"], "--data.path FILE or --data.hub_id OWNER/NAME"),
        ([*OWN, "--num_train_epochs", "3"], "--training.num_train_epochs: a model that is measured takes keys of data"),
        ([*OWN, "--data.text", "text"], "there is no column 'text' for text"),
        ([*OWN, "--attention", "flows"], "attention='flows' is no reduction; give 'last', 'all', 'rollout'"),
        ([*OWN, "--producers", "exact_contribution"], "which this subject (text classifiers of transformers) lacks"),
    ],
)
def test_one_line_names_the_mistake(model, capsys, words, message):
    assert cli.main(["measure", str(model), *words]) == 2
    line = capsys.readouterr().err.partition("\n(set")[0]
    assert message in line and line.count("error:") == 1
