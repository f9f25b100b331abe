"""From a record to tables, figures and an HTML page. Needs no model: torch is never imported here. A function's module is
imported when the function is asked for.
"""

from importlib import import_module


_MODULES = {
    "charts": ("save_figure",),
    "page": ("write_report",),
    "sections.agreement": ("agreement_table",),
    "sections.performance": ("performance_table",),
    "sections.saliency": ("plausibility_table",),
    "tables": ("save_table", "seed_summary"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [*_PLACES]


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
