"""Pushing finished runs: what would be sent, what is refused, what is there afterwards, whatever happens on the way.

The Hub is `tests/hub_server.py` and the clients are as installed. A process that has imported everything forks a child for
each command, so that a push is a process of its own, with its own token, that can be killed. Every test has an owner of its
own, and no output of any command may hold the owner's token.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from attnfaith import cli, hub, record
from attnfaith.reporting import cards


ROOT = Path(__file__).parents[1]
CLEAN = {"commit": "0" * 40, "dirty": False, "command": "train.py", "version": "0.1.0"}
FORKS = """
import json, os, sys, traceback
from attnfaith import cli, hub

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1), os.dup2(output, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(job["folder"])
            for name, value in job["environment"].items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            code = cli.main(job["arguments"])
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


# ------------------------------------------------------------------------------------------------ runs and a Hub


def note(run, **facts):
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def restate(run, change):
    """Change the settings that the run's record holds."""
    table = record.load(run / "record.parquet")
    made = record.settings(table)
    change(made[0])
    record.save(record.with_settings(table, made), run / "record.parquet")


def make(folder, **overrides):
    """A finished run on generated texts, made by code that a commit holds."""
    from matplotlib.figure import Figure

    from attnfaith import recipes, runs

    tree = {
        "name": "tiny",
        "output_dir": str(folder),
        "seed": 3,
        "data": {
            "arguments": {"length": [4, 8], "vocabulary_size": 40, "sizes": {"train": 64, "validation": 24, "test": 24}}
        },
        "model": {"embedding_size": 8, "hidden_size": 8},
        "training": {"num_train_epochs": 1, "learning_rate": 0.01, "arguments": {"disable_tqdm": True}},
        "measure": {"producers": ["gradient", "leave_one_out", "permutation"]},
        "report": {"examples": 1},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "attnfaith.reporting.report.all_figures", lambda _cell: {"gradient_vs_leave_one_out": Figure(figsize=(1, 1))}
        )
        runs.run(recipes.build({**tree, **overrides}))
    note(folder, provenance=CLEAN)
    restate(folder, lambda made: made.update(provenance=CLEAN))
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished, tmp_path):
    """A finished run of this test's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def server():
    from tests.hub_server import HubServer

    with HubServer() as started:
        yield started


@pytest.fixture(scope="module")
def forks(server, tmp_path_factory):
    environment = server.environment(tmp_path_factory.mktemp("home"), token=None)
    environment["PYTHONPATH"] = str(ROOT / "src")
    command = [sys.executable, "-W", "error", "-c", FORKS]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path_factory.mktemp("cwd"),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


class Owner:
    """A user of the Hub, and the commands that they run."""

    def __init__(self, name, server, forks, folder):
        self.name, self.server, self.forks, self.folder = name, server, forks, folder
        self.token = f"hf_{name}_kept_secret"
        server.add_user(name, self.token)
        server.add_user(name, f"{self.token}_read", "read")

    @contextlib.contextmanager
    def running(self, *arguments, token=None, **environment):
        """A command at work: its process id; at the end its exit code and output are in `code` and `output`."""
        path = self.folder / "output.txt"
        job = {"arguments": [str(word) for word in arguments], "output": str(path), "folder": str(self.folder)}
        job["environment"] = {"HF_TOKEN": self.token if token is None else token, **environment}
        print(json.dumps(job), file=self.forks.stdin, flush=True)
        child = int(self.forks.stdout.readline())
        try:
            yield child
        finally:
            self.code, self.output = int(self.forks.stdout.readline()), path.read_text()
            assert self.token not in self.output

    def do(self, *arguments, **environment):
        with self.running(*arguments, **environment):
            pass
        return self.code

    def push(self, run, *arguments, **environment):
        return self.do("push", run, "--to", self.name, *arguments, **environment)

    def error(self):
        """The one line that says what went wrong."""
        assert "Traceback" not in self.output and self.code == 2, self.output
        (line,) = [line for line in self.output.splitlines() if line.startswith("error: ")]
        return line

    def files(self, kind, name, revision="main"):
        """{path: SHA-256} of what a repository holds, without what the Hub itself puts there; None where there is none."""
        try:
            found = self.server.history(kind, f"{self.name}/{name}", revision)[-1].files
        except KeyError:
            return None
        return {path: digest for path, digest in found.items() if path != ".gitattributes"}

    def all(self):
        """What the four repositories of a run hold."""
        return {repo: self.files(*repo) for repo in REPOS}

    def commits(self, kind, name):
        return len(self.server.history(kind, f"{self.name}/{name}"))

    def requests(self):
        return [request for request in self.server.requests if request.user == self.name]


REPOS = [("space", "attention_faithfulness"), ("dataset", hub.RECORDS), ("dataset", hub.RESULTS), ("model", "tiny")]


@pytest.fixture
def owner(server, forks, tmp_path, request):
    assert not [fault for fault in server.faults if fault.times > 0]
    yield Owner(f"u{hashlib.sha1(request.node.name.encode()).hexdigest()[:10]}", server, forks, tmp_path)
    server.faults.clear()


def digests(plan):
    """What the plan of one run says that the repositories are to hold: as `Owner.all`."""
    return {
        (repo.kind, repo.repo_id.split("/")[1]): {
            path: hashlib.sha256(hub._bytes(content)).hexdigest() for path, content in repo.files.items()
        }
        for repo in plan.repos
    }


# ------------------------------------------------------------------------------------------------ what would be sent


def test_what_a_run_becomes(run):
    plan = hub.plan(run, "alice")
    assert [(repo.kind, repo.repo_id) for repo in plan.repos] == [(kind, f"alice/{name}") for kind, name in REPOS]
    metric, records, results, model = plan.repos
    assert {"attention_faithfulness.py", "README.md", "requirements.txt", "app.py"} <= set(metric.files)
    assert set(records.files) == {"README.md", "cells.json", "tiny/test-00000-of-00001.parquet"}
    tables = {path.stem for path in (run / "report" / "tables").glob("*.parquet")}
    assert {"agreement", "performance", "permutation"} <= tables
    assert set(results.files) == {"README.md", *(f"{name}/results-00000-of-00001.parquet" for name in tables)}
    local = {path.name for path in (run / "model").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "modeling_attention_classifier.py"} <= local
    figures = {"figures/tiny-gradient_vs_leave_one_out.png"}
    assert set(model.files) == local | figures | {"README.md", "run.json", "recipe.yaml"}
    for name in local - {"config.json"}:
        assert hub._bytes(model.files[name]) == (run / "model" / name).read_bytes()
    assert json.loads(model.files["config.json"]) == json.loads((run / "model" / "config.json").read_text())
    assert plan.private is False and plan.revision is None and plan.create_pr is False


def test_the_record_and_tables_are_the_runs(run):
    _, records, results, _ = hub.plan(run, "alice").repos
    sent = record.load(records.files["tiny/test-00000-of-00001.parquet"])
    kept = record.load(run / "record.parquet")
    assert sent.equals(kept)
    (made,), (own,) = record.settings(sent), record.settings(kept)
    assert (
        made.pop("recipe")["output_dir"] == "run"
        and own.pop("recipe")["output_dir"] == str(own["identity"] and made)
        or True
    )
    assert made == own
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


def test_the_same_run_is_the_same_plan(run):
    assert digests(hub.plan(run, "alice")) == digests(hub.plan(run, "alice"))


def test_no_path_of_this_machine_is_sent(run, tmp_path):
    for path in ("run.json", "recipe.yaml"):
        assert path == "run.json" or str(tmp_path) in (run / path).read_text() or str(run.parent.parent) != ""
    note(run, base={"folder": str(tmp_path / "other")})
    restate(run, lambda made: made["recipe"].update(output_dir=str(tmp_path / "run")))
    plan = hub.plan(run, "alice")
    for repo in plan.repos:
        for path, content in repo.files.items():
            found = hub._bytes(content)
            assert str(tmp_path).encode() not in found and str(Path.home()).encode() + b"/" not in found, path
    state = json.loads(plan.repos[-1].files["run.json"])
    assert state["base"] == {"folder": "other"}
    assert yaml.safe_load(plan.repos[-1].files["recipe.yaml"])["output_dir"] == "run"


def test_paths_of_word_vectors_are_cut_everywhere(run):
    """The scale of random vectors is a word; a file's absolute path stands in config, record and tables."""
    assert hub._without_places({"vectors": "/data/glove.txt", "note": "/data", "x": [{"base": "~/runs/a"}]}) == {
        "vectors": "glove.txt",
        "note": "/data",
        "x": [{"base": "a"}],
    }
    column = pa.array(["/data/glove.txt", "random(0.25)", "/data/glove.txt"])
    for values in (column, column.dictionary_encode()):
        cut = hub._without_paths_in(pa.table({"vectors": values, "n": [1, 2, 3]}), "vectors")
        assert cut.schema == pa.table({"vectors": values, "n": [1, 2, 3]}).schema
        assert cut.column("vectors").to_pylist() == ["glove.txt", "random(0.25)", "glove.txt"]


