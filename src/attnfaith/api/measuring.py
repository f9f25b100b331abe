"""From a model and texts to a record, by the way that the command line takes."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow.compute as pc

from attnfaith import record
from attnfaith.api.pairs import measure_pairs
from attnfaith.api.records import Record
from attnfaith.api.texts import Columns, Texts, is_unicode, read_texts
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.in_memory import pieces
from attnfaith.errors import AttnfaithError, DatasetError, counted, excerpt
from attnfaith.loading import device_of, identity_of, open_subject, origin_of
from attnfaith.measurement import engine, registry
from attnfaith.reporting.cells import undefined
from attnfaith.subjects.modes import plainly
from attnfaith.subjects.translator import SequenceSubject


MEASURES = ("gradient", "gradient_norm", "leave_one_out")
EXPERIMENTS = ("permutation", "minimal_flip_set", "adversary_exact")
AFFINE_EXPERIMENTS = ("token_logits",)
"""Beside these where logits are affine in attention: with it a page answers for any other attention itself."""
MAP_EXPERIMENTS = ("marker_attention", "map_permutation")
"""Of a model whose layers and heads all have attention: what asks for no more than some readings of its last layers."""
MOST_READINGS = 2 * 10**8
"""Tokens that the default measures may read for leaving out one token after the other; beyond it, leave-one-out is named by
those who want it."""


@plainly()
def measure(
    model,
    texts,
    labels: Iterable | Literal["names", "ids"] | None = None,
    measures: Sequence[str] | None = None,
    experiments: Sequence[str] | None = None,
    *,
    add: Sequence[str] = (),
    options: Mapping[str, Mapping] | None = None,
    tokenizer=None,
    device=None,
    text: str = "text",
    text_pair: str | None = None,
    label: str | None = None,
    level: str = "sentence",
    attention=None,
    seed: int = 0,
    name: str | None = None,
    split: str = "measured",
    output: str | os.PathLike | None = None,
    batch_tokens: int | None = None,
    links: Iterable[str] | str | os.PathLike | None = None,
    links_from: int = 0,
    progress: bool = True,
) -> Record:
    """Measure whether the attention of a model explains what it says of texts; of a model from sequences to sequences, which
    words of the source each word of the target depends on.

    The numbers are those of `attnfaith measure`, to the bit: the same code measures the same encoded texts.

    Args:
        model: a text classifier of transformers (…ForSequenceClassification) or an attention classifier of this package, a
            text classification pipeline with one, a PEFT model of one, the folder of a checkpoint or of a run, a name on
            the Hub, or what `attnfaith.load_subject` gives. Or a model from sequences to sequences
            (…ForConditionalGeneration, …MTModel), which reads pairs (source, target).
        texts: a list of strings or of pairs (text, second text), a pandas frame, a `datasets.Dataset`, or the path of a CSV,
            TSV, JSON lines or parquet file.
        labels: the gold class of each text, by number or by name; None for a text whose class is not known. Of a column of
            labels "names" or "ids" says whether its whole numbers are names of classes or their numbers from 0 on, which has
            to be said where classes are named by numbers other than their own.
        measures, experiments: names, as `attnfaith.measures()` lists them. None takes the cheap ones that the model is
            capable of; [] none.
        add: measures and experiments beside those.
        options: {measure or experiment: {keyword: value}}.
        tokenizer: of a model object, or its name or folder; None takes that of the folder it was loaded from.
        device: where the model is put: "cpu", "cuda:0", 0 or a `torch.device`, as a pipeline of transformers takes it. None
            leaves an object where it is and loads a folder to the CPU.
        text, text_pair, label: names of the columns of a frame, data set or file. Columns "text_pair" and "label" ("labels",
            "label_ids") are used where they are there; "instance_id" names the texts.
        level: "sentence", or "word" for the words of a hierarchical model.
        attention: of a classifier of transformers, how its layers and heads become the attention that is shown: "last", the
            mean of the last layer's heads (None is the same); "all", of all layers; "rollout"; "flow"; or
            {"layers": 3, "head": 5}.
        seed: of what is drawn at random, such as permutations.
        name, split: what the record calls the texts.
        output: path of the record (parquet). A measurement that was stopped goes on when it is called again with the same
            output.
        batch_tokens: padded tokens that the model reads at once; None: 8,192 of texts, 2,048 of pairs of sentences.
        links: of pairs of sentences, gold links: for each pair a line such as "0-0 1-2 2p2", source word-target word of sure
            ones and p between those of possible ones, or the path of a file of such lines. Words are what blanks part.
        links_from: the number of the first word in links, 0 or 1.
        progress: show a bar, and remarks on what was cut or left out, on standard error.

    Returns a `Record`, one row for each text, in their order.

    Raises AttnfaithError, before any work, for what is not as said here: the message says what was given, what is allowed
    and what to do.
    """
    for keyword, value in (("name", "texts" if name is None else name), ("split", split)):
        if not isinstance(value, str) or not value or not is_unicode(value):
            raise DatasetError(f"{keyword}={excerpt(value)}: give a word")
    device = None if device is None else device_of(device)
    read = read_texts(texts, labels, Columns(text, text_pair, label), name)
    if output is not None and not (isinstance(output, str | os.PathLike) and "\0" not in str(output)):
        raise AttnfaithError(f"output={excerpt(output)}: give the path of a file")
    subject = open_subject(model, tokenizer=tokenizer, device=device, level=level, attention=attention)
    if isinstance(subject, SequenceSubject):
        _check_unused(labels=labels, level=None if level == "sentence" else level)
        how = {"add": add, "options": options, "links": links, "links_from": links_from, "seed": seed, "name": read.name}
        how |= {"split": split, "output": output, "batch_tokens": batch_tokens, "progress": progress}
        return measure_pairs(subject, read.dataset, measures, experiments, **how)
    _check_unused(links=links)
    chosen = (
        None if measures is None else registry.check_names(measures),
        None if experiments is None else registry.check_names(experiments),
    )
    engine.check_recorded(subject)
    dataset = _labelled(subject, read, labels)
    rows, remarks = _encoded(subject, dataset)
    say = _say if progress else lambda line: None
    for line in [*filter(None, [read.remark]), *remarks]:
        say(line)
    names = [*dict.fromkeys([*_defaults(*chosen, subject, rows, say), *registry.check_names(add)])]
    cell = identity_of(subject, dataset=read.name, texts=fingerprint(dataset), split=split)
    settings = {"source": origin_of(subject).name, "label_names": [*subject.class_names]}
    how = {"level": level, "seed": seed, "options": options, "settings": settings, "progress": progress}
    how |= {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    made = engine.measure(subject, rows, cell, names, output, **how)
    measured = Record.checked(made if output is None else record.load(output))
    for line in undefined(measured.cells[0]):
        say(line)
    return measured


def _check_unused(**given) -> None:
    """Raises AttnfaithError for an argument that says nothing to the model that is given."""
    why = {
        "labels": "labels are of texts with classes; of pairs of sentences give links=…",
        "level": "a model from sequences to sequences is measured by words: leave it out",
        "links": "links are between the words of two sentences, and the model is a classifier: leave them out",
    }
    for name, value in given.items():
        if value is not None:
            raise AttnfaithError(f"{name}={excerpt(value, 60)}: {why[name]}")


def _labelled(subject, read: Texts, labels):
    """The texts with the numbers of their classes. Raises AttnfaithError for labels of a model without classes."""
    if "classes" in subject.capabilities:
        return read.labelled(tuple(subject.class_names), subject.num_labels)
    if labels is not None:
        raise AttnfaithError(
            f"labels={excerpt(labels, 60)}: this model has no classes ({subject.lacks['classes']}); leave them out"
        )
    return read.dataset


def _encoded(subject, dataset) -> tuple:
    """The rows that the model reads, and remarks on them. Raises DatasetError where it cannot read these, or no text has a
    word.
    """
    rows = subject.rows(dataset)
    count, cut, empty = len(rows), 0, 0
    for part in pieces(rows, ("tokens", "truncated")):
        cut += sum(part.column("truncated").to_pylist())
        empty += pc.sum(pc.equal(pc.list_value_length(part.column("tokens")), 0)).as_py()
    if empty == count:
        raise DatasetError("no text has a word that the model's tokenizer knows of: there is nothing to attend to")
    remarks = {"cut, being longer than the model reads": cut, "without a word": empty}
    return rows, [f"{number:,} of {counted(count)}: {what}" for what, number in remarks.items() if number]


def _defaults(measures, experiments, subject, rows, say) -> list[str]:
    """The names to measure by: those given, else the default ones that the subject is capable of, cheap first."""
    names = []
    usual = MAP_EXPERIMENTS if "attention maps" in subject.capabilities else EXPERIMENTS
    usual += AFFINE_EXPERIMENTS if "affine read-out" in subject.capabilities else ()
    for given, defaults in ((measures, MEASURES), (experiments, usual)):
        if given is not None:
            names += given
            continue
        for one in sorted(map(registry.find, defaults), key=lambda one: [*registry.COSTS].index(one.cost)):
            lacking = sorted(set(one.needs) - subject.capabilities)
            if lacking:
                why = [reason for need in lacking if (reason := getattr(subject, "lacks", {}).get(need))]
                reasons = f" ({'; '.join(why)})" if why else ""
                say(f"{one.name} is left out: it needs {', '.join(lacking)}, which this model lacks{reasons}")
            elif one.cost == "tokens" and (_readings(rows) > MOST_READINGS):
                say(f"{one.name} is left out: so many long texts would take it long; measures=[…, {one.name!r}] asks for it")
            else:
                names.append(one.name)
    return names


def _readings(rows) -> int:
    """Tokens that are read when each token of each text is left out once."""
    return int((np.asarray(rows["length"], np.int64) ** 2).sum())


def _say(line: str) -> None:
    print(f"attnfaith: {line}", file=sys.stderr)
