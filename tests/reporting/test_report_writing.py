import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from attnfaith import cli
from attnfaith import record as records
from attnfaith.reporting import agreement_table, write_report
from attnfaith.support.errors import FileError
from attnfaith.support.files import folder_lock


pytestmark = pytest.mark.slow  # whole reports, some by a process


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_a_report_holds(draw_record, tmp_path):
    record = draw_record(20, rationale=True)
    index = write_report(record, tmp_path / "deep" / "report")
    assert index == tmp_path / "deep" / "report" / "index.html"
    figures = ("tau_by_measure", "dispersion_by_scores")
    tables = ("agreement", "performance", "plausibility", "summary")
    assert set(contents(index.parent)) == {
        "index.html",
        *(f"figures/{name}.{kind}" for name in figures for kind in ("png", "svg", "pdf")),
        *(f"tables/{name}.{kind}" for name in tables for kind in ("csv", "md", "parquet")),
    }
    saved = pd.read_parquet(index.parent / "tables" / "agreement.parquet")
    pd.testing.assert_frame_equal(saved, agreement_table(record))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report"]


def test_same_record_same_bytes(draw_record, tmp_path):
    record = draw_record(15, rationale=True, measures=())
    folder = write_report(record, tmp_path / "a", facts={"k": 1}).parent
    before = contents(folder)
    assert contents(write_report(record, tmp_path / "b", facts={"k": 1}).parent) == before
    write_report(record, folder, facts={"k": 1})  # over the old one
    assert contents(folder) == before


@pytest.mark.parametrize(
    "options",
    [
        {"measures": ()},
        {"measures": ("gradient_norm_hidden",), "classes": 1},
        {"measures": ("gradient",), "classes": 4, "labels": False},
    ],
)
def test_records_that_lack_something(draw_record, tmp_path, options):
    index = write_report(draw_record(8, **options), tmp_path / "report")
    html = re.sub(r"<script.*?</script>", "", index.read_text(encoding="utf-8"), flags=re.S)  # whose code knows of NaN
    html = re.sub(r"base64,[^\"]+", "", html)  # a picture may spell anything
    assert "undefined" in html or options.get("labels", True)
    assert ("no importance measure" in html) == (not options["measures"])
    assert "NaN" not in html and ">nan<" not in html


@pytest.mark.usefixtures("quick_figures")
def test_only_empty_texts(build_record, tmp_path):
    index = write_report(build_record([{"attention": [], "gradient": []}] * 2, measures=("gradient",)), tmp_path / "report")
    html = index.read_text(encoding="utf-8")
    assert "is undefined for every text (2)" in html


@pytest.mark.usefixtures("quick_figures")
def test_an_empty_text_is_shown_as_such(build_record, tmp_path):
    html = write_report(build_record([{"attention": []}]), tmp_path / "report").read_text(encoding="utf-8")
    assert "A text without tokens." in html


@pytest.mark.usefixtures("quick_figures")
def test_several_cells_and_seeds(draw_record, tmp_path):
    parts = [draw_record(10, seed=seed, projection=name) for seed in (0, 1) for name in ("softmax", "sparsegen(0.5)")]
    index = write_report(records.concatenate(parts), tmp_path / "report", n_examples=1)
    names = set(contents(index.parent))
    assert "figures/02_sparsegen-0.5-0_dispersion_by_scores.png" in names
    assert sum(name.endswith(".svg") for name in names) == 4
    html = index.read_text(encoding="utf-8")
    assert "4 cells are compared" in html


@pytest.mark.usefixtures("quick_figures")
def test_facts_come_from_the_record_unless_given(draw_record, tmp_path):
    record = records.with_settings(draw_record(5), [{"training": {"lr": 0.125}}])
    stored = write_report(record, tmp_path / "a").read_text(encoding="utf-8")
    assert "training.lr" in stored and "0.125" in stored
    given = write_report(record, tmp_path / "a", facts={"source": "measure x.yaml"}).read_text(encoding="utf-8")
    assert "measure x.yaml" in given and "training.lr" not in given


@pytest.mark.usefixtures("quick_figures")
def test_facts_that_cells_share_are_said_once(draw_record, tmp_path):
    made = [{"training": {"lr": 0.125}, "seed": 3, "model": "ab"}, {"training": {"lr": 0.125}, "seed": 3, "note": "x"}]
    parts = [records.with_settings(draw_record(5, seed=number), [one]) for number, one in enumerate(made)]
    html = write_report(records.concatenate(parts), tmp_path / "report").read_text(encoding="utf-8")
    assert html.count("training.lr") == 1 and "settings that differ between cells" in html and "model, note" in html


@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("broken", ["save_table", "save_figure", "render_page", "write_atomically", "os.rename"])
def test_a_failure_leaves_the_old_report_whole(draw_record, tmp_path, monkeypatch, broken):
    folder = write_report(draw_record(6), tmp_path / "report").parent
    before = contents(folder)
    calls = []

    def fail_late(*_args, **_kwargs):
        calls.append(None)
        raise OSError("disk full")

    monkeypatch.setattr(f"attnfaith.reporting.page.report.{broken}", fail_late)
    with pytest.raises(OSError, match="disk full"):
        write_report(draw_record(9), folder)
    assert calls
    assert contents(folder) == before
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("quick_figures")
def test_the_old_report_comes_back_when_the_last_rename_fails(draw_record, tmp_path, monkeypatch):
    folder = write_report(draw_record(6), tmp_path / "report").parent
    before = contents(folder)
    rename = os.rename

    def fail_into_place(source, target):
        if Path(source).name == "new":
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr("attnfaith.reporting.page.report.os.rename", fail_into_place)
    with pytest.raises(OSError, match="no"):
        write_report(draw_record(9), folder)
    assert contents(folder) == before
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("quick_figures")
def test_what_a_killed_report_left_goes_with_the_next(draw_record, tmp_path):
    for name in ("new", "old"):
        (tmp_path / ".report.tmp" / name / "tables").mkdir(parents=True)
        (tmp_path / ".report.tmp" / name / "tables" / "half.csv").write_text("ha")
    folder = write_report(draw_record(6), tmp_path / "report").parent
    assert list(tmp_path.iterdir()) == [folder] and not list(folder.rglob("half.csv"))


