"""Measure a model on texts or pairs of sentences, as the command line does; list the measures; train gates of DiffMask."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from attnfaith import record
from attnfaith.api.records import Record
from attnfaith.api.texts import read_texts
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.in_memory import Rows
from attnfaith.loading import device_of, open_subject, origin_of
from attnfaith.measurement import engine, registry
from attnfaith.reporting.cells import undefined
from attnfaith.subjects import SequenceSubject
from attnfaith.subjects.base import plainly
from attnfaith.support.errors import AttnfaithError, DatasetError, FileError, counted, excerpt


if TYPE_CHECKING:
    import pandas as pd

DEFAULTS = {
    "pooled": (
        *("gradient", "gradient_norm", "integrated_gradients", "leave_one_out"),
        *("comprehensiveness", "permutation", "minimal_flip_set", "adversary_exact"),
    ),
    "maps": (
        *("gradient", "gradient_norm", "integrated_gradients", "leave_one_out"),
        *("comprehensiveness", "marker_attention", "map_permutation"),
    ),
    "pairs": ("attention", "norm", "alti", "gradient", "gradient_x_input", "occlusion", "cross_uniform", "knock_out"),
}
"""The default measures by the model's attention: one over a text, those of layers and heads, or from target to source."""
MOST_READINGS = 2 * 10**8
"""The most tokens that default measures may read to leave out one token after the other."""


