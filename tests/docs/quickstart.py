"""A plugin of pytest: Python blocks of pages run in a folder where a small quickstart was run."""

import functools
import io

import pytest

from attnfaith import cli


SIZES = "{train: 48, validation: 12, test: 12}"
SMALL = ["--data.arguments.sizes", SIZES, "--embedding_size=8", "--hidden_size=8", "--num_train_epochs=1"]


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr("attnfaith.runs.execute.write_report", lambda *arguments, **options: None)
        assert cli.main(["train", *SMALL]) == 0
    return folder


@pytest.fixture(autouse=True)
def _in_the_folder(quickstart, monkeypatch):
    monkeypatch.chdir(quickstart)


def pytest_markdown_docs_globals():
    return {"print": functools.partial(print, file=io.StringIO())}  # pytest captures nothing of a block
