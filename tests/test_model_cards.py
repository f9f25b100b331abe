"""Sample cards of the repository are complete and linked, and name no folder of a machine."""

import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from attnfaith.data.registry import DATASETS
from attnfaith.support.escaping import markdown
from attnfaith.verdict import RULE


SECTIONS = (
    "How to load it",
    "What it was trained on",
    "How well it classifies",
    "Does its attention explain what it does?",
    "How the verdict is reached",
    "Figures",
    "How to reproduce it",
    "Limits",
    "Citation",
)


CARDS = Path(__file__).parents[1] / "model_cards"


@pytest.fixture(scope="module")
def texts():
    """{name: text} of every card."""
    return {path.stem: path.read_text(encoding="utf-8") for path in CARDS.glob("*.md") if path.name != "README.md"}


def test_the_index_has_one_row_a_card(texts):
    index = (CARDS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\)", index, re.M)
    assert [f"{name}.md" for name, _ in rows] == [file for _, file in rows]
    assert sorted(name for name, _ in rows) == sorted(texts)
    assert 0 < len(rows) == len(set(rows)) <= 2


def test_each_card_is_whole(texts):
    for name, text in texts.items():
        card = ModelCard(text)
        assert re.findall("^## (.*)$", text, re.M) == list(SECTIONS), name
        assert card.data.model_name == name and f'/{name}", trust_remote_code=True)' in text
        results = {(found.metric_type, found.dataset_name) for found in card.data.eval_results}
        assert {metric for metric, _ in results} >= {"accuracy", "kendall_tau"}
        assert {dataset for _, dataset in results} <= set(DATASETS)
        assert text.count("```") % 2 == 0 and "@inproceedings{" in text


def test_each_card_prints_the_rule_of_today(texts):
    assert all(markdown(RULE) in text for text in texts.values())


def test_figures_are_there_and_used(texts):
    used = {link for text in texts.values() for link in re.findall(r"\]\((figures/[^)]+)\)", text)}
    assert used == {path.relative_to(CARDS).as_posix() for path in (CARDS / "figures").iterdir()}


def test_no_folder_of_a_machine_and_no_token(texts):
    for name, text in texts.items():
        assert not re.search(r"(?<![\w.:/)(-])/(?:tmp|home|root|work|Users|srv|var|mnt)\b", text), name
        assert not re.search(r"\bhf_[A-Za-z0-9]{8,}", text), name
