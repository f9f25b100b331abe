"""Fetch transformers' own model tests, which its wheel leaves out, into the ignored folder .conformance/.

The source distribution of the installed version holds tests/test_*.py without the sub-folders; three stubs stand in for
what those import. Run once per version: `python tests/models/fetch_conformance.py`. Nothing is fetched if it is there.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path


FOLDER = Path(__file__).parents[2] / ".conformance"
STUBS = {
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/test_configuration_utils.py": "config_common_kwargs = {}\n",
}


def fetch() -> Path:
    """The folder that holds the package `hf_tests` for the installed version of transformers, fetched if need be."""
    release = f"transformers-{version('transformers')}"
    target = FOLDER / release
    if target.is_dir():
        return target
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
            + ["--no-binary", "transformers", "--dest", temporary, release.replace("-", "==")],
            check=True,
        )
        with tarfile.open(next(Path(temporary).glob("*.tar.gz"))) as archive:
            archive.extractall(temporary, filter="data")
        package = Path(temporary) / "package" / "hf_tests"
        package.mkdir(parents=True)
        for file in (Path(temporary) / release / "tests").glob("test_*.py"):
            shutil.copy(file, package)
        (package / "__init__.py").touch()
        for name, text in STUBS.items():
            stub = package / name
            stub.parent.mkdir()
            (stub.parent / "__init__.py").touch()
            stub.write_text(text, encoding="utf-8")
        os.replace(package.parent, target)
    return target


if __name__ == "__main__":
    print(fetch())
