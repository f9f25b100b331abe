"""`python -m tests.campaigns`: what is hostile, tried at length, and a table of how often it did harm.

A campaign is a module of this package with `attempts(full, seed)`. Each attempt runs in a process of its own, forked from
this one, with an empty folder and a time limit: what raises, dies or hangs is a defect. What came of it is one line of
OUTPUT/outcomes.jsonl; an attempt that has one, of the same code, seed and size, is not made again. At the end OUTPUT holds
table.md and table.csv; the exit code is 1 where there is a defect.
"""

import argparse
import csv
import hashlib
import importlib
import io
import json
import os
import pkgutil
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import tests.campaigns
from attnfaith.files import write_atomically
from tests.campaigns.attempt import Attempt, Outcome


ROOT = Path(__file__).parents[2]
LINES, MARKDOWN, CSV = "outcomes.jsonl", "table.md", "table.csv"
LIMIT = 900  # seconds of one attempt
LONGEST_DEFECT = 600
COLUMNS = ("campaign", "part", "attempts", "tried", "clean", "defects", "seconds")


@dataclass(frozen=True)
class Running:
    """An attempt at work in a process."""

    campaign: str
    attempt: Attempt
    pid: int
    folder: Path
    said: Path
    started: float


def campaigns() -> dict[str, object]:
    """The modules of this package that have attempts, by name."""
    names = [one.name for one in pkgutil.iter_modules(tests.campaigns.__path__) if not one.name.startswith(("test_", "__"))]
    modules = {name: importlib.import_module(f"{tests.campaigns.__name__}.{name}") for name in sorted(names)}
    return {name: module for name, module in modules.items() if hasattr(module, "attempts")}


def code() -> str:
    """The commit that is checked out, and a digest of what differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    changed = git("diff", "HEAD") + "".join(
        f"{name} {hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}"
        for name in git("ls-files", "--others", "--exclude-standard").splitlines()
    )
    return git("rev-parse", "HEAD").strip() + (f"+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else "")


def outcomes(path: Path, key: Mapping) -> list[dict]:
    """The lines of a file that are of these campaigns; a line that a kill cut off is none."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and all(one.get(name) == value for name, value in key.items()):
            lines.append(one)
    return lines


