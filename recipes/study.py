"""Every cell of a study, then its tables: accelerate launch recipes/study.py --config STUDY (or plain python).

A study is a YAML file with the keys

    output_dir   folder of the runs, one folder and one log for each cell
    results      folder of the tables and figures made from all of them
    published    (optional) CSV of published numbers, shown beside the measured ones
    tables       (optional) which tables; all that single cells allow by default
    compare      (optional) identity columns; cells that differ in one of them are compared in pairs
    blocks       list of: recipe, and optionally name, set, grid, after

A block is a recipe, what it `set`s in it, and a `grid`, key: [values]. Each combination is a cell, called <name>-<values>
(name: that of the recipe's file unless given). `after` names cells whose runs a cell reads; values in `set` and `after` may
hold {key} of the block's grid, and {output_dir}.

Cells that are complete are kept, cells that were stopped go on, a failed cell is shown as failed, what waits for it is not
run, and the rest goes on. The next call tries again what is missing.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import fnmatch
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.parquet as pq
import yaml

from attnfaith import recipes, record
from attnfaith.cli import guarded
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.reporting import compare_with_published, save_table, stability
from attnfaith.reporting.cells import Cell as RecordCell
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import DEFAULT, check_identities, check_names, save_png, study_figures, study_tables


KEYS = {"output_dir": str, "results": str, "published": str, "tables": list, "compare": list, "blocks": list}
BLOCK_KEYS = {"recipe": str, "name": str, "set": dict, "grid": dict, "after": list}
KINDS = {str: "a text", list: "a list", dict: "keys and values"}
TRAIN = Path(__file__).with_name("train.py")
# What a launcher tells the processes that it starts: to a run of its own it would be a lie.
LAUNCHER = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_", "ROLE_", "GROUP_", "KMP_")
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
PHASES = {"started": "training", "trained": "measuring", "measured": "reporting"}


class Cell(NamedTuple):
    """One run of a study: its name, recipe, what is set in it, and the cells whose runs it reads."""

    name: str
    recipe: Path
    overrides: list[str]
    after: tuple[str, ...] = ()


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
    if not study["blocks"]:
        raise RecipeError(f"{path}: blocks is empty, so there is nothing to run; give a list of blocks with a recipe each")
    return study


def _check_kinds(found: Mapping, kinds: Mapping[str, type], where: str) -> None:
    for key, value in found.items():
        if not isinstance(value, kinds[key]):
            raise RecipeError(f"{where}: {key} is {value!r}; it must be {KINDS[kinds[key]]}")


def cells(study: Mapping) -> list[Cell]:
    """The cells of a study, in its order.

    Raises RecipeError for a block that is none, two cells of one name or a name that is no name of a folder, an `after` that
    names no cell or leads back to its own, and a {key} that the block's grid does not have.
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
        grid, prefix = block.get("grid", {}), block.get("name", Path(block["recipe"]).stem)
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            name = "-".join([prefix, *(f"{value}" for value in values)])
            known = {**chosen, "output_dir": study["output_dir"]}
            settings = {**_fill(block.get("set", {}), known, f"block {number}, set"), **chosen}
            settings |= {"output_dir": str(Path(study["output_dir"]) / name), "name": name}
            after = tuple(_fill(block.get("after", []), known, f"block {number}, after"))
            overrides = [f"--{key}={_yaml(value)}" for key, value in settings.items()]
            found.append(Cell(name, Path(block["recipe"]), overrides, after))
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
    """Raises RecipeError where two recipes differ in nothing that a record tells cells apart by.

    Sooner than `check_identities`, which sees the records, and no stricter: what it refuses, that would refuse.
    """
    owners: dict[str, str] = {}
    names = ("encoder", "alignment", "projection", "sparsegen_lambda", "entmax_alpha", "score_scale", "embedding_std")
    for name, recipe in wanted.items():
        model = [getattr(recipe.model, key) for key in names]
        plain = recipe.objective.kind == "classification"
        rate = f"{recipe.training.attention_learning_rate_factor:g}" if plain else None
        key = repr((recipe.data, recipe.measure.split, model, recipe.objective, rate, recipe.seed))
        if key in owners:
            raise RecipeError(
                f"cells {owners[key]!r} and {name!r} have the same data, split, model, objective and seed: tables cannot "
                "tell them apart; give them different seeds or keep them in different studies"
            )
        owners[key] = name


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
        return self.folder.with_name(f"{self.folder.name}.log")

    def progress(self) -> str:
        """One line: how long, how far, and what its log says last."""
        try:
            status = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))["status"]
        except (OSError, ValueError, KeyError):
            status = None
        last = (_lines(self.log) or [""])[-1]
        return f"{self.cell.name}: {duration(time.monotonic() - self.started)}, {PHASES.get(status, 'at work')}  {last}"


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
    errors = [line for line in lines if re.match(r"error: |([A-Za-z_][\w.]*)?(Error|Exception|Interrupt)\b", line)]
    if errors:
        return errors[-1].removeprefix("error: ")
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return lines[-1] if lines else f"exit code {code}, and its log is empty"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Display:
    """One line for each cell that starts or ends; on a terminal, below them, a live line for each that runs."""

    def __init__(self, stream, total: int):
        self.stream, self.total, self.live, self.drawn = stream, total, stream.isatty(), 0

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
    chosen: Sequence[Cell], study: Mapping, workers: int | None = None, *, stopped: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Run cells, each in a process of its own, its output in <cell>.log; what each came to, by name.

    "complete", "FAILED: why" or "not run: why". stopped: asked several times a second; once it says so, the processes are
    ended and KeyboardInterrupt is raised.
    """
    root = Path(study["output_dir"])
    wanted = {cell.name: load_recipe(cell) for cell in chosen}
    devices: list[str | None] = gpus() or [None]
    slots = list(range(workers or (len(devices) if devices[0] is not None else cores())))
    display, ended = Display(sys.stdout, len(chosen)), {}
    waiting, running, started, ran = list(chosen), {}, time.monotonic(), 0

    def left() -> str:
        remaining = len(waiting) + len(running)
        return f"; about {duration((time.monotonic() - started) / ran * remaining)} left" if ran and remaining else ""

    def end(name: str, outcome: str, note: str = "") -> None:
        ended[name] = outcome
        display.say(f"{len(ended)}/{len(chosen)} {name}: {outcome}{note}{left()}")

    with sole_study(root) as lock:
        try:
            while waiting or running:
                for cell in list(waiting):
                    lacking = [name for name in cell.after if ended.get(name, "complete") != "complete"]
                    if lacking:
                        waiting.remove(cell)
                        end(cell.name, f"not run: it needs {', '.join(lacking)}")
                    elif slots and all(name in ended for name in cell.after):
                        waiting.remove(cell)
                        if complete(wanted[cell.name]):
                            end(cell.name, "complete", " already")
                            continue
                        slot = slots.pop(0)
                        running[slot] = _start(cell, root / cell.name, devices[slot % len(devices)], lock)
                        if not display.live:
                            display.say(f"{cell.name}: started")
                for slot, job in list(running.items()):
                    if (code := job.process.poll()) is None:
                        continue
                    del running[slot]
                    slots.append(slot)
                    ran += 1
                    if code == 0 and complete(wanted[job.cell.name]):
                        end(job.cell.name, "complete", f" in {duration(time.monotonic() - job.started)}")
                    else:
                        end(job.cell.name, f"FAILED: {why_failed(job.log, code)}")
                lines = [job.progress() for job in running.values()]
                display.draw([*lines, f"{len(ended)} of {len(chosen)} cells, {len(running)} running{left()}"])
                if stopped():
                    raise KeyboardInterrupt
                time.sleep(0.2 if running else 0)
        except BaseException:  # whatever ends the study ends its cells
            display.erase()
            _stop(running.values())
            print(
                f"stopped with {sum(outcome == 'complete' for outcome in ended.values())} of {len(chosen)} cells complete; "
                "the same command goes on from here",
                file=sys.stderr,
            )
            raise
        display.erase()
    return ended


def _start(cell: Cell, folder: Path, gpu: str | None, lock: int) -> Job:
    command = [sys.executable, str(TRAIN), "--config", str(cell.recipe), "--resume_from_checkpoint", *cell.overrides]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.log"), "w", encoding="utf-8") as log:
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


def write_tables(study: Mapping, folders: Mapping[str, Path]) -> None:
    """Tables and figures from the records alone, by cell name."""
    parts = {name: split_cells(record.load(folder / "record.parquet")) for name, folder in folders.items()}
    check_identities(parts)
    every: list[RecordCell] = [cell for found in parts.values() for cell in found]
    names, output = study.get("tables", DEFAULT), Path(study["results"])
    found = study_tables(every, names, study.get("compare", ()))
    if (published := read_published(study)) is not None:
        found |= beside_published(found, published, study["published"])
    for name, table in found.items():
        save_table(table, output / name)
    for name, figure in study_figures(every, names).items():
        save_png(figure, output / "figures" / f"{name}.png")


def read_published(study: Mapping) -> pd.DataFrame | None:
    """Raises RecipeError where a file is missing or not such a table, or what it stands beside is not asked for."""
    if not study.get("published"):
        return None
    published = _read_csv(study["published"])
    needed = {"stability"} if "model" in published.columns else {"agreement", "performance"}
    if missing := sorted(needed - set(study.get("tables", DEFAULT))):
        raise RecipeError(f"published: {study['published']} stands beside the tables {missing}: name them under tables")
    if "model" in published.columns:
        _check_table(study["published"], published, ["dataset", "encoder", "model", "statistic", "value", "source"])
        return published
    _check_table(study["published"], published, ["dataset", "encoder", "alignment", "pair", "class", "statistic", "value"])
    scores = _performance(study["published"])
    _check_table(scores, _read_csv(scores), ["dataset", "encoder", "alignment"])
    return published


def _performance(path: str | Path) -> Path:
    """The file of published scores that stands beside one of published taus."""
    return Path(path).with_name(f"{Path(path).stem}_performance.csv")


def _read_csv(path: str | Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except OSError as error:
        raise RecipeError(f"published: no file at {path}") from error
    except ValueError as error:
        raise RecipeError(f"published: {path} is no CSV table: {error}") from error


def _check_table(path: str | Path, table: pd.DataFrame, needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in table.columns]:
        raise RecipeError(f"published: {path} lacks the columns {missing}; needed: {', '.join(needed)}")
    if "value" in needed and not pd.api.types.is_numeric_dtype(table["value"]):
        raise RecipeError(f"published: {path} holds a value that is no number; its column 'value' is {table['value'].dtype}")


def beside_published(found: Mapping[str, pd.DataFrame], published: pd.DataFrame, path: str) -> dict[str, pd.DataFrame]:
    """Measured beside published numbers: tau by pair and class, or scores by kind of model, as the file's columns say."""
    if "model" in published.columns:
        return {"beside_published": stability.beside_published(found, published)}
    scores = _read_csv(_performance(path))
    return {
        "beside_published": compare_with_published(found["agreement"], published),
        "side_by_side": side_by_side(found["performance"], found["agreement"], scores, published),
    }


