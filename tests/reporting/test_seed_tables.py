"""Tables that people paste: numbers are those of the report's tables, one seed has no spread, text stays text."""

import io
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from attnfaith.reporting import agreement_table
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.seed_tables import SeedTable, latex_text, overview, seed_table
from tests.records import build, draw


def right(share, seed, *, texts=10, **fields):
    """A cell of which this share of the texts is right."""
    instances = [
        {"label": int(number < share * texts), "probs": [0.1, 0.9], "attention": [0.6, 0.4], "gradient": [2.0, 1.0]}
        for number in range(texts)
    ]
    return split_cells(build(instances, measures=("gradient",), seed=seed, **fields))[0]


def lines(table):
    return list(map(list, table.grid.rows))


@pytest.fixture
def three():
    """Accuracy .5, .6, .7 of three seeds of bilstm; .8 of one of cnn."""
    return [*(right(share, seed) for seed, share in ((1, 0.5), (2, 0.6), (3, 0.7))), right(0.8, 1, encoder="cnn")]


def test_mean_and_spread_over_seeds_and_none_of_one(three):
    table = seed_table(three, ["encoder"], "quantity", where={"quantity": "correct"})
    assert table.grid.columns == ("encoder", "accuracy")
    assert lines(table) == [["bilstm", "0.600 ± 0.100"], ["cnn", "0.800 (n = 1)"]]
    assert "over 3 seeds" in table.note and "(n = …): another number of seeds." in table.note
    alone = seed_table(three[-1:], ["encoder"], "measure")
    assert lines(alone) == [["cnn", "1.000"]] and "one seed, so no spread" in alone.note


def test_numbers_are_those_of_the_reports_tables():
    cells = [cell for seed in (1, 2, 3) for cell in split_cells(draw(40, seed=seed))]
    taus = agreement_table(cells).query("`class` == 'overall' and pair == 'attention–gradient'")["tau_mean"]
    wanted = f"{taus.mean():.3f} ± {taus.std():.3f}"
    assert lines(seed_table(cells, ["encoder"], "measure"))[0][1] == wanted
    assert lines(seed_table(cells, ["encoder"], "measure", "agreement.tau_mean"))[0][1] == wanted
    assert lines(seed_table(cells, ["measure"], "encoder"))[0] == ["gradient", wanted]
    by_class = seed_table(cells, ["class"], "measure", "agreement.tau_mean")
    assert [line[0] for line in lines(by_class)] == ["overall", "0", "1"] and lines(by_class)[0][1] == wanted
    each = seed_table(cells, ["seed"], "measure")
    assert [line[:2] for line in lines(each)] == [[str(s), f"{tau:.3f}"] for s, tau in zip((1, 2, 3), taus, strict=True)]


def test_undefined_and_not_measured_are_told_apart():
    flat = [{"attention": [0.5, 0.5], "gradient": [1.0, 1.0]}]
    cells = [split_cells(build(flat, measures=("gradient",), seed=seed, encoder="cnn"))[0] for seed in (1, 2)]
    cells += [right(1.0, 1), split_cells(build(flat, measures=("gradient",), seed=2))[0]]
    lime = build([{"attention": [0.6, 0.4], "lime": [2.0, 1.0]}], measures=("lime",), encoder="average")
    table = seed_table([*cells, *split_cells(lime)], ["encoder"], "measure")
    assert table.grid.columns == ("encoder", "gradient", "LIME")
    assert lines(table) == [["cnn", "undefined", "–"], ["bilstm", "1.000 (1 of 2)", "–"], ["average", "–", "1.000 (n = 1)"]]
    assert "seeds where it is defined" in table.note and "–: not measured." in table.note


