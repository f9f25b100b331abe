"""Make `evaluate.load("attention_faithfulness")` find the metric of this package.

`evaluate` looks for a bare name in the current directory, then in its own organisation on the Hub, then in its cache;
it has no entry point for packages. Two ways around: patch its look-up when it is imported (`register_metric`, for
programs that import attnfaith), or put the metric into its cache (`install_metric`, for programs that do not).
"""

import functools
import logging
import os
from pathlib import Path

from attnfaith._import_hooks import when_imported


logger = logging.getLogger(__name__)
METRIC_NAME = "attention_faithfulness"
METRIC_DIR = Path(__file__).parent / METRIC_NAME


def register_metric() -> None:
    """Let `evaluate.load("attention_faithfulness")` load the metric in this process.

    Imports nothing: `evaluate` is patched when it is imported, or now if it already is. A folder of that name in the
    current directory still comes first, as does the Hub where a `revision` is asked for. Calling it again changes
    nothing.
    """
    when_imported("evaluate.loading", _patch_lookup)


def _patch_lookup() -> None:
    from evaluate import loading

    lookup = getattr(loading, "evaluation_module_factory", None)
    if lookup is None:
        logger.warning("this evaluate has no evaluation_module_factory: load the metric by its folder, %s", METRIC_DIR)
        return
    if getattr(lookup, "_knows_attention_faithfulness", False):
        return

    @functools.wraps(lookup)
    def evaluation_module_factory(path, module_type=None, revision=None, **arguments):
        if path == METRIC_NAME and module_type in (None, "metric") and revision is None:
            is_local = os.path.isfile(os.path.join(path, METRIC_NAME + ".py"))
            path = path if is_local else str(METRIC_DIR)
        loaded = lookup(path, module_type=module_type, revision=revision, **arguments)
        if path == str(METRIC_DIR):
            _mend(_place_of(loaded.module_path))
        return loaded

    evaluation_module_factory._knows_attention_faithfulness = True
    loading.evaluation_module_factory = evaluation_module_factory


def install_metric() -> Path:
    """Put the metric into evaluate's cache of modules, so that its bare name loads without importing attnfaith.

    The cache is `HF_MODULES_CACHE` (by default modules/ under HF_HOME) and is read by every program of this user.
    Where the Hub can be reached it is asked first, and the cached metric serves because the Hub has none of that name.
    Installing again after an upgrade makes the new version the one that loads.

    Returns the path of the installed script.
    """
    from evaluate.loading import _create_importable_file, init_dynamic_modules

    dotted_name, _ = _create_importable_file(
        local_path=str(METRIC_DIR / f"{METRIC_NAME}.py"),
        local_imports=[(name, str(METRIC_DIR / f"{name}.py")) for name in _siblings()],
        additional_files=[],
        dynamic_modules_path=init_dynamic_modules(),
        module_namespace="metrics",
        name=f"evaluate-metric/{METRIC_NAME}",
        download_mode=None,
    )
    installed = _place_of(dotted_name)
    _mend(installed)
    os.utime(installed)  # evaluate takes the version of the latest date, and does not copy one that is already there
    return installed


def _siblings() -> list[str]:
    """The modules beside the metric's that it imports."""
    from evaluate.loading import get_imports

    return [name for kind, name, *_ in get_imports(str(METRIC_DIR / f"{METRIC_NAME}.py")) if kind == "internal"]


def _place_of(dotted_name: str) -> Path:
    """The file, in evaluate's cache, of a module that it names."""
    from evaluate.loading import init_dynamic_modules

    return Path(init_dynamic_modules()).parent.joinpath(*dotted_name.split(".")).with_suffix(".py")


def _mend(installed: Path) -> None:
    """Write anew what of the metric's copy differs from ours: a process that was killed, or had no room, while it copied
    left a half-written file, and evaluate copies none that is there.
    """
    from attnfaith.files import write_atomically

    for name in (METRIC_NAME, *_siblings()):
        own, copy = (METRIC_DIR / f"{name}.py").read_bytes(), installed.with_name(f"{name}.py")
        if not copy.is_file() or copy.read_bytes() != own:
            write_atomically(copy, own)