def append(path: Path, line: Mapping) -> None:
    """One line at the end of a file, by one write; after one that a kill cut off it begins a new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+", buffering=0) as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, end - 1))
        begin = b"" if end == 0 or stream.read(1) == b"\n" else b"\n"
        stream.write(begin + json.dumps(line, ensure_ascii=False).encode() + b"\n")


def carry_out(
    attempts: Iterable[tuple[str, Attempt]], output: Path, key: Mapping, *, processes: int, limit: float = LIMIT
) -> None:
    """Make the attempts that have no line yet, so many at a time, and write a line for each that ends."""
    path, work = output / LINES, output / "work"
    done = {(line["campaign"], line["attempt"]) for line in outcomes(path, key)}
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    at_work: list[Running] = []

    def wait(most: int) -> None:
        while len(at_work) > most:
            for one in list(at_work):
                if (outcome := _outcome_of(one, limit)) is not None:
                    at_work.remove(one)
                    seconds = round(time.monotonic() - one.started, 2)
                    append(path, {**key, **_as_line(one, outcome), "seconds": seconds})
                    _tell(one, outcome, seconds)
            time.sleep(0.005)

    try:
        for number, (campaign, attempt) in enumerate(attempts):
            if (campaign, attempt.name) in done:
                continue
            done.add((campaign, attempt.name))
            wait(processes - 1)
            at_work.append(_start(campaign, attempt, work / str(number)))
        wait(0)
    finally:
        for one in at_work:
            _end(one)
    if not any(work.iterdir()):
        work.rmdir()


def _start(campaign: str, attempt: Attempt, folder: Path) -> Running:
    folder.mkdir()
    said = folder.with_name(f"{folder.name}.json")
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        return Running(campaign, attempt, child, folder, said, time.monotonic())
    try:
        os.setsid()  # what it leaves at work is ended with it
        with open(folder.with_name(f"{folder.name}.log"), "ab", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        try:
            outcome = attempt.act(folder)
        except BaseException as error:
            traceback.print_exc()
            outcome = Outcome(1, (f"raised {traceback.format_exception_only(error)[-1].strip()}",))
        write_atomically(said, json.dumps(_as_json(outcome)))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _as_json(outcome: Outcome) -> dict:
    defects = [" ".join(defect.split())[:LONGEST_DEFECT] for defect in outcome.defects]
    return {"tried": outcome.tried, "defects": defects, "measured": dict(outcome.measured)}


def _as_line(one: Running, outcome: Outcome) -> dict:
    return {"campaign": one.campaign, "attempt": one.attempt.name, **_as_json(outcome)}


def _outcome_of(one: Running, limit: float) -> Outcome | None:
    """What came of an attempt; None while it is at work. Its folder goes, but where there is a defect to look at."""
    ended, status = os.waitpid(one.pid, os.WNOHANG)
    if not ended and time.monotonic() - one.started < limit:
        return None
    if not ended:
        _end(one)
        outcome = Outcome(1, (f"hangs: no end in {limit:g} s",))
    else:
        _kill_group(one.pid)
        try:
            outcome = Outcome(**json.loads(one.said.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            outcome = Outcome(1, (f"its process ended without an outcome ({os.waitstatus_to_exitcode(status)})",))
    if not outcome.defects:
        shutil.rmtree(one.folder, ignore_errors=True)
        one.folder.with_name(f"{one.folder.name}.log").unlink(missing_ok=True)
    one.said.unlink(missing_ok=True)
    return outcome


def _end(one: Running) -> None:
    _kill_group(one.pid)
    try:
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _tell(one: Running, outcome: Outcome, seconds: float) -> None:
    for defect in outcome.defects:
        print(f"DEFECT {one.campaign}: {one.attempt.name}: {defect} ({one.folder})", flush=True)
    if sys.stdout.isatty():
        print(f"{one.campaign}: {one.attempt.name}: {outcome.tried} tried in {seconds:.1f} s", flush=True)


def summarise(lines: Sequence[Mapping]) -> list[dict]:
    """One row for each part of each campaign, then one for all. clean: what was tried without a defect."""
    rows: dict[tuple[str, str], dict] = {}
    for line in lines:
        part = line["attempt"].partition("/")[0]
        zero = {"campaign": line["campaign"], "part": part} | dict.fromkeys(COLUMNS[2:], 0)
        for key in ((line["campaign"], part), ("~", "")):
            row = rows.setdefault(key, dict(zero) if key[1] else {**zero, "campaign": "all", "part": ""})
            row["attempts"] += 1
            row["tried"] += line["tried"]
            row["defects"] += len(line["defects"])
            row["clean"] += max(0, line["tried"] - len(line["defects"]))
            row["seconds"] = round(row["seconds"] + line["seconds"], 1)
    return [rows[key] for key in sorted(rows)]


def write_table(output: Path, lines: Sequence[Mapping]) -> str:
    """Write table.csv and table.md; returns the latter. Each defect is named below it, and what attempts measured."""
    rows, text = summarise(lines), io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(output / CSV, text.getvalue())
    shown = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    shown += [f"| {' | '.join(str(row[name]) for name in COLUMNS)} |" for row in rows]
    shown += [
        "",
        *(f"* {line['campaign']}, {line['attempt']}: {defect}" for line in lines for defect in line["defects"]),
    ]
    if any(line["measured"] for line in lines):
        shown += ["", "| campaign | attempt | measured | value |", "|---|---|---|---|"]
        shown += [
            f"| {line['campaign']} | {line['attempt']} | {name} | {value:.6g} |"
            for line in lines
            for name, value in line["measured"].items()
        ]
    written = "\n".join(shown).rstrip() + "\n"
    write_atomically(output / MARKDOWN, written)
    return written


def _all(modules: Mapping[str, object], full: bool, seed: int) -> Iterator[tuple[str, Attempt]]:
    for name, module in modules.items():
        for attempt in module.attempts(full, seed):
            yield name, attempt


def prepare_environment() -> None:
    """For this process and all of its own, before anything of Hugging Face is imported: one thread, a Hub on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    os.environ |= {
        "HF_ENDPOINT": endpoint,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    sys.dont_write_bytecode = True  # else the first kills are of that


def main(arguments: Sequence[str] | None = None, modules: Mapping[str, object] | None = None) -> int:
    """modules: the campaigns, by name; those of this package unless given."""
    if modules is None:
        prepare_environment()
        modules = campaigns()
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*modules], default=[*modules], metavar="CAMPAIGN")
    parser.add_argument("--small", action="store_true", help="the part that the tests run")
    parser.add_argument("--match", default="", metavar="TEXT", help="only attempts with this in their name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "campaigns")
    parser.add_argument("--processes", type=int, default=2, help="attempts at a time (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of one attempt (default: %(default)s)")
    known = parser.parse_args(arguments)
    output = known.output.resolve()
    key = {"code": code(), "seed": known.seed, "full": not known.small}
    chosen = {name: modules[name] for name in known.only}
    with closing(_all(chosen, not known.small, known.seed)) as attempts:
        named = ((name, one) for name, one in attempts if known.match in one.name)
        carry_out(named, output, key, processes=known.processes, limit=known.limit)
    lines = [line for line in outcomes(output / LINES, key) if line["campaign"] in chosen]
    print(write_table(output, lines), end="")
    return int(any(line["defects"] for line in lines) or not lines)


if __name__ == "__main__":
    raise SystemExit(main())
