"""Code that runs after an import of somebody else."""

import importlib
import importlib.util
import sys

import pytest

from attnfaith import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes modules of a fresh package; afterwards no hook may be left."""
    name = f"hooked_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)

    def write(module, source=""):
        (folder / f"{module}.py").write_text(source)
        importlib.invalidate_caches()
        return f"{name}.{module}"

    yield write
    left = [finder for finder in sys.meta_path if finder not in before]
    sys.meta_path[:] = before
    assert left == []


def test_called_once_after_the_module_is_executed(package):
    name, calls = package("late", "value = 1\n"), []
    for label in ("first", "second"):
        when_imported(name, lambda label=label: calls.append((label, sys.modules[name].value)))
    assert importlib.util.find_spec(name) is not None and calls == []
    importlib.reload(importlib.import_module(name))
    assert sorted(calls) == [("first", 1), ("second", 1)]
    when_imported(name, lambda: calls.append("at once"))
    assert calls[2:] == ["at once"]


def test_a_failed_import_is_waited_out(package):
    name, calls = package("broken", "raise RuntimeError('not yet')\n"), []
    when_imported(name, lambda: calls.append(name))
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(name)
    assert calls == []
    package("broken", "value = 'repaired'\n")
    importlib.import_module(name)
    assert calls == [name]
