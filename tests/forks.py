"""Commands in processes of their own, forked from one that has imported everything: each would take seconds to do so."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


PARENT = """
import gc, json, os, sys, traceback
from attnfaith import cli, hub

exec(sys.argv[1])
gc.collect()
gc.freeze()  # else every child looks at all that was imported, and gets a copy of it
gc.set_threshold(50_000, 20, 20)  # as in conftest.py
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number, path in ((1, job["output"]), (2, job["errors"])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(job["folder"])
            for name, value in job["environment"].items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            if job["clean"]:
                from attnfaith.support import provenance
                provenance.checkout = lambda: ("0" * 40, False)
            code = cli.main(job["arguments"]) if "script" not in job else exec(job["script"]) or 0
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass
class Command:
    """A command at work: its process id; once it has ended its exit code and what it printed."""

    pid: int
    returncode: int | None = None
    stdout: str = ""
    stderr: str = ""


class Forks:
    """Runs commands one after another. warm: Python that is run once, before the first. python: what runs the process
    that forks.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, warm: str = "", python: str = sys.executable):
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [python, "-c", PARENT, warm],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_raised):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    @contextlib.contextmanager
    def running(
        self,
        arguments: Sequence[object],
        folder: Path,
        *,
        environment: Mapping[str, str | None] | None = None,
        clean: bool = False,
        **more,
    ) -> Iterator[Command]:
        """A command of attnfaith at work. environment: what differs from that of all, None: not set. clean: as if the code
        here were that of a commit. more: script, Python to be run in place of a command.
        """
        self.count += 1
        paths = {name: str(self.folder / f"{name}-{self.count}.txt") for name in ("output", "errors")}
        job = {"arguments": [str(word) for word in arguments], "folder": str(folder), "clean": clean, **paths}
        print(json.dumps(job | {"environment": dict(environment or {}), **more}), file=self.process.stdin, flush=True)
        command = Command(int(self.process.stdout.readline()))
        try:
            yield command
        finally:
            command.returncode = int(self.process.stdout.readline())
            command.stdout, command.stderr = (Path(path).read_text() for path in paths.values())

    def run(self, arguments: Sequence[object], folder: Path, **how) -> Command:
        """The same, when it has ended."""
        with self.running(arguments, folder, **how) as command:
            pass
        return command
