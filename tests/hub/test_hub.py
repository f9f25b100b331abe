"""Finished runs to be pushed: the content, the refusals, and what a push changes on a Hub on loopback."""

import json
import re
import shutil
from pathlib import Path

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import HfApi

from attnfaith import cli, hub, record
from attnfaith.data.registry import facts
from attnfaith.reporting import cards
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import folder_lock
from tests.hub.server import TOKEN, HubServer
from tests.tiny_recipes import CANARY


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]  # of huggingface_hub
DIRTY = {"commit": "0" * 40, "dirty": True, "version": "0.1.0"}
RECORDS = f"alice/{hub.RECORDS}"


def note(run, **entries):
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def restate(run, **entries):
    """Change the settings in the run's record."""
    table = record.load(run / "record.parquet")
    (settings,) = record.settings(table)
    record.save(record.with_settings(table, [{**settings, **entries}]), run / "record.parquet")


@pytest.fixture
def run(copied):
    return copied


@pytest.fixture
def server():
    with HubServer() as started:
        yield started


@pytest.fixture
def api(server, tmp_path, monkeypatch):
    for name, value in {"OFFLINE": False, "CACHE": str(tmp_path / "cache"), "DISABLE_XET": True}.items():
        monkeypatch.setattr(f"huggingface_hub.constants.HF_HUB_{name}", value)
    return HfApi(endpoint=server.endpoint, token=TOKEN)


def unpacked(content):
    """A file's bytes; of a parquet file, whose pages are compressed, all cells and notes too."""
    if content[:4] != b"PAR1":
        return content
    table = pq.read_table(pa.BufferReader(content))
    return content + repr((table.schema.metadata, [field.metadata for field in table.schema], table.to_pydict())).encode()


def test_the_content_of_a_push_is_the_run_without_paths_of_this_machine_and_secrets(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CANARY)
    written = {str(path): unpacked(path.read_bytes()) for path in run.rglob("*") if path.is_file()}
    assert len(written) > 10 and [name for name, content in written.items() if CANARY.encode() in content] == []
    cards.write_cards({"alice/tiny": run}, tmp_path / "cards", facts, RECORDS)
    (run / "model" / "training_args.bin").write_bytes(b"x")
    metric, records, model = hub.plan(run, "alice")
    assert {"attention_faithfulness.py", "app.py", "README.md", "requirements.txt"} <= set(metric.files)
    tables = {f"tiny/tables/{path.name}" for path in (run / "report" / "tables").glob("*.csv")}
    assert set(records.files) == {"README.md", "tiny/cell.json", "tiny/test-00000-of-00001.parquet", *tables}
    local = {path.name for path in (run / "model").iterdir()} - {"training_args.bin"}
    assert {"model.safetensors", "config.json", "tokenizer.json", "modeling_attention_classifier.py"} <= local
    assert set(model.files) == local | {"figures/tiny-answer.svg", "README.md", "run.json", "recipe.yaml"}
    assert all(model.files[name] == (run / "model" / name).read_bytes() for name in local - {"config.json"})
    assert (tmp_path / "cards" / "tiny.md").read_bytes() == model.files["README.md"], "`attnfaith cards` writes the same"
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["output_dir"], recipe["data"]["vectors"] = str(run), "/data/glove.txt"
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    note(run, base={"folder": str(tmp_path / "other")})
    restate(run, recipe=recipe)
    plan = hub.plan(run, "alice")
    for path, content in [file for repo in plan for file in repo.files.items()]:
        for text in (str(tmp_path), f"{Path.home()}/", "/data/glove", CANARY):
            assert text.encode() not in unpacked(content), path
    assert json.loads(plan[-1].files["run.json"])["base"] == {"folder": "other"}
    assert cards.public({"note": "/data", "x": [{"base": "~/runs/a"}]}) == {"note": "/data", "x": [{"base": "a"}]}