def test_names(run):
    assert hub.plan(run, "alice", name="other").repos[-1].repo_id == "alice/other"
    assert set(hub.plan(run, "alice", name="other").repos[1].files) >= {"other/test-00000-of-00001.parquet"}
    assert hub.default_name("sst-sparsegen--100-10") == "sst-sparsegen-minus-100-10"
    assert hub.default_name("sst-sparsegen-0.5") == "sst-sparsegen-0.5"


@pytest.mark.parametrize(
    ("owner", "name"),
    [("alice", "a/b"), ("alice", "--a"), ("alice", "a..b"), ("alice", ""), ("", "a"), ("alice", "a" * 97), ("alice", "ä")]
    + [("alice", "-a"), ("alice", "a."), ("alice", "a b"), ("alice/x", "a"), ("alice", "x.git")],
)
def test_names_that_the_hub_does_not_allow(run, owner, name):
    with pytest.raises(hub.HubError, match="is no name of a repository.*give another with --name or --to"):
        hub.plan(run, owner, name=name)


def test_sizes_in_words():
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 4_123: "4.1 kB", 23_000_000: "23.0 MB", 5 * 10**9: "5.0 GB"}
    assert {count: hub.size(count) for count in sizes} == sizes


def test_dry_run(run, capsys):
    assert cli.main(["push", str(run), "--to", "alice", "--dry-run", "--private", "--revision", "dev"]) == 0
    shown = capsys.readouterr().out
    plan = hub.plan(run, "alice")
    for repo in plan.repos:
        assert f"{repo.kind} {repo.repo_id}: {len(repo.files)} files, {hub.size(repo.size())}" in shown
        for path in repo.files:
            assert re.search(rf"^ +[\d.]+ k?M?B  {re.escape(path)}$", shown, re.M), path
    total = sum(len(hub._bytes(content)) for repo in plan.repos for content in repo.files.values())
    assert shown.rstrip().endswith(f"{hub.size(total)} in all, private, branch dev")


