"""Run code right after a module has been imported, without importing it.

transformers has no entry points for models, evaluate has none for metrics, and importing them takes seconds. So
`import attnfaith` registers its models and its metric when somebody else imports these, in any order.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.abc import MetaPathFinder


def when_imported(module_name: str, callback: Callable[[], object]) -> None:
    """Call `callback()` now if the module is imported, else once, right after it has been executed."""
    if sys.modules.get(module_name) is not None:
        callback()
    else:
        sys.meta_path.insert(0, _Finder(module_name, callback))


@dataclass(eq=False)
class _Finder(MetaPathFinder):
    """Finds the module as the finders behind it do, and has its loader call back."""

    module_name: str
    callback: Callable[[], object]

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.module_name:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in behind)), None)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                sys.meta_path.remove(self)
                self.callback()

            spec.loader.exec_module = exec_module
        return spec
