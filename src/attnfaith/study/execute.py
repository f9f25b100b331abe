"""The cells of a study run by Snakemake: on the cores of this machine, or by one of its executors on a cluster or a cloud.

Snakemake schedules the cells, retries on request, and skips cells whose dependencies failed.
A cell's record decides whether it is complete (`plan.complete`), not the age of files, so that a study may be stopped,
killed and copied. In the study's output_dir lie, beside the runs and their logs, .study/Snakefile and
plan.json (the commands): any other command of Snakemake, such as --summary, works in that folder.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnfaith.recipes import Recipe
from attnfaith.reporting.analysis import StudyError
from attnfaith.study.plan import Cell, complete, measured_by_this_version
from attnfaith.support.errors import counted
from attnfaith.support.files import folder_lock, write_atomically


CONTROL = ".study"
SNAKEFILE = '''\
"""Written for each run of the study: the cells of plan.json that are not complete."""
import json
import sys

with open("plan.json", encoding="utf-8") as stream:
    plan = json.load(stream)


rule study:
    input: [f"done/{name}" for name in plan["cells"]]


rule cell:
    input: lambda wildcards: [f"done/{name}" for name in plan["cells"][wildcards.cell]["after"]]
    output: touch("done/{cell}")
    log: "../{cell}.log"
    message: "{wildcards.cell}"
    params: python=sys.executable
    shell: "{params.python:q} -m attnfaith.study.cell {wildcards.cell:q} > {log:q} 2>&1"
'''
# Variables that a launcher sets for its processes; a cell is none of them.
LAUNCHER = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_", "ROLE_", "GROUP_", "KMP_", "PMI", "OMPI_", "MV2_")
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
# signals that end the engine and its cells, and the seconds until the next; in the first a cluster's jobs are cancelled
PATIENCE = {"SIGINT": 30, "SIGTERM": 5, "SIGKILL": 10}


def run_cells(
    study: Mapping,
    chosen: Sequence[Cell],
    wanted: Mapping[str, Recipe],
    *,
    cores: int | None = None,
    executor: str | None = None,
    options: Sequence[str] = (),
    remeasure: bool = False,
) -> None:
    """Run the cells that are not complete, and those after them that then are not.

    cores: cells at a time, None one per GPU, or per core; with an executor, jobs at a time, None all. executor: one of
    Snakemake's, None this machine. options: further ones of Snakemake's command line. remeasure: cells whose records another
    version measured are measured anew, with the models that they have.

    Ctrl-C, SIGTERM and SIGHUP end the cells and raise KeyboardInterrupt. Raises StudyError where Snakemake is not installed,
    and on Windows, and FileError where a study is at work in the folder.
    """
    if not hasattr(os, "killpg"):
        raise StudyError("studies need Linux, macOS or the Windows Subsystem for Linux; elsewhere use attnfaith train")
    if importlib.util.find_spec("snakemake") is None:
        raise StudyError("Snakemake, which runs a study, is not installed: pip install 'attnfaith[study]'")
    control = Path(study["output_dir"]) / CONTROL
    with folder_lock(control, "a study"):
        ready = {name for name, recipe in wanted.items() if complete(recipe)}
        stale = {cell.name for cell in chosen} - {n for n in ready if not remeasure or measured_by_this_version(wanted[n])}
        while more := {cell.name for cell in chosen if stale & set(cell.after)} - stale:
            stale |= more  # they depend on cells that run now
        pending = {cell.name: cell for cell in chosen if cell.name in stale}
        if len(pending) < len(chosen):
            print(f"{counted(len(chosen) - len(pending), 'cell')} complete already", flush=True)
        if not pending:
            return
        gpus = [] if executor else available_gpus()
        places = cores or (len(pending) if executor else len(gpus) or available_cores())
        plan = {
            name: {
                "command": [*cell.command, *(["--remeasure"] if remeasure else [])],
                "folder": wanted[name].output_dir,
                "after": [other for other in cell.after if other in pending],
            }
            for name, cell in pending.items()
        }
        for name in pending:
            (control / "done" / name).unlink(missing_ok=True)
            log_of(study, name).unlink(missing_ok=True)
        plan = {"folder": os.getcwd(), "gpus": gpus, "places": places, "cells": plan}
        write_atomically(control / "plan.json", json.dumps(plan, indent=1, ensure_ascii=False))
        write_atomically(control / "Snakefile", SNAKEFILE)
        # a lock of Snakemake outlives a kill and has to be removed by hand; the study's own does not
        fixed = ["--nolock", "--keep-going", "--rerun-incomplete", "--quiet", "host", "reason"]
        where = ["--executor", executor, "--jobs"] if executor else ["--cores"]
        run_engine([sys.executable, "-m", "snakemake", *fixed, *where, str(places), *options], control)


def log_of(study: Mapping, name: str) -> Path:
    """The log of a cell, beside its folder."""
    return Path(study["output_dir"]) / f"{name}.log"


def available_gpus() -> list[str]:
    """Return the names of the usable GPUs, as CUDA_VISIBLE_DEVICES takes them, without loading torch."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is not None:
        return [name for name in names.split(",") if name.strip() and not name.startswith("-")]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    listed = subprocess.run([program, "-L"], capture_output=True, encoding="utf-8", check=False).stdout
    return [str(number) for number, line in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_engine(command: Sequence[str], folder: Path) -> None:
    """Run Snakemake to its end; a signal that ends this process ends Snakemake and its cells."""
    stops = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP")]
    before = {number: signal.signal(number, signal.default_int_handler) for number in stops if _heard(number)}
    clean = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER) and key not in LAUNCHED}
    # in a session of its own, so that a signal reaches the cells too and nothing else
    how = {"stdin": subprocess.DEVNULL, "start_new_session": True, "preexec_fn": _end_with_parent}
    engine = subprocess.Popen(command, cwd=folder, env=clean | {"PYTHONUNBUFFERED": "1"}, **how)
    try:
        engine.wait()
    except BaseException:
        for name, patience in PATIENCE.items():
            try:
                os.killpg(engine.pid, getattr(signal, name))
                engine.wait(patience)
            except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                continue
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heard(number: int) -> bool:
    """Whether a signal is not ignored; nohup ignores SIGHUP."""
    return signal.getsignal(number) != signal.SIG_IGN


def _end_with_parent() -> None:
    """In a new process: accept interrupts, which a shell's background job ignores, and on Linux get one when the parent
    ends, however it ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