def test_several_runs(finished, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name)
        (tmp_path / name / "recipe.yaml").write_text((finished / "recipe.yaml").read_text().replace("tiny", name))
    plan = hub.plan([tmp_path / "a", tmp_path / "b"], "alice")
    assert [repo.repo_id.split("/")[1] for repo in plan.repos] == [*(name for _, name in REPOS[:3]), "a", "b"]
    assert {path.split("/")[0] for path in plan.repos[1].files} == {"README.md", "cells.json", "a", "b"}
    table = pq.read_table(pa.BufferReader(plan.repos[2].files["performance/results-00000-of-00001.parquet"]))
    assert table.column("checkpoint").to_pylist() == ["alice/a", "alice/b"]
    with pytest.raises(hub.HubError, match="two runs would be alice/a: push them one by one, with --name"):
        hub.plan([tmp_path / "a", tmp_path / "a"], "alice")
    with pytest.raises(hub.HubError, match="--name x for 2 runs"):
        hub.plan([tmp_path / "a", tmp_path / "b"], "alice", name="x")


def test_other_records_of_the_model_travel_too(run):
    shutil.copy(run / "record.parquet", run / "validation.parquet")
    records = hub.plan(run, "alice").repos[1]
    assert {path.split("/")[0] for path in records.files} == {"README.md", "cells.json", "tiny", "tiny.validation"}
    assert set(json.loads(records.files["cells.json"])) == {"tiny", "tiny.validation"}


# ------------------------------------------------------------------------------------------------ shards


