"""The cells of a study run by Snakemake: on the cores of this machine, or by one of its executors on a cluster or a cloud.

Snakemake decides what runs when and where, and what cannot run because a cell before it failed. Here are the workflow that
it is given, which names the cells that are not complete, and what people see of it. Whether a cell is complete is asked of
its record (`plan.complete`), not of the age of files, so that a study may be stopped, killed, copied and mended by hand.

In the study's output_dir lie, beside the runs, .study/Snakefile, plan.json (the commands) and engine.log (all that Snakemake
says), and for each cell .study/cells/<cell>/outcome.json.
"""

import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attnfaith.errors import counted
from attnfaith.files import folder_lock, write_atomically
from attnfaith.recipes import Recipe
from attnfaith.reporting.analysis import StudyError
from attnfaith.study import status
from attnfaith.study.cell import OUTCOME, STOPS, end_with_parent, last_lines, note, read_outcome
from attnfaith.study.plan import Cell, kept


WORKFLOW = '''\
"""Made anew for each run of the study: the cells of plan.json that are not complete."""
import json
import sys

with open("plan.json", encoding="utf-8") as stream:
    plan = json.load(stream)


rule study:
    input: [f"cells/{name}/done" for name in plan["cells"]]


rule cell:
    input: lambda wildcards: [f"cells/{name}/done" for name in plan["cells"][wildcards.cell]["after"]]
    output: touch("cells/{cell}/done")
    threads: 1
    params: python=sys.executable
    shell: "{params.python:q} -m attnfaith.study.cell plan.json {wildcards.cell:q}"
'''
MISSING = "Snakemake, which runs a study, is not installed: pip install 'attnfaith[study]'"
NO_GROUPS = (
    "a study ends its cells by a signal to all their processes, which this system (Windows) does not have: run it on Linux "
    "or macOS, or in the Windows Subsystem for Linux, or train its recipes one by one with attnfaith train"
)
PATIENCE = {"SIGINT": 30, "SIGTERM": 5, "SIGKILL": 10}
"""Signals that end the engine and its cells, and the seconds after which the next is sent: a cluster's jobs are called back
in the first."""


def run_cells(
    study: Mapping,
    chosen: Sequence[Cell],
    wanted: Mapping[str, Recipe],
    *,
    cores: int | None = None,
    executor: str | None = None,
    options: Sequence[str] = (),
    remeasure: bool = False,
) -> dict[str, status.State]:
    """Run the cells that are not complete, and those after them that then are not; the states of all, by name.

    cores: cells at a time, None one per GPU, or per core; with an executor, jobs at a time, None all. executor: one of
    Snakemake's, None this machine. options: further ones of Snakemake's command line. remeasure: cells whose records other
    code measured are measured anew, with the models that they have.

    Ctrl-C, SIGTERM and SIGHUP end the cells and raise KeyboardInterrupt. Raises StudyError where the engine is not installed
    or ends without having run all that it could, and on Windows, and FileError where a study is at work in the folder.
    """
    if not hasattr(os, "killpg"):
        raise StudyError(NO_GROUPS)
    if importlib.util.find_spec("snakemake") is None:
        raise StudyError(MISSING)
    root = Path(study["output_dir"])
    control = root / status.CONTROL
    with folder_lock(control, "a study"), _caught_stops() as stops:
        pending = _pending(chosen, wanted, remeasure=remeasure)
        gpus = [] if executor else available_gpus()
        workers = cores or (len(pending) if executor else len(gpus) or available_cores())
        study_id = uuid.uuid4().hex
        _write_workflow(control, pending, gpus, workers, study_id, remeasure=remeasure)
        watch = _Watch(root, chosen, pending, workers, study_id)
        if not pending:
            return watch.states
        where = ["--executor", executor, "--jobs"] if executor else ["--cores"]
        try:
            code = _run_engine(control, [*where, str(workers), *options], stops, watch.tell)
        except KeyboardInterrupt:
            watch.tell(now=True)
            done = sum(state.status == "complete" for state in watch.states.values())
            again = "the same command goes on from here"
            print(f"stopped with {done} of {counted(len(chosen), 'cell')} complete; {again}", file=sys.stderr)
            raise
        watch.end()
        if code and (unstarted := [name for name, state in watch.states.items() if state.status == "waiting"]):
            log = control / "engine.log"
            raise StudyError(f"the engine ended before {unstarted} could start: {' '.join(last_lines(log)[-3:])} ({log})")
        return watch.states


