"""Finished runs to be pushed: the content, the refusals and the calls of huggingface_hub, which `RecordedHub` records."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pyarrow as pa
import pytest
import yaml
from huggingface_hub import CommitOperationDelete
from huggingface_hub.errors import OfflineModeIsEnabled

from attnfaith import cli, hub, recipes, record, runs
from attnfaith.data.registry import facts
from attnfaith.hub.contents import table_files, without_places
from attnfaith.reporting import cards
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import folder_lock
from tests.figures import REPORT, one_small_figure
from tests.tiny_recipes import tiny_tree


pytestmark = pytest.mark.slow
CLEAN = {"commit": "0" * 40, "dirty": False, "version": "0.1.0"}
REPOS = [("space", "attention_faithfulness"), ("dataset", hub.RECORDS), ("dataset", hub.RESULTS), ("model", "tiny")]
TOKEN = "hf_alice_kept_secret"


def note(run, **entries):
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def restate(run, **entries):
    """Change the settings in the run's record."""
    table = record.load(run / "record.parquet")
    (settings,) = record.settings(table)
    record.save(record.with_settings(table, [{**settings, **entries}]), run / "record.parquet")


def finished_run(folder, **overrides):
    """Train a run on generated texts, as by code that a commit holds."""
    tree = tiny_tree(folder, epochs=1, measure={"producers": ["gradient", "leave_one_out", "permutation"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, one_small_figure("tau_by_measure"))
        runs.run(recipes.build({**tree, **overrides}))
    note(folder, provenance=CLEAN)
    restate(folder, provenance=CLEAN)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


class RecordedHub:
    """The methods of `HfApi` that a push calls, in memory. held: the files. calls: what changed them. The user is alice."""

    endpoint, token = "https://hub", TOKEN

    def __init__(self, cache, role="write"):
        self.cache, self.role, self.calls, self.held, self.public, self.error = cache, role, [], {}, set(), None

    def files(self, kind, name):
        return self.held.get((kind, f"alice/{name}"))

    def whoami(self):
        return {"name": "alice", "orgs": [{"name": "lab"}], "auth": {"accessToken": {"role": self.role}}}

    def repo_exists(self, repo_id, repo_type):
        return (repo_type, repo_id) in self.held

    def repo_info(self, repo_id, repo_type):
        files = self.held[repo_type, repo_id]
        siblings = [SimpleNamespace(rfilename=path) for path in (".gitattributes", *files)]
        return SimpleNamespace(sha=sha(files), siblings=siblings, private=(repo_type, repo_id) not in self.public)

    def create_repo(self, repo_id, repo_type, private, exist_ok, space_sdk=None):
        assert exist_ok and (space_sdk == "gradio" if repo_type == "space" else space_sdk is None)
        if (repo_type, repo_id) not in self.held:
            self.calls.append(("create_repo", repo_type, repo_id, private))
            self.held[repo_type, repo_id] = {}
            self.public |= set() if private else {(repo_type, repo_id)}

    def create_commit(self, repo_id, operations, *, commit_message, parent_commit, repo_type):
        if self.error is not None and repo_type == "model":
            raise self.error
        old = self.held[repo_type, repo_id]
        assert parent_commit == sha(old)
        deleted = {operation.path_in_repo for operation in operations if isinstance(operation, CommitOperationDelete)}
        new = {path: content for path, content in old.items() if path not in deleted}
        new |= {part.path_in_repo: part.path_or_fileobj for part in operations if part.path_in_repo not in deleted}
        if new != old:
            self.calls.append(("create_commit", repo_type, repo_id, commit_message))
            self.held[repo_type, repo_id] = new
        return SimpleNamespace(oid=sha(new))

    def hf_hub_download(self, repo_id, path, repo_type, revision):
        target = self.cache / repo_type / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.held[repo_type, repo_id][path])
        return str(target)

    def snapshot_download(self, repo_id, repo_type, revision, allow_patterns):
        shutil.rmtree(self.cache, ignore_errors=True)
        for path in self.held[repo_type, repo_id]:
            self.hf_hub_download(repo_id, path, repo_type, revision)
        return str(self.cache / repo_type)


def sha(files):
    return str(sorted(files.items()))


@pytest.fixture
def api(tmp_path):
    return RecordedHub(tmp_path / "cache")


def contents(plan):
    return {(repo.kind, repo.repo_id): dict(repo.files) for repo in plan.repos}


# ------------------------------------------------------------------------------------------------ the content


def test_the_content_of_a_push_is_the_run(run, tmp_path):
    (run / "model" / "training_args.bin").write_bytes(b"x")
    plan = hub.plan(run, "alice")
    assert [(repo.kind, repo.repo_id) for repo in plan.repos] == [(kind, f"alice/{name}") for kind, name in REPOS]
    metric, records, results, model = plan.repos
    assert {"attention_faithfulness.py", "app.py", "README.md", "requirements.txt"} <= set(metric.files)
    assert set(records.files) == {"README.md", "cells.json", "tiny/test-00000-of-00001.parquet"}
    tables = {path.stem for path in (run / "report" / "tables").glob("*.parquet")}
    assert set(results.files) == {"README.md", *(f"{name}/results-00000-of-00001.parquet" for name in tables)}
    local = {path.name for path in (run / "model").iterdir()} - {"training_args.bin"}
    assert {"model.safetensors", "config.json", "tokenizer.json", "modeling_attention_classifier.py"} <= local
    assert set(model.files) == local | {"figures/tiny-answer.svg", "README.md", "run.json", "recipe.yaml"}
    assert all(model.files[name] == (run / "model" / name).read_bytes() for name in local - {"config.json"})

    cards.write_cards({"alice/tiny": run}, tmp_path / "cards", facts, **hub.shared_repos("alice"))
    assert (tmp_path / "cards" / "tiny.md").read_text() == model.card, "`attnfaith cards` writes the card that is pushed"


def test_no_path_of_this_machine_is_sent(run, tmp_path):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["output_dir"], recipe["data"]["vectors"] = str(run), "/data/glove.txt"
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    note(run, base={"folder": str(tmp_path / "other")})
    restate(run, recipe=recipe)
    plan = hub.plan(run, "alice")
    for (_, repo_id), files in contents(plan).items():
        for path, content in files.items():
            for place in (str(tmp_path), f"{Path.home()}/", "/data/glove"):
                assert place.encode() not in content, (repo_id, path)
    assert json.loads(plan.repos[-1].files["run.json"])["base"] == {"folder": "other"}
    assert without_places({"note": "/data", "x": [{"base": "~/runs/a"}]}) == {"note": "/data", "x": [{"base": "a"}]}


def test_a_dry_run_lists_the_files_of_several_runs(finished, tmp_path, capsys):
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "recipe.yaml").write_text((finished / "recipe.yaml").read_text().replace("tiny", name))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert cli.main(["push", a, b, "--to", "alice", "--dry-run", "--private"]) == 0
    printed = capsys.readouterr().out
    for repo in hub.plan(b, "alice").repos:
        assert f"{repo.kind} {repo.repo_id}: {len(repo.files)} files, {hub.size(repo.size())}" in printed
        assert [path for path in repo.files if not re.search(rf"^ +[\d.]+ k?M?B  {re.escape(path)}$", printed, re.M)] == []
    assert printed.rstrip().endswith("in all, private")
    for words, key in (([a, a], "would be called alike (a)"), ([a, b, "--name", "x"], "would be called alike (x)")):
        assert cli.main(["push", *words, "--to", "alice", "--dry-run"]) == 2 and key in capsys.readouterr().err


