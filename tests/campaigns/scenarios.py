"""Commands on the smallest of runs: what lies there before, what goes on with them, and what has to lie there afterwards."""

import atexit
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from attnfaith.files import write_atomically
from tests.campaigns.commands import Ended, Place, contents, hub, run, warm


RECIPE = """
name: tiny
output_dir: run
seed: {seed}
data: {{arguments: {{length: [4, 8], vocabulary_size: 40, sizes: {{train: 24, validation: 8, test: 8}}}}}}
model: {{encoder: average, embedding_size: 8, hidden_size: 8}}
training: {{num_train_epochs: 2, learning_rate: 1e-2, arguments: {{disable_tqdm: true}}}}
measure: {{producers: [gradient]}}
report: {{examples: 1}}
"""
OLD, NEW = "tiny.yaml", "other.yaml"
TRAIN = ("train", "--config", OLD)
RESUME = "--resume_from_checkpoint"
ELSEWHERE = ("measure", "run", "--producers", "gradient", "leave_one_out", "--output", "new.parquet")
IN_PLACE = ("measure", "run", "--producers", "gradient", "leave_one_out", "--overwrite")
OVERWRITE = ("train", "--config", NEW, "--overwrite_output_dir")
REPRODUCE = ("reproduce", "run", "--output", "again")
OWNERS, MOST_OWNERS = ("killed", "full", "two"), 60  # of repositories; each attempt has one of its own
REPOS = (
    ("space", "attention_faithfulness"),
    ("dataset", "attnfaith-records"),
    ("dataset", "attnfaith-results"),
    ("model", "tiny"),
)


@dataclass(frozen=True)
class Scenario:
    """words: the command. begun: whether a finished run lies there. again: what goes on with it, given the place; the same
    command unless given. whole: a folder of which all or nothing is old, all or nothing new, at any moment. done: what the
    same command says where nothing is left to do.
    """

    name: str
    words: Sequence[str]
    begun: bool = True
    again: Callable[[Place], Sequence[str]] | None = None
    whole: str = ""
    done: str = ""

    def is_done(self, again: Ended, now: Mapping[str, str], reference: "Reference") -> bool:
        """Whether the same command refuses because what it would make is there, whole: the kill came at its very end."""
        return self.done in again.error and bool(self.done) and now == reference.after

    def words_again(self, place: Place) -> Sequence[str]:
        return self.again(place) if self.again else self.words


def _overwrite_again(place: Place) -> Sequence[str]:
    """The new run goes on where it has begun."""
    written = place.here / "run" / "recipe.yaml"
    begun = written.is_file() and "\nseed: 4\n" in written.read_text()
    return ("train", "--config", NEW, RESUME) if begun else OVERWRITE


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("train", TRAIN, begun=False, again=lambda place: (*TRAIN, RESUME)),
        Scenario("measure", ELSEWHERE, done="is there already"),
        Scenario("measure in place", IN_PLACE),
        Scenario("report", ("report", "run", "--examples", "2"), whole="run/report"),
        Scenario("overwrite", OVERWRITE, again=_overwrite_again, whole="run"),
        Scenario("reproduce", REPRODUCE),
        Scenario("push", ("push", "run", "--to", "{owner}")),
    )
}


