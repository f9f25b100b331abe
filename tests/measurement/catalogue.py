"""The catalogue of measures and parts of models that `attnfaith list` shows without torch.

After a change of one of them: python -m tests.measurement.catalogue
"""

import json
from importlib import import_module
from pkgutil import iter_modules

from attnfaith.cli.listing import PACKAGE, PARTS, line_of, sentence
from attnfaith.measurement import registry


def written_catalogue() -> str:
    """Return the content of `registry.CATALOGUE`, as JSON: a line, the module and the names of the options of each measure
    of this package, and a line for each part of models.
    """
    for package in ("importance", "interventions", "alignment"):
        for module in iter_modules([str(PACKAGE / package)], f"attnfaith.{package}."):
            import_module(module.name)
    content = {
        reads: {
            cls.name: {"line": line_of(cls), "module": cls.__module__, "options": [*cls.options()]}
            for cls in registry.classes(reads)
            if cls.__module__.startswith("attnfaith.")
        }
        for reads in registry.READS
    }
    for kind in PARTS:
        parts = getattr(import_module(f"attnfaith.models.{kind}"), kind.upper())
        content[kind] = {name: {"line": sentence(part.__doc__)} for name, part in parts.items()}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    registry.CATALOGUE.write_text(written_catalogue(), encoding="utf-8")
