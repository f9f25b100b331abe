"""From pairs of sentences, a model from sequences to sequences and named measures to a record, in shards."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

import attnfaith
from attnfaith import record, sequences
from attnfaith.errors import DatasetError
from attnfaith.outputs import digest_data
from attnfaith.producing import MeasurementError, checked_options, load, makers, modules_of, stated
from attnfaith.shards import batches, carry_out, in_shards
from attnfaith.subjects import require
from attnfaith.subjects.pairs import word_sums
from attnfaith.subjects.protocol import FIELDS, SubjectError
from attnfaith.subjects.translator import SequenceSubject, sequence_subject


BATCH_TOKENS = 2048  # padded positions of one batch, sources and targets
BATCH_PAIRS = 32
SHARD_PAIRS = 128
CORE = "sequence_measurement"
"""The producer, by its module's name, of the columns that every record of sentence pairs has."""
NEEDED = (
    *("instance_id", "input_ids", "source_words", "labels", "target_words", "tokens", "target_tokens", "length"),
    "truncated",
)
"""The columns of encoded pairs."""


def producers() -> dict[str, str]:
    """Name -> module of every measure of sequences and every intervention on cross-attention."""
    return modules_of(sequences)


def load_producers(names: Sequence[str]) -> dict[str, object]:
    """The modules behind these names, in this order. Raises MeasurementError for a name nobody has, with the nearest."""
    return load(names, producers())


def check(
    model, dataset, names: Sequence[str], *, options: Mapping[str, Mapping] | None = None
) -> tuple[SequenceSubject, dict[str, object], dict[str, dict]]:
    """The model as a subject, the modules of these names, and their options, as `measure` goes by them.

    Raises MeasurementError as `measure` does for the same arguments.
    """
    modules = load_producers(names)
    options = checked_options(modules, options)
    try:
        subject = sequence_subject(model)
        for name, module in modules.items():
            require(subject, module.NEEDS, name)
        if missing := sorted(set(NEEDED) - set(dataset.column_names)):
            raise DatasetError(f"the pairs lack columns {missing}: encode them by the subject's rows(pairs)")
        if not len(dataset):
            raise DatasetError("there are no pairs of sentences: give at least one")
        subject.check(dataset)
    except (SubjectError, DatasetError) as error:
        raise MeasurementError(str(error)) from error
    return subject, modules, options


def measure(
    model,
    dataset,
    cell: record.Identity,
    names: Sequence[str],
    output: str | os.PathLike | None,
    *,
    seed: int = 0,
    options: Mapping[str, Mapping] | None = None,
    settings: Mapping | None = None,
    batch_tokens: int = BATCH_TOKENS,
    shard_instances: int = SHARD_PAIRS,
    discard: bool = False,
    progress: bool = True,
) -> Path | pa.Table:
    """Measure every pair of sentences of a data set and write one record; returns its path, or without output the record.

    model: one from sequences to sequences, or its subject. dataset: encoded pairs, as the subject's `rows` gives them; with
    gold_links the record has these. cell: what the record says of data and training; what it says of the model is read from
    it. names: the modules of `attnfaith.sequences` to run. seed, options, settings, batch_tokens, shard_instances, discard:
    as `attnfaith.measurement.measure` takes them; that too says how shards are made, and that a measurement which was
    stopped goes on. Numbers do not depend on batches or their order, but for rounding.

    Raises MeasurementError where output is a folder, there are no pairs or they lack columns, a name or option does not
    exist, the model has no cross-attention that can be measured, or lacks what a measure needs, its predictions are not
    finite, or the shards that lie there belong to another measurement.
    """
    if output is not None and Path(output).is_dir():
        raise MeasurementError(
            f"the record cannot be written to {output}, which is a folder; name a file, such as a .parquet"
        )
    subject, modules, options = check(model, dataset, names, options=options)
    links = ("gold_links",) if "gold_links" in dataset.column_names else ()
    extra = {name: record.OPTIONAL_COLUMNS[name] for name in links}
    for module in modules.values():
        extra |= columns_of(module, subject)
    identity = replace(cell, **model_identity(subject))
    parts = in_shards(batches(np.asarray(dataset["length"]), batch_tokens, BATCH_PAIRS), shard_instances)
    plan = {
        "version": attnfaith.__version__,
        "columns": makers(modules, extra, record.SEQUENCE_COLUMNS, CORE),
        "model": subject.digest(),
        "data": digest_data(dataset),
        "identity": asdict(identity),
        "producers": list(modules),
        "options": {name: stated(modules[name], given) for name, given in options.items()},
        "seed": seed,
        "batch_tokens": batch_tokens,
        "shard_instances": shard_instances,
        "shards": len(parts),
    }

    def measured(batch: np.ndarray) -> dict[str, list]:
        return _measure_batch(subject, dataset[batch.tolist()], identity, modules, options, extra, seed)

    with subject.evaluating():
        return carry_out(
            output, plan, parts, measured, extra, settings=settings, discard=discard, unit="pair", progress=progress
        )


def columns_of(module, subject: SequenceSubject) -> dict[str, record.Column]:
    """The columns that a module has of this subject: of its COLUMNS those whose COLUMN_NEEDS it can do."""
    needs = getattr(module, "COLUMN_NEEDS", {})
    return {name: one for name, one in module.COLUMNS.items() if needs.get(name, frozenset()) <= subject.capabilities}


def model_identity(subject: SequenceSubject) -> dict[str, object]:
    """The fields of an identity that a model decides; what its subject does not say is unknown, or does not apply."""
    stated_fields = dict(subject.identity())
    if unknown := sorted(set(stated_fields) - set(FIELDS)):
        raise MeasurementError(
            f"the identity of this subject ({subject.kind}) has {unknown}; a model decides {list(FIELDS)}"
        )
    names = ("encoder", "alignment", "projection", "readout", "vectors")
    return {**dict.fromkeys(names, record.UNKNOWN), "hierarchy": "none", "level": subject.level, **stated_fields}


@torch.no_grad()
def _measure_batch(subject: SequenceSubject, rows: Mapping[str, list], identity, modules, options, extra, seed: int) -> dict:
    count = len(rows["instance_id"])
    batch = subject.collate([{name: values[index] for name, values in rows.items()} for index in range(count)])
    probs = word_sums(batch, subject.log_probs(batch)).exp().float().cpu().numpy()
    if (bad := np.flatnonzero(~np.isfinite(probs).all(1))).size:
        raise MeasurementError(f"the model's prediction for '{rows['instance_id'][bad[0]]}' is not finite")
    lengths = map(len, rows["target_tokens"])
    columns = {
        "instance_id": rows["instance_id"],
        **record.as_columns(identity, count),
        **{name: rows[name] for name in ("tokens", "target_tokens", "truncated")},
        "target_probs": [np.minimum(row[:length], 1) for row, length in zip(probs, lengths, strict=True)],
    }
    columns |= {name: rows[name] for name in ("gold_links",) if name in extra}
    for name, module in modules.items():
        made = module.measure(subject, batch, seed=seed, **options.get(name, {}))
        if set(made) != set(columns_of(module, subject)):
            raise MeasurementError(f"'{name}' declares {sorted(columns_of(module, subject))} and returned {sorted(made)}")
        columns.update(made)
    return columns