@dataclass(frozen=True)
class Reference:
    """What a command comes to that nothing disturbs: the files before and after, its file events, its seconds."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    events: Sequence[str]
    seconds: float


@dataclass
class Stage:
    """What all attempts of a campaign share: a finished run, and what each command comes to."""

    root: Path

    @property
    def hub(self) -> Path:
        """Where the Hub keeps its data."""
        return self.root / "hub"

    def place(self, folder: Path, scenario: Scenario) -> Place:
        """A place in a folder, with what the command finds there."""
        place = Place(folder / "place").make()
        for name, seed in ((OLD, 3), (NEW, 4)):
            (place.here / name).write_text(RECIPE.format(seed=seed))
        if scenario.begun:
            shutil.copytree(self.root / "run", place.here / "run")
        return place

    def once(self, name: str, make: Callable[[], object]) -> object:
        """What a function returns, as JSON has it, of the first attempt that asks for it by this name."""
        path = self.root / f"{name}.json"
        with FileLock(f"{path}.lock"):
            if not path.is_file():
                write_atomically(path, json.dumps(make()))
        return json.loads(path.read_text())

    def reference(self, scenario: Scenario) -> Reference:
        return Reference(**self.once(f"reference-{scenario.name}", lambda: asdict(self._reference(scenario))))

    def _reference(self, scenario: Scenario) -> Reference:
        folder = self.root / f"reference-{scenario.name}"
        place = self.place(folder, scenario)
        before, trace = contents(place.here), folder / "events.json"
        words, environment = filled(scenario.words, "whole")
        ended = run(words, place, trace=trace, environment=environment)
        assert ended.code == 0, f"{scenario.name} fails undisturbed: {ended.output[-2000:]}"
        after = contents(place.here)
        assert not contents(place.temporary), f"{scenario.name} leaves {[*contents(place.temporary)][:3]} undisturbed"
        return Reference(before, after, json.loads(trace.read_text()), ended.seconds)


def filled(words: Sequence[str], owner: str) -> tuple[list[str], dict[str, str]]:
    """The words of a command of an owner, and what its process sees."""
    return [word.format(owner=owner) for word in words], {"HF_TOKEN": f"hf_{owner}_kept_secret"}


@functools.cache
def stage() -> Stage:
    """Import all, make the finished run and start the Hub; once for all campaigns of this process, until its end."""
    folder = Path(until_the_end(tempfile.TemporaryDirectory(prefix="campaign-")))
    made, train = Stage(folder), Scenario("train", TRAIN, begun=False)
    place, previous = made.place(folder / "first", train), Path.cwd()
    try:
        os.chdir(place.here)
        words = (TRAIN, ELSEWHERE, IN_PLACE, ("push", "run", "--to", "me", "--dry-run"), REPRODUCE)
        warm(functools.partial(_in_order, place.here, words))
    finally:
        os.chdir(previous)
    shutil.rmtree(place.root)
    place = made.place(folder / "first", train)
    ended = run(TRAIN, place)
    assert ended.code == 0, ended.output[-2000:]
    shutil.copytree(place.here / "run", folder / "run")
    until_the_end(hub(made.hub, ["whole", *(f"{letter}{number}" for letter in OWNERS for number in range(MOST_OWNERS))]))
    return made


def until_the_end(context: AbstractContextManager):
    """Enter it; it is left when this process ends, not where a fork does."""
    own, entered = os.getpid(), context.__enter__()
    atexit.register(lambda: context.__exit__(None, None, None) if os.getpid() == own else None)
    return entered


def _in_order(here: Path, commands: Sequence[Sequence[str]]) -> None:
    from attnfaith import cli

    os.chdir(here)
    for words in commands:
        assert cli.main([*words]) == 0, words


# ------------------------------------------------------------------------------------------------ the Hub


def held(root: Path, owner: str, *more: tuple[str, str]) -> dict[tuple[str, str], dict[str, str] | None]:
    """{path: SHA-256} of what each repository of an owner holds, without what the Hub itself puts there; None of one that is
    not there. more: (kind, name) of others. Read as the head of tests/hub_server.py says that it lies there.
    """
    made = {}
    for kind, name in (*REPOS, *more):
        log = commits(root, owner, kind, name)
        files = log[0]["files"] if log else {}
        made[kind, name] = {path: one["sha256"] for path, one in files.items() if path != ".gitattributes"} if log else None
    return made


def commits(root: Path, owner: str, kind: str, name: str) -> list[dict]:
    """All commits of a repository, the newest first; [] where there is none."""
    path = root / "repos" / kind / owner / f"{name}.json"
    if not path.is_file():
        return []
    log, commit = [], json.loads(path.read_text())["refs"]["refs/heads/main"]
    while commit:
        log.append(json.loads((root / "commits" / f"{commit}.json").read_text()))
        commit = log[-1]["parent"]
    return log


def expected(place: Place, owner: str, output: Path) -> dict[tuple[str, str], dict[str, str]]:
    """What the plan of the run says that the repositories are to hold."""

    def digest() -> None:
        from attnfaith import hub

        plan = hub.plan("run", owner)
        made = [
            [repo.kind, repo.repo_id.split("/")[1], path, hashlib.sha256(hub.repo.bytes_of(content)).hexdigest()]
            for repo in plan.repos
            for path, content in repo.files.items()
        ]
        output.write_text(json.dumps(made))

    ended = run(digest, place)
    assert ended.code == 0, ended.output[-2000:]
    repos: dict[tuple[str, str], dict[str, str]] = {}
    for kind, name, path, sha256 in json.loads(output.read_text()):
        repos.setdefault((kind, name), {})[path] = sha256
    return repos


def said_in_one_line(ended: Ended) -> list[str]:
    """What is wrong with how a command says that it cannot: [] where it ends with 2, one line of error and no traceback."""
    lines = [line for line in ended.output.splitlines() if line.startswith("error: ")]
    wrong = []
    if ended.code != 2:
        wrong.append(f"exit code {ended.code}: {ended.output[-300:]}")
    elif len(lines) != 1:
        wrong.append(f"{len(lines)} lines of error: {ended.output[-300:]}")
    elif "Traceback" in ended.output:
        wrong.append(f"a traceback: {ended.output[-300:]}")
    return wrong
