"""Every cell of a study, then its tables: accelerate launch recipes/study.py --config STUDY (or plain python).

A study is a YAML file with the keys

    output_dir   folder of the runs, one folder and one log for each cell
    results      folder of the tables and figures made from all of them
    analysis     (optional) the paper's own tables and figures: a Python file, by its path from the study's. It is run: a
                 study file is code (`attnfaith.reporting.analysis`)
    published    (optional) CSV of published numbers, for the analysis to show beside the measured ones
    stand_ins    (optional) data set: the one of the paper that it stands in for, whose published numbers are shown beside it
    tables       (optional) which tables; all that single cells allow by default
    compare      (optional) identity columns; cells that differ in one of them are compared in pairs
    mix_versions (optional) true: tabulate records together that different code measured
    blocks       list of: recipe, and optionally name, set, grid, after

A block is a recipe, what it `set`s in it, and a `grid`, key: [values]. Each combination is a cell, called <name>-<values>
(name: that of the recipe's file unless given). `after` names cells whose runs a cell reads; values in `set` and `after` may
hold {key} of the block's grid, and {output_dir}.

Cells that are complete are kept, cells that were stopped go on, a failed cell is shown as failed, what waits for it is not
run, and the rest goes on. The next call tries again what is missing. On a terminal a live table shows how far all is; the
same is kept in <output_dir>/progress.csv, which --status prints without touching anything. <results>/cells.csv has every
planned cell, with the reason where it is not in the tables.
"""

import argparse
import contextlib
import csv
import dataclasses
import fcntl
import fnmatch
import io
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.parquet as pq
import yaml

import attnfaith
from attnfaith import recipes, record
from attnfaith.cli import guarded
from attnfaith.files import write_atomically
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.reporting import save_table
from attnfaith.reporting.cells import Cell as RecordCell
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import (
    DEFAULT,
    analyse,
    check_identities,
    check_names,
    save_png,
    study_figures,
    study_tables,
)


KEYS = {
    "output_dir": str,
    "results": str,
    "analysis": str,
    "published": str,
    "stand_ins": dict,
    "tables": list,
    "compare": list,
    "mix_versions": bool,
    "blocks": list,
}
BLOCK_KEYS = {"recipe": str, "name": str, "set": dict, "grid": dict, "after": list}
KINDS = {str: "a text", list: "a list", dict: "keys and values", bool: "true or false"}
TRAIN = Path(__file__).with_name("train.py")
# What a launcher tells the processes that it starts: to a run of its own it would be a lie.
LAUNCHER = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_", "ROLE_", "GROUP_", "KMP_")
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
PROGRESS = "progress.csv"
# Two names of one projection.
SAME = {"sparsegen(0)": "sparsemax", "entmax(1)": "softmax", "entmax(1.5)": "entmax15", "entmax(2)": "sparsemax"}
PHASES = {"started": "training", "trained": "measuring", "measured": "reporting"}


class Cell(NamedTuple):
    """One run of a study: its name, recipe, what is set in it, the cells whose runs it reads, the name of its block."""

    name: str
    recipe: Path
    overrides: list[str]
    after: tuple[str, ...] = ()
    block: str = ""


# --------------------------------------------------------------------------------------------------- the plan


def read_study(path: Path) -> dict:
    """The study of a YAML file.

    Raises RecipeError for a file that is none, for keys it lacks or nobody knows, and values of another kind than theirs.
    """
    try:
        study = yaml.load(path.read_text(encoding="utf-8"), Loader=recipes.Loader)
    except OSError as error:
        raise RecipeError(f"no study at {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not YAML: {error}") from error
    if not isinstance(study, dict):
        raise RecipeError(f"{path} must hold keys and values: {', '.join(KEYS)}")
    if unknown := sorted(set(study) - set(KEYS)):
        raise RecipeError(f"{path}: unknown keys {unknown}; known: {', '.join(KEYS)}")
    if missing := sorted({"output_dir", "results", "blocks"} - set(study)):
        raise RecipeError(f"{path} lacks {missing}")
    _check_kinds(study, KEYS, str(path))
    if "analysis" in study:
        study["analysis"] = str(path.parent / study["analysis"])
    if not study["blocks"]:
        raise RecipeError(f"{path}: blocks is empty, so there is nothing to run; give a list of blocks with a recipe each")
    return study


