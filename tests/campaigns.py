"""Commands under attack: killed at a random moment, on a full disk, beside a second process, and with hostile input.

    python -m tests.campaigns [--seed 1] [--small] [--only kill disk two input]

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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
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

from attnfaith import cli  # noqa: E402
from attnfaith.support import provenance  # noqa: E402
from tests.figures import IN_A_PROCESS  # noqa: E402
from tests.hub.server import KINDS, HubServer  # noqa: E402


RECIPE = """
name: tiny
output_dir: run
seed: {seed}
data: {{arguments: {{length: [4, 8], vocabulary_size: 40, sizes: {{train: 24, validation: 8, test: 8}}}}}}
model: {{encoder: average, embedding_size: 8, hidden_size: 8}}
training: {{num_train_epochs: 2, learning_rate: 1e-2, arguments: {{disable_tqdm: true}}}}
measure: {{producers: [gradient]}}
report: {{examples: 1}}
"""
TRAIN, MEASURE = "train --config tiny.yaml", "measure run --producers gradient leave_one_out"
OWN = f"{TRAIN} --output_dir new --data.path own.csv"
SCENARIOS = {  # the command, what goes on with it, the command of a second process
    "train": (TRAIN, f"{TRAIN} --resume_from_checkpoint", "train --config other.yaml"),
    "measure": (f"{MEASURE} --overwrite", f"{MEASURE} --overwrite", "measure run --limit 5 --overwrite"),
    "report": ("report run --examples 2", "report run --examples 2", "report run --examples 3"),
    "push": ("push run --to {owner}", "push run --to {owner}", "push run --to {owner} --name other"),
}
ATTEMPTS = {"kill": 40, "disk": 16, "two": 10, "input": 12}  # of each scenario, and of each file that is damaged
OWNERS = [f"owner{number}" for number in range(120)]  # of repositories on the Hub
PLANNED: list[tuple[str, str, Callable]] = []  # all attempts
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def start(words: str, root: Path, owner: str = OWNERS[0], at: int = 0, act: Callable = int) -> tuple[int, int]:
    """Begin a command in a fork that works there; its process and a pipe. act: done before its file event number `at`."""
    printed, printing = os.pipe()
    if child := os.fork():
        os.close(printing)
        return child, printed
    code, inherited = 1, {*weakref.finalize._registry}
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(printing, stream)
        settle(root, owner)
        watch(root, at, act)
        code = cli.main(words.format(owner=owner).split())
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            for finalizer in {*weakref.finalize._registry} - inherited:  # as an interpreter does at its end
                finalizer()
        os._exit(code)


def end(child: int, printed: int) -> tuple[int, str]:
    """Wait for its exit code, minus the signal where one ended it, and all that it printed."""
    try:
        output = os.fdopen(printed, "rb").read().decode(errors="replace")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        raise


def refusal(code: int, output: str) -> list[str]:
    """What is wrong with a refusal."""
    lines = sum(line.startswith("error: ") for line in output.splitlines())
    clean = code == 2 and lines == 1 and "Traceback" not in output
    return [] if clean else [f"exit code {code}, {lines} lines of error: {output[-400:]}"]


def settle(root: Path, owner: str) -> None:
    """Make this process one that was started there, and whose files do not say when, or by which code, they were made."""
    time.perf_counter, os.fsync, provenance.checkout = lambda: 0.0, os.fstat, lambda: ("0" * 40, False)
    os.environ.update(TMPDIR=str(root / "temporary"), HF_TOKEN=f"hf_{owner}_kept_secret")
    tempfile.tempdir = str(root / "temporary")
    os.chdir(root / "here")
    home = str(root / "home")
    evaluate.config.HF_MODULES_CACHE = datasets.config.HF_MODULES_CACHE = datasets.config.HF_DATASETS_CACHE = home
    evaluate.config.HF_EVALUATE_CACHE = evaluate.config.HF_METRICS_CACHE = home
    huggingface_hub.constants.HF_HUB_CACHE = huggingface_hub.file_download.HF_HUB_CACHE = home


def watch(root: Path, at: int, act: Callable) -> None:
    """Count file events of this process: files that Python opens to write, renames or removes, folders made or removed."""
    count, counter = 0, os.open(root / "events", os.O_WRONLY | os.O_CREAT)

    def hook(event: str, words: tuple) -> None:
        nonlocal count
        opened = event == "open" and not isinstance(words[0], int) and isinstance(words[2], int) and words[2] & WRITES
        if (opened or event in CHANGES) and not os.fsdecode(words[0]).startswith(("/dev/", "/proc/")):
            count += 1
            act() if count == at else at or os.pwrite(counter, str(count).encode(), 0)

    sys.addaudithook(hook)


def contents(folder: Path) -> dict[str, str]:
    """Digests of all files below a folder by path, and "/" of empty folders."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in sorted(folder.rglob("*"))
        if path.is_file() or (path.is_dir() and not any(path.iterdir()))
    }


