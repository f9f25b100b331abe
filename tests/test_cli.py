"""The commands as a user types them: exit codes, messages, Ctrl-C, two processes."""

import gc
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attnfaith import cli, recipes, record
from attnfaith.cli import common
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.loading import load_splits
from attnfaith.data.planted_evidence import generate
from tests.figures import IN_A_PROCESS


pytestmark = pytest.mark.slow


TINY = """
name: tiny
output_dir: run
seed: 3
data: {arguments: {length: [4, 8], vocabulary_size: 40, sizes: {train: 64, validation: 24, test: 24}}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1, learning_rate: 1e-2, arguments: {disable_tqdm: true}}
report: {examples: 1}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, quick_report):
    """With tiny.yaml; no data root and no cache of the user's."""
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_DATA", raising=False)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / ".cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "tiny.yaml").write_text(TINY)


@pytest.fixture
def fails(capfd):
    """Runs a command that must fail as a user's mistake does: code 2, one line that says it, no traceback."""

    def run(*arguments, says):
        assert cli.main(list(arguments)) == 2
        error = capfd.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, error
        assert re.search(says, lines[0]), lines[0]
        assert "Traceback" not in error
        assert error.rstrip().endswith("(set ATTNFAITH_TRACEBACK=1 for the traceback)")
        return lines[0]

    return run


# ------------------------------------------------------------------------------------------------ usage


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_usage(arguments, capsys):
    assert cli.main(arguments) == (0 if arguments and arguments[0].startswith("-") else 2)
    shown = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.summary)}$", shown, re.M)


