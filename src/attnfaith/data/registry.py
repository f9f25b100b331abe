"""The data sets the studies read: where each is published, which columns and labels are used, and how it is cut.

One `DatasetEntry` per data set, read from registry.yaml beside this file; to add a data set, add its entry there.
Nothing here touches the data or the network: `attnfaith.data.sources` does.

`revision` pins the published repository. "main" is a moving branch: a release replaces it with the commit it was
measured on, and `LoadedDataset.revision` says what was read in any run.

The filters and vocabulary thresholds are those of Jain & Wallace (2019), "Attention is not Explanation", whose rule
for the number n of words of a text (begin and end markers not counted) is strict on both sides:
min_length < n < max_length. Where they name no maximum they take the longest text *of that split* as the maximum, and
where they name no minimum the shortest, so those texts are always lost: `drop_longest` and `drop_shortest`.
Their question answering and inference sets are not filtered.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from attnfaith.data.pairs.entries import PAIRS
from attnfaith.errors import DatasetError, excerpt, nearest
from attnfaith.files import real_path


SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class DatasetEntry:
    """How one data set is found, read, filtered and cut into train, validation and test.

    Attributes:
        name: the name in recipes and records.
        hub_id: repository on the Hub, or None for the user's own files and for generated data.
        folder: its place under the data root: the Hub id, or the folder of the user's own files; None if generated.
        hub_config: configuration of the Hub repository, or None for its default.
        hub_data_dir: folder inside the repository (and inside `folder`) that holds the data set, or None for all of it.
        revision: branch, tag or commit of the Hub repository.
        stories: whether a published row is a story of bAbI, of which each question becomes a row (`attnfaith.data.stories`).
        columns: our column ("text", "text_pair", "label", "impermissible") -> the accepted published names, in order of
            preference; a tuple of names stands for their texts joined by a blank.
        published_labels: number of labels as published; one outside first_label..first_label+published_labels-1 is an
            error.
        first_label: the published number of the first label; ours are counted from 0.
        no_label: what is published in place of a label where the annotators did not agree; such rows are left out and
            counted. None: every row has a label.
        answers: the published labels are words. They are numbered in alphabetical order over the training split as
            published; rows with another answer are left out and counted. Then label_names is empty here and
            `LoadedDataset.label_names` holds the answers.
        candidates: pattern of the words of a text that may be its answer (needs `answers`), or "" where every answer may
            be. The labels are then the candidates of the training texts, and a split has a column candidates.
        label_subset: published label -> ours; rows with other labels are left out and counted. None keeps all.
        label_names: name of each of our labels, so len(label_names) is the number of classes C.
        min_length, max_length: keep min_length < n < max_length, n in words; None sets no bound.
        drop_longest, drop_shortest: drop the longest / shortest texts of each split (all that tie).
        min_df: number of training texts a word must occur in to enter the vocabulary.
        preprocessing: name in `attnfaith.data.tokenization.PREPROCESSING`.
        pooled: pool all published splits and cut them anew.
        test_fraction: of the pooled rows, the share that becomes test; not pooled, the random share of the published
            test split that is kept. None keeps the published test split whole.
        validation_fraction: share of the training rows set apart as validation where the source has no validation
            split (always, if pooled). Of pairs, the share of their first texts: those of one story or premise stay together.
        train_from_validation: a source without a train split is cut from its validation split, of which validation_fraction
            stays validation.
        distinct: drop repeated (text, label) rows, and keep rows of one text in one split. Needs `pooled`.
        split_seed: seed of every random cut above, not that of an experiment: all experiments share one test set.
        rationale: accepted published names of the gold evidence column, or ().
        line_breaks: the texts spell a line break as backslash and n, and a quotation mark as backslash and mark; both
            are put right.
        built_in: generated by this package rather than read.
        own: of a user, named in the recipe and not in the registry (`entry_of`); `attnfaith.data.own_data` reads it.
        citation: who published it.
        licence: the terms that its publisher states, or "" where none are known to be stated.
        notes: what differs from the papers that used it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    citation: str
    label_names: tuple[str, ...] = ()
    hub_id: str | None = None
    folder: str | None = None
    hub_config: str | None = None
    hub_data_dir: str | None = None
    revision: str = "main"
    stories: bool = False
    columns: Mapping[str, tuple[str | tuple[str, ...], ...]] = field(
        default_factory=lambda: {"text": ("text",), "label": ("label",)}
    )
    published_labels: int = 2
    first_label: int = 0
    no_label: int | None = None
    answers: bool = False
    candidates: str = ""
    label_subset: Mapping[int, int] | None = None
    min_length: int | None = None
    max_length: int | None = None
    drop_longest: bool = False
    drop_shortest: bool = False
    min_df: int = 1
    preprocessing: str = "default"
    pooled: bool = False
    test_fraction: float | None = None
    validation_fraction: float | None = None
    train_from_validation: bool = False
    distinct: bool = False
    split_seed: int = 1378
    rationale: tuple[str, ...] = ()
    line_breaks: bool = False
    built_in: bool = False
    own: bool = False
    licence: str = ""
    notes: str = ""

    @property
    def pair(self) -> bool:
        """Whether an instance is a text and a question about it."""
        return "text_pair" in self.columns

    @property
    def impermissible(self) -> bool:
        """Whether it says which words are impermissible."""
        return "impermissible" in self.columns

    @property
    def permissible(self) -> "DatasetEntry":
        """The same data set without its impermissible words. DatasetError where it does not say which they are."""
        if not self.impermissible:
            marked = ", ".join(sorted(name for name, entry in DATASETS.items() if entry.impermissible))
            raise DatasetError(
                f"data.impermissible_removed: {self.name!r} does not say which words are impermissible: take {marked}, or "
                "own data with data.impermissible or data.impermissible_words"
            )
        columns = {name: names for name, names in self.columns.items() if name != "impermissible"}
        return replace(self, name=f"{self.name}_permissible", columns=columns)


