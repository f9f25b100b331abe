"""Run code right after a module has been imported, without importing it.

transformers has no entry points for models, evaluate has none for metrics, and importing them takes seconds. So
`import attnfaith` registers its models and its metric when somebody else imports these, in any order.
"""

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec


def when_imported(module_name: str, callback: Callable[[], object]) -> None:
    """Call `callback()` now if the module is imported, else once, right after it has been executed.

    An import that fails is left alone: the next one is waited for. Nothing stays behind after the callback.
    """
    if sys.modules.get(module_name) is not None:
        callback()
    else:
        sys.meta_path.insert(0, _Finder(module_name, callback))


class _Finder(MetaPathFinder):
    """Finds the module as the finders behind it do, and has its loader call back."""

    def __init__(self, module_name: str, callback: Callable[[], object]):
        self.module_name, self.callback = module_name, callback

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.module_name:
            return None
        self.remove()
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self)
        return spec

    def remove(self) -> None:
        """Leave the path, by a new list: another thread may be going through the old one."""
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


class _CallingLoader(Loader):
    """Stands in for a loader until the module is executed; get_data, get_source and the like are the loader's own."""

    def __init__(self, loader, finder: _Finder):
        self.loader, self.finder = loader, finder

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.finder.remove()
        self.finder.callback()
