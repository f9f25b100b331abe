"""Where a model and its numbers come from: code, commit, libraries, command; nothing that names a person or a place.

No path of a machine, host, user or token is ever part of it: an absolute path is cut to its last part, or to what lies
below the working directory, and the values of options that hold secrets are left out.
"""

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePath

import attnfaith
from attnfaith.redaction import HIDDEN, OPTION, redacted


LIBRARIES = (
    "torch",
    "transformers",
    "datasets",
    "tokenizers",
    "accelerate",
    "evaluate",
    "huggingface-hub",
    "safetensors",
    "entmax",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
)
SECRET_KEY = re.compile(  # in a value that is YAML
    r"(\b[\w-]*(?:token|secret|passw(?:or)?d|api[-_]?key|auth)['\"]?\s*[:=]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,}\]]+)", re.I
)
SHORT_TOKEN = re.compile(r"\b(?:hf|api_org)_\w{4,}")  # no word of a command begins so
FOLDER = re.compile(r"(?<![\w.:/~-])~?/[^\s,\]}'\"]*")


def collect(code: str, *, seed: int, data: dict | None = None, device: str | None = None) -> dict:
    """The provenance of what this process makes, as JSON.

    code: digest of the source files that decide the numbers (`record.code_digest`). data: {"revision", "fingerprint"} of
    what it is made from. device: what it is computed on. commit and dirty are None where the package lies in no git
    checkout; dirty tells whether the package's own files differ from the commit.
    """
    commit, dirty = checkout()
    return {
        "version": attnfaith.__version__,
        "code": code,
        "commit": commit,
        "dirty": dirty,
        "command": command_line(sys.argv),
        "libraries": libraries(),
        "data": data or {},
        "seed": seed,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
    }


@functools.cache
def checkout(package: Path = Path(__file__).parent) -> tuple[str | None, bool | None]:
    """Commit of the checkout that tracks the package's files, and whether they differ from it; (None, None) without one.

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
    """Versions of the installed libraries that numbers depend on; those that are not installed are left out."""
    return {name: version for name in LIBRARIES if (version := _version(name)) is not None}


@functools.cache  # as it is imported: each is read from a file of a thousand lines
def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def command_line(arguments: Sequence[str]) -> str:
    """The command as typed, for reading: paths without the machine's folders, no value of an option that holds a secret."""
    shown, hide = [], False
    for number, word in enumerate(arguments):
        if hide and not word.startswith("--"):
            shown.append(HIDDEN)
            hide = False
            continue
        word = redacted(word)  # before a path is cut: what is left of a URL would not show that it held a password
        option, separator, value = word.partition("=")
        hide = word.startswith("--") and not separator and OPTION.search(word) is not None
        if word.startswith("--") and separator and OPTION.search(option):
            word = f"{option}={HIDDEN}"
        elif word.startswith("--") and separator:
            word = f"{option}={without_folders(value)}"
        else:
            word = without_folders(word) if number else _program(word)
        shown.append(SHORT_TOKEN.sub(HIDDEN, SECRET_KEY.sub(rf"\1{HIDDEN}", word)))
    return " ".join(_quoted(word) for word in shown)


def _program(path: str) -> str:
    """The command or script: "attnfaith", "recipes/train.py"."""
    shown = without_folders(path)
    return shown if shown.endswith(".py") else PurePath(shown).name


def without_folders(text: str) -> str:
    """A text whose absolute paths are as seen from the working directory, or their last part where they lie elsewhere."""
    if text.startswith(("/", "~/")):  # one path, blanks and all
        return _shortened(text)
    return FOLDER.sub(lambda match: _shortened(match[0]), text)


def _shortened(path: str) -> str:
    path, here = Path(path), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./\[\]*-]+", word) else "'" + word.replace("'", "'\"'\"'") + "'"
