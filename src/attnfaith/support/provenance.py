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
        "libraries": libraries(),
        "data": data or {},
        "seed": seed,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
    }


@functools.cache
def checkout(package: Path = Path(__file__).parents[1]) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout that tracks the package's files, and whether they differ; (None, None) without it.

    Of the state at the first call in a process.
    """

    def git(*arguments: str) -> str | None:
        # a hook that runs this has set where git looks
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(
                ["git", "-C", str(package), *arguments], capture_output=True, encoding="utf-8", env=environment, timeout=60
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # an installed package may lie inside somebody's checkout without being part of it
    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    changed = git("status", "--porcelain", "--", ".")
    return git("rev-parse", "HEAD"), None if changed is None else bool(changed)


def libraries() -> dict[str, str]:
    """Return the versions of the installed libraries that numbers depend on."""
    return {name: version for name in LIBRARIES if (version := _version(name)) is not None}


@functools.cache  # as it is imported: each is read from a file of a thousand lines
def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
