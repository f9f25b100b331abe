"""Commands of attnfaith in forks of this process, which has imported what they import: each costs about a second less.

A fork can be killed, or made to stand still, before its n-th file event (a file opened to be written, renamed or removed, a
folder made or removed, by Python; what other languages write lies between two of these), or after some processor time.
"""

import contextlib
import gc
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


LIMIT = 120  # seconds of one command
TICK = 1 / os.sysconf("SC_CLK_TCK")
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Place:
    """Where a command works: its current folder, its temporary folder, and the home of its caches, all below one folder."""

    root: Path

    @property
    def here(self) -> Path:
        return self.root / "here"

    @property
    def temporary(self) -> Path:
        return self.root / "temporary"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def make(self) -> "Place":
        for folder in (self.here, self.temporary, self.home):
            folder.mkdir(parents=True, exist_ok=True)
        return self


@dataclass(frozen=True)
class Ended:
    """code: of the exit, below zero the signal. output: all that it printed. seconds: of the processor."""

    code: int
    output: str
    seconds: float

    @property
    def error(self) -> str:
        """The line that says what went wrong, "" where there is none."""
        return next((line for line in self.output.splitlines() if line.startswith("error: ")), "")


@dataclass
class Command:
    """A command at work."""

    pid: int
    printed: int  # the end of a pipe
    output: bytes = b""

    def stands(self, limit: float = LIMIT) -> bool:
        """Wait until it stands still or has ended; whether it stands."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state in "TZ":
                return state == "T"
            time.sleep(0.002)
        raise TimeoutError(f"a command neither ends nor stands still in {limit:g} s")

    def stop_after(self, seconds: float) -> None:
        """SIGSTOP once it has used so many seconds of the processor; nothing where it has ended before."""
        self.kill_after(seconds, number=signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def used(self) -> float:
        """Seconds of the processor so far; infinite when it has ended."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return float("inf") if words[0] == "Z" else (int(words[11]) + int(words[12])) * TICK

    def kill_after(self, seconds: float, limit: float = LIMIT, number: int = signal.SIGKILL) -> None:
        """SIGKILL once it has used so many seconds of the processor; nothing where it has ended before."""
        deadline = time.monotonic() + limit
        while (used := self.used()) < seconds and time.monotonic() < deadline:
            time.sleep(0.001)
        if used < float("inf"):
            os.kill(self.pid, number)

    def _read(self) -> str:
        """All that it has printed so far."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.printed, 1 << 16):
                self.output += piece
        return self.output.decode(errors="replace")

    def end(self, limit: float = LIMIT) -> Ended:
        """What it came to. Raises TimeoutError, the command killed, where it does not end."""
        deadline = time.monotonic() + limit
        try:
            while time.monotonic() < deadline:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                printed = self._read()
                if pid:
                    return Ended(os.waitstatus_to_exitcode(status), printed, usage.ru_utime + usage.ru_stime)
                time.sleep(0.002)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise TimeoutError(f"a command did not end in {limit:g} s: {self._read()[-300:]}")
        finally:
            os.close(self.printed)


def start(
    arguments: Sequence[object] | Callable[[], object],
    place: Place,
    *,
    event: int | None = None,
    number: int = signal.SIGKILL,
    trace: Path | None = None,
    environment: Mapping[str, str] | None = None,
    largest_file: int | None = None,
) -> Command:
    """Begin a command, or a function, in a fork. event: before which file event, from 1 on, it gets the signal `number`.
    trace: a file for its events at its end, as JSON. largest_file: in bytes; what is beyond is refused (EFBIG).
    """
    printed, end = os.pipe()
    if child := os.fork():
        os.close(end)
        os.set_blocking(printed, False)
        return Command(child, printed)
    code, inherited = 1, {*weakref.finalize._registry}
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number_of_stream in (1, 2):
            os.dup2(end, number_of_stream)
        _settle(place, environment or {})
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        events = _count(event, number)
        if callable(arguments):
            arguments()
            code = 0
        else:
            from attnfaith import cli

            code = cli.main([str(word) for word in arguments])
        if trace is not None:
            counted = list(events)
            trace.write_text(json.dumps(counted))
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
            for folder in {*weakref.finalize._registry} - inherited:  # as an interpreter does at its end
                folder()
        os._exit(code)


def run(arguments: Sequence[object] | Callable[[], object], place: Place, **how) -> Ended:
    """The same, to its end."""
    return start(arguments, place, **how).end()


def _settle(place: Place, environment: Mapping[str, str]) -> None:
    """Work in the place, as a process that was started there would."""
    import datasets
    import evaluate
    import huggingface_hub
    from evaluate import loading

    importlib.import_module("tests.campaigns.still")
    os.environ |= {"TMPDIR": str(place.temporary), **environment}
    tempfile.tempdir = None
    os.chdir(place.here)
    modules, hub = str(place.home / "modules"), str(place.home / "hub")
    for config in (evaluate.config, datasets.config):
        config.HF_MODULES_CACHE = modules
    datasets.config.HF_DATASETS_CACHE = str(place.home / "datasets")
    evaluate.config.HF_EVALUATE_CACHE = evaluate.config.HF_METRICS_CACHE = str(place.home / "evaluate")
    evaluate.config.DOWNLOADED_EVALUATE_PATH = str(place.home / "evaluate" / "downloads")
    constants = huggingface_hub.constants
    constants.HF_HUB_CACHE = constants.HUGGINGFACE_HUB_CACHE = hub
    for module in (loading, huggingface_hub.file_download):
        if hasattr(module, "HF_HUB_CACHE"):
            module.HF_HUB_CACHE = hub


def _count(stop_before: int | None, number: int) -> list[str]:
    """Count this process's file events from here; the list grows by each."""
    events: list[str] = []

    def hook(event: str, words: tuple) -> None:
        if event == "open":
            if not (isinstance(words[2], int) and words[2] & WRITES) or isinstance(words[0], int):
                return
        elif event not in CHANGES:
            return
        path = os.fspath(words[0])
        path = os.fsdecode(path) if isinstance(path, bytes) else str(path)
        if path.startswith(("/dev/", "/proc/")):
            return
        events.append(f"{event} {path}")
        if len(events) == stop_before:
            os.kill(os.getpid(), number)

    sys.addaudithook(hook)
    return events