def available_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls each GPU that may be used; asked without loading torch."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in given.split(",") if name.strip() and not name.startswith("-")]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    listed = subprocess.run([program, "-L"], capture_output=True, encoding="utf-8", check=False).stdout
    return [str(number) for number, line in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pending(chosen: Sequence[Cell], wanted: Mapping[str, Recipe], *, remeasure: bool) -> list[Cell]:
    """The cells to be run, and those after them, which may be complete: that can be told when what they need is there."""
    pending = {cell.name for cell in chosen if not kept(wanted[cell.name], remeasure=remeasure)}
    while more := {cell.name for cell in chosen if pending & set(cell.after)} - pending:
        pending |= more
    return [cell for cell in chosen if cell.name in pending]


def _write_workflow(
    control: Path, pending: Sequence[Cell], gpus: Sequence[str], workers: int, study_id: str, *, remeasure: bool
) -> None:
    """The plan and the workflow that runs it; what earlier runs noted of these cells goes."""
    names = {cell.name for cell in pending}
    again = ["--remeasure"] if remeasure else []
    cells = {
        cell.name: {
            "command": [*cell.command, *again],
            "after": [name for name in cell.after if name in names],
            "log": str(status.log_of(control.parent, cell.name)),
        }
        for cell in pending
    }
    plan = {"study": study_id, "folder": os.getcwd(), "gpus": list(gpus), "places": workers, "cells": cells}
    for name, file in itertools.product(names, (OUTCOME, "done")):
        (control / "cells" / name / file).unlink(missing_ok=True)
    write_atomically(control / "plan.json", json.dumps(plan, indent=1, ensure_ascii=False))
    write_atomically(control / "Snakefile", WORKFLOW)


def _run_engine(control: Path, how: Sequence[str], stops: Sequence[int], tell: Callable[[], None]) -> int:
    """Run Snakemake to its end and return its exit code; a stop ends it with all that it runs and raises KeyboardInterrupt.

    Its own lock outlives a kill and has to be removed by hand; the study's does not, so it goes without.
    """
    fixed = ["--snakefile", "Snakefile", "--nolock", "--keep-going", "--rerun-incomplete", "--nocolor"]
    with open(control / "engine.log", "wb") as log:
        engine = subprocess.Popen(
            [sys.executable, "-m", "snakemake", *fixed, *how],
            cwd=control,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt from the terminal reaches the study alone, which then ends all of it
            preexec_fn=end_with_parent,
        )
    try:
        while engine.poll() is None:
            tell()
            if stops:
                raise KeyboardInterrupt
            time.sleep(0.2)
    except BaseException:  # whatever ends the study ends its cells
        for name, patience in PATIENCE.items():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(engine.pid, getattr(signal, name))
            with contextlib.suppress(subprocess.TimeoutExpired):
                engine.wait(patience)
        raise
    return engine.returncode


@contextlib.contextmanager
def _caught_stops() -> Iterator[list[int]]:
    """The signals that came in the block and ask for an end.

    A signal only leaves word: raised at any moment, an interrupt could come between the start of the engine and its entry
    as what is to be ended.
    """
    stops: list[int] = []
    old = {number: signal.getsignal(number) for number in STOPS}
    try:
        for number, handler in old.items():
            if handler != signal.SIG_IGN:  # as nohup leaves it
                signal.signal(number, lambda given, _frame: stops.append(given))
        yield stops
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class _Watch:
    """The states of cells while they run, and a line on standard output for each that changes."""

    def __init__(self, root: Path, cells: Sequence[Cell], pending: Sequence[Cell], workers: int, study_id: str):
        self.root, self.pending, self.workers, self.study_id, self.looked = root, pending, workers, study_id, 0.0
        self.states = {cell.name: status.state_of(root, cell, ready=cell not in pending) for cell in cells}
        for name in (cell.name for cell in cells if cell not in pending):
            print(f"{name}: complete already")

    def tell(self, *, now: bool = False) -> None:
        """Look, once a second at most unless now, and print what has changed."""
        if time.monotonic() - self.looked < 1 and not now:
            return
        self.looked = time.monotonic()
        for cell in self.pending:
            before = self.states[cell.name]
            # a cell that a killed study left at work is waited for: how that ends is not how this study's ends
            own = read_outcome(status.place_of(self.root, cell.name)).get("study") == self.study_id
            if own and before.status in ("waiting", "running"):
                self.states[cell.name] = state = status.state_of(self.root, cell)
                if before.status == "waiting" and state.status in ("complete", "failed"):  # since it was looked at
                    print(f"{state.cell}: started", flush=True)
                if state.status != before.status:
                    self._say(state)

    def end(self) -> None:
        """What the engine's end says of cells that have none of their own: killed, or left waiting by a failure."""
        self.tell(now=True)
        for state in self.states.values():
            if state.status in ("stopped", "running"):
                state.status, state.reason = "failed", "killed or stopped from outside; the next call goes on with it"
                note(status.place_of(self.root, state.cell), status="failed", why=state.reason)
                self._say(state)
        status.mark_not_run(self.pending, self.states)
        for state in self.states.values():
            if state.status == "not run":
                self._say(state)

    def _say(self, state: status.State) -> None:
        said = {
            "running": "started",
            "complete": f"complete in {status.duration(state.seconds)}",
            "failed": f"FAILED: {state.reason}",
            "not run": f"not run: {state.reason}",
        }.get(state.status, state.status)
        so_far = "" if state.status == "running" else f"; {status.summary(self.states.values(), self.workers)}"
        print(f"{state.cell}: {said}{so_far}", flush=True)
