"""Disks that are full at some point of a command: one line of error, old files whole, and with room it comes to the same.

The folder of the command, its temporary folder and its caches lie on a file system of their own, in memory, that ends
before all that the command writes fits in. Where no file system may be mounted, in a process of its own or in one of a user
of its own, no file may be larger than a limit in place of that; the name of the part says which it was.
"""

import ctypes
import math
import os
import random
import resource
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaigns.attempt import Attempt, Outcome
from tests.campaigns.commands import broken, contents, differences, in_a_fork, run, start
from tests.campaigns.kills import half_pushed, mixed, not_pushed
from tests.campaigns.scenarios import SCENARIOS, Scenario, Stage, expected, filled, held, said_in_one_line, stage


SIZES, SMALL = 20, 1
ROOM = 256 * 2**20
PAGE = resource.getpagesize()
MEMORY, LIMIT = "tmpfs", "a limit of file sizes"
NEW_FILE_SYSTEMS, NEW_USER, PRIVATE, REMOUNT = 0x00020000, 0x10000000, 0x44000, 0x20


class MountError(Exception):
    """No file system may be mounted here."""


def mount(folder: Path, size: int, *, again: bool = False) -> None:
    """A file system of so many bytes at a folder, seen by this process and those that it forks, and gone with them. again:
    it is there, and gets another size.
    """
    system = ctypes.CDLL(None, use_errno=True)
    if not again:
        user, group = os.getuid(), os.getgid()
        if system.unshare(NEW_FILE_SYSTEMS) != 0:
            if system.unshare(NEW_FILE_SYSTEMS | NEW_USER) != 0:
                raise MountError(os.strerror(ctypes.get_errno()))
            try:
                Path("/proc/self/setgroups").write_text("deny")
                Path("/proc/self/uid_map").write_text(f"0 {user} 1")
                Path("/proc/self/gid_map").write_text(f"0 {group} 1")
            except OSError as error:
                raise MountError(str(error)) from error
        if system.mount(b"none", b"/", None, PRIVATE, None) != 0:
            raise MountError(os.strerror(ctypes.get_errno()))
    how = (REMOUNT if again else 0, f"size={size}".encode())
    if system.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", *how) != 0:
        raise MountError(os.strerror(ctypes.get_errno()))


def used(folder: Path) -> int:
    """Bytes of the file system of a folder that are taken."""
    state = os.statvfs(folder)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def attempts(full: bool, seed: int) -> Iterator[Attempt]:
    made = stage()
    kind = MEMORY if in_a_fork(partial(_may_mount, made.root), made.root) else LIMIT
    for name, scenario in SCENARIOS.items():
        chance = random.Random(f"{seed} {name}")
        count = SIZES if full else SMALL
        for number in range(count):
            share = (number + chance.random()) / count
            act = partial(_full, made, scenario, f"full{number}", kind, share)
            yield Attempt(f"{name} on {kind}/{number}, {share:.4f} of the room that it takes", act)


def _may_mount(root: Path) -> bool:
    (root / "mounted").mkdir()
    try:
        mount(root / "mounted", PAGE)
    except MountError:
        return False
    return True


def _room_taken(made: Stage, scenario: Scenario, kind: str) -> tuple[int, int]:
    """Bytes that are taken before the command, and at most while it works; with a limit those of its largest file."""
    if kind == LIMIT:
        place = made.root / f"reference-{scenario.name}" / "place"
        return 0, max(path.stat().st_size for path in place.rglob("*") if path.is_file())
    folder = made.root / f"room-{scenario.name}"
    (folder / "place").mkdir(parents=True)
    mount(folder / "place", ROOM)
    place = made.place(folder, scenario)
    least = most = used(place.root)
    words, environment = filled(scenario.words, "whole")
    command = start(words, place, environment=environment)
    while command.used() < math.inf:
        most = max(most, used(place.root))
        time.sleep(0.0005)
    assert command.end().code == 0
    return least, max(most, used(place.root))


def _full(made: Stage, scenario: Scenario, owner: str, kind: str, share: float, folder: Path) -> Outcome:
    reference = made.reference(scenario)
    least, most = made.once(f"room-{scenario.name}", lambda: in_a_fork(partial(_room_taken, made, scenario, kind), folder))
    size = least + int(share * (most - least))
    root = folder / "place"
    root.mkdir()
    if kind == MEMORY:
        mount(root, ROOM)
    place = made.place(folder, scenario)
    pushed = expected(place, owner, folder / "expected.json") if scenario.name == "push" else {}
    shutil.rmtree(place.home)
    place.make()
    words, environment = filled(scenario.words, owner)
    if kind == MEMORY:
        mount(root, math.ceil(max(size, used(root)) / PAGE) * PAGE, again=True)
    command = run(words, place, environment=environment, largest_file=size if kind == LIMIT else None)
    defects = []
    if command.code != 0:
        defects += said_in_one_line(command)
        defects += [f"after the error {one}" for one in broken(place.here)]
        defects += [one.replace("kill", "error") for one in mixed(contents(place.here), reference, scenario)]
        if left := contents(place.temporary):
            defects.append(f"after the error in the temporary folder stays {', '.join(left)[:200]}")
        if pushed:
            defects += half_pushed(held(made.hub, owner), pushed)
    if kind == MEMORY:
        mount(root, ROOM, again=True)
    if command.code != 0:
        again = run(filled(scenario.words_again(place), owner)[0], place, environment=environment)
        if again.code != 0 and not scenario.is_done(again, contents(place.here), reference):
            return Outcome(1, ("; ".join([*defects, f"with room it ends with {again.code}: {again.output[-300:]}"]),))
    if wrong := differences(contents(place.here), reference.after):
        defects.append(f"{'with room' if command.code else 'without an error'} it comes to something else: {wrong}")
    if left := contents(place.temporary):
        defects.append(f"in the temporary folder stays {', '.join(left)[:200]}")
    if pushed:
        defects += not_pushed(made.hub, owner, pushed)
    return Outcome(1, ("; ".join(dict.fromkeys(defects)),) if defects else ())
