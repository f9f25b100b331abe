"""Measure a model on encoded texts or pairs of sentences: one loop, whose result is a record.

With an output the record is made in shards: over processes, resumable at any moment, one file at the end.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from tqdm.auto import tqdm

import attnfaith
from attnfaith import record
from attnfaith.data.collation import by_length
from attnfaith.data.fingerprint import digest_attention, digest_data
from attnfaith.measurement.registry import Measure, MeasurementError, build, classes
from attnfaith.subjects import SequenceSubject, SubjectError, outputs, require, subject_of, whole_logits
from attnfaith.subjects.protocol import RECORDED, marked_places
from attnfaith.subjects.translator import word_sums
from attnfaith.support.errors import DatasetError, FileError, excerpt
from attnfaith.support.files import read_object, write_atomically


COPIED = ("word_of_token", "text_of_token", "rationale", "query_tokens")
"""Columns of the data that a record copies."""
IN_BATCH = ("tokens", "word_of_token", "rationale")
"""Columns of the data that measures may read in a batch."""
SELECTION = ("selection", "selected")
"""Columns of a subject that reads a selection."""
PREFIX = "importance_"
SIZES = {"texts": (8192, 64, 128), "pairs": (2048, 32, 64)}
"""Sizes of work: padded tokens and instances of a batch, instances of a shard."""
NEEDED = {
    "texts": ("instance_id", "input_ids", "tokens", "length", "truncated"),
    "pairs": (
        *("instance_id", "input_ids", "source_words", "labels", "target_words", "tokens", "target_tokens", "length"),
        "truncated",
    ),
}
"""The columns of encoded texts, and of encoded pairs."""


def measure(
    model,
    dataset,
    cell: record.Identity,
    names: Sequence[str],
    output: str | os.PathLike | None,
    *,
    seed: int = 0,
    options: Mapping[str, Mapping] | None = None,
    attention: Mapping[str, np.ndarray] | None = None,
    settings: Mapping | None = None,
    batch_tokens: int | None = None,
    discard: bool = False,
    progress: bool = True,
) -> Path | pa.Table:
    """Measure every instance of a data set. Return the record, or with `output` the path it was written to.

    Args:
        model: an attention classifier, a model from sequences to sequences, or a subject (`attnfaith.subjects`).
        dataset: a `datasets.Dataset` as `attnfaith.data.tokenization.encode` or the subject's `rows` makes it.
        cell: what the record states about data and training; the rest is read from the model.
        names: of the measures, beside attention and prediction.
        output: path of the record (parquet).
        options: {measure: {option: value}}.
        attention: {instance id: weights [T]} in place of the model's own, for a model that was trained under them; without
            measures, which would measure the model's own.
        settings: what else the record states about the run.
        discard: delete shards of another measurement at the output, in place of refusing them.

    Instances are sorted by length, cut into batches of at most `batch_tokens` padded tokens, and batches into shards. Under
    `accelerate launch` each process takes every n-th shard; batches, and so the numbers, do not depend on the number of
    processes. With output a shard is written when it is complete: a measurement that was killed and is called again goes on
    with the missing shards and ends with the same record. Shards of another version of the package are made anew. Rows come
    in the data set's order.

    Raises MeasurementError where output is a folder, as `check` does, where a prediction is not finite, and for shards of
    another measurement unless they are to be discarded.
    """
    if output is not None and Path(output).is_dir():
        raise MeasurementError(
            f"the record cannot be written to {output}, which is a folder; name a file, such as a .parquet"
        )
    subject, measures, reads, extra = check(model, dataset, names, options=options)
    if attention is not None and measures:
        raise MeasurementError(
            f"{list(names)} would measure the model's own attention, not the given one: measure without them"
        )
    identity = replace(cell, **model_identity(subject), **({} if attention is None else {"attention_kind": "given"}))
    batch_tokens = SIZES[reads][0] if batch_tokens is None else batch_tokens
    shards = in_shards(np.asarray(dataset["length"]), batch_tokens, *SIZES[reads][1:])
    common = record.COLUMNS if reads == "texts" else record.SEQUENCE_COLUMNS
    plan = {
        "version": attnfaith.__version__,
        "columns": dict.fromkeys((*common, *extra), "")
        | {name: measure.name for measure in measures for name in measure.columns_for(subject)},
        "model": subject.digest(),
        "data": digest_data(dataset),
        "attention": None if attention is None else digest_attention(attention, dataset),
        "identity": asdict(identity),
        "producers": list(names),
        "options": {measure.name: stated for measure in measures if (stated := measure.stated())},
        "seed": seed,
        "batch_tokens": batch_tokens,
        "shards": len(shards),
    }
    plan = json.loads(json.dumps(plan))  # as a file has it: tuples are lists there
    state = PartialState(cpu=not torch.cuda.is_available())
    folder = None if output is None else Path(output).with_name(f"{Path(output).name}.shards")
    own = range(len(shards)) if folder is None else range(state.process_index, len(shards), state.num_processes)
    if folder is not None:
        if state.is_main_process:
            _prepare(folder, plan, discard)
        state.wait_for_everyone()
    tables, paths = {}, [folder and folder / f"{number:05d}.parquet" for number in range(len(shards))]
    bar = tqdm(
        total=sum(len(batch) for number in own for batch in shards[number]),
        desc=f"measuring {identity.dataset} {identity.split}",
        unit=reads[:-1],
        disable=not (progress and state.is_main_process and (sys.stderr.isatty() or "ipykernel" in sys.modules)),
    )
    with bar, torch.no_grad(), subject.evaluating():
        for number in own:
            count = sum(map(len, shards[number]))
            if folder is None or not _is_whole(paths[number], count):
                parts = [_measured(subject, dataset[b.tolist()], measures, extra, attention, seed) for b in shards[number]]
                columns = {name: list(chain.from_iterable(part[name] for part in parts)) for name in parts[0]}
                tables[number] = record.build(columns | record.as_columns(identity, count), extra)
                if folder is not None and len(shards) > 1:  # a single one is the record, which is written next
                    record.save(tables[number], paths[number])
            bar.update(count)
    if folder is not None:
        state.wait_for_everyone()
    if folder is None or state.is_main_process:
        parts = [tables[number] if number in tables else record.load(path) for number, path in enumerate(paths)]
        table = pa.concat_tables(parts)
        order = np.argsort(np.concatenate([batch for shard in shards for batch in shard]), kind="stable")
        stated = {**plan, **(settings or {}), "contextual": getattr(subject, "contextual", True)}
        table = record.with_settings(table.unify_dictionaries().combine_chunks().take(pa.array(order)), [stated])
    if folder is None:
        return table
    if state.is_main_process:
        record.save(table, output)
        shutil.rmtree(folder)
    state.wait_for_everyone()
    return Path(output)


def check(
    model, dataset, names: Sequence[str], *, options: Mapping[str, Mapping] | None = None, trained: bool = True
) -> tuple:
    """Check what `measure` takes. Return the subject, the measures with their options, what they read ("texts" or "pairs"),
    and the columns of the record that not every record has.

    trained: a measure that has to be trained on the model must have been. A run asks without before it trains the model.

    Raises MeasurementError where the data set is empty or lacks columns, a measure or option does not exist, the model
    cannot be measured or lacks what a measure needs, has weights or predictions that are not finite or fewer than two
    classes, or a measure refuses the model or an instance.
    """
    reads = "pairs" if "target_words" in dataset.column_names else "texts"
    measures = build(names, options, reads)
    try:
        subject = subject_of(model)
        if isinstance(subject, SequenceSubject) != (reads == "pairs"):
            raise MeasurementError(f"these are {reads}, which {subject.kind} do not read: encode them by the subject's rows")
        model_identity(subject)
        missing = sorted(set(NEEDED[reads]) - set(dataset.column_names))
        if missing:
            raise MeasurementError(
                f"the {reads} lack columns {missing}: encode them by the subject's rows (found {dataset.column_names})"
            )
        if not len(dataset):
            raise MeasurementError(f"the data set has no {reads}: give at least one")
        if any(measure.needs - subject.capabilities for measure in measures):
            possible = sorted(cls.name for cls in classes(reads) if subject.capabilities >= cls.needs)
            for measure in measures:
                require(subject, measure.needs, measure.name, measures=possible)
        subject.check(dataset)
    except (SubjectError, DatasetError) as error:
        raise MeasurementError(str(error)) from error
    longest = max(map(len, dataset["tokens"])) if any(measure.most_tokens for measure in measures) else 0
    for measure in measures if trained else [measure for measure in measures if measure.is_trained]:
        try:
            if longest > (measure.most_tokens or longest):
                raise ValueError(
                    f"it takes texts of up to {measure.most_tokens:,} tokens, for it holds numbers of each two of them, and "
                    f"one has {longest:,}: measure without it, or texts that are cut to that"
                )
            measure.check(subject, dataset)
        except ValueError as error:
            raise MeasurementError(f"'{measure.name}': {error}") from error
    copied = (*COPIED, "impermissible", "words") if reads == "texts" else ("gold_links",)
    present = [name for name in copied if name in dataset.column_names]
    present += ["word_attention"] if "words" in present else []
    present += SELECTION if "selection" in subject.capabilities else []
    extra = {name: record.OPTIONAL_COLUMNS[name] for name in present}
    if reads == "texts" and "classes" not in subject.capabilities:
        extra["probs"] = record.OUTPUTS[subject.output]
    for measure in measures:
        twice = set(extra) & set(measure.columns)
        if twice:
            raise MeasurementError(f"'{measure.name}' declares columns that another measure has: {sorted(twice)}")
        extra |= measure.columns_for(subject)
    return subject, measures, reads, extra


def model_identity(subject) -> dict[str, object]:
    """Return the fields of an identity that a model decides; fields that its subject does not state are unknown.

    Raises MeasurementError for a subject that lacks what a record states about its model.
    """
    missing = [name for name in RECORDED if not hasattr(subject, name)]
    if missing:
        raise MeasurementError(
            f"a record states which model was measured, and this subject ({subject.kind}) has no {', '.join(missing)}: "
            "attnfaith.subjects.Subject describes them"
        )
    names = ("encoder", "alignment", "projection", "readout", "vectors")
    return {**dict.fromkeys(names, record.UNKNOWN), "hierarchy": "none", "level": subject.level, **subject.identity()}


def scores_by_measure(columns: Mapping[str, list], declared: Mapping[str, record.Column]) -> dict[str, list[np.ndarray]]:
    """Return the token scores in the columns of a batch or record: {measure: one array [T] per instance}, attention first.

    Importances of states are left out: a token is erased from the input. A signed measure is there by its size as well:
    beside measures without a sign, nothing else shows what is due to the sign.
    """
    scores = {"attention": columns["attention"]}
    for name, column in declared.items():
        if name.startswith(PREFIX) and column.axes == ("T",) and name in columns and not name.endswith("_hidden"):
            measure = name.removeprefix(PREFIX)
            scores[measure] = columns[name]
            if column.signed:
                scores[record.ABSOLUTE + measure] = [np.abs(values) for values in columns[name]]
    return scores


def _measured(
    subject, rows: Mapping[str, list], measures: Sequence[Measure], extra: Mapping, attention: Mapping | None, seed: int
) -> dict[str, list]:
    """The columns of a batch: first what every record holds, then measures that score, then those that test scores."""
    count = len(rows["instance_id"])
    batch = subject.collate([{name: values[index] for name, values in rows.items()} for index in range(count)])
    pairs = "target_tokens" in rows
    columns = _read_pairs(subject, batch, rows) if pairs else _read_texts(subject, batch, rows, extra, attention)
    for name, probs in zip(rows["instance_id"], columns["target_probs" if pairs else "probs"], strict=True):
        if not np.isfinite(probs).all():
            raise MeasurementError(f"the model's prediction for '{name}' is not finite")
    scores = None
    for measure in sorted(measures, key=lambda measure: measure.takes_scores):
        keywords = {"seed": seed} if measure.takes_seed else {}
        if measure.takes_scores:
            scores = keywords["scores"] = scores_by_measure(columns, extra) if scores is None else scores
        values = measure(subject, batch, **keywords)
        if set(values) != (declared := set(measure.columns_for(subject))):
            raise MeasurementError(f"'{measure.name}' declares {sorted(declared)} and returned {sorted(values)}")
        columns |= values
    return columns


def _read_texts(subject, batch, rows: Mapping[str, list], extra: Mapping, attention: Mapping | None) -> dict[str, list]:
    """The columns of every record of texts: prediction, attention and words."""
    batch |= {name: rows[name] for name in IN_BATCH if name in rows}
    mask = subject.attendable(batch)
    if attention is not None:
        weights = np.concatenate([np.asarray(attention[name], np.float32) for name in rows["instance_id"]])
        batch.results["attention"] = torch.zeros(mask.shape, device=mask.device)
        batch.results["attention"][mask] = torch.from_numpy(weights).to(mask.device)
    columns = {name: rows[name] for name in ("instance_id", "tokens", "truncated", *COPIED) if name in rows}
    columns["label"] = batch["label"]
    weights = subject.attention(batch).float().cpu()  # first: a stack of layers has its logits from the same reading
    columns["probs"] = list(outputs(subject, whole_logits(subject, batch)).float().cpu().numpy())
    columns["attention"] = record.ragged(weights, mask.cpu())
    if "word_attention" in extra:
        columns["words"] = rows["words"]
        columns["word_attention"] = _by_sentence(subject.word_attention(batch), subject.items(batch))
    if "selection" in extra:
        columns |= {name: record.ragged(getattr(subject, name)(batch).cpu(), mask.cpu()) for name in SELECTION}
    if "impermissible" in extra:
        columns["impermissible"] = record.ragged(marked_places(subject, batch, batch["impermissible"]).cpu(), mask.cpu())
    return columns


def _read_pairs(subject, batch, rows: Mapping[str, list]) -> dict[str, list]:
    """The columns of every record of pairs: the probabilities of target words."""
    probs = word_sums(batch, subject.log_probs(batch)).exp().float().cpu().numpy()
    names = ("instance_id", "tokens", "target_tokens", "truncated", "gold_links")
    columns = {name: rows[name] for name in names if name in rows}
    lengths = map(len, rows["target_tokens"])
    columns["target_probs"] = [np.minimum(row[:length], 1) for row, length in zip(probs, lengths, strict=True)]
    return columns


def _by_sentence(weights: torch.Tensor, items: torch.Tensor) -> list[list[np.ndarray]]:
    """Weights (B,L) of input positions as one array (W,) for each sentence of each document; items (B,L)."""
    documents = zip(weights.float().cpu().numpy(), items.cpu().numpy(), strict=True)
    return [[row[numbers == number] for number in range(numbers.max(initial=-1) + 1)] for row, numbers in documents]


def in_shards(lengths: np.ndarray, batch_tokens: int, instances: int, shard_instances: int) -> list[list[np.ndarray]]:
    """Row numbers in batches of similar length, and batches in shards of at most `shard_instances` rows, or of one batch.

    A batch holds at most `instances` rows and `batch_tokens` padded tokens, or a single longer text. Raises
    MeasurementError where batch_tokens is no whole number of 1 or more.
    """
    if type(batch_tokens) is not int or batch_tokens < 1:
        raise MeasurementError(f"batch_tokens={excerpt(batch_tokens)}: a whole number, 1 or more")
    shards = [[]]
    for batch in by_length(lengths, batch_tokens, instances):
        if shards[-1] and sum(map(len, shards[-1])) + len(batch) > shard_instances:
            shards.append([])
        shards[-1].append(batch)
    return shards


def _prepare(folder: Path, plan: dict, discard: bool) -> None:
    """Make the folder of the shards, unless it holds shards of this very measurement."""
    path = folder / "plan.json"
    if path.exists():
        try:
            planned = read_object(path)
        except FileError:
            planned = {"plan": None}
        changed = {key for key in {*plan, *planned} if plan.get(key) != planned.get(key)}
        if not changed:
            return
        other = sorted(changed - {"columns", "version"})
        if other and not discard:
            raise MeasurementError(
                f"{folder} holds part of another measurement (different: {', '.join(other)}); "
                "finish that one, or delete the folder to start anew"
            )
    # shards of other code, or without a plan, left when the folder was being deleted: nobody can finish those
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_atomically(path, json.dumps(plan, indent=1))


def _is_whole(path: Path, count: int) -> bool:
    try:
        return path.exists() and record.load(path).num_rows == count
    except record.RecordError:
        return False  # left by a crash of the machine: measure it again
