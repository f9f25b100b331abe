"""From a data set, a model and named producers to a record: sharded over processes, resumable, bounded in memory."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

import attnfaith
from attnfaith import experiments, importance, record
from attnfaith.data.tokenization import by_words
from attnfaith.errors import DatasetError, counted, excerpt
from attnfaith.outputs import KEPT, digest_attention, digest_data
from attnfaith.producing import MeasurementError, checked_options, load, makers, modules_of, stated
from attnfaith.shards import batches, carry_out, in_shards
from attnfaith.subjects import Subject, SubjectError, columns_of, outputs, require, subject_of, whole_logits
from attnfaith.subjects.protocol import FIELDS, MARKED, RECORDED
from attnfaith.subjects.removal import marked_places


BATCH_TOKENS = 8192  # padded tokens of one batch
SHARD_INSTANCES = 512
LEVELS = ("sentence", "word")
CALLED = ("tokens", "word_of_token")
"""What a batch holds in a measurement besides: what its tokens are called, and which word each is of."""
SELECTION = ["selection", "selected"]
"""What a record holds of a subject that reads a selection."""
PREFIX = "importance_"


def producers() -> dict[str, str]:
    """Name -> module of every measure of importance and every experiment that the package holds."""
    return modules_of(importance, experiments)


def load_producers(names: Sequence[str]) -> dict[str, object]:
    """The modules behind these names, in this order. Raises MeasurementError for a name nobody has, with the nearest."""
    return load(names, producers())


def check_options(modules: Mapping[str, object], options: Mapping[str, Mapping] | None) -> dict[str, dict]:
    """The options as given, {producer: {keyword: value}}.

    Raises MeasurementError as `checked_options` does, and where a measure explains anything but the predicted class and a
    test of explanations, which follows that class, is run beside it.
    """
    options = checked_options(modules, options)
    tests = sorted(name for name, module in modules.items() if getattr(module, "AFTER", False))
    for name, given in options.items():
        target = given.get("target", "predicted")
        if tests and target != "predicted":
            raise MeasurementError(
                f"'{name}' explains target={target!r}, and {tests} would judge it by the predicted class, whose "
                "evidence may be evidence against what it explains: leave out the target, or measure it without them"
            )
    return options


def measure(
    model,
    dataset,
    cell: record.Identity,
    names: Sequence[str],
    output: str | os.PathLike | None,
    *,
    level: str = "sentence",
    seed: int = 0,
    options: Mapping[str, Mapping] | None = None,
    attention: Mapping[str, np.ndarray] | None = None,
    settings: Mapping | None = None,
    batch_tokens: int = BATCH_TOKENS,
    shard_instances: int = SHARD_INSTANCES,
    discard: bool = False,
    progress: bool = True,
) -> Path | pa.Table:
    """Measure every instance of a data set and write one record; returns its path, or without output the record itself.

    model: an attention classifier, or a subject (`attnfaith.subjects`) made of one. dataset: a `datasets.Dataset` as
    `attnfaith.data.tokenization.encode` makes it. cell: what the record says of data and training; what it says of the model
    is read from it. names: the producers to run, beside attention and prediction. output: path of the record (parquet).
    level: what a record of a hierarchical model, and every producer, is over: "sentence", with word attention beside it, or
    "word", where a word's attention is that of its sentence times its weight within it (`WordLevel`). options: producer name
    -> keyword arguments of its `measure`. attention: instance id -> weights [T] that take the place of the model's own, for
    a model that was trained under them; no producer may run then, for it would measure the model's own. settings: what else
    to keep in the record about the run. discard: delete shards of another measurement that lie there, in place of refusing
    them; for a caller that holds the folder, so that nobody is at work on them.

    Instances are sorted by length, cut into batches of at most `batch_tokens` padded tokens, and batches into shards. Under
    `accelerate launch` each process takes every n-th shard; batches, and so the numbers, do not depend on the number of
    processes. A shard is written when it is complete: killed at any moment and called again, the measurement goes on with
    the shards that are missing and ends with the same record; shards of another version of the code are made anew. Rows
    come in the data set's order.

    Raises MeasurementError where output is a folder, the data set is empty or lacks columns, an option or level does not
    exist, words are asked of a model that is not hierarchical, a producer cannot measure this model or these instances (one
    with a function `check_model(model, dataset, **options)`, or with MOST_TOKENS of a text, says so before any work is
    done), the model has weights or predictions that are not finite or fewer than two classes, a given attention is missing,
    of another length than its text or no distribution, or the shards that lie there belong to another measurement and are
    not to be discarded.
    """
    if output is not None and Path(output).is_dir():
        raise MeasurementError(
            f"the record cannot be written to {output}, which is a folder; name a file, such as a .parquet"
        )
    subject, dataset, modules, options = check(model, dataset, names, level=level, options=options)
    extra = _declared(modules, subject, dataset)
    if attention is not None:
        if modules:
            raise MeasurementError(
                f"{list(modules)} would measure the model's own attention, not the one that is given: measure without them"
            )
        _check_given(attention, dataset)
    decided = model_identity(subject) | ({} if attention is None else {"attention_kind": "given"})
    identity = replace(cell, **decided)
    parts = in_shards(batches(np.asarray(dataset["length"]), batch_tokens), shard_instances)
    plan = {
        "version": attnfaith.__version__,
        "columns": makers(modules, extra, record.COLUMNS, record.CORE),
        "model": subject.digest(),
        "data": digest_data(dataset),
        "attention": None if attention is None else digest_attention(attention, dataset),
        "identity": asdict(identity),
        "producers": list(modules),
        "options": {name: stated(modules[name], given) for name, given in options.items()},
        "seed": seed,
        "batch_tokens": batch_tokens,
        "shard_instances": shard_instances,
        "shards": len(parts),
    }

    def measured(batch: np.ndarray) -> dict[str, list]:
        rows = dataset[batch.tolist()]
        return _measure_batch(subject, rows, identity, modules, options, extra, seed, attention)

    settings = {**(settings or {}), "contextual": getattr(subject, "contextual", True)}
    with subject.evaluating():
        return carry_out(
            output, plan, parts, measured, extra, settings=settings, discard=discard, unit="text", progress=progress
        )


def check(
    model,
    dataset,
    names: Sequence[str],
    *,
    level: str = "sentence",
    options: Mapping[str, Mapping] | None = None,
    trained: bool = True,
) -> tuple:
    """What `measure` goes by: the model as a subject, its data set there, the producers' modules and their options.

    Raises MeasurementError as `measure` does for the same arguments: a run asks before it trains the model. trained: a
    producer that has to be trained on the model itself (`pending`) must have been.
    """
    modules = load_producers(names)
    options = check_options(modules, options)
    if level not in LEVELS:
        raise MeasurementError(f"level={level!r} is not known; choose one of {', '.join(LEVELS)}")
    try:
        subject = subject_of(model, level)
        check_recorded(subject)
        _check_data(dataset)
        subject.check(dataset)
        if subject.level == "word" and "words" in dataset.column_names:
            dataset = by_words(dataset)
        _check_needs(modules, subject)
    except (SubjectError, DatasetError) as error:
        raise MeasurementError(str(error)) from error
    _check_lengths(modules, dataset)
    possible = {name: module for name, module in modules.items() if trained or not is_pending(module, options.get(name, {}))}
    _check_possible(possible, options, subject, dataset)
    return subject, dataset, modules, options


def _declared(modules: Mapping[str, object], subject: Subject, dataset) -> dict[str, record.Column]:
    names = [name for name in (*KEPT, *MARKED) if name in dataset.column_names]
    names += ["words", "word_attention"] if "words" in dataset.column_names else []
    names += SELECTION if "selection" in subject.capabilities else []
    extra = {name: record.OPTIONAL_COLUMNS[name] for name in names}
    if "classes" not in subject.capabilities:
        extra["probs"] = record.OUTPUTS[subject.output]
    for name, module in modules.items():
        if twice := set(extra) & set(module.COLUMNS):
            raise MeasurementError(f"'{name}' declares columns that another producer has: {sorted(twice)}")
        extra.update(columns_of(module, subject))
    return extra


def check_recorded(subject: Subject) -> None:
    """Raises SubjectError where a subject lacks what a record says of its model."""
    if missing := [name for name in RECORDED if not hasattr(subject, name)]:
        raise SubjectError(
            f"a record needs to know which model it is of, and this subject ({subject.kind}) has no {', '.join(missing)}: "
            "attnfaith.subjects.protocol.Subject says what they are"
        )


def _check_data(dataset) -> None:
    needed = {"instance_id", "input_ids", "tokens", "length", "truncated"}
    if missing := sorted(needed - set(dataset.column_names)):
        raise MeasurementError(f"the data set lacks columns {missing}; encode it first (found {dataset.column_names})")
    if not len(dataset):
        raise MeasurementError("the data set has no instances")


def _check_needs(modules: Mapping[str, object], subject: Subject) -> None:
    """Raises SubjectError where the subject lacks what a producer needs, naming all that it can be measured by."""
    if all(subject.capabilities >= module.NEEDS for module in modules.values()):
        return
    possible = [name for name, module in load_producers(sorted(producers())).items() if subject.capabilities >= module.NEEDS]
    for name, module in modules.items():
        require(subject, module.NEEDS, name, measures=possible)


def _check_lengths(modules: Mapping[str, object], dataset) -> None:
    """Raises MeasurementError where a text is longer than a producer takes, by its `MOST_TOKENS`, and says so beforehand."""
    limits = {name: module.MOST_TOKENS for name, module in modules.items() if hasattr(module, "MOST_TOKENS")}
    for row in np.flatnonzero(np.asarray(dataset["length"]) > min(limits.values(), default=np.inf)):
        text = dataset[int(row)]
        for name, most in limits.items():
            if (count := len(text["tokens"])) > most:
                raise MeasurementError(
                    f"'{name}' takes texts of up to {most:,} tokens, for it holds numbers of each two of them, and "
                    f"{excerpt(text['instance_id'])} has {count:,}: measure without it, or texts that are cut to that"
                )


def _check_possible(modules: Mapping[str, object], options: Mapping[str, Mapping], subject: Subject, dataset) -> None:
    """Raises MeasurementError where a producer cannot measure this subject or these instances and says so beforehand."""
    for name, module in modules.items():
        if hasattr(module, "check_model"):
            try:
                module.check_model(subject, dataset, **options.get(name, {}))
            except ValueError as error:
                raise MeasurementError(f"'{name}': {error}") from error


def is_pending(module, options: Mapping) -> bool:
    """Whether a producer has still to be trained on the model that it is to measure, by its `prepare`."""
    return hasattr(module, "pending") and module.pending(**options)


def model_identity(subject: Subject) -> dict[str, object]:
    """The fields of an identity that a model decides; what its subject does not say is unknown, or does not apply.

    Raises MeasurementError for a field that no model decides.
    """
    stated = dict(subject.identity())
    if unknown := sorted(set(stated) - set(FIELDS)):
        raise MeasurementError(
            f"the identity of this subject ({subject.kind}) has {unknown}; a model decides {list(FIELDS)}"
        )
    names = ("encoder", "alignment", "projection", "readout", "vectors")
    return {**dict.fromkeys(names, record.UNKNOWN), "hierarchy": "none", "level": subject.level, **stated}


def _check_given(attention: Mapping[str, np.ndarray], dataset) -> None:
    names = dataset["instance_id"]
    if missing := [name for name in names if name not in attention]:
        raise MeasurementError(f"no attention is given for {len(missing)} of {counted(len(names))}, such as '{missing[0]}'")
    for name, tokens in zip(names, dataset["tokens"], strict=True):
        if len(attention[name]) != len(tokens):
            raise MeasurementError(
                f"the attention given for '{name}' has {counted(len(attention[name]), 'weight')} and the text "
                f"{counted(len(tokens), 'token')}"
            )
        weights = np.asarray(attention[name], np.float64)
        if not ((weights >= 0).all() and (len(weights) == 0 or abs(weights.sum() - 1) <= record.SUM_TOLERANCE)):
            raise MeasurementError(
                f"the attention given for '{name}' is no distribution: its weights must be 0 or more and sum to 1 (least "
                f"{weights.min():g}, sum {weights.sum():g})"
            )


@torch.no_grad()
def _measure_batch(
    subject: Subject, rows: Mapping[str, list], identity, modules, options, extra, seed: int, given: Mapping | None = None
) -> dict[str, list]:
    count = len(rows["instance_id"])
    batch = subject.collate([{name: values[index] for name, values in rows.items()} for index in range(count)])
    batch |= {name: rows[name] for name in CALLED if name in rows}
    mask = subject.attendable(batch)
    if given is not None:
        weights = np.concatenate([np.asarray(given[name], np.float32) for name in rows["instance_id"]])
        batch["attention"] = torch.zeros(mask.shape, device=mask.device)
        batch["attention"][mask] = torch.from_numpy(weights).to(mask.device)
    probs = outputs(subject, whole_logits(subject, batch)).cpu().numpy()
    if (bad := np.flatnonzero(~np.isfinite(probs).all(1))).size:
        raise MeasurementError(f"the model's prediction for '{rows['instance_id'][bad[0]]}' is not finite")
    columns = {
        "instance_id": rows["instance_id"],
        **record.as_columns(identity, count),
        "tokens": rows["tokens"],
        "label": batch["label"],
        "truncated": rows["truncated"],
        "probs": list(probs.astype(np.float32)),
        "attention": record.ragged(subject.attention(batch).float().cpu(), mask.cpu()),
    }
    if "word_attention" in extra:
        columns["words"] = rows["words"]
        columns["word_attention"] = _by_sentence(subject.word_attention(batch), subject.items(batch))
    if "selection" in extra:
        columns |= {name: record.ragged(getattr(subject, name)(batch).cpu(), mask.cpu()) for name in SELECTION}
    columns |= {name: rows[name] for name in KEPT if name in extra}
    columns |= {name: _of_items(subject, batch, name) for name in MARKED if name in extra}
    # sorted: those that test the scores of others come last, else as they were named
    for name, module in sorted(modules.items(), key=lambda named: getattr(named[1], "AFTER", False)):
        if getattr(module, "AFTER", False) and "scores" not in batch:
            batch["scores"] = scores_by_measure(columns, extra)
        made = module.measure(subject, batch, seed=seed, **options.get(name, {}))
        if set(made) != set(columns_of(module, subject)):
            raise MeasurementError(f"'{name}' declares {sorted(columns_of(module, subject))} and returned {sorted(made)}")
        columns.update(made)
    return columns


def _of_items(subject: Subject, batch, name: str) -> list[np.ndarray]:
    """Marks (B,L) of input positions as one array [T] bool an instance: of an item, whether one of its positions has it."""
    if batch.get(name) is None:
        raise MeasurementError(
            f"the data set says which words are {name}, and the batches that this subject ({subject.kind}) collates do not: "
            f"put them there, (instances, positions), or leave out the column '{name}'"
        )
    return record.ragged(marked_places(subject, batch, batch[name]).cpu(), subject.attendable(batch).cpu())


def scores_by_measure(columns: Mapping[str, list], declared: Mapping[str, record.Column]) -> dict[str, list[np.ndarray]]:
    """The token scores that the columns of a batch or record hold: measure -> one array [T] per instance, attention first.

    Importances of states are not among them: a token is erased from the input. A signed measure (one whose column's doc says
    so) is there by its size as well, beside the measures that have no sign: else none could tell what is due to the sign.
    """
    scores = {"attention": columns["attention"]}
    for name, column in declared.items():
        if name.startswith(PREFIX) and column.axes == ("T",) and name in columns and not name.endswith("_hidden"):
            measure = name.removeprefix(PREFIX)
            scores[measure] = columns[name]
            if column.signed:
                scores[record.ABSOLUTE + measure] = [np.abs(values) for values in columns[name]]
    return scores


def _by_sentence(weights: torch.Tensor, items: torch.Tensor) -> list[list[np.ndarray]]:
    """Weights (B,L) of input positions as one array (W,) for each sentence of each document; items (B,L)."""
    sentences = []
    for row, numbers in zip(weights.float().cpu().numpy(), items.cpu().numpy(), strict=True):
        inside = numbers >= 0
        counts = np.bincount(numbers[inside])
        sentences.append(np.split(row[inside], np.cumsum(counts)[:-1]) if len(counts) else [])
    return sentences
