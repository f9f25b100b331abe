"""The provenance of a model and its numbers: code, commit, libraries, data.

It holds neither command line nor environment, and so no path, host, user or access token.
"""

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import attnfaith


LIBRARIES = (
    *("torch", "transformers", "datasets", "tokenizers", "accelerate", "evaluate", "huggingface-hub", "safetensors"),
    *("entmax", "numpy", "scipy", "pandas", "pyarrow"),
)


def collect(*, seed: int, data: dict | None = None, device: str | None = None) -> dict:
    """Return the provenance of this process's results, as JSON.

    data: {"revision", "fingerprint"} of the data. device: of the computation. commit and dirty are None where the package
    lies in no git checkout; dirty: whether the package's own files differ from the commit.
    """
    commit, dirty = checkout()
    return {
        "version": attnfaith.__version__,
        "commit": commit,
        "dirty": dirty,
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "data": data or {},
        "seed": seed,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
    }


@functools.cache
def checkout(package: Path = Path(__file__).parents[1]) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout that tracks the package's files, and whether they differ, as at the first call;
    (None, None) without it.
    """
    # a hook that runs this has set where git looks
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    how = {"cwd": package, "env": environment, "capture_output": True, "encoding": "utf-8", "check": True, "timeout": 60}
    try:
        # an installed package may lie inside somebody's checkout without being part of it
        subprocess.run(["git", "ls-files", "--error-unmatch", "__init__.py"], **how)
        commit = subprocess.run(["git", "rev-parse", "HEAD"], **how).stdout.strip()
        return commit, bool(subprocess.run(["git", "status", "--porcelain", "--", "."], **how).stdout)
    except (OSError, subprocess.SubprocessError):
        return None, None
