import importlib
import importlib.resources
import importlib.util
import sys

import pytest

from attnfaith._import_hooks import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules of a fresh package; afterwards the import system must be as before."""
    name = f"hooked_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "data.txt").write_text("42")
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
    assert left == [], "a hook stayed behind"


def test_called_after_the_module_is_executed_and_once(package):
    name = package("late", "value = 1\n")
    calls = []
    when_imported(name, lambda: calls.append(sys.modules[name].value))
    assert name not in sys.modules and calls == []
    module = importlib.import_module(name)
    assert calls == [1]
    importlib.reload(module)
    importlib.import_module(package("another"))
    assert calls == [1]


def test_called_at_once_where_the_module_is_imported(package):
    name = package("early")
    importlib.import_module(name)
    calls = []
    when_imported(name, lambda: calls.append(name))
    assert calls == [name]


def test_several_hooks_on_one_and_on_different_modules(package):
    a, b = package("a"), package("b")
    calls = []
    for label, name in (("first", a), ("second", a), ("other", b)):
        when_imported(name, lambda label=label: calls.append(label))
    importlib.import_module(a)
    assert sorted(calls) == ["first", "second"]
    importlib.import_module(b)
    assert sorted(calls) == ["first", "other", "second"]


def test_callback_may_import_and_hook_again(package):
    a, b = package("a"), package("b", "value = 2\n")
    calls = []

    def callback():
        when_imported(b, lambda: calls.append("b"))
        calls.append(importlib.import_module(b).value)

    when_imported(a, callback)
    importlib.import_module(a)
    assert calls == ["b", 2]


def test_a_failed_import_keeps_the_hook(package):
    name = package("broken", "raise RuntimeError('not yet')\n")
    calls = []
    when_imported(name, lambda: calls.append(name))
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(name)
    assert calls == []
    package("broken", "value = 'repaired'\n")
    importlib.import_module(name)
    assert calls == [name]
