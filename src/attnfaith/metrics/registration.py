"""Make `evaluate.load("attention_faithfulness")` find the metric of this package.

`evaluate` looks for a bare name in the current directory, then in its own organisation on the Hub, then in its cache;
it has no entry point for packages. Two ways around: patch its look-up when it is imported (`register_metric`, for
programs that import attnfaith), or put the metric into its cache (`install_metric`, for programs that do not).
"""

import functools
import os
from pathlib import Path

from attnfaith._import_hooks import when_imported


METRIC_NAME = "attention_faithfulness"
METRIC_DIR = Path(__file__).parent / METRIC_NAME


def register_metric() -> None:
    """Let `evaluate.load("attention_faithfulness")` load the metric in this process.

    Imports nothing: `evaluate` is patched when it is imported, or now if it already is. A folder of that name in the
    current directory still comes first, as does the Hub where a `revision` is asked for. Calling it again changes
    nothing.
    """
    when_imported("evaluate.loading", _patch_lookup, f"evaluate.load knows the metric only by its folder, {METRIC_DIR}")


def _patch_lookup() -> None:
    from evaluate import loading

    lookup = loading.evaluation_module_factory
    if getattr(lookup, "_knows_attention_faithfulness", False):
        return

    @functools.wraps(lookup)
    def evaluation_module_factory(path, module_type=None, revision=None, **arguments):
        if path == METRIC_NAME and module_type in (None, "metric") and revision is None:
            is_local = os.path.isfile(os.path.join(path, METRIC_NAME + ".py"))
            path = path if is_local else str(METRIC_DIR)
        return lookup(path, module_type=module_type, revision=revision, **arguments)

    evaluation_module_factory._knows_attention_faithfulness = True
    loading.evaluation_module_factory = evaluation_module_factory


def install_metric() -> Path:
    """Put the metric into evaluate's cache of modules, so that its bare name loads without importing attnfaith.

    The cache is `HF_MODULES_CACHE` (by default modules/ under HF_HOME) and is read by every program of this user.
    Where the Hub can be reached it is asked first, and the cached metric serves because the Hub has none of that name.
    Installing again after an upgrade makes the new version the one that loads.

    Returns the path of the installed script.
    """
    from evaluate.loading import _create_importable_file, get_imports, init_dynamic_modules

    script = METRIC_DIR / f"{METRIC_NAME}.py"
    siblings = [name for kind, name, *_ in get_imports(str(script)) if kind == "internal"]
    modules = Path(init_dynamic_modules())
    dotted_name, _ = _create_importable_file(
        local_path=str(script),
        local_imports=[(name, str(METRIC_DIR / f"{name}.py")) for name in siblings],
        additional_files=[],
        dynamic_modules_path=str(modules),
        module_namespace="metrics",
        name=f"evaluate-metric/{METRIC_NAME}",
        download_mode=None,
    )
    installed = modules.parent.joinpath(*dotted_name.split(".")).with_suffix(".py")
    os.utime(installed)  # evaluate takes the version of the latest date, and does not copy one that is already there
    return installed
