"""The notebooks of the documentation are carried out as they stand, and hold nothing that was typed as a result."""

import sys

import pytest

from tests.docs.test_numbers import untied
from tests.figures import IN_A_PROCESS


nbformat = pytest.importorskip("nbformat", reason="`make docs` installs what carries out notebooks")
pytest.importorskip("nbclient", reason="`make docs` installs what carries out notebooks")

import notebooks  # noqa: E402 (it imports these)


NOTEBOOKS = notebooks.notebooks()
SHOWN = {
    "model_opened": ("attention (1, ", "exact maximum", "permutation_tvd", "It may be used"),
    "own_data": ("delivery", "It may be used", "tau attention–leave_one_out"),
    "two_projections": ("of a text's tokens", "second is"),
}
"""What each notebook's outputs hold, besides a heat map."""


def test_every_notebook_is_looked_at():
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_results_are_not_kept(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and all(not cell.outputs and cell.execution_count is None for cell in code)
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert untied(prose, ("set to 0 and", "interval holds 0", "10 11 12", "ln 2")) == []


@pytest.fixture
def warm(warm_attnfaith, tmp_path, monkeypatch):
    """Kernels, and the commands that they find, start at once; a run's report has few figures, which no notebook shows."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(warm_attnfaith)
    (programs / "command.py").write_text(f"{IN_A_PROCESS}from attnfaith import cli\nsys.exit(cli.main())\n")
    (programs / "attnfaith").write_text(f'#!/bin/sh\nexec {warm_attnfaith} {programs}/command.py "$@"\n')
    (programs / "attnfaith").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.filterwarnings("ignore:.*without encryption")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_carried_out(path, tmp_path):
    (work := tmp_path / "work").mkdir()
    text, _ = notebooks.page(notebooks.carried_out(path, work), "pictures")
    for part in (*SHOWN[path.stem], 'class="attnfaith"'):
        assert part in text
    assert "Traceback" not in text and "error:" not in text