def get_entry(name: str) -> DatasetEntry:
    """The entry of a data set. DatasetError, with the known names and the nearest, for an unknown one."""
    if name in DATASETS:
        return DATASETS[name]
    if name in PAIRS:
        raise DatasetError(f"{name!r} is a set of sentence pairs, which has no classes: set model.type to gru or marian.")
    raise DatasetError(f"Unknown data set {excerpt(name)}{nearest(name, sorted(DATASETS))}")


def entry_of(data: object) -> DatasetEntry:
    """The entry of a recipe's data section: the registry's, or one made of what the section says of the user's own data.

    data: the section, or its keys and values as a record keeps them; a text is a name in the registry. DatasetError as
    `get_entry`.
    """
    if isinstance(data, str):
        return get_entry(data)
    keys = data if isinstance(data, Mapping) else vars(data)
    path, hub_id = keys.get("path"), keys.get("hub_id")
    removed = keys.get("impermissible_removed")
    if path is None and hub_id is None:
        entry = get_entry(keys["name"])
        return entry.permissible if removed else entry
    columns = {"text": (keys["text"] or "text",), "label": (keys["label"] or "label",)}
    if keys["text_pair"]:
        columns["text_pair"] = (keys["text_pair"],)
    if keys.get("impermissible") or keys.get("impermissible_words"):
        columns["impermissible"] = (keys.get("impermissible") or "text",)
    file = "" if path is None else real_path(path).name
    name = hub_id or file.partition(".")[0] or file
    entry = DatasetEntry(
        name=f"own_{name}" if name in DATASETS else name,
        citation=f"the Hub's {hub_id}" if hub_id else f"own data, {file}, which is not part of this repository",
        hub_id=hub_id,
        hub_config=keys["config"],
        revision=keys["revision"] or "main",
        columns=columns,
        preprocessing=keys["preprocessing"],
        split_seed=keys["split_seed"],
        own=True,
    )
    return entry.permissible if removed else entry


def facts(data: object) -> dict:
    """What a card says of a data set, as plain values; data and errors as `entry_of`."""
    entry = entry_of(data)
    names = ("name", "hub_id", "citation", "licence", "built_in", "own", "pair", "notes")
    return {field: getattr(entry, field) for field in names}


def read_entries(path: Path) -> dict[str, DatasetEntry]:
    """Name -> entry of a file such as registry.yaml: a list of entries, the fields of `DatasetEntry` by name. A tuple is a
    list there, and notes may be a list of texts, which are joined by blanks.

    Raises DatasetError where the file is no such list, for a field that there is not, is missing or of another type (with
    entry and field), and for a name that comes twice.
    """
    try:
        listed = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise DatasetError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(fields, dict) for fields in listed):
        raise DatasetError(f"{path} must be a list of entries, each with the fields of a data set by name")
    entries = {}
    for number, fields in enumerate(listed):
        name, notes = fields.get("name", number), fields.get("notes")
        if isinstance(notes, list) and all(isinstance(text, str) for text in notes):
            fields = fields | {"notes": " ".join(notes)}
        try:
            # as JSON, where a list is a tuple's only form and all else is strict: a text is no number, and 1 is not true
            entry = _ENTRY.validate_json(json.dumps(fields), strict=True)
        except ValidationError as error:
            mistake = error.errors(include_url=False)[0]
            field = ".".join(map(str, mistake["loc"]))
            raise DatasetError(f"{path}, entry {name!r}, {field}={mistake['input']!r}: {mistake['msg']}") from error
        if entry.name in entries:
            raise DatasetError(f"{path} has two entries of the name {name!r}")
        entries[entry.name] = entry
    return entries


_ENTRY = TypeAdapter(DatasetEntry)
DATASETS = read_entries(Path(__file__).with_name("registry.yaml"))
