"""Run code right after a module has been imported, without importing it.

transformers has no entry points for models, evaluate has none for metrics, and importing them takes seconds. So
`import attnfaith` registers its models and its metric when somebody else imports these, in any order.
"""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.util import find_spec


def when_imported(module_name: str, callback: Callable[[], object]) -> None:
    """Call `callback()` now if the module is imported, else once, right after it has been executed."""
    if sys.modules.get(module_name) is not None:
        callback()
    else:
        sys.meta_path.insert(0, _Finder(module_name, callback))


class _Finder(MetaPathFinder):
    """Finds the module as the finders behind it do, and has its loader call back."""

    def __init__(self, module_name: str, callback: Callable[[], object]):
        self.module_name, self.callback, self.searching = module_name, callback, False

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.module_name or self.searching:
            return None
        self.searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
                self.callback()

            spec.loader.exec_module = exec_module
        return spec