def test_a_dry_run_lists_the_files_of_several_runs(finished, tmp_path, capsys):
    a, b = (str(shutil.copytree(finished, tmp_path / name)) for name in ("a", "b"))
    recipe = Path(b, "recipe.yaml")
    recipe.write_text(recipe.read_text().replace("tiny", "b"))
    assert cli.main(["push", a, b, "--to", "alice", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    for repo in hub.plan(b, "alice"):
        assert f"{repo.kind} {repo.repo_id}: {len(repo.files)} files, " in printed
        assert [path for path in repo.files if not re.search(rf"^ +[\d.,]+ kB  {re.escape(path)}$", printed, re.M)] == []
    for words, key in (([a, a], "would be called alike (tiny)"), ([a, b, "--name", "x"], "would be called alike (x)")):
        assert cli.main(["push", *words, "--to", "alice", "--dry-run"]) == 2 and key in capsys.readouterr().err


REFUSED = {
    "started": (lambda run: note(run, status="started"), "'started'"),
    "uncommitted code": (lambda run: note(run, provenance=DIRTY), "uncommitted changes"),
    "unknown to git": (lambda run: note(run, provenance={**DIRTY, "dirty": None}), "uncommitted changes"),
    "measured by uncommitted code": (lambda run: restate(run, provenance=DIRTY), "uncommitted changes"),
    "unknown code": (lambda run: note(run, provenance=None), "unknown code"),
    "no run": (shutil.rmtree, "no recipe at"),
    "no report": (lambda run: shutil.rmtree(run / "report"), "attnfaith report"),
    "broken weights": (lambda run: (run / "model" / "model.safetensors").write_bytes(b"nothing"), "cannot be loaded"),
    "other weights": (lambda run: restate(run, model="0" * 64), "other weights"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_is_not_pushed(run, name):
    change, key = REFUSED[name]
    change(run)
    with pytest.raises(AttnfaithError, match=re.escape(key)):
        hub.plan(run, "alice")


def test_names_locks_and_tokens_that_are_refused(run, tmp_path, monkeypatch):
    for owner, name in (("alice", "a/b"), ("alice", "a..b"), ("", "a"), ("alice", "a" * 97)):
        with pytest.raises(hub.HubError, match="is no name of a repository .*give another with --name or --to"):
            hub.repo_id_of(owner, name)
    with folder_lock(run, "a measurement"), pytest.raises(AttnfaithError, match="in use"):
        hub.plan(run, "alice")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(hub.HubError, match="the Hub: .*hf auth login"):
        hub.check("alice", api=HfApi())


def test_each_repository_changes_by_one_commit_and_a_push_that_fails_is_pushed_again(run, api, server, capsys, monkeypatch):
    plan, commit = hub.plan(run, "alice"), HfApi.create_commit

    def failing(self, repo_id, *words, repo_type, **how):
        if repo_type == "model":
            raise httpx2.ConnectError("no route")
        return commit(self, repo_id, *words, repo_type=repo_type, **how)

    monkeypatch.setattr(HfApi, "create_commit", failing)
    with pytest.raises(hub.HubError, match="^alice/tiny: no route. What is there is kept: push again"):
        hub.push(plan, private=True, api=api)
    assert server.files("dataset", RECORDS) and not server.files("model", "alice/tiny")
    monkeypatch.setattr(HfApi, "create_commit", commit)
    paths = ("spaces/alice/attention_faithfulness", f"datasets/{RECORDS}", "alice/tiny")
    for _ in range(2):
        assert hub.push(plan, private=True, api=api) == [f"{server.endpoint}/{path}" for path in paths]
    for repo in plan:
        assert server.files(repo.kind, repo.repo_id) == dict(repo.files)
        there = server.repos[repo.kind, repo.repo_id]
        assert len(there.commits) == 2 and there.private, "one commit after that of the empty repository"
    printed = capsys.readouterr().out
    assert printed.count("as it was: ") == 2 + 3 and TOKEN not in printed


@pytest.mark.parametrize(
    ("kind", "repo_id", "files", "key"),
    [
        ("model", "alice/tiny", ["config.json", "model.safetensors"], "(config.json, model.safetensors)"),
        ("dataset", RECORDS, ["tiny/test-00000-of-00001.parquet"], "(tiny/test-00000-of-00001.parquet)"),
        ("dataset", RECORDS, [], f"{RECORDS} is public"),
    ],
)
def test_a_repository_of_somebody_else_or_one_that_is_public(run, api, server, kind, repo_id, files, key):
    api.create_repo(repo_id, repo_type=kind)
    for path in files:
        api.upload_file(path_or_fileobj=b"x", path_in_repo=path, repo_id=repo_id, repo_type=kind)
    with pytest.raises(hub.HubError, match=re.escape(key)):
        hub.push(hub.plan(run, "alice"), private=not files, api=api)
    assert [*server.repos] == [(kind, repo_id)]
