"""The catalogue of measures and experiments as a frame that shows itself in a notebook."""

import pandas as pd

from attnfaith import catalogue


def measures(of: str = "texts") -> pd.DataFrame:
    """Every measure of importance and every experiment that there is, made from their modules.

    of: "texts", for classifiers; "sequences", for models from sequences to sequences, whose measures link target words to
    source words. A row for each, by its name: what `measure(…, measures=[…], experiments=[…])` takes. Columns: kind
    ("measure" or "experiment"); what it is, in a line; needs (what it asks of a model, see
    `attnfaith.subjects.protocol.CAPABILITIES`); options with their defaults; cost (from "nothing" to "draws", see
    `attnfaith.catalogue.COSTS`); signed (a negative score is evidence against what is explained); source (the paper).
    Measures come first, the cheap ones before the dear.
    """
    rows = [
        {
            "name": one.name,
            "kind": one.kind,
            "what": one.what,
            "needs": ", ".join(one.needs),
            "options": ", ".join(f"{name}={value}" for name, value in one.options.items()),
            "cost": one.cost,
            "signed": one.signed,
            "source": one.source,
        }
        for one in catalogue.entries(of)
    ]
    return _Listing(rows).set_index("name")


class _Listing(pd.DataFrame):
    """A frame that is shown whole: a line that is cut tells nobody what a measure is."""

    @property
    def _constructor(self):
        return _Listing

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.max_colwidth", None, "display.max_rows", None):
            return super()._repr_html_()
