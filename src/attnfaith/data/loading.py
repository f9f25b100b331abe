"""From a name to train, validation and test, checked and cut as the registry says.

A split is a `datasets.Dataset` with columns
    instance_id  str, "<data set>/<source split>/<row>": the row in the published file, so it survives every cut
    text         str; text_pair str (pairs only)
    label        int64 in 0..C-1
    rationale    list[int8], 0/1 per word of the entry's preprocessing (where the data set has gold evidence)
    impermissible  list[int8], likewise: 1 on the words that an honest model needs and a deceptive one hides
    candidates   list[int32], the labels that may be the answer, in order (where a text names its possible answers)
"""

import hashlib
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from attnfaith.data import registry
from attnfaith.data.original_formats import FORMATS, TABLES
from attnfaith.data.registry import DatasetEntry
from attnfaith.errors import DatasetError


ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""

SPLITS = ("train", "validation", "test")
_CHUNK = 1000  # texts split into words at a time
GENERATED_SIZES = {"train": 2000, "validation": 500, "test": 500}


@dataclass(frozen=True)
class LoadedDataset:
    """A data set as read.

    Attributes:
        splits: a `datasets.DatasetDict` with train, validation and test, no instance in two of them.
        entry: its registry entry.
        revision: what was read: the Hub revision; "local-" and a digest of the files; or "generated-" with version
            and arguments.
        label_names: name of each label, C of them.
        dropped: per split, rows left out by reason: too_short and too_long (strict bounds), shortest and longest
            (extremes of the split), limit (not drawn). Rows left out before a split exists are under "source":
            no_label, other_label, answer_not_candidate (the text does not hold its answer), answer_not_in_training,
            repeated, not_drawn (the part of a published test split that the entry does not use).
        empty: per split, the texts kept without a single word.
        empty_pair: likewise, the questions without a single word; for pairs only.
        vocabulary_texts: the training texts from which a vocabulary is counted: those before the length filter, as the
            papers do (after it where `limits` draws from train); the questions too, for pairs.
        extra_vocabulary: words to know whatever their frequency: the candidates of the training texts.
        unknown_candidates: number of candidates, over all kept rows, that no training text has; they are no labels and
            are left out of the rows' candidates.
    """

    splits: "datasets.DatasetDict"  # noqa: F821 (imported on use)
    entry: DatasetEntry
    revision: str
    label_names: list[str]
    dropped: dict[str, dict[str, int]]
    empty: dict[str, int] = field(default_factory=dict)
    vocabulary_texts: list[str] = field(default_factory=list, repr=False)
    empty_pair: dict[str, int] = field(default_factory=dict)
    extra_vocabulary: list[str] = field(default_factory=list, repr=False)
    unknown_candidates: int = 0


@dataclass(frozen=True)
class Source:
    """A data set read, checked and cut into splits, before any limit: `limited` gives the rows that are used.

    kept: of each split, the rows that its length filter keeps. dropped: as of `LoadedDataset`, without limits.
    """

    entry: DatasetEntry
    seed: int
    revision: str
    label_names: list[str]
    dropped: dict[str, dict[str, int]]
    parts: "dict[str, _Columns]" = field(repr=False)
    lengths: dict = field(repr=False)
    kept: dict = field(repr=False)

    def limited(self, limits: Mapping[str, int] | None = None) -> LoadedDataset:
        """The data set with at most so many rows of a split, as `load_splits` says; nothing is read again."""
        limits = dict(limits or {})
        _check_sizes("limits", limits)
        entry, dropped = self.entry, {part: dict(counts) for part, counts in self.dropped.items()}
        splits, empty, empty_pair, unknown_candidates, vocabulary_texts = {}, {}, {}, 0, []
        for split in SPLITS:
            rows, lengths, kept = self.parts[split], self.lengths[split], self.kept[split]
            if split == "train" and split not in limits:
                vocabulary_texts = rows.vocabulary_texts()
            if split in limits:
                kept = _draw(kept, limits[split], self.seed, split)
                dropped[split]["limit"] = len(lengths) - sum(dropped[split].values()) - len(kept)
            rows = rows.take(kept)
            if split == "train" and split in limits:
                vocabulary_texts = rows.vocabulary_texts()
            empty[split] = int((lengths[kept] == 0).sum())
            if entry.pair:
                empty_pair[split] = int((rows.lengths("text_pair") == 0).sum())
            if entry.candidates:
                unknown_candidates += sum(rows.lists["unknown_candidates"])
            splits[split] = rows.dataset()

        import datasets

        return LoadedDataset(
            datasets.DatasetDict(splits),
            entry,
            self.revision,
            self.label_names,
            dropped,
            empty,
            vocabulary_texts,
            empty_pair,
            list(self.label_names) if entry.candidates else [],
            unknown_candidates,
        )


