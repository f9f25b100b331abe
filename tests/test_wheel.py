"""What is installed: the package with its recipes, and nothing that is only of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest


SHIPPED = "attnfaith/recipes/shipped/"
OVERRIDES = [
    "--data.arguments={length: [4, 8], vocabulary_size: 40, sizes: {train: 32, validation: 12, test: 12}}",
    *("--hidden_size=8", "--embedding_size=8", "--num_train_epochs=1", "--measure.producers=[gradient]"),
    "--training.arguments={disable_tqdm: true}",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, repository):
    """Built from a copy of the checkout, as pip does it."""
    pytest.importorskip("setuptools", minversion="77")
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("src", "recipes", "tests"):
        shutil.copytree(repository / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(repository / name, source / name)
    build = (
        f"from setuptools import build_meta; build_meta.build_wheel({str(built)!r}); build_meta.build_sdist({str(built)!r})"
    )
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.slow
def test_what_the_wheel_holds(wheel, repository):
    (path,) = wheel.glob("*.whl")
    names = {name.removeprefix(SHIPPED) for name in zipfile.ZipFile(path).namelist() if name.startswith(SHIPPED)}
    root = repository / "recipes"
    wanted = {file.relative_to(root).as_posix() for file in root.rglob("*.yaml")}
    wanted |= {file.relative_to(root).as_posix() for file in root.glob("*/published*.csv")}
    wanted |= {file.relative_to(root).as_posix() for file in root.glob("*/**/*.py")}
    wanted.add("shared.py")
    assert names == wanted and "quickstart.yaml" in names and "meister_2021/published.csv" in names
    assert not [name for name in names if "results" in name or "benchmark" in name]


@pytest.mark.slow
def test_the_wheel_holds_nothing_else(wheel, repository):
    """Every module and its data, what says of the package, and no test, no byte code and nothing that lay about."""
    (path,) = wheel.glob("*.whl")
    names = {name for name in zipfile.ZipFile(path).namelist() if not name.startswith(SHIPPED)}
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert {name.split("/", 1)[1] for name in about} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
    }
    source = repository / "src"
    kept = {path.relative_to(source).as_posix() for path in (source / "attnfaith").rglob("*") if path.is_file()}
    kept = {name for name in kept if "__pycache__" not in name}
    assert names - about <= kept
    assert {name for name in kept if name.endswith(".py")} <= names
    assert {name for name in kept - names if not name.endswith((".pyc", ".so"))} == set()


@pytest.mark.slow
def test_the_source_distribution_holds_the_recipes(wheel, tmp_path):
    (path,) = wheel.glob("*.tar.gz")
    shutil.unpack_archive(path, tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "recipes" / "quickstart.yaml").is_file() and (source / "setup.py").is_file()
    assert (source / "recipes" / "meister_2021" / "published.csv").is_file()
    assert not (source / "tests").exists()


@pytest.mark.slow
def test_installed_it_trains_in_an_empty_folder(wheel, tmp_path, warm_python):
    (path,) = wheel.glob("*.whl")
    zipfile.ZipFile(path).extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HF_HOME": str(tmp_path / "home")}

    def attnfaith(*arguments):
        done = subprocess.run(
            [warm_python, "-m", "attnfaith", *arguments],
            cwd=tmp_path / "empty", env=environment, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, said, error = attnfaith("train", *OVERRIDES)
    assert code == 0, error
    assert said.startswith("no --config is given: quickstart, in runs/quickstart\n")
    assert (tmp_path / "empty" / "runs" / "quickstart" / "report" / "index.html").is_file()
    code, _, error = attnfaith("train", "--config", "recipes/meister_2021/sst.yml")
    assert code == 2 and error.startswith("error: no recipe at recipes/meister_2021/sst.yml")
