"""Own data cut into train, validation and test, so that one text is never in two of them.

Where a split is missing, of the different texts of each class a share is drawn at random for it; at least one, and at least
one is left for training. Texts that differ in case and blanks only are one text; of pairs, all rows with one first text stay
together. Published splits are not cut anew: a text (of pairs, both texts) of training that is also in validation or test is
left out of training, one of validation that is also in test out of validation.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from attnfaith.data.columns import Columns
from attnfaith.data.registry import SPLITS
from attnfaith.errors import DatasetError, cut


def cut_own(
    source: Mapping[str, Columns], names: Sequence[str], *, shares: Mapping[str, float], seed: int, dropped: Counter
) -> tuple[dict[str, Columns], str]:
    """{split: its rows} and the rule in a sentence.

    source: rows by published split, or all of them under one name. names: of the classes. shares: of test and validation
    where they are missing. dropped: takes the counts of rows left out, also_in_test and also_in_validation.

    Raises DatasetError where a class has too few texts to be in every split that is cut, and where nothing is left of one.
    """
    published = {split: rows for split, rows in source.items() if split in SPLITS}
    whole = source["train"] if published else next(iter(source.values()))
    missing = [split for split in ("test", "validation") if split not in published]
    if published:
        parts = _without_repeats(published, dropped)
        whole = parts["train"]
    else:
        parts = {}
    if missing:
        place = _places(whole, names, {split: shares[split] for split in missing}, seed)
        parts |= {split: whole.take(np.flatnonzero(place == number)) for number, split in enumerate(["train", *missing])}
    _check_classes(parts, names, missing)
    return {split: parts[split] for split in SPLITS}, _rule(published, missing, shares, seed, whole)


def keys(rows: Columns, *, first: bool = False) -> list[bytes]:
    """Of each row a digest of its text, case and blanks aside; of pairs, of both texts, or of the first only."""
    columns = [rows.text] if first else [rows.lists[name] for name in ("text", "text_pair") if name in rows.lists]
    return [
        hashlib.blake2b("\0".join(" ".join(text.split()).casefold() for text in texts).encode(), digest_size=16).digest()
        for texts in zip(*columns, strict=True)
    ]


def _without_repeats(parts: Mapping[str, Columns], dropped: Counter) -> dict[str, Columns]:
    """Each split without the texts of those that are measured after it: test stays as it is."""
    kept: dict[str, Columns] = {}
    texts: dict[str, set[bytes]] = {}
    for split in ("test", "validation", "train"):
        if split not in parts:
            continue
        own = keys(parts[split])
        home = [next((other for other in texts if key in texts[other]), None) for key in own]
        dropped.update(f"also_in_{other}" for other in home if other is not None)
        kept[split] = parts[split].take(np.array([row for row, other in enumerate(home) if other is None], np.int64))
        texts[split] = set(own)
        if not len(kept[split].label):
            raise DatasetError(
                f"every text of the {split} split is in {' or '.join(set(home))} too, so nothing is left of it"
            )
    return kept


def _places(rows: Columns, names: Sequence[str], shares: Mapping[str, float], seed: int) -> np.ndarray:
    """The number of each row's split: 0 train, then as shares has them."""
    numbers: dict[bytes, int] = {}
    group = np.array([numbers.setdefault(key, len(numbers)) for key in keys(rows, first=True)], np.int64)
    label = rows.label[np.unique(group, return_index=True)[1]]  # of each group, that of its first row
    strata = [f"the class {name!r} has" for name in names]
    if "text_pair" in rows.lists:  # where a first text has second texts of several classes
        label, strata = np.zeros_like(label), ["there are"]
    least, counts = 1 + len(shares), np.bincount(label, minlength=len(strata))
    if few := [f"{said} {count}" for said, count in zip(strata, counts, strict=True) if count < least]:
        raise DatasetError(
            f"too few texts to cut {' and '.join(shares)} from: {cut(', '.join(few), 200)}, and at least {least} "
            "different texts are needed, one for each split: give more, or leave the class out"
        )
    rng, place = np.random.default_rng(seed), np.zeros(len(label), np.int64)
    for stratum in range(len(strata)):
        groups, start = rng.permutation(np.flatnonzero(label == stratum)), 0
        for number, share in enumerate(shares.values(), 1):
            spare = len(groups) - start - (least - number)  # without what the other splits need
            size = min(max(1, round(share * len(groups))), spare)
            place[groups[start : start + size]] = number
            start += size
    return place[group]


def _check_classes(parts: Mapping[str, Columns], names: Sequence[str], missing: Sequence[str]) -> None:
    for split in ("train", *missing):
        present = set(parts[split].label.tolist())
        if lacking := [name for number, name in enumerate(names) if number not in present]:
            raise DatasetError(
                f"no {split} text is left of {cut(', '.join(map(repr, lacking)), 200)}: give more texts, leave it "
                "out, or try another data.split_seed"
            )


def _rule(published: Mapping, missing: Sequence[str], shares: Mapping[str, float], seed: int, rows: Columns) -> str:
    pairs = "text_pair" in rows.lists
    said = []
    if published:
        names = ", ".join(split for split in SPLITS if split in published)
        said.append(f"{names} as published, less {'pairs' if pairs else 'texts'} of training that another split has too")
    if missing:
        drawn = ", ".join(f"{shares[split]:.0%} {split}" for split in missing)
        which = "first texts" if pairs else "texts of each class"
        said.append(
            f"drawn at random{' of train' if published else ''} (seed {seed}) from the different {which}: {drawn}, the rest "
            f"train; all rows of one {'first ' if pairs else ''}text, case and blanks aside, are in one of them"
        )
    return "; ".join(said)
