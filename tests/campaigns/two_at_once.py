"""Two processes at once on one folder or repository: one does its work, the other says who is there, and nothing is mixed.

The first stands still, before a file event chosen at random or after a share of its processor time, while the second goes
from its beginning to its end; then the first goes on. So every order of the two can be made again.
"""

import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaigns.attempt import Attempt, Outcome
from tests.campaigns.commands import Ended, Place, broken, contents, differences, run, start
from tests.campaigns.scenarios import (
    NEW,
    OVERWRITE,
    SCENARIOS,
    TRAIN,
    Reference,
    Scenario,
    Stage,
    expected,
    filled,
    held,
    said_in_one_line,
    stage,
)
from tests.campaigns.studies import Studies, in_use, place_of, results, still_at_work, studies


MOMENTS, SMALL = 12, 1
OTHER_MEASUREMENT = ("measure", "run", "--producers", "gradient", "--limit", "5", "--overwrite")
INSTALL = Scenario("install-metric", ("install-metric",), begun=False)


@dataclass(frozen=True)
class Pair:
    """first and second: what two processes do in one place."""

    name: str
    first: Scenario
    second: Scenario


PAIRS = (
    Pair("train", SCENARIOS["train"], Scenario("train another", ("train", "--config", NEW), begun=False)),
    Pair("overwrite", SCENARIOS["overwrite"], Scenario("overwrite alike", (*TRAIN, OVERWRITE[-1]))),
    Pair("measure", SCENARIOS["measure in place"], Scenario("measure another", OTHER_MEASUREMENT)),
    Pair("report", SCENARIOS["report"], Scenario("report another", ("report", "run", "--examples", "3"))),
    Pair("reproduce", SCENARIOS["reproduce"], SCENARIOS["reproduce"]),
    Pair("install-metric", INSTALL, INSTALL),
)
PUSH = SCENARIOS["push"]


