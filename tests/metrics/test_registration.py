"""The metric by its bare name, in processes of their own: with the package, without it."""

import os
import shutil
import subprocess
import sys

import pytest

from attnfaith.metrics.registration import METRIC_NAME


USE = """
scores = evaluate.load("attention_faithfulness").compute(attention=[[0.1, 0.2, 0.7]], importance=[[1.0, 3.0, 2.0]])
assert round(scores["kendall_tau"], 12) == round(1 / 3, 12), scores
"""
# evaluate does without transformers, whose import would take most of the time
EVALUATE = "import sys\nsys.modules['transformers'] = None\nimport evaluate\ndel sys.modules['transformers']\n"
INSTALL = "from attnfaith.cli import main\nmain(['install-metric'])\n"


@pytest.fixture
def run(tmp_path):
    """Run a program in a process of its own, with fresh caches, offline, in an empty directory."""
    (tmp_path / "cwd").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "ATTNFAITH_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}

    def run(program):
        process = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path / "cwd", env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    return run


@pytest.mark.slow
@pytest.mark.parametrize("imports", ["import attnfaith\n" + EVALUATE, EVALUATE + "import attnfaith\n"])
def test_bare_name_after_importing_the_package(run, tmp_path, imports):
    """A cache that cannot be written does not stop the import."""
    run(imports + USE + "assert evaluate.combine(['attention_faithfulness'])")
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "home").write_text("a file where the cache would be")
    run(imports + "assert evaluate.load")


@pytest.mark.slow
def test_bare_name_without_the_package_once_it_is_installed(run, tmp_path):
    unknown = "try:\n    evaluate.load('attention_faithfulness')\nexcept FileNotFoundError:\n    print('unknown')\n"
    assert run(EVALUATE + unknown).strip() == "unknown"
    path = run(INSTALL).strip().removeprefix("installed: ")
    assert path.startswith(str(tmp_path / "home")) and path.endswith(f"{METRIC_NAME}.py")
    # another version, installed since: installing again makes this the latest
    other = os.path.join(os.path.dirname(os.path.dirname(path)), "f" * 64)
    os.mkdir(other)
    with open(os.path.join(other, f"{METRIC_NAME}.py"), "w", encoding="utf-8") as script:
        script.write("raise RuntimeError('the other version')")
    os.utime(path, (0, 0))
    assert run(INSTALL).strip() == f"installed: {path}"
    run(EVALUATE + "sys.modules['attnfaith'] = None\n" + USE)
