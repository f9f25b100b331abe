"""Which plausible bugs do the tests notice? `python -m tests.mutation.run` from the root of the project.

With --fast: which do those tests notice that `make test` runs, without those marked slow?

Every mutant is put into a copy of the project, where its tests run until the first failure: then it is killed. One that no
test notices survives, and the command ends with exit code 1 and its list. Nothing in the project itself is changed.
A mutant whose tests time out, as an endless loop would, is killed.
"""

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant


ROOT = Path(__file__).parents[2]
COPIED = ("src", "recipes", "tests", "model_cards", "docs", "supply")
FILES = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "Makefile", "constraints.txt")
FILES += ("README.md", "CONTRIBUTING.md")
LIMIT = 300  # seconds for the tests of one mutant
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
FAST = ("-m", "not slow")
PASSED = (0, 5)  # exit codes of pytest: all passed; none was left to run
SAID = "said.txt"  # by the tests, in the copy


@dataclass(frozen=True)
class Outcome:
    """killed_by: the tests that noticed; "" for a survivor. seconds: until then."""

    mutant: Mutant
    killed_by: str
    seconds: float


def run(mutants: Sequence[Mutant], *, processes: int = 1, options: tuple[str, ...] = ()) -> list[Outcome]:
    """The outcome of each mutant, in their order; `processes` at a time, each in a copy of its own. options: of pytest.

    Raises AssertionError where tests fail without any mutant: then nothing could be said of one.
    """
    with tempfile.TemporaryDirectory() as folder:
        parts = [list(range(len(mutants)))[start::processes] for start in range(processes)]
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may stand still
        with context.Pool(processes) as pool:
            jobs = [
                (Path(folder) / str(number), [mutants[place] for place in part], options)
                for number, part in enumerate(parts)
            ]
            lists = pool.starmap(_run_part, jobs)
    outcomes = {
        place: outcome for part, each in zip(parts, lists, strict=True) for place, outcome in zip(part, each, strict=True)
    }
    return [outcomes[place] for place in range(len(mutants))]


def _run_part(copy: Path, mutants: Sequence[Mutant], options: tuple[str, ...]) -> list[Outcome]:
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    os.chdir(copy)
    sys.dont_write_bytecode = True  # the file of a mutant is as long, and as old to the second, as that of another
    os.environ |= {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    sys.path[:0] = [str(copy), str(copy / "src")]
    _warm_up()
    outcomes, known = [], {}
    for mutant in mutants:
        for test in mutant.tests:
            if test not in known:
                known[test] = _fails(test, options)
                assert not known[test], f"{test} fails without any mutant:\n{Path(SAID).read_text()[-4000:]}"
        outcomes.append(_outcome(copy / mutant.file, mutant, options))
        verdict = f"killed by {outcomes[-1].killed_by}" if outcomes[-1].killed_by else "SURVIVES"
        print(f"{mutant.file}: {mutant.bug}: {verdict} ({outcomes[-1].seconds:.0f} s)", flush=True)
    return outcomes


def _warm_up() -> None:
    """What every test imports, once for all children; nothing of ours, which mutants change, nor a plugin of pytest."""
    import datasets  # noqa: F401
    import entmax  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)


def _outcome(file: Path, mutant: Mutant, options: tuple[str, ...]) -> Outcome:
    source, start = file.read_text(), time.monotonic()
    assert source.count(mutant.old) == 1, f"{mutant.file}: {mutant.old!r} stands {source.count(mutant.old)} times"
    file.write_text(source.replace(mutant.old, mutant.new))
    try:
        killed_by = next((test for test in mutant.tests if _fails(test, options)), "")
    finally:
        file.write_text(source)
    return Outcome(mutant, killed_by, time.monotonic() - start)


def _fails(test: str, options: tuple[str, ...]) -> bool:
    """Whether a test of these fails, in a child of this process, so that nothing of it stays. What it says is in a file."""
    child = os.fork()
    if child == 0:
        import pytest

        with open(SAID, "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            code = 1
            for name in [name for name in sys.modules if name.partition(".")[0] in ("attnfaith", "tests")]:
                del sys.modules[name]  # the copy's are meant
            try:
                code = pytest.main([test, *OPTIONS, *options])
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(code))  # whatever was raised, the parent's code does not run here
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status) not in PASSED
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Lines: of each layer how many were tried and killed, then every survivor."""
    outcomes = list(outcomes)
    for layer in ("mathematics", "verdicts"):
        mine = [outcome for outcome in outcomes if outcome.mutant.layer == layer]
        yield f"{layer}: {len(mine)} tried, {sum(bool(outcome.killed_by) for outcome in mine)} killed"
    for outcome in outcomes:
        if not outcome.killed_by:
            yield f"survives: {outcome.mutant.file}: {outcome.mutant.bug}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="mutants of files with this in their path")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fast", action="store_true", help="without the tests marked slow, as `make test`")
    arguments = parser.parse_args()
    outcomes = run(
        [mutant for mutant in MUTANTS if arguments.only in mutant.file],
        processes=arguments.processes,
        options=FAST if arguments.fast else (),
    )
    print(*table(outcomes), sep="\n")
    return int(any(not outcome.killed_by for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
