"""Producers: the modules that measure, found by their names, and what is asked of them before they run."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

from attnfaith import record
from attnfaith.errors import AttnfaithError, excerpt, nearest


class MeasurementError(AttnfaithError):
    """A measurement that cannot start or go on. The message says why and what to do."""


def modules_of(*packages: ModuleType) -> dict[str, str]:
    """Name -> module of every producer of these packages."""
    return {
        module.name: f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
        if not module.name.startswith("_")
    }


def load(names: Sequence[str], known: Mapping[str, str]) -> dict[str, object]:
    """The modules behind these names, in this order. Raises MeasurementError for a name nobody has, with the nearest."""
    for name in names:
        if name not in known:
            raise MeasurementError(f"no measure or experiment is called {excerpt(name)}{nearest(name, known)}")
    if len(set(names)) < len(names):
        raise MeasurementError(f"a measure is named twice: {list(names)}")
    return {name: importlib.import_module(known[name]) for name in names}


def checked_options(modules: Mapping[str, object], options: Mapping[str, Mapping] | None) -> dict[str, dict]:
    """The options as given, {producer: {keyword: value}}.

    Raises MeasurementError for a producer that is not run, a keyword it does not have, and a value it refuses (a producer
    with a function `check(**options)` says so before any work is done).
    """
    options = {} if options is None else options
    wrong = (
        [options] if not isinstance(options, Mapping) else [one for one in options.values() if not isinstance(one, Mapping)]
    )
    if wrong:
        raise MeasurementError(f"options: {excerpt(wrong[0])} is no mapping; give {{measure: {{keyword: value}}}}")
    options = {name: dict(given) for name, given in options.items()}
    for name, given in options.items():
        if name not in modules:
            raise MeasurementError(f"options for '{name}', which is not measured; measured: {sorted(modules)}")
        parameters = list(inspect.signature(modules[name].measure).parameters)
        known = [key for key in parameters if key not in ("subject", "batch", "seed")]
        if unknown := sorted(set(given) - set(known)):
            raise MeasurementError(f"'{name}' has no option {unknown}; its options: {known or 'none'}")
        if hasattr(modules[name], "check"):
            try:
                modules[name].check(**given)
            except (TypeError, ValueError) as error:
                raise MeasurementError(f"options of '{name}': {error}") from error
    return options


def stated(module, options: Mapping) -> dict:
    """Options as a record keeps them: of a producer that was trained, what it was trained to be and not where it lies."""
    return module.stated(**options) if hasattr(module, "stated") else dict(options)


def makers(
    modules: Mapping[str, object], extra: Mapping[str, record.Column], common: Iterable[str], core: str
) -> dict[str, dict[str, str]]:
    """Which module makes each column of the record, and the digest of its code; core: that of the common ones."""
    makers = dict.fromkeys((*common, *extra), core)
    for module in modules.values():
        makers |= dict.fromkeys(
            [name for name in module.COLUMNS if name in extra], module.__name__.removeprefix("attnfaith.")
        )
    return {name: {"producer": maker, "code": record.code_digest(maker)} for name, maker in makers.items()}
