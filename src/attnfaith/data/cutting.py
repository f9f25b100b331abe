"""Which rows become train, validation and test: labels that are used, random cuts, lengths, and limits."""

import re
from collections.abc import Sequence

from attnfaith.data.columns import Columns
from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.errors import DatasetError


def number_answers(entry: DatasetEntry, columns: dict[str, Columns], dropped: dict[str, int]) -> list[str]:
    """Number the answers over the training split and leave out the rows that cannot be answered so.

    Sets the labels, and candidates where the entry has them; returns the names of the labels.
    """
    import numpy as np

    if "train" not in columns:
        return []  # `cut` says what is missing
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
            mentions = [named[split][row] for row in held]
            columns[split].lists["candidates"] = [sorted(number[w] for w in words & known) for words in mentions]
            columns[split].lists["unknown_candidates"] = [len(words - known) for words in mentions]
    return names


def cut(entry: DatasetEntry, columns: dict[str, Columns], dropped: dict[str, int]) -> dict[str, Columns]:
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
        rows = Columns.pool(list(columns.values()))
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

    if entry.train_from_validation and "train" not in columns and "validation" in columns:
        columns["train"] = columns.pop("validation")
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

    groups, numbers, before = {}, [], None
    for text in texts:
        if before and text.startswith(before):
            groups.setdefault(text, numbers[-1])
        numbers.append(groups.setdefault(text, len(numbers)))
        before = text
    return np.unique(np.array(numbers, np.int64), return_inverse=True)[1]


def _backwards(rows: Columns):
    """(row, (text, label)) from the last row to the first, so that a dict over it keeps the first."""
    return reversed(list(enumerate(zip(rows.text, rows.label, strict=True))))


def length_filter(entry: DatasetEntry, lengths) -> tuple:
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


def draw(rows, limit: int, seed: int, split: str):
    """A random `limit` of the rows, in their order."""
    import numpy as np

    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])
