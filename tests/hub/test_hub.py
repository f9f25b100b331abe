"""Pushing finished runs: the content of a push, refusals, the calls of a push, and what a stranger loads.

Calls of huggingface_hub are recorded by `RecordedHub`. The round trip uses `tests/hub/server.py` and the clients as
installed, in forked processes that hold a token of their own.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import CommitOperationDelete
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from scipy.stats import kendalltau

from attnfaith import cli, hub, record
from attnfaith.hub.contents import table_files, without_places
from attnfaith.reporting import cards
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import folder_lock
from tests.figures import IN_A_PROCESS
from tests.forks import Forks
from tests.tiny_recipes import tiny_tree


pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
CLEAN = {"commit": "0" * 40, "dirty": False, "version": "0.1.0"}
REPOS = [("space", "attention_faithfulness"), ("dataset", hub.RECORDS), ("dataset", hub.RESULTS), ("model", "tiny")]
TOKEN = "hf_alice_kept_secret"


# ------------------------------------------------------------------------------------------------ runs and a Hub


def note(run, **facts):
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def restate(run, change, name="record.parquet"):
    """Change the settings that the run's record holds; name: of the file that is written."""
    table = record.load(run / "record.parquet")
    settings = record.settings(table)
    change(settings[0])
    record.save(record.with_settings(table, settings), run / name)


