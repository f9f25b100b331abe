"""Tiny data sets, models and recipes for every test; nothing here reaches the network."""

import os
import tempfile


os.environ["HF_DATASETS_CACHE"] = os.path.join(tempfile.gettempdir(), f"attnfaith-tests-{os.getuid()}")  # not the user's
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when huggingface_hub is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process that tests start compiles the whole package anew

import gc
import shutil
import signal
from pathlib import Path

import hypothesis
import pytest

from tests.tiny_recipes import finished_run, tiny_tree


hypothesis.settings.register_profile("any_machine", deadline=None)  # how long an example takes says nothing about the code
hypothesis.settings.load_profile("any_machine")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    # nohup, & and cron leave signals ignored. Processes that tests start would inherit that, and nothing could stop them.
    # A handler that does nothing ignores the signal too, and is not inherited.
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda _number, _frame: None)
ROOT = Path(__file__).parents[1]
VOCABULARY = 60
MARK = 4  # between sentences


def pytest_collection_finish(session):
    """Keep libraries and collected tests out of garbage collections, and collect less often.

    Every training collects and would visit all of them each time; traced programs hold millions of objects that stay.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """Do not wait until files are on the disk: no test can tell, and thousands of waits take half a minute."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)  # still an error for what is no open file
        yield


@pytest.fixture(scope="session")
def repository():
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tiny_model():
    """Factory of tiny models in eval mode, their weights scaled up so that attention and predictions are far from flat.

    In float64: scaled weights make rounding larger, and two routes to a number must not differ by it.
    """
    import torch

    from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification

    def make(*, seed=0, scale=3.0, num_labels=2, dtype=torch.float64, **fields):
        sizes = {"vocab_size": VOCABULARY, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 8}
        config = AttentionClassifierConfig(**{**sizes, "num_labels": num_labels, "embedding_std": 0.5, **fields})
        torch.default_generator.manual_seed(seed)
        model = AttentionClassifierForSequenceClassification(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" not in name and not name.startswith("model.embeddings"):
                    parameter.mul_(scale)
        return model.to(dtype).eval()

    return make


@pytest.fixture(scope="session")
def tiny_rows():
    """Factory of encoded instances as `encode` makes them: (ids of a text without markers[, ids of the question]) each.

    With hierarchy="sentence" every third word becomes a mark between sentences, and tokens are the sentences.
    """
    import numpy as np

    def make(texts, *, pair=False, seed=0, hierarchy="none"):
        generator = np.random.default_rng(seed)
        rows = []
        for number, text in enumerate(texts):
            first = list(text) if not isinstance(text, int) else generator.integers(4, VOCABULARY, text).tolist()
            tokens = [f"w{word}" for word in first]
            if hierarchy != "none":
                first = [MARK if place % 3 == 2 else max(word, MARK + 1) for place, word in enumerate(first)]
                tokens = [" ".join(f"w{w}" for w in first[start : start + 2]) for start in range(0, len(first), 3)]
            row = {
                "instance_id": f"tiny/test/{number}",
                "input_ids": [2, *first, 3],
                "tokens": tokens,
                "labels": number % 2,
                "truncated": False,
            }
            if pair:
                question = generator.integers(4, VOCABULARY, 1 + number % 4).tolist()
                row["token_type_ids"] = [0] * len(row["input_ids"]) + [1] * (len(question) + 2)
                row["input_ids"] = [*row["input_ids"], 2, *question, 3]
            if hierarchy == "sentence":
                row["words"] = [sentence.split() for sentence in tokens]
            row["length"] = len(row["input_ids"])
            rows.append(row)
        return rows

    return make


@pytest.fixture(scope="session")
def tiny_batch():
    """Factory of the batch that a measure reads, from rows of `tiny_rows`."""
    from attnfaith.data.collation import POSITION_COLUMNS, pad_batch

    def make(rows):
        batch = pad_batch([{key: row[key] for key in ("input_ids", *POSITION_COLUMNS) if key in row} for row in rows], 0)
        return {**batch, "instance_id": [row["instance_id"] for row in rows]}

    return make


@pytest.fixture
def tiny_recipe(tmp_path):
    """Factory of a recipe on generated texts that runs in about a second, written to output_dir tmp_path / "run"."""
    from attnfaith import recipes

    def make(**overrides):
        tree = tiny_tree(tmp_path / "run")
        for key, value in overrides.items():
            *path, last = key.split("__")
            place = tree
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return recipes.build(tree)

    return make


@pytest.fixture
def quick_figures(monkeypatch):
    """Save figures without pixels in reports and studies; tests of reports save real ones."""
    from tests.figures import SAVE, without_pixels

    monkeypatch.setattr(SAVE, without_pixels)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a complete run; not to be changed."""
    return finished_run(tmp_path_factory.mktemp("finished") / "run", note="a note")


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the complete run that may be changed."""
    folder = shutil.copytree(finished, tmp_path / "run")
    text = (folder / "recipe.yaml").read_text().replace(str(finished), str(folder)).replace("note: a note", "note: ''")
    (folder / "recipe.yaml").write_text(text)
    return folder
