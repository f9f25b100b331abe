"""The code that a study names: how it is loaded, and what a study refuses of it."""

import pandas as pd
import pytest

from attnfaith.reporting.analysis import Analysis, Settings, StudyError, load_analysis
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.study import analyse


COUNTS = """
import pandas as pd
from attnfaith.reporting.analysis import Analysis
from .words import said

def tables(cells, settings):
    rows = [{"n": len(cell), "published": str(settings.published), **settings.stand_ins} for cell in cells]
    made = {"counts": pd.DataFrame(rows), "of_nothing": pd.DataFrame()}
    return Analysis(made, {"summary.md": said(cells)}, {"drawn": settings.tables})
"""


@pytest.fixture
def write(tmp_path):
    """An analysis in a folder of its own, with a sibling `words`."""

    def make(code=COUNTS, folder="paper", words="cells"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "words.py").write_text(f"def said(cells):\n    return f'{{len(cells)}} {words}'\n")
        (tmp_path / folder / "analysis.py").write_text(code)
        return tmp_path / folder / "analysis.py"

    return make


def test_it_gets_cells_settings_and_tables_and_may_make_more(write, draw_record):
    cells = [split_cells(draw_record(8, seed=seed))[0] for seed in (1, 2)]
    study = {"analysis": write(), "published": "a.csv", "stand_ins": {"mine": "theirs"}, "tables": ["performance"]}
    performance = pd.DataFrame({"n": [8]})
    result = analyse(study, cells, {"performance": performance})
    assert result.tables.keys() == {"counts"}, "a table without rows is left out"
    assert result.tables["counts"].to_dict("list") == {"n": [8, 8], "published": ["a.csv"] * 2, "mine": ["theirs"] * 2}
    assert result.texts == {"summary.md": "2 cells"}
    assert result.figures == {"drawn": {"performance": performance}}


def test_it_is_called_without_cells_to_check_the_study(write):
    result = analyse({"analysis": write()})
    assert result.tables == {} and result.texts == {"summary.md": "0 cells"}
    assert analyse({"tables": ["performance"]}) == Analysis(), "a study without one has none"


def test_an_analysis_that_cannot_be_loaded(write, tmp_path):
    with pytest.raises(StudyError, match=r"no file at .*nowhere.py; its path is read from the study file"):
        analyse({"analysis": tmp_path / "nowhere.py"})
    with pytest.raises(StudyError, match=r"'published.csv' is no name of a Python module"):
        analyse({"analysis": tmp_path / "published.csv"})
    with pytest.raises(StudyError, match=r"has no function tables\(cells, settings\)"):
        analyse({"analysis": write("tables = 3", "numbers")})
    with pytest.raises(ZeroDivisionError):
        analyse({"analysis": write("1 / 0", "broken")})


def test_what_an_analysis_may_not_return(write):
    imports = "import pandas as pd\nfrom attnfaith.reporting.analysis import Analysis\n"
    frame = f"{imports}def tables(cells, settings):\n    return "
    with pytest.raises(StudyError, match="returned dict; return an Analysis"):
        analyse({"analysis": write(frame + "{}", "mapping")})
    same = write(frame + "Analysis({'performance': pd.DataFrame({'n': [1]})})", "same")
    with pytest.raises(StudyError, match=r"makes the tables \['performance'\], which the study makes itself"):
        analyse({"analysis": same}, tables={"performance": pd.DataFrame({"n": [2]})})


def test_published_numbers_need_somebody_who_shows_them(write):
    with pytest.raises(StudyError, match="published without analysis: name the analysis"):
        analyse({"published": "a.csv"})
    with pytest.raises(StudyError, match="stand_ins without published: name the CSV"):
        analyse({"analysis": write(), "stand_ins": {"mine": "theirs"}})


def test_helpers_in_the_folder_above_are_found(write, tmp_path):
    (tmp_path / "shared.py").write_text("COUNT = 3\n")
    code = COUNTS.replace("from .words import said", "from ..shared import COUNT\nfrom ..other.words import said")
    write(folder="other", words=" others")
    module = load_analysis(write(code, folder="a.study"))
    assert module.COUNT == 3 and module.tables([], Settings()).texts["summary.md"] == "0  others"
