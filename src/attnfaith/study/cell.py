"""One cell of a study, as the workflow engine runs it: python -m attnfaith.study.cell PLAN NAME.

Runs the cell's command with its log beside its folder, one thread, a GPU of its own and nothing of a launcher's environment,
and notes in `OUTCOME` what it came to. A cell that an earlier study left at work, here or on another machine, is waited for,
never run twice. Exit code 0: the cell is complete.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from attnfaith.errors import FileError
from attnfaith.files import folder_lock, is_locked, write_atomically


# What a launcher tells the processes that it starts: to a run of its own it would be a lie.
LAUNCHER = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_", "ROLE_", "GROUP_", "KMP_", "PMI", "OMPI_", "MV2_")
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
OUTCOME = "outcome.json"
# Windows has no SIGHUP
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def main(plan_path: str, name: str) -> int:
    """Run the cell of a plan that `execute.run_cells` wrote; returns the exit code."""
    control = Path(plan_path).resolve().parent
    plan = json.loads(Path(plan_path).read_text(encoding="utf-8"))
    os.chdir(plan["folder"])
    place, given, stops = control / "cells" / name, plan["cells"][name], []
    for number in STOPS:  # the cell's own process gets the same signal, and this one says how it ended
        signal.signal(number, lambda given, _frame: stops.append(given))
    while is_locked(place) and not stops:
        time.sleep(1)
    with ExitStack() as held:
        held.enter_context(folder_lock(place, f"the cell {name}"))
        gpu = _own_gpu(held, control / "gpus", plan["gpus"], plan["places"])
        started = time.time()
        note(place, status="running", started=started, study=plan["study"])
        log = Path(given["log"])
        with open(log, "wb", buffering=0) as stream:
            code = subprocess.call(
                given["command"],
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment(gpu),
                preexec_fn=end_with_parent,
            )
        status = "complete" if code == 0 else "stopped" if stops else "failed"
        why = why_failed(log, code) if status == "failed" else ""
        note(place, status=status, seconds=round(time.time() - started, 1), why=why, study=plan["study"])
    return int(code != 0)


def end_with_parent() -> None:
    """In a new process: take interrupts, which a study in the background would pass on as ignored, and on Linux get one
    when the parent ends, however it ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def environment(gpu: str | None) -> dict[str, str]:
    """What a cell's process sees: one thread, its own GPU, and nothing of the launcher that started the study."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER) and key not in LAUNCHED}
    own |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return own if gpu is None else own | {"CUDA_VISIBLE_DEVICES": gpu}


def _own_gpu(held: ExitStack, folder: Path, gpus: Sequence[str], places: int) -> str | None:
    """The GPU of a free one of as many places as cells run at a time here, held until the cell ends; None without GPUs."""
    for place in cycle(range(places)) if gpus else ():
        try:
            held.enter_context(folder_lock(folder / str(place), "a cell"))
            return gpus[place % len(gpus)]
        except FileError:
            time.sleep(0.1)
    return None


def note(place: Path, **outcome) -> None:
    """Keep what a cell came to, in the study's own folder of it."""
    write_atomically(place / OUTCOME, json.dumps(outcome))


def read_outcome(place: Path) -> dict:
    """What `note` kept; {} where nothing that can be read lies there. A cell that no process holds any more is stopped."""
    try:
        outcome = json.loads((place / OUTCOME).read_text(encoding="utf-8"))
        running = outcome["status"] == "running"
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if running and not is_locked(place):
        return {**outcome, "status": "stopped"}
    return outcome | ({"seconds": time.time() - outcome["started"]} if running else {})


def last_lines(log: Path) -> list[str]:
    """The last lines of a log, a progress bar's too."""
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 8192))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def why_failed(log: Path, code: int) -> str:
    """The line of a log that says what went wrong."""
    lines = last_lines(log)
    # a progress bar that was not at its end stands before it on the line
    matches = [
        re.search(r"(?:^|\])(?:error: )(.+)|^((?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)\b.*)", line)
        for line in lines
    ]
    if errors := [match[1] or match[2] for match in matches if match]:
        return errors[-1]
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return lines[-1] if lines else f"exit code {code}, and its log is empty"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
