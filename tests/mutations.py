"""Planted bugs: each line of `mutations.yaml` breaks the mathematics of one file, and its tests must notice.

`python -m tests.mutations` copies the package, plants one bug at a time, runs the tests that are named beside it and
prints which bugs nobody noticed. `--only WORD` takes those whose file or line holds the word.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml


ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "attnfaith"
SECONDS = 600
"""Longest run of the tests of one bug."""


def read() -> list[dict[str, str]]:
    """Return the bugs: {file, right, wrong, tests}, the file below the package and the tests below `tests`."""
    return yaml.safe_load((ROOT / "tests" / "mutations.yaml").read_text(encoding="utf-8"))


def is_noticed(bug: dict[str, str], copy: Path) -> bool:
    """Whether the tests of a bug fail when it is planted in a copy of the package; the copy is mended again."""
    path = copy / "attnfaith" / bug["file"]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(bug["right"], bug["wrong"]), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    tests = [f"tests/{name}" for name in bug["tests"].split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    try:
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS)
    finally:
        path.write_text(text, encoding="utf-8")
    if run.returncode not in (0, 1):  # neither passed nor failed: no test ran
        raise SystemExit(f"{bug['tests']} did not run:\n{run.stdout.decode()[-2000:]}")
    return run.returncode == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a word that the file or the line holds")
    word = parser.parse_args().only
    bugs = [bug for bug in read() if word in bug["file"] or word in bug["right"]]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "attnfaith", ignore=shutil.ignore_patterns("__pycache__"))
        for bug in bugs:
            begin = time.perf_counter()
            noticed = is_noticed(bug, Path(folder))
            missed += not noticed
            state = "noticed" if noticed else "MISSED "
            print(f"{state} {time.perf_counter() - begin:4.0f} s  {bug['file']}: {bug['wrong'].strip()}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
