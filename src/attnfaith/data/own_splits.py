"""Own data cut into train, validation and test, so that one text is never in two of them.

Where a split is missing, of the different texts of each class a share is drawn at random for it. Texts that differ in case
and blanks only are one text; of pairs, all rows with one first text stay together. Published splits are not cut anew: a text
(of pairs, both texts) of training that is also in validation or test is left out of training, one of validation that is also
in test out of validation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from attnfaith.data.registry import SPLITS
from attnfaith.errors import DatasetError, cut


def cut_own(
    source: Mapping[str, pd.DataFrame],
    names: Sequence[str],
    shares: Mapping[str, float],
    seed: int,
    dropped: Counter,
    assumed: list[str],
) -> tuple[dict[str, pd.DataFrame], str]:
    """{split: its rows} and the rule in a sentence.

    source: rows by published split, or all of them under one name. names: of the classes. shares: of test and validation
    where they are missing. dropped: takes the counts also_in_test and also_in_validation. assumed: takes what to look at.

    Raises DatasetError where a class has too few texts to be in every split that is cut, and where nothing is left of one.
    """
    published = {split: rows for split, rows in source.items() if split in SPLITS}
    missing = [split for split in ("test", "validation") if split not in published]
    splits = _without_repeats(published, dropped)
    rest = splits["train"] if published else next(iter(source.values()))
    _check_texts(rest, names, missing)
    sizes = {split: round(shares[split] * _text_keys(rest, first=True).nunique()) for split in missing}
    for split in missing:
        splits[split], rest = _draw(rest, sizes[split], names, seed)
    splits["train"] = rest
    for split in ("train", *missing):
        present = set(splits[split]["label"])
        lacking = cut(", ".join(repr(name) for label, name in enumerate(names) if label not in present), 200)
        if lacking and split == "train":
            raise DatasetError(
                f"no train text is left of {lacking}: give more texts, leave it out, or try another split_seed"
            )
        if lacking:
            assumed.append(f"{split} has no text of {lacking}: there are few; --data.{split}_share gives it more")
    return {split: splits[split] for split in SPLITS}, _rule(published, missing, shares, seed, "text_pair" in rest)


def repeated(splits: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """How many of the rows repeat an earlier one's text (of pairs, both texts), and how many texts have two labels."""
    rows = pd.concat(splits.values(), ignore_index=True)
    labels = rows["label"].groupby(_text_keys(rows)).nunique()
    return {"repeated": len(rows) - len(labels), "two_labels": int((labels > 1).sum())}


def _text_keys(rows: pd.DataFrame, *, first: bool = False) -> pd.Series:
    """Of each row its text, case and blanks aside; of pairs both texts, or the first only."""
    columns = [rows[name] for name in ("text", "text_pair") if name in rows][: 1 if first else 2]
    keys = ["\0".join(" ".join(text.split()).casefold() for text in texts) for texts in zip(*columns, strict=True)]
    return pd.Series(keys, index=rows.index, dtype=object)


def _without_repeats(splits: Mapping[str, pd.DataFrame], dropped: Counter) -> dict[str, pd.DataFrame]:
    """Each split without the texts of those that are measured after it: test stays as it is."""
    distinct: dict[str, pd.DataFrame] = {}
    keys: dict[str, set[str]] = {}
    for split in ("test", "validation", "train"):
        if split not in splits:
            continue
        rows = splits[split]
        own = _text_keys(rows)
        for other, texts in keys.items():
            repeats = own.isin(texts)
            dropped[f"also_in_{other}"] += int(repeats.sum())
            rows, own = rows[~repeats], own[~repeats]
            if not len(rows):
                raise DatasetError(f"every text of the {split} split is in {other} too, so nothing is left of it")
        distinct[split], keys[split] = rows, set(own)
    return distinct


def _check_texts(rows: pd.DataFrame, names: Sequence[str], missing: Sequence[str]) -> None:
    least = 1 + len(missing)
    texts = pd.DataFrame({"text": _text_keys(rows, first=True), "label": rows["label"]}).drop_duplicates("text")
    counts = {f"the class {name!r} has": int((texts["label"] == label).sum()) for label, name in enumerate(names)}
    if "text_pair" in rows:  # a first text may have second texts of several classes
        counts = {"there are": len(texts)}
    if missing and (few := [f"{what} {count}" for what, count in counts.items() if count < least]):
        raise DatasetError(
            f"too few texts to cut {' and '.join(missing)} from: {cut(', '.join(few), 200)}, and at least {least} "
            "different texts are needed, one for each split: give more, or leave the class out"
        )


def _draw(rows: pd.DataFrame, size: int, names: Sequence[str], seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `size` different texts drawn at random, alike from each class, and the other rows."""
    import datasets

    keys = _text_keys(rows, first=True)
    texts = pd.DataFrame({"text": keys, "label": rows["label"]}).drop_duplicates("text")
    pairs = "text_pair" in rows
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=list(names)))
    size = max(size, 1 if pairs else len(names))
    try:
        parts = datasets.Dataset.from_dict(texts.to_dict("list"), features).train_test_split(
            test_size=size, stratify_by_column=None if pairs else "label", seed=seed
        )
    except ValueError as error:
        raise DatasetError(f"too few texts to draw {size} for a split from {len(texts)}: {error}") from error
    drawn = keys.isin(set(parts["test"]["text"]))
    return rows[drawn], rows[~drawn]


def _rule(published: Mapping, missing: Sequence[str], shares: Mapping[str, float], seed: int, pairs: bool) -> str:
    parts = []
    if published:
        names = ", ".join(split for split in SPLITS if split in published)
        parts.append(f"{names} as published, less {'pairs' if pairs else 'texts'} of training that another split has too")
    if missing:
        drawn = ", ".join(f"{shares[split]:.0%} {split}" for split in missing)
        which = "first texts" if pairs else "texts of each class"
        parts.append(
            f"drawn at random{' of train' if published else ''} (seed {seed}) from the different {which}: {drawn}, the rest "
            f"train; all rows of one {'first ' if pairs else ''}text, case and blanks aside, are in one of them"
        )
    return "; ".join(parts)
