"""What a section declares is what the frame, the files, the page, the figures and the sentences show."""

import io
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from attnfaith.reporting import render, save_table, sections, write_report
from attnfaith.reporting.cells import CELL, one_cell, split_cells
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.figures import Drawn, Histograms, Violins
from attnfaith.reporting.spec import (
    MAIN,
    Bins,
    Case,
    Classes,
    Column,
    Deviation,
    Key,
    Largest,
    Mean,
    Median,
    Section,
    Sentence,
    Share,
    Table,
    counts,
    largest_weights,
)
from attnfaith.reporting.study import study_figures, study_tables
from attnfaith.stats import interval_of


SIZES = np.array([0.0, 1.0, 2.0, 6.0, np.nan])


def cases(cell):
    """Of two ways, the second of which does not know the sizes."""
    yield Case({"size": SIZES, "place": np.array([0.1, 0.5, 0.9, np.nan, 0.5])}, {"way": "first"}, {"whole": 7})
    yield Case(keys={"way": "second"}, given={"whole": 8, "left_10": 1, "left_9": 2})


TABLE = Table(
    name="toy",
    cases=cases,
    by=(Key("way", "the way", lambda row: row["way"].upper()), Classes()),
    columns=(
        *counts("size"),
        Column("whole", "whole"),
        Mean("size_mean", "mean size [95 % interval]", of="size", interval=MAIN),
        Deviation("size_std", of="size"),
        Median("size_median", "median", of="size"),
        Share("share_above_1", "above 1", of="size", above=1),
        Share("share_below_1", of="size", below=1, interval=None),
        Largest("size_max", "largest", of="size"),
        Mean("other_mean", "other", of="other", optional=True),
        Mean("gap", of="size", interval="gap_of_"),
    ),
    caption="Toys",
    note=lambda df: f"{len(df)} rows are shown.",
    page_rows=lambda df: df[df["class"] == "overall"],
)
BINNED = Table(
    name="toy_by_place",
    cases=lambda cell: [Case(next(cases(cell)).values)],
    by=(Bins("place", "place", of="place", edges=(0.5, 0.9), labels=("low", "middle", "high"), whole="all"),),
    columns=counts("size"),
    caption="Toys by place",
)
TOY = Section(
    name="toy",
    place=45,
    needs=("attention",),
    uses=("importance_*",),
    per_text=lambda cell: {"size": SIZES},
    tables=(TABLE, BINNED),
    figures=(
        Violins("toy_violins", of="size", title="T", ylabel="y", alt="Violins.", caption="Toys.", nothing="no toy"),
        Histograms(
            "toy_histograms",
            title="T",
            ways={"one way": "size"},
            bins=np.linspace(0, 6, 4),
            finish=lambda axes: axes.set_xlim(0, 6),
            xlabel="size",
            alt="Histograms.",
            caption="Sizes.",
        ),
    ),
    sentences=Sentence(
        TABLE,
        text="The mean is {row[size_mean]:.2f}{interval}.",
        left_out="{row[n_undefined]} left out.",
        nothing="No size ({row[n_undefined]} undefined).",
    ),
)


@pytest.fixture
def record(build_record):
    weights = ([0.5, 0.5], [1.0], [0.2, 0.8], [0.25] * 4, [])
    classes = ([0.9, 0.1], [0.2, 0.8], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8])
    return build_record([{"attention": a, "probs": p} for a, p in zip(weights, classes, strict=True)], dataset="a|<b>")


@pytest.fixture
def cell(record):
    return one_cell(record)


# -------------------------------------------------------------------------------------------------- tables


