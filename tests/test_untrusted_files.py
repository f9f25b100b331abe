"""Files of strangers: pickles and code in them are never run."""

import contextlib
import gzip
import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import recipes, record, runs
from attnfaith.data import sources
from attnfaith.data.own_data import read_own
from attnfaith.data.registry import DATASETS
from attnfaith.data.vectors import load_vectors
from attnfaith.importance.gates import about_gates, load_gates
from attnfaith.loading import load_subject
from attnfaith.support.errors import AttnfaithError
from tests.small_classifiers import classifier, tokenizer


class Trap:
    def __reduce__(self):
        return open, ("sprung", "w")


def traps():
    """A pickle in each of the forms that files come in: {name of the file: content}."""
    array, archive, weights = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(array, np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez(archive, a=np.array([Trap()], dtype=object))
    torch.save({"weight": Trap()}, weights)
    plain = pickle.dumps(Trap())
    numbers = {"x.npy": array.getvalue(), "x.npz": archive.getvalue(), "x.pt": weights.getvalue()}
    numbers |= {"x.bin": weights.getvalue(), "x.pkl.gz": gzip.compress(plain), "old": pickle.dumps(Trap(), 0)}
    return numbers | {"x.pkl": plain, "x.joblib": plain}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working directory, in which no trap may be sprung."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "sprung").exists()


READERS = {
    "own texts": lambda path: read_own(recipes.load(None, ["--data.path", str(path)]).data),
    "texts to measure": lambda path: attnfaith.measure(classifier("bert"), path, tokenizer=tokenizer()),
    "vectors": lambda path: load_vectors(path, {"a": 0, "b": 1}),
    "gates": lambda path: about_gates(path),
    "gates' weights": lambda path: load_gates(path, torch.device("cpu")),
    "record": lambda path: record.load(path),
    "record to load": lambda path: attnfaith.load(path),
    "recipe": lambda path: recipes.load(path),
}
ENDINGS = {"own texts": (".csv", ".jsonl", ".parquet"), "vectors": (".txt", ".parquet", ".gz"), "record": (".parquet",)}
ENDINGS |= {"gates": (".safetensors",), "texts to measure": (".csv", ".parquet"), "recipe": (".yaml",)}


@pytest.mark.parametrize("reader", READERS)
def test_nothing_is_unpickled_whatever_the_file_is_called(reader, place):
    for name, content in traps().items():
        for ending in ("", *ENDINGS.get(reader, ())):
            path = place / f"{name}{ending}"
            path.write_bytes(content)
            with pytest.raises(AttnfaithError):
                READERS[reader](path)
            assert not (place / "sprung").exists(), path


def test_the_traps_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in traps().items():
        if name.startswith("x.pkl") or name == "old":
            pickle.loads(gzip.decompress(content) if name.endswith(".gz") else content).close()
        elif name in ("x.pt", "x.bin"):
            torch.load(io.BytesIO(content), weights_only=False)["weight"].close()
        elif name == "x.npy":
            np.load(io.BytesIO(content), allow_pickle=True)[0].close()
        else:
            continue
        assert (tmp_path / "sprung").exists()
        (tmp_path / "sprung").unlink()


# ------------------------------------------------------------------------------------------------ checkpoints


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    classifier("bert").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


CODE = "open('sprung', 'w').close()\nraise SystemExit('code of a checkpoint was run')\n"


def changed(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def with_code(folder):
    (folder / "mine.py").write_text(CODE)
    changed(folder / "config.json", auto_map={"AutoConfig": "mine.C", "AutoModelForSequenceClassification": "mine.M"})


def with_code_of_another_type(folder):
    with_code(folder)
    changed(folder / "config.json", model_type="a_type_of_its_own")


def with_tokenizer_code(folder):
    (folder / "mine.py").write_text(CODE)
    changed(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.T", "mine.T"]}, tokenizer_class="T")


def with_a_pickle_alone(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.weight": Trap()}, folder / "pytorch_model.bin")


def loaders(folder):
    (folder / "run").mkdir()
    model = Path(shutil.copytree(folder / "model", folder / "run" / "model"))
    yield lambda: load_subject(model)
    yield lambda: attnfaith.measure(str(model), ["a text"])
    yield lambda: attnfaith.view(str(model), "a text")
    yield lambda: (runs.load_model(folder / "run"), runs.load_tokenizer(folder / "run"))
    yield lambda: run_of(["--model.pretrained", str(model)], folder)


def run_of(overrides, folder):
    with pytest.MonkeyPatch.context() as patch:  # a run that could begin would be a failure of the test, and no training
        patch.setattr("attnfaith.runs.train.fit", lambda *_: pytest.fail("the model was taken"))
        words = ["--output_dir", str(folder / "out"), "--data.name", "planted_evidence", *overrides]
        words += ["--data.arguments", "{length: [4, 8], vocabulary_size: 40, sizes: {train: 16, validation: 8, test: 8}}"]
        return runs.run(recipes.load(None, words))


@pytest.mark.slow
@pytest.mark.parametrize("change", [with_code_of_another_type, with_a_pickle_alone, with_tokenizer_code])
def test_no_route_runs_what_a_checkpoint_brings(change, saved, place):
    shutil.copytree(saved, place / "model")
    change(place / "model")
    refused = 0
    for load in loaders(place):
        try:
            load()
        except AttnfaithError as error:
            refused += 1
            assert len(str(error)) < 900
        except pytest.fail.Exception:  # its tokenizer.json needs no code, and is read
            assert change is with_tokenizer_code
        assert not (place / "sprung").exists()
    assert refused == 5 or change is with_tokenizer_code


def test_code_of_a_known_type_is_refused_or_left_alone(saved, place):
    shutil.copytree(saved, place / "model")
    with_code(place / "model")
    with pytest.raises(AttnfaithError, match=r"brings its own code \(auto_map in config.json\), which is not run"):
        load_subject(place / "model")
    for load in loaders(place):
        with contextlib.suppress(AttnfaithError, pytest.fail.Exception):
            load()
        assert not (place / "sprung").exists()


def test_a_data_set_that_is_a_script_is_refused(place):
    entry = DATASETS["sst"]
    folder = place / entry.folder / (entry.hub_data_dir or "")
    folder.mkdir(parents=True)
    (folder / f"{folder.name}.py").write_text(CODE)
    with pytest.raises(AttnfaithError, match="Cannot read 'sst' from the folder"):
        sources.read(entry, place)
