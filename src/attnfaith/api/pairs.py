"""Pairs of sentences as people have them, with gold links, measured by the way that the command line takes."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from attnfaith import record
from attnfaith.api.records import Record
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.pairs.links import read_links
from attnfaith.errors import DatasetError, FileError, counted, excerpt
from attnfaith.loading import identity_of, origin_of
from attnfaith.measurement import engine, registry
from attnfaith.subjects.translator import SequenceSubject


MEASURES = ("attention", "norm", "alti", "gradient", "gradient_x_input", "occlusion")
EXPERIMENTS = ("cross_uniform", "knock_out")


def measure_pairs(
    subject: SequenceSubject,
    pairs,
    measures: Sequence[str] | None,
    experiments: Sequence[str] | None,
    *,
    add: Sequence[str],
    options: Mapping[str, Mapping] | None,
    links: Iterable[str] | str | os.PathLike | None,
    links_from: int,
    seed: int,
    name: str,
    split: str,
    output: str | os.PathLike | None,
    batch_tokens: int | None,
    progress: bool,
) -> Record:
    """The record of a model from sequences to sequences: see `attnfaith.measure`, which asks for it.

    pairs: a `datasets.Dataset` with instance_id, text and text_pair, the source and the target.
    """
    if "text_pair" not in pairs.column_names:
        raise DatasetError(
            "a model from sequences to sequences reads pairs of sentences: give a list of (source, target), or text=… and "
            "text_pair=… for the columns"
        )
    dataset = pairs.select_columns(["instance_id", "text", "text_pair"])
    dataset = dataset.rename_columns({"text": "source", "text_pair": "target"})
    if links is not None:
        dataset = dataset.add_column("links", _links(links, dataset, links_from))
    rows = subject.rows(dataset)
    say = (lambda line: print(f"attnfaith: {line}", file=sys.stderr)) if progress else (lambda line: None)
    if cut := sum(rows["truncated"]):
        say(f"{cut:,} of {counted(len(rows), 'pair')}: cut, being longer than the model reads")
    added = registry.check_names(add, "pairs")
    names = [*dict.fromkeys([*_chosen(subject, measures, experiments, say), *added])]
    cell = identity_of(subject, dataset=name, texts=fingerprint(pairs), split=split)
    how = {"seed": seed, "options": options, "settings": {"source": origin_of(subject).name}, "progress": progress}
    how |= {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    made = engine.measure(subject, rows, cell, names, output, **how)
    return Record.checked(made if output is None else record.load(output))


def _links(links, dataset, links_from: int) -> list[list[list[int]]]:
    """The links of each pair, of a list of lines or of a file."""
    if isinstance(links, str | os.PathLike):
        path = Path(links)
        try:
            links, where = path.read_text(encoding="utf-8").splitlines(), str(path)
        except (OSError, ValueError) as error:
            raise FileError(f"links={excerpt(str(path))} cannot be read: {excerpt(error, 200)}") from error
    elif isinstance(links, Iterable):
        links, where = list(links), "links"
    else:
        raise DatasetError(
            f"links={excerpt(links)}: give a list of strings such as '0-0 1-2', or the path of a file of lines"
        )
    if len(links) != len(dataset):
        raise DatasetError(
            f"links={excerpt(where)}: {counted(len(links), 'line')} for {counted(len(dataset), 'pair')} of sentences; give "
            "one for each, empty where a pair has no links"
        )
    read = []
    for row, (line, source, target) in enumerate(zip(links, dataset["source"], dataset["target"], strict=True)):
        if not isinstance(line, str):
            raise DatasetError(f"{where} line {row}: {excerpt(line, 60)} is no string such as '0-0 1-2'")
        counts = len(source.split()), len(target.split())
        read.append([list(link) for link in read_links(line, *counts, first=links_from, place=f"{where} line {row}")])
    return read


def _chosen(subject: SequenceSubject, measures, experiments, say: Callable[[str], None]) -> list[str]:
    """The names to measure by: those given, else the default ones that the model is capable of."""
    names = []
    for given, defaults in ((measures, MEASURES), (experiments, EXPERIMENTS)):
        if given is not None:
            names += registry.check_names(given, "pairs")
            continue
        for one in (registry.find(name, "pairs") for name in defaults):
            if lacking := sorted(set(one.needs) - subject.capabilities):
                say(f"{one.name} is left out: it needs {', '.join(lacking)}, which this model lacks")
            else:
                names.append(one.name)
    return names
