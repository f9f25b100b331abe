"""The commands of pages that a newcomer follows, in their order, as they stand there; models and data are small."""

import shlex

import pytest

from attnfaith import cli, recipes
from tests.docs.documents import ROOT, blocks


SMALL = [
    "--data.arguments.sizes",
    "{train: 48, validation: 12, test: 12}",
    "--model.embedding_size",
    "8",
    "--model.hidden_size",
    "8",
    "--training.num_train_epochs",
    "1",
]
PAGES = {
    "docs/start.md": {"train", "measure", "report", "show"},
    "docs/how_to/command_line.md": {"list", "train", "show", "compare", "table", "survey", "completion"},
    "docs/how_to/measure.md": {"measure", "report", "eraser", "roar"},
    "docs/how_to/interventions.md": {"measure", "report"},
    "docs/how_to/view.md": {"train", "view"},
    "docs/questions.md": {"train", "show", "report", "measure", "table"},
}
"""Pages, and which of their commands are run."""
NOT_RUN = {"study": "trains for hours", "push": "asks the Hub"}


def commands(document):
    """The words of each command of a page, without the program's name."""
    lines = (line for block in blocks(document, "bash") for line in block.splitlines())
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("attnfaith ")]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder with the checkout's recipes, where every run of the quickstart is small."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    load = recipes.load

    def smaller(path=None, extra=()):
        return load(path, [*SMALL, *extra] if path is None or path.name == "quickstart.yaml" else extra)

    monkeypatch.setattr(recipes, "load", smaller)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("document", PAGES)
def test_commands_of_a_page(document, small, quick_report):
    given = commands(document)
    assert {words[0] for words in given} == PAGES[document]
    if "train" not in PAGES[document]:
        assert cli.main(["train"]) == 0
    for words in given:
        assert cli.main(words) == 0, words
        for option in {"--output", "--output_dir"} & set(words):
            assert (small / words[words.index(option) + 1]).exists()


def test_what_the_readme_shows_is_run():
    run = [words for document in PAGES for words in commands(document)]
    assert [words for words in commands("README.md") if words[0] not in NOT_RUN and words not in run] == []
