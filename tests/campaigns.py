"""Commands that are killed at a random moment, or find the disk full, and are then repeated.

    python -m tests.campaigns [--seed 1] [--count 20] [--only train measure report push]

Harm is a file that is not whole under its final name, old and new files mixed, a command that, repeated, does not come to
what it comes to undisturbed, an error that is not exit code 2 and one line, or a temporary file that stays. The exit code is
1 where there is harm. The seed draws the moments. This needs Linux.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    PORT = free.getsockname()[1]
os.environ.update(HF_ENDPOINT=f"http://127.0.0.1:{PORT}", NO_PROXY="127.0.0.1", HF_HUB_OFFLINE="0", HF_HUB_DISABLE_XET="1")
os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True  # else the first file events are of that
import datasets  # noqa: E402
import evaluate  # noqa: E402
import huggingface_hub  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import safetensors.numpy  # noqa: E402
import yaml  # noqa: E402

from attnfaith import cli  # noqa: E402
from attnfaith.support import provenance  # noqa: E402
from tests.figures import IN_A_PROCESS  # noqa: E402
from tests.hub.server import KINDS, HubServer  # noqa: E402
from tests.tiny_recipes import tiny_tree  # noqa: E402


TRAIN, MEASURE = "train --config tiny.yaml", "measure run --producers gradient leave_one_out"
SCENARIOS = {  # the command, and the command that goes on with it
    "train": (TRAIN, f"{TRAIN} --resume_from_checkpoint"),
    "measure": (f"{MEASURE} --overwrite", f"{MEASURE} --overwrite"),
    "report": ("report run --examples 2", "report run --examples 2"),
    "push": ("push run --to {owner}", "push run --to {owner}"),
}
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SECONDS = 300  # of the longest command


def run(words: str, place: Path, owner: str, at: int = 0, act: Callable = int) -> tuple[int, str]:
    """Run a command in a fork; return its exit code, minus the signal that ended it, and its output.

    act: called before the command's file event number `at`.
    """
    printed, printing = os.pipe()
    if child := os.fork():
        os.close(printing)
        output = os.fdopen(printed, "rb").read().decode(errors="replace")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output
    code, inherited = 1, {*weakref.finalize._registry}
    try:
        signal.alarm(SECONDS)
        for stream in (1, 2):
            os.dup2(printing, stream)
        settle(place, owner)
        watch(place, at, act)
        code = cli.main(words.format(owner=owner).split())
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            for finalizer in {*weakref.finalize._registry} - inherited:  # as an interpreter does at its end
                finalizer()
        os._exit(code)


def settle(place: Path, owner: str) -> None:
    """Work in a folder, with files that do not depend on the time and the code that made them."""
    time.perf_counter, os.fsync, provenance.checkout = lambda: 0.0, os.fstat, lambda: ("0" * 40, False)
    os.environ.update(TMPDIR=str(place / "temporary"), HF_TOKEN=f"hf_{owner}")
    tempfile.tempdir = str(place / "temporary")
    os.chdir(place / "here")
    home = str(place / "home")
    evaluate.config.HF_MODULES_CACHE = datasets.config.HF_MODULES_CACHE = datasets.config.HF_DATASETS_CACHE = home
    evaluate.config.HF_EVALUATE_CACHE = evaluate.config.HF_METRICS_CACHE = home
    huggingface_hub.constants.HF_HUB_CACHE = huggingface_hub.file_download.HF_HUB_CACHE = home


def watch(place: Path, at: int, act: Callable) -> None:
    """Count the files that this process opens to write, renames or removes, and the folders that it makes or removes."""
    count, counter = 0, os.open(place / "events", os.O_WRONLY | os.O_CREAT)

    def hook(event: str, words: tuple) -> None:
        nonlocal count
        opened = event == "open" and not isinstance(words[0], int) and isinstance(words[2], int) and words[2] & WRITES
        if (opened or event in CHANGES) and not os.fsdecode(words[0]).startswith(("/dev/", "/proc/")):
            count += 1
            act() if count == at else at or os.pwrite(counter, str(count).encode(), 0)

    sys.addaudithook(hook)


def contents(folder: Path) -> dict[str, str]:
    """Return digests of all files below a folder by path, and "/" of empty folders."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in sorted(folder.rglob("*"))
        if path.is_file() or (path.is_dir() and not any(path.iterdir()))
    }


READERS = {
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".parquet": lambda path: pq.read_table(path).validate(full=True),
    ".safetensors": safetensors.numpy.load_file,
    ".html": lambda path: path.read_text(encoding="utf-8").rindex("</html>"),
}


def broken(folder: Path) -> list[str]:
    """Return the files that are not whole under their final names; hidden ones and checkpoints do not count."""
    wrong = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.suffix in READERS and path.is_file() and not any(part[0] == "." or part == "checkpoints" for part in parts):
            try:
                READERS[path.suffix](path)
            except Exception as error:
                wrong.append(f"{'/'.join(parts)} is not whole ({type(error).__name__})")
    return wrong


