"""Code that runs after an import of somebody else."""

import importlib
import importlib.util
import sys

import pytest

from attnfaith import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules of a fresh package; afterwards no hook is left."""
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
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
    assert left == []


def test_called_after_the_module_is_executed_and_once(package):
    name = package("late", "value = 1\n")
    calls = []
    when_imported(name, lambda: calls.append(sys.modules[name].value))
    assert importlib.util.find_spec(name) is not None and calls == []
    module = importlib.import_module(name)
    assert calls == [1]
    importlib.reload(module)
    assert calls == [1]
    when_imported(name, lambda: calls.append("at once"))
    assert calls == [1, "at once"]


def test_a_failed_import_is_waited_out(package):
    name = package("broken", "raise RuntimeError('not yet')\n")
    calls = []
    when_imported(name, lambda: calls.append(name))
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(name)
    assert calls == []
    package("broken", "value = 'repaired'\n")
    importlib.import_module(name)
    assert calls == [name]


def test_two_hooks_on_one_module(package):
    name, calls = package("shared"), []
    for label in ("first", "second"):
        when_imported(name, lambda label=label: calls.append(label))
    importlib.import_module(name)
    assert sorted(calls) == ["first", "second"]
