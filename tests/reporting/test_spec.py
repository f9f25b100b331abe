"""A section's declaration is what the frame, the files, the page and the sentences show."""

import numpy as np
import pytest

from attnfaith.reporting.cells import CELL, one_cell
from attnfaith.reporting.spec import SUMMARY, Quantity, Section, Table, interval_in_words, summary
from attnfaith.reporting.tables import p_in_words, percent
from attnfaith.stats import interval_of, t_interval
from tests.records import build


SIZES = np.array([0.0, 1.0, 2.0, 6.0, np.nan])
TABLE = Table(
    name="toy",
    rows=lambda cell: [{"way": way, "n": 7, "size": 2.5, "ci_low": 1.0, "ci_high": 3.0, "gap": np.nan} for way in "ab"],
    headings={"way": "the way", "n": "whole", "size": "size [95 % interval]", "gap": "gap"},
    words={"way": lambda row: row["way"].upper()},
    caption="Toys",
    note="All rows.",
)
TOY = Section(
    name="toy",
    needs=("attention",),
    uses=("importance_*",),
    per_text=lambda cell: {"size": SIZES, "tau lime": np.array([1.0, 0.5, 0.9, np.nan, np.nan])},
    compared=("size",),
    quantities={"size": Quantity("size", above=1), "tau *": Quantity("τ with {}", interval=t_interval)},
    caption="Sizes",
    note="In metres.",
    tables=(TABLE,),
    lead=("size", "other"),
)


@pytest.fixture(scope="module")
def record():
    weights = ([0.5, 0.5], [1.0], [0.2, 0.8], [0.25] * 4, [])
    classes = ([0.9, 0.1], [0.2, 0.8], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8])
    return build([{"attention": a, "probs": p} for a, p in zip(weights, classes, strict=True)], dataset="a|<b>")


@pytest.fixture(scope="module")
def cell(record):
    return one_cell(record)


def test_the_summary_by_hand(cell):
    table = summary([cell], [TOY])
    assert list(table.columns) == [*CELL, *SUMMARY] and len(table) == 2 and summary([], [TOY]).empty
    overall, defined = table.set_index("quantity").loc["size"], SIZES[:4]
    assert (overall["n"], overall["n_undefined"], overall["mean"], overall["median"]) == (4, 1, 2.25, 1.5)
    assert (overall["beyond"], overall["share_beyond"]) == ("above 1", 0.5)
    assert (overall["ci_low"], overall["ci_high"]) == interval_of(defined)
    assert (overall["median_ci_low"], overall["median_ci_high"]) == interval_of(defined, np.median)
    assert (overall["share_beyond_ci_low"], overall["share_beyond_ci_high"]) == interval_of((defined > 1) * 1.0)
    tau = table[table["quantity"] == "tau lime"].iloc[0]
    assert (tau["ci_low"], tau["ci_high"]) == t_interval(np.array([1.0, 0.5, 0.9])) and tau["ci_high"] == 1
    assert tau["beyond"] == "" and np.isnan(tau["share_beyond"])
    assert TOY.quantity("tau leave_one_out").label == "τ with leave-one-out" and TOY.quantity("x_y").label == "x y"


def test_the_page_shows_columns_that_have_a_heading(cell):
    frames = {"summary": summary([cell], [TOY]), **TOY.frames([cell])}
    whole, own = TOY.grids(frames, [cell])
    columns = ("mean over texts of", "texts", "undefined", "mean [95 % interval]", "median", "beyond")
    assert whole.columns == columns
    low, high = interval_of(SIZES[:4])
    assert whole.rows[0] == ("size", "4", "1", f"2.250 [{low:.3f}, {high:.3f}]", "1.500", "50.0% above 1")
    assert whole.rows[1][0] == "τ with LIME" and whole.rows[1][-1] == "–"
    assert (whole.caption, whole.note, whole.heads, whole.stem) == ("Sizes", "In metres.", 1, "tables/summary")
    assert own.columns == ("the way", "whole", "size [95 % interval]"), "no row has a gap"
    assert own.rows == (("A", "7", "2.500 [1.000, 3.000]"), ("B", "7", "2.500 [1.000, 3.000]"))
    assert own.note == "All rows." and own.heads == 1 and TOY.grids({}, [cell]) == []
    cells = [one_cell(build([{"attention": [1.0]}] * 5, seed=seed)) for seed in (1, 2)]
    (grid,) = TOY.grids(TOY.frames(cells), cells)
    assert grid.columns[0] == "seed" and [row[0] for row in grid.rows] == ["1", "1", "2", "2"] and grid.heads == 2


def test_a_section_names_the_columns_that_it_reads(cell):
    needing = Section(name="s", needs=("attention",), one_of=("x", "importance_y"), tables=(TABLE,), words=lambda _: "!")
    assert needing.frames([cell]) == {} and needing.sentences(cell) == []
    with_y = one_cell(build([{"attention": [1.0], "y": [2.0]}] * 5, measures=("y",)))
    assert len(needing.frames([cell, with_y])["toy"]) == 2 and needing.sentences(with_y) == ["!"]
    names = ["tokens", "attention", "b", "importance_x", "c", "cc"]
    reading = Section(name="s", needs=("attention",), one_of=("a", "b"), uses=("importance_*", "c"))
    assert list(filter(reading.reads, names)) == names[1:5]
    alone = Table(name="alone", rows=TABLE.rows)
    section = Section(name="s", tables=(TABLE, alone), quantities={"label": Quantity("gold"), "absent": Quantity("none")})
    assert set(section.frames([cell])) == {"toy", "alone"}
    assert len(section.grids(section.frames([cell]), [cell])) == 1, "without a caption it is in files only"
    assert list(section.numbers(cell)) == ["label"]


def test_rounded_words_do_not_contradict_their_numbers():
    assert [percent(share) for share in (0, 0.004, 0.5, 0.996, 1)] == ["0%", "less than 1%", "50%", "more than 99%", "100%"]
    assert percent(0.9996, 1) == "more than 99.9%" and percent(np.nan) == "nan%"
    p_values = {0.0004: "<0.001", 0.0501: "0.0501", 0.05: "0.050", 1.0: "1.000", np.nan: "undefined"}
    assert list(map(p_in_words, p_values)) == list(p_values.values())
    assert interval_in_words({"ci_low": -0.0002, "ci_high": 0.5}) == " (95 % interval -2.0e-04 to 0.500)"


def test_sentences(cell):
    (text,) = TOY.sentences(cell)
    low, high = interval_of(SIZES[:4])
    start = f"Sizes: size 2.250 (95 % interval {low:.3f} to {high:.3f}) on average over 4 texts"
    assert text == f"{start}, above 1 in 50% of them. Left out because it is undefined: 1."
    nothing = Section(name="s", caption="No", per_text=lambda _: {"size": np.full(5, np.nan)}, lead=lambda cell: ["size"])
    assert nothing.sentences(cell) == ["No: size is undefined for all texts (5)."]
