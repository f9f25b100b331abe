"""Small packages that offer something by an entry point."""

import importlib
import sys


def offer(tmp_path, monkeypatch, name, source, group, attribute):
    """Install a package whose `attribute` is offered as `name`; source: what its module holds."""
    module = f"package_of_{name}"
    (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
    folder = tmp_path / f"{module}-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{attribute}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.invalidate_caches()