def load_splits(
    name: str,
    *,
    seed: int = 0,
    root: str | os.PathLike | None = None,
    limits: Mapping[str, int] | None = None,
    **generator_args,
) -> LoadedDataset:
    """Load a data set of the registry.

    Args:
        name: a name in `attnfaith.data.registry.DATASETS`.
        seed: draws the subsets of `limits` and the rows of generated data. The published splits, and the cuts the
            papers make from them, do not depend on it.
        root: folder of local data; default the environment variable ATTNFAITH_DATA. If it holds the data set's folder
            (a Hub data set: the Hub id) or its original files, they are read, else the Hub.
        limits: greatest number of rows of a split, {"train": 1000}; a random subset in file order, never the head. A
            split that is not larger stays whole.
        generator_args: for built-in data only: arguments of its `generate`, and sizes={"train": 2000, ...}.

    Raises DatasetError for an unknown data set, split or argument, data that cannot be found, wrong column names, a
    missing text or label and a label out of range (with the row), a broken line of an original file (with file and
    line), marks that are not 0 or 1 per word, and a split that the filter leaves empty.
    """
    _check_sizes("limits", limits or {})
    return read_source(name, seed=seed, root=root, **generator_args).limited(limits)


def read_source(name: str, *, seed: int = 0, root: str | os.PathLike | None = None, **generator_args) -> Source:
    """Read a data set of the registry, for `Source.limited` to draw from; arguments and errors of `load_splits`."""
    entry = registry.get_entry(name)
    if entry.built_in:
        source, revision, label_names = _generate(entry, seed, generator_args)
    else:
        if generator_args:
            raise DatasetError(f"{sorted(generator_args)} are arguments of generated data; {name!r} is read, not generated.")
        source, revision = _read(entry, root)
        label_names = list(entry.label_names)

    columns = {split: _Columns(entry, split, table, len(label_names)) for split, table in source.items()}
    dropped: dict[str, dict[str, int]] = {"source": {}}
    if entry.answers:
        label_names = _number_answers(entry, columns, dropped["source"])
    parts = _cut(entry, columns, dropped["source"])
    lengths, kept = {}, {}
    for split in SPLITS:
        lengths[split] = parts[split].lengths()
        kept[split], dropped[split] = _length_filter(entry, lengths[split])
        if not len(kept[split]) and len(lengths[split]):
            raise DatasetError(f"The length filter of {name!r} leaves no row of its {split} split ({dropped[split]}).")
    return Source(entry, seed, revision, label_names, dropped, parts, lengths, kept)


def _check_sizes(what: str, sizes: Mapping[str, int]) -> None:
    for split, size in sizes.items():
        if split not in SPLITS:
            raise DatasetError(f"{what} names the split {split!r}; there are {', '.join(SPLITS)}.")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise DatasetError(f"{what}[{split!r}] must be a positive number of rows; {size!r} was given.")


# ------------------------------------------------------------------------------------------------ sources


def _generate(entry: DatasetEntry, seed: int, arguments: dict):
    """{split: rows by column}, revision and label names of generated data."""
    from attnfaith.data import babi, planted_evidence

    arguments = dict(arguments)
    sizes = dict(arguments.pop("sizes", {}))
    _check_sizes("sizes", sizes)
    sizes = {**GENERATED_SIZES, **sizes}
    babi_task = int(entry.name.removeprefix("babi_")) if entry.name.startswith("babi_") else None
    module = planted_evidence if babi_task is None else babi
    known = [
        parameter
        for parameter, spec in inspect.signature(module.generate).parameters.items()
        if spec.kind is spec.KEYWORD_ONLY and parameter != "stream"
    ]
    wrong = sorted(set(arguments).difference(known))
    if wrong:
        raise DatasetError(f"{entry.name!r} does not know {wrong}; its arguments are sizes, {', '.join(known)}.")
    task = () if babi_task is None else (babi_task,)
    source = {}
    for stream, split in enumerate(SPLITS):
        rows = module.generate(*task, sizes[split], seed, stream=stream, **arguments)
        source[split] = {column: [row[column] for row in rows] for column in rows[0]}
    names = planted_evidence.class_names(arguments.get("n_classes", 2)) if babi_task is None else entry.label_names
    said = ",".join(f"{key}={value}" for key, value in sorted({**arguments, "seed": seed}.items()))
    return source, f"generated-{module.VERSION}({said})", list(names)