def _check_kinds(found: Mapping, kinds: Mapping[str, type], where: str) -> None:
    for key, value in found.items():
        if not isinstance(value, kinds[key]):
            raise RecipeError(f"{where}: {key} is {value!r}; it must be {KINDS[kinds[key]]}")


def cells(study: Mapping) -> list[Cell]:
    """The cells of a study, in its order.

    Raises RecipeError for a block that is none, a grid that gives a value twice, two cells of one name or a name that is no
    name of a folder, an `after` that names no cell or leads back to its own, and a {key} that the block's grid does not
    have.
    """
    found = []
    for number, block in enumerate(study["blocks"], start=1):
        if not isinstance(block, Mapping):
            raise RecipeError(f"block {number} is {block!r}; it must hold keys and values: {', '.join(BLOCK_KEYS)}")
        if unknown := sorted(set(block) - set(BLOCK_KEYS)):
            raise RecipeError(f"block {number}: unknown keys {unknown}; known: {', '.join(BLOCK_KEYS)}")
        if "recipe" not in block:
            raise RecipeError(f"block {number} lacks a recipe")
        _check_kinds(block, BLOCK_KEYS, f"block {number}")
        for key, values in block.get("grid", {}).items():
            if not isinstance(values, list) or not values:
                raise RecipeError(f"block {number}: grid.{key} is {values!r}; give a list of one or more values")
            if twice := [value for place, value in enumerate(values) if any(_equal(value, it) for it in values[:place])]:
                raise RecipeError(
                    f"block {number}: grid.{key} is {values!r}: {twice[0]!r} is there twice; give each value once"
                )
        grid, prefix = block.get("grid", {}), block.get("name", Path(block["recipe"]).stem)
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            name = "-".join([prefix, *(f"{value}" for value in values)])
            known = {**chosen, "output_dir": study["output_dir"]}
            settings = {**_fill(block.get("set", {}), known, f"block {number}, set"), **chosen}
            settings |= {"output_dir": str(Path(study["output_dir"]) / name), "name": name}
            after = tuple(_fill(block.get("after", []), known, f"block {number}, after"))
            overrides = [f"--{key}={_yaml(value)}" for key, value in settings.items()]
            found.append(Cell(name, Path(block["recipe"]), overrides, after, prefix))
    names = [cell.name for cell in found]
    if paths := [name for name in names if Path(name).name != name]:
        raise RecipeError(f"the cell {paths[0]!r} is no name for a folder: keep '/' out of the name and the grid, use `set`")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RecipeError(f"the study has cells of one name: {twice}; vary a key of the grid, or give the block a name")
    for cell in found:
        if strangers := [name for name in cell.after if name not in names]:
            raise RecipeError(f"cell {cell.name} is after {strangers}, which the study does not have; it has {names}")
    _check_order(found)
    return found


