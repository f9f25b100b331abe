"""Code that runs after an import of somebody else."""

import importlib
import importlib.util
import sys

import pytest

from attnfaith import when_imported


def test_called_once_after_a_module_is_executed_whole(tmp_path, monkeypatch):
    name, path, calls, before = "hooked_module", tmp_path / "hooked_module.py", [], list(sys.meta_path)
    monkeypatch.syspath_prepend(tmp_path)
    path.write_text("raise RuntimeError('not yet')\n")
    for label in ("first", "second"):
        when_imported(name, lambda label=label: calls.append((label, sys.modules[name].value)))
    assert importlib.util.find_spec(name) is not None and calls == []
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(name)
    assert calls == []
    path.write_text("value = 'repaired'\n")
    importlib.invalidate_caches()
    importlib.reload(importlib.import_module(name))
    assert sorted(calls) == [("first", "repaired"), ("second", "repaired")]
    when_imported(name, lambda: calls.append("at once"))
    assert calls[2:] == ["at once"] and sys.meta_path == before
    del sys.modules[name]
