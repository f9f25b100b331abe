"""Imports run one way, and the folders that travel to the Hub import nothing that would not travel with them."""

import ast
import subprocess
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
    ("reproduction", "roar", "space", "study"),
    ("cli",),
    ("__main__",),
)
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}
WITHOUT_TORCH = ("support", "record", "metrics", "stats", "verdict")
WITHOUT_TORCH += ("reporting",)
MODELS = {"torch", "transformers", "entmax", "huggingface_hub"}
METRIC = {"numpy", "scipy", "datasets", "evaluate"}
DEMO = {"gradio", "pandas"}  # what the page of a Space runs on
PAGE = {"app.py"}


def imports(file):
    """(module, dots) of each import statement of a file, wherever it stands; one pair for each name of `from . import`."""
    for node in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module, node.level
                # `from attnfaith import data` names a part too
                yield from ((f"{node.module}.{alias.name}", node.level) for alias in node.names)
            else:
                yield from ((alias.name, node.level) for alias in node.names)


def absolute(file, module, dots):
    """The full name of what a file imports."""
    if not dots:
        return module
    package = file.parent.parts[: len(file.parent.parts) - dots + 1]
    return ".".join((*package, module))


def part(name):
    """`attnfaith.data.registry` belongs to data; the package itself, and what it defines, to none."""
    pieces = name.split(".")
    return pieces[1] if pieces[0] == "attnfaith" and len(pieces) > 1 and pieces[1] in PARTS else None


def own_part(file):
    return part(".".join(file.with_suffix("").parts))


def is_closed(file):
    if file.parts[1] == "models":
        return file.name != "__init__.py"
    return file.parts[1:3] == ("metrics", "attention_faithfulness")


def test_every_file_has_a_place_in_the_order():
    assert len(FILES) > 20
    assert PARTS - set(LEVEL) == set(), "say in LAYERS where it stands"


def test_direction():
    for file in FILES:
        mine = own_part(file)
        for module, dots in imports(file):
            other = part(absolute(file, module, dots))
            if other is not None and other != mine and mine is not None:
                assert LEVEL[other] < LEVEL[mine], f"{file} imports {other}"


def test_what_a_package_exports_is_imported_from_it_alone():
    """What `__init__` imports from the package's own modules; other code imports it from the package."""
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


def test_no_circle_between_the_files_of_reporting():
    files = {".".join(file.with_suffix("").parts): file for file in FILES if own_part(file) == "reporting"}
    graph = {
        name: {absolute(file, *imported) for imported in imports(file)} & set(files) - {name} for name, file in files.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(files), "CycleError names the circle"


@pytest.mark.parametrize("file", [file for file in FILES if is_closed(file)], ids=str)
def test_closed_folders(file):
    """Only the standard library, what the folder is allowed, and siblings by one dot."""
    allowed = MODELS if file.parts[1] == "models" else METRIC | (DEMO if file.name in PAGE else set())
    siblings = {path.stem for path in (SOURCE / file).parent.glob("*.py")}
    for module, dots in imports(file):
        top = module.partition(".")[0]
        if dots:
            assert dots == 1 and top in siblings, f"{file}: only siblings by one dot travel, not {'.' * dots}{module}"
        else:
            assert top in allowed | set(sys.stdlib_module_names), f"{file} imports {top}, which does not travel"


@pytest.mark.parametrize("file", [file for file in FILES if is_closed(file)], ids=str)
def test_closed_folders_as_the_scanners_read_them(file):
    """The scanners of transformers and evaluate find `from .sibling import name` only, and one module a line."""
    for node in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert len(node.names) == 1, f"{file}: import one module a line"
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.module and "." not in node.module, f"{file}: write `from .sibling import name`"


@pytest.mark.parametrize(
    "file", [file for file in FILES if own_part(file) in WITHOUT_TORCH and file.stem != "draws"], ids=str
)
def test_never_torch(file):
    for module, dots in imports(file):
        name = absolute(file, module, dots)
        assert name.partition(".")[0] not in ("torch", "transformers", "accelerate", "entmax"), f"{file} imports {name}"
        assert part(name) in (None, "import_hook", *WITHOUT_TORCH), f"{file} imports {name}"


def test_package_itself_is_light():
    """Importing attnfaith may only reach what registers names."""
    for module, dots in imports(Path("attnfaith/__init__.py")):
        name = absolute(Path("attnfaith/__init__.py"), module, dots)
        own = name.startswith(("attnfaith.import_hook", "attnfaith.metrics.registration"))
        assert own or name.partition(".")[0] in sys.stdlib_module_names, name


@pytest.mark.slow
def test_no_torch_in_the_process():
    """What the names say, seen in a process: record, metrics and reporting load without torch."""
    modules = [
        ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        for file in FILES
        if own_part(file) in WITHOUT_TORCH and not is_closed(file)
    ]
    script = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(sorted({'torch', 'entmax', 'accelerate'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
