"""A Python that starts in hundredths of a second: each of its programs runs in a fork of a process that has imported torch
and whatever else takes seconds to import and reads nothing of where or for whom it is imported.

Nothing of Hugging Face and nothing of attnfaith is among that: when those are imported, what from the environment they read
and what they register is what tests are about. Where that is not so, `start` takes what else is to be imported. The path
that it gives is used in place of `sys.executable`; what such a program starts by its own `sys.executable` starts as fast.
Signals are passed on and the exit code is handed back; a program ends when the process that was started for it is killed.
Its process id is another, and a lock that it holds names that.
"""

import contextlib
import importlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path


IMPORTS = """
matplotlib.backends.backend_agg matplotlib.backends.backend_svg matplotlib.figure matplotlib.pyplot multiprocessing.spawn
numpy packaging.requirements pandas psutil pyarrow.compute pyarrow.dataset pyarrow.fs pyarrow.parquet pydantic regex requests
scipy.optimize scipy.stats sympy torch torch._dynamo torch._inductor.config torch.distributed._composable.fsdp
torch.distributed.checkpoint torch.distributed.fsdp torch.distributed.launcher.api torch.distributed.tensor torch.export
tqdm.auto yaml
""".split()
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLIENT = """
import json, os, signal, socket, sys
parent = socket.socket(socket.AF_UNIX)
parent.connect(sys.argv[1])
program = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
content = json.dumps(program).encode()
socket.send_fds(parent, [len(content).to_bytes(8, "big")], [0, 1, 2])
parent.sendall(content)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda given, frame: parent.send(bytes([given])))
code = int(parent.recv(64) or 1)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@contextlib.contextmanager
def start(python: str = sys.executable, more: Sequence[str] = ()) -> Iterator[str]:
    """The path of the executable, for the time of the block. python: what runs the process that forks, which may be such an
    executable itself. more: modules that are imported besides, as they are found from here.
    """
    with tempfile.TemporaryDirectory() as folder:
        executable, place = Path(folder, "python"), Path(folder, "socket")
        Path(folder, "client.py").write_text(CLIENT)
        words = shlex.join([sys.executable, "-SE", str(Path(folder, "client.py")), str(place)])
        executable.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        executable.chmod(0o755)
        own = {name: value for name, value in os.environ.items() if more or name != "PYTHONPATH"}
        own |= {"OMP_NUM_THREADS": "1"}  # a fork of a process with threads may stand still
        command = [python, __file__, str(executable), str(place), *more]
        parent = subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert parent.stdout.readline() == "ready\n"
            yield str(executable)
        finally:
            parent.stdin.close()
            parent.wait()
            parent.stdout.close()


class Parent:
    """Forks a child for each program that comes in at a socket, and tells its exit code there."""

    def __init__(self, executable: str, place: str):
        self.executable = executable
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(place)
        self.listener.listen(64)
        self.selector = selectors.PollSelector()
        self.children: dict[int, socket.socket] = {}
        self.bell, ring = socket.socketpair()
        for end in (self.bell, ring):
            end.setblocking(False)
        self.ring = ring
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(ring.fileno())
        for source in (self.listener, self.bell, sys.stdin):
            self.selector.register(source, selectors.EVENT_READ)

    def serve(self) -> dict | None:
        """Until standard input ends: None then, and in a child, at once, the program that it is to run."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is sys.stdin:
                    for child in self.children:
                        os.kill(child, signal.SIGKILL)
                    return None
                if key.fileobj is self.bell:
                    self.bell.recv(4096)
                    self._bury()
                elif key.fileobj is self.listener:
                    if program := self._fork():
                        return program
                else:
                    self._pass_on(key.fileobj)

    def _fork(self) -> dict | None:
        connection, _ = self.listener.accept()
        head, files, _, _ = socket.recv_fds(connection, 8, 3)
        length, content = int.from_bytes(head, "big"), b""
        while len(content) < length:
            content += connection.recv(length - len(content))
        if child := os.fork():
            for file in files:
                os.close(file)
            self.children[child] = connection
            self.selector.register(connection, selectors.EVENT_READ)
            return None
        signal.set_wakeup_fd(-1)
        for number in (*STOPS, signal.SIGCHLD):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for end in (connection, self.listener, self.bell, self.ring, *self.children.values()):
            end.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return json.loads(content)

    def _bury(self) -> None:
        for child, connection in list(self.children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                with contextlib.suppress(OSError):
                    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                self._forget(child)

    def _pass_on(self, connection: socket.socket) -> None:
        (child,) = [child for child, held in self.children.items() if held is connection]
        try:
            numbers = connection.recv(64)
        except OSError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            os.kill(child, number)
        if not numbers:
            self.selector.unregister(connection)

    def _forget(self, child: int) -> None:
        connection = self.children.pop(child)
        with contextlib.suppress(KeyError):
            self.selector.unregister(connection)
        connection.close()


def become(program: dict, executable: str, path: list[str]) -> None:
    """Run `python WORDS` as that would, up to its end."""
    import random
    import runpy
    import types

    import numpy as np

    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    os.fsync = os.fstat  # as in conftest.py
    random.seed()
    np.random.seed()
    sys.executable = executable
    words = program["words"]
    if words[:1] == ["-u"]:
        words = words[1:]
        sys.stdout.reconfigure(write_through=True)
    kind, rest = words[0], words[1:]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    first = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(os.path.abspath(kind)))
    sys.path[:] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])
    elif kind.startswith("-"):
        raise SystemExit(f"{kind}: only -u, -c, -m and a file are known here")
    else:
        sys.argv = [kind, *rest]
        main.__file__ = kind
        exec(compile(Path(kind).read_bytes(), kind, "exec"), main.__dict__)


def run_to_end(program: dict, executable: str, path: list[str]) -> None:
    """The same in this process, which ends with it, as an interpreter would: what waits for the end is run."""
    import atexit
    import threading

    code = 0
    try:
        become(program, executable, path)
    except SystemExit as stopped:
        code = stopped.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = code or 120
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((code or 0) & 255)


def main(executable: str, place: str, *more: str) -> None:
    """The process that forks."""
    import gc
    import warnings

    path = sys.path[1:]  # without this file's folder
    sys.path[:] = ["", *path]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)
        for name in (*IMPORTS, *more):
            importlib.import_module(name)
    ours = {"attnfaith", "tests", "transformers", "huggingface_hub", "datasets", "evaluate", "accelerate", "tokenizers"}
    assert more or not (ours | {"entmax"}) & {name.partition(".")[0] for name in sys.modules}
    threads = {Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    assert len(threads - {"jemalloc_bg_thd"}) == 1, threads  # which a fork stops and starts anew
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as in conftest.py
    parent = Parent(executable, place)
    print("ready", flush=True)
    if program := parent.serve():
        run_to_end(program, executable, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