def test_the_frame_by_hand(cell):
    df = render.frame(TABLE, [cell])
    intervals = [f"{name}_ci_{end}" for name in ("size_median", "share_above_1") for end in ("low", "high")]
    assert list(df.columns) == [
        *CELL,
        *("way", "class", "n", "n_undefined", "whole", "size_mean", "ci_low", "ci_high", "size_std"),
        *("size_median", *intervals[:2], "share_above_1", *intervals[2:], "share_below_1", "size_max"),
        *("other_mean", "other_mean_ci_low", "other_mean_ci_high", "gap", "gap_of_ci_low", "gap_of_ci_high"),
        *("left_9", "left_10"),  # given, not declared
    ]
    assert df[["way", "class"]].values.tolist() == [
        [way, name] for way in ("first", "second") for name in ("overall", "0", "1")
    ]
    overall, zero, one = df.to_dict("records")[:3]
    assert (overall["n"], overall["n_undefined"], overall["whole"]) == (4, 1, 7)
    assert overall["size_mean"] == 2.25 and overall["size_median"] == 1.5 and overall["size_max"] == 6
    assert overall["size_std"] == pytest.approx(np.std([0, 1, 2, 6]))
    assert (overall["share_above_1"], overall["share_below_1"]) == (0.5, 0.25)
    assert (zero["n"], zero["n_undefined"], zero["size_mean"]) == (2, 0, 1)
    assert (one["n"], one["n_undefined"], one["size_mean"]) == (2, 1, 3.5)
    defined = SIZES[:4]
    assert (overall["ci_low"], overall["ci_high"]) == interval_of(defined)
    assert (overall["size_median_ci_low"], overall["size_median_ci_high"]) == interval_of(defined, statistic=np.median)
    assert (overall["share_above_1_ci_low"], overall["share_above_1_ci_high"]) == interval_of((defined > 1) * 1.0)
    assert (overall["gap"], overall["gap_of_ci_low"]) == (2.25, overall["ci_low"])
    second = df[df["way"] == "second"]
    assert second[["n", "size_mean", "ci_low", "size_max", "other_mean"]].isna().all(axis=None)
    assert second["left_10"].tolist() == [1, 1, 1] and df["left_9"].isna().sum() == 3


def test_bins_hold_their_lower_edge_and_an_unknown_place_is_in_none(cell):
    df = render.frame(BINNED, [cell]).set_index("place")
    assert df["n"].to_dict() == {"all": 4, "low": 1, "middle": 1, "high": 1}
    assert df["n_undefined"].to_dict() == {"all": 1, "low": 0, "middle": 1, "high": 0}


