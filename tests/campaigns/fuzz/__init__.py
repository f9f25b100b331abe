"""Hostile input at every door of the project: a result or one clear line, never a traceback, a hang or a warning."""

import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.campaigns.attempt import Attempt, Outcome
from tests.campaigns.fuzz.probe import Case, Defect, probe, smallest


SMALL = 12  # inputs for each door
MOST_SHOWN = 400  # bytes of a smallest input


def doors() -> dict[str, type]:
    """{name: what makes its inputs} of all that takes what others give."""
    from tests.campaigns.fuzz.asked import Measure, Space
    from tests.campaigns.fuzz.command_line import Arguments
    from tests.campaigns.fuzz.data_files import OwnFiles, Pairs, Published
    from tests.campaigns.fuzz.kept import Checkpoints, Records, Runs
    from tests.campaigns.fuzz.metric import Metric
    from tests.campaigns.fuzz.plans import Recipes, Studies

    kinds = (
        Recipes,
        Studies,
        Records,
        Runs,
        Checkpoints,
        OwnFiles,
        Published,
        Pairs,
        Metric,
        Space,
        Arguments,
        Measure,
    )
    return {kind.name: kind for kind in kinds}


def attempts(full: bool, seed: int) -> Iterable[Attempt]:
    """Batches of inputs, each of one door. Not full: a few inputs of each in one attempt."""
    if not full:
        yield Attempt("every door", partial(_some, seed=seed))
        return
    for name, kind in doors().items():
        for first in range(0, kind.inputs, kind.batch):
            yield Attempt(f"{name}/{first:05d}", partial(batch, kind, seed, first, min(kind.batch, kind.inputs - first)))


def _some(folder: Path, seed: int) -> Outcome:
    outcomes = [batch(kind, seed, 0, SMALL, folder / str(number)) for number, kind in enumerate(doors().values())]
    refused = sum(one.measured["refused"] for one in outcomes)
    said = tuple(said for one in outcomes for said in one.defects)
    return Outcome(sum(one.tried for one in outcomes), said, {"refused": refused})


def batch(kind: type, seed: int, first: int, count: int, folder: Path) -> Outcome:
    """Try so many inputs of a door from a number on. A defect is told once, with its first input and how many met it."""
    met: dict[str, list] = {}
    tried = refused = 0
    for index, case, place in cases(kind, seed, first, count, folder):
        end = probe(case.act, place)
        tried, refused = tried + 1, refused + end.refused
        if (defect := end.defect) is not None:
            if defect.kind not in met:
                met[defect.kind] = [0, _told(kind, seed, index, case, defect, place)]
            met[defect.kind][0] += 1
    return Outcome(tried, tuple(f"{said} ({number} inputs)" for number, said in met.values()), {"refused": refused})


def cases(kind: type, seed: int, first: int, count: int, folder: Path) -> Iterator[tuple[int, Case, Path]]:
    """(number, input, its folder) of the inputs of a door; each folder is gone when the next is made."""
    (seeds := folder / "seeds").mkdir(parents=True)
    door = kind(seeds)
    drawn = examples(kind.strategy, count, seed * 1_000_003 + first) if hasattr(kind, "strategy") else ()
    for index in range(first, first + (len(drawn) if drawn else count)):
        (place := folder / f"input{index}").mkdir()
        given = drawn[index - first] if drawn else Random(f"{seed} {kind.name} {index}")
        yield index, door.case(given, place), place
        shutil.rmtree(place)


def examples(strategy, count: int, seed: int) -> list:
    """So many values of a strategy of hypothesis, the same for the same seed."""
    import hypothesis

    values = []
    how = {"max_examples": count, "database": None, "deadline": None, "phases": [hypothesis.Phase.generate]}

    @hypothesis.seed(seed)
    @hypothesis.settings(**how, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategy)
    def gather(value):
        values.append(value)

    gather()
    return values[:count]


def _told(kind: type, seed: int, index: int, case: Case, defect: Defect, place: Path) -> str:
    said = f"{kind.name}: {defect.kind}: {defect.said}; seed {seed}, input {index}, {case.shown[:MOST_SHOWN]}"
    if content := smallest(case, defect.kind, place):
        said += f"; smallest {case.file.name}: {content[:MOST_SHOWN]!r}{'…' if len(content) > MOST_SHOWN else ''}"
    return said
