"""Run code right after a module has been imported, without importing it."""

import logging
import sys
import threading
from collections.abc import Callable


logger = logging.getLogger(__name__)
_path_lock = threading.Lock()


def when_imported(module_name: str, callback: Callable[[], None], without: str) -> None:
    """Call `callback()` once `module_name` is fully imported: now if it is, else right after it has been executed.

    For what has to reach into a slow library (register a class, add a name) but must not load it for users who never
    do. The callback runs in the thread that imports the module, before its import statement returns. An exception of it
    is logged as a warning that ends with `without`, what does not work now and what to do instead: never an exception of
    that import, which is somebody else's, nor a Python warning, which they may have made an exception.

    The package that holds the module may still be under way then: get at the module by `from package import module`, not
    as `package.module`. Where an import of it is under way in this moment, or another import hook finds the module first,
    the callback runs at the next import of any other module. An import that fails leaves the hook in place. Safe under
    threads. Nothing stays behind after the callback: not in `sys.meta_path`, not on the module.
    """
    hook = _Hook(module_name, callback, without)
    # first on the path, then look: a module imported by another thread in between is not missed
    with _path_lock:
        sys.meta_path.insert(0, hook)
    if _is_imported(module_name):
        hook.fire()


def _is_imported(module_name: str) -> bool:
    module = sys.modules.get(module_name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


class _Hook:
    """A meta path finder: lets the finders after it find the module, and listens to its loader."""

    def __init__(self, module_name: str, callback: Callable[[], None], without: str):
        self.module_name = module_name
        self.callback = callback
        self.without = without
        self.lock = threading.Lock()
        self.fired = False

    def find_spec(self, name, path=None, target=None):
        if self.fired:
            return None
        if name != self.module_name:
            if _is_imported(self.module_name):
                self.fire()
            return None
        try:
            return self._listened(name, path, target)
        except Exception:
            return None  # what is wrong with a finder behind this one is said when the import asks it itself

    def _listened(self, name, path, target):
        """The spec that the finders behind this one have, its loader listened to."""
        finders = list(sys.meta_path)
        places = [place for place, finder in enumerate(finders) if finder is self]
        # only those behind: two hooks for one module ask each other in one direction
        for finder in finders[places[0] + 1 :] if places else finders:
            # a finder of the old protocol (find_module alone) cannot be asked; without a spec the import goes on to it
            find_spec = getattr(finder, "find_spec", None)
            if find_spec is not None and (spec := find_spec(name, path, target)) is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _ListeningLoader(spec.loader, self)
                return spec
        return None

    def fire(self) -> None:
        with self.lock:
            if self.fired:
                return
            self.fired = True
        with _path_lock:
            # a new list: taking an item out of the old one could make another thread's import skip a finder
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
        try:
            self.callback()
        except Exception as error:
            logger.warning("attnfaith and this %s do not fit (%r): %s", self.module_name, error, self.without)


class _ListeningLoader:
    """Stands in for a loader until the module is executed; get_data, get_source and the like are the loader's own."""

    def __init__(self, loader, hook: _Hook):
        self._loader = loader
        self._hook = hook

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._hook.fire()