@plainly()
def measure(
    model,
    texts,
    labels: Iterable | Literal["names", "ids"] | None = None,
    measures: Sequence[str] | None = None,
    *,
    add: Sequence[str] = (),
    options: Mapping[str, Mapping] | None = None,
    tokenizer=None,
    device=None,
    text: str = "text",
    text_pair: str | None = None,
    label: str | None = None,
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
    """Measure whether the attention of a model explains its predictions; of a model from sequences to sequences, on which
    source words each target word depends.

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
        measures: names, as `attnfaith.measures()` lists them: scores of importance and interventions. None takes the cheap
            ones that the model is capable of; [] none.
        add: measures beside those.
        options: {measure: {option: value}}.
        tokenizer: of a model object, or its name or folder; None takes that of the folder it was loaded from.
        device: where the model is put: "cpu", "cuda:0", 0 or a `torch.device`, as a pipeline of transformers takes it. None
            leaves an object where it is and loads a folder to the CPU.
        text, text_pair, label: names of the columns of a frame, data set or file. Columns "text_pair" and "label" ("labels",
            "label_ids") are used where they are there; "instance_id" names the texts.
        attention: of a classifier of transformers, how its layers and heads become the attention that is shown: "last", the
            mean of the last layer's heads (None is the same); "all", of all layers; "rollout"; or
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

    Raises AttnfaithError, before any work, for arguments other than these: the message names the value and what is allowed.
    """
    if not isinstance(output, str | os.PathLike | None):
        raise AttnfaithError(f"output={excerpt(output)}: give the path of a file")
    device = None if device is None else device_of(device)
    read = read_texts(texts, labels, name, text=text, text_pair=text_pair, label=label)
    subject = open_subject(model, tokenizer=tokenizer, device=device, attention=attention)
    reads = "pairs" if isinstance(subject, SequenceSubject) else "texts"
    names = None if measures is None else registry.check_names(measures, reads)
    engine.model_identity(subject)
    if reads == "pairs":
        if labels is not None:
            raise AttnfaithError("labels: a model from sequences to sequences has none; gold links are links=…")
        dataset = _pairs(read.dataset, links, links_from)
    elif links is not None:
        raise AttnfaithError("links are between the words of two sentences, and the model is a classifier: leave them out")
    elif read.labels is None:
        dataset = read.dataset
    elif "classes" in subject.capabilities:
        dataset = read.labelled(tuple(subject.class_names), subject.num_labels)
    elif labels is None:  # a column of labels, which a model without classes does not read
        dataset = read.dataset
    else:
        reason = subject.lacks["classes"]
        raise AttnfaithError(f"labels={excerpt(labels, 60)}: this model has no classes ({reason}); leave them out")
    say = (lambda line: print(f"attnfaith: {line}", file=sys.stderr)) if progress else (lambda line: None)
    if reads == "texts" and read.remark:
        say(read.remark)
    rows = subject.rows(dataset)
    empty = sum(not len(tokens) for tokens in rows["tokens"])
    if empty == len(rows):
        raise DatasetError("no text has a word of the model's vocabulary: there is nothing to attend to")
    remarks = {"cut, being longer than the model reads": sum(rows["truncated"]), "without a word": empty}
    for remark, count in remarks.items():
        if count:
            say(f"{count:,} of {counted(len(rows), reads[:-1])}: {remark}")
    names = _defaults(subject, rows, reads, say) if names is None else names
    origin = origin_of(subject)
    training = {"seed": record.UNKNOWN_SEED, "objective": record.UNKNOWN, **origin.training}
    texts_read = fingerprint(dataset if reads == "texts" else read.dataset)
    cell = record.Identity(**{**training, "dataset": read.name, "texts": texts_read, "split": split})
    table = engine.measure(
        subject,
        rows,
        cell,
        [*dict.fromkeys([*names, *registry.check_names(add, reads)])],
        output,
        seed=seed,
        options=options,
        settings={"source": origin.name} | ({"label_names": [*subject.class_names]} if reads == "texts" else {}),
        batch_tokens=batch_tokens,
        progress=progress,
    )
    table = table if output is None else record.load(output)
    for line in undefined(table) if progress else ():
        say(line)
    return Record(table, checked=True)


def _pairs(dataset, links, links_from: int):
    """Pairs of sentences as source and target, with their gold links."""
    if "text_pair" not in dataset.column_names:
        raise DatasetError(
            "a model from sequences to sequences reads pairs of sentences: give a list of (source, target), or text=… and "
            "text_pair=… for the columns"
        )
    table = dataset.table.select(["instance_id", "text", "text_pair"]).rename_columns(["instance_id", "source", "target"])
    if links is None:
        return Rows(table)
    from attnfaith.data.pairs import read_links  # what it imports makes data sets, too

    is_path = isinstance(links, str | os.PathLike)
    name = str(links) if is_path else "links"
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines() if is_path else list(links)
    except (OSError, ValueError, TypeError) as error:
        raise FileError(f"links={excerpt(name)} cannot be read: {excerpt(error, 200)}") from error
    counts = ([len(text.split()) for text in dataset[side]] for side in ("text", "text_pair"))
    return Rows(table.append_column("links", pa.array(read_links(lines, *counts, first=links_from, name=name))))


def _defaults(subject, rows, reads: str, say: Callable[[str], None]) -> list[str]:
    """The names of the default measures that the subject is capable of, importance and cheap measures first."""
    kind = reads if reads == "pairs" else "maps" if "attention maps" in subject.capabilities else "pooled"
    defaults = [*DEFAULTS[kind]]
    if "affine read-out" in subject.capabilities:  # with these a page computes predictions under any other attention
        defaults.append("token_logits")
    names, lacks = [], getattr(subject, "lacks", {})
    for measure in sorted((registry.find(name, reads) for name in defaults), key=registry.by_cost):
        lacking = sorted(measure.needs - subject.capabilities)
        if lacking:
            why = "; ".join(f"{need} ({lacks[need]})" if need in lacks else need for need in lacking)
            say(f"{measure.name} is left out: this model lacks {why}")
        elif reads == "texts" and measure.cost == "tokens" and sum(n**2 for n in rows["length"]) > MOST_READINGS:
            say(f"{measure.name} is left out: so many long texts would take it long; add=[{measure.name!r}] asks for it")
        else:
            names.append(measure.name)
    return names


def measures(reads: str = "texts") -> "pd.DataFrame":
    """Return all measures, those of installed packages too, a row for each by its name.

    reads: "texts", for classifiers; "pairs", for models from sequences to sequences, whose measures link target words to
    source words. Columns: kind ("importance": scores of tokens; "intervention": attention or the text is changed, or another
    number describes the model); what it is, in a line; needs (what it asks of a model, see
    `attnfaith.subjects.protocol.CAPABILITIES`); options with their defaults; cost (from "nothing" to "draws", see
    `attnfaith.measurement.registry.COSTS`); signed (a negative score is evidence against what is explained); source (the
    paper). Importance comes first, cheap measures before dear ones.
    """
    import pandas as pd

    rows = [
        {
            "name": measure.name,
            "kind": measure.role(),
            "what": measure.summary(),
            "needs": ", ".join(sorted(measure.needs)),
            "options": ", ".join(f"{name}={value!r}" for name, value in measure.options().items()),
            "cost": measure.cost,
            "signed": measure.signed(),
            "source": measure.source(),
        }
        for measure in registry.classes(reads)
    ]
    return pd.DataFrame(rows).set_index("name")


@plainly()
def train_gates(
    model,
    texts,
    output: str | os.PathLike,
    *,
    validation=None,
    tokenizer=None,
    text: str = "text",
    text_pair: str | None = None,
    device=None,
    seed: int = 0,
    progress: bool = True,
    **settings,
) -> Path:
    """Train the gates that the measure `diffmask` needs, and keep them in a safetensors file; returns its path.

    Args:
        model, texts, tokenizer, text, text_pair, device: as `attnfaith.measure` takes them. Texts need no
            labels: the gates keep the model's prediction.
        output: path of the file; beside it, its name ending in .csv, the log: divergence, multiplier, share of open gates
            and of kept classes, by epoch and layer.
        validation: texts by which the best epoch is chosen; None sets a tenth of `texts` apart, at least one.
        seed: of the draws of texts, batches, layers and gates.
        progress: say each epoch in a line.
        settings: of the training, the options of `diffmask` (`attnfaith.measures()`) but for `gates`.

    Then measure other texts with `measures=["diffmask"], options={"diffmask": {"gates": output}}`.

    Raises AttnfaithError for arguments other than these, before any work.
    """
    from attnfaith.data.loading import draw
    from attnfaith.importance.diffmask import DiffMask

    try:
        training = DiffMask(**settings)
    except ValueError as error:
        raise AttnfaithError(f"settings of diffmask: {registry.mistake(error, settings)}") from error
    subject = open_subject(model, tokenizer=tokenizer, device=device)

    def encoded(texts):
        return subject.rows(read_texts(texts, text=text, text_pair=text_pair).dataset)

    rows = encoded(texts)
    if validation is not None:
        held_out = encoded(validation)
    elif len(rows) < 2:
        raise AttnfaithError(f"{len(rows)} text: give two or more, of which one is set apart, or validation=…")
    else:
        order, count = np.random.default_rng(seed).permutation(len(rows)), max(1, len(rows) // 10)
        rows, held_out = rows.select(np.sort(order[count:])), rows.select(np.sort(order[:count]))
    rows = rows.select(draw(np.arange(len(rows)), training.train_texts, seed, "train"))
    held_out = held_out.select(draw(np.arange(len(held_out)), training.validation_texts, seed, "validation"))
    say = print if progress else lambda line: None
    return training.train(subject, rows, held_out, Path(output), seed=seed, say=say)
