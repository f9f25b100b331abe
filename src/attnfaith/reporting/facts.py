"""Where a record comes from, by heading: data, training, measures and versions, for pages, cards and terminals."""

from collections.abc import Mapping, Sequence

import pandas as pd
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.reporting.tables import as_text
from attnfaith.support.errors import counted, cut


MOST_CLASSES = 20
"""Classes that are listed one by one."""
REASONS = {
    "no_label": "without a label",
    "no_text": "without text",
    "limit": "not drawn",
    "label_not_in_training": "of a class that training lacks",
    "also_in_test": "whose text is in test too",
    "also_in_validation": "whose text is in validation too",
}


def record_facts(record: pa.Table) -> dict[str, object]:
    """Return what made a record: its run, the source of the model and texts, or the settings that several cells share.

    Raises RecordError where the settings of a run lack what every run has.
    """
    stored = records.settings(record)
    is_run = len(stored) == 1 and {"recipe", "run"} <= set(stored[0])
    if len(stored) != 1 or not (is_run or "source" in stored[0]):
        names = list(dict.fromkeys(name for settings in stored for name in settings))
        shared = {
            name: stored[0][name] for name in names if all(name in part and part[name] == stored[0][name] for part in stored)
        }
        differing = ", ".join(name for name in names if name not in shared)
        return shared | ({"settings that differ between cells": differing} if differing else {})
    (settings,) = stored
    try:
        facts = (_run_facts if is_run else _source_facts)(record, settings)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise records.RecordError(
            f"the record's settings are not those of a run ({type(error).__name__}: {str(error)[:80]}): measure the model "
            "anew"
        ) from error
    return {name: value for name, value in facts.items() if value}


def _source_facts(record: pa.Table, settings: Mapping) -> dict[str, str]:
    pairs = records.of_sequences(record)
    return {
        "what it is": f"{'pairs of sentences' if pairs else 'texts'} measured with a given model",
        "model is from": settings["source"],
        "classes": "" if pairs else _classes(settings["label_names"]) or "without names",
        "measured by": ", ".join(settings["producers"]),
        "attnfaith": settings["version"],
        "weights (SHA-256)": settings["model"][:16],
    }


def _run_facts(record: pa.Table, settings: Mapping) -> dict[str, str]:
    recipe, run, names = settings["recipe"], settings["run"], settings.get("label_names", ())
    pairs, dataset = records.of_sequences(record), run["dataset"]
    left_out = dataset["left_out"].values() if pairs else [n for part in dataset["dropped"].values() for n in part.values()]
    sizes = ", ".join(f"{split} {count:,}" for split, count in run["sizes"].items())
    facts = {"what it is": recipe["note"] or recipe["name"]}
    if "base" in run:
        facts["trained against"] = run["base"]["folder"]
    if "pretrained" in run:
        facts["fine-tuned from"] = "{name} (revision {revision}, weights {digest})".format(**run["pretrained"])
    facts |= {
        "pairs" if pairs else "texts": f"{sizes}; left out {sum(left_out):,}",
        "links": dataset["gold"] if pairs else "",
        **own_data_facts(dataset),
        "classes": _classes(names),
        "attention is over": "" if pairs else _unit(record),
        "vocabulary": f"{run['vocabulary']:,} {recipe['data']['vocabulary'] or 'words' if pairs else 'entries'}",
        "training": "none: the model as it was drawn",
    }
    if "best" in run:
        length = f"{counted(run['epochs'], 'epoch')} in {run['training_seconds']:g} s, processes {run['processes']}"
        facts["training"] = f"{length}; {_listed(recipe['training'])}"
        facts["selected on validation"] = f"{selected_by(run, names)} {run['best']['value']:.4f}"
    return facts | {
        "penalties": _listed(recipe["penalties"]),
        "translates": translation_in_words(run["translation"]) if pairs else "",
        "measured by": ", ".join(settings["producers"]) or "nothing beside its predictions",
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
        "weights (SHA-256)": settings["model"][:16],
    }


def _listed(section: Mapping) -> str:
    """The keys of a recipe's section that are set."""
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in section.items() if value
    )


def translation_in_words(scores: Mapping) -> str:
    """How well a model translates, such as "BLEU 31.2, chrF 55.0; 12.0% exact, 40.1% of words in place (test, 1,000)"."""
    labels = {"bleu": "BLEU", "chrf": "chrF"}
    parts = [f"{label} {scores[name]:.1f}" for name, label in labels.items() if scores[name] is not None]
    rest = f"{scores['exact']:.1%} exact, {scores['word_accuracy']:.1%} of words in place"
    return f"{', '.join([*parts, rest])} ({scores['split']}, {scores['pairs']:,})"


def _unit(record: pa.Table) -> str:
    """The kind of tokens in a record, in words."""
    if "words" in record.column_names:
        return "sentences, which are the tokens below"
    if "word_of_token" in record.column_names:
        return "subwords; ## stands before one that goes on with a word, ##⋯ before another part of the character before it"
    return "tokens"


def _classes(names: Sequence[str]) -> str:
    """The classes with their numbers; of very many the first and the last."""
    classes = [f"{number} {name}" for number, name in enumerate(names)]
    return (
        ", ".join(classes)
        if len(classes) <= MOST_CLASSES
        else f"{len(classes)}: {', '.join(classes[:10])}, …, {classes[-1]}"
    )


# ---------- a user's own data


def own_data_facts(dataset: Mapping) -> dict[str, str]:
    """Facts about a user's own data, by heading; {} for another data set. dataset: that of run.json.

    Raises KeyError where it lacks a part.
    """
    about = dataset.get("about")
    if not about:
        return {}
    counts: dict[str, int] = {}
    for part in dataset["dropped"].values():
        for reason, count in part.items():
            counts[reason] = counts.get(reason, 0) + count
    left = ", ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in counts.items() if count)
    texts = {name: ", ".join(f"{count:,}" for count in split.values()) for name, split in about["classes"].items()}
    classes = [f"{cut(name, 60)} {numbers}" for name, numbers in texts.items()]
    if len(classes) > MOST_CLASSES:
        classes = [*classes[:MOST_CLASSES], f"and {len(classes) - MOST_CLASSES:,} more"]
    words = {split: [f"{number:,.0f}" for number in numbers] for split, numbers in about["words"].items()}
    return {
        "rows": f"{counted(about['rows'], 'row')} read; left out: {left or 'none'}",
        "splits": about["splits"],
        f"texts of each class ({', '.join(words)})": "; ".join(classes),
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
    columns = ", ".join(f"{ours} from {theirs!r}" for ours, theirs in about["columns"].items())
    classes = [(cut(label, 30), counts.values()) for label, counts in about["classes"].items()]
    rows = {label: [f"{count:,}" for count in counts] for label, counts in classes[:MOST_CLASSES]}
    if len(classes) > MOST_CLASSES:
        rows[f"and {len(classes) - MOST_CLASSES:,} more"] = [""] * len(about["words"])
    rows["all"] = [f"{sum(column):,}" for column in zip(*(counts for _, counts in classes), strict=True)]
    rows["words of a text, median"] = [f"{numbers[2]:,.0f}" for numbers in about["words"].values()]
    rows["half of them between"] = [f"{low:,.0f} and {high:,.0f}" for _, low, _, high, _ in about["words"].values()]
    table = as_text(pd.DataFrame.from_dict(rows, orient="index", columns=[*about["words"]]), None)
    lines = [f"{name}: {facts['rows']}", f"columns: {columns}", f"splits: {facts['splits']}", *table.split("\n")]
    return [*lines, facts["repeated texts"], *about["assumed"]]
