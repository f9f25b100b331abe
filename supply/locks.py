"""Writes the locks of this folder anew from setup.cfg and constraints.txt: pinned versions, with the hashes of their files.

    python supply/locks.py

Asks the package index, and installs nothing. The work is done by uv; here it is only told what belongs into which file.

torch has a file of its own, with the packages for GPUs that only torch brings. Its hashes are those of the index's builds,
and another build (for CPUs alone, or other drivers) has the same version and other hashes. tools.txt is what looks at all
this, in an environment of its own.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
FILES = {"base": (), "test": ("plots", "test"), "docs": ("plots", "test", "docs")}
"""Name of a file -> the extras of setup.cfg beside the base installation; a file holds what those before it do not."""
OLDEST = "3.11.5"  # the theme of the documentation asks for it; the rest would be content with 3.11
OF_TORCH = re.compile(r"torch|triton|(cuda|nvidia)-.*")
ENTRY = re.compile(r"^(?=[A-Za-z0-9])", re.M)


def compiled(source: str | Path, *options: str) -> list[str]:
    """What uv makes of requirements: all that they need, at the versions of constraints.txt, on every system.

    One text for each package: its name, version and marker, and the hashes of all its files.
    """
    command = [
        "uv",
        "pip",
        "compile",
        str(source),
        "--constraint",
        "constraints.txt",
        "--universal",
        "--no-config",
        "--quiet",
    ]
    command += ["--python-version", OLDEST, "--generate-hashes", "--no-header", "--no-annotate", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")
    if done.returncode:
        sys.exit("error: nothing was written: the pinned versions do not go together, or the index was not reached (above)")
    return ENTRY.split(done.stdout)[1:]


def is_of_torch(entry: str) -> bool:
    return OF_TORCH.fullmatch(entry.partition("==")[0]) is not None


def main() -> None:
    if shutil.which("uv") is None:
        sys.exit("error: uv is not installed: pip install -c constraints.txt uv")
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "torch.in"
        wanted.write_text("torch\n", encoding="utf-8")
        texts = {"torch": "".join(filter(is_of_torch, compiled(wanted)))}
    written, before = set(), ""
    for file, extras in FILES.items():
        chosen = [option for extra in extras for option in ("--extra", extra)]
        entries = [entry for entry in compiled("setup.cfg", *chosen) if not is_of_torch(entry) and entry not in written]
        texts[file] = before + "".join(entries)
        written, before = written.union(entries), f"-r {file}.txt\n"
    texts["tools"] = "".join(compiled(FOLDER / "tools.in"))
    for file, text in texts.items():
        (FOLDER / f"{file}.txt").write_text(text, encoding="utf-8")
        print(f"supply/{file}.txt: {len(ENTRY.findall(text))} packages")


if __name__ == "__main__":
    main()
