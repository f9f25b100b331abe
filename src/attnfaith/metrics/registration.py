"""Make `evaluate.load("attention_faithfulness")` find the metric of this package, in evaluate's cache of modules."""

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path


METRIC_NAME = "attention_faithfulness"
METRIC_DIR = Path(__file__).parent / METRIC_NAME


def register_metric() -> None:
    """`install_metric` where the cache can be written; elsewhere `evaluate.load` takes the metric's folder, METRIC_DIR."""
    with suppress(OSError):
        install_metric()


def install_metric() -> Path:
    """Copy the metric into evaluate's cache of modules, unless this version of it is there; return the path of its script.

    The cache, `HF_MODULES_CACHE` (by default modules/ under `HF_HOME`), is read by every program of this user; of several
    versions evaluate takes the one installed last. Where the Hub can be reached evaluate asks it first, but with
    `HF_EVALUATE_OFFLINE=1`. Raises OSError where the cache cannot be written.
    """
    from evaluate import config

    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(METRIC_DIR.glob("*.py")))).hexdigest()
    versions = Path(config.HF_MODULES_CACHE) / "evaluate_modules" / "metrics" / f"evaluate-metric--{METRIC_NAME}"
    script = versions / digest / f"{METRIC_NAME}.py"
    if not script.is_file():
        versions.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=versions) as folder, suppress(OSError):  # another process may be faster
            shutil.copytree(METRIC_DIR, Path(folder, digest), ignore=shutil.ignore_patterns("__pycache__", "*.md", "*.txt"))
            Path(folder, digest).rename(script.parent)  # whole or not at all
    os.utime(script)
    return script
