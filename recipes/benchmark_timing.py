"""What benchmarks share: a function timed beside its naive twin in the same run, and a table with a row for each."""

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pandas import DataFrame
from torch.utils.benchmark import Compare, Measurement, Timer

import attnfaith
from attnfaith.reporting.tables import to_markdown
from attnfaith.support.escaping import csv_frame
from attnfaith.support.files import write_atomically
from attnfaith.support.provenance import checkout


TURNS = 3
LIBRARIES = ("torch", "transformers", "numpy", "scipy")


def take_turns(sides: Sequence[Callable], seconds: float, what: str = "") -> list[Measurement]:
    """Measure the CPU time of one thread of each function, in turns and for at least so many seconds in all."""
    how = {"timer": time.process_time, "label": "CPU time", "sub_label": what}
    timers = [Timer("call()", globals={"call": call}, description=f"side {n}", **how) for n, call in enumerate(sides)]
    parts = [[timer.blocked_autorange(min_run_time=seconds / TURNS) for timer in timers] for _ in range(TURNS)]
    return [Measurement.merge(side)[0] for side in zip(*parts, strict=True)]


def check_same(ours: Sequence, theirs: Sequence, what: str, within: float) -> None:
    """Raise ValueError where arrays of ours and of the twin differ by more."""
    pairs = zip(ours, theirs, strict=True)
    difference = max(float(np.abs(np.asarray(mine) - np.asarray(other)).max(initial=0)) for mine, other in pairs)
    if not difference <= within:
        raise ValueError(f"{what}: ours and the twin differ by {difference:.1e}; nothing is timed")


class Benchmark:
    """Rows of functions beside their twins. seconds: the least that each side is timed for."""

    def __init__(self, seconds: float):
        self.seconds, self.rows, self.measurements = seconds, [], []

    def add(self, what, tokens, ours, theirs, texts=1, twin="naive", within=None) -> None:
        """Time two functions that deal with so many texts. within: how far what they return may differ, None for any."""
        if within is not None:
            check_same(ours(), theirs(), what, within)
        sides = take_turns((ours, theirs), self.seconds, f"{what}, {tokens} tokens, {texts} texts")
        mine, other = (1e3 * side.median / texts for side in sides)
        self.measurements += sides
        self.append(what, tokens, mine, twin, other, min(len(side.times) for side in sides))
        print(f"{what}, {tokens} tokens: {mine:.3g} ms, {twin} {other:.3g} ms, {other / mine:.3g} times", flush=True)

    def append(self, what: str, tokens: int, ms: float, twin: str, twin_ms: float, repetitions: int) -> None:
        """Add a row that was measured elsewhere."""
        row = {"what": what, "tokens": tokens, "ms": ms, "twin": twin, "twin_ms": twin_ms, "ratio": twin_ms / ms}
        run = {"repetitions": repetitions, "threads": torch.get_num_threads(), "versions": versions()}
        self.rows.append(row | run)

    def save(self, stem: Path, *lines: str) -> None:
        """Write `stem`.csv, and `stem`.md below some lines and the machine; print torch's comparison."""
        Compare(self.measurements).print()
        save(self.rows, stem, *lines, machine())


def save(rows: Sequence[dict], stem: Path, *lines: str) -> None:
    """Write rows as `stem`.csv, and as `stem`.md below some lines, without the columns that these lines stand for."""
    table = DataFrame(rows)
    write_atomically(Path(f"{stem}.csv"), csv_frame(table))
    page = to_markdown(table.drop(columns=["threads", "versions"], errors="ignore"))
    write_atomically(Path(f"{stem}.md"), "\n\n".join([*lines, page]))


def machine() -> str:
    """Return what the times of this process were taken on, in one line."""
    names = []
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {torch.get_num_threads()} of them used, {versions()}."


def versions() -> str:
    """Return the versions of what the times depend on."""
    commit, changed = checkout()
    own = f"attnfaith {attnfaith.__version__} at {(commit or 'no commit')[:8]}{', changed' * bool(changed)}"
    return ", ".join([own, f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)])
