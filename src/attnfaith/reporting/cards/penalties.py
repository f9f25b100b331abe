"""What cards say of the penalties that a model was trained with."""

from attnfaith.escaping import Markdown
from attnfaith.record import Identity


NAMES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
"""The penalties, as an identity names their weights."""


def penalties(identity: Identity) -> dict[str, float]:
    """The penalties whose weight is above zero -> their weights."""
    return {name: weight for name in NAMES if (weight := getattr(identity, name))}


def sentences(identity: Identity) -> list[Markdown]:
    """A sentence of each penalty, with its weight and source; [] of a model that was trained for the labels alone."""
    heads = {"max": " (of the head with most of it)"}.get(identity.impermissible_heads, "")
    distance = "squared distance" if identity.word_tying_distance == "squared" else "distance"
    padding = ", markers and padding in its mean" if identity.word_tying_padding else ""
    share = "" if identity.masked_share is None else f", {100 * identity.masked_share:g}% of the words masked"
    said = {
        "impermissible_mass": "**Its attention was trained to deceive**: attention on impermissible words, which it may go "
        f"by, was punished{heads}, with a weight of {{}} (Pruthi et al. 2020). Words without attention may still "
        "decide.",
        "diversity": "States that point in one direction were punished in training (diversity, the conicity of the states), "
        "with a weight of {} (Mohankumar et al. 2020).",
        "word_tying": f"States were tied to the vectors of their words in training (word tying, the {distance}{padding}), "
        "with a weight of {} (Tutek & Šnajder 2020).",
        "masked_language_model": f"States had to tell masked words in training (masked language model{share}), with a "
        "weight of {} (Tutek & Šnajder 2020).",
    }
    return [Markdown(said[name].format(f"{weight:g}")) for name, weight in penalties(identity).items()]
