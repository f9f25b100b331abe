"""The small part of all campaigns, as `python -m tests.campaigns --small` runs it, and what runs them."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.campaigns import __main__ as harness
from tests.campaigns.attempt import Attempt, Outcome
from tests.campaigns.commands import broken, differences


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_small_part_is_clean(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns", "--small", "--output", str(tmp_path / "out")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    with open(tmp_path / "out" / harness.CSV, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["campaign"] for row in rows} >= {"kills", "disk_full", "two_at_once", "all"}
    parts = {row["part"] for row in rows if row["campaign"] == "kills"}
    assert parts == {"train", "measure", "measure in place", "report", "overwrite", "reproduce", "push", "study"}
    assert all(int(row["tried"]) == int(row["clean"]) > 0 for row in rows)


# ------------------------------------------------------------------------------------------------ what runs them


def hang(_folder):
    time.sleep(600)


def die(_folder):
    os._exit(3)


def fail(_folder):
    raise ValueError("it broke")


def clean(folder):
    assert not any(folder.iterdir())
    (folder / "left").write_text("x")
    return Outcome(5, measured={"seconds": 1.5})


@pytest.fixture
def run(tmp_path, capsys):
    """Runs a campaign of the given attempts; its exit code, its table by part and the names of those that were made."""

    def run(attempts, *arguments):
        made = []

        def noted(attempt):
            made.append(attempt.name)
            return attempt

        campaign = SimpleNamespace(attempts=lambda full, seed: (noted(one) for one in attempts))
        words = ["--output", str(tmp_path / "out"), "--limit", "1", *arguments]
        code = harness.main(words, {"planted": campaign})
        with open(tmp_path / "out" / harness.CSV, encoding="utf-8", newline="") as stream:
            rows = {row["part"]: row for row in csv.DictReader(stream)}
        return code, rows, capsys.readouterr().out

    return run


def test_planted_defects_are_counted(run, tmp_path):
    wrong = Attempt("wrong/1", lambda folder: Outcome(7, ("one | is\nwrong", "another")))
    attempts = [wrong, *(Attempt(f"{act.__name__}/1", act) for act in (hang, die, fail, clean))]
    code, rows, said = run(attempts)
    assert code == 1
    counts = {part: tuple(int(row[name]) for name in ("tried", "clean", "defects")) for part, row in rows.items()}
    alone = (1, 0, 1)
    assert counts == {"wrong": (7, 5, 2), "hang": alone, "die": alone, "fail": alone, "clean": (5, 5, 0), "": (15, 10, 5)}
    for defect in (
        "wrong/1: one | is wrong",
        "hang/1: hangs: no end in 1 s",
        "die/1: its process ended without an outcome (3)",
        "fail/1: raised ValueError: it broke",
    ):
        assert f"* planted, {defect}" in said
    assert "| planted | clean/1 | seconds | 1.5 |" in said
    kept = sorted(path.name for path in (tmp_path / "out" / "work").iterdir() if path.is_dir())
    assert kept == ["0", "1", "2", "3"], "the folders of what went wrong, to be looked at"


def test_clean_campaigns_end_well_and_nothing_stays(run, tmp_path):
    code, rows, _ = run([Attempt("clean/1", clean)])
    assert code == 0 and rows["clean"]["clean"] == "5"
    assert sorted(os.listdir(tmp_path / "out")) == ["outcomes.jsonl", "table.csv", "table.md"]


def test_a_stopped_campaign_goes_on(run, tmp_path):
    """What has a line is not made again; a line that a kill cut off is none, and the next stands on a line of its own."""
    counted = tmp_path / "counted"

    def count(_folder):
        with open(counted, "a") as stream:
            stream.write("x")
        return Outcome(1)

    attempts = [Attempt(f"a/{number}", count) for number in range(4)]
    assert run(attempts[:2])[0] == 0
    path = tmp_path / "out" / harness.LINES
    path.write_text(path.read_text() + path.read_text().splitlines()[0][:-20])
    assert run(attempts)[1]["a"]["tried"] == "4" and counted.read_text() == "x" * 4
    assert len([line for line in path.read_text().splitlines() if line.endswith("}")]) == 4
    assert json.loads(path.read_text().splitlines()[-1])["attempt"] in {"a/2", "a/3"}
    run(attempts, "--seed", "2")
    assert counted.read_text() == "x" * 8, "another seed is another campaign"
    run(attempts, "--small")
    assert counted.read_text() == "x" * 12
    run(attempts, "--small", "--seed", "3", "--match", "a/1")
    assert counted.read_text() == "x" * 13


def test_nothing_tried_is_not_clean(run):
    assert run([])[0] == 1


def test_what_is_not_whole_is_told(tmp_path):
    for name, text in {"a.json": "{", "b.json": "{}", "c.html": "<html>", "d.parquet": "PAR1", "e.safetensors": ""}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "checkpoints").mkdir()
    for name in (".f.json", "checkpoints/g.json"):
        (tmp_path / name).write_text("{")
    assert [one.split()[0] for one in broken(tmp_path)] == ["a.json", "c.html", "d.parquet", "e.safetensors"]
    assert (
        differences({"a": "1", "b": "2", "c": "3"}, {"b": "2", "c": "4", "d": "5"})
        == "missing: d; left over: a; different: c"
    )
    assert differences({"a": "1"}, {"a": "1"}) == ""