def _equal(one, other) -> bool:
    """Whether two values of a grid are the same, 0 and -0.0 too; false is no number."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _fill(value, known: Mapping[str, object], where: str):
    """A value with each {key} in it replaced; lists and dictionaries item by item."""
    if isinstance(value, Mapping):
        return {key: _fill(item, known, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, known, where) for item in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match) -> str:
        if match[1] not in known:
            raise RecipeError(f"{where}: {match[0]} in {value!r} is no key of the block's grid; known: {', '.join(known)}")
        return str(known[match[1]])

    return re.sub(r"\{([^{}]*)\}", replaced, value)


def _yaml(value) -> str:
    """A value as it stands in an override."""
    if value is None or isinstance(value, list | Mapping):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def check_distinct(wanted: Mapping[str, Recipe]) -> None:
    """Raises RecipeError where two recipes differ in nothing that a record tells cells apart by, or only in the name of the
    projection: sparsegen at lambda 0 is sparsemax.

    Sooner than `check_identities`, which sees the records.
    """
    owners: dict[str, tuple[str, str]] = {}
    for name, recipe in wanted.items():
        projection = _projection(recipe.model)
        model = [getattr(recipe.model, key) for key in ("encoder", "hierarchy", "alignment", "score_scale", "embedding_std")]
        model.append(SAME.get(projection, projection))
        plain = recipe.objective.kind == "classification"
        settings = recipe.training
        rate = f"{settings.attention_learning_rate_factor:g} {settings.random_erasure:g}" if plain else None
        key = repr((recipe.data, recipe.measure.split, recipe.measure.level, model, recipe.objective, rate, recipe.seed))
        other, named = owners.setdefault(key, (name, projection))
        if other != name and named != projection:
            raise RecipeError(
                f"cells {other!r} and {name!r} are one model under two names: {named} and {projection} attend alike; leave "
                "one of them out"
            )
        if other != name:
            raise RecipeError(
                f"cells {other!r} and {name!r} have the same data, split, model, objective and seed: tables cannot "
                "tell them apart; give them different seeds or keep them in different studies"
            )


def _projection(model: recipes.Model) -> str:
    """The projection with its parameter, as records name it."""
    parameter = {"sparsegen": model.sparsegen_lambda, "entmax": model.entmax_alpha}.get(model.projection)
    return model.projection if parameter is None else f"{model.projection}({parameter + 0.0:g})"  # -0.0 + 0.0 is 0.0


def _check_order(found: Sequence[Cell]) -> None:
    """Raises RecipeError where cells wait for one another in a circle."""
    waiting = {cell.name: set(cell.after) for cell in found}
    while free := [name for name, after in waiting.items() if not after & set(waiting)]:
        for name in free:
            del waiting[name]
    if waiting:
        raise RecipeError(f"cells wait for one another in a circle, so none of them can start: {sorted(waiting)}")


def choose(planned: Sequence[Cell], pattern: str | None) -> list[Cell]:
    """The cells whose names match a shell pattern, and those they wait for. Raises RecipeError where none does."""
    if pattern is None:
        return list(planned)
    by_name = {cell.name: cell for cell in planned}
    wanted = fnmatch.filter(by_name, pattern)
    if not wanted:
        raise RecipeError(f"--only {pattern}: no cell has such a name; the study has {', '.join(by_name)}")
    found = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += by_name[name].after
    return [cell for cell in planned if cell.name in found]


def load_recipe(cell: Cell) -> Recipe:
    """Raises RecipeError, naming the cell, for a recipe that is missing or wrong."""
    try:
        return recipes.load(cell.recipe, cell.overrides)
    except RecipeError as error:
        raise RecipeError(f"cell {cell.name}: {error}") from error


def complete(recipe: Recipe) -> bool:
    """Whether the recipe's folder holds its whole run: a page, and a record made by this very recipe."""
    folder = Path(recipe.output_dir)
    try:
        state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        made = pq.read_schema(folder / "record.parquet")
        parts = json.loads((made.metadata or {}).get(b"attnfaith", b"[]"))
        same = [_matters(recipes.build(part["recipe"])) for part in parts] == [_matters(recipe)]
        if recipe.objective.base and same:
            same = state["base"]["weights (SHA-256)"] == _weights(Path(recipe.objective.base))
    except (OSError, ValueError, KeyError):  # absent, half-written, or of another version: to be run
        return False
    page = folder / "report" / "index.html"
    return state["status"] == "complete" and page.is_file() and same and set(record.COLUMNS) <= set(made.names)


def of_this_code(recipe: Recipe) -> bool:
    """Whether this very code measured the record in the recipe's folder."""
    made = pq.read_schema(Path(recipe.output_dir) / "record.parquet").metadata or {}
    parts = json.loads(made.get(b"attnfaith", b"[]"))
    here = (attnfaith.__version__, record.code_digest())
    return all((part.get("version"), part.get("code")) == here for part in parts)


def _weights(folder: Path) -> str:
    """The digest of the model that a run's record was measured with."""
    return json.loads(pq.read_schema(folder / "record.parquet").metadata[b"attnfaith"])[0]["model"]


def _matters(recipe: Recipe) -> dict:
    """What decides a run's numbers: all but its place, its words and its report."""
    return {key: value for key, value in dataclasses.asdict(recipe).items() if key not in ("output_dir", "note", "report")}


