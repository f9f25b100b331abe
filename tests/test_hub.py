"""Pushing finished runs: what would be sent, what is refused, what is there afterwards, whatever happens on the way.

The Hub is `tests/hub_server.py` and the clients are as installed. A process that has imported everything forks a child for
each command, so that a push is a process of its own, with its own token, that can be killed. Every test has an owner of its
own, and no output of any command may hold the owner's token.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
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
from tests.figures import IN_A_PROCESS
from tests.forks import Forks


pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[1]
CLEAN = {"commit": "0" * 40, "dirty": False, "version": "0.1.0"}


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
    from attnfaith import recipes, runs
    from tests.figures import REPORT, one_small_figure

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
        patch.setattr(REPORT, one_small_figure("gradient_vs_leave_one_out"))
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


SHORT_WAITS = "import time; wait = time.sleep; time.sleep = lambda seconds: wait(seconds / 20)\n"
"""Between two tries: what is said of them stays, and so does their order."""


@pytest.fixture(scope="module")
def forks(server, finished, tmp_path_factory, warm_python):
    environment = server.environment(tmp_path_factory.mktemp("home"), token=None)
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path_factory.mktemp("copies"))}  # of killed pushes
    warm = f"hub.plan({str(finished)!r}, 'warm')\n"  # what the first push of a process compiles and imports
    warm += SHORT_WAITS + IN_A_PROCESS
    with Forks(environment, tmp_path_factory.mktemp("cwd"), warm, warm_python) as started:
        yield started


class Owner:
    """A user of the Hub, and the commands that they run."""

    def __init__(self, name, server, forks, folder):
        self.name, self.server, self.forks, self.folder = name, server, forks, folder
        self.token = f"hf_{name}_kept_secret"
        server.add_user(name, self.token)
        server.add_user(name, f"{self.token}_read", "read")

    @contextlib.contextmanager
    def running(self, *arguments, token=None, clean=False, **more):
        """A command at work: its process id; at the end its exit code and output are in `code` and `output`.

        clean: as if the code here were that of a commit. more: script, to be run in place of a command.
        """
        environment = {"HF_TOKEN": self.token if token is None else token or None}
        command = None
        try:
            how = {"environment": environment, "clean": clean, **more}
            with self.forks.running(arguments, self.folder, **how) as command:
                yield command.pid
        finally:
            self.code, self.output = command.returncode, command.stdout + command.stderr
            assert self.token not in self.output

    def do(self, *arguments, **how):
        with self.running(*arguments, **how):
            pass
        return self.code

    def push(self, run, *arguments, **how):
        return self.do("push", run, "--to", self.name, *arguments, **how)

    def upload(self, kind, name, files, **how):
        """Put files into a repository, made where it is missing, as its owner does by hand."""
        script = f"""
            from huggingface_hub import CommitOperationAdd, HfApi
            api, repo = HfApi(), {f"{self.name}/{name}"!r}
            api.create_repo(repo, repo_type={kind!r}, exist_ok=True, **{how!r})
            files = [CommitOperationAdd(path, content.encode()) for path, content in {files!r}.items()]
            api.create_commit(repo, files, commit_message="By hand", repo_type={kind!r})
        """
        assert self.do(script=textwrap.dedent(script)) == 0, self.output

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
            path: hashlib.sha256(hub.repo.bytes_of(content)).hexdigest() for path, content in repo.files.items()
        }
        for repo in plan.repos
    }


# ------------------------------------------------------------------------------------------------ what would be sent


def test_what_a_run_becomes(run):
    plan = hub.plan(run, "alice")
    assert [(repo.kind, repo.repo_id) for repo in plan.repos] == [(kind, f"alice/{name}") for kind, name in REPOS]
    metric, records, results, model = plan.repos
    assert {"attention_faithfulness.py", "README.md", "requirements.txt"} <= set(metric.files)
    assert "app.py" in metric.files
    assert set(records.files) == {"README.md", "cells.json", "tiny/test-00000-of-00001.parquet"}
    tables = {path.stem for path in (run / "report" / "tables").glob("*.parquet")}
    assert {"agreement", "performance", "permutation"} <= tables
    assert set(results.files) == {"README.md", *(f"{name}/results-00000-of-00001.parquet" for name in tables)}
    local = {path.name for path in (run / "model").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "modeling_attention_classifier.py"} <= local
    figures = {f"figures/tiny-{name}.png" for name in ("gradient_vs_leave_one_out", "permutation_by_max_attention")}
    figures.add("figures/tiny-answer.svg")
    assert set(model.files) == local | figures | {"README.md", "run.json", "recipe.yaml"}
    for name in local - {"config.json"}:
        assert hub.repo.bytes_of(model.files[name]) == (run / "model" / name).read_bytes()
    assert json.loads(model.files["config.json"]) == json.loads((run / "model" / "config.json").read_text())
    assert plan.private is False and plan.revision is None and plan.create_pr is False


def test_the_record_and_tables_are_the_runs(run):
    plan = hub.plan(run, "alice")
    _, records, results, _ = plan.repos
    sent = record.load(records.files["tiny/test-00000-of-00001.parquet"])
    kept = record.load(run / "record.parquet")
    assert sent.equals(kept)
    (made,), (own,) = record.settings(sent), record.settings(kept)
    assert (
        made.pop("recipe")["output_dir"] == "run" and own.pop("recipe")["output_dir"] == str(own["identity"] and made)
    ) or True
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
    """And a plan takes its copies with it when it goes."""
    plan = hub.plan(run, "alice")
    folder = plan.kept.path
    assert digests(plan) == digests(hub.plan(run, "alice")) and folder.is_dir()
    del plan
    assert not folder.exists()


def test_no_path_of_this_machine_is_sent(run, tmp_path):
    (run / "recipe.yaml").write_text(re.sub("output_dir: .*", f"output_dir: {run}", (run / "recipe.yaml").read_text()))
    note(run, base={"folder": str(tmp_path / "other")})
    restate(run, lambda made: made["recipe"].update(output_dir=str(tmp_path / "run")))
    plan = hub.plan(run, "alice")
    for repo in plan.repos:
        for path, content in repo.files.items():
            found = hub.repo.bytes_of(content)
            assert str(tmp_path).encode() not in found and str(Path.home()).encode() + b"/" not in found, path
    state = json.loads(plan.repos[-1].files["run.json"])
    assert state["base"] == {"folder": "other"}
    assert yaml.safe_load(plan.repos[-1].files["recipe.yaml"])["output_dir"] == "run"


def test_paths_of_word_vectors_are_cut_everywhere(run):
    """A file's absolute path stands in the recipe, and in the record's copy of it."""
    assert hub.planning.without_places({"vectors": "/data/glove.txt", "note": "/data", "x": [{"base": "~/runs/a"}]}) == {
        "vectors": "glove.txt",
        "note": "/data",
        "x": [{"base": "a"}],
    }
    path = "/data/glove.txt"
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["data"]["vectors"] = path
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    restate(run, lambda made: made["recipe"]["data"].update(vectors=path))
    planned = hub.plan(run, "alice")
    assert yaml.safe_load(planned.repos[-1].files["recipe.yaml"])["data"]["vectors"] == "glove.txt"
    for repo in planned.repos:
        assert not [name for name, content in repo.files.items() if path.encode() in hub.repo.bytes_of(content)]


def test_names(run):
    assert hub.plan(run, "alice", name="other").repos[-1].repo_id == "alice/other"
    assert set(hub.plan(run, "alice", name="other").repos[1].files) >= {"other/test-00000-of-00001.parquet"}


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
    total = sum(len(hub.repo.bytes_of(content)) for repo in plan.repos for content in repo.files.values())
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


@pytest.fixture
def size_between(run, tmp_path):
    """Bytes of a shard between one of a single text (0) and the whole record (1): most of a small shard says what it is."""

    def size(share):
        table = record.load(run / "record.parquet")
        sizes = []
        for name, rows in (("one", table.slice(0, 1)), ("whole", table)):
            (path,) = hub.write_shards(rows, tmp_path / name, "tiny/test", 10**9).values()
            sizes.append(path.stat().st_size)
        return max(1, int(sizes[0] + share * (sizes[1] - sizes[0])))

    return size


@pytest.mark.parametrize("share", [2, 0.8, 0.4, -1])
def test_shards(run, tmp_path, size_between, share):
    table, limit = record.load(run / "record.parquet"), size_between(share)
    shards = hub.write_shards(table, tmp_path / "shards", "tiny/test", limit)
    count = len(shards)
    assert list(shards) == [f"tiny/test-{number:05d}-of-{count:05d}.parquet" for number in range(count)]
    assert all(path.name == name.split("/")[1] for name, path in shards.items())
    parts = [record.load(path) for path in shards.values()]
    assert all(path.stat().st_size <= limit for path in shards.values()) or count == table.num_rows
    assert pa.concat_tables([part.unify_dictionaries() for part in parts]).to_pylist() == table.to_pylist()
    assert all(record.settings(part) == record.settings(table) for part in parts)
    assert (count == 1) == (share == 2) and (count == table.num_rows) == (share == -1), count


def test_a_record_larger_than_one_shard(run, size_between):
    limit = size_between(0.4)
    whole, cut = hub.plan(run, "alice"), hub.plan(run, "alice", shard_bytes=limit)
    shards = {path for path in cut.repos[1].files if path.startswith("tiny/")}
    assert len(shards) > 1 and all(hub.repo.size_of(cut.repos[1].files[path]) <= limit for path in shards)
    assert cut.repos[1].card == whole.repos[1].card  # its patterns find any number of shards


def test_tables_join_by_name_of_column():
    def table(owner, **columns):
        return pa.table({"checkpoint": pa.array([owner], pa.string()), **columns})

    joined = hub.tables.ordered("t", [table("b", n=[1], x=[0.5]), table(None, n=[7]), table("a", n=[2.5], y=["u"])])
    assert joined.to_pylist() == [
        {"checkpoint": "a", "n": 2.5, "x": None, "y": "u"},
        {"checkpoint": "b", "n": 1.0, "x": 0.5, "y": None},
        {"checkpoint": None, "n": 7.0, "x": None, "y": None},
    ]
    with pytest.raises(hub.HubError, match="the table 't' that is there holds a column of another type.*delete it there"):
        hub.tables.ordered("t", [table("a", n=[1]), table("b", n=["one"])])


def test_rows_name_the_one_checkpoint_they_are_about():
    identities = {"o/a": {"dataset": "sst", "seed": 1}, "o/b": {"dataset": "sst", "seed": 2}}

    def owners(**columns):
        return hub.tables.with_checkpoint(pa.table(columns), identities).column("checkpoint").to_pylist()

    assert owners(dataset=["sst", "sst", "imdb"], seed=[2, 1, 1]) == ["o/b", "o/a", None]
    assert owners(dataset=["sst"]) == [None] and owners(value=[0.5]) == [None]
    assert owners(seed=pa.array(["1"]).dictionary_encode()) == ["o/a"]


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


@pytest.mark.parametrize("provenance", [None, {}, {"commit": "0" * 40}])
def test_a_run_of_unknown_code(run, provenance):
    note(run, provenance=provenance)
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
    edit_config(run, auto_map={"AutoConfig": hub.checks.auto_map_of("attention_classifier")["AutoConfig"]})
    with pytest.raises(hub.HubError, match="lacks the code"):
        hub.plan(run, "alice")
    edit_config(run, auto_map=hub.checks.auto_map_of("attention_classifier"))
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


def other_recipe(run):
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace("learning_rate: 0.01", "learning_rate: 0.02"))


def other_measurement(run):
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace("split: test", "split: validation"))


def other_run(run):
    state = json.loads((run / "run.json").read_text())
    note(run, best={**state["best"], "value": 0.123}, sizes={**state["sizes"], "train": 65})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_recipe, r"another recipe than the recipe.yaml beside it \(different: training.learning_rate\)"),
        (other_measurement, r"another recipe than the recipe.yaml beside it \(different: measure.split\)"),
        (other_run, r"in another run than the run.json beside it tells of \(different: sizes, best\)"),
    ],
)
def test_what_is_not_of_one_run(run, change, says):
    change(run)
    with pytest.raises(hub.HubError, match=f"record.parquet was measured .*{says}: measure the run again"):
        hub.plan(run, "alice")


def test_a_part_measured_apart_may_be_of_another_measurement(run):
    restated = record.load(run / "record.parquet")
    (made,) = record.settings(restated)
    made["recipe"]["measure"]["limit"] = 24
    record.save(record.with_settings(restated, [made]), run / "part.parquet")
    assert "tiny.part/test-00000-of-00001.parquet" in hub.plan(run, "alice").repos[1].files
    made["recipe"]["seed"] = 4
    record.save(record.with_settings(restated, [made]), run / "part.parquet")
    with pytest.raises(hub.HubError, match=r"part.parquet was measured by another recipe .*\(different: seed\)"):
        hub.plan(run, "alice")


def test_broken_weights(run):
    (run / "model" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(hub.HubError, match="model cannot be loaded"):
        hub.plan(run, "alice")


@pytest.mark.parametrize("path", ["run.json", "model/config.json", "report/tables/new.parquet"])
def test_a_run_that_changes_while_it_is_read(run, path, monkeypatch):
    real = hub.planning.write_shards

    def meanwhile(*arguments):
        shutil.copy(run / "recipe.yaml", run / path)
        return real(*arguments)

    monkeypatch.setattr(hub.planning, "write_shards", meanwhile)
    with pytest.raises(hub.HubError, match="changed while the run was pushed.*push it again"):
        hub.plan(run, "alice")


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


@pytest.mark.gate
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
    note(run, seconds=12345.0)
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
    ours = ["old.safetensors", "old.py", "figures/tiny-old.png", "figures/tiny-old.svg"]
    theirs = ["LICENSE", "figures/mine.png", "figures/mine.svg", "data/notes.json", ".eval_results/x.yaml"]
    owner.upload("model", "tiny", dict.fromkeys([*ours, *theirs], "x"))
    note(run, seconds=12345.0)
    assert owner.push(run) == 0
    held = owner.files("model", "tiny")
    assert set(theirs) < set(held) and not set(ours) & set(held)


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


def test_a_record_that_is_gone(run, owner):
    shutil.copy(run / "record.parquet", run / "validation.parquet")
    assert owner.push(run) == 0 and "tiny.validation/test-00000-of-00001.parquet" in owner.files("dataset", hub.RECORDS)
    (run / "validation.parquet").unlink()
    assert owner.push(run) == 0
    assert owner.all() == digests(hub.plan(run, owner.name))


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


# ------------------------------------------------------------------------------------------------ who may, and where


def test_without_a_token(run, owner):
    before = len(owner.server.requests)
    owner.push(run, token="")
    assert "no access token of the Hub: log in with `hf auth login`, or set HF_TOKEN" in owner.error()
    assert len(owner.server.requests) == before


def test_a_token_that_may_only_read(run, owner):
    owner.push(run, token=f"{owner.token}_read")
    assert "may only read" in owner.error() and f"{owner.token}_read" not in owner.output
    assert all(held is None for held in owner.all().values())


def test_a_token_that_nobody_knows(run, owner):
    owner.push(run, token="hf_unknown_to_all")
    assert "does not know the access token, or it has expired" in owner.error() and "hf_unknown" not in owner.output


def test_for_somebody_else(run, owner):
    owner.do("push", run, "--to", "bob")
    assert f"{owner.name} cannot write for bob: push to {owner.name}, or offer it with --create-pr" in owner.error()
    assert not [request for request in owner.requests() if request.method != "GET"]


def test_a_pull_request(run, owner, server, forks, tmp_path):
    """To repositories of somebody else that are there; offered once, however often it is pushed."""
    other = Owner(f"{owner.name}b", server, forks, tmp_path)
    assert owner.push(run) == 0
    held = owner.all()
    note(run, seconds=12345.0)
    assert other.do("push", run, "--to", owner.name, "--create-pr") == 0, other.output
    assert f"{owner.name}/tiny/discussions/1" in other.output and other.output.count("as it was") == 3
    assert owner.all() == held
    wanted = digests(hub.plan(run, owner.name))["model", "tiny"]
    assert owner.files("model", "tiny", "refs/pr/1") == wanted
    assert other.do("push", run, "--to", owner.name, "--create-pr") == 0
    assert "offered already" in other.output and "refs/pr/2" not in server.refs("model", f"{owner.name}/tiny")
    other.do("push", run, "--to", owner.name, "--create-pr", "--name", "absent")
    assert "may not write there" in other.error()


def test_a_branch(run, owner):
    assert owner.push(run) == 0
    held = owner.all()
    note(run, seconds=12345.0)
    assert owner.push(run, "--revision", "second") == 0, owner.output
    assert owner.all() == held
    assert owner.files("model", "tiny", "second") == digests(hub.plan(run, owner.name))["model", "tiny"]
    assert owner.output.count("/tree/second") == 4


def test_private(run, owner):
    assert owner.push(run, "--private") == 0
    for kind, name in REPOS:
        assert owner.server.storage.repo(kind, f"{owner.name}/{name}")["private"] is True


@pytest.mark.parametrize(("kind", "name"), REPOS[1:])
def test_private_where_it_is_public(run, owner, kind, name):
    owner.upload(kind, name, {})
    owner.push(run, "--private")
    assert f"{owner.name}/{name} is public already, so --private cannot keep" in owner.error()
    assert [held is None for held in owner.all().values()].count(False) == 1


FOREIGN = [
    ("model", "tiny", {"config.json": '{"model_type": "bert"}', "model.safetensors": "x"}, "model type 'bert'"),
    ("model", "tiny", {"config.json": "[1]"}, "config.json of .* is not what a push of ours wrote"),
    ("model", "tiny", {"weights.bin": "x"}, "holds files that no push of ours wrote .weights.bin"),
    ("dataset", hub.RECORDS, {"data/train.csv": "a,b"}, "holds files that no push of ours wrote"),
    ("dataset", hub.RECORDS, {"cells.json": "{", "a/b": "x"}, "cells.json of .* is not what a push of ours wrote"),
    ("dataset", hub.RESULTS, {"data/train.csv": "a,b"}, "holds files that no push of ours wrote"),
    ("model", "tiny", {".gitignore": "*.json"}, "holds a .gitignore, by which files would be left out unsaid"),
    ("space", "attention_faithfulness", {"other.py": "x"}, "holds files that no push of ours wrote"),
]


@pytest.mark.parametrize(("kind", "name", "files", "says"), FOREIGN)
def test_a_repository_that_is_somebodys_own_work(run, owner, kind, name, files, says):
    owner.upload(kind, name, files, **({"space_sdk": "gradio"} if kind == "space" else {}))
    held = owner.files(kind, name)
    owner.push(run)
    assert re.search(says, owner.error())
    assert owner.files(kind, name) == held


def test_a_repository_that_is_empty_but_for_a_card(run, owner):
    owner.upload("model", "tiny", {"README.md": "# soon"})
    assert owner.push(run) == 0
    assert owner.all() == digests(hub.plan(run, owner.name))


# ------------------------------------------------------------------------------------------------ faults

AGAIN = "push again: what is there is kept, what is missing is sent"
COMMIT = "POST /api/models/.*/commit"
# request, fault, what the user reads, whether that push ends well
FAULTS = {
    "busy": (COMMIT, {"status": 429, "retry_after": 2}, r"asks to wait 2 s: too many requests.*; trying again in 2 s", True),
    "busy for long": (
        COMMIT,
        {"status": 429, "retry_after": 900},
        rf"error: .*/tiny: the Hub asks to wait 900 s.*{AGAIN}",
        False,
    ),
    "500": (COMMIT, {"status": 500}, r"/tiny: the Hub fails \(500\); .*; trying again in 1 s", True),
    "503": ("GET /api/whoami", {"status": 503}, r"the Hub: the Hub fails \(503\); .*; trying again in 1 s", True),
    "500 for good": (COMMIT, {"status": 500, "times": 99}, rf"error: .*/tiny: the Hub fails \(500\); later, {AGAIN}", False),
    "no answer of its own": ("validate-yaml", {"status": 502}, r"the Hub fails", True),
    "cut in a file": (r"PUT /lfs/", {"cut_after_bytes": 500}, r"", True),
    "cut in the commit": (COMMIT, {"cut_after_bytes": 500}, r"no connection to .*; trying again in 1 s", True),
    "cut for good": (
        COMMIT,
        {"cut_after_bytes": 9, "times": 99},
        rf"error: .*no connection to http.*or it was lost .*{AGAIN}",
        False,
    ),
    "wrong hash": (r"PUT /lfs/", {"wrong_hash": True}, rf"error: .*refuses what was sent.*{AGAIN}", False),
    "slow": (COMMIT, {"delay": 2}, r"", True),
    "expired": (COMMIT, {"expired": True}, r"error: .*does not know the access token, or it has expired: log in", False),
    "conflict": (COMMIT, {"conflict": True}, r"somebody else changed it at the same moment; .*; trying again", True),
    "conflict for good": (COMMIT, {"conflict": True, "times": 99}, r"error: .*somebody else changed it at the same", False),
    "answer lost": (COMMIT, {"answer_lost": True}, r"no connection to .*; trying again in 1 s", True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(run, owner, name):
    """Afterwards each repository is as it was or complete, and the same command completes what is not."""
    match, fault, says, whole = FAULTS[name]
    expected = digests(hub.plan(run, owner.name))
    match = match if "/api/" not in match else match.replace(".*/", f"{owner.name}/[^/]*/", 1)
    owner.server.fault(match, **fault)
    code = owner.push(run)
    assert re.search(says, owner.output), owner.output
    assert (code == 0) == whole, owner.output
    if not whole:
        owner.error()
    for repo, held in owner.all().items():
        assert held in (None, {}, expected[repo]), repo
        assert not whole or held == expected[repo]
    owner.server.faults.clear()
    assert owner.push(run) == 0, owner.output
    assert owner.all() == expected
    assert all(owner.commits(*repo) == 2 for repo in REPOS)


def test_faults_of_what_is_read(run, owner):
    """A table that arrives with another content than the Hub says is never joined."""
    assert owner.push(run, "--name", "one") == 0
    held = owner.files("dataset", hub.RESULTS)
    owner.server.fault("GET /datasets/.*/resolve/.*parquet", wrong_hash=True, times=99)
    owner.push(run, "--name", "two")
    assert "came with another content than the Hub says it has; push again" in owner.error()
    assert owner.files("dataset", hub.RESULTS) == held
    owner.server.faults.clear()
    assert owner.push(run, "--name", "two") == 0


def test_somebody_elses_commit_at_the_same_moment(run, owner):
    """It is not lost: what is sent is joined with it, and sent again."""
    assert owner.push(run, "--name", "one") == 0
    repo_id, storage = f"{owner.name}/{hub.RECORDS}", owner.server.storage
    owner.server.fault(f"POST /api/datasets/{repo_id}/commit", delay=3)
    with owner.running("push", run, "--to", owner.name, "--name", "two"):
        limit = time.monotonic() + 120
        while not any(fault.times == 0 for fault in owner.server.faults) and time.monotonic() < limit:
            time.sleep(0.01)
        with owner.server.lock:  # as another push of a third run would
            repo, last = storage.repo("dataset", repo_id), owner.server.history("dataset", repo_id)[-1]
            cells = json.loads(owner.server.read("dataset", repo_id, "cells.json"))
            cells["three"] = {**cells["one"], "model": f"{owner.name}/three"}
            files = storage.read_commit(last.id)["files"] | {"cells.json": storage.entry(json.dumps(cells).encode())}
            storage.commit(repo, "refs/heads/main", last.id, owner.name, "Another", "", files)
            storage.save("dataset", repo_id, repo)
    assert owner.code == 0 and "somebody else changed it at the same moment" in owner.output, owner.output
    assert set(json.loads(owner.server.read("dataset", repo_id, "cells.json"))) == {"one", "two", "three"}
    assert [commit.title for commit in owner.server.history("dataset", repo_id)][-2:] == [
        "Another",
        f"Records of {owner.name}/two",
    ]


def test_no_network(run, tmp_path, warm_python):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_kept_secret", "HF_HOME": str(tmp_path)}
    script = "import sys; from attnfaith.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [warm_python, "-c", SHORT_WAITS + script, "push", str(run), "--to", "alice"]
    for more, says in (({}, "no connection to http://127.0.0.1:9"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set")):
        done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, check=False)
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert says in line and done.returncode == 2 and "Traceback" not in done.stderr
        assert "hf_kept_secret" not in done.stdout + done.stderr


def test_a_file_that_changes_while_it_is_pushed(run, owner):
    """What was not sent yet is not sent; what was, is of the run as it was read."""
    expected = digests(hub.plan(run, owner.name))
    owner.server.fault(f"GET /api/models/{owner.name}/tiny", delay=0.01, times=1)  # asked first, before anything is sent
    owner.server.fault(f"GET /api/datasets/{owner.name}/{hub.RESULTS}/tree", delay=3)
    with owner.running("push", run, "--to", owner.name):
        limit = time.monotonic() + 120
        while not owner.files("dataset", hub.RECORDS) and time.monotonic() < limit:
            time.sleep(0.02)
        (run / "model" / "model.safetensors").write_bytes(b"another model")
    assert "model.safetensors changed while the run was pushed" in owner.error()
    held = owner.all()
    assert held[REPOS[1]] == expected[REPOS[1]] and not held[REPOS[2]] and not held[REPOS[3]]


# ------------------------------------------------------------------------------------------------ train --push_to_hub


def test_train_and_push(owner, tmp_path, small_recipe):
    (tmp_path / "small.yaml").write_text(small_recipe("small", "trained"))
    assert owner.do("train", "--config", "small.yaml", "--push_to_hub", "--hub_private_repo", clean=True) == 0, owner.output
    assert owner.files("model", "small") == digests(hub.plan(tmp_path / "trained", owner.name))["model", "small"]
    assert owner.server.storage.repo("model", f"{owner.name}/small")["private"] is True
    named = ["--resume_from_checkpoint", "--push_to_hub", "--hub_model_id", f"{owner.name}/other", "--hub_revision", "dev"]
    assert owner.do("train", "--config", "small.yaml", *named) == 0, owner.output
    assert owner.files("model", "other", "dev") and not owner.files("model", "other")


def test_train_looks_before_it_trains(owner, tmp_path, small_recipe):
    (tmp_path / "small.yaml").write_text(small_recipe("small", "trained"))
    arguments = ["train", "--config", "small.yaml", "--push_to_hub"]
    for more, how, says in (
        ([], {"token": ""}, "no access token"),
        ([], {"token": f"{owner.token}_read"}, "may only read"),
        (["--hub_model_id", "bob/x"], {}, "cannot write for bob"),
        (["--hub_model_id", "a--b"], {}, "is no name of a repository"),
    ):
        owner.do(*arguments, *more, clean=True, **how)
        assert says in owner.error()
    assert not (tmp_path / "trained").exists()
    # a Hub that fails when all is done: the run is whole, and the user is told how to push it
    owner.server.fault(f"POST /api/models/{owner.name}/small/commit", expired=True)
    owner.do(*arguments, clean=True)
    assert f"the run itself is whole, `attnfaith push trained --to {owner.name} --name small` pushes it" in owner.error()
    assert owner.push("trained") == 0
    assert owner.files("model", "small")


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


@pytest.mark.parametrize("blocked", [("attnfaith",), ()], ids=["without the package", "with it"])
@pytest.mark.gate
def test_round_trip(run, owner, tmp_path, blocked, warm_python):
    """What a stranger loads is what was measured: weights, attention, records, tables, metric."""
    assert owner.push(run) == 0, owner.output
    (tmp_path / "elsewhere").mkdir()
    environment = owner.server.environment(tmp_path / "home", token=None)
    environment.pop("PYTHONPATH", None)
    if not blocked:
        environment["PYTHONPATH"] = str(ROOT / "src")
    published = (ROOT / "docs" / "how_to" / "publish.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\{.python notest\}\n(.*?)^```", published, re.M | re.S)
    shown = shown.replace("OWNER", owner.name).replace("sst-bilstm-additive-sparsemax", "tiny")
    script = STRANGER.replace("BLOCKED", repr(blocked)).replace("OWNER", repr(owner.name)).replace("# README", shown)
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
    noted = json.loads((run / "run.json").read_text())["attention_faithfulness"]["gradient"]["kendall_tau"]
    assert found["tau"] == pytest.approx(noted, abs=1e-6)
