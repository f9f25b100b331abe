"""The cells of a study run by Snakemake: on the cores of this machine, or by one of its executors on a cluster or a cloud.

A cell's record decides whether it is complete (`plan.complete`), not the age of files, so that a study may be stopped,
killed and copied. In the study's output_dir lie, beside the runs and their logs, .study/Snakefile and plan.json (the
commands): any other command of Snakemake, such as --summary, works in that folder.
"""

import contextlib
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
from attnfaith.study.plan import Cell, complete
from attnfaith.support.errors import counted
from attnfaith.support.files import folder_lock, write_atomically


CONTROL = ".study"
SNAKEFILE = Path(__file__).with_name("Snakefile")
# a lock of Snakemake outlives a kill and has to be removed by hand; the study's own does not
OPTIONS = ("--nolock", "--keep-going", "--rerun-incomplete", "--quiet", "host", "reason")
# signals that end the engine and its cells, and the seconds until the next; in the first a cluster's jobs are cancelled
PATIENCE = {signal.SIGINT: 30, signal.SIGTERM: 5, signal.SIGKILL: 10}


def run_cells(
    study: Mapping,
    chosen: Sequence[Cell],
    wanted: Mapping[str, Recipe],
    *,
    cores: int | None = None,
    executor: str | None = None,
    options: Sequence[str] = (),
) -> None:
    """Run the cells that are not complete, and those after them that then are not.

    cores: cells at a time, None one per GPU, or per core; with an executor, jobs at a time, None all. executor: one of
    Snakemake's, None this machine. options: further ones of Snakemake's command line.

    Ctrl-C, SIGTERM and SIGHUP end the cells and raise KeyboardInterrupt. Raises StudyError where Snakemake is not installed,
    and FileError where a study is at work in the folder.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise StudyError("Snakemake, which runs a study, is not installed: pip install 'attnfaith[study]'")
    control = Path(study["output_dir"]) / CONTROL
    with folder_lock(control, "a study"):
        stale = {cell.name for cell in chosen if not complete(wanted[cell.name])}
        while more := {cell.name for cell in chosen if stale & set(cell.after)} - stale:
            stale |= more  # they depend on cells that run now
        pending = [cell for cell in chosen if cell.name in stale]
        if len(pending) < len(chosen):
            print(f"{counted(len(chosen) - len(pending), 'cell')} complete already", flush=True)
        if not pending:
            return
        entries = {}
        for cell in pending:
            after = [name for name in cell.after if name in stale]
            entries[cell.name] = {"command": cell.command, "folder": str(cell.folder), "after": after}
            (control / "done" / cell.name).unlink(missing_ok=True)
            cell.log.unlink(missing_ok=True)
        gpus = [] if executor else available_gpus()
        places = cores or len(gpus)
        plan = {"folder": os.getcwd(), "gpus": gpus, "places": places, "cells": entries}
        write_atomically(control / "plan.json", json.dumps(plan, indent=1, ensure_ascii=False))
        write_atomically(control / "Snakefile", SNAKEFILE.read_bytes())
        where = ["--executor", executor, "--jobs", places or "unlimited"] if executor else ["--cores", places or "all"]
        run_engine([sys.executable, "-m", "snakemake", *OPTIONS, *map(str, where), *options], control)


def available_gpus() -> list[str]:
    """Return the names of the usable GPUs, as CUDA_VISIBLE_DEVICES takes them, without loading torch."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is not None:
        return [name for name in names.split(",") if name.strip() and not name.startswith("-")]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    lines = subprocess.run([program, "-L"], capture_output=True, encoding="utf-8", check=False).stdout.splitlines()
    return [str(number) for number in range(sum(line.startswith("GPU ") for line in lines))]


def run_engine(command: Sequence[str], folder: Path) -> None:
    """Run Snakemake to its end; a signal that ends this process ends Snakemake and its cells."""
    stops = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in stops}  # nohup ignores SIGHUP
    # in a session of its own, so that a signal reaches the cells too and nothing else
    how = {"stdin": subprocess.DEVNULL, "start_new_session": True, "preexec_fn": _end_with_parent}
    engine = subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **how)
    try:
        engine.wait()
    except BaseException:
        for number, patience in PATIENCE.items():
            with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                os.killpg(engine.pid, number)
                engine.wait(patience)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with_parent() -> None:
    """In a new process: accept interrupts, which a shell's background job ignores, and on Linux get one when the parent
    ends, however it ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