def test_csv_and_markdown(cell, tmp_path):
    df = render.frame(BINNED, [cell])
    save_table(df, tmp_path / "toy")
    csv = (tmp_path / "toy.csv").read_text(encoding="utf-8")
    assert csv.splitlines()[0] == ",".join((*CELL, "place", "n", "n_undefined"))
    assert csv.splitlines()[1].endswith(",all,4,1") and len(csv.splitlines()) == 5
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(csv)), df)
    lines = (tmp_path / "toy.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].endswith("| place | n | n\\_undefined |") and lines[1].endswith("| --- | ---: | ---: |")
    assert lines[2].startswith("| a\\|&lt;b&gt; |") and lines[2].endswith("| all | 4 | 1 |")


def test_the_page_shows_what_has_a_heading(cell):
    made = render.frames(TOY, [cell])
    first, second = render.grids(TOY, made, [cell])
    assert first.columns == (
        *("the way", "predicted class", "texts", "undefined", "whole"),
        *("mean size [95 % interval]", "median", "above 1", "largest"),  # no row knows the other
    )
    low, high = interval_of(SIZES[:4])
    assert first.rows[0] == ("FIRST", "overall", "4", "1", "7", f"2.250 [{low:.3f}, {high:.3f}]", "1.500", "0.500", "6.000")
    assert first.rows[1] == ("SECOND", "overall", "–", "–", "8", *["undefined"] * 4) and len(first.rows) == 2
    assert (first.caption, first.note, first.heads, first.stem) == ("Toys", "2 rows are shown.", 2, "tables/toy")
    assert second.rows[0] == ("all", "4", "1") and second.heads == 1
    assert render.grids(TOY, {}, [cell]) == []


def test_cells_are_told_apart_by_what_differs(build_record):
    cells = [one_cell(build_record([{"attention": [1.0]}] * 5, seed=seed)) for seed in (1, 2)]
    (first, _) = render.grids(TOY, render.frames(TOY, cells), cells)
    assert first.columns[0] == "seed" and [row[0] for row in first.rows] == ["1", "1", "2", "2"] and first.heads == 3


def test_the_order_on_the_page_can_be_its_own(cell):
    turned = Table(
        name="t", cases=cases, by=TABLE.by, columns=counts("size"), page_order=("n", "class", "way", "n_undefined")
    )
    shown = render.grid(turned, render.frame(turned, [cell]), [cell])
    assert shown.columns == ("texts", "predicted class", "the way", "undefined")


def test_cells_without_the_columns_are_passed_over(cell, build_record):
    needing = Section(
        name="s", needs=("attention",), one_of=("x", "importance_y"), tables=(BINNED,), sentences=lambda _: ["!"]
    )
    assert render.frames(needing, [cell]) == {} and render.sentences(needing, cell) == []
    assert render.numbers(needing, cell) == {} and list(render.drawings(needing, cell)) == []
    with_y = one_cell(build_record([{"attention": [1.0], "y": [2.0]}] * 5, measures=("y",)))
    assert needing.applies(with_y) and len(render.frames(needing, [cell, with_y])["toy_by_place"]) == 4
    assert render.sentences(needing, with_y) == ["!"]


def test_no_cell_gives_typed_columns():
    df = render.frame(TABLE, [])
    assert df.empty and df["size_mean"].dtype == np.float64 and df["way"].dtype == object and df["seed"].dtype == np.float64


def test_a_frame_of_its_own_and_tables_that_studies_make_otherwise(cell):
    own = Table(name="own", frame=lambda cells: pd.DataFrame({"x": [len(cells)]}), columns=(Column("x", "x"),), caption="X")
    alone = Table(name="alone", frame=own.frame, studies=False)
    section = Section(name="s", tables=(own, alone))
    assert set(render.frames(section, [cell])) == {"own", "alone"} and set(render.frames(section, [cell], study=True)) == {
        "own"
    }
    (shown,) = render.grids(section, render.frames(section, [cell]), [cell])  # a table without a caption is in files only
    assert shown.rows == (("1",),)


def test_rows_are_made_once_and_forgotten_with_the_cell(record):
    calls = []
    counted = Table(name="t", cases=lambda cell: calls.append(1) or [Case(given={"n": 1})], columns=(Column("n"),))
    cell = one_cell(record)
    for _ in range(3):
        assert len(render.frame(counted, [cell])) == 1
    assert len(calls) == 1
    render.frame(counted, split_cells(record))
    assert len(calls) == 2


# ------------------------------------------------------------------------------------- figures, sentences


def test_figures_and_their_words(cell):
    violins, histograms = render.drawings(TOY, cell)
    assert violins.name == "toy_violins" and isinstance(violins.figure, Figure)
    parts = ("[0.25, 0.5): mean 6.000, n = 1", "[0.5, 0.75): mean 0.000, n = 1", "[0.75, 1]: mean 1.500, n = 2")
    assert violins.alt == f"Violins. {'; '.join(parts)}."
    assert violins.caption.startswith("Toys. The line in a violin is its median") and "fewer than 20" in violins.caption
    assert histograms.alt == "Histograms. one way: mean 2.250, n = 4 (1 undefined)." and histograms.caption == "Sizes."
    np.testing.assert_array_equal(largest_weights(cell), np.float32([0.5, 1, 0.8, 0.25, np.nan]))


def test_sentences(cell, build_record):
    (text,) = render.sentences(TOY, cell)
    low, high = interval_of(SIZES[:4])
    assert text == f"The mean is 2.25 (95 % interval {low:.3f} to {high:.3f}). 1 left out."
    nothing = Table(name="n", cases=lambda _: [Case({"size": np.full(5, np.nan)})], columns=counts("size"))
    silent = Section(
        name="s", sentences=Sentence(nothing, text="{row[x]}", nothing="No size ({row[n_undefined]} undefined).")
    )
    assert render.sentences(silent, cell) == ["No size (5 undefined)."]


# --------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "x y", "x\n", "é", "C:x", "x" * 201, "<b>"])
def test_a_hostile_name_is_refused(cell, name):
    with pytest.raises(ReportError, match="no file is called"):
        render.file_name(name)
    table = Section(name="s", tables=(Table(name=name, frame=lambda _: pd.DataFrame({"x": [1]})),))
    with pytest.raises(ReportError, match="no file is called"):
        render.frames(table, [cell])
    drawn = Section(name="s", figures=(Drawn(name, figure=lambda _: Figure(), describe=lambda _: ("", "")),))
    with pytest.raises(ReportError, match="no file is called"):
        list(render.drawings(drawn, cell))


def test_a_study_refuses_the_name_of_a_data_set(build_record):
    record = build_record(
        [{"attention": [0.6, 0.4], "gradient": [1.0, 2.0]}] * 3, measures=("gradient",), dataset="../../sst"
    )
    with pytest.raises(ReportError, match=r"no file is called '\.\./\.\./sst-"):
        study_figures(split_cells(record), ["agreement"])


def test_names_of_the_package_can_be_files():
    for section in sections.known().values():
        assert render.file_name(section.name) == section.name
        assert all(render.file_name(table.name) == table.name for table in section.tables)


# ----------------------------------------------------------------------------------- one file, and no more


MODULE = """
import numpy as np
from attnfaith.reporting.spec import Case, Mean, Section, Sentence, Table, counts

TABLE = Table(
    name="weights",
    cases=lambda cell: [Case({"largest": np.array([row.max() if len(row) else np.nan for row in cell.attention])})],
    columns=(*counts("largest"), Mean("largest_mean", "mean largest weight", of="largest", interval="")),
    caption="Largest <weights>",
)
SECTION = Section(
    name="weights",
    needs=("attention",),
    tables=(TABLE,),
    sentences=Sentence(TABLE, text="On average {row[largest_mean]:.2f} & more.", nothing="Nothing."),
)
"""


@pytest.fixture
def one_file_more(tmp_path, monkeypatch):
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "weights.py").write_text(MODULE, encoding="utf-8")
    (folder / "_helper.py").write_text("no section\n", encoding="utf-8")
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(folder)])
    sections.known.cache_clear()
    yield
    sections.known.cache_clear()
    sys.modules.pop("attnfaith.reporting.sections.weights", None)


@pytest.mark.usefixtures("one_file_more", "quick_figures")
def test_a_section_is_one_file(record, tmp_path):
    assert list(sections.known())[-1] == "weights"
    index = write_report(record, tmp_path / "report", facts={})
    saved = pd.read_parquet(index.parent / "tables" / "weights.parquet")
    assert saved["largest_mean"].tolist() == [pytest.approx((0.5 + 1 + 0.8 + 0.25) / 4)] and saved[
        "n_undefined"
    ].tolist() == [1]
    html = index.read_text(encoding="utf-8")
    assert "On average 0.64 &amp; more." in html and "Largest &lt;weights&gt;" in html and "mean largest weight" in html
    assert set(study_tables(split_cells(record), ["weights"])) == {"weights"}


# ------------------------------------------------------------------------------------------------- columns


def test_columns_that_a_section_uses():
    section = Section(name="s", needs=("attention",), one_of=("a", "b"), uses=("importance_*", "c"))
    assert section.columns(["tokens", "attention", "b", "importance_x", "c", "cc"]) == [
        "attention",
        "b",
        "importance_x",
        "c",
    ]
