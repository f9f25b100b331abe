"""Processes killed at any moment: what they leave is whole, the same work begun again comes to the same, nothing stays.

Half of the moments are file events, chosen at random, before which the command ends by SIGKILL; the others come after a
random share of the processor time that the whole command takes, so that they hit what lies between two events too.
"""

import random
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.campaigns.attempt import Attempt, Outcome
from tests.campaigns.commands import broken, contents, differences, run, start
from tests.campaigns.scenarios import SCENARIOS, Reference, Scenario, Stage, commits, expected, filled, held, stage
from tests.campaigns.studies import Studies, place_of, results, still_at_work, studies


MOMENTS = {"train": 70, "measure": 30, "measure in place": 40, "report": 40, "overwrite": 50, "reproduce": 40, "push": 60}
STUDIES, SMALL = 24, 2  # SMALL of each


def attempts(full: bool, seed: int) -> Iterator[Attempt]:
    made = stage()
    for name, scenario in SCENARIOS.items():
        chance = random.Random(f"{seed} {name}")
        for number in range(MOMENTS[name] if full else SMALL):
            share, at_event = chance.random(), number % 2 == 0
            moment = f"at {share:.4f} of its {'file events' if at_event else 'time'}"
            act = partial(_killed, made, scenario, share, f"killed{number}", at_event=at_event)
            yield Attempt(f"{name}/{number}, {moment}", act)
    grid = studies()
    chance = random.Random(f"{seed} study")
    for number in range(STUDIES if full else 1):
        share = chance.random()
        yield Attempt(f"study/{number}, at {share:.4f} of its time", partial(_killed_study, grid, share))


def _killed(made: Stage, scenario: Scenario, share: float, owner: str, folder: Path, *, at_event: bool) -> Outcome:
    reference = made.reference(scenario)
    event = 1 + int(share * len(reference.events)) if at_event else None
    place = made.place(folder, scenario)
    words, environment = filled(scenario.words, owner)
    pushed = expected(place, owner, folder / "expected.json") if scenario.name == "push" else {}
    command = start(words, place, event=event, environment=environment)
    if event is None:
        command.kill_after(share * reference.seconds)
    ended = command.end()
    if ended.code not in (0, -9):
        return Outcome(1, (f"ended with {ended.code} before it was killed: {ended.output[-300:]}",))
    defects = [f"after the kill {one}" for one in broken(place.here)]
    defects += mixed(contents(place.here), reference, scenario)
    if pushed:
        defects += half_pushed(held(made.hub, owner), pushed)
    again = run(filled(scenario.words_again(place), owner)[0], place, environment=environment)
    if again.code != 0 and not scenario.is_done(again, contents(place.here), reference):
        return Outcome(1, (*defects, f"begun again it ends with {again.code}: {again.error or again.output[-300:]}"))
    if wrong := differences(contents(place.here), reference.after):
        defects.append(f"begun again it comes to something else: {wrong}")
    if left := contents(place.temporary):
        defects.append(f"in the temporary folder stays {', '.join(left)[:300]}")
    if pushed:
        defects += not_pushed(made.hub, owner, pushed)
    return Outcome(1, (_one(defects),) if defects else ())


def _killed_study(grid: Studies, share: float, folder: Path) -> Outcome:
    """The study's own process is killed; its engine and the cell at work are to end by themselves."""
    after, seconds = grid.undisturbed()
    place = place_of(folder)
    command = grid.begin(place)
    time.sleep(share * seconds)
    command.kill_after(0)
    ended = command.end()
    if ended.code not in (0, -9):
        return Outcome(1, (f"ended with {ended.code} before it was killed: {ended.output[-300:]}",))
    defects = [f"after the kill {one}" for one in broken(place.here)]
    again = grid.begin(place).end()
    if again.code:
        defects.append(f"begun again it ends with {again.code}: {again.error or again.output[-300:]}")
    elif wrong := differences(results(place), after):
        defects.append(f"begun again it comes to something else: {wrong}")
    if left := contents(place.temporary):
        defects.append(f"in the temporary folder stays {', '.join(left)[:300]}")
    if at_work := still_at_work(place):
        defects.append(f"a process is still at work: {at_work}")
    return Outcome(1, (_one(defects),) if defects else ())


def _one(defects: list[str]) -> str:
    """One kill is one defect at most, however much is wrong after it."""
    return "; ".join(dict.fromkeys(defects))


def mixed(now: Mapping[str, str], reference: Reference, scenario: Scenario) -> list[str]:
    """What of the old files is neither as it was nor as the whole command leaves it; a folder of old and new together."""
    state = {"run/run.json", "run/recipe.yaml"}
    wrong = []
    for path, digest in reference.before.items():
        inside = scenario.whole and path.startswith(f"{scenario.whole}/")
        if inside or path in state:
            continue
        if path not in now:
            wrong.append(f"after the kill {path} is gone")
        elif now[path] not in (digest, reference.after.get(path)):
            wrong.append(f"after the kill {path} is neither old nor new")
    if scenario.whole:
        old = {path: sha for path, sha in reference.before.items() if path.startswith(f"{scenario.whole}/")}
        differs = {path for path, sha in old.items() if now.get(path) != sha}
        same = {path for path, sha in old.items() if now.get(path) == sha and reference.after.get(path) != sha}
        if differs and same:
            wrong.append(f"after the kill {scenario.whole} is partly old ({sorted(same)[:3]}), not {sorted(differs)[:3]}")
    return wrong


def half_pushed(now: Mapping, pushed: Mapping) -> list[str]:
    """Repositories that hold neither nothing nor all."""
    return [f"{name} is half pushed" for (kind, name), files in now.items() if files not in (None, {}, pushed[kind, name])]


def not_pushed(root: Path, owner: str, pushed: Mapping) -> list[str]:
    wrong = [f"{name} does not hold the run" for (_, name), files in held(root, owner).items() if files != pushed[_, name]]
    for kind, name in pushed:
        if (count := len(commits(root, owner, kind, name))) != 2:  # the one that makes it, and ours
            wrong.append(f"{name} has {count} commits, not 2")
    return wrong