DIRTY = {**CLEAN, "dirty": True}
REFUSED = {
    "started": (lambda run: note(run, status="started"), "'started'"),
    "uncommitted code": (lambda run: note(run, provenance=DIRTY), "uncommitted changes"),
    "unknown to git": (lambda run: note(run, provenance={**CLEAN, "dirty": None}), "uncommitted changes"),
    "measured by uncommitted code": (lambda run: restate(run, provenance=DIRTY), "uncommitted changes"),
    "unknown code": (lambda run: note(run, provenance=None), "unknown code"),
    "no run": (shutil.rmtree, "is no run"),
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


def test_tables_that_do_not_join():
    tables = [pa.table({"checkpoint": [name], "n": pa.array([value])}) for name, value in (("a", 1), ("b", "one"))]
    with pytest.raises(hub.HubError, match="has another type"):
        table_files("o/r", {"t": tables})


def test_a_name_that_the_hub_does_not_allow_and_a_run_that_is_being_written(run):
    for owner, name in (("alice", "a/b"), ("alice", "a..b"), ("", "a"), ("alice", "a" * 97)):
        with pytest.raises(hub.HubError, match="is no name of a repository .*give another with --name or --to"):
            hub.repo_id_of(owner, name)
    with folder_lock(run, "a measurement"), pytest.raises(AttnfaithError, match="in use"):
        hub.plan(run, "alice")


# ------------------------------------------------------------------------------------------------ the calls of a push


def test_each_repository_changes_by_one_commit_and_an_equal_push_changes_nothing(run, api, capsys):
    plan = hub.plan(run, "alice")
    assert hub.push(plan, api=api) == [
        "https://hub/spaces/alice/attention_faithfulness",
        f"https://hub/datasets/alice/{hub.RECORDS}",
        f"https://hub/datasets/alice/{hub.RESULTS}",
        "https://hub/alice/tiny",
    ]
    assert api.held == contents(plan)
    titles = ["Push the metric", "Push the records of alice/tiny", "Push the results of alice/tiny", "Push the checkpoint"]
    expected = []
    for (kind, name), title in zip(REPOS, titles, strict=True):
        expected.append(("create_repo", kind, f"alice/{name}", False))
        expected.append(("create_commit", kind, f"alice/{name}", title))
    assert api.calls == expected
    hub.push(plan, api=api)
    printed = capsys.readouterr().out
    assert api.calls == expected and printed.count(": as it was: ") == 4 and TOKEN not in printed


@pytest.mark.parametrize(
    ("kind", "name", "files", "key"),
    [
        ("model", "tiny", {"config.json": b"{}", "model.safetensors": b"x"}, "config.json, model.safetensors"),
        ("dataset", hub.RECORDS, {"tiny/test-00000-of-00001.parquet": b"x"}, "tiny/test-00000-of-00001.parquet"),
        ("model", "tiny", {".gitignore": b"*.json"}, ".gitignore"),
        ("space", "attention_faithfulness", {"other.py": b"x"}, "other.py"),
        ("dataset", hub.RECORDS, {}, f"alice/{hub.RECORDS} is public already"),
    ],
)
def test_a_repository_of_somebody_else_or_one_that_is_public(run, api, kind, name, files, key):
    api.held[kind, f"alice/{name}"], api.public = files, {(kind, f"alice/{name}")}
    with pytest.raises(hub.HubError, match=re.escape(key)):
        hub.push(hub.plan(run, "alice", private=not files), api=api)
    assert not api.calls


def test_who_may_push(api, monkeypatch):
    for owner in ("alice", "lab"):
        hub.check(owner, api=api)
    with pytest.raises(hub.HubError, match="alice cannot write for bob: push to alice or lab"):
        hub.check("bob", api=api)
    with pytest.raises(hub.HubError, match="may only read"):
        hub.check("alice", api=RecordedHub(api.cache, "read"))
    monkeypatch.setattr("attnfaith.hub.sending.get_token", lambda: None)
    api.token = None
    with pytest.raises(hub.HubError, match="no access token"):
        hub.check("alice", api=api)


@pytest.mark.parametrize("error", [httpx2.ConnectError("no route"), OfflineModeIsEnabled("offline")])
def test_a_push_that_fails_names_the_repository_and_is_pushed_again(run, api, error):
    plan, api.error = hub.plan(run, "alice", private=True), error
    with pytest.raises(hub.HubError, match=f"^alice/tiny: {error}. What is there is kept: push again"):
        hub.push(plan, api=api)
    assert api.files("dataset", hub.RECORDS) and not api.files("model", "tiny")
    assert {call[3] for call in api.calls if call[0] == "create_repo"} == {True}
    api.error = None
    hub.push(plan, api=api)
    assert api.held == contents(plan)
