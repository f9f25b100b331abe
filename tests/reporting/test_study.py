"""Tables and figures of many cells, and the code that a study names: how it is loaded, and what a study refuses of it."""

import pandas as pd
import pytest

from attnfaith.reporting import analysis as study
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings, StudyError, analyse, load_analysis
from attnfaith.reporting.cells import CELL, one_cell
from attnfaith.reporting.spec import Section, Table
from tests.records import draw


@pytest.fixture(scope="module")
def cells():
    """Two seeds that were measured, and a third of which only attention and predictions are known."""
    return [one_cell(record) for record in (draw(20, seed=1), draw(20, seed=2), draw(20, seed=3, measures=()))]


def test_cells_without_importance_are_in_the_tables_they_allow(cells):
    tables, names = study.study_tables(cells), {"performance", "agreement", "summary"}
    assert set(tables) == names | {f"{name}_over_seeds" for name in names}
    assert len(tables["performance"]) == 3 and set(tables["agreement"]["seed"]) == {1, 2}
    assert set(tables["performance"].columns[: len(CELL)]) == set(CELL)
    assert set(study.study_tables(cells[:1])) == names, "one seed has no mean over seeds"
    assert study.study_tables(cells, []) == {}
    with pytest.raises(StudyError, match=r"tables \['x'\] are not known; choose from sentence_pairs, .*, agreement, "):
        study.study_tables(cells, ["x"])


def test_numbers_that_name_a_row_are_no_statistics(cells, monkeypatch):
    def rows(cell):
        return [{"epsilon": epsilon, "n": 20, "jsd": epsilon * cell.heading["seed"]} for epsilon in (0.5, 1.0)]

    attack = Section(name="attack", tables=(Table(name="attack", rows=rows),))
    monkeypatch.setitem(sections.registry(), "attack", attack)
    table = study.study_tables(cells, ["attack"])["attack_over_seeds"]
    means = table[table["statistic"] == "jsd"].set_index("epsilon")["mean"]
    assert means.to_dict() == pytest.approx({"0.5": 1.0, "1.0": 2.0}) and set(table["statistic"]) == {"n", "jsd"}


def test_figures_are_of_the_first_cell_of_a_data_set(cells):
    other = one_cell(draw(10, seed=4, dataset="imdb", measures=("gradient",)))
    figures = study.study_figures([*cells, other], ["agreement"])
    names = ("tau_by_measure", "dispersion_by_scores")
    assert set(figures) == {f"{dataset}-{name}" for dataset in ("sst", "imdb") for name in names}
    assert all("/" not in name for name in study.study_figures([one_cell(draw(5, dataset="../../sst"))], ["agreement"]))


# ---------- analyses


COUNTS = """
import pandas as pd
from attnfaith.reporting.analysis import Analysis
from .words import text

def tables(cells, settings):
    rows = [{"n": len(cell), "published": str(settings.published)} for cell in cells]
    counts = {"counts": pd.DataFrame(rows), "of_nothing": pd.DataFrame()}
    return Analysis(counts, {}, {"summary.md": text(cells)}, {"drawn": settings.tables})
"""
FRAME = "import pandas as pd\nfrom attnfaith.reporting.analysis import Analysis\ndef tables(cells, settings):\n    return "


@pytest.fixture
def write(tmp_path):
    """An analysis in a folder of its own, with a sibling `words`."""

    def make(code=COUNTS, folder="paper", words="cells"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "words.py").write_text(f"def text(cells):\n    return f'{{len(cells)}} {words}'\n")
        (tmp_path / folder / "analysis.py").write_text(code)
        return tmp_path / folder / "analysis.py"

    return make


def test_it_gets_cells_settings_and_tables_and_may_make_more(write, cells):
    path, performance = write(), pd.DataFrame({"n": [8]})
    keys = {"analysis": path, "published": "a.csv", "tables": ["performance"]}
    result = analyse(keys, cells[:2], {"performance": performance})
    assert result.tables.keys() == {"counts"}, "a table without rows is left out"
    assert result.tables["counts"].to_dict("list") == {"n": [20, 20], "published": ["a.csv"] * 2}
    assert result.texts == {"summary.md": "2 cells"} and result.figures == {"drawn": {"performance": performance}}
    result = analyse({"analysis": path})  # without cells, to check the study
    assert result.tables == {} and result.texts == {"summary.md": "0 cells"}
    assert analyse({"tables": ["performance"]}) == Analysis(), "a study without one has none"


REFUSED = {
    r"no file at .*nowhere.py; its path is read from the study file": {"analysis": "nowhere.py"},
    r"'published.csv' is no name of a Python module": {"analysis": "published.csv"},
    r"has no function tables\(cells, settings\)": "tables = 3",
    "returned dict; return an Analysis": FRAME + "{}",
    r"makes the tables \['own'\], which the study makes itself": FRAME + "Analysis({'own': pd.DataFrame({'n': [1]})})",
    "published without analysis: name the analysis": {"published": "a.csv"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_analyses_and_studies_that_are_refused(write, message):
    keys = REFUSED[message]
    with pytest.raises(StudyError, match=message):
        analyse({"analysis": write(keys)} if isinstance(keys, str) else keys, tables={"own": pd.DataFrame({"n": [2]})})


def test_helpers_in_the_folder_above_are_found_and_errors_of_the_code_go_on(write, tmp_path):
    (tmp_path / "shared.py").write_text("COUNT = 3\n")
    code = COUNTS.replace("from .words import text", "from ..shared import COUNT\nfrom ..other.words import text")
    write(folder="other", words=" others")
    module = load_analysis(write(code, folder="a.study"))
    assert module.COUNT == 3 and module.tables([], Settings()).texts["summary.md"] == "0  others"
    with pytest.raises(ZeroDivisionError):
        analyse({"analysis": write("1 / 0", "broken")})
