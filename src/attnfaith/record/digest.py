"""Which code made a column: a digest of the module that makes it and of the modules that it imports, transitively.

Comments, docstrings and blank lines are not code, so what they say changes no digest. Read from the source files: nothing is
imported. Two records join where the digests of the columns that are used agree.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path


PACKAGE = "attnfaith"
ROOT = Path(__file__).parents[1]
CORE = "measurement"
"""The producer, by its module's name, of the columns that every record has."""
_COMMENT = re.compile(
    r'''("""(?:\\.|[^\\])*?"""|\'{3}(?:\\.|[^\\])*?\'{3}|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|#[^\n]*''', re.S
)
"""A string, which is kept, or a comment."""


@functools.cache
def code_digest(module: str, root: Path = ROOT) -> str:
    """12 hexadecimal digits of a SHA-256 over the code of a module, such as "importance.gradient", and of all that it
    imports of this package. Computed once in a process, from the files as they then lie. Raises ValueError for a module that
    the package does not have.
    """
    if _file(module, root) is None:
        raise ValueError(f"{PACKAGE} has no module {module!r}")
    digest = hashlib.sha256()
    for name in sorted(closure(module, root)):
        text, _ = _read(_file(name, root).read_text(encoding="utf-8"))
        digest.update(f"{name} {len(text)}\n{text}".encode())
    return digest.hexdigest()[:12]


def closure(module: str, root: Path = ROOT) -> set[str]:
    """The modules of the package that a module imports wherever the statement stands, theirs, and itself; names as in
    "record.io". The package's own __init__ is not among them: it only says what there is.
    """
    reached, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _imports(name, root)
    return reached


def _imports(module: str, root: Path) -> set[str]:
    """The modules of ours that a module may import."""
    path, names = _file(module, root), set()
    around = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in _read(path.read_text(encoding="utf-8"))[1]:
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix(f"{PACKAGE}.") for alias in node.names if alias.name.startswith(f"{PACKAGE}.")}
            continue
        base = node.module.split(".") if node.module else []
        if node.level:
            base = around[: len(around) - node.level + 1] + base
        elif base[:1] == [PACKAGE]:
            base = base[1:]
        else:
            continue
        names |= {".".join(base), *(".".join([*base, alias.name]) for alias in node.names)}
    return {name for name in names - {""} if _file(name, root) is not None}


def _file(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@functools.cache  # most modules are in the closure of most producers
def _read(source: str) -> tuple[str, list[ast.stmt]]:
    """A source text without comments, docstrings and blank lines, which is what runs; and its import statements."""
    lines, imports = _COMMENT.sub(lambda match: match[1] or "", source).splitlines(), []
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)
        waiting += [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)]
    return "\n".join(line.rstrip() for line in lines if line.strip()), imports


def stale(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The columns, {name: {"producer", "code"}} as the settings of a cell hold them, that this code would not make alike."""
    return [
        name
        for name, made in columns.items()
        if _file(made["producer"], ROOT) is None or code_digest(made["producer"]) != made["code"]
    ]
