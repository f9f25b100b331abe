"""What benchmarks share: sides that take turns, values that must agree, and tables that say where they were taken."""

import os
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from attnfaith.reporting import save_table


def take_turns(sides, repeats):
    """Median CPU seconds of each of some functions, called in turn after one call each to warm up."""
    return [statistics.median(times) for times in turns(sides, repeats)]


def turns(sides, repeats, warm=True):
    """CPU seconds of every call of some functions, called in turn; warm: after one call each to warm up."""
    for call in sides if warm else ():
        call()
    spent = [[] for _ in sides]
    for _ in range(repeats):
        for call, times in zip(sides, spent, strict=True):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
    return spent


def same(ours, theirs, what, within=1e-5):
    difference = max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(ours, theirs, strict=True))
    if not difference <= within:
        raise ValueError(f"{what}: ours and the naive twin differ by {difference:.1e}; nothing was timed")


def processor():
    """What it runs on, in a few words."""
    names = []
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def machine():
    """What the times of one process were taken on, in one line."""
    used = f"of which {torch.get_num_threads()} is used, torch {torch.__version__}, Python {platform.python_version()}"
    return f"{processor()} {used}"


def save(rows, stem, *lines):
    """The table of rows, below lines that say what it is of."""
    save_table(pd.DataFrame(rows), stem)
    page = stem.with_name(f"{stem.name}.md")
    page.write_text("\n\n".join([*lines, page.read_text(encoding="utf-8")]), encoding="utf-8")