# ------------------------------------------------------------------------------------------------ what lies in a folder


def contents(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, by its path there; "/" of folders that hold nothing."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in sorted(folder.rglob("*"))
        if path.is_file() or (path.is_dir() and not any(path.iterdir()))
    }


def differences(now: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """In words how contents differ from those expected; "" where they are the same."""
    parts = {
        "missing": sorted({*expected} - {*now}),
        "left over": sorted({*now} - {*expected}),
        "different": sorted(path for path in {*now} & {*expected} if now[path] != expected[path]),
    }
    return "; ".join(f"{what}: {', '.join(paths[:6])}" for what, paths in parts.items() if paths)


def broken(folder: Path) -> list[str]:
    """Files below a folder that lie under a final name and are not whole. Hidden ones, checkpoints that a training is still
    to take and shards are none of these.
    """
    import pyarrow.parquet as pq
    import yaml
    from safetensors import safe_open

    def read_safetensors(path: Path) -> None:
        with safe_open(path, framework="np") as stream:
            for name in stream.keys():  # noqa: SIM118 (not a mapping)
                stream.get_tensor(name)

    readers = {
        ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
        ".yaml": lambda path: yaml.safe_load(path.read_text(encoding="utf-8")).items(),
        ".parquet": lambda path: pq.read_table(path).validate(full=True),
        ".safetensors": read_safetensors,
        ".html": lambda path: path.read_text(encoding="utf-8").rindex("</html>"),
    }
    wrong = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") or part == "checkpoints" for part in parts) or not path.is_file():
            continue
        try:
            readers.get(path.suffix, lambda path: None)(path)
        except Exception as error:
            wrong.append(f"{'/'.join(parts)} is not whole ({type(error).__name__}: {str(error)[:80]})")
    return wrong


def in_a_fork(act: Callable[[], object], folder: Path) -> object:
    """What a function returns, as JSON has it, in a process of its own: nothing that it does to itself stays."""
    answer = folder / "answer.json"
    child = os.fork()
    if child == 0:
        try:
            answer.write_text(json.dumps(act()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    value = json.loads(answer.read_text())
    answer.unlink()
    return value


# ------------------------------------------------------------------------------------------------ warm


def warm(*commands: Sequence[object]) -> None:
    """Import in this process what commands import, told by making them once in a fork that is thrown away."""
    exec(importlib.import_module("tests.figures").IN_A_PROCESS)  # reports with few figures
    for name in ("tests.known_digests", "attnfaith.hub", "attnfaith.runs.execute", "attnfaith.reproduction", "evaluate"):
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        place, names = Place(Path(folder, "warm")).make(), Path(folder, "names")

        def make_all() -> None:
            from attnfaith import cli

            before = {*sys.modules}
            for words in commands:
                words() if callable(words) else cli.main([str(word) for word in words])
            names.write_text("\n".join({*sys.modules} - before))

        ended = run(make_all, place)
        assert ended.code == 0, ended.output
        for name in sorted(names.read_text().splitlines()):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else every child looks at all that was imported, and gets a copy of it
    gc.set_threshold(50_000, 20, 20)


@contextlib.contextmanager
def hub(root: Path, users: Sequence[str]) -> Iterator[None]:
    """A Hub at HF_ENDPOINT, in a process of its own; the token of a user is hf_<user>_kept_secret."""
    port = int(os.environ["HF_ENDPOINT"].rpartition(":")[2])
    ready, done = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            from tests.hub_server import HubServer

            server = HubServer(root, port=port)
            for user in users:
                server.add_user(user, f"hf_{user}_kept_secret")
            with server:
                os.write(done, b"1")
                while os.getppid() == parent:
                    time.sleep(1)
        finally:
            os._exit(1)
    try:
        os.close(done)
        assert os.read(ready, 1) == b"1", "the Hub does not start"
        yield
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