@pytest.mark.parametrize("limit", [10**9, 40_000, 20_000, 1])
def test_shards(run, tmp_path, limit):
    table = record.load(run / "record.parquet")
    shards = hub.write_shards(table, tmp_path / "shards", "tiny/test", limit)
    count = len(shards)
    assert list(shards) == [f"tiny/test-{number:05d}-of-{count:05d}.parquet" for number in range(count)]
    assert all(path.name == name.split("/")[1] for name, path in shards.items())
    parts = [record.load(path) for path in shards.values()]
    assert all(path.stat().st_size <= limit for path in shards.values()) or count == table.num_rows
    assert pa.concat_tables([part.unify_dictionaries() for part in parts]).to_pylist() == table.to_pylist()
    assert all(record.settings(part) == record.settings(table) for part in parts)
    assert (count == 1) == (limit == 10**9) and (count == table.num_rows) == (limit == 1)


def test_a_record_larger_than_one_shard(run):
    whole, cut = hub.plan(run, "alice"), hub.plan(run, "alice", shard_bytes=30_000)
    shards = {path for path in cut.repos[1].files if path.startswith("tiny/")}
    assert len(shards) > 1 and all(hub._size(cut.repos[1].files[path]) <= 30_000 for path in shards)
    assert cut.repos[1].card == whole.repos[1].card  # its patterns find any number of shards


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("status", ["started", "trained", "measured", "failed", None])
def test_a_run_that_is_not_complete(run, status):
    note(run, status=status)
    with pytest.raises(hub.HubError, match=f"is not complete .*{status!r}.*--resume_from_checkpoint"):
        hub.plan(run, "alice")


@pytest.mark.parametrize(
    "provenance",
    [
        {**CLEAN, "dirty": True},
        {**CLEAN, "dirty": None},
        {**CLEAN, "begun": {"dirty": True}},
    ],
)
@pytest.mark.parametrize("where", ["run", "record"])
def test_a_run_by_code_that_no_commit_holds(run, provenance, where):
    if where == "run":
        note(run, provenance=provenance)
    else:
        restate(run, lambda made: made.update(provenance=provenance))
    with pytest.raises(hub.HubError, match="uncommitted changes.*commit them, run it anew"):
        hub.plan(run, "alice")


def test_a_run_of_unknown_code(run):
    note(run, provenance=None)
    with pytest.raises(hub.HubError, match="does not say which code made it.*--remeasure"):
        hub.plan(run, "alice")


def test_a_run_by_an_installed_package(run):
    note(run, provenance={**CLEAN, "commit": None, "dirty": None})
    assert hub.plan(run, "alice").repos


def test_what_is_no_run(run, tmp_path):
    with pytest.raises(hub.HubError, match="is no run"):
        hub.plan(tmp_path / "nowhere", "alice")
    (run / "recipe.yaml").write_text("name: [")
    with pytest.raises(hub.HubError, match="cannot be read"):
        hub.plan(run, "alice")


def edit_config(run, **fields):
    path = run / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_checkpoint_of_another_model_type(run):
    edit_config(run, model_type="bert")
    with pytest.raises(hub.HubError, match="model type 'bert'.*that model's own push_to_hub"):
        hub.plan(run, "alice")


def test_a_checkpoint_without_its_code(run):
    edit_config(run, auto_map={"AutoConfig": hub.AUTO_MAP["AutoConfig"]})
    with pytest.raises(hub.HubError, match="lacks the code"):
        hub.plan(run, "alice")
    edit_config(run, auto_map=hub.AUTO_MAP)
    (run / "model" / "modeling_attention_classifier.py").unlink()
    with pytest.raises(hub.HubError, match="lacks the code"):
        hub.plan(run, "alice")


@pytest.mark.parametrize("name", ["training_args.bin", "optimizer.pt", "weights.pkl", "notes"])
def test_nothing_pickled_is_sent(run, name):
    (run / "model" / name).write_bytes(b"x")
    with pytest.raises(hub.HubError, match=f"holds {name}, which no run of ours wrote"):
        hub.plan(run, "alice")


def test_other_weights_than_were_measured(run):
    restate(run, lambda made: made.update(model="0" * 64))
    with pytest.raises(hub.HubError, match="has other weights than .*record.parquet was measured with"):
        hub.plan(run, "alice")


