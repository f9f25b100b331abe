"""What a page says under "How it was made": where a record comes from, by heading."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.own_data import in_words
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.support.errors import counted


def run_facts(record: pa.Table, note: str | None = None) -> dict[str, str]:
    """What is said of the one run that a record comes from: enough to tell what was done. {} where it is not one run.

    note: what the run is, in place of its recipe's. All else is in the settings stored in the record.

    Raises RecordError where these lack what every run has.
    """
    cells = records.settings(record)
    if len(cells) != 1 or not {"recipe", "run"}.issubset(cells[0]):
        return {}
    try:
        return (_of_pairs if records.of_sequences(record) else _of_texts)(record, cells[0], note)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise records.RecordError(
            f"the record's settings are not those of a run ({type(error).__name__}: {str(error)[:80]}): measure the model "
            "anew"
        ) from error


def facts_of(record: pa.Table) -> dict[str, object] | None:
    """What is said of a record that no run made: where model and texts come from. None where a run made it, or several did,
    and `write_report` says it by itself.
    """
    (settings, *more) = records.settings(record) or [{}]
    if more or "recipe" in settings or "source" not in settings:
        return None
    pairs = records.of_sequences(record)
    return {
        "what it is": f"{'pairs of sentences' if pairs else 'texts'} measured with a given model",
        "model is from": settings["source"],
        **({} if pairs else {"classes": _classes(settings["label_names"]) or "without names"}),
        "measured by": _measured_by(settings),
        "attnfaith": settings["version"],
        "weights (SHA-256)": settings["model"][:16],
    }


def stored_facts(record: pa.Table) -> dict[str, object]:
    """The settings that all cells share; the names of the others."""
    stored = records.settings(record)
    names = list(dict.fromkeys(name for settings in stored for name in settings))
    shared = {
        name: stored[0][name]
        for name in names
        if all(name in settings and settings[name] == stored[0][name] for settings in stored)
    }
    differing = ", ".join(name for name in names if name not in shared)
    return shared | ({"settings that differ between cells": differing} if differing else {})


def translation_in_words(scores: Mapping) -> str:
    """How well a model translates, such as "BLEU 31.2, chrF 55.0; 12.0% exact, 40.1% of words in place (test, 1,000)"."""
    labels = {"bleu": "BLEU", "chrf": "chrF"}
    parts = [f"{label} {scores[name]:.1f}" for name, label in labels.items() if scores[name] is not None]
    rest = f"{scores['exact']:.1%} exact, {scores['word_accuracy']:.1%} of words in place"
    return f"{', '.join([*parts, rest])} ({scores['split']}, {scores['pairs']:,})"


def _of_texts(record: pa.Table, settings: Mapping, note: str | None) -> dict[str, str]:
    recipe, run, facts = settings["recipe"], settings["run"], {}
    dropped = sum(count for part in run["dataset"]["dropped"].values() for count in part.values())
    if "base" in run:
        facts["trained against"] = run["base"]["folder"]
    if "pretrained" in run:
        base = run["pretrained"]
        facts["fine-tuned from"] = f"{base['name']} (revision {base['revision']}, weights {base['digest']})"
    return {
        "what it is": note or recipe["note"] or recipe["name"],
        **facts,
        "texts": f"{_sizes(run)}; left out {dropped:,}",
        **in_words(run["dataset"]),
        "classes": _classes(settings["label_names"]),
        "attention is over": _unit(record, settings),
        "vocabulary": f"{run['vocabulary']:,} entries",
        **_training(settings),
        **_made(settings),
    }


def _of_pairs(record: pa.Table, settings: Mapping, note: str | None) -> dict[str, str]:
    recipe, run = settings["recipe"], settings["run"]
    penalty = recipe["penalties"]["impermissible_mass"]
    kind = recipe["data"]["vocabulary"] or "words"
    return {
        "what it is": note or recipe["note"] or recipe["name"],
        "pairs": f"{_sizes(run)}; left out {sum(run['dataset']['left_out'].values()):,}",
        "links": run["dataset"]["gold"],
        "vocabulary": f"{run['vocabulary']:,} {'byte pairs' if kind == 'bpe' else kind}",
        **_training(settings),
        **({"penalty": f"{penalty:g} on attention to linked words"} if penalty else {}),
        "translates": translation_in_words(run["translation"]),
        **_made(settings),
    }


def _sizes(run: Mapping) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in run["sizes"].items())


def _made(settings: Mapping) -> dict[str, str]:
    return {
        "measured by": _measured_by(settings),
        "versions": ", ".join(f"{name} {version}" for name, version in settings["run"]["versions"].items()),
        "weights (SHA-256)": settings["model"][:16],
    }


def _measured_by(settings: Mapping) -> str:
    return ", ".join(settings["producers"]) or "nothing beside its predictions"


def _unit(record: pa.Table, settings: Mapping) -> str:
    """What the tokens of a record are."""
    if "words" in settings:
        rules = settings["words"]["rules"].items()
        rules = "; ".join(f"{name.removeprefix('importance_')} by {rule}" for name, rule in rules)
        left_out = ", ".join(name.removeprefix("importance_") for name in settings["words"]["left_out"]) or "nothing"
        return f"words, each made of its subwords: {rules}. Left out, for it does not follow from subwords: {left_out}"
    if "words" in record.column_names:
        return "sentences, which are the tokens below"
    if "word_of_token" in record.column_names:
        return "subwords; ## stands before one that goes on with a word, ##⋯ before another part of the character before it"
    return "tokens"


def _classes(names: Sequence[str]) -> str:
    """The classes with their numbers; of very many the first and the last."""
    shown = [f"{number} {name}" for number, name in enumerate(names)]
    return ", ".join(shown) if len(shown) <= 20 else f"{len(shown)}: {', '.join(shown[:10])}, …, {shown[-1]}"


def _training(settings: Mapping) -> dict[str, str]:
    training, run = settings["recipe"]["training"], settings["run"]
    if "best" not in run:
        return {"training": "none: the model as it was drawn"}
    rate, share = training.get("attention_learning_rate_factor", 1), training.get("random_erasure", 0)
    faster = "" if rate == 1 else f" (of the alignment x {rate:g})"
    erased = f", up to {share:.0%} of a text's words erased at each step" if share else ""
    names = settings.get("label_names", ())
    return {
        "training": f"{counted(run['epochs'], 'epoch')} of batches of {training['per_device_train_batch_size']}, learning "
        f"rate {training['learning_rate']:g}{faster}, weight decay {training['weight_decay']:g}, "
        f"loss {training['loss_reduction']}, {run['training_seconds']:g} s, processes {run['processes']}{erased}",
        "selected on validation": f"{selected_by(run, names)} {run['best']['value']:.4f}",
    }
