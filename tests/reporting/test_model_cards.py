"""The sample cards of the repository are complete and linked, and name no folder of a machine."""

import re
from pathlib import Path

from huggingface_hub import ModelCard

from attnfaith.data.registry import DATASETS
from attnfaith.support.escaping import markdown
from attnfaith.verdict import RULE


SECTIONS = [
    *("How to load it", "What it was trained on", "What was measured"),
    *("How the verdict is reached", "How to reproduce it", "Limits", "Citation"),
]
CARDS = Path(__file__).parents[2] / "model_cards"


def test_each_card_is_whole_and_linked():
    texts = {path.stem: path.read_text(encoding="utf-8") for path in CARDS.glob("*.md") if path.name != "README.md"}
    index = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\)", (CARDS / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(index) == sorted((name, f"{name}.md") for name in texts) != []
    figures = {link for text in texts.values() for link in re.findall(r"\]\((figures/[^)]+)\)", text)}
    assert figures == {path.relative_to(CARDS).as_posix() for path in (CARDS / "figures").iterdir()}
    for name, text in texts.items():
        card = ModelCard(text)
        assert re.findall("^## (.*)$", text, re.M) == SECTIONS and markdown(RULE) in text, name
        assert card.data.model_name == name and f'/{name}", trust_remote_code=True)' in text
        assert {result.metric_type for result in card.data.eval_results} >= {"accuracy", "kendall_tau"}
        assert {result.dataset_name for result in card.data.eval_results} <= set(DATASETS)
        assert not re.search(r"(?<![\w.:/)(-])/(?:tmp|home|root|work|Users|srv|var|mnt)\b", text), name
        assert not re.search(r"\bhf_[A-Za-z0-9]{8,}", text), name
