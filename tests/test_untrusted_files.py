"""Files of strangers: pickles and code in them are never run."""

import contextlib
import gzip
import io
import json
import pickle

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import recipes, record, runs
from attnfaith.data.loading import read_published
from attnfaith.data.own_data import read_own
from attnfaith.data.registry import DATASETS
from attnfaith.data.vectors import load_vectors
from attnfaith.importance.diffmask import load_gates
from attnfaith.loading import load_model, load_subject, load_tokenizer
from attnfaith.support.errors import AttnfaithError
from tests.small_classifiers import classifier, tokenizer


class Trap:
    def __reduce__(self):
        return open, ("sprung", "w")


def traps():
    """A pickle in each of the forms of files, {name: content}."""
    array, archive, weights = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(array, np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez(archive, a=np.array([Trap()], dtype=object))
    torch.save({"weight": Trap()}, weights)
    pickles = {
        "x.pkl": pickle.dumps(Trap()),
        "old": pickle.dumps(Trap(), 0),
        "x.pkl.gz": gzip.compress(pickle.dumps(Trap())),
    }
    return pickles | {"x.npy": array.getvalue(), "x.npz": archive.getvalue(), "x.pt": weights.getvalue()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, in which no trap may be sprung."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "sprung").exists()


READERS = {
    "own texts": (
        lambda path: read_own(recipes.load(None, ["--data.path", str(path)]).data),
        (".csv", ".jsonl", ".parquet"),
    ),
    "texts to measure": (
        lambda path: attnfaith.measure(classifier("bert"), path, tokenizer=tokenizer()),
        (".csv", ".parquet"),
    ),
    "vectors": (lambda path: load_vectors(path, {"a": 0, "b": 1}), (".txt", ".parquet", ".gz")),
    "gates": (load_gates, (".safetensors",)),
    "record": (record.load, (".parquet",)),
    "record to load": (attnfaith.load, ()),
    "recipe": (recipes.load, (".yaml",)),
}


@pytest.mark.parametrize("reader", READERS)
def test_nothing_is_unpickled_whatever_the_file_is_called(reader, place):
    read, endings = READERS[reader]
    for name, content in traps().items():
        for ending in ("", *endings):
            path = place / f"{name}{ending}"
            path.write_bytes(content)
            with pytest.raises(AttnfaithError):
                read(path)
            assert not (place / "sprung").exists(), path


def test_the_traps_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(traps()["x.pkl"]).close()
    assert (tmp_path / "sprung").exists()


CODE = "open('sprung', 'w').close()\nraise SystemExit('code of a checkpoint was run')\n"
CLASSES = {"AutoConfig": "mine.C", "AutoModelForSequenceClassification": "mine.M"}


def bring(folder, what):
    """Put code, or a pickle in place of weights, into the folder of a checkpoint."""

    def change(name, **fields):
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), **fields}))

    (folder / "mine.py").write_text(CODE)
    if what == "a pickle":
        (folder / "model.safetensors").unlink()
        torch.save({"classifier.weight": Trap()}, folder / "pytorch_model.bin")
    elif what == "code of a tokenizer":
        change("tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.T", "mine.T"]}, tokenizer_class="T")
    else:
        change("config.json", auto_map=CLASSES, **({"model_type": "own"} if what == "code of another type" else {}))


def fine_tune(model, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnfaith.runs.train.make_trainer", lambda *_: pytest.fail("the model was taken"))
        words = ["--output_dir", str(folder / "out"), "--data.name", "planted_evidence", "--model.pretrained", str(model)]
        words += ["--data.arguments", "{length: [4, 8], vocabulary_size: 40, sizes: {train: 16, validation: 8, test: 8}}"]
        runs.run(recipes.load(None, words))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["code", "code of another type", "a pickle", "code of a tokenizer"])
def test_no_route_runs_what_a_checkpoint_brings(what, place):
    model = place / "run" / "model"
    classifier("bert").save_pretrained(model)
    tokenizer().save_pretrained(model)
    bring(model, what)
    refused = 0
    for load in (
        lambda: load_subject(model),
        lambda: attnfaith.measure(str(model), ["a text"]),
        lambda: attnfaith.view(str(model), "a text"),
        lambda: (load_model(model), load_tokenizer(model)),
        lambda: fine_tune(model, place),
    ):
        with contextlib.suppress(pytest.fail.Exception):  # a known type's own code is left alone, and the model is taken
            try:
                load()
            except AttnfaithError as error:
                refused += 1
                assert "\n" not in str(error)
        assert not (place / "sprung").exists()
    assert refused == (0 if what in ("code", "code of a tokenizer") else 5)


def test_a_data_set_that_is_a_script_is_refused(place):
    entry = DATASETS["sst"]
    folder = place / entry.folder
    folder.mkdir(parents=True)
    (folder / f"{folder.name}.py").write_text(CODE)
    with pytest.raises(AttnfaithError, match="Cannot read 'sst' from .*scripts are no longer supported"):
        read_published(entry, place)