def test_a_place_holds_one_number(three):
    with pytest.raises(
        ReportError, match=r"2 numbers would stand at bilstm, gradient: they differ in projection \(softmax, spa"
    ):
        seed_table([*three, right(1.0, 1, projection="sparsemax")], ["encoder"], "measure")
    both = seed_table([*three, right(1.0, 1, projection="sparsemax")], ["encoder", "projection"], "measure")
    assert [line[:2] for line in lines(both)] == [["bilstm", "softmax"], ["cnn", "softmax"], ["bilstm", "sparsemax"]]
    one = seed_table(
        [*three, right(1.0, 1, projection="sparsemax")], ["encoder"], "measure", where={"projection": "sparsemax"}
    )
    assert lines(one) == [["bilstm", "1.000"]]


@pytest.mark.parametrize(
    ("rows", "column", "value", "where", "says"),
    [
        (["encodr"], "measure", "numbers", {}, "no 'encodr' to name rows or columns by; choose from dataset, "),
        (["encoder"], "encoder", "numbers", {}, "rows encoder and columns encoder"),
        (["encoder"], "measure", "nothing.x", {}, "no table 'nothing'; choose from numbers, agreement, performance"),
        (["encoder"], "dataset", "performance.acuracy", {}, "no number 'acuracy'; choose from n, .*accuracy"),
        (["encoder"], "measure", "numbers", {"encoder": "x"}, "no number has encoder 'x'; there are bilstm, cnn"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(three, rows, column, value, where, says):
    with pytest.raises(ReportError, match=says):
        seed_table(three, rows, column, value, where)


def test_csv_has_the_numbers_in_full(three):
    table = pd.read_csv(
        io.StringIO(seed_table(three, ["encoder"], "quantity", where={"quantity": "correct"}).formatted("csv"))
    )
    assert list(table.columns) == ["encoder", "correct mean", "correct std", "correct n"]
    np.testing.assert_allclose(table["correct std"], [np.std([0.5, 0.6, 0.7], ddof=1), np.nan])
    assert table["correct n"].tolist() == [3, 1]


HOSTILE = r"a_b & 50 % $x$ #1 {y} \z ~ ^ | <i> τ"


def hostile():
    long = pd.DataFrame(
        {"encoder": [HOSTILE], "measure": ["m|_"], "n_seeds": 2, "n_undefined": 0, "mean": -1e-5, "std": 0.25}
    )
    return SeedTable("table", "a & b", ("encoder",), "measure", long)


def test_names_are_escaped():
    assert hostile().formatted("markdown").splitlines()[2].count(" | ") == 1 and "&lt;i&gt;" in hostile().formatted(
        "markdown"
    )
    latex = hostile().formatted("latex")
    assert r"a\_b \& 50 \% \$x\$ \#1 \{y\} \textbackslash{}z \textasciitilde{} \textasciicircum{} | <i> $\tau$ &" in latex
    assert r"$-1.0 \times 10^{-5} \pm 0.250$ \\" in latex
    assert latex.count(r"\toprule") == latex.count(r"\midrule") == latex.count(r"\bottomrule") == 1
    assert latex_text("0.500 ± 0.100 (2 of 3)") == r"$0.500 \pm 0.100$ (2 of 3)"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no LaTeX here")
def test_latex_sets_it(tmp_path):
    source = (
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage[utf8]{inputenc}\usepackage{booktabs}\begin{document}"
    )
    (tmp_path / "t.tex").write_text(f"{source}\n{hostile().formatted('latex')}\\end{{document}}\n")
    subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_the_overview_has_a_row_for_each_kind(three):
    agreement, numbers = overview(three)
    assert (agreement.rows, lines(agreement)) == (("encoder",), [["bilstm", "1.000 ± 0.000"], ["cnn", "1.000 (n = 1)"]])
    assert lines(numbers) == [["bilstm", "0.600 ± 0.100"], ["cnn", "0.800 (n = 1)"]]
    assert agreement.grid.heads == 1
    assert overview(three[:3])[0].rows == ("dataset", "encoder"), "of one kind, what it is"
