"""List all measures as a frame."""

import pandas as pd

from attnfaith.measurement import registry


def measures(reads: str = "texts") -> pd.DataFrame:
    """Return all measures, those of installed packages too, a row for each by its name.

    reads: "texts", for classifiers; "pairs", for models from sequences to sequences, whose measures link target words to
    source words. Columns: kind ("importance": scores of tokens; "intervention": attention or the text is changed, or another
    number describes the model); what it is, in a line; needs (what it asks of a model, see
    `attnfaith.subjects.protocol.CAPABILITIES`); options with their defaults; cost (from "nothing" to "draws", see
    `attnfaith.measurement.registry.COSTS`); signed (a negative score is evidence against what is explained); source (the
    paper). Importance comes first, cheap measures before dear ones.
    """
    rows = [
        {
            "name": measure.name,
            "kind": measure.role(),
            "what": measure.summary(),
            "needs": ", ".join(sorted(measure.needs)),
            "options": ", ".join(f"{name}={value!r}" for name, value in measure.options().items()),
            "cost": measure.cost,
            "signed": measure.signed(),
            "source": measure.source(),
        }
        for measure in registry.classes(reads)
    ]
    return pd.DataFrame(rows).set_index("name")
