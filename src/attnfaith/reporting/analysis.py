"""A paper's own tables, figures and words: code that stands beside its study and that the study names.

`analysis: analysis.py` in a study file names a Python file, by its path from the study file. It defines one function

    tables(cells, settings) -> Analysis

It is called twice: before anything runs without any cell, when it must read what it needs, raise where it cannot use it, and
return an empty `Analysis`; and at the end with the measured cells of the study. Its folder is a package: it can import the
modules beside it and, with two dots, what lies in the folder above (`from ..shared import estimate`).

Who runs a study runs the code that it names: read the analysis of a study that others wrote before you run it.
"""

import hashlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from attnfaith.reporting.html import Grid
from attnfaith.support.errors import AttnfaithError


if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StudyError(AttnfaithError):
    """A study asks for tables that do not exist, names an analysis that cannot be loaded, or has an unusable key."""


@dataclass(frozen=True)
class Settings:
    """The settings that a study gives its analysis.

    published: the file of published numbers, None without one. stand_ins: data set measured -> data set of the paper that it
    stands in for. tables: those of single cells that the study asks for, by file name; {} where there are no cells yet.
    """

    published: Path | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """Results of an analysis: tables, grids and figures by file name without ending, texts by whole file name ("made.md").

    grids: tables as the page of the study shows them; each is a Markdown file too.
    """

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    figures: "Mapping[str, Figure]" = field(default_factory=dict)


def load_analysis(path: str | Path) -> ModuleType:
    """Return the module of an analysis; its folder is its package, in the package of the folder above.

    Raises StudyError where there is no such file or it has no function `tables`; what the code itself raises goes on.
    """
    path = Path(path).resolve()
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise StudyError(f"analysis: {path.name!r} is no name of a Python module; give a file such as analysis.py")
    if not path.is_file():
        raise StudyError(f"analysis: no file at {path}; its path is read from the study file")
    package, folders = "", (path.parent.parent, path.parent)
    names = f"attnfaith_{hashlib.sha256(str(folders[0]).encode()).hexdigest()[:12]}", path.parent.name.replace(".", "%")
    for name, folder in zip(names, folders, strict=True):
        package = f"{package}.{name}".lstrip(".")
        if package not in sys.modules:
            spec = ModuleSpec(package, None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
            sys.modules[package] = module_from_spec(spec)
    importlib.invalidate_caches()  # the file may be younger than Python's list of its folder
    module = importlib.import_module(f"{package}.{path.stem}")
    if not callable(getattr(module, "tables", None)):
        raise StudyError(f"analysis: {path} has no function tables(cells, settings); define it")
    return module