def attempts(full: bool, seed: int) -> Iterator[Attempt]:
    made = stage()
    count = MOMENTS if full else SMALL
    for pair in PAIRS:
        for number, moment in enumerate(_moments(f"{seed} {pair.name}", count)):
            yield Attempt(f"{pair.name}/{number}, {moment}", partial(_together, made, pair, moment))
    for number, moment in enumerate(_moments(f"{seed} push", count)):
        yield Attempt(f"push/{number}, {moment}", partial(_pushed_together, made, f"two{number}", moment))
    grid = studies()
    chance = random.Random(f"{seed} study")
    for number in range(MOMENTS // 2 if full else 1):
        share = chance.random()
        act = partial(_studied_together, grid, share)
        yield Attempt(f"study/{number}, the second at {share:.4f} of the time", act)


@dataclass(frozen=True)
class Moment:
    """Where the first stands still: at which share of its file events, or of its processor time."""

    share: float
    at_event: bool

    def __str__(self) -> str:
        return f"the second at {self.share:.4f} of the first's {'file events' if self.at_event else 'time'}"


def _moments(seed: str, count: int) -> Iterator[Moment]:
    chance = random.Random(seed)
    for number in range(count):
        yield Moment(chance.random(), at_event=number % 2 == 1)


def _one_within_the_other(
    first: Sequence[str],
    second: Sequence[str],
    place: Place,
    reference: Reference,
    environment: Mapping[str, str],
    moment: Moment,
) -> tuple[Ended, Ended]:
    """What both come to, the second begun and ended while the first stands still."""
    event = 1 + int(moment.share * len(reference.events)) if moment.at_event else None
    command = start(first, place, event=event, number=signal.SIGSTOP, environment=environment)
    if event is None:
        command.stop_after(moment.share * reference.seconds)
    stands = command.stands()
    inner = run(second, place, environment=environment)
    if stands:
        command.go_on()
    return command.end(), inner


def _together(made: Stage, pair: Pair, moment: Moment, folder: Path) -> Outcome:
    references = made.reference(pair.first), made.reference(pair.second)
    place = made.place(folder, pair.first)
    words = [filled(one.words, "whole") for one in (pair.first, pair.second)]
    ends = _one_within_the_other(words[0][0], words[1][0], place, references[0], words[0][1], moment)
    defects = _ends(ends) + broken(place.here)
    now = contents(place.here)
    wrong = [differences(now, reference.after) for reference in references]
    if all(wrong):
        defects.append(f"what lies there is of neither: {wrong[0]} / {wrong[1]}")
    for end, one in zip(ends, wrong, strict=True):
        if [end.code for end in ends].count(0) == 1 and end.code == 0 and one:
            defects.append(f"what lies there is not of the one that ended well: {one}")
    if left := contents(place.temporary):
        defects.append(f"in the temporary folder stays {', '.join(left)[:200]}")
    if pair.first is INSTALL:
        defects += _not_installed(place)
    return Outcome(1, ("; ".join(dict.fromkeys(defects)),) if defects else ())


def _ends(ends: Sequence[Ended]) -> list[str]:
    """What is wrong with how two processes ended: at least one does its work, another says in one line why it does not."""
    wrong = [one for end in ends if end.code for one in said_in_one_line(end)]
    if all(end.code for end in ends):
        wrong.append(f"neither does its work: {' / '.join(end.error for end in ends)}")
    return wrong


def _not_installed(place: Place) -> list[str]:
    """What differs of the installed metric from the package's."""
    from attnfaith.metrics.registration import METRIC_DIR

    installed = [*place.home.glob("modules/**/attention_faithfulness.py")]
    wrong = [] if len(installed) == 1 else [f"{len(installed)} metrics are installed"]
    for folder in (path.parent for path in installed):
        wrong += [
            f"the installed {path.name} is not whole"
            for path in folder.glob("[a-z]*.py")
            if path.read_bytes() != (METRIC_DIR / path.name).read_bytes()
        ]
    return wrong


def _studied_together(grid: Studies, share: float, folder: Path) -> Outcome:
    """A second study in the folder says that one is at work; begun too late it finds all there."""
    after, seconds = grid.undisturbed()
    place = place_of(folder)
    first = grid.begin(place)
    time.sleep(share * seconds)
    second = grid.begin(place).end()
    ended = first.end()
    defects = [] if ended.code == 0 or in_use(ended) else [f"the first ends with {ended.code}: {ended.output[-300:]}"]
    if not (second.code == 0 or in_use(second)):
        defects.append(f"the second ends with {second.code}: {second.output[-300:]}")
    if ended.code and second.code:
        defects.append("neither does its work")
    if wrong := differences(results(place), after):
        defects.append(f"together they come to something else: {wrong}")
    if at_work := still_at_work(place):
        defects.append(f"a process is still at work: {at_work}")
    return Outcome(1, ("; ".join(defects),) if defects else ())


def _pushed_together(made: Stage, owner: str, moment: Moment, folder: Path) -> Outcome:
    """Two pushes of one run under two names to one owner: both models, and both records in the data set that they share."""
    place = made.place(folder, PUSH)
    wanted = expected(place, owner, folder / "expected.json")
    first, environment = filled(PUSH.words, owner)
    ends = _one_within_the_other(first, [*first, "--name", "other"], place, made.reference(PUSH), environment, moment)
    defects = _ends(ends)
    now = held(made.hub, owner, ("model", "other"))
    for end, name in zip(ends, ("tiny", "other"), strict=True):
        model, records = now["model", name] or {}, now["dataset", "attnfaith-records"] or {}
        if end.code == 0 and not (model and f"{name}/test-00000-of-00001.parquet" in records):
            defects.append(f"the model or the record of {name} is not there, and its push ended well")
    if ends[0].code == 0 and now["model", "tiny"] != wanted["model", "tiny"]:
        defects.append("the model is not the run's")
    if left := contents(place.temporary):
        defects.append(f"in the temporary folder stays {', '.join(left)[:200]}")
    again = run(first, place, environment=environment)
    if again.code:
        defects.append(f"pushed again it ends with {again.code}: {again.error or again.output[-300:]}")
    return Outcome(1, ("; ".join(dict.fromkeys(defects)),) if defects else ())