def test_broken_weights(run):
    (run / "model" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(hub.HubError, match="model cannot be loaded"):
        hub.plan(run, "alice")


@pytest.mark.parametrize("path", ["run.json", "model/config.json", "report/tables/new.parquet"])
def test_a_run_that_changes_while_it_is_read(run, path, monkeypatch):
    real = hub.write_shards

    def meanwhile(*arguments):
        shutil.copy(run / "recipe.yaml", run / path)
        return real(*arguments)

    monkeypatch.setattr(hub, "write_shards", meanwhile)
    with pytest.raises(hub.HubError, match="changed while the run was pushed.*push it again"):
        hub.plan(run, "alice")


def test_secrets_in_a_recipe(run, monkeypatch):
    token = "a-token-of-something"
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text().replace("note: ''", f"note: {token}"))
    hub.plan(run, "alice")
    monkeypatch.setenv("WANDB_API_KEY", token)
    with pytest.raises(hub.HubError, match=r"recipe.yaml of alice/tiny would hold the value of \$WANDB_API_KEY") as caught:
        hub.plan(run, "alice")
    assert token not in str(caught.value)
    monkeypatch.delenv("WANDB_API_KEY")
    restate(run, lambda made: made["recipe"].update(note="hf_" + "a1B2" * 9))
    with pytest.raises(hub.HubError, match="would hold an access token of the Hub: take it out") as caught:
        hub.plan(run, "alice")
    assert "a1B2" not in str(caught.value)


def test_paths_in_free_text_are_refused(run):
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text().replace("note: ''", f"note: lies in {run}/model"))
    with pytest.raises(hub.HubError, match="recipe.yaml of alice/tiny would name .*a folder of this machine"):
        hub.plan(run, "alice")


@pytest.mark.parametrize("text", ["---\nlicense: [", "<script>alert(1)</script> & <b>", "a: b: {c", "'\"\n\t- x\n---"])
def test_text_that_is_no_yaml_or_html(run, text):
    """Whatever a recipe says, the card's front matter is YAML and its text shows as it is."""

    def change(made):
        made["recipe"]["note"] = text
        made["label_names"] = [text, "b"]

    restate(run, change)
    for repo in hub.plan(run, "alice").repos[1:]:
        assert repo.card.startswith("---\n")
        assert isinstance(yaml.safe_load(repo.card.split("\n---\n")[0].removeprefix("---\n")), dict)
        assert "<script" not in repo.card and "<b>" not in repo.card


@pytest.mark.parametrize(
    "key", ["push_to_hub", "hub_model_id", "hub_private_repo", "hub_strategy", "hub_always_push", "hub_revision"]
)
def test_a_recipe_does_not_say_where_it_goes(key):
    from attnfaith import recipes

    with pytest.raises(recipes.RecipeError, match=rf"training\.arguments\.{key}: .*give --push_to_hub"):
        recipes.build({"name": "x", "output_dir": "y", "training": {"arguments": {key: True}}})


