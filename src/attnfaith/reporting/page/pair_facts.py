"""What a page says of a run on sentence pairs."""

from collections.abc import Mapping


def facts_of_pairs(made: Mapping, note: str | None, training: Mapping[str, str]) -> dict[str, str]:
    """made: the settings of a record of one run. training: what is said of its training, as of other runs.

    Raises KeyError where the settings lack what every such run has.
    """
    recipe, run = made["recipe"], made["run"]
    penalty = recipe["penalties"]["impermissible_mass"]
    kind = recipe["data"]["vocabulary"] or "words"
    return {
        "what it is": note or recipe["note"] or recipe["name"],
        "pairs": ", ".join(f"{split} {count:,}" for split, count in run["sizes"].items())
        + f"; left out {sum(run['dataset']['left_out'].values()):,}",
        "links": run["dataset"]["gold"],
        "vocabulary": f"{run['vocabulary']:,} {'byte pairs' if kind == 'bpe' else kind}",
        **training,
        **({"penalty": f"{penalty:g} on attention to linked words"} if penalty else {}),
        "translates": in_words(run["translation"]),
        "measured by": ", ".join(made["producers"]) or "nothing beside its predictions",
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
        "weights (SHA-256)": made["model"][:16],
    }


def in_words(scores: Mapping) -> str:
    """How well a model translates, such as "BLEU 31.2, chrF 55.0; 12.0% exact, 40.1% of words in place (test, 1,000)"."""
    labels = {"bleu": "BLEU", "chrf": "chrF"}
    parts = [f"{label} {scores[name]:.1f}" for name, label in labels.items() if scores[name] is not None]
    rest = f"{scores['exact']:.1%} exact, {scores['word_accuracy']:.1%} of words in place"
    return f"{', '.join([*parts, rest])} ({scores['split']}, {scores['pairs']:,})"
