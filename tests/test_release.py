"""attnfaith release: a grid of checkpoints trained, measured, carded and pushed by one command that can be stopped."""

import contextlib
import json
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from attnfaith.hub import repo_id_of
from attnfaith.recipes import model_config
from attnfaith.reporting.cards import checkpoint_name
from attnfaith.study.command import prepare
from attnfaith.study.plan import read_study
from tests.forks import Forks


ROOT = Path(__file__).parents[1]


def test_what_is_released(monkeypatch):
    """Data sets x encoders x alignments x projections, under names that the Hub allows."""
    monkeypatch.chdir(ROOT)
    planned, wanted = prepare(read_study(Path("release.yaml")))
    released = set()
    for recipe in wanted.values():
        model = recipe.model
        released.add((recipe.data.name, model.encoder, model.alignment, model.projection))
        model_config(recipe, pair=False)
    factors = (("sst", "20news_sports", "imdb"), ("bilstm", "transformer"), ("additive", "dot"))
    assert released == set(product(*factors, ("softmax", "sparsemax", "sparsegen"))) and len(planned) == 36
    for cell in planned:
        assert repo_id_of("somebody", checkpoint_name(cell.name)) == f"somebody/{cell.name}"


@pytest.fixture
def stack():
    with contextlib.ExitStack() as opened:
        yield opened


@pytest.fixture
def checkout(tmp_path, small_recipe):
    """A checkout of this code as it stands, all of it committed; what it makes may be pushed."""
    folder = tmp_path / "checkout"
    for part, more in (("src", "*.egg-info"), ("recipes", "results*")):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", more))
    (folder / "tiny.yaml").write_text(small_recipe("tiny", "unused"))
    grid = {"projection": ["softmax", "sparsemax"]}
    study = {
        "output_dir": "runs/release",
        "results": "runs/results",
        "tables": ["performance", "agreement"],
        "blocks": [{"recipe": "tiny.yaml", "grid": grid}],
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    (folder / ".gitignore").write_text("__pycache__\nruns\nmodel_cards\n")
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*person, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.mark.slow
def test_release(hub, checkout, tmp_path, stack, warm_python):
    environment = hub.environment(tmp_path / "home") | {"PYTHONPATH": str(checkout / "src"), "CUDA_VISIBLE_DEVICES": ""}

    forks = stack.enter_context(Forks(environment, tmp_path, python=warm_python))

    def release(*options):
        done = forks.run(["release", "study.yaml", "--to", "alice", "--cores", "2", *options], checkout)
        assert "Traceback" not in done.stderr and "hf_alice" not in done.stdout + done.stderr
        return done

    def held(kind, name):
        return hub.history(kind, f"alice/{name}")[-1].files

    # an expired token at the second checkpoint: the first is there, whole
    hub.expires = "POST /api/models/alice/tiny-sparsemax/commit"
    first = release()
    assert first.returncode == 2 and "alice/tiny-sparsemax: the Hub does not know the access token" in first.stderr, first
    assert "model.safetensors" in held("model", "tiny-softmax") and set(held("model", "tiny-sparsemax")) == {
        ".gitattributes"
    }
    weights = held("model", "tiny-softmax")["model.safetensors"]
    trained = {path: path.stat().st_mtime_ns for path in checkout.glob("runs/release/*/model/model.safetensors")}
    assert len(trained) == 2

    # the same command goes on from there, without training anything again
    second = release()
    assert second.returncode == 0, second.stderr
    assert "2 cells complete already" in second.stdout
    assert {path: path.stat().st_mtime_ns for path in trained} == trained
    assert held("model", "tiny-softmax")["model.safetensors"] == weights
    assert {path.split("/")[0] for path in held("dataset", "attnfaith-records")} >= {"tiny-softmax", "tiny-sparsemax"}
    for name in ("performance", "agreement"):
        content = hub.read("dataset", "alice/attnfaith-results", f"{name}/results-00000-of-00001.parquet")
        table = pq.read_table(pa.BufferReader(content))
        own = pq.read_table(checkout / "runs" / "results" / f"{name}.parquet")
        assert table.num_rows == own.num_rows
        rows = zip(table.column("checkpoint").to_pylist(), table.column("projection").to_pylist(), strict=True)
        assert set(rows) == {("alice/tiny-softmax", "softmax"), ("alice/tiny-sparsemax", "sparsemax")}

    # the cards are those that were pushed, and the index has them
    folder = checkout / "model_cards"
    for name in ("tiny-softmax", "tiny-sparsemax"):
        assert (folder / f"{name}.md").read_bytes() == hub.read("model", f"alice/{name}", "README.md")
        assert f"[{name}]({name}.md)" in (folder / "README.md").read_text()
        commit = json.loads(hub.read("model", f"alice/{name}", "run.json"))["provenance"]["commit"]
        assert re.fullmatch("[0-9a-f]{40}", commit)

    # once more: nothing is sent; and without sending, what would be
    before = {
        key: len(hub.history(*key)) for key in (("model", "alice/tiny-softmax"), ("dataset", "alice/attnfaith-results"))
    }
    shown = release("--dry-run", "--only", "tiny-softmax")
    assert shown.returncode == 0 and "model alice/tiny-softmax: " in shown.stdout
    assert "1 cell complete, 0 not" in shown.stdout
    assert release().returncode == 0
    assert {key: len(hub.history(*key)) for key in before} == before

    # what uncommitted code would make is refused before it is made
    source = checkout / "src" / "attnfaith" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    shutil.rmtree(checkout / "runs" / "release" / "tiny-softmax")
    assert "the code has uncommitted changes" in release().stderr
    assert not os.path.exists(checkout / "runs" / "release" / "tiny-softmax")


@pytest.mark.slow
def test_what_is_refused_before_anything_is_run(hub, checkout, tmp_path, stack, warm_python):
    environment = hub.environment(tmp_path / "home", token=None) | {"PYTHONPATH": str(checkout / "src")}
    forks = stack.enter_context(Forks(environment, tmp_path, python=warm_python))
    for options, says in (
        (["--to", "alice"], "no access token"),
        (["--to", "a--b"], "is no name of a repository"),
        (["--to", "alice", "--cores", "0"], "at least 1 cell"),
        (["--to", "alice", "--only", "none-*"], "no cell has such a name"),
    ):
        done = forks.run(["release", "study.yaml", *options], checkout)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert not (checkout / "runs").exists()
