"""How far a study is: read from what its cells noted, at any time, from any machine that sees its folder."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnfaith.study.cell import last_lines, read_outcome
from attnfaith.study.plan import Cell


CONTROL = ".study"


@dataclass
class State:
    """How far one cell is: waiting, running, stopped, complete, failed or not run; why, where it failed or was not run.

    seconds: what it took, or runs; NaN where it did not run, or nobody knows.
    """

    cell: str
    block: str = ""
    status: str = "waiting"
    seconds: float = math.nan
    reason: str = ""


def place_of(root: Path, name: str) -> Path:
    """The study's own folder for a cell, beside the runs."""
    return root / CONTROL / "cells" / name


def log_of(root: Path, name: str) -> Path:
    """The log of a cell, beside its folder."""
    return root / f"{name}.log"


def state_of(root: Path, cell: Cell, ready: bool | None = None) -> State:
    """The state of one cell. ready: whether its folder holds its recipe's whole run (`plan.complete`); None, as noted."""
    outcome = read_outcome(place_of(root, cell.name))
    status, seconds = outcome.get("status", "waiting"), outcome.get("seconds", math.nan)
    if ready and status not in ("complete", "running"):
        status, seconds = "complete", math.nan
    elif ready is False and status == "complete":  # by another recipe than today's
        status, seconds = "waiting", math.nan
    return State(cell.name, cell.block, status, seconds, outcome.get("why", "") if status == "failed" else "")


def mark_not_run(planned: Sequence[Cell], states: Mapping[str, State]) -> None:
    """Set the state of the cells that wait for one that failed, or that wait for such cells."""
    while stuck := [(states[cell.name], lacking) for cell in planned if (lacking := _lacking(cell, states))]:
        for state, lacking in stuck:
            state.status, state.reason = "not run", f"it needs {', '.join(lacking)}"


def _lacking(cell: Cell, states: Mapping[str, State]) -> list[str]:
    if states[cell.name].status != "waiting":
        return []
    return [name for name in cell.after if name in states and states[name].status in ("failed", "not run")]


def at_work(root: Path, cell: State) -> str:
    """One line on a cell that runs: how long, and what its log says last."""
    return f"{cell.cell}: {duration(cell.seconds)}  {(last_lines(log_of(root, cell.cell)) or [''])[-1]}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, for reading."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def time_left(cells: Iterable[State], workers: int) -> float:
    """Seconds until the last cell that waits or runs has ended; NaN where nothing tells.

    A cell takes as long as the mean of the complete ones of its block, or of all where its block has none yet.
    """
    cells, took = list(cells), {}
    for cell in cells:
        if cell.status == "complete" and cell.seconds > 0:
            for block in (cell.block, None):
                took.setdefault(block, []).append(cell.seconds)
    if not took:
        return math.nan
    means = {block: sum(seconds) / len(seconds) for block, seconds in took.items()}
    expected = [(cell, means.get(cell.block, means[None])) for cell in cells if cell.status in ("waiting", "running")]
    left = [max(0.0, mean - cell.seconds) if cell.status == "running" else mean for cell, mean in expected]
    return max([sum(left) / workers, *left], default=0.0)


def summary(cells: Iterable[State], workers: int) -> str:
    """One line: "5 of 22 done, 2 running, 1 failed, about 3 min left"."""
    cells = list(cells)
    count = {status: sum(cell.status == status for cell in cells) for status in {cell.status for cell in cells}}
    words = [f"{count.get('complete', 0)} of {len(cells)} done"]
    words += [f"{count.get(status, 0)} {status}" for status in ("running", "failed")]
    words += [f"{count[status]} {status}" for status in ("not run", "stopped") if status in count]
    if {"waiting", "running"} & set(count) and not math.isnan(left := time_left(cells, workers)):
        words.append(f"about {duration(left)} left")
    return ", ".join(words)


def overview(cells: Iterable[State], root: Path) -> list[str]:
    """The lines of a study: a table of its blocks, those that are done last, what runs, what failed, and `summary`."""
    cells = list(cells)
    blocks: dict[str, list[str]] = {}
    for cell in cells:
        blocks.setdefault(cell.block, []).append("waiting" if cell.status == "stopped" else cell.status)
    width = max(map(len, ("block", *blocks)))
    shown = ("complete", "running", "failed", "not run", "waiting")
    head = "  ".join(f"{'done' if name == 'complete' else name:>7}" for name in shown)
    lines = [f"{'block':{width}}  {'cells':>5}  {head}"]
    for block in sorted(blocks, key=lambda block: set(blocks[block]) == {"complete"}):
        counts = "  ".join(f"{blocks[block].count(name) or '':>7}" for name in shown)
        lines.append(f"{block:{width}}  {len(blocks[block]):5}  {counts}")
    lines += [at_work(root, cell) for cell in cells if cell.status == "running"]
    lines += [f"{cell.cell}: FAILED: {cell.reason}" for cell in cells if cell.status == "failed"]
    return [*lines, summary(cells, max(1, sum(cell.status == "running" for cell in cells)))]
