"""What a card cites: the papers that measurements, models and data sets come from.

citations.bib holds the entries, citations.yaml says which of them each data set, measurement, encoder, projection, objective
and penalty has.
"""

import re
from collections.abc import Iterable
from importlib.resources import files

import yaml

from attnfaith.record import Identity
from attnfaith.reporting.cards.findings import Checkpoint


_FOLDER = files("attnfaith.reporting.cards")
_ENTRIES = re.split(r"\n(?=@)", (_FOLDER / "citations.bib").read_text(encoding="utf-8"))
BIBTEX: dict[str, str] = {re.match(r"@\w+\{([^,]+),", entry)[1]: entry for entry in _ENTRIES}
"""Key -> entry."""
CITED: dict[str, dict[str, list[str]]] = yaml.safe_load((_FOLDER / "citations.yaml").read_text(encoding="utf-8"))
"""Kind -> what is cited -> keys."""
PENALTIES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
"""As an identity names their weights."""


def penalties(identity: Identity) -> dict[str, float]:
    """The penalties of a training whose weight is above zero -> their weights."""
    return {name: getattr(identity, name) for name in PENALTIES if getattr(identity, name)}


def keys(checkpoint: Checkpoint) -> list[str]:
    """What the card of a checkpoint cites: its data set, its encoder and projection, its objective and penalties, its
    measurements, and Pruthi et al., whom every card names.
    """
    identity = checkpoint.cell.identity
    subjects = {
        "datasets": [identity.dataset],
        "encoders": [identity.encoder],
        "projections": [identity.projection],
        "objectives": [identity.objective],
        "penalties": penalties(identity),
        "producers": [name for settings in checkpoint.settings for name in settings.get("producers", ())],
    }
    cited = [key for kind, names in subjects.items() for name in names for key in CITED[kind].get(name, ())]
    return list(dict.fromkeys([*cited, "pruthi-etal-2020-learning"]))


def bibtex(names: Iterable[str]) -> str:
    """The entries of these keys, one after the other. KeyError for one the table does not hold."""
    return "\n".join(BIBTEX[name] for name in names)