def mixed(now: dict[str, str], before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the old files that are neither as they were nor as the command leaves them, and a report of both kinds."""
    old = {*before} - {"run/run.json", "run/recipe.yaml"}  # which hold progress
    wrong = [f"{path} is neither old nor new" for path in old if now.get(path) not in (before[path], after.get(path, ""))]
    changed = [path for path in before if path.startswith("run/report/") and before[path] != after.get(path)]
    return wrong + ["the report is partly old"] * (len({now.get(path) == before[path] for path in changed}) == 2)


class Stage:
    """A finished run and a Hub, which all attempts start from."""

    def __init__(self, root: Path, hub: HubServer):
        self.root, self.hub, self.owners, self.references = root, hub, 0, {}
        first = self.place(begun=False)
        exec(IN_A_PROCESS)  # reports with few figures
        settle(first, self.owner())
        with contextlib.redirect_stdout(io.StringIO()):  # what is imported here, no command imports again
            for words in (TRAIN, f"{MEASURE} --output new.parquet", "push run --to me --dry-run"):
                assert cli.main(words.split()) == 0, words
        shutil.copytree(first / "here" / "run", root / "run")
        gc.freeze()  # else every fork looks at all that was imported, and gets a copy of it

    def owner(self) -> str:
        """Return a new user of the Hub."""
        self.owners += 1
        self.hub.users[f"hf_owner{self.owners}"] = f"owner{self.owners}"
        return f"owner{self.owners}"

    def place(self, begun: bool) -> Path:
        """Return a new folder with a current folder, a temporary folder and a home; begun: with the finished run."""
        place = Path(tempfile.mkdtemp(dir=self.root))
        for name in ("here", "temporary", "home"):
            (place / name).mkdir()
        (place / "here" / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree("run")))
        if begun:
            shutil.copytree(self.root / "run", place / "here" / "run")
        return place

    def pushed(self, owner: str) -> dict[str, set[str]]:
        """Return the paths in each repository of an owner."""
        names = [(kind, name) for kind, name in self.hub.held if kind in KINDS and name.startswith(f"{owner}/")]
        return {f"{kind} {name.removeprefix(owner)}": {*self.hub.history(kind, name)[-1].entries} for kind, name in names}

    def undisturbed(self, name: str) -> tuple[dict, dict, dict, int]:
        """Return the files before and after a command, the repositories, and the number of file events."""
        if name not in self.references:
            place, owner = self.place(name != "train"), self.owner()
            before, (code, output) = contents(place / "here"), run(SCENARIOS[name][0], place, owner)
            assert code == 0, f"undisturbed, {name} fails: {output[-2000:]}"
            after, events = contents(place / "here"), int((place / "events").read_text())
            self.references[name] = before, after, self.pushed(owner), events
        return self.references[name]

    def disturb(self, kind: str, name: str, chance: random.Random) -> list[str]:
        """Disturb a command at a random file event or soon after it, then repeat it; return the harm."""
        words, again = SCENARIOS[name]
        before, after, repositories, events = self.undisturbed(name)
        soon = partial(signal.setitimer, signal.ITIMER_REAL, chance.uniform(0, 0.05))  # by SIGALRM, which nothing catches
        full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))  # no library can write a byte any more
        act = full if kind == "disk" else chance.choice((partial(signal.raise_signal, signal.SIGKILL), soon))
        place, owner = self.place(name != "train"), self.owner()
        code, output = run(words, place, owner, chance.randint(1, events), act)
        harm = broken(place / "here") + (mixed(contents(place / "here"), before, after) if code else [])
        for repository, paths in self.pushed(owner).items():
            harm += [] if paths in ({".gitattributes"}, repositories[repository]) else [f"{repository} is half pushed"]
        errors = sum(line.startswith("error: ") for line in output.splitlines())
        if code > 0 and (code != 2 or errors != 1 or "Traceback" in output):
            harm.append(f"exit code {code}, {errors} lines of error: {output[-400:]}")
        if code:
            code, output = run(again, place, owner)
            harm += [f"repeated, it ends with {code}: {output[-400:]}"] if code else []
        now = contents(place / "here")
        harm += [f"{path} is not as it is undisturbed" for path in {*now, *after} if now.get(path) != after.get(path)][:3]
        harm += [f"{path} stays in the temporary folder" for path in contents(place / "temporary")]
        harm += ["the Hub does not hold the run"] if self.pushed(owner) != repositories else []
        if not harm:
            shutil.rmtree(place)
        return harm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns")
    parser.add_argument("--only", nargs="+", choices=[*SCENARIOS], default=[*SCENARIOS])
    parser.add_argument("--count", type=int, default=20, help="attempts of each kind on each command")
    parser.add_argument("--seed", type=int, default=1)
    options, harmful = parser.parse_args(), 0
    print("| campaign | command | attempts | harm |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, HubServer(port=PORT) as hub:
        stage = Stage(Path(folder), hub)
        for kind in ("kill", "disk"):
            for name in options.only:
                draws = [random.Random(f"{options.seed} {kind} {name} {number}") for number in range(options.count)]
                harms = [harm for harm in (stage.disturb(kind, name, chance) for chance in draws) if harm]
                print(f"| {kind} | {name} | {options.count} | {len(harms)} |", flush=True)
                print(*(f"HARM {line}" for harm in harms for line in harm), sep="\n", file=sys.stderr)
                harmful += len(harms)
    return int(harmful > 0)


if __name__ == "__main__":
    sys.exit(main())
