"""A study carried out: its cells run by Snakemake, here or by an executor of a cluster or a cloud, then the tables.

A cell's record decides whether it is complete (`plan.complete`), not the age of files, so that a study may be stopped,
killed and copied. In the study's output_dir lie, beside the runs and their logs, .study/Snakefile and plan.json (the
commands): any other command of Snakemake, such as --summary, works in that folder.
"""

import contextlib
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnfaith import recipes
from attnfaith.reporting.analysis import StudyError, analyse, check_names
from attnfaith.study.plan import Cell, Study, cells, check_distinct, choose, complete
from attnfaith.study.results import cells_table, write_results
from attnfaith.support.errors import counted
from attnfaith.support.files import folder_lock, is_locked, write_atomically


CONTROL = ".study"
# a lock of Snakemake outlives a kill and has to be removed by hand; the study's own does not
OPTIONS = ("--nolock", "--keep-going", "--rerun-incomplete", "--quiet", "host", "reason")


def prepare(study: Study) -> list[Cell]:
    """Return the cells of a study. Raises RecipeError or StudyError for cells that could not be run or tabulated."""
    check_names(study.tables)
    analyse(vars(study))
    planned = cells(study)
    check_distinct({cell.name: cell.whole_recipe for cell in planned})
    return planned


def carry_out(study: Study, *, run: bool = True, only: str | None = None, mix_versions: bool = False, **how) -> None:
    """Run the cells of a study that are not complete, unless run is false, and make its tables from all that are.

    how: the options of `run_cells`. Raises StudyError or RecipeError before any cell is run for a study that cannot be;
    StudyError at the end where a cell that was to be run is not complete.
    """
    planned = prepare(study)
    chosen = choose(planned, only)
    if run:
        run_cells(study, chosen, **how)
    table = cells_table(planned)
    pending = table[table["cell"].isin([cell.name for cell in chosen if run]) & (table["status"] != "complete")]
    _print_reasons(pending)
    groups = pending.groupby("status")["cell"]
    missing = "; ".join(f"{counted(len(part), 'cell')} {status}: {part.to_list()}" for status, part in groups)
    ready = {cell.name: cell.folder for cell, status in zip(planned, table["status"], strict=True) if status == "complete"}
    if not ready:
        raise StudyError(f"no cell of the study is complete: there is nothing to tabulate{missing and f'; {missing}'}")
    page = write_results(study, table, ready, mix_versions=mix_versions)
    print(f"tables of {len(ready)} of {counted(len(planned), 'cell')}: {study.results}\npage: {page}")
    if missing:
        raise StudyError(f"{missing}; logs lie beside the cells in {study.output_dir}")


def show_status(study: Study) -> None:
    """Print how far a study is, at work or not; nothing is written. Raises StudyError where nothing of it was ever run."""
    control = Path(study.output_dir) / CONTROL
    if not control.is_dir():
        raise StudyError(f"no {CONTROL} in {study.output_dir}: nothing of this study has been run there")
    table = cells_table(cells(study))
    print(pd.crosstab(table["block"], table["status"], margins=True, margins_name="all").to_string())
    _print_reasons(table)
    if not is_locked(control):
        print("no study is at work there")


def _print_reasons(table: pd.DataFrame) -> None:
    for row in table[table["reason"] != ""].itertuples():
        print(f"{row.cell} {row.status}: {row.reason}")


def run_cells(study: Study, chosen: Sequence[Cell], cores: int | None, executor: str | None, options: Sequence[str]) -> None:
    """Run the cells that are not complete, after those that they need.

    cores: cells at a time, None one per GPU, or per core; with an executor, jobs at a time, None all. executor: one of
    Snakemake's, None this machine. options: further ones of Snakemake's command line.

    Ctrl-C, SIGTERM and SIGHUP end the cells and raise KeyboardInterrupt. Raises FileError where a study is at work there.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise StudyError("Snakemake, which runs a study, is not installed: pip install 'attnfaith[study]'")
    if cores is not None and cores < 1:
        raise StudyError(f"--cores {cores}: at least 1 cell at a time")
    control = Path(study.output_dir) / CONTROL
    with folder_lock(control, "a study"):
        while busy := [cell.name for cell in chosen if is_locked(cell.folder)]:
            print(f"waiting for cells that another process runs: {', '.join(busy)}", flush=True)
            time.sleep(10)
        stale = {cell.name: cell for cell in chosen if not complete(cell.whole_recipe)}
        if len(stale) < len(chosen):
            print(f"{counted(len(chosen) - len(stale), 'cell')} complete already", flush=True)
        if not stale:
            return
        from attnfaith.runs import check_model

        for name, cell in stale.items():
            with recipes.named(name):
                check_model(cell.whole_recipe)
        gpus = [] if executor else available_gpus()
        places = cores or len(gpus)
        entries = {}
        for number, (name, cell) in enumerate(stale.items()):
            after, gpu = [other for other in cell.after if other in stale], number % len(gpus) if gpus else None
            environment = [] if gpu is None else ["env", f"CUDA_VISIBLE_DEVICES={gpus[gpu]}"]
            entries[name] = {"command": [*environment, *cell.command], "after": after, "gpu": gpu}
            cell.log.unlink(missing_ok=True)
        shutil.rmtree(control / "done", ignore_errors=True)
        plan = {"folder": os.getcwd(), "gpus": len(gpus), "cells": entries}
        write_atomically(control / "plan.json", json.dumps(plan, indent=1, ensure_ascii=False))
        shutil.copy(Path(__file__).with_name("Snakefile"), control)
        where = ["--executor", executor, "--jobs", places or "unlimited"] if executor else ["--cores", places or "all"]
        if gpus:
            where += ["--resources", *(f"gpu_{number}={math.ceil(places / len(gpus))}" for number in range(len(gpus)))]
        run_engine([sys.executable, "-m", "snakemake", *OPTIONS, *map(str, where), *options], control)


def available_gpus() -> list[str]:
    """Return the names of the usable GPUs, as CUDA_VISIBLE_DEVICES takes them."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return names.split(",")[:count]


def run_engine(command: Sequence[str], folder: Path) -> None:
    """Run Snakemake to its end; a signal that ends this process ends Snakemake and its cells."""
    with contextlib.ExitStack() as former:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                former.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        # in a session of its own, so that a signal reaches the cells too and nothing else
        how = {"stdin": subprocess.DEVNULL, "start_new_session": True, "preexec_fn": _end_with_parent}
        engine = subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **how)
        try:
            engine.wait()
        except BaseException:
            for number in (signal.SIGINT, signal.SIGKILL):  # the first lets Snakemake cancel the jobs of a cluster
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    os.killpg(engine.pid, number)
                    engine.wait(30)
            raise


def _end_with_parent() -> None:
    """In a new process: accept interrupts, and on Linux get one when the parent ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background job ignores
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
