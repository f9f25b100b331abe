"""Imports run one way, and the folders that travel to the Hub import nothing that does not travel with them."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest


SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "attnfaith"
FILES = sorted(path.relative_to(SOURCE) for path in PACKAGE.rglob("*.py"))
PARTS = {file.parts[1].removesuffix(".py") for file in FILES} - {"__init__"}

# Each layer may import those before it. Parts of one layer may not import one another.
LAYERS = (
    ("support",),
    ("import_hook",),
    ("models", "metrics"),
    ("record", "stats"),
    ("verdict",),
    ("data",),
    ("subjects",),
    ("measurement",),
    ("importance",),
    ("alignment",),
    ("interventions",),
    ("training",),
    ("reporting",),
    ("recipes",),
    ("loading",),
    ("hub",),
    ("runs", "api"),
    ("reproduction", "space", "study"),
    ("cli",),
    ("__main__",),
)
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}
WITHOUT_TORCH = ("support", "record", "metrics", "stats", "verdict", "reporting")
MODELS = {"torch", "transformers", "entmax", "huggingface_hub"}
METRIC = {"numpy", "scipy", "datasets", "evaluate", "sklearn"}
DEMO = {"gradio", "pandas"}  # of app.py, the page of a Space


def imports(file):
    """(module, dots) of each import statement of a file, wherever it stands, and of each name that it imports."""
    for node in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            yield from ((name, node.level) for name in filter(None, [node.module, *(start + a.name for a in node.names)]))


def absolute(file, module, dots):
    """The full name of what a file imports."""
    return ".".join((*file.parent.parts[: len(file.parent.parts) - dots + 1], module)) if dots else module


def part(name):
    """The part of the package that a module belongs to; None for the package itself and for other packages."""
    pieces = name.split(".")
    return pieces[1] if pieces[0] == "attnfaith" and len(pieces) > 1 and pieces[1] in PARTS else None


def own_part(file):
    return part(".".join(file.with_suffix("").parts))


def is_closed(file):
    folder = file.parts[1:-1]
    return (folder == ("models",) and file.name != "__init__.py") or folder == ("metrics", "attention_faithfulness")


def test_direction():
    assert PARTS - set(LEVEL) == set(), "LAYERS lacks these"
    for file in FILES:
        own = own_part(file)
        for other in {part(absolute(file, *imported)) for imported in imports(file)} - {None, own} if own else ():
            assert LEVEL[other] < LEVEL[own], f"{file} imports {other}"


def test_what_a_package_exports_is_imported_from_it_alone():
    homes = {}
    for file in (file for file in FILES if file.name == "__init__.py"):
        package = ".".join(file.parent.parts)
        for node in ast.parse((SOURCE / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
                homes |= {(node.module, alias.name): package for alias in node.names}
    root = SOURCE.parent
    for path in (path for folder in ("src", "recipes", "tests") for path in (root / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else ():
                package = homes.get((node.module, name))
                inside = package and (SOURCE / package.replace(".", "/")) in path.parents
                assert not package or inside, f"{path}: import {name} from {package}"


def test_no_circle_between_files():
    """What `static_order` raises names the circle."""
    files = {".".join(file.with_suffix("").parts): file for file in FILES}
    graph = {name: {absolute(file, *i) for i in imports(file)} & set(files) - {name} for name, file in files.items()}
    graph["attnfaith.subjects.protocol"].remove("attnfaith.subjects.base")  # for annotations alone
    assert set(TopologicalSorter(graph).static_order()) == set(files)


@pytest.mark.parametrize("file", [file for file in FILES if is_closed(file)], ids=str)
def test_closed_folders(file):
    """They import the standard library, what the folder is allowed, and siblings by one dot.

    The scanners of transformers and evaluate read `from .sibling import name` only, and one module a line.
    """
    allowed = MODELS if file.parts[1] == "models" else METRIC | (DEMO if file.name == "app.py" else set())
    siblings = {path.stem for path in (SOURCE / file).parent.glob("*.py")}
    for node in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1 and node.module in siblings, f"{file}: write `from .sibling import name`"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            assert len(modules) == 1, f"{file}: import one module a line"
            top = modules[0].partition(".")[0]
            assert top in allowed | set(sys.stdlib_module_names), f"{file} imports {top}, which does not travel"


@pytest.mark.parametrize(
    "file", [file for file in FILES if own_part(file) in WITHOUT_TORCH and file.stem != "draws"], ids=str
)
def test_never_torch(file):
    for name in (absolute(file, *imported) for imported in imports(file)):
        assert name.partition(".")[0] not in ("torch", "transformers", "accelerate", "entmax"), f"{file} imports {name}"
        assert part(name) in (None, "import_hook", *WITHOUT_TORCH), f"{file} imports {name}"


def test_the_package_itself_is_light():
    for name in (absolute(Path("attnfaith/__init__.py"), *imported) for imported in imports(Path("attnfaith/__init__.py"))):
        own = name.startswith(("attnfaith.import_hook", "attnfaith.metrics.registration"))
        assert own or name.partition(".")[0] in sys.stdlib_module_names, name