def side_by_side(
    performance: pd.DataFrame, agreement: pd.DataFrame, scores: pd.DataFrame, taus: pd.DataFrame
) -> pd.DataFrame:
    """One row per cell: accuracy and mean tau of each pair over all texts, measured and published (NaN where it is not)."""
    factors = ["dataset", "encoder", "alignment"]
    cell = [*factors, "vectors", "seed"]
    agreement, performance = (table.astype(dict.fromkeys(cell[:-1], str)) for table in (agreement, performance))
    rows = performance[[*cell, "n", "accuracy", "roc_auc"]].merge(scores, how="left", on=factors)
    for pair in dict.fromkeys(taus["pair"]):
        mine = agreement[(agreement["pair"] == pair) & (agreement["class"] == "overall")]
        theirs = taus[(taus["pair"] == pair) & (taus["class"] == "overall") & (taus["statistic"] == "tau_mean")]
        mine = mine[[*cell, "tau_mean"]].rename(columns={"tau_mean": f"tau {pair}"})
        theirs = theirs[[*factors, "value"]].rename(columns={"value": f"published tau {pair}"})
        rows = rows.merge(mine, how="left", on=cell).merge(theirs, how="left", on=factors)
    return rows.sort_values(cell, ignore_index=True)


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--workers", type=int, help="cells at a time, one thread each (default: one per GPU, or per core)")
    parser.add_argument("--only", metavar="PATTERN", help="run the cells of such names, and those they wait for: 'base-*'")
    parser.add_argument("--tables", action="store_true", help="only rebuild tables and figures from the records there are")
    known = parser.parse_args(arguments)
    if int(os.environ.get("RANK", 0)) > 0:
        return  # launched as several processes: the first one starts those that are needed
    if known.workers is not None and known.workers < 1:
        raise RecipeError(f"--workers {known.workers}: at least 1 cell at a time")
    study = read_study(known.config)
    check_names(study.get("tables", DEFAULT), study.get("compare", ()))
    read_published(study)
    planned = cells(study)
    wanted = {cell.name: load_recipe(cell) for cell in planned}
    check_distinct(wanted)
    ended = {} if known.tables else _interruptible(choose(planned, known.only), study, known.workers)
    ready = {name: Path(recipe.output_dir) for name, recipe in wanted.items() if complete(recipe)}
    if not ready:
        raise RecipeError(f"no cell of the study is complete: there is nothing to tabulate{_failures(ended)}")
    write_tables(study, ready)
    missing = len(planned) - len(ready)
    print(f"tables of {len(ready)} cells: {study['results']}" + (f"; {missing} cells are missing" if missing else ""))
    if said := _failures(ended):
        raise RecipeError(f"{said.removeprefix('; ')}; logs lie beside the cells in {study['output_dir']}")


def _failures(ended: Mapping[str, str]) -> str:
    failed = [name for name, outcome in ended.items() if outcome.startswith("FAILED")]
    skipped = [name for name, outcome in ended.items() if outcome.startswith("not run")]
    return "".join(
        f"; {len(names)} cells {what}: {names}" for what, names in (("failed", failed), ("not run", skipped)) if names
    )


def _interruptible(chosen: Sequence[Cell], study: Mapping, workers: int | None) -> dict[str, str]:
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
        return run_cells(chosen, study, workers, stopped=lambda: bool(received))
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(guarded(main))