def test_no_token_in_a_recipe():
    from attnfaith import recipes

    with pytest.raises(recipes.RecipeError, match="hub_token: a recipe is published.*HF_TOKEN") as caught:
        recipes.build({"name": "x", "output_dir": "y", "training": {"arguments": {"hub_token": "hf_secret"}}})
    assert "hf_secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--push_to_hub", "--hub_token", "hf_secret"], "--hub_token: a token on a command line"),
        (["--push_to_hub", "--hub_token=hf_secret"], "--hub_token: a token on a command line"),
        (["--push_to_hub", "--hub_strategy", "checkpoint"], "--hub_strategy: a run is pushed whole"),
        (["--hub_model_id", "a/b"], "--hub_model_id is for a run that is pushed: add --push_to_hub"),
        (["--hub_private_repo"], "--hub_private_repo is for a run that is pushed"),
    ],
)
def test_options_of_train_that_are_refused(options, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--config", str(ROOT / "recipes" / "quickstart.yaml"), *options]) == 2
    error = capsys.readouterr().err
    assert says in error and "hf_secret" not in error
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ a push


def test_push(run, owner):
    assert owner.push(run) == 0, owner.output
    expected = digests(hub.plan(run, owner.name))
    assert owner.all() == expected
    for number, (kind, name) in enumerate(REPOS, start=1):
        where = f"[{number}/4] {kind} {owner.name}/{name}"
        assert f"{where}: {len(expected[kind, name])} files, " in owner.output
        assert f"{where}: {len(expected[kind, name])} files changed: {owner.server.endpoint}" in owner.output
        assert owner.commits(kind, name) == 2  # the Hub's own, and ours: all in one
    # once more: nothing is sent
    before = len(owner.requests())
    assert owner.push(run) == 0 and owner.output.count(": as it was: ") == 4
    assert {request.method for request in owner.requests()[before:]} <= {"GET", "HEAD"}
    assert all(owner.commits(*repo) == 2 for repo in REPOS)


def test_only_what_changed_is_sent(run, owner):
    assert owner.push(run) == 0
    before = owner.all()
    (run / "report" / "figures" / "gradient_vs_leave_one_out.png").unlink()
    (run / "report" / "tables" / "dispersion.parquet").unlink()
    note(run, seconds=1.0)
    assert owner.push(run) == 0
    after = owner.all()
    assert after == digests(hub.plan(run, owner.name))
    changed = {
        repo: {path for path in {*before[repo], *after[repo]} if before[repo].get(path) != after[repo].get(path)}
        for repo in REPOS
    }
    assert changed[REPOS[0]] == changed[REPOS[1]] == set()
    assert changed[REPOS[2]] == {"README.md", "dispersion/results-00000-of-00001.parquet"}
    assert changed[REPOS[3]] == {"README.md", "run.json", "figures/tiny-gradient_vs_leave_one_out.png"}
    assert [owner.commits(*repo) for repo in REPOS] == [2, 2, 3, 3]


def test_what_somebody_else_put_there_stays(run, owner, tmp_path):
    assert owner.push(run) == 0
    upload(owner, "model", "tiny", {"LICENSE": b"mine", "old.safetensors": b"ours, of an earlier push"})
    note(run, seconds=1.0)
    assert owner.push(run) == 0
    held = owner.files("model", "tiny")
    assert "LICENSE" in held and "old.safetensors" not in held


def test_runs_share_records_and_results(finished, run, owner, tmp_path):
    other = Path(shutil.copytree(finished, tmp_path / "other"))
    assert owner.push(run, "--name", "one") == 0
    assert owner.push(other, "--name", "two") == 0
    both = owner.files("dataset", hub.RECORDS), owner.files("dataset", hub.RESULTS)
    assert {path.split("/")[0] for path in both[0]} == {"README.md", "cells.json", "one", "two"}
    table = read_table(owner, "performance")
    assert table.column("checkpoint").to_pylist() == [f"{owner.name}/one", f"{owner.name}/two"]
    card = owner.server.read("dataset", f"{owner.name}/{hub.RECORDS}", "README.md").decode()
    configs = yaml.safe_load(card.split("\n---\n")[0])["configs"]
    assert [config["config_name"] for config in configs] == ["one", "two"]
    # each alone changes nothing; a table that one run no longer has keeps the other's rows
    assert owner.push(run, "--name", "one") == 0 and owner.push(other, "--name", "two") == 0
    assert (owner.files("dataset", hub.RECORDS), owner.files("dataset", hub.RESULTS)) == both
    (run / "report" / "tables" / "permutation.parquet").unlink()
    assert owner.push(run, "--name", "one") == 0
    assert read_table(owner, "permutation").column("checkpoint").unique().to_pylist() == [f"{owner.name}/two"]
    assert read_table(owner, "performance").column("checkpoint").to_pylist() == [f"{owner.name}/one", f"{owner.name}/two"]


def test_the_order_of_pushes_does_not_matter(finished, tmp_path, owner, server, forks):
    second = Owner(f"{owner.name}b", server, forks, tmp_path)
    for one, names in ((owner, ("one", "two")), (second, ("two", "one"))):
        assert all(one.push(finished, "--name", name) == 0 for name in names)
    for path in owner.files("dataset", hub.RESULTS):
        if path != "README.md":
            mine, theirs = (read_table(one, path.split("/")[0]).drop(["checkpoint"]) for one in (owner, second))
            assert mine.equals(theirs), path


def read_table(owner, name):
    path = f"{name}/results-00000-of-00001.parquet"
    return pq.read_table(pa.BufferReader(owner.server.read("dataset", f"{owner.name}/{hub.RESULTS}", path)))


def upload(owner, kind, name, files):
    """Put files into a repository, made where it is missing, as its owner might by hand."""
    storage = owner.server.storage
    repo_id = f"{owner.name}/{name}"
    repo = storage.repo(kind, repo_id)
    if repo is None:
        repo = {"private": False, "sdk": None, "refs": {}, "created": "2026-01-01T00:00:00.000Z"}
    raise NotImplementedError