@pytest.mark.usefixtures("quick_figures")
def test_one_process_writes_a_report_at_a_time(draw_record, tmp_path):
    folder = write_report(draw_record(6), tmp_path / "report").parent
    before = contents(folder)
    with folder_lock(tmp_path / ".report.tmp", "a report"):
        (tmp_path / ".report.tmp" / "new").mkdir()
        with pytest.raises(FileError, match=rf"\.report\.tmp is in use by a report, process {os.getpid()} on "):
            write_report(draw_record(9), folder)
        assert contents(folder) == before and (tmp_path / ".report.tmp" / "new").is_dir()
    write_report(draw_record(9), folder)
    assert contents(folder) != before and list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("quick_figures")
def test_folders_that_are_not_a_report_are_refused(draw_record, tmp_path):
    record = draw_record(5)
    (tmp_path / "empty").mkdir()
    assert write_report(record, tmp_path / "empty").is_file()

    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("<html>my page</html>")
    with pytest.raises(FileError, match="not empty and not a report"):
        write_report(record, other)
    assert [path.name for path in other.iterdir()] == ["index.html"]

    (tmp_path / "empty" / "tables" / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match="holds 'tables/notes.txt'"):
        write_report(record, tmp_path / "empty")
    assert (tmp_path / "empty" / "tables" / "notes.txt").read_text() == "mine"

    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is a file"):
        write_report(record, tmp_path / "file")


def test_bad_input_is_refused(draw_record, tmp_path):
    record = draw_record(5)
    with pytest.raises(records.RecordError, match="nothing to report"):
        write_report(record.slice(0, 0), tmp_path / "report")
    with pytest.raises(ValueError, match="n_examples is 0"):
        write_report(record, tmp_path / "report", n_examples=0)
    with pytest.raises(records.RecordError, match="probs"):
        write_report(record.drop_columns("probs"), tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


REPORT_ALONE = """
import sys
import attnfaith.reporting
early = {"matplotlib", "torch", "transformers", "datasets"} & set(sys.modules)
assert not early, early
from attnfaith import record
attnfaith.reporting.write_report(record.load(sys.argv[1]), sys.argv[2])
late = {"torch", "transformers", "datasets", "evaluate", "matplotlib.pyplot"} & set(sys.modules)
assert not late, late
"""

WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
import attnfaith.reporting
from attnfaith import record
from attnfaith.support.errors import AttnfaithError
table = record.load(sys.argv[1])
assert len(attnfaith.reporting.agreement_table(table))
for make in (attnfaith.reporting.write_report, attnfaith.reporting.page.report.write_report):
    try:
        make(table, sys.argv[2])
    except AttnfaithError as error:
        assert "pip install 'attnfaith[plots]'" in str(error)
    else:
        raise AssertionError("no error")
"""


@pytest.mark.parametrize("program", [REPORT_ALONE, WITHOUT_MATPLOTLIB])
def test_reporting_needs_no_model_and_says_what_it_needs(draw_record, tmp_path, program):
    records.save(draw_record(5), tmp_path / "record.parquet")
    command = [sys.executable, "-W", "error", "-c", program, tmp_path / "record.parquet", tmp_path / "report"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_settings_of_no_run_are_one_error(draw_record, tmp_path):
    """Any part of what a run says of itself may be of another kind, or not there."""
    for part in (
        {"recipe": None, "run": None},
        {"recipe": {}, "run": {}},
        {"recipe": {"training": 3}, "run": {"sizes": []}},
    ):
        made = records.with_settings(draw_record(5), [part])
        with pytest.raises(
            records.RecordError, match="the record's settings are not those of a run .*: measure the model anew"
        ):
            write_report(made, tmp_path / "report")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "/x", "x\0y", "x" * 300, "x y", "-x", ".x", "\u0430", "X", "con.png", ""]
)
def test_a_column_whose_name_is_no_name_writes_nothing(name, draw_record, tmp_path, capsys):
    made = draw_record(5)
    last = made.column_names[-1]
    for written in (name, f"importance_{name}"):
        if written == "importance_":
            continue
        renamed = made.rename_columns([written if column == last else column for column in made.column_names])
        metadata = {**(made.schema.metadata or {}), b"attnfaith_schema": str(records.VERSION).encode()}
        pq.write_table(renamed.replace_schema_metadata(metadata), tmp_path / "hostile.parquet")
        assert cli.main(["report", str(tmp_path / "hostile.parquet"), "--output", str(tmp_path / "deep" / "report")]) == 2
        said = capsys.readouterr().err
        assert "a name is lower-case letters, digits and underscores" in said and len(said) < 400
        assert [path.name for path in tmp_path.rglob("*")] == ["hostile.parquet"]
