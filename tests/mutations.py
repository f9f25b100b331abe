"""Planted bugs: each line of `mutations.yaml` breaks the mathematics of one file, and its tests must notice.

`python -m tests.mutations` copies the package, plants one bug at a time, runs the tests that are named beside it and
prints which bugs nobody noticed. The tests have to pass without a bug. `--only WORD` takes the bugs whose file or line
holds the word.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import yaml


ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "attnfaith"
SECONDS = 600
"""The tests of one bug may take so long."""


def read() -> list[dict[str, str]]:
    """Return the bugs: {file, right, wrong, tests}, the file below the package and the tests below `tests`."""
    return yaml.safe_load((ROOT / "tests" / "mutations.yaml").read_text(encoding="utf-8"))


def fail(tests: Iterable[str], root: Path) -> bool:
    """Whether tests fail with the package that lies in `root`/src."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    command += [f"tests/{name}" for name in tests]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS)
    if run.returncode not in (0, 1):  # neither passed nor failed: no test ran
        raise SystemExit(f"{' '.join(tests)} did not run:\n{run.stdout.decode()[-2000:]}")
    return run.returncode == 1


def is_noticed(bug: dict[str, str], root: Path) -> bool:
    """Whether the tests of a bug fail when it is planted in the package in `root`/src, which is mended again."""
    path = root / "src" / "attnfaith" / bug["file"]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(bug["right"], bug["wrong"]), encoding="utf-8")
    try:
        return fail(bug["tests"].split(), root)
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a word that the file or the line holds")
    word = parser.parse_args().only
    bugs = [bug for bug in read() if word in bug["file"] or word in bug["right"]]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(PACKAGE, root / "src" / "attnfaith", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "recipes").symlink_to(ROOT / "recipes")
        if fail(sorted({name for bug in bugs for name in bug["tests"].split()}), root):
            raise SystemExit("the tests fail without a bug")
        for bug in bugs:
            begin = time.perf_counter()
            noticed = is_noticed(bug, root)
            missed += not noticed
            state = "noticed" if noticed else "MISSED "
            print(f"{state} {time.perf_counter() - begin:4.0f} s  {bug['file']}: {bug['wrong'].strip()}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
