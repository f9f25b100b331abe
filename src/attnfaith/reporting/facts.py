"""Where a record comes from, by heading: data, training, measures and versions, for pages, cards and terminals."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.html import DECLARED
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.support.errors import counted, cut


MOST_CLASSES = 20
"""Classes that are listed one by one."""


def record_facts(record: pa.Table) -> dict[str, object]:
    """Return what made a record: its run, or the source of the model and texts; of several cells the version alone.

    Raises RecordError where the settings of a run lack what every run has.
    """
    stored = records.settings(record)
    settings = stored[0] if len(stored) == 1 else {}
    if not ({"recipe", "run"} <= set(settings) or "source" in settings):
        return {"attnfaith": ", ".join(sorted({str(part["version"]) for part in stored if "version" in part}))}
    try:
        if "source" in settings:
            facts = {"model is from": settings["source"], "attnfaith": settings["version"]}
        else:
            facts = _run_facts(settings["recipe"], settings["run"], settings)
        facts |= {
            "classes": _some((f"{number} {name}" for number, name in enumerate(settings.get("label_names", ()))), ", "),
            "measured by": ", ".join(settings["producers"]) or "nothing beside its predictions",
            "weights (SHA-256)": settings["model"][:16],
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise records.RecordError(
            f"the record's settings are not those of a run ({type(error).__name__}: {str(error)[:80]}): measure the model "
            "anew"
        ) from error
    return {name: value for name, value in facts.items() if value}


def _run_facts(recipe: Mapping, run: Mapping, settings: Mapping) -> dict[str, object]:
    training, origin = "none: the model as it was drawn", "{name} (revision {revision}, weights {digest})"
    versions = {"attnfaith": settings["version"], **settings["provenance"]["libraries"]}
    if "best" in run:
        chosen = selected_by(run, settings.get("label_names", ()))
        training = f"{counted(run['epochs'], 'epoch')} in {run['training_seconds']:g} s"
        training += f"; the best by {chosen} on validation, {run['best']['value']:.4f}"
    return {
        "run": recipe["note"] or recipe["name"],
        "trained against": run.get("base", {}).get("folder", ""),
        "fine-tuned from": origin.format(**run["pretrained"]) if "pretrained" in run else "",
        "sizes": ", ".join(f"{split} {count:,}" for split, count in run["sizes"].items()),
        **own_data_facts(run["dataset"]),
        "training": training,
        "penalties": ", ".join(f"{key} {value}" for key, value in recipe["penalties"].items() if value),
        "translates": translation_in_words(run["translation"]) if "translation" in run else "",
        "versions": ", ".join(f"{name} {versions[name]}" for name in ("attnfaith", "torch", "transformers")),
    }


def _some(parts: Iterable[str], separator: str = "; ") -> str:
    parts = list(parts)
    more = [f"and {len(parts) - MOST_CLASSES:,} more"] if len(parts) > MOST_CLASSES else []
    return separator.join([*parts[:MOST_CLASSES], *more])


def translation_in_words(scores: Mapping) -> str:
    """How well a model translates, such as "BLEU 31.2, chrF 55.0; 12.0% exact, 40.1% of words in place (test, 1,000)"."""
    labels = {"bleu": "BLEU", "chrf": "chrF"}
    parts = [f"{label} {scores[name]:.1f}" for name, label in labels.items() if scores[name] is not None]
    rest = f"{scores['exact']:.1%} exact, {scores['word_accuracy']:.1%} of words in place"
    return f"{', '.join([*parts, rest])} ({scores['split']}, {scores['pairs']:,})"


def own_data_facts(dataset: Mapping) -> dict[str, str]:
    """Facts about a user's own data, by heading; {} for another data set. dataset: that of run.json.

    Raises KeyError where it lacks a part.
    """
    about = dataset.get("about")
    if not about:
        return {}
    counts = sum(map(Counter, dataset["dropped"].values()), Counter())
    left = ", ".join(f"{count:,} {DECLARED['left_out'].get(reason, reason)}" for reason, count in counts.items())
    words = {split: [f"{number:,.0f}" for number in numbers] for split, numbers in about["words"].items()}
    return {
        "rows": f"{counted(about['rows'], 'row')} read; left out: {left or 'none'}",
        "columns": ", ".join(f"{ours} from {theirs!r}" for ours, theirs in about.get("columns", {}).items()),
        "splits": about["splits"],
        f"texts of each class ({', '.join(words)})": _some(
            f"{cut(name, 60)} {', '.join(f'{count:,}' for count in split.values())}"
            for name, split in about["classes"].items()
        ),
        "words of a text (median, half of them between)": "; ".join(
            f"{split} {median} ({low} and {high})" for split, (_, low, median, high, _) in words.items()
        ),
        "repeated texts": f"rows that repeat an earlier text: {about['repeated']:,}; texts with two labels: "
        f"{about['two_labels']:,}",
        **({"assumed": "; ".join(about["assumed"])} if about["assumed"] else {}),
    }


def own_data_lines(name: str, about: Mapping, dropped: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The same as lines for a terminal. name, about, dropped: of a `LoadedDataset`."""
    facts = own_data_facts({"about": about, "dropped": dropped})
    return [f"{name}: {facts.pop('rows')}", *(f"{heading}: {value}" for heading, value in facts.items())]