def _read(entry: DatasetEntry, root) -> tuple[dict, str]:
    """{source split: rows by column} and the revision of published data or the user's own files."""
    import datasets
    import pyarrow as pa

    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    if root is not None:
        files = {split: sorted(Path(root).glob(pattern)) for split, pattern in entry.original_files.items()}
        if any(files.values()):
            for split in ("train", "test"):
                if not files[split]:
                    raise DatasetError(
                        f"{entry.name!r} has no {split} split: nothing is called {entry.original_files[split]} under {root}."
                    )
            rows = {split: FORMATS[entry.original_format](paths, entry) for split, paths in files.items() if paths}
            return rows, _digest(Path(root), [path for paths in files.values() for path in paths])
    folder = Path(root) / entry.folder / (entry.hub_data_dir or "") if root is not None else None
    where = f"the folder {folder}" if folder is not None else f"{ROOT_VARIABLE} is not set"
    try:
        if folder is not None and folder.is_dir():
            names = datasets.get_dataset_config_names(str(folder))
            config = entry.hub_config if entry.hub_config in names else None
            loaded = datasets.load_dataset(str(folder), config)
            revision = _digest(folder, [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."])
        elif entry.hub_id is None:
            raise DatasetError(
                f"{entry.name!r} is read from your own files, and there are none ({where}). {entry.notes} "
                f"Set {ROOT_VARIABLE} or root to the data root."
            )
        else:
            where = f"the Hub, {entry.hub_id} at {entry.revision}"
            loaded = datasets.load_dataset(
                entry.hub_id, entry.hub_config, data_dir=entry.hub_data_dir, revision=entry.revision
            )
            revision = entry.revision
    except DatasetError:
        raise
    except (OSError, ValueError, pa.ArrowException, datasets.exceptions.DatasetsError) as error:
        advice = (
            f"Fetch the data set {entry.hub_id} from the Hub (for use offline, into <root>/{entry.folder}) and set "
            f"{ROOT_VARIABLE} to <root>."
            if entry.hub_id is not None
            else entry.notes
        )
        raise DatasetError(f"Cannot read {entry.name!r} from {where}: {type(error).__name__}: {error} {advice}") from error
    tables = {split: loaded[split].with_format("arrow")[:] for split in SPLITS if split in loaded}
    rows_of = TABLES.get(entry.original_format)
    return tables if rows_of is None else {s: rows_of(t, entry, s) for s, t in tables.items()}, revision


def _digest(folder: Path, files: list[Path]) -> str:
    """Names data by the content of its files, which lie somewhere under the folder."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"local-{digest.hexdigest()[:12]}"


# ---------------------------------------------------------------------------------- rows: check, cut, filter


class _Columns:
    """The checked rows of one source split, or of a cut of them, by column.

    `lists` holds what need not be computed with, by our names: text, text_pair, rationale (as published), impermissible,
    answer, candidates, unknown_candidates; those that there are.
    """

    def __init__(self, entry: DatasetEntry, split: str, table, n_classes: int):
        import numpy as np

        self.entry = entry
        names = list(table.keys()) if isinstance(table, dict) else table.column_names
        found = {column: _find_column(entry, split, column, accepted, names) for column, accepted in entry.columns.items()}

        def values(name: str) -> list:
            return table[name] if isinstance(table, dict) else table.column(name).to_pylist()

        self.lists = {}
        for column in ("text", "text_pair"):
            if column in found:
                parts = [_texts(entry, split, name, values(name)) for name in found[column]]
                self.lists[column] = [" ".join(filter(None, row)) for row in zip(*parts, strict=True)]
        if entry.line_breaks:
            self.lists["text"] = [_ESCAPED.sub(lambda m: "\n" if m[1] == "n" else m[1], t) for t in self.lists["text"]]
        (label,) = found["label"]
        if entry.answers:
            self.lists["answer"] = _answers(entry, split, label, values(label))
            self.label = np.zeros(len(self.lists["text"]), np.int64)  # numbered when all splits are there
        else:
            published = max(entry.published_labels, n_classes) if entry.built_in else entry.published_labels
            self.label = _labels(entry, split, label, values(label), published)
        if "impermissible" in found:
            (marks,) = found["impermissible"]
            self.lists["impermissible"] = values(marks)
        self.instance_id = np.array([f"{entry.name}/{split}/{row}" for row in range(len(self.label))], object)
        self.gold_column = next((name for name in entry.rationale if name in names), None)
        if self.gold_column is not None:
            self.lists["rationale"] = values(self.gold_column)

    @property
    def text(self) -> list[str]:
        return self.lists["text"]

    def take(self, rows) -> "_Columns":
        taken = object.__new__(_Columns)
        taken.entry, taken.gold_column = self.entry, self.gold_column
        taken.lists = {column: [values[row] for row in rows] for column, values in self.lists.items()}
        taken.label, taken.instance_id = self.label[rows], self.instance_id[rows]
        return taken

    @classmethod
    def pool(cls, parts: list["_Columns"]) -> "_Columns":
        import numpy as np

        pooled = object.__new__(cls)
        pooled.entry, pooled.gold_column = parts[0].entry, parts[0].gold_column
        pooled.lists = {column: [value for part in parts for value in part.lists[column]] for column in parts[0].lists}
        pooled.label = np.concatenate([part.label for part in parts])
        pooled.instance_id = np.concatenate([part.instance_id for part in parts])
        return pooled

    def words(self, column: str = "text"):
        """The words of one text after another, so that a corpus is never held as words."""
        from attnfaith.data.tokenization import split_words

        texts = self.lists[column]
        for start in range(0, len(texts), _CHUNK):
            yield from split_words(texts[start : start + _CHUNK], self.entry.preprocessing)

    def lengths(self, column: str = "text"):
        """Words of each text, markers not counted."""
        import numpy as np

        return np.fromiter(map(len, self.words(column)), np.int64, len(self.label))

    def vocabulary_texts(self) -> list[str]:
        return [*self.text, *self.lists.get("text_pair", ())]

    def dataset(self):
        import datasets
        import pyarrow as pa

        columns = {
            "instance_id": pa.array(self.instance_id.tolist(), pa.string()),
            "text": pa.array(self.text, pa.large_string()),
        }
        if "text_pair" in self.lists:
            columns["text_pair"] = pa.array(self.lists["text_pair"], pa.large_string())
        columns["label"] = pa.array(self.label)
        for column, marks_of in (("rationale", partial(_rationale, self.gold_column)), ("impermissible", _impermissible)):
            if column in self.lists:
                rows = zip(self.lists[column], self.words(), self.instance_id, strict=True)
                columns[column] = pa.array([marks_of(*row) for row in rows], pa.list_(pa.int8()))
        if "candidates" in self.lists:
            columns["candidates"] = pa.array(self.lists["candidates"], pa.list_(pa.int32()))
        return datasets.Dataset(pa.table(columns))


_ESCAPED = re.compile(r'\\(n|")')


def _find_column(entry: DatasetEntry, split: str, column: str, accepted: tuple, names: list[str]) -> tuple[str, ...]:
    """The first accepted name, or the first names to be joined, that the split has."""
    choices = [name if isinstance(name, tuple) else (name,) for name in accepted]
    for choice in choices:
        if set(choice) <= set(names):
            return choice
    known = " or ".join(" with ".join(map(repr, choice)) for choice in choices)
    raise DatasetError(f"{entry.name!r} needs a column {known} ({column}); its {split} split has {names}.")


def _texts(entry: DatasetEntry, split: str, column: str, values: list) -> list[str]:
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise DatasetError(
                f"{entry.name!r}, {split} split, row {row}: column {column!r} has no text ({value!r}). An empty "
                "string is a text; a missing value is not."
            )
    return values


def _answers(entry: DatasetEntry, split: str, column: str, values: list) -> list[str]:
    for row, value in enumerate(values):
        if not isinstance(value, str) or not value.strip():
            raise DatasetError(
                f"{entry.name!r}, {split} split, row {row}: column {column!r} has no answer in words ({value!r})."
            )
    return [value.strip() for value in values]


def _labels(entry: DatasetEntry, split: str, column: str, values: list, published: int):
    import numpy as np

    first, last = entry.first_label, entry.first_label + published - 1
    for row, value in enumerate(values):
        place = f"{entry.name!r}, {split} split, row {row}"
        if value is None or value != value:
            raise DatasetError(f"{place}: column {column!r} has no label.")
        if not (type(value) is int or (isinstance(value, float) and value.is_integer())):
            raise DatasetError(f"{place}: the label {value!r} is not a whole number {first}..{last}.")
        if not first <= value <= last and value != entry.no_label:
            raise DatasetError(f"{place}: label {value} is outside {first}..{last}.")
    return np.array(values, np.int64).reshape(len(values)) - first


def _rationale(column: str, gold: list, words: list[str], instance_id: str) -> list[int]:
    """Gold evidence as 0/1 per word, from marks, from spans [start, end) over the words, or from quoted passages."""
    if column == "rationale":
        if len(gold) != len(words) or not set(gold) <= {0, 1}:
            raise DatasetError(
                f"{instance_id}: a rationale is one 0 or 1 for each of its {len(words)} words; {len(gold)} values, "
                f"{gold}, were given."
            )
        return list(gold)
    marks = [0] * len(words)
    if column == "evidences":
        spans = [span for quote in gold for span in _find(quote.lower().split(), words)]
    else:
        spans = gold
    for start, end in spans:
        if not 0 <= start <= end <= len(words):
            raise DatasetError(f"{instance_id}: the evidence [{start}, {end}) lies outside its {len(words)} words.")
        marks[start:end] = [1] * (end - start)
    return marks


def _impermissible(marks: list | None, words: list[str], instance_id: str) -> list[int]:
    if marks is None or len(marks) != len(words) or not set(marks) <= {0, 1}:
        raise DatasetError(
            f"{instance_id}: impermissible must be one 0 or 1 for each of its {len(words)} words; {marks} was given."
        )
    return marks


def _find(quote: list[str], words: list[str]) -> list[tuple[int, int]]:
    """The first place of a passage among the words, if it is there."""
    n = len(quote)
    for start in range(len(words) - n + 1 if n else 0):
        if words[start : start + n] == quote:
            return [(start, start + n)]
    return []


def _number_answers(entry: DatasetEntry, columns: dict[str, _Columns], dropped: dict[str, int]) -> list[str]:
    """Number the answers over the training split and leave out the rows that cannot be answered so.

    Sets the labels, and candidates where the entry has them; returns the names of the labels.
    """
    import numpy as np

    if "train" not in columns:
        return []  # `_cut` says what is missing
    named = {}
    if entry.candidates:
        pattern, dropped["answer_not_candidate"] = re.compile(entry.candidates), 0
        for split, rows in columns.items():
            named[split] = [{word for word in text.split() if pattern.fullmatch(word)} for text in rows.text]
            held = [row for row, answer in enumerate(rows.lists["answer"]) if answer in named[split][row]]
            dropped["answer_not_candidate"] += len(rows.label) - len(held)
            columns[split] = rows.take(held)
            named[split] = [named[split][row] for row in held]
        known = set().union(*named["train"])
    else:
        known = set(columns["train"].lists["answer"])
    # @entity2 before @entity10
    names = sorted(known, key=lambda word: (len(word), word)) if entry.candidates else sorted(known)
    if len(names) < 2:
        raise DatasetError(
            f"The train split of {entry.name!r} has {len(names)} answers to choose from ({names}); two at least."
        )
    number = {name: label for label, name in enumerate(names)}
    dropped["answer_not_in_training"] = 0
    for split, rows in columns.items():
        held = [row for row, answer in enumerate(rows.lists["answer"]) if answer in number]
        dropped["answer_not_in_training"] += len(rows.label) - len(held)
        if not held:
            raise DatasetError(
                f"No row of the {split} split of {entry.name!r} has an answer of the training split, such as "
                f"{', '.join(names[:3])} ({dropped})."
            )
        columns[split] = rows.take(held)
        columns[split].label = np.array([number[answer] for answer in columns[split].lists["answer"]], np.int64)
        if entry.candidates:
            found = [named[split][row] for row in held]
            columns[split].lists["candidates"] = [sorted(number[w] for w in words & known) for words in found]
            columns[split].lists["unknown_candidates"] = [len(words - known) for words in found]
    return names


def _cut(entry: DatasetEntry, columns: dict[str, _Columns], dropped: dict[str, int]) -> dict[str, _Columns]:
    """Train, validation and test by the entry's rule: the labels it uses, then pooling, then the random cuts."""
    import numpy as np

    if entry.no_label is not None:
        dropped["no_label"] = 0
        for split, rows in columns.items():
            kept = np.flatnonzero(rows.label != entry.no_label - entry.first_label)
            dropped["no_label"] += len(rows.label) - len(kept)
            columns[split] = rows.take(kept)
    if entry.label_subset is not None:
        dropped["other_label"] = 0
        for split, rows in columns.items():
            kept = np.flatnonzero(np.isin(rows.label, list(entry.label_subset)))
            dropped["other_label"] += len(rows.label) - len(kept)
            columns[split] = rows.take(kept)
            columns[split].label = np.array([entry.label_subset[int(old)] for old in columns[split].label], np.int64)
    if not columns:
        raise DatasetError(f"{entry.name!r} has none of the splits {', '.join(SPLITS)}.")

    rng = np.random.default_rng(entry.split_seed)
    if entry.pooled:
        rows = _Columns.pool(list(columns.values()))
        if entry.distinct:
            first = list({(text, int(label)): row for row, (text, label) in _backwards(rows)}.values())
            dropped["repeated"] = len(rows.text) - len(first)
            rows = rows.take(np.sort(np.array(first, np.int64)))
        groups = {text: group for group, text in enumerate(dict.fromkeys(rows.text))} if entry.distinct else None
        group = np.array([groups[text] for text in rows.text]) if entry.distinct else np.arange(len(rows.text))
        n = int(group.max()) + 1 if len(group) else 0
        place = rng.permutation(n)[group]
        n_test = round(entry.test_fraction * n)
        n_validation = round(entry.validation_fraction * (n - n_test))
        test, held_out = place < n_test, place < n_test + n_validation
        return {
            "train": rows.take(np.flatnonzero(~held_out)),
            "validation": rows.take(np.flatnonzero(held_out & ~test)),
            "test": rows.take(np.flatnonzero(test)),
        }

    for split in ("train", "test"):
        if split not in columns:
            raise DatasetError(f"{entry.name!r} has no {split} split; it has {', '.join(columns)}.")
    if "validation" not in columns:
        if entry.validation_fraction is None:
            raise DatasetError(f"{entry.name!r} has no validation split; it has {', '.join(columns)}.")
        train = columns["train"]
        together = _continued(train.text) if entry.pair else np.arange(len(train.text))
        n_groups = len(np.unique(together))
        held_out = (rng.permutation(n_groups).argsort() < round(entry.validation_fraction * n_groups))[together]
        columns["validation"] = train.take(np.flatnonzero(held_out))
        columns["train"] = train.take(np.flatnonzero(~held_out))
    if entry.test_fraction is not None:
        test = columns["test"]
        order = rng.permutation(len(test.text))[: round(entry.test_fraction * len(test.text))]
        dropped["not_drawn"] = len(test.text) - len(order)
        columns["test"] = test.take(np.sort(order))
    return columns


def _continued(texts: Sequence[str]):
    """The number of each text's group: texts that are the same are of one group, and a text is of that of the text before it
    which it starts with.

    The questions of a story follow one another, each with the story up to it; hypotheses share a premise. A model that has
    learned some of them by heart would be chosen by the others.
    """
    import numpy as np

    groups, found, before = {}, [], None
    for text in texts:
        if before and text.startswith(before):
            groups.setdefault(text, found[-1])
        found.append(groups.setdefault(text, len(found)))
        before = text
    return np.unique(np.array(found, np.int64), return_inverse=True)[1]


def _backwards(rows: _Columns):
    """(row, (text, label)) from the last row to the first, so that a dict over it keeps the first."""
    return reversed(list(enumerate(zip(rows.text, rows.label, strict=True))))


def _length_filter(entry: DatasetEntry, lengths) -> tuple:
    """Rows with min_length < n < max_length, less the extremes where the entry drops them, and the counts."""
    import numpy as np

    kept = np.ones(len(lengths), bool)
    counts = {}
    for reason, drop in (
        ("too_short", lengths <= entry.min_length if entry.min_length is not None else None),
        ("too_long", lengths >= entry.max_length if entry.max_length is not None else None),
        ("shortest", lengths == lengths.min(initial=np.iinfo(np.int64).max) if entry.drop_shortest else None),
        ("longest", lengths == lengths.max(initial=-1) if entry.drop_longest else None),
    ):
        if drop is not None:
            counts[reason] = int((kept & drop).sum())
            kept &= ~drop
    return np.flatnonzero(kept), counts


def _draw(rows, limit: int, seed: int, split: str):
    """A random `limit` of the rows, in their order."""
    import numpy as np

    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])
