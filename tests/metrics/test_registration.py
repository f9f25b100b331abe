import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from attnfaith.metrics.registration import METRIC_DIR


pytestmark = pytest.mark.slow  # processes


USE = """
scores = {load}("attention_faithfulness").compute(attention=[[0.1, 0.2, 0.7]], importance=[[1.0, 3.0, 2.0]])
assert round(scores["kendall_tau"], 12) == round(1 / 3, 12), scores
"""
# evaluate does without transformers, whose import would take most of the time
EVALUATE = "import sys\nsys.modules['transformers'] = None\nimport evaluate\ndel sys.modules['transformers']\n"
REGISTER = "from attnfaith.metrics.registration import register_metric\nregister_metric()\n"


@pytest.fixture
def run(tmp_path, warm_python):
    """Runs a program in a process of its own, with fresh caches, offline, in an empty directory.

    python: which; else one where all that takes long has been imported, but not Hugging Face's libraries.
    """
    (tmp_path / "cwd").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "ATTNFAITH_"))}
    environment |= {
        "HF_HOME": str(tmp_path / "home"),
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "HF_HUB_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
    }

    def run(program, python=warm_python):
        done = subprocess.run([python, "-c", program], cwd=tmp_path / "cwd", env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_registering_imports_nothing(run):
    run(
        REGISTER
        + "import sys\n"
        + "assert not {'evaluate', 'datasets', 'torch', 'transformers', 'pandas', 'numpy'} & set(sys.modules)",
        sys.executable,
    )


def test_the_statistics_need_neither_torch_nor_evaluate(run):
    run(
        "import sys\n"
        "from attnfaith.metrics.attention_faithfulness import rank_agreement, divergences\n"
        "from attnfaith.metrics import classification\n"
        "rank_agreement.agreement([[1, 2]], [[1, 2]])\n"
        "assert not {'evaluate', 'datasets', 'torch', 'transformers'} & set(sys.modules)",
        sys.executable,
    )


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import attnfaith\nfrom evaluate import load\n" + USE.format(load="load"), id="import attnfaith"),
        pytest.param(EVALUATE + "from evaluate import load\n" + REGISTER + USE.format(load="load"), id="after evaluate"),
        pytest.param(
            REGISTER
            + REGISTER
            + EVALUATE
            + REGISTER
            + "import evaluate.loading\n"
            + "assert evaluate.loading.evaluation_module_factory.__wrapped__.__module__ == 'evaluate.loading'\n"
            + "assert not hasattr(evaluate.loading.evaluation_module_factory.__wrapped__, '__wrapped__')\n"
            + "evaluate.combine(['attention_faithfulness'])\n"
            + USE.format(load="evaluate.load"),
            id="several times, combine",
        ),
    ],
)
def test_bare_name(run, program):
    run(program)


def test_another_evaluate_works_without_our_metric(run):
    """Where its look-up has another name, importing attnfaith breaks nothing, whatever is made of warnings."""
    program = (
        EVALUATE
        + "import evaluate.loading, logging, warnings\n"
        + "warnings.simplefilter('error')\n"
        + "del evaluate.loading.evaluation_module_factory\n"
        + "import attnfaith\n"
        + "import evaluate.hub\n"
    )
    assert run(program) == ""


def test_a_folder_of_that_name_in_the_current_directory_wins(run, tmp_path):
    folder = tmp_path / "cwd" / METRIC_DIR.name
    shutil.copytree(METRIC_DIR, folder, ignore=shutil.ignore_patterns("__pycache__"))
    script = folder / "attention_faithfulness.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace('results = {"n": len(attention)}', 'results = {"mine": 1}'), encoding="utf-8")
    columns = "attention=[[0.5, 0.5]], importance=[[1, 2]]"
    run(REGISTER + EVALUATE + f"assert 'mine' in evaluate.load('attention_faithfulness').compute({columns})")


@pytest.mark.parametrize("how", ["registered", "installed"])
def test_a_half_written_copy_is_mended(run, tmp_path, how):
    """A process that was killed while evaluate copied leaves one, and evaluate copies no file that is there."""
    load = REGISTER + EVALUATE + "evaluate.load('attention_faithfulness')\n" if how == "registered" else EVALUATE + INSTALL
    run(load)
    (copy,) = (tmp_path / "modules").glob("**/plausibility.py")
    whole = copy.read_bytes()
    copy.write_bytes(whole[:1000])
    copy.with_name("divergences.py").unlink()
    run(load)
    assert copy.read_bytes() == whole
    run(REGISTER + EVALUATE + USE.format(load="evaluate.load") if how == "registered" else WITHOUT_PACKAGE)


def test_other_names_revisions_and_kinds_are_left_to_evaluate(run):
    program = (
        REGISTER
        + EVALUATE
        + "import evaluate.loading, json\n"
        + "asked = []\n"
        + "original = evaluate.loading.HubEvaluationModuleFactory\n"
        + "class Hub(original):\n"
        + "    def __init__(self, name, **arguments):\n"
        + "        asked.append(name)\n"
        + "        raise ConnectionError(name)\n"
        + "evaluate.loading.HubEvaluationModuleFactory = Hub\n"
        + "for arguments in ({'path': 'no_such_metric', 'module_type': 'metric'},\n"
        + "                  {'path': 'attention_faithfulness', 'module_type': 'comparison'},\n"
        + "                  {'path': 'attention_faithfulness', 'module_type': 'metric', 'revision': 'v1'}):\n"
        + "    try:\n"
        + "        evaluate.load(**arguments)\n"
        + "    except (FileNotFoundError, ConnectionError):\n"
        + "        pass\n"
        + "print(json.dumps(asked))\n"
    )
    assert json.loads(run(program)) == [
        "evaluate-metric/no_such_metric",
        "evaluate-comparison/attention_faithfulness",
        "evaluate-metric/attention_faithfulness",
    ]


INSTALL = "from attnfaith.metrics.registration import install_metric\nprint(install_metric())\n"
WITHOUT_PACKAGE = EVALUATE + "sys.modules['attnfaith'] = None\n" + USE.format(load="evaluate.load")


def test_installed_metric_loads_without_the_package(run, tmp_path):
    unknown_before = (
        "try:\n"
        "    evaluate.load('attention_faithfulness')\n"
        "    raise SystemExit('found before it was installed')\n"
        "except FileNotFoundError:\n"
        "    pass\n"
    )
    path = run(EVALUATE + unknown_before + INSTALL).strip()
    assert path.startswith(str(tmp_path / "modules"))
    assert path.endswith("attention_faithfulness.py") and os.path.isfile(path)
    run(WITHOUT_PACKAGE)

    # an older date than another version: installing again must make this one the latest, though its files are there
    other = os.path.join(os.path.dirname(os.path.dirname(path)), "f" * 64)
    shutil.copytree(os.path.dirname(path), other)
    script = os.path.join(other, "attention_faithfulness.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("raise RuntimeError('the other version')")
    now = time.time()
    os.utime(script, (now - 500, now - 500))
    os.utime(path, (now - 1000, now - 1000))
    assert run(EVALUATE + INSTALL).strip() == path
    run(WITHOUT_PACKAGE)