def make(folder, **overrides):
    """A finished run on generated texts, made by code that a commit holds."""
    from attnfaith import recipes, runs
    from tests.figures import REPORT, one_small_figure

    tree = tiny_tree(folder, epochs=1, measure={"producers": ["gradient", "leave_one_out", "permutation"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, one_small_figure("tau_by_measure"))
        runs.run(recipes.build({**tree, **overrides}))
    note(folder, provenance=CLEAN)
    restate(folder, lambda settings: settings.update(provenance=CLEAN))
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished, tmp_path):
    """A finished run of this test's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


class RecordedHub:
    """What a push uses of `HfApi`, in memory: `held` are the files, `calls` what was asked. The user is alice."""

    endpoint, token = "https://hub", TOKEN

    def __init__(self, cache, role="write"):
        self.cache, self.role, self.calls, self.held, self.public, self.error = cache, role, [], {}, set(), None

    def put(self, kind, name, files):
        """As the owner does by hand, in public."""
        self.held[kind, f"alice/{name}"] = {path: content.encode() for path, content in files.items()}
        self.public.add((kind, f"alice/{name}"))

    def files(self, kind, name):
        return self.held.get((kind, f"alice/{name}"))

    def whoami(self):
        return {"name": "alice", "orgs": [{"name": "lab"}], "auth": {"accessToken": {"role": self.role}}}

    def repo_exists(self, repo_id, repo_type):
        return (repo_type, repo_id) in self.held

    def repo_info(self, repo_id, repo_type, revision=None):
        held = self.held[repo_type, repo_id]
        siblings = [SimpleNamespace(rfilename=path) for path in (".gitattributes", *held)]
        return SimpleNamespace(sha=self.sha(held), siblings=siblings, private=(repo_type, repo_id) not in self.public)

    def sha(self, files):
        return str(sorted(files.items()))

    def create_repo(self, repo_id, repo_type, private, exist_ok, space_sdk=None):
        assert exist_ok and (space_sdk == "gradio" if repo_type == "space" else space_sdk is None)
        if (repo_type, repo_id) not in self.held:
            self.calls.append(("create_repo", repo_type, repo_id, private))
            self.held[repo_type, repo_id] = {}
            if not private:
                self.public.add((repo_type, repo_id))

    def create_branch(self, repo_id, branch, repo_type, exist_ok):
        assert exist_ok
        self.calls.append(("create_branch", repo_type, repo_id, branch))

    def create_commit(self, repo_id, operations, *, commit_message, parent_commit, create_pr, revision, repo_type):
        if self.error is not None and repo_type == "model":
            raise self.error
        old = self.held[repo_type, repo_id]
        assert parent_commit == self.sha(old)
        deleted = {operation.path_in_repo for operation in operations if isinstance(operation, CommitOperationDelete)}
        added = [operation for operation in operations if operation.path_in_repo not in deleted]
        new = {path: content for path, content in old.items() if path not in deleted}
        new |= {operation.path_in_repo: operation.path_or_fileobj for operation in added}
        if new != old:
            self.calls.append(("create_commit", repo_type, repo_id, commit_message, revision, create_pr))
            if not create_pr and revision is None:
                self.held[repo_type, repo_id] = new
        url = f"{self.endpoint}/{repo_id}/discussions/1" if create_pr and new != old else None
        return SimpleNamespace(oid=self.sha(new), pr_url=url)

    def hf_hub_download(self, repo_id, path, repo_type, revision):
        target = self.cache / repo_type / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.held[repo_type, repo_id][path])
        return str(target)

    def snapshot_download(self, repo_id, repo_type, revision, allow_patterns):
        shutil.rmtree(self.cache, ignore_errors=True)
        assert allow_patterns == "*/results-*.parquet"
        for path in self.held[repo_type, repo_id]:
            self.hf_hub_download(repo_id, path, repo_type, revision)
        return str(self.cache / repo_type)


@pytest.fixture
def api(tmp_path):
    return RecordedHub(tmp_path / "cache")


def contents(plan):
    """What the plan of one run says that the repositories are to hold."""
    return {(repo.kind, repo.repo_id): dict(repo.files) for repo in plan.repos}


def table_of(api, name):
    content = api.files("dataset", hub.RESULTS)[f"{name}/results-00000-of-00001.parquet"]
    return pq.read_table(pa.BufferReader(content)).column("checkpoint").unique().to_pylist()


# ------------------------------------------------------------------------------------------------ what would be sent


def test_what_a_run_becomes(run):
    plan = hub.plan(run, "alice")
    assert [(repo.kind, repo.repo_id) for repo in plan.repos] == [(kind, f"alice/{name}") for kind, name in REPOS]
    metric, records, results, model = plan.repos
    assert {"attention_faithfulness.py", "README.md", "requirements.txt"} <= set(metric.files)
    assert "app.py" in metric.files
    assert set(records.files) == {"README.md", "cells.json", "tiny/test-00000-of-00001.parquet"}
    tables = {path.stem for path in (run / "report" / "tables").glob("*.parquet")}
    assert {"agreement", "performance", "summary"} <= tables
    assert set(results.files) == {"README.md", *(f"{name}/results-00000-of-00001.parquet" for name in tables)}
    local = {path.name for path in (run / "model").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "modeling_attention_classifier.py"} <= local
    figures = {f"figures/tiny-{name}.png" for name in ("tau_by_measure", "permutation_by_max_attention")}
    figures.add("figures/tiny-answer.svg")
    assert set(model.files) == local | figures | {"README.md", "run.json", "recipe.yaml"}
    for name in local - {"config.json"}:
        assert model.files[name] == (run / "model" / name).read_bytes()
    assert json.loads(model.files["config.json"]) == json.loads((run / "model" / "config.json").read_text())
    assert plan.private is False and plan.revision is None and plan.create_pr is False


def test_the_record_and_tables_are_the_runs(run, tmp_path):
    plan = hub.plan(run, "alice")
    _, records, results, _ = plan.repos
    path = tmp_path / "sent.parquet"
    path.write_bytes(records.files["tiny/test-00000-of-00001.parquet"])
    sent, own = record.load(path), record.load(run / "record.parquet")
    assert sent.equals(own)
    (settings,), (expected,) = record.settings(sent), record.settings(own)
    assert settings.pop("recipe")["output_dir"] == "run" and expected.pop("recipe")["output_dir"] != "run"
    assert settings == expected
    agreement = pq.read_table(pa.BufferReader(results.files["agreement/results-00000-of-00001.parquet"]))
    assert agreement.column("checkpoint").unique().to_pylist() == ["alice/tiny"]
    assert agreement.drop(["checkpoint"]).to_pylist() == pq.read_table(run / "report/tables/agreement.parquet").to_pylist()


def test_cards_are_those_that_are_written_for_reading(run, tmp_path):
    """model_cards/<checkpoint>.md is byte for byte the README.md that is pushed."""
    from attnfaith.data.registry import facts

    model = hub.plan(run, "alice").repos[-1]
    repos = {"records_repo": "alice/attnfaith-records", "results_repo": "alice/attnfaith-results"}
    cards.write_cards({"alice/tiny": run}, tmp_path / "cards", facts, **repos)
    assert (tmp_path / "cards" / "tiny.md").read_text() == model.card
    for path in (tmp_path / "cards" / "figures").iterdir():
        assert model.files[f"figures/{path.name}"] == path.read_bytes()


def test_no_path_of_this_machine_is_sent(run, tmp_path):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["output_dir"], recipe["data"]["vectors"] = str(run), "/data/glove.txt"
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    note(run, base={"folder": str(tmp_path / "other")})
    restate(run, lambda settings: settings.update(recipe=recipe))
    plan = hub.plan(run, "alice")
    for (_, repo_id), files in contents(plan).items():
        for path, content in files.items():
            for place in (str(tmp_path), f"{Path.home()}/", "/data/glove"):
                assert place.encode() not in content, (repo_id, path)
    files = plan.repos[-1].files
    assert json.loads(files["run.json"])["base"] == {"folder": "other"}
    sent = yaml.safe_load(files["recipe.yaml"])
    assert sent["output_dir"] == "run" and sent["data"]["vectors"] == "glove.txt"
    assert without_places({"note": "/data", "x": [{"base": "~/runs/a"}]}) == {"note": "/data", "x": [{"base": "a"}]}


@pytest.mark.parametrize(
    ("owner", "name"), [("alice", "a/b"), ("alice", "a..b"), ("", "a"), ("alice", "a" * 97), ("alice/x", "a")]
)
def test_names_that_the_hub_does_not_allow(run, owner, name):
    with pytest.raises(hub.HubError, match="is no name of a repository.*give another with --name or --to"):
        hub.plan(run, owner, name=name)


def test_dry_run(run, capsys):
    assert cli.main(["push", str(run), "--to", "alice", "--dry-run", "--private", "--revision", "dev"]) == 0
    shown = capsys.readouterr().out
    plan = hub.plan(run, "alice")
    for repo in plan.repos:
        assert f"{repo.kind} {repo.repo_id}: {len(repo.files)} files, {hub.size(repo.size())}" in shown
        for path in repo.files:
            assert re.search(rf"^ +[\d.]+ k?M?B  {re.escape(path)}$", shown, re.M), path
    assert shown.rstrip().endswith(f"{hub.size(sum(repo.size() for repo in plan.repos))} in all, private, branch dev")


def test_several_runs(finished, tmp_path, capsys):
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "recipe.yaml").write_text((finished / "recipe.yaml").read_text().replace("tiny", name))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert cli.main(["push", a, b, "--to", "alice", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "model alice/a: " in shown and "model alice/b: " in shown
    for words, key in (([a, a], "two of the runs would be alice/a"), ([a, b, "--name", "x"], "--name x for 2 runs")):
        assert cli.main(["push", *words, "--to", "alice", "--dry-run"]) == 2 and key in capsys.readouterr().err


def test_tables_join_by_name_of_column():
    def table(owner, **columns):
        return pa.table({"checkpoint": pa.array([owner], pa.string()), **columns})

    files = table_files("o/r", {"t": [table("b", n=[1], x=[0.5]), table("a", n=[2.5], y=["u"])]})
    assert pq.read_table(pa.BufferReader(files["t/results-00000-of-00001.parquet"])).to_pylist() == [
        {"checkpoint": "a", "n": 2.5, "x": None, "y": "u"},
        {"checkpoint": "b", "n": 1.0, "x": 0.5, "y": None},
    ]
    with pytest.raises(hub.HubError, match="another type"):
        table_files("o/r", {"t": [table("a", n=[1]), table("b", n=["one"])]})


# ------------------------------------------------------------------------------------------------ what is refused


def edit_config(run, **fields):
    path = run / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


DIRTY, UNCOMMITTED = {**CLEAN, "dirty": True}, "uncommitted changes"
REFUSED = {
    "started": (lambda run: note(run, status="started"), "'started'"),
    "uncommitted code": (lambda run: note(run, provenance=DIRTY), UNCOMMITTED),
    "code that git cannot tell": (lambda run: note(run, provenance={**CLEAN, "dirty": None}), UNCOMMITTED),
    "begun by uncommitted code": (lambda run: note(run, provenance={**CLEAN, "begun": DIRTY}), UNCOMMITTED),
    "measured by uncommitted code": (
        lambda run: restate(run, lambda settings: settings.update(provenance=DIRTY)),
        UNCOMMITTED,
    ),
    "unknown code": (lambda run: note(run, provenance=None), "--remeasure"),
    "no run": (shutil.rmtree, "is no run"),
    "a broken recipe": (lambda run: (run / "recipe.yaml").write_text("name: ["), "recipe.yaml"),
    "another model type": (lambda run: edit_config(run, model_type="bert"), "model"),
    "broken weights": (lambda run: (run / "model" / "model.safetensors").write_bytes(b"nothing"), "cannot be loaded"),
    "other weights": (lambda run: restate(run, lambda settings: settings.update(model="0" * 64)), "other weights"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_pushed(run, name):
    change, key = REFUSED[name]
    change(run)
    with pytest.raises(AttnfaithError, match=re.escape(key)):
        hub.plan(run, "alice")


def test_only_what_a_checkpoint_holds_is_sent(run):
    for name in ("training_args.bin", "notes"):
        (run / "model" / name).write_bytes(b"x")
    assert not {"training_args.bin", "notes"} & set(hub.plan(run, "alice").repos[-1].files)


@pytest.mark.parametrize("place", ["", "report"])
def test_a_run_that_is_being_written(run, place):
    with folder_lock(run / place, "a measurement"), pytest.raises(AttnfaithError, match="in use|is being written"):
        hub.plan(run, "alice")


# ------------------------------------------------------------------------------------------------ calls of a push


def test_push(run, api, capsys):
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
        expected.append(("create_commit", kind, f"alice/{name}", title, None, False))
    assert api.calls == expected
    hub.push(plan, api=api)
    shown = capsys.readouterr().out
    assert api.calls == expected and shown.count(": as it was: ") == 4 and TOKEN not in shown


def test_old_files_of_ours_go_and_others_stay(run, api):
    hub.push(hub.plan(run, "alice"), api=api)
    model = api.held["model", "alice/tiny"]
    ours = ["old.safetensors", "old.py", "figures/tiny-old.png", "figures/tiny-old.svg"]
    theirs = ["LICENSE", "figures/mine.png", "data/notes.json", ".eval_results/x.yaml"]
    model.update(dict.fromkeys([*ours, *theirs], b"x"))
    (run / "report" / "figures" / "tau_by_measure.png").unlink()
    (run / "report" / "tables" / "summary.parquet").unlink()
    plan = hub.plan(run, "alice")
    hub.push(plan, api=api)
    assert api.held == {
        key: files | (dict.fromkeys(theirs, b"x") if key[0] == "model" else {}) for key, files in contents(plan).items()
    }


def test_runs_share_records_and_results(finished, run, api):
    shutil.copy(run / "record.parquet", run / "validation.parquet")
    hub.push(hub.plan(run, "alice", name="one"), api=api)
    hub.push(hub.plan(finished, "alice", name="two"), api=api)
    paths = {path.split("/")[0] for path in api.files("dataset", hub.RECORDS)}
    assert paths == {"README.md", "cells.json", "one", "one.validation", "two"}
    card = api.files("dataset", hub.RECORDS)["README.md"].decode()
    configs = yaml.safe_load(card.split("\n---\n")[0])["configs"]
    assert [config["config_name"] for config in configs] == ["one", "one.validation", "two"]
    assert table_of(api, "performance") == ["alice/one", "alice/two"]
    # each alone changes nothing
    before, calls = dict(api.held), len(api.calls)
    hub.push(hub.plan(run, "alice", name="one"), api=api)
    assert api.held == before and len(api.calls) == calls
    # what a run no longer has goes, and the other's stays
    (run / "report" / "tables" / "summary.parquet").unlink()
    (run / "validation.parquet").unlink()
    hub.push(hub.plan(run, "alice", name="one"), api=api)
    assert table_of(api, "summary") == ["alice/two"] and table_of(api, "performance") == ["alice/one", "alice/two"]
    assert {path.split("/")[0] for path in api.files("dataset", hub.RECORDS)} == {"README.md", "cells.json", "one", "two"}


def test_private_branch_and_pull_request(run, api, capsys):
    hub.push(hub.plan(run, "alice", private=True), api=api)
    assert {call[3] for call in api.calls if call[0] == "create_repo"} == {True}
    held, api.calls = dict(api.held), []
    note(run, seconds=12345.0)
    hub.push(hub.plan(run, "alice", revision="dev"), api=api)
    assert api.calls[-1] == ("create_commit", "model", "alice/tiny", "Push the checkpoint", "dev", False)
    assert [call for call in api.calls if call[0] == "create_branch"] == [
        ("create_branch", kind, f"alice/{name}", "dev") for kind, name in REPOS
    ]
    addresses = hub.push(hub.plan(run, "alice", create_pr=True), api=api)
    assert addresses[-1] == "https://hub/alice/tiny/discussions/1" and api.calls[-1][-2:] == (None, True)
    assert api.held == held and "offered: " in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "name"), REPOS[1:])
def test_private_where_it_is_public(run, api, kind, name):
    api.put(kind, name, {})
    with pytest.raises(hub.HubError, match=f"alice/{name} is public already"):
        hub.push(hub.plan(run, "alice", private=True), api=api)
    assert not api.calls


FOREIGN = [
    ("model", "tiny", {"config.json": '{"model_type": "bert"}', "model.safetensors": "x"}, "config.json, model.safetensors"),
    ("dataset", hub.RECORDS, {"tiny/test-00000-of-00001.parquet": "x"}, "tiny/test-00000-of-00001.parquet"),
    ("model", "tiny", {".gitignore": "*.json"}, ".gitignore"),
    ("space", "attention_faithfulness", {"other.py": "x"}, "other.py"),
]


@pytest.mark.parametrize(("kind", "name", "files", "key"), FOREIGN)
def test_a_repository_that_is_somebodys_own_work(run, api, kind, name, files, key):
    api.put(kind, name, files)
    with pytest.raises(hub.HubError, match=re.escape(key)):
        hub.push(hub.plan(run, "alice"), api=api)
    assert not api.calls


def test_who_may_push(run, api, monkeypatch):
    assert hub.check(None, api=api) == "alice" and hub.check("lab", api=api) == "lab"
    assert hub.check("bob", create_pr=True, api=api) == "bob"
    with pytest.raises(hub.HubError, match="alice cannot write for bob: push to alice or lab"):
        hub.check("bob", api=api)
    with pytest.raises(hub.HubError, match="may only read"):
        hub.check("alice", api=RecordedHub(api.cache, "read"))
    monkeypatch.setattr("attnfaith.hub.sending.get_token", lambda: None)
    api.token = None
    with pytest.raises(hub.HubError, match="no access token"):
        hub.push(hub.plan(run, "alice"), api=api)
    assert not api.calls


def failed(status):
    request = httpx2.Request("POST", f"https://hub/api?token={TOKEN}", headers={"Authorization": f"Bearer {TOKEN}"})
    return HfHubHTTPError(f"{status} for {request.url}", response=httpx2.Response(status, request=request))


def wrapped(error):
    outer = RuntimeError(f"Error while uploading with {TOKEN}")
    outer.__cause__ = error
    return outer


FAILURES = [
    (failed(401), "hf auth login"),
    (failed(412), "at the same moment"),
    (failed(500), "the Hub answers 500"),
    (wrapped(failed(401)), "hf auth login"),
    (httpx2.ConnectError(f"no {TOKEN}"), "no connection"),
    (OfflineModeIsEnabled("offline"), "no connection"),
]


@pytest.mark.parametrize(("error", "key"), FAILURES)
def test_a_push_that_fails_is_pushed_again(run, api, error, key):
    """The repository is named, no token is, and what was sent before is kept."""
    plan, api.error = hub.plan(run, "alice"), error
    with pytest.raises(hub.HubError, match=re.escape(key)) as caught:
        hub.push(plan, api=api)
    assert str(caught.value).startswith("alice/tiny: ") and TOKEN not in str(caught.value)
    assert api.files("dataset", hub.RECORDS) and not api.files("model", "tiny")
    api.error = None
    hub.push(plan, api=api)
    assert api.held == contents(plan)


# ------------------------------------------------------------------------------------------------ a round trip


@pytest.fixture(scope="module")
def server():
    from tests.hub.server import HubServer

    with HubServer() as started:
        started.add_user("alice", TOKEN)
        started.add_user("alice", f"{TOKEN}_read", "read")
        yield started


@pytest.fixture(scope="module")
def alice(server, tmp_path_factory, warm_python):
    """Runs a command of attnfaith as a user of the server: (arguments, folder) -> exit code and output."""
    environment = server.environment(tmp_path_factory.mktemp("home"), token=None) | {"PYTHONPATH": str(ROOT / "src")}
    with Forks(environment, tmp_path_factory.mktemp("cwd"), IN_A_PROCESS, warm_python) as forks:

        def do(arguments, folder, token=TOKEN):
            done = forks.run(arguments, folder, environment={"HF_TOKEN": token}, clean=True)
            output = done.stdout + done.stderr
            assert TOKEN not in output and "Traceback" not in output
            return done.returncode, output

        yield do


def test_several_runs_after_a_failure(finished, server, alice, tmp_path):
    """Where the token expires at the second run, the first is there, whole; the same command goes on."""
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "recipe.yaml").write_text((finished / "recipe.yaml").read_text().replace("tiny", name))
    server.expires = "POST /api/models/alice/b/commit"
    words = ["push", "a", "b", "--to", "alice", "--private"]
    code, output = alice(words, tmp_path)
    assert code == 2 and "alice/b: the Hub does not know the access token" in output
    assert "model.safetensors" in server.history("model", "alice/a")[-1].files
    assert set(server.history("model", "alice/b")[-1].files) == {".gitattributes"}
    code, output = alice(words, tmp_path)
    assert code == 0 and "as it was: " in output
    assert "model.safetensors" in server.history("model", "alice/b")[-1].files
    assert server.repo("model", "alice/b")["private"] is True


# ------------------------------------------------------------------------------------------------ a stranger


STRANGER = """
import importlib.abc, json, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
if BLOCKED:
    try:
        import attnfaith
        raise SystemExit("attnfaith is here")
    except ModuleNotFoundError:
        pass
else:
    import attnfaith

# README
import datasets, evaluate, torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

trust = {"trust_remote_code": True} if BLOCKED else {}
tokenizer = AutoTokenizer.from_pretrained(OWNER + "/tiny", **trust)
model = AutoModelForSequenceClassification.from_pretrained(OWNER + "/tiny", **trust).eval()
base = AutoModel.from_pretrained(OWNER + "/tiny", **trust).eval()
records = datasets.load_dataset(OWNER + "/attnfaith-records", "tiny", split="test")
apart = []
for row in records:
    inputs = tokenizer(" ".join(row["tokens"]), return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
        assert torch.equal(base(**inputs).attention, output.attention)
    apart.append((output.logits.softmax(-1)[0] - torch.tensor(row["probs"])).abs().max().item())
    attention = output.attention[0]
    apart.append((attention[attention > 0] - torch.tensor(row["attention"])).abs().max().item())
tables = {
    name: datasets.load_dataset(OWNER + "/attnfaith-results", name, split="results").num_rows
    for name in datasets.get_dataset_config_names(OWNER + "/attnfaith-results")
}
metric = evaluate.load(OWNER + "/attention_faithfulness")
value = metric.compute(attention=records["attention"], importance=records["importance_gradient"])["kendall_tau"]
print(json.dumps({
    "class": type(model).__module__, "apart": max(apart), "rows": len(records), "tables": tables, "tau": value,
    "configs": datasets.get_dataset_config_names(OWNER + "/attnfaith-records"),
}))
"""


@pytest.mark.gate
@pytest.mark.parametrize("blocked", [("attnfaith",), ()], ids=["without the package", "with it"])
def test_round_trip(run, server, alice, tmp_path, blocked, warm_python):
    """What a stranger loads is what was measured: weights, attention, records, tables, metric."""
    owner = "without" if blocked else "with"
    server.add_user(owner, f"hf_{owner}_secret")
    code, output = alice(["push", run, "--to", owner], tmp_path, f"hf_{owner}_secret")
    assert code == 0 and f"hf_{owner}_secret" not in output, output
    assert [len(server.history(kind, f"{owner}/{name}")) for kind, name in REPOS] == [2] * 4  # the Hub's own, and ours
    (tmp_path / "elsewhere").mkdir()
    environment = server.environment(tmp_path / "home", token=None)
    environment.pop("PYTHONPATH", None)
    if not blocked:
        environment["PYTHONPATH"] = str(ROOT / "src")
    published = (ROOT / "docs" / "how_to" / "publish.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\{.python notest\}\n(.*?)^```", published, re.M | re.S)
    shown = shown.replace("OWNER", owner).replace("sst-bilstm-additive-sparsemax", "tiny")
    script = STRANGER.replace("BLOCKED", repr(blocked)).replace("OWNER", repr(owner)).replace("# README", shown)
    done = subprocess.run(
        [sys.executable if blocked else warm_python, "-c", script],
        cwd=tmp_path / "elsewhere",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["class"].startswith("transformers_modules." if blocked else "attnfaith.models")
    assert found["apart"] < 1e-6 and found["rows"] == 24 and found["configs"] == ["tiny"]
    tables = {path.stem: pq.read_metadata(path).num_rows for path in (run / "report" / "tables").glob("*.parquet")}
    assert found["tables"] == tables
    table = record.load(run / "record.parquet")
    pairs = zip(record.rows(table, "attention"), record.rows(table, "importance_gradient"), strict=True)
    assert found["tau"] == pytest.approx(np.nanmean([kendalltau(*pair).statistic for pair in pairs]), abs=1e-6)