@pytest.mark.parametrize(
    ("given", "hint"), [("tran", "; did you mean train?"), ("measur", "; did you mean measure?"), ("xyz", ".")]
)
def test_an_unknown_command_is_one_line(given, hint, capsys):
    assert cli.main([given, "--seed", "3"]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"error: unknown command {given!r}{hint} Known: {', '.join(cli.COMMANDS)}\n" and shown.out == ""


def test_a_bug_is_no_mistake_of_the_user(monkeypatch):
    """What is no AttnfaithError keeps its traceback, whatever its kind."""
    for error in (ValueError("a"), OSError("b"), ImportError("c"), FileExistsError("d"), KeyError("e")):

        def broken(_arguments, error=error):
            raise error

        monkeypatch.setitem(cli.COMMANDS, "train", broken)
        with pytest.raises(type(error)):
            cli.main(["train"])


@pytest.mark.parametrize(("command", "sections"), [("train", list(recipes.schema.SECTIONS)), ("measure", ["measure"])])
def test_help_lists_the_keys_of_a_recipe(command, sections, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    shown = capsys.readouterr().out
    for name, section in recipes.schema.SECTIONS.items():
        for key in section.__pydantic_fields__:
            assert (f"\n  --{name}.{key}  " in shown) == (name in sections), key


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_help_of_each_command(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0 and "usage:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[os.path.join(os.path.dirname(sys.executable), "attnfaith")], [sys.executable, "-m", "attnfaith"]]
)
def test_the_installed_command(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage: attnfaith COMMAND" in done.stdout


# ------------------------------------------------------------------------------------------------ a whole round


@pytest.mark.gate
def test_train_measure_report(tmp_path, capsys):
    assert (
        cli.main(["train", "--config", "tiny.yaml", "--encoder", "average", "--training.arguments.disable_tqdm=true"]) == 0
    )
    shown = capsys.readouterr().out
    assert f"report: {tmp_path}/run/report/index.html" in shown
    assert "\nattention: Cannot be told" in shown
    assert (
        cli.main(["measure", "run", "--measure.producers", "[leave_one_out]", "--limit", "9", "--output", "part.parquet"])
        == 0
    )
    assert "record: part.parquet" in capsys.readouterr().out
    part = record.load("part.parquet")
    assert part.num_rows == 9 and part.column("encoder").unique().to_pylist() == ["average"]

    written = (tmp_path / "run" / "report" / "index.html").read_bytes()
    shutil.rmtree(tmp_path / "run" / "report")
    assert cli.main(["report", "run"]) == 0, "the folder of a run is its record, and its report the output"
    assert f"report: {tmp_path}/run/report/index.html" in capsys.readouterr().out
    assert (tmp_path / "run" / "report" / "index.html").read_bytes() == written

    assert cli.main(["train", "--config", "tiny.yaml", "--output_dir", "other", "--seed=4"]) == 0
    capsys.readouterr()
    records = ["run/record.parquet", "other"]
    assert cli.main(["report", *records, "--output", "both", "--examples", "1"]) == 0
    assert "both/index.html" in capsys.readouterr().out
    page = (tmp_path / "both" / "index.html").read_text()
    assert "average" in page and "bilstm" in page

    table = record.load("other/record.parquet")
    older = record.settings(table)
    older[0]["version"] = "0.0.1"
    record.save(record.with_settings(table, older), "other/record.parquet")
    assert cli.main(["report", *records, "--output", "mixed", "--examples", "1"]) == 2
    said = capsys.readouterr().err
    assert "0.0, 0.1" in said and "--mix-versions" in said
    assert cli.main(["report", *records, "--output", "mixed", "--examples", "1", "--mix-versions"]) == 0


def test_overwriting_and_going_on(fails):
    assert cli.main(["train", "--config", "tiny.yaml"]) == 0
    fails("train", "--config", "tiny.yaml", says="holds a run already.*--overwrite_output_dir")
    assert cli.main(["train", "--config", "tiny.yaml", "--resume_from_checkpoint"]) == 0
    fails(
        "train", "--config", "tiny.yaml", "--resume_from_checkpoint", "--seed", "4", says="another recipe .different: seed"
    )
    assert cli.main(["train", "--config", "tiny.yaml", "--overwrite_output_dir", "--seed", "4"]) == 0
    assert record.load("run/record.parquet").column("seed").unique().to_pylist() == [4]


# ------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "tny.yaml"], "no recipe at tny.yaml, nor of that name among those that come with attnfaith"),
        (["--config", "recipes/quikstart.yaml"], r"no recipe at .*did you mean quickstart.yaml\?"),
        (["--data.name", "sts"], "Unknown data set 'sts'; did you mean 'sst'"),
        (["--config", "tiny.yaml", "--remeasure"], "--remeasure is for a run that lies there: add --resume_from_checkpoint"),
        (["--config", "tiny.yaml", "--learning_rate", "fast"], "learning_rate='fast' must be a number"),
        (["--config", "tiny.yaml", "--metric_for_best_model", "auc"], "metric_for_best_model='auc' is not known"),
        (["--config", "tiny.yaml", "--select_on", "test"], "selected on 'validation' only"),
    ],
)
def test_mistakes_are_one_line(fails, arguments, says, tmp_path):
    fails("train", *arguments, says=says)
    assert not (tmp_path / "run" / "model").exists()


def test_mistakes_of_the_other_commands(fails, tmp_path):
    fails("measure", "nowhere", says="no folder of a run at nowhere")
    fails("report", "nowhere.parquet", "--output", "r", says="no run or record at nowhere.parquet")
    (tmp_path / "bad.parquet").write_text("bad")
    fails("report", "bad.parquet", says="--output is needed: the folder of the report")
    fails("report", "bad.parquet", "--output", "r", says="bad.parquet is not a readable record")


def test_a_data_set_without_a_recipe(fails, tmp_path, capfd):
    """The quickstart's settings are for its own texts: another data set has the defaults and a folder of its own."""
    fails("train", "--data.name", "sst", says="Cannot read 'sst' from the Hub")
    assert cli.main(["train", "--data.name=planted_evidence", "--num_train_epochs", "0"]) == 2
    assert "no --config is given: " not in capfd.readouterr().out, "a recipe that is refused is not announced"
    assert cli.main(["train", "--data.name", "sst"]) == 2
    assert "no --config is given: sst, in runs/sst\n" in capfd.readouterr().out
    assert recipes.load(tmp_path / "runs" / "sst" / "recipe.yaml").data == recipes.Data("sst")


def test_mistakes_about_reports(fails, tmp_path, monkeypatch):
    assert cli.main(["train", "--config", "tiny.yaml", "--measure.producers", "[gradient]"]) == 0
    fails("report", "run", "--examples", "0", says="n_examples is 0; a report shows at least 1 text")
    (tmp_path / "file").write_text("mine")
    fails("report", "run", "--output", "file", says="file is a file; a report is a folder: give another path")
    fails("report", "run/model", says=r"run/model holds no record.parquet, .*; did you mean the run run\?")
    fails("cards", ".", "--to", "somebody", says="no recipe at recipe.yaml")
    fails("cards", "run", "run", "--to", "somebody", says="two of the runs are called tiny")
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fails("report", "run", says=r"figures need matplotlib, an optional extra: pip install 'attnfaith\[plots\]'")


def test_the_traceback_is_there_for_who_wants_it(monkeypatch):
    monkeypatch.setenv("ATTNFAITH_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no recipe at"):
        cli.main(["train", "--config", "none.yaml"])


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """The user's own tweets (data set "adr"), from rows of (text, label) per split."""

    def write(**splits):
        import pandas as pd

        (tmp_path / "data" / "adr").mkdir(parents=True)
        rows = [(row["text"], row["label"]) for row in generate(40, 1, length=(6, 9))]
        for split in ("train", "validation", "test"):
            given = splits.get(split, rows)
            pd.DataFrame(given, columns=["text", "label"]).to_csv(tmp_path / "data" / "adr" / f"{split}.csv", index=False)
        monkeypatch.setenv("ATTNFAITH_DATA", str(tmp_path / "data"))

    return write


ADR = ["train", "--config", "tiny.yaml", "--data.name", "adr", "--data.arguments", "{}"]
SIX = "one two three four five six"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(SIX, 2)] * 3, "'adr'.* 2 "),
        ([(SIX, None)] * 3, "label"),
        ([(SIX, "yes")] * 3, "label"),
        ([(SIX, -1)] * 3, "-1"),
        ([(None, 1)] * 3, "text"),
        ([("short", 1)] * 3, "length filter of 'adr' leaves no row of its test split"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_bad_rows(own_files, fails, rows, says):
    own_files(test=rows)
    assert "test" in fails(*ADR, says=says)
    gc.collect()  # datasets leaves a file open that it could not read


def test_training_labels_of_one_class(own_files, fails):
    own_files(train=[(SIX, 1)] * 20)
    fails(*ADR, says=r"no training instance of class \[0\]")


def test_no_local_files(fails, monkeypatch, tmp_path):
    fails(*ADR, says="ATTNFAITH_DATA is not set")
    fails(
        "train",
        "--config",
        "tiny.yaml",
        "--data.name",
        "sst",
        "--data.arguments",
        "{}",
        says="Cannot read 'sst' from the Hub",
    )


def test_texts_of_unknown_words_only(own_files, capsys):
    own_files(test=[("xa xb xc xd xe xf xg", 1), ("ya yb yc yd ye yf", 0)] * 4)
    assert cli.main(ADR) == 0
    table = record.load("run/record.parquet")
    assert table.num_rows == 8 and table.column("tokens")[0].as_py() == ["xa", "xb", "xc", "xd", "xe", "xf", "xg"]
    assert all(row.sum() > 0.999 for row in record.rows(table, "attention"))
    loaded = load_splits("adr", seed=0)
    assert table.column("texts").unique().to_pylist() == [fingerprint(loaded.splits["test"])]
    assert loaded.revision.startswith("local-")


NEWS = ["train", "--config", "tiny.yaml", "--data.name", "cnn_qa", "--data.arguments", "{}", "--min_df", "1"]
NEWS += ["--readout", "tanh", "--num_train_epochs", "1"]


@pytest.fixture
def news(tmp_path, monkeypatch, quick_report):
    """A data root of questions; returns a function that writes one split of [(entities, answer)], and others beside it."""
    usual = [[f"@entity{(number + place) % 9}" for place in range(5)] for number in range(12)]
    usual = [(entities, entities[number % 5]) for number, entities in enumerate(usual)]
    folder = tmp_path / "data" / "cnn"
    folder.mkdir(parents=True)

    def write(split, questions):
        lines = []
        for entities, answer in questions:
            passage = " . ".join(f"{name} met {entities[0]}" for name in entities)
            lines.append(json.dumps({"passage": f"{passage} .", "question": "who is @placeholder", "answer": answer}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        return questions

    parts = {split: write(split, usual[:count]) for split, count in (("train", 12), ("validation", 6), ("test", 6))}
    monkeypatch.setenv("ATTNFAITH_DATA", str(tmp_path / "data"))
    return lambda split, more: write(split, [*parts[split], *more])


def test_news_questions_from_training_to_page(news, capsys):
    """What cannot be answered is left out and said; the classes that a text does not name have probability 0 exactly."""
    news("test", [(["@entity1", "@entity2"], "@entity3"), (["@entity1", "@entity77"], "@entity77")])
    news("validation", [(["@entity1", "@entity88"], "@entity1")])
    assert cli.main([*NEWS, "--measure.producers", "[gradient, permutation]"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("cnn_qa: ")] == [
        "cnn_qa: questions left out, as their answer is not in their text: 1",
        "cnn_qa: questions left out, as their answer is not one of training: 1",
        "cnn_qa: candidates left out, as no training text has them: 1",
    ]
    table = record.load("run/record.parquet")
    assert table.num_rows == 6
    names = record.settings(table)[0]["label_names"]
    for column in ("probs", "permuted_probs"):
        for tokens, values in zip(table.column("tokens").to_pylist(), record.rows(table, column), strict=True):
            assert (np.atleast_2d(values)[:, [name not in tokens for name in names]] == 0).all()
            assert (np.atleast_2d(values)[:, [name in tokens for name in names]] > 0).all()
    page = Path("run/report/index.html").read_text(encoding="utf-8")
    assert 'query: <span lang="" dir="auto"><bdi>who</bdi> <bdi>is</bdi> <bdi>@placeholder</bdi>' in page


PAIRS = ["train", "--config", "tiny.yaml", "--data.name", "snli", "--data.arguments", "{}", "--num_train_epochs", "1"]


@pytest.mark.parametrize("hierarchy", ["none", "sentence"])
def test_empty_second_texts(hierarchy, tmp_path, monkeypatch, quick_report, capsys):
    """In training and in test: they are kept, counted and measured; so is a pair of which both are empty."""
    import pandas as pd

    folder = tmp_path / "data" / "stanfordnlp" / "snli"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        pairs = [(f"a w{row % 4} b . C d ." * (row % 3), "c d" * (row % 2), row % 3) for row in range(12)]
        pd.DataFrame(pairs, columns=["premise", "hypothesis", "label"]).to_parquet(folder / f"{split}.parquet")
    monkeypatch.setenv("ATTNFAITH_DATA", str(tmp_path / "data"))
    assert cli.main([*PAIRS, "--min_df", "1", "--hierarchy", hierarchy, "--measure.producers", "[gradient]"]) == 0
    said = capsys.readouterr().out
    assert "snli: texts without words: 12" in said and "snli: second texts without words: 18" in said
    table = record.load("run/record.parquet")
    assert table.column("query_tokens").to_pylist() == [["c", "d"] * (row % 2) for row in range(12)]
    assert [len(row) for row in record.rows(table, "attention")].count(0) == 4
    assert all(np.isfinite(row).all() for row in record.rows(table, "probs"))


def test_a_question_that_leaves_no_room(fails, tmp_path, monkeypatch):
    import pandas as pd

    folder = tmp_path / "data" / "stanfordnlp" / "snli"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        pairs = [("a b", "c " * (1 + row % 4), row % 3) for row in range(12)]
        pd.DataFrame(pairs, columns=["premise", "hypothesis", "label"]).to_parquet(folder / f"{split}.parquet")
    monkeypatch.setenv("ATTNFAITH_DATA", str(tmp_path / "data"))
    says = "max_length=7 leaves no room for the text of row 2: .* give 8 or more"
    fails(*PAIRS, "--data.max_length", "7", says=says)


# ------------------------------------------------------------------------------------------------ the metric


def test_install_metric(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("evaluate.config.HF_MODULES_CACHE", tmp_path / "modules")
    assert cli.main(["install-metric"]) == 0
    shown = capsys.readouterr().out.strip()
    assert shown.startswith(f"installed: {tmp_path}") and shown.endswith("attention_faithfulness.py")
    assert os.path.isfile(shown.removeprefix("installed: "))


# ------------------------------------------------------------------------------------------------ processes

LAUNCH = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",  # any free port
]  # fmt: skip
# The script, with a list of the texts that each process trains on.
SPY = """
import json, os, runpy, sys
from attnfaith.training import trainers
seen, pad = [], trainers.pad_batch
def spy(rows, *given):
    seen.append([row["input_ids"] for row in rows])
    return pad(rows, *given)
trainers.pad_batch = spy
try:
    runpy.run_path({script!r}, run_name="__main__")
finally:
    with open(f"seen{{os.environ['RANK']}}.json", "w") as file:
        json.dump(seen, file)
"""


@pytest.mark.gate
def test_two_processes_train_one_model(tmp_path, repository, warm_attnfaith):
    """Told nothing about the CPU, they still are one training; with dropout, each text is seen once in every epoch."""
    (tmp_path / "spy.py").write_text(IN_A_PROCESS + SPY.format(script=str(repository / "recipes" / "train.py")))
    arguments = [
        "--config",
        "tiny.yaml",
        "--num_train_epochs",
        "3",
        "--dropout",
        "0.3",
        "--per_device_train_batch_size",
        "8",
    ]
    done = subprocess.run(
        [warm_attnfaith, *LAUNCH, "spy.py", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("run/report/index.html") == 1
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    assert state["processes"] == 2 and state["status"] == "complete"
    assert record.load(tmp_path / "run" / "record.parquet").num_rows == 24
    batches = [json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in (0, 1)]
    orders = []
    for epoch in range(3):
        seen = []
        for process in batches:  # of an epoch: 64 texts / 2 processes / 8 = 4 batches, and those of validation
            length = len(process) // 3
            seen += [tuple(text) for batch in process[epoch * length : epoch * length + 4] for text in batch]
        assert len(seen) == 64 and len(set(seen)) == 64
        orders.append(seen)
    assert orders[0] != orders[1] != orders[2]


def test_a_mistake_is_told_before_processes_are_started(fails, monkeypatch):
    monkeypatch.setattr(common, "launch", lambda *given: pytest.fail("started"))
    fails(
        "train", "--config", "tiny.yaml", "--processes", "2", "--sed", "4", says="unknown option --sed; did you mean --seed"
    )
    fails("train", "--config", "tiny.yaml", "--processes", "0", says="--processes 0: at least 1")
    fails("measure", "nowhere", "--processes=2", says="no folder of a run at nowhere")


@pytest.mark.parametrize("words", [["--processes", "2"], ["--processes=2"]])
def test_processes_get_the_arguments_of_the_command(words, monkeypatch):
    given = []
    monkeypatch.setattr(common, "launch", lambda *arguments: given.append(arguments) or 3)
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--config", "tiny.yaml", *words, "--seed", "4", "--overwrite_output_dir"])
    assert ended.value.code == 3
    assert given == [("train", ["--config", "tiny.yaml", "--seed", "4", "--overwrite_output_dir"], 2)]


def test_an_error_of_several_processes_is_one_line(tmp_path, warm_attnfaith):
    """What one process meets, while the others wait for it."""
    command = [warm_attnfaith, "-m", "attnfaith", "train", "--config", "tiny.yaml", "--processes", "2"]
    done = subprocess.run([*command, "--data.arguments.length", "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "Error" not in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith("error: tiny.yaml: data.arguments=") and line.endswith("cannot unpack non-iterable int object")


@pytest.mark.gate
def test_interrupted_and_gone_on(tmp_path, repository, warm_attnfaith):
    """Ctrl-C while training: code 130 and a hint; then the same weights as without it."""
    arguments = ["--config", "tiny.yaml", "--num_train_epochs", "30"]
    process = subprocess.Popen(
        [warm_attnfaith, str(repository / "recipes" / "train.py"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("run/checkpoints/checkpoint-*/trainer_state.json")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "stopped; go on with --resume_from_checkpoint" in error and "Traceback" not in error
    assert not (tmp_path / "run" / "model").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "started"

    assert cli.main(["train", *arguments, "--resume_from_checkpoint"]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["epochs"] == 30
    assert cli.main(["train", *arguments, "--output_dir", "whole"]) == 0
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole"))
    assert one == other


@pytest.mark.parametrize("name", ["train", "measure"])
def test_launchers_are_the_commands(name, repository, monkeypatch, capsys):
    """recipes/<name>.py gives the command of that name what stands on its command line."""
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(repository / "recipes" / f"{name}.py"), run_name="__main__")
    assert not ended.value.code
    assert f"usage: attnfaith {name} " in capsys.readouterr().out