def differing(now: dict[str, str], expected: dict[str, str]) -> list[str]:
    return sorted(path for path in {*now, *expected} if now.get(path) != expected.get(path))


def broken(folder: Path, paths: Iterable[str] | None = None) -> list[str]:
    """Files, all unless some are named, that are not whole under their final names; no hidden one, no checkpoint."""
    readers = {
        ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
        ".parquet": lambda path: pq.read_table(path).validate(full=True),
        ".safetensors": safetensors.numpy.load_file,
        ".html": lambda path: path.read_text(encoding="utf-8").rindex("</html>"),
    }
    wrong = []
    for path in sorted(folder.rglob("*")) if paths is None else [folder / path for path in paths]:
        parts = path.relative_to(folder).parts
        if path.suffix in readers and path.is_file() and not any(part[0] == "." or part == "checkpoints" for part in parts):
            try:
                readers[path.suffix](path)
            except Exception as error:
                wrong.append(f"{'/'.join(parts)} is not whole ({type(error).__name__})")
    return wrong


def mixed(now: dict[str, str], before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Old files that are neither as they were nor as the command leaves them, but for progress; a report of old and new."""
    wrong = [
        path
        for path in {*before} - {"run/run.json", "run/recipe.yaml"}
        if now.get(path) not in (before[path], after.get(path, ""))
    ]
    changed = [path for path in before if path.startswith("run/report/") and before[path] != after.get(path)]
    parts = {now.get(path) == before[path] for path in changed}
    return [f"{path} is neither old nor new" for path in wrong] + ["the report is partly old"] * (len(parts) == 2)


def pushed(hub: HubServer, owner: str) -> dict[str, tuple[int, frozenset[str]]]:
    """Of each repository of an owner: the number of commits, and the paths of the newest."""
    return {
        f"{kind} {name.removeprefix(owner)}": (len(log), frozenset(log[-1].files) - {".gitattributes"})
        for kind in KINDS
        for name in hub.repos(kind)
        if name.startswith(f"{owner}/")
        for log in [hub.history(kind, name)]
    }


class Stage:
    """What attempts inherit: a finished run, a Hub, and what each command comes to undisturbed."""

    def __init__(self, root: Path, hub: HubServer):
        self.root, self.hub, self.references = root, hub, {}
        place = self.place(root / "first", begun=False)
        exec(IN_A_PROCESS)  # reports with few figures
        settle(place, OWNERS[0])
        with contextlib.redirect_stdout(io.StringIO()):  # what is imported here, no command imports again
            for words in (TRAIN, f"{MEASURE} --output new.parquet", "push run --to me --dry-run"):
                assert cli.main(words.split()) == 0, words
        shutil.copytree(place / "here" / "run", root / "run")
        gc.freeze()  # else every fork looks at all that was imported, and gets a copy of it

    def place(self, root: Path, begun: bool = True) -> Path:
        """A folder with a current folder, a temporary folder and a home; the first holds the recipes and a finished run."""
        for name in ("here", "temporary", "home"):
            (root / name).mkdir(parents=True)
        for name, seed in (("tiny.yaml", 3), ("other.yaml", 4)):
            (root / "here" / name).write_text(RECIPE.format(seed=seed))
        if begun:
            shutil.copytree(self.root / "run", root / "here" / "run")
        return root

    def refer(self, words: str) -> tuple[dict, dict, dict, int]:
        """Files before and after a command, repositories and the number of file events, undisturbed."""
        if words not in self.references:
            place, owner = self.place(self.root / f"{len(self.references)}", words[:5] != "train"), OWNERS.pop()
            before, (code, output) = contents(place / "here"), end(*start(words, place, owner))
            assert code == 0, f"undisturbed, {words} fails: {output[-2000:]}"
            after, events = contents(place / "here"), int((place / "events").read_text())
            self.references[words] = before, after, pushed(self.hub, owner), events
        return self.references[words]


def disturb(stage: Stage, kind: str, name: str, owner: str, chance: random.Random, folder: Path) -> list[str]:
    """A command that is killed, or finds the disk full, at a random file event or soon after it; then it goes on."""
    words, again, _ = SCENARIOS[name]
    before, after, repositories, events = stage.refer(words)
    at_once, soon = signal.SIGKILL, chance.uniform(0, 0.05)  # by SIGALRM, which nothing catches
    kills = (partial(signal.raise_signal, at_once), partial(signal.setitimer, signal.ITIMER_REAL, soon))
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))  # no library can write a byte any more
    place, act = stage.place(folder, name != "train"), full if kind == "disk" else chance.choice(kills)
    code, output = end(*start(words, place, owner, chance.randint(1, events), act))
    harm = broken(place / "here") + (mixed(contents(place / "here"), before, after) if code else [])
    for repository, (_, paths) in pushed(stage.hub, owner).items():
        harm += [f"{repository} is half pushed"] if paths not in (set(), repositories[repository][1]) else []
    harm = [f"after the end by {code} {line}" for line in harm] + (refusal(code, output) if code > 0 else [])
    if code:
        code, output = end(*start(again, place, owner))
        harm += [f"repeated, it ends with {code}: {output[-400:]}"] if code else []
    harm += [f"{path} is not as it is undisturbed" for path in differing(contents(place / "here"), after)[:3]]
    harm += [f"{path} stays in the temporary folder" for path in contents(place / "temporary")]
    return harm + (["the Hub does not hold the run"] if pushed(stage.hub, owner) != repositories else [])


def together(stage: Stage, kind: str, name: str, owner: str, chance: random.Random, folder: Path) -> list[str]:
    """A command that stands still at a random file event while a second works in its folder from beginning to end."""
    both = SCENARIOS[name][::2]
    place, at = stage.place(folder, name != "train"), chance.randint(1, stage.refer(both[0])[3])
    child, printed = start(both[0], place, owner, at, partial(signal.raise_signal, signal.SIGSTOP))
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    second = end(*start(both[1], place, owner))
    os.kill(child, signal.SIGCONT)
    ends = [end(child, printed), second]
    harm = [line for code, output in ends if code for line in refusal(code, output)] + broken(place / "here")
    left = [differing(contents(place / "here"), stage.refer(words)[1]) for words in both]
    if not any(code == 0 and not paths for (code, _), paths in zip(ends, left, strict=True)):
        harm.append(f"exit codes {[code for code, _ in ends]}, and what lies there is of neither: {left}")
    return harm + [f"{path} stays in the temporary folder" for path in contents(place / "temporary")]


def refused(stage: Stage, words: str, change: Callable[[Path], object], maybe: bool, folder: Path) -> list[str]:
    """A command with hostile input: a refusal that leaves all as it was; maybe: or success, and whole files."""
    place = stage.place(folder)
    change(place / "here")
    before, (code, output) = contents(place / "here"), end(*start(words, place))
    left = differing(contents(place / "here"), before)
    harm = [f"{path} stays in the temporary folder" for path in contents(place / "temporary")]
    harm += broken(place / "here", left) if maybe else [f"{path} is left or changed" for path in left]
    return harm if maybe and code == 0 else harm + refusal(code, output)


INPUTS = rf"""
a recipe that is no YAML            | train --config own.yaml | own.yaml | a: [1
a recipe of bytes                   | train --config own.yaml | own.yaml | \xff\xfe\x00
an unknown key                      | train --config own.yaml | own.yaml | output_dir: new\ncolour: red
a key that stands twice             | train --config own.yaml | own.yaml | output_dir: new\nseed: 1\nseed: 2
a tag that makes an object          | train --config own.yaml | own.yaml | note: !!python/object/apply:os.getcwd []
a seed that is a text               | {TRAIN} --output_dir new --seed many |
a learning rate that is no number   | {TRAIN} --output_dir new --learning_rate nan |
an unknown measure                  | {TRAIN} --output_dir new --measure.producers [nothing] |
an unknown option                   | {TRAIN} --output_dir new --no_such_option 1 |
an output folder that is a file     | {TRAIN} --output_dir other.yaml |
a finished run                      | {TRAIN} |
data that are not there             | {OWN} |
data without a row                  | {OWN} | own.csv | text,label\n
data of one label                   | {OWN} | own.csv | text,label\na b,x\nc d,x\ne f,x\n
data without labels                 | {OWN} | own.csv | text,other\na b,x\nc d,y\n
data without words                  | {OWN} | own.csv | text,label\n,x\n,y\n
data that are no UTF-8              | {OWN} | own.csv | text,label\n\xff\xfe,x\n
data of zero bytes                  | {OWN} | own.csv | \0\0\0\0\0\0\0\0
a run that is not there             | report nowhere |
a run without a record              | report run | run/record.parquet | \n
a record that is no parquet         | report own.parquet | own.parquet | PAR1
a push without a record             | push run --to owner0 | run/record.parquet | \n
a push to somebody else             | push run --to owner1 |
a study that is no mapping          | study own.yaml | own.yaml | - 1
a command that is none              | trian |
damaged texts                       | {OWN} | own.csv
damaged recipe                      | {TRAIN} --output_dir new | tiny.yaml
damaged state of a run              | report run | run/run.json
damaged recipe of a run             | {MEASURE} --output new.parquet | run/recipe.yaml
damaged record                      | report run | run/record.parquet
damaged configuration               | {MEASURE} --output new.parquet | run/model/config.json
damaged weights                     | {MEASURE} --output new.parquet | run/model/model.safetensors
damaged tokenizer                   | {MEASURE} --output new.parquet | run/model/tokenizer.json
"""


def put(name: str, content: str, here: Path) -> None:
    """Write a file that has content."""
    if name:
        (here / name).write_bytes(content.encode().decode("unicode_escape").encode("latin-1"))


def damage(name: str, chance: random.Random, here: Path) -> None:
    """Cut a file, put other bytes somewhere in it, or take some away."""
    (here / "own.csv").write_text("text,label\n" + "a b c,x\nd e f,y\n" * 20)
    content = (here / name).read_bytes()
    place, length = chance.randrange(len(content)), chance.choice((1, 8, 200))
    other = chance.choice((b"", chance.randbytes(length), b"\0" * length, b"9" * length))
    (here / name).write_bytes(content[:place] + (b"" if chance.random() < 0.3 else other + content[place + length :]))


def attempts(stage: Stage, kinds: Iterable[str], seed: int, small: bool) -> Iterator[tuple[str, str, Callable]]:
    """Kind, part and act of each attempt; an act takes a folder and gives the harm done."""
    for kind in kinds:
        count = 1 if small else ATTEMPTS[kind]
        for name, (words, _, second) in SCENARIOS.items() if kind != "input" else ():
            stage.refer(words), kind == "two" and stage.refer(second)
            act = together if kind == "two" else disturb
            for number in range(count):
                owner = OWNERS.pop() if name == "push" else OWNERS[0]
                yield kind, name, partial(act, stage, kind, name, owner, random.Random(f"{seed} {kind} {name} {number}"))
        if kind == "input":
            for line in INPUTS.strip().splitlines()[:: 6 if small else 1]:
                name, words, file, content = [cell.strip() for cell in f"{line}||".split("|")][:4]
                maybe = name.startswith("damaged")
                for number in range(count if maybe else 1):
                    change = partial(damage, file, random.Random(f"{seed} {name} {number}"))
                    yield kind, name, partial(refused, stage, words, change if maybe else partial(put, file, content), maybe)


def carry_out(number: int) -> tuple[str, str, list[str]]:
    """Make an attempt in a worker; its kind, its part and the harm done."""
    (kind, part, act), folder = PLANNED[number], Path(f"{number}").resolve()
    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(300)
    try:
        harm = act(folder=folder)
    except Exception:
        harm = [traceback.format_exc()]
    signal.alarm(0)
    if not harm:
        shutil.rmtree(folder)
    return kind, part, [f"HARM {kind} {part}, {folder}: {line}" for line in harm]


def hangs(*_) -> None:
    raise TimeoutError("no end in 300 s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns")
    parser.add_argument("--only", nargs="+", choices=[*ATTEMPTS], default=[*ATTEMPTS])
    parser.add_argument("--small", action="store_true", help="one attempt of each kind, for the tests")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    output = Path("build/campaigns").resolve()  # what attempts leave that did harm
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    made, harmful = Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder, HubServer(Path(folder, "hub"), port=PORT) as hub:
        for owner in OWNERS:
            hub.add_user(owner, f"hf_{owner}_kept_secret")
        PLANNED.extend(attempts(Stage(Path(folder), hub), options.only, options.seed, options.small))
        os.chdir(output)
        with ProcessPoolExecutor(2, get_context("fork")) as workers:
            for kind, part, harm in workers.map(carry_out, range(len(PLANNED))):
                made[kind, part] += 1
                harmful[kind, part] += bool(harm)
                print(*harm, sep="\n", end="\n" if harm else "", flush=True)
    print("| campaign | part | attempts | harm |\n|---|---|---|---|")
    for kind, part in made:
        print(f"| {kind} | {part} | {made[kind, part]} | {harmful[kind, part]} |")
    print(f"| all | all | {made.total()} | {harmful.total()} |")
    return int(harmful.total() > 0 or not made)


if __name__ == "__main__":
    sys.exit(main())
