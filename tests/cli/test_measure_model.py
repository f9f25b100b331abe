"""`attnfaith measure MODEL --data.path FILE`: any text classifier, on texts of one's own, without a recipe."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

import attnfaith
from attnfaith import cli
from tests.subword_tokenizers import train


TEXTS = ["Das ist ein schöner Film, unglaublich gut!", "gute Musik", "Unterhaltung unglaublich", "Film ein Film", "gut", ""]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny BERT of random weights, as a folder with its tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    train("wordpiece", folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = tokenizer.backend_tokenizer
    ids = [(name, template.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    template.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        num_labels=2,
        id2label={0: "bad", 1: "good"},
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, quick_report):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    pd.DataFrame({"review": TEXTS, "stars": ["good", "good", "bad", "good", "bad", "bad"]}).to_csv("mine.csv", index=False)


OWN = ("--data.path", "mine.csv", "--data.text", "review", "--data.label", "stars")


@pytest.mark.slow
def test_a_model_is_measured_on_a_file_as_by_python(model):
    assert cli.main(["measure", str(model), *OWN, "--output", "made", "--producers", "gradient", "occlusion"]) == 0
    made = attnfaith.load("made/record.parquet")
    frame = pd.read_csv("mine.csv", keep_default_na=False)
    by_python = attnfaith.measure(
        str(model), frame, measures=["gradient", "occlusion"], text="review", label="stars", name="mine"
    )
    assert made == by_python and made.measures == ["gradient", "occlusion"]
    assert made.table.column("label").to_pylist() == [1, 1, 0, 1, 0, 0]


def test_classes_with_numbers_as_names_are_asked_for(model, capsys):
    """Star 1 of classes "1" and "2": by name class 0, by id class 1; the accuracy is that of the logits in float64."""
    stars = BertForSequenceClassification.from_pretrained(model, id2label={0: "1", 1: "2"})
    tokenizer = AutoTokenizer.from_pretrained(model)
    for part in (stars, tokenizer):
        part.save_pretrained("stars")
    predicted = stars.double()(**tokenizer(TEXTS[:3], padding=True, return_tensors="pt")).logits.argmax(1)
    pd.DataFrame({"text": TEXTS[:3], "labels": 1}).to_csv("one.csv", index=False)
    words = ["measure", "stars", "--data.path", "one.csv", "--producers", "gradient", "--output", "made"]
    assert cli.main(words) == 2 and "--labels" in capsys.readouterr().err
    for reading, label in (("names", 0), ("ids", 1)):
        assert cli.main([*words, "--labels", reading, "--overwrite"]) == 0
        assert "without labels" not in capsys.readouterr().err
        expected = (predicted == label).double().mean().item()
        assert pd.read_parquet("made/report/tables/performance.parquet")["accuracy"].tolist() == [expected]


def test_it_has_a_page_and_can_be_reported_again(model, capsys):
    assert cli.main(["measure", str(model), *OWN, "--output", "made", "--producers", "gradient"]) == 0
    text = Path("made/report/index.html").read_text(encoding="utf-8")
    assert "texts measured with a given model" in text and "last layer" in text
    assert cli.main(["report", "made"]) == 0
    assert "report: " in capsys.readouterr().out


def test_the_default_folder_is_named_after_model_and_data(model):
    assert cli.main(["measure", str(model), *OWN, "--producers", "gradient", "--attention", "rollout"]) == 0
    made = attnfaith.load(f"runs/{model.name}-mine")
    assert made.cells[0].identity.reduction == "rollout" and len(made) == len(TEXTS)


def test_a_split_of_a_folder_and_a_limit(model):
    Path("split").mkdir()
    for name, texts in (("train", TEXTS), ("test", TEXTS[:4])):
        pd.DataFrame({"text": texts, "label": [0] * len(texts)}).to_csv(f"split/{name}.csv", index=False)
    words = ["measure", str(model), "--data.path", "split", "--producers", "gradient"]
    assert cli.main([*words, "--output", "whole"]) == 0 and len(attnfaith.load("whole")) == 4
    assert cli.main([*words, "--output", "some", "--split", "train", "--limit", "3"]) == 0
    assert len(attnfaith.load("some")) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "is a model without a recipe: give its texts, with --data.path FILE or --data.hub_id"),
        (["--attention", "rollout"], "--attention is for a model on texts of your own: give --data.path FILE too"),
        (
            ["--data.text", "review"],
            "give texts that lie in a file or on the Hub: --data.path FILE or --data.hub_id OWNER/NAME",
        ),
        (
            [*OWN, "--training.num_train_epochs", "3"],
            "--training.num_train_epochs: a model that is measured takes keys of data",
        ),
        ([*OWN, "--data.text", "text"], "there is no column 'text' for text"),
        ([*OWN, "--attention", "flows"], "attention='flows' is no reduction; give 'last', 'all', 'rollout', 'flow'"),
        ([*OWN, "--attention", "{layers: 7}"], "there is no layer 7; the model has 2, counted from 0"),
        ([*OWN, "--producers", "exact_contribution"], "which this subject (text classifiers of transformers) lacks"),
    ],
)
def test_one_line_says_what_is_wrong(model, capsys, words, said):
    assert cli.main(["measure", str(model), *words]) == 2
    line = capsys.readouterr().err.partition("\n(set")[0]
    assert said in line and line.count("error:") == 1


def test_what_lies_there_is_replaced_only_when_asked(model, capsys):
    words = ["measure", str(model), *OWN, "--output", "made", "--producers", "gradient"]
    assert cli.main(words) == 0
    assert cli.main(words) == 2 and "is there already" in capsys.readouterr().err
    assert cli.main([*words, "--overwrite"]) == 0
