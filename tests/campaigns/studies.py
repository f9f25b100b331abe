"""A study of two cells in a process of its own, with engine and cells that start warm."""

import functools
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.commands import Command, Ended, Place, contents, start
from tests.campaigns.scenarios import OLD, RECIPE, Stage, stage, until_the_end
from tests.warm_python import start as start_warm


STUDY = """
output_dir: runs
results: results
tables: [performance]
blocks: [{recipe: tiny.yaml, name: tiny, grid: {seed: [1, 2]}}]
"""
MODULES = ("attnfaith.cli.train", "attnfaith.runs.execute", "snakemake.cli", "tests.known_digests", "tests.campaigns.still")
# of the engine and of cells: what says when and by which process
VARIES = (".study/.snakemake", ".study/engine.log", ".study/plan.json")


@dataclass(frozen=True)
class Studies:
    """python: the executable of engine and cells."""

    made: Stage
    python: str

    def undisturbed(self) -> tuple[Mapping[str, str], float]:
        """What a study leaves, and the seconds that it takes."""
        return tuple(self.made.once("study", self._undisturbed))

    def _undisturbed(self) -> list:
        place, started = place_of(self.made.root / "study"), time.monotonic()
        ended = self.begin(place).end()
        assert ended.code == 0, ended.output[-2000:]
        return [results(place), time.monotonic() - started]

    def begin(self, place: Place, **how) -> Command:
        return _begin(self.python, place, **how)


@functools.cache
def studies() -> Studies:
    """Start what engine and cells are forked from; once for all campaigns of this process."""
    made = stage()
    # what the engine starts finds the packages where this process does
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return Studies(made, until_the_end(start_warm(sys.executable, MODULES)))


def place_of(folder: Path) -> Place:
    place = Place(folder / "place").make()
    (place.here / OLD).write_text(RECIPE.format(seed=3))
    (place.here / "study.yaml").write_text(STUDY)
    return place


def _begin(python: str, place: Place, **how) -> Command:
    def study() -> None:
        from attnfaith import cli
        from attnfaith.study import plan

        sys.executable = python
        plan.TRAIN = (python, *plan.TRAIN[1:])
        sys.exit(cli.main(["study", "study.yaml", "--cores", "1"]))

    return start(study, place, **how)


def results(place: Place) -> dict[str, str]:
    """Contents of the folder, without what says when and how it was made."""
    made = contents(place.here)
    for path in made:
        if path.endswith((".log", "outcome.json", "done", ".holder", "made.json")):
            made[path] = "there"
    return {path: sha for path, sha in made.items() if not any(path.startswith(f"runs/{varies}") for varies in VARIES)}


def still_at_work(place: Place, seconds: float = 20) -> list[str]:
    """Commands of processes that work in the place and do not end in so many seconds."""
    limit = time.monotonic() + seconds
    while (at_work := _at_work(place)) and time.monotonic() < limit:
        time.sleep(0.1)
    return at_work


def _at_work(place: Place) -> list[str]:
    commands = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and Path(os.readlink(folder / "cwd")).is_relative_to(place.root):
                commands.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
        except OSError:
            continue
    return commands


def in_use(ended: Ended) -> bool:
    """Whether it says that a study is at work there."""
    return ended.code == 2 and "is in use by a study, process " in ended.error
