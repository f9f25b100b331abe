"""The folder of a report: what it holds, the same bytes every time, whole or not at all, and never over other files."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.reporting import page
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.charts import PlotsError
from attnfaith.reporting.page import write_report
from attnfaith.reporting.sections import agreement
from attnfaith.support.errors import FileError
from tests.records import build, draw


pytestmark = pytest.mark.slow  # whole reports, some by a process
quick = pytest.mark.usefixtures("quick_figures")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def page_of(record, folder, **options):
    return write_report(record, folder, **options).read_text(encoding="utf-8")


def test_a_report_holds_its_page_tables_and_figures_and_the_same_record_gives_the_same_bytes(tmp_path):
    record = draw(20, rationale=True)
    index = write_report(record, tmp_path / "deep" / "report")
    assert index == tmp_path / "deep" / "report" / "index.html"
    figures = ("tau_by_measure", "dispersion_by_scores")
    tables = ("agreement", "performance", "plausibility", "summary")
    before = contents(index.parent)
    assert set(before) == {
        "index.html",
        *(f"figures/{name}.{kind}" for name in figures for kind in ("png", "svg", "pdf")),
        *(f"tables/{name}.{kind}" for name in tables for kind in ("csv", "md", "parquet")),
    }
    saved = pd.read_parquet(index.parent / "tables" / "agreement.parquet")
    pd.testing.assert_frame_equal(saved, agreement.TABLE.frame(split_cells(record)))
    links = set(re.findall(r'href="([^"#]+)"', before["index.html"].decode()))
    assert links == set(before) - {"index.html"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report"]
    assert contents(write_report(record, tmp_path / "b").parent) == before
    write_report(record, index.parent)  # over the old report
    assert contents(index.parent) == before


@quick
def test_empty_texts_and_several_models(tmp_path):
    empty = build([{"attention": [], "gradient": []}] * 2, measures=("gradient",))
    assert "is undefined for all texts (2)" in page_of(empty, tmp_path / "empty")
    assert "No text has a token." in page_of(build([{"attention": []}]), tmp_path / "bare")
    sparse = {"projection": "sparsegen", "projection_parameter": 0.5}
    parts = [
        records.with_settings(draw(10, seed=seed, **fields), [{"training": {"lr": 0.125}, "seed": seed}])
        for seed in (0, 1)
        for fields in ({}, sparse)
    ]
    html, names = page_of(records.concatenate(parts), tmp_path / "report"), set(contents(tmp_path / "report"))
    assert "training.lr" not in html
    assert "figures/02_sparsegen-0.5-0_dispersion_by_scores.png" in names
    assert sum(name.endswith(".svg") for name in names) == 8 and "4 cells are compared" in html


@quick
@pytest.mark.parametrize("broken", ["table_files", "figure_files", "render_page"])
def test_a_failure_leaves_the_old_report_whole(tmp_path, monkeypatch, broken):
    folder = write_report(draw(6), tmp_path / "report").parent
    before = contents(folder)

    def fail(*_args, **_kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(f"attnfaith.reporting.page.{broken}", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(draw(9), folder)
    assert contents(folder) == before and list(tmp_path.iterdir()) == [folder]


@quick
def test_a_report_that_was_stopped_is_written_anew(tmp_path, monkeypatch):
    """At its first file and behind it; a killed process leaves a file under a name that is not final."""
    written, folder = page.write_atomically, tmp_path / "report"
    for count in (1, 2, 5):
        names = []

        def stop(path, content, names=names, count=count):
            names.append(path)
            if len(names) > count:
                raise FileError(f"{path} cannot be written: disk full")
            return written(path, content)

        monkeypatch.setattr(page, "write_atomically", stop)
        with pytest.raises(FileError, match="disk full"):
            write_report(draw(6), folder)
    (folder / "tables" / ".agreement.csv.x.tmp").write_text("half")
    monkeypatch.setattr(page, "write_atomically", written)
    write_report(draw(6), folder)
    write_report(draw(6), tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


@quick
def test_files_of_an_older_report_go_and_others_stay(tmp_path):
    folder = write_report(draw(6, rationale=True), tmp_path / "report").parent
    (folder / "tables" / "notes.txt").write_text("mine")
    assert "tables/plausibility.csv" in contents(folder)
    write_report(draw(6), folder)
    assert "tables/plausibility.csv" not in contents(folder) and (folder / "tables" / "notes.txt").read_text() == "mine"


@quick
def test_folders_that_are_not_a_report_are_refused(tmp_path):
    record, report, other = draw(5), tmp_path / "report", tmp_path / "other"
    report.mkdir()
    assert write_report(record, report).is_file()  # an empty folder
    other.mkdir()
    (other / "index.html").write_text("<html>my page</html>")
    (tmp_path / "file").write_text("mine")
    before = contents(tmp_path)
    for folder, message in {other: "not empty and not a report", tmp_path / "file": "is a file"}.items():
        with pytest.raises(FileError, match=message):
            write_report(record, folder)
    assert contents(tmp_path) == before


def test_bad_records_are_refused(tmp_path):
    record = draw(5)
    parts = {
        "recipe": {"recipe": None},
        "label_names": {"label_names": [["a"]]},
        "not those of a run": {"recipe": {}, "run": {}},
    }
    cases = [(record.slice(0, 0), "nothing to report"), (record.drop_columns("probs"), "probs")]
    cases += [
        (records.with_settings(record, [part]), f"the record's settings are .*{fault}") for fault, part in parts.items()
    ]
    for table, message in cases:
        with pytest.raises(records.RecordError, match=message):
            write_report(table, tmp_path / "report")
    with pytest.raises(ValueError, match="examples=0"):
        write_report(record, tmp_path / "report", n_examples=0)
    assert list(tmp_path.iterdir()) == []


REPORT_ALONE = """
import sys
import attnfaith.reporting.page
early = {"matplotlib", "torch", "transformers", "datasets"} & set(sys.modules)
assert not early, early
from attnfaith import record
attnfaith.reporting.page.write_report(record.load(sys.argv[1]), sys.argv[2])
late = {"torch", "transformers", "datasets", "evaluate", "matplotlib.pyplot"} & set(sys.modules)
assert not late, late
"""


def test_reporting_needs_no_model_and_names_the_extra_that_it_needs(tmp_path, monkeypatch):
    records.save(draw(5), tmp_path / "record.parquet")
    command = [sys.executable, "-W", "error", "-c", REPORT_ALONE, tmp_path / "record.parquet", tmp_path / "report"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotsError, match=r"pip install 'attnfaith\[plots\]'"):
        write_report(draw(5), tmp_path / "report")
