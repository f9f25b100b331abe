"""Systems that nobody has tried are at least not excluded: nothing that only Unix has is needed for an import, files are
read and written as UTF-8 wherever they are, and what goes to other processes can be pickled.
"""

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from attnfaith import training
from attnfaith.reporting.analysis import StudyError
from attnfaith.study.execute import run_cells
from tests.tiny_trainings import settings


ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "recipes", "docs")
FILES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TEXT_METHODS = {"read_text", "write_text"}
PROCESSES = {"run", "Popen", "check_output", "check_call"}
UNIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog")
UNIX_NAMES = {
    "os": (
        *("fork", "forkpty", "killpg", "getpgid", "setpgid", "setsid", "getuid", "geteuid", "getgid", "getegid", "uname"),
        *("sched_getaffinity", "sched_setaffinity", "nice", "chown", "mkfifo", "getloadavg", "register_at_fork", "wait4"),
        *("WIFSIGNALED", "WTERMSIG", "statvfs", "O_NOFOLLOW", "O_DIRECTORY"),
    ),
    "signal": (
        *("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGQUIT", "SIGPIPE", "SIGTSTP", "SIGCONT"),
        *("alarm", "setitimer", "pause", "pthread_sigmask"),
    ),
}
IMPORTS = """
import importlib, importlib.util, os, signal, sys

modules, hidden, names = {modules!r}, {hidden!r}, {names!r}
absent = []
for module in modules:  # with all that they import of others, which is not ours to mend
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        absent.append((module, error.name))
for module in [name for name in sys.modules if name.split(".")[0] == "attnfaith"]:
    del sys.modules[module]
for owner, attributes in names.items():
    for attribute in attributes:
        delattr(sys.modules[owner], attribute)
sys.modules.update(dict.fromkeys(hidden))  # each import of them is an ImportError
unimported = {{}}
for module in modules:
    try:
        importlib.import_module(module)
    except Exception as error:
        unimported[module] = f"{{type(error).__name__}}: {{error}}"
print([name for _, name in absent], {{module: why for module, why in unimported.items() if module not in dict(absent)}})
"""


def dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def untold(source: str) -> list[int]:
    """Lines that open a text file, or read what a process says, in the encoding that the system happens to have."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        owner = getattr(getattr(node.func, "value", None), "id", None)
        given = {word.arg: word.value for word in node.keywords}
        if "encoding" in given:
            continue
        if name in TEXT_METHODS:
            # as the last argument before the keywords: read_text("utf-8"), write_text(text, "utf-8")
            lines += [node.lineno] if len(node.args) < (1 if name == "read_text" else 2) else []
        elif name == "open" and owner in (None, "path"):
            place = 1 if isinstance(node.func, ast.Name) else 0
            mode = given.get("mode", node.args[place] if len(node.args) > place else ast.Constant("r"))
            lines += [node.lineno] if "b" not in getattr(mode, "value", "") else []
        elif name in PROCESSES and owner == "subprocess":
            lines += [node.lineno] if {"text", "universal_newlines"} & set(given) else []
    return lines


def test_texts_have_an_encoding():
    assert len(FILES) > 400
    lines = {file: untold((ROOT / file).read_text(encoding="utf-8")) for file in FILES}
    assert {file: where for file, where in lines.items() if where} == {}


def test_what_has_none_is_seen():
    for line in (
        "open(name)",
        "open(name, 'w')",
        "open(name, mode='a')",
        "path.open()",
        "folder.read_text()",
        "(folder / name).write_text(said)",
        "subprocess.run(command, text=True)",
    ):
        assert untold(line) == [1], line
    for line in (
        "open(name, 'rb')",
        "path.open('rb')",
        "open(name, encoding='utf-8')",
        "path.read_text('utf-8')",
        "path.write_text(said, encoding='utf-8')",
        "subprocess.run(command, capture_output=True)",
        "subprocess.run(command, encoding='utf-8')",
    ):
        assert untold(line) == [], line


def imported_without(modules, names=UNIX_NAMES, hidden=UNIX_MODULES, **options):
    """(packages that are not installed, {module: why it could not be imported}), in a process of its own."""
    names = {owner: [name for name in given if hasattr(sys.modules[owner], name)] for owner, given in names.items()}
    script = IMPORTS.format(modules=list(modules), hidden=hidden, names=names)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", **options)
    assert done.returncode == 0, done.stderr
    said = done.stdout.strip().splitlines()[-1]
    absent, rest = said[1:].split("] {", 1)
    return set(ast.literal_eval(f"[{absent}]")), ast.literal_eval("{" + rest)


@pytest.mark.slow
def test_every_module_is_imported_without_what_only_unix_has():
    source = ROOT / "src"
    modules = [dotted(path.relative_to(source)) for path in sorted((source / "attnfaith").rglob("*.py"))]
    modules = [name for name in modules if not name.endswith("__main__") and ".shipped" not in name]
    absent, unimported = imported_without(modules)
    assert unimported == {} and len(modules) > 300
    assert absent <= {"gradio"}, "what the tests need is installed: what is not may hide a module of ours"


@pytest.mark.slow
def test_a_module_that_needs_them_is_seen(tmp_path):
    for name, text in {"one": "import fcntl", "two": "import signal\nSTOPS = signal.SIGHUP", "three": "import json"}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        (tmp_path / "attnfaith").mkdir(exist_ok=True)
        (tmp_path / "attnfaith" / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "attnfaith" / "__init__.py").touch()
    names = [f"attnfaith.{name}" for name in ("one", "two", "three")]
    _, unimported = imported_without(names, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert set(unimported) == {"attnfaith.one", "attnfaith.two"}


def test_a_study_says_what_the_system_lacks(monkeypatch, tmp_path):
    """Before anything is made: where no signal reaches a group of processes, a stopped study would leave its cells."""
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(StudyError, match="attnfaith train"):
        run_cells({"output_dir": str(tmp_path / "study")}, [], {})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["none", "sentence"])
def trainer(request, tiny_model, tiny_rows, tmp_path):
    tokenizer = SimpleNamespace(pad_token_id=0, model_input_names=["input_ids"])
    texts = [row["input_ids"] for row in tiny_rows([5, 3, 7, 2])]
    columns = {"input_ids": texts, "labels": [0, 1, 0, 1], "length": [len(text) for text in texts]}
    given = datasets.Dataset.from_dict(columns)
    model = tiny_model(hierarchy=request.param)
    return training.make_trainer(model, tokenizer, given, given, TrainingArguments(**settings(tmp_path)))


def test_workers_get_how_texts_become_batches(trainer):
    """Where processes are not forked (Windows, macOS), a worker of `dataloader_num_workers` gets this pickled."""
    rows = [trainer.train_dataset[place] for place in range(4)]
    one, other = trainer.data_collator(rows), pickle.loads(pickle.dumps(trainer.data_collator))(rows)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_workers_that_are_not_forked_load_data(trainer):
    here = next(iter(DataLoader(trainer.train_dataset, 4, collate_fn=trainer.data_collator)))
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    there = next(iter(DataLoader(trainer.train_dataset, 4, collate_fn=trainer.data_collator, **options)))
    assert here.keys() == there.keys() and all(torch.equal(here[name], there[name]) for name in here)
