"""`attnfaith study all`: every study, one after another, and what it took."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith import provenance, record
from attnfaith.recipes import RecipeError, library
from attnfaith.reporting.analysis import StudyError
from attnfaith.study import every, made, status
from attnfaith.study.plan import Cell, read_study


NOT_SHOWN = {"release.yaml", "any_classifier/aopc.yaml", "any_classifier/study.yaml"}
"""Studies whose tables no document shows."""


def test_every_study_whose_tables_are_shown_is_run():
    studies = {
        path.relative_to(library.folder()).as_posix()
        for path in library.folder().rglob("*.yaml")
        if re.search(r"^blocks:", path.read_text(encoding="utf-8"), re.M)
    }
    assert sorted(every.STUDIES) == sorted(studies - NOT_SHOWN)


def test_no_two_studies_share_a_folder_of_results():
    results = [read_study(library.folder() / name)["results"] for name in every.STUDIES]
    assert len(set(results)) == len(results)


@pytest.fixture
def planned():
    """Three studies of one cell each, none of them complete."""
    return [
        every.Planned(name, {"output_dir": f"runs/{name}"}, [Cell(name, "recipe.yaml", [])], {name: name})
        for name in ("first", "second", "third")
    ]


@pytest.fixture
def committed(monkeypatch):
    monkeypatch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
    monkeypatch.setattr(every, "complete", lambda recipe: False)


def test_a_study_that_fails_keeps_no_other_from_running(planned, committed, monkeypatch, capsys):
    calls = []

    def carry_out(study, **how):
        calls.append((study["output_dir"], how))
        if study["output_dir"].endswith("first"):
            raise StudyError("no cell of the study is complete")
        return {}, "1 cells failed: second" if study["output_dir"].endswith("second") else ""

    monkeypatch.setattr(every, "carry_out", carry_out)
    failures = every.run(planned, run=True, mix_versions=False, cores=2)
    assert [folder for folder, _ in calls] == ["runs/first", "runs/second", "runs/third"]
    assert all(how == {"run": True, "mix_versions": False, "cores": 2} for _, how in calls)
    assert failures == ["first: no cell of the study is complete", "second: 1 cells failed: second"]
    assert "third (3 of 3)" in capsys.readouterr().out


def test_code_that_no_commit_holds_runs_nothing(planned, committed, monkeypatch):
    monkeypatch.setattr(provenance, "checkout", lambda: ("0" * 40, True))
    monkeypatch.setattr(every, "carry_out", lambda *_, **__: pytest.fail("a study ran"))
    with pytest.raises(StudyError, match="uncommitted changes"):
        every.run(planned, run=True, mix_versions=False)


def test_hours_are_summed_over_complete_cells(planned, committed, monkeypatch, capsys):
    took = {"first": 1800.0, "second": 5400.0, "third": math.nan}
    monkeypatch.setattr(status, "state_of", lambda _root, cell: SimpleNamespace(seconds=took[cell.name]))
    monkeypatch.setattr(every, "complete", lambda recipe: recipe != "first")
    every.show(planned)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        ["first", "0", "1", "0.00"],
        ["second", "1", "1", "1.50"],
        ["third", "1", "1", "0.00"],
        ["all", "2", "3", "1.50"],
    ]


def test_cells_of_one_study_are_not_picked_from_all():
    with pytest.raises(StudyError, match="name that study"):
        every.main(["all", "--only", "sst-*"])


def test_a_study_that_is_missing_is_named_before_any_runs():
    with pytest.raises(RecipeError, match="no_such_study"):
        every.read_all(["no_such_study.yaml"])


def test_what_made_the_tables_is_kept_beside_them(tmp_path, monkeypatch):
    """Two cells of one commit and one of another, whose time nobody knows."""
    folders, commits = {}, {"a": "1" * 40, "b": "2" * 40, "c": "1" * 40}
    for name, commit in commits.items():
        folders[name] = tmp_path / name
        folders[name].mkdir()
        part = {"provenance": {"version": "1", "commit": commit, "dirty": False, "seed": 3}}
        monkeypatch.setattr(record.io, "_is_settings", lambda _: True)
        pq.write_table(record.with_settings(pa.table({"x": [1]}), [part]), folders[name] / "record.parquet")
    took = {"a": 2.5, "b": math.nan, "c": 4.0}
    monkeypatch.setattr(made.status, "state_of", lambda _root, cell: SimpleNamespace(seconds=took[cell.name]))
    cells = [Cell(name, "recipe.yaml", []) for name in "abcd"]
    study = {"output_dir": str(tmp_path), "results": str(tmp_path / "results")}
    path = made.write_made(study, cells, folders)
    assert path == Path(tmp_path / "results" / "made.json")
    told = json.loads(path.read_text(encoding="utf-8"))
    assert told["cells"] == {"planned": 4, "complete": 3}
    assert (told["seconds"], told["cells_without_seconds"]) == (6.5, 1)
    assert [(one["cells"], one["commit"]) for one in told["made_by"]] == [(2, "1" * 40), (1, "2" * 40)]
    assert all("seed" not in one for one in told["made_by"])
