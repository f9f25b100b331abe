"""Which rows become train, validation and test: labels that are used, random cuts, lengths, and limits."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.errors import DatasetError


def number_answers(entry: DatasetEntry, splits: dict[str, pd.DataFrame], dropped: dict[str, int]) -> list[str]:
    """Number the answers over the training split and leave out the rows that cannot be answered so.

    Sets the labels, and candidates where the entry has them; returns the names of the labels.
    """
    if "train" not in splits:
        return []  # `cut` says what is missing
    if entry.candidates:
        _set_candidates(re.compile(entry.candidates), splits, dropped)
        words = set().union(*splits["train"]["candidates"])
        names = sorted(words, key=lambda word: (len(word), word))  # @entity2 before @entity10
    else:
        names = sorted(set(splits["train"]["answer"]))
    if len(names) < 2:
        raise DatasetError(
            f"The train split of {entry.name!r} has {len(names)} answers to choose from ({names}); two at least."
        )
    number = {name: label for label, name in enumerate(names)}
    dropped["answer_not_in_training"] = 0
    for split, rows in splits.items():
        usable = rows["answer"].isin(names)
        dropped["answer_not_in_training"] += int((~usable).sum())
        if not usable.any():
            raise DatasetError(
                f"No row of the {split} split of {entry.name!r} has an answer of the training split, such as "
                f"{', '.join(names[:3])} ({dropped})."
            )
        rows = rows[usable]
        rows = rows.assign(label=[number[answer] for answer in rows["answer"]])
        if entry.candidates:
            rows["unknown_candidates"] = [len(words - number.keys()) for words in rows["candidates"]]
            rows["candidates"] = [sorted(number[word] for word in words & number.keys()) for words in rows["candidates"]]
        splits[split] = rows
    return names


def _set_candidates(pattern: re.Pattern, splits: dict[str, pd.DataFrame], dropped: dict[str, int]) -> None:
    """Set the words that may be the answer, and leave out the rows whose answer is none of them."""
    dropped["answer_not_candidate"] = 0
    for split, rows in splits.items():
        candidates = [{word for word in text.split() if pattern.fullmatch(word)} for text in rows["text"]]
        usable = np.array([answer in words for answer, words in zip(rows["answer"], candidates, strict=True)], bool)
        dropped["answer_not_candidate"] += int((~usable).sum())
        splits[split] = rows.assign(candidates=candidates)[usable]


def cut(entry: DatasetEntry, splits: dict[str, pd.DataFrame], dropped: dict[str, int]) -> dict[str, pd.DataFrame]:
    """Train, validation and test by the entry's rule: the labels it uses, then pooling, then the random cuts."""
    if entry.no_label is not None:
        labelled = {split: rows["label"] != entry.no_label - entry.first_label for split, rows in splits.items()}
        dropped["no_label"] = int(sum((~usable).sum() for usable in labelled.values()))
        splits = {split: rows[labelled[split]] for split, rows in splits.items()}
    if entry.label_subset is not None:
        wanted = {split: rows["label"].isin(list(entry.label_subset)) for split, rows in splits.items()}
        dropped["other_label"] = int(sum((~usable).sum() for usable in wanted.values()))
        splits = {split: rows[wanted[split]] for split, rows in splits.items()}
        splits = {split: rows.assign(label=rows["label"].map(entry.label_subset)) for split, rows in splits.items()}
    if not splits:
        raise DatasetError(f"{entry.name!r} has none of the splits {', '.join(SPLITS)}.")
    rng = np.random.default_rng(entry.split_seed)
    if entry.pooled:
        return _cut_anew(entry, pd.concat(splits.values(), ignore_index=True), rng, dropped)

    if entry.train_from_validation and "train" not in splits and "validation" in splits:
        splits["train"] = splits.pop("validation")
    for split in ("train", "test"):
        if split not in splits:
            raise DatasetError(f"{entry.name!r} has no {split} split; it has {', '.join(splits)}.")
    if "validation" not in splits:
        if entry.validation_fraction is None:
            raise DatasetError(f"{entry.name!r} has no validation split; it has {', '.join(splits)}.")
        train = splits["train"]
        group = _continued(train["text"]) if entry.pair else np.arange(len(train))
        n_groups = len(np.unique(group))
        held_out = (rng.permutation(n_groups).argsort() < round(entry.validation_fraction * n_groups))[group]
        splits["validation"], splits["train"] = train[held_out], train[~held_out]
    if entry.test_fraction is not None:
        test = splits["test"]
        drawn = np.sort(rng.permutation(len(test))[: round(entry.test_fraction * len(test))])
        dropped["not_drawn"] = len(test) - len(drawn)
        splits["test"] = test.iloc[drawn]
    return splits


def _cut_anew(
    entry: DatasetEntry, rows: pd.DataFrame, rng: np.random.Generator, dropped: dict[str, int]
) -> dict[str, pd.DataFrame]:
    """Train, validation and test of pooled rows; of distinct ones, all rows of one text are in one split."""
    group = np.arange(len(rows))
    if entry.distinct:
        distinct = rows.drop_duplicates(["text", "label"])
        dropped["repeated"] = len(rows) - len(distinct)
        rows, group = distinct, distinct["text"].factorize()[0]
    n_groups = int(group.max(initial=-1)) + 1
    place = rng.permutation(n_groups)[group]
    n_test = round(entry.test_fraction * n_groups)
    n_held_out = n_test + round(entry.validation_fraction * (n_groups - n_test))
    test, held_out = place < n_test, place < n_held_out
    return {"train": rows[~held_out], "validation": rows[held_out & ~test], "test": rows[test]}


def _continued(texts: Sequence[str]) -> np.ndarray:
    """The number of each text's group: texts that are the same are of one group, and a text is of that of the text before it
    which it starts with.

    The questions of a story follow one another, each with the story up to it; hypotheses share a premise. A model that has
    learned some of them by heart would be chosen by the others.
    """
    groups, numbers, before = {}, [], None
    for text in texts:
        if before and text.startswith(before):
            groups.setdefault(text, numbers[-1])
        numbers.append(groups.setdefault(text, len(numbers)))
        before = text
    return np.unique(np.array(numbers, np.int64), return_inverse=True)[1]


def length_filter(entry: DatasetEntry, lengths: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Rows with min_length < n < max_length, without the extremes where the entry drops them, and the counts."""
    inside = np.ones(len(lengths), bool)
    counts = {}
    for reason, drop in (
        ("too_short", lengths <= entry.min_length if entry.min_length is not None else None),
        ("too_long", lengths >= entry.max_length if entry.max_length is not None else None),
        ("shortest", lengths == lengths.min(initial=np.iinfo(np.int64).max) if entry.drop_shortest else None),
        ("longest", lengths == lengths.max(initial=-1) if entry.drop_longest else None),
    ):
        if drop is not None:
            counts[reason] = int((inside & drop).sum())
            inside &= ~drop
    return np.flatnonzero(inside), counts


def draw(rows: np.ndarray, limit: int, seed: int, split: str) -> np.ndarray:
    """A random `limit` of the rows, in their order."""
    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])