# ------------------------------------------------------------------------------------------------ the machine


def gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls each GPU that may be used; found without loading torch."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in given.split(",") if name.strip() and not name.startswith("-")]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    listed = subprocess.run([program, "-L"], capture_output=True, text=True, check=False).stdout
    return [str(number) for number, line in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(gpu: str | None) -> dict[str, str]:
    """What a cell's process sees: one thread, its own GPU, and nothing of the launcher that started the study."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER) and key not in LAUNCHED}
    kept |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return kept if gpu is None else kept | {"CUDA_VISIBLE_DEVICES": gpu}


@contextlib.contextmanager
def sole_study(root: Path) -> Iterator[int]:
    """Holds the lock of a folder of runs; its cells hold it too, so it is free when the last of them has gone.

    The system frees it with the processes, however they end: no lock outlives them. Raises RecipeError where it is held.
    """
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / ".study.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 200).decode()
            raise RecipeError(
                f"a study is at work in {root} ({holder}, or cells it left running): wait for it, or stop it"
            ) from error
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {os.uname().nodename}".encode())
        yield handle
    finally:
        os.close(handle)


# ----------------------------------------------------------------------------------------------- running cells


@dataclass
class Job:
    """A cell that runs."""

    cell: Cell
    folder: Path
    process: subprocess.Popen
    started: float

    @property
    def log(self) -> Path:
        return log_of(self.folder)


def log_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def at_work(folder: Path, seconds: float) -> str:
    """One line on the run in a folder: how long, how far, and what its log says last."""
    status = _state(folder).get("status")
    last = (_lines(log_of(folder)) or [""])[-1]
    return f"{folder.name}: {duration(seconds)}, {PHASES.get(status, 'at work')}  {last}"


def _state(folder: Path) -> dict:
    """What run.json says; {} where there is none that can be read."""
    try:
        return json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _lines(log: Path) -> list[str]:
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
    lines = _lines(log)
    # a progress bar that was not at its end stands before it on the line
    said = [
        re.search(r"(?:^|\])(?:error: )(.+)|^((?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)\b.*)", line)
        for line in lines
    ]
    if errors := [match[1] or match[2] for match in said if match]:
        return errors[-1]
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return lines[-1] if lines else f"exit code {code}, and its log is empty"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass
class Entry:
    """How far one cell is: waiting, running, stopped, complete, failed or not run; why, where it failed or was not run.

    seconds: what it took, or runs; NaN where it did not run, or nobody knows.
    """

    cell: str
    block: str = ""
    status: str = "waiting"
    seconds: float = math.nan
    why: str = ""


class Board:
    """How far the cells of a study are, kept in a file that is replaced whole at each event.

    What the file says of cells that are not among `chosen` stays.
    """

    def __init__(self, root: Path, chosen: Sequence[Cell]):
        self.root = root
        self.entries = {cell.name: Entry(cell.name, cell.block) for cell in chosen}
        self._others = [entry for entry in read_progress(root) if entry.cell not in self.entries]
        for entry in self._others:  # nothing else runs there
            entry.status = "stopped" if entry.status == "running" else entry.status
        self._started: dict[str, float] = {}

    def note(self, name: str, status: str, seconds: float = math.nan, why: str = "") -> None:
        entry = self.entries[name]
        entry.status, entry.seconds, entry.why = status, seconds, why
        if status == "running":
            self._started[name] = time.monotonic()
        else:
            self._started.pop(name, None)
        self.save()

    def stop(self) -> None:
        """Those that run are stopped."""
        self.tick()
        for name in self._started:
            self.entries[name].status = "stopped"
        self._started.clear()
        self.save()

    def tick(self) -> None:
        for name, started in self._started.items():
            self.entries[name].seconds = time.monotonic() - started

    def save(self) -> None:
        self.tick()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(field.name for field in dataclasses.fields(Entry))
        for entry in (*self.entries.values(), *self._others):
            seconds = "" if math.isnan(entry.seconds) else f"{entry.seconds:.1f}"
            writer.writerow([entry.cell, entry.block, entry.status, seconds, entry.why])
        write_atomically(self.root / PROGRESS, text.getvalue().encode())


def read_progress(root: Path) -> list[Entry]:
    """What `Board` kept; [] where it kept nothing that can be read."""
    try:
        with open(root / PROGRESS, encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        return [Entry(**{**row, "seconds": float(row["seconds"] or "nan")}) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def time_left(entries: Iterable[Entry], workers: int) -> float:
    """Seconds until the last cell that waits or runs has ended; NaN where nothing tells.

    A cell takes as long as the mean of the complete ones of its block, or of all where its block has none yet.
    """
    entries, took = list(entries), {}
    for entry in entries:
        if entry.status == "complete" and entry.seconds > 0:
            for block in (entry.block, None):
                took.setdefault(block, []).append(entry.seconds)
    if not took:
        return math.nan
    means = {block: sum(seconds) / len(seconds) for block, seconds in took.items()}
    expected = [(entry, means.get(entry.block, means[None])) for entry in entries if entry.status in ("waiting", "running")]
    left = [max(0.0, mean - entry.seconds) if entry.status == "running" else mean for entry, mean in expected]
    return max([sum(left) / workers, *left], default=0.0)


def summary(entries: Iterable[Entry], workers: int) -> str:
    """One line: "5 of 22 done, 2 running, 1 failed, about 3 min left"."""
    entries = list(entries)
    count = {status: sum(entry.status == status for entry in entries) for status in {entry.status for entry in entries}}
    words = [f"{count.get('complete', 0)} of {len(entries)} done"]
    words += [f"{count.get(status, 0)} {status}" for status in ("running", "failed")]
    words += [f"{count[status]} {status}" for status in ("not run", "stopped") if status in count]
    if {"waiting", "running"} & set(count) and not math.isnan(left := time_left(entries, workers)):
        words.append(f"about {duration(left)} left")
    return ", ".join(words)


def overview(entries: Iterable[Entry], root: Path, workers: int, height: int) -> list[str]:
    """The table of a study in at most `height` lines: its blocks, what runs, what failed, and `summary`.

    Blocks that are done come last; what finds no room is counted.
    """
    entries = list(entries)
    running = [at_work(root / entry.cell, entry.seconds) for entry in entries if entry.status == "running"]
    failed = [f"{entry.cell}: FAILED: {entry.why}" for entry in entries if entry.status == "failed"]
    blocks: dict[str, list[str]] = {}
    for entry in entries:
        blocks.setdefault(entry.block, []).append(entry.status)
    ordered = sorted(blocks, key=lambda block: set(blocks[block]) == {"complete"})
    width = max(map(len, ("block", *blocks)))
    shown = ("complete", "running", "failed", "not run", "waiting")
    head = f"{'block':{width}}  {'cells':>5}  " + "  ".join(f"{'done' if name == 'complete' else name:>7}" for name in shown)
    rows = []
    for block in ordered:
        statuses = ["waiting" if status == "stopped" else status for status in blocks[block]]
        rows.append(
            f"{block:{width}}  {len(statuses):5}  " + "  ".join(f"{statuses.count(name) or '':>7}" for name in shown)
        )
    room = height - 1
    running = _cut(running, room, "running")
    failed = _cut(failed, max(1, (room - len(running)) // 2), "failed")
    table = _cut([head, *rows], room - len(running) - len(failed), "blocks")
    return [*table, *running, *failed, summary(entries, workers)][-height:]


def _cut(lines: Sequence[str], room: int, what: str) -> list[str]:
    """Lines that fit, the last of which says how many do not."""
    if len(lines) <= room:
        return list(lines)
    return [*lines[: max(0, room - 1)], f"... and {len(lines) - max(0, room - 1)} more {what}"]


class Display:
    """One line for each cell that starts or ends; on a terminal, below them, a live table of the study."""

    def __init__(self, stream):
        self.stream, self.live, self.drawn = stream, stream.isatty(), 0

    def say(self, text: str) -> None:
        self.erase()
        print(text, file=self.stream, flush=True)

    def draw(self, lines: Sequence[str]) -> None:
        if not self.live:
            return
        self.erase()
        width = shutil.get_terminal_size().columns - 1
        for line in lines:
            print(line[:width], file=self.stream)
        self.stream.flush()
        self.drawn = len(lines)

    def erase(self) -> None:
        if self.drawn:
            print(f"\x1b[{self.drawn}A\x1b[J", end="", file=self.stream)
        self.drawn = 0


def run_cells(
    chosen: Sequence[Cell],
    study: Mapping,
    workers: int | None = None,
    *,
    remeasure: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """Run cells, each in a process of its own, its output in <cell>.log; what each came to, by name.

    "complete", "FAILED: why" or "not run: why". remeasure: cells whose records other code measured are measured anew, with
    the models that they have. stopped: asked several times a second; once it says so, the processes are ended and
    KeyboardInterrupt is raised.
    """
    root = Path(study["output_dir"])
    wanted = {cell.name: load_recipe(cell) for cell in chosen}
    devices: list[str | None] = gpus() or [None]
    slots = list(range(workers or (len(devices) if devices[0] is not None else cores())))
    display, places = Display(sys.stdout), len(slots)
    waiting, running, ended, looked_at = list(chosen), {}, {}, set()

    def kept(name: str) -> bool:
        """Whether nothing is to be done; asked once, when all that the cell waits for is there."""
        first = name not in looked_at
        looked_at.add(name)
        return first and complete(wanted[name]) and not (remeasure and not of_this_code(wanted[name]))

    def end(name: str, outcome: str, note: str = "", seconds: float = math.nan) -> None:
        ended[name] = outcome
        status, _, why = outcome.partition(": ")
        board.note(name, status.lower(), seconds, why)
        display.say(f"{name}: {outcome}{note}; {summary(board.entries.values(), places)}")

    with sole_study(root) as lock:
        board = Board(root, chosen)
        board.save()
        try:
            while waiting or running:
                for cell in list(waiting):
                    lacking = [name for name in cell.after if ended.get(name, "complete") != "complete"]
                    if lacking:
                        waiting.remove(cell)
                        end(cell.name, f"not run: it needs {', '.join(lacking)}")
                    elif not all(name in ended for name in cell.after):
                        continue
                    elif kept(cell.name):
                        waiting.remove(cell)
                        end(cell.name, "complete", " already", _state(root / cell.name).get("seconds", math.nan))
                    elif slots:
                        waiting.remove(cell)
                        slot = slots.pop(0)
                        how = ["--remeasure"] if remeasure else []
                        running[slot] = _start(cell, how, root / cell.name, devices[slot % len(devices)], lock)
                        board.note(cell.name, "running", 0.0)
                        if not display.live:
                            display.say(f"{cell.name}: started")
                for slot, job in list(running.items()):
                    if (code := job.process.poll()) is None:
                        continue
                    del running[slot]
                    slots.append(slot)
                    took = time.monotonic() - job.started
                    if code == 0 and complete(wanted[job.cell.name]):
                        end(job.cell.name, "complete", f" in {duration(took)}", took)
                    else:
                        end(job.cell.name, f"FAILED: {why_failed(job.log, code)}", seconds=took)
                if display.live:
                    board.tick()
                    height = shutil.get_terminal_size().lines - 1
                    display.draw(overview(board.entries.values(), root, places, height))
                if stopped():
                    raise KeyboardInterrupt
                time.sleep(0.2 if running else 0)
        except BaseException:  # whatever ends the study ends its cells
            display.erase()
            _stop(running.values())
            board.stop()
            print(
                f"stopped with {sum(outcome == 'complete' for outcome in ended.values())} of {len(chosen)} cells complete; "
                "the same command goes on from here",
                file=sys.stderr,
            )
            raise
        display.erase()
    return ended


def _start(cell: Cell, how: Sequence[str], folder: Path, gpu: str | None, lock: int) -> Job:
    command = [sys.executable, str(TRAIN), "--config", str(cell.recipe), "--resume_from_checkpoint", *how, *cell.overrides]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(log_of(folder), "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(gpu),
            start_new_session=True,  # an interrupt from the terminal reaches the study alone, which then ends its cells
            pass_fds=(lock,),
        )
    return Job(cell, folder, process, time.monotonic())


def _stop(jobs: Sequence[Job]) -> None:
    """End processes and what they started: first by an interrupt, which lets a run say what it leaves, then for good."""
    for number, patience in ((signal.SIGINT, 10), (signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        alive = [job for job in jobs if job.process.poll() is None]
        for job in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.process.pid, number)
        limit = time.monotonic() + patience
        for job in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(max(0.01, limit - time.monotonic()))


# ----------------------------------------------------------------------------------------------------- tables


def write_tables(study: Mapping, folders: Mapping[str, Path], *, mix_versions: bool = False) -> None:
    """Tables, figures and texts from the records alone, by cell name.

    Raises RecordError where different code measured the records, unless mix_versions, and where two have one identity.
    """
    records = {name: record.load(folder / "record.parquet") for name, folder in folders.items()}
    if not mix_versions:
        record.check_one_code(
            records.values(), "--remeasure measures anew what other code measured, --mix-versions takes all as they are"
        )
    parts = {name: split_cells(table) for name, table in records.items()}
    check_identities(parts)
    every: list[RecordCell] = [cell for found in parts.values() for cell in found]
    names, output = study.get("tables", DEFAULT), Path(study["results"])
    tables = study_tables(every, names, study.get("compare", ()))
    analysis = analyse(study, every, tables)
    for name, table in (tables | analysis.tables).items():
        save_table(table, output / name)
    for name, text in analysis.texts.items():
        write_atomically(output / name, text.encode())
    for name, figure in (study_figures(every, names) | analysis.figures).items():
        save_png(figure, output / "figures" / f"{name}.png")


def write_cells(study: Mapping, planned: Sequence[Cell], ready: Mapping[str, Path]) -> None:
    """Every planned cell in <results>/cells.csv: complete, failed or not run; the texts measured; why it is not complete."""
    known, rows = {entry.cell: entry for entry in read_progress(Path(study["output_dir"]))}, []
    for cell in planned:
        row = {"cell": cell.name, "block": cell.block, "status": "not run", "n": math.nan, "reason": ""}
        if cell.name in ready:
            row |= {"status": "complete", "n": pq.read_metadata(ready[cell.name] / "record.parquet").num_rows}
        elif (entry := known.get(cell.name)) and entry.status in ("failed", "not run", "stopped"):
            row |= {"status": "not run" if entry.status == "stopped" else entry.status, "reason": entry.why or entry.status}
        rows.append(row)
    table = pd.DataFrame(rows).astype({"n": "Int64"})
    text = table.to_csv(index=False, na_rep="NaN", lineterminator="\n")
    write_atomically(Path(study["results"]) / "cells.csv", text.encode())


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--tables", action="store_true", help="only rebuild tables and figures from the records there are")
    parser.add_argument("--status", action="store_true", help="only show how far the study is, from its progress.csv")
    parser.add_argument("--mix-versions", action="store_true", help="tabulate records together that different code measured")
    known = options(parser, arguments)
    if known is None:
        return
    if known.tables and known.remeasure:
        raise RecipeError("--tables only reads records: leave it out to measure them anew with --remeasure")
    study = read_study(known.config)
    if known.status:
        return show_status(study, cells(study))
    how = {"only": known.only, "workers": known.workers, "remeasure": known.remeasure}
    _, ended = carry_out(study, run=not known.tables, mix_versions=known.mix_versions, **how)
    if said := failures(ended):
        raise RecipeError(f"{said}; logs lie beside the cells in {study['output_dir']}")


def options(parser: argparse.ArgumentParser, arguments) -> argparse.Namespace | None:
    """The arguments of a command, with the options of all that run cells; None in a process that has nothing to do.

    Raises RecipeError for workers below 1.
    """
    parser.add_argument("--workers", type=int, help="cells at a time, one thread each (default: one per GPU, or per core)")
    parser.add_argument("--only", metavar="PATTERN", help="the cells of such names, and those they wait for: 'base-*'")
    parser.add_argument(
        "--remeasure", action="store_true", help="measure cells anew whose records other code measured; models are kept"
    )
    known = parser.parse_args(arguments)
    if int(os.environ.get("RANK", 0)) > 0:
        return None  # launched as several processes: the first one starts those that are needed
    if known.workers is not None and known.workers < 1:
        raise RecipeError(f"--workers {known.workers}: at least 1 cell at a time")
    return known


def carry_out(
    study: Mapping,
    *,
    run: bool = True,
    only: str | None = None,
    workers: int | None = None,
    remeasure: bool = False,
    mix_versions: bool = False,
) -> tuple[dict[str, Path], dict[str, str]]:
    """Run the cells of a study that are not complete, unless run is false, and make its tables from all that are.

    Returns the folders of the complete cells, and what those that were run came to, by name. Raises RecipeError before any
    cell is run for a study that cannot be, and where no cell is complete at the end.
    """
    planned, wanted = settle(study)
    chosen = choose(planned, only)
    if run:
        recipes.check_models({cell.name: wanted[cell.name] for cell in chosen if not complete(wanted[cell.name])})
    ended = _interruptible(chosen, study, workers, remeasure=remeasure) if run else {}
    ready = {name: Path(recipe.output_dir) for name, recipe in wanted.items() if complete(recipe)}
    write_cells(study, planned, ready)
    if not ready:
        said = failures(ended)
        raise RecipeError(f"no cell of the study is complete: there is nothing to tabulate{said and f'; {said}'}")
    write_tables(study, ready, mix_versions=mix_versions or study.get("mix_versions", False))
    missing = len(planned) - len(ready)
    print(f"tables of {len(ready)} cells: {study['results']}" + (f"; {missing} cells are missing" if missing else ""))
    return ready, ended


def settle(study: Mapping) -> tuple[list[Cell], dict[str, Recipe]]:
    """The cells of a study and their recipes by name. Raises RecipeError for what could not be run or tabulated."""
    check_names(study.get("tables", DEFAULT), study.get("compare", ()))
    analyse(study)
    planned = cells(study)
    wanted = {cell.name: load_recipe(cell) for cell in planned}
    check_distinct(wanted)
    return planned, wanted


def show_status(study: Mapping, planned: Sequence[Cell]) -> None:
    """Print how far a study is, at work or not, from what it keeps in its progress.csv; nothing is written.

    Raises RecipeError where it keeps none.
    """
    root = Path(study["output_dir"])
    kept = {entry.cell: entry for entry in read_progress(root)}
    if not kept:
        raise RecipeError(f"no {PROGRESS} in {root}: nothing of this study has been run there")
    entries = [kept.get(cell.name, Entry(cell.name, cell.block)) for cell in planned]
    alive, since = _at_work(root), time.time() - (root / PROGRESS).stat().st_mtime
    for entry in entries:
        if entry.status == "running":
            entry.status, entry.seconds = ("running", entry.seconds + since) if alive else ("stopped", entry.seconds)
    workers = sum(entry.status == "running" for entry in entries)
    lines = overview(entries, root, max(1, workers), sys.maxsize)
    print("\n".join(lines + ([] if alive else ["no study is at work there"])))


def _at_work(root: Path) -> bool:
    """Whether a study holds the lock of a folder; asked without taking or making it."""
    try:
        with open(root / ".study.lock", "rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def failures(ended: Mapping[str, str]) -> str:
    """The cells that failed or were not run, in words; "" where there are none."""
    failed = [name for name, outcome in ended.items() if outcome.startswith("FAILED")]
    skipped = [name for name, outcome in ended.items() if outcome.startswith("not run")]
    parts = ((failed, "failed"), (skipped, "not run"))
    return "; ".join(f"{len(names)} cells {what}: {names}" for names, what in parts if names)


def _interruptible(chosen: Sequence[Cell], study: Mapping, workers: int | None, *, remeasure: bool) -> dict[str, str]:
    """`run_cells`, stopped in an orderly way by Ctrl-C, the end of the terminal, or that of a batch job.

    A signal only leaves word: raised at any moment, an interrupt could come between the start of a process and its entry
    among those that are to be ended.
    """
    received = []
    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        for number, handler in old.items():
            if handler != signal.SIG_IGN:  # as nohup leaves it
                signal.signal(number, lambda given, _frame: received.append(given))
        return run_cells(chosen, study, workers, remeasure=remeasure, stopped=lambda: bool(received))
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(guarded(main))
