"""The wheel and the source distribution: the package with its recipes, and nothing that is only of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest


pytestmark = pytest.mark.slow
SHIPPED = "attnfaith/recipes/shipped/"
SIZES = "--data.arguments={length: [4, 8], vocabulary_size: 40, sizes: {train: 32, validation: 12, test: 12}}"
SMALL = [SIZES, "--hidden_size=8", "--embedding_size=8", "--num_train_epochs=1", "--measure.producers=[gradient]"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, repository):
    """The folder of both, built from a copy of the checkout, as pip does it."""
    pytest.importorskip("setuptools", minversion="77")
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("src", "recipes", "tests"):
        shutil.copytree(repository / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(repository / name, source / name)
    build = "".join(f"build_meta.build_{kind}({str(built)!r}); " for kind in ("wheel", "sdist"))
    command = [sys.executable, "-c", f"from setuptools import build_meta; {build}"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


def test_the_wheel_holds_the_package_and_its_recipes(wheel, repository):
    (path,) = wheel.glob("*.whl")
    names = set(zipfile.ZipFile(path).namelist())
    shipped = {name.removeprefix(SHIPPED) for name in names if name.startswith(SHIPPED)}
    root = repository / "recipes"
    files = [*root.rglob("*.yaml"), *root.glob("*/published*.csv"), *root.glob("*/**/*.py")]
    files += [root / "shared.py", root / "pages.py"]
    assert shipped == {file.relative_to(root).as_posix() for file in files} and "meister_2021/published.csv" in shipped
    source = repository / "src"
    files = [file for file in (source / "attnfaith").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    modules = {name for name in names if not name.startswith(SHIPPED) and ".dist-info/" not in name}
    assert modules == {file.relative_to(source).as_posix() for file in files if file.suffix not in (".pyc", ".so")}


def test_the_source_distribution_holds_the_recipes(wheel, tmp_path):
    (path,) = wheel.glob("*.tar.gz")
    shutil.unpack_archive(path, tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "recipes" / "meister_2021" / "published.csv").is_file() and not (source / "tests").exists()


def test_installed_it_trains_in_an_empty_folder(wheel, tmp_path):
    (path,) = wheel.glob("*.whl")
    zipfile.ZipFile(path).extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "attnfaith", "train", *SMALL]
    done = subprocess.run(command, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "empty" / "runs" / "quickstart" / "report" / "index.html").is_file()
