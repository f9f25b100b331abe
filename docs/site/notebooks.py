"""The notebooks of docs/notebooks: carried out from top to bottom, and made into pages with their outputs."""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode


NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
TIMEOUT = 600  # seconds of a cell
PATIENCE = 120  # seconds for what a cell prints to come; after 4, nbclient's own, a busy machine loses it without a word


def notebooks() -> list[Path]:
    """Every notebook, in the order of the names."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def carried_out(path: Path, folder: Path) -> NotebookNode:
    """The notebook with the outputs of today's code, but for standard error; it works in `folder`, whose name is left out.

    Raises CellExecutionError where a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    given = {"timeout": TIMEOUT, "iopub_timeout": PATIENCE, "kernel_name": "python3"}
    client = NotebookClient(notebook, **given, resources={"metadata": {"path": str(folder)}})
    commands = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    quiet = {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
    client.execute(env={**os.environ, "PATH": commands, **quiet})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]  # bars of progress
            for output in cell.outputs:
                if output.output_type == "stream":
                    output.text = output.text.replace(f"{folder.resolve()}/", "")
    return notebook


def page(notebook: NotebookNode, folder: str) -> tuple[str, dict[str, bytes]]:
    """A notebook that was carried out as Markdown, and its pictures, which are to lie in `folder` beside it."""
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, resources={"output_files_dir": folder, "unique_key": "output"}
    )
    return text, resources["outputs"]
