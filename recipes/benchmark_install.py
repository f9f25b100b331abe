"""What the base installation costs: packages, megabytes, seconds, and the seconds until it can be used.

An empty environment of this Python, the packages fetched first so that no network is timed, and nothing for tests, plots or
demonstrations. The table goes to recipes/benchmark_results.

    python recipes/benchmark_install.py
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from benchmark_timing import processor, save


ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "benchmark_results"
REPEATS = 5
STEPS = {"import": "import attnfaith", "measuring": "import attnfaith; attnfaith.measure"}
"""What is timed in a new process: the package, which imports next to nothing, and what a first measurement imports."""


def timed(command: list[str], folder: str) -> tuple[float, float]:
    """Wall and core seconds of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env={**os.environ, "PYTHONPATH": ""}, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure(folder: str) -> dict[str, object]:
    """One row; folder is empty, and takes the packages and the environment."""
    apart, fetched = Path(folder) / "environment", Path(folder) / "fetched"
    venv.create(apart, with_pip=True)
    python = str(next(apart.glob("*/python")))
    packages = next(apart.rglob("site-packages"))
    empty, before = megabytes(packages), len(list(packages.glob("*.dist-info")))
    pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "wheel", *pinned, "--wheel-dir", str(fetched), "torch", str(ROOT)], check=True)
    load = os.getloadavg()[0]
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *map(str, fetched.glob("*.whl"))]
    wall, core = timed(install, folder)
    row = {
        "torch": subprocess.check_output(
            [python, "-c", "import torch; print(torch.__version__)"], encoding="utf-8", cwd=folder
        ).strip(),
        "packages": len(list(packages.glob("*.dist-info"))) - before,
        "fetched_megabytes": megabytes(fetched),
        "megabytes": megabytes(packages) - empty,
        "torch_megabytes": megabytes(packages / "torch"),
        "install_seconds": wall,
        "install_core_seconds": core,
    }
    for name, statement in STEPS.items():
        times = [timed([python, "-c", statement], folder) for _ in range(REPEATS + 1)][1:]  # the first one fills caches
        row[f"{name}_seconds"] = statistics.median(wall for wall, _ in times)
        row[f"{name}_core_seconds"] = statistics.median(core for _, core in times)
    return row | {"load": load, "repeats": REPEATS}


def main(arguments=None) -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        row = measure(folder)
    about = f"{processor()}, Python {platform.python_version()}, load {row['load']:.1f} when it began."
    save([row], RESULTS / "install", "# The base installation", about)


if __name__ == "__main__":
    sys.exit(main())
