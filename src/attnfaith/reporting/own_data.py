"""What was read of a user's own data, in words and a short table."""

from collections.abc import Iterator, Mapping, Sequence

from attnfaith.support.errors import counted, cut


MOST = 20
"""Classes shown one by one."""
REASONS = {
    "no_label": "without a label",
    "no_text": "without text",
    "limit": "not drawn",
    "label_not_in_training": "of a class that training lacks",
    "also_in_test": "whose text is in test too",
    "also_in_validation": "whose text is in validation too",
}


def rows_in_words(about: Mapping, dropped: Mapping[str, Mapping[str, int]]) -> str:
    """How many rows were read and, by reason, left out: about and dropped of a `LoadedDataset`."""
    counts: dict[str, int] = {}
    for part in dropped.values():
        for reason, count in part.items():
            counts[reason] = counts.get(reason, 0) + count
    left = ", ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in counts.items() if count)
    return f"{counted(about['rows'], 'row')} read; left out: {left or 'none'}"


def repeats_in_words(about: Mapping) -> str:
    """How many texts come twice, and with two labels."""
    return f"rows that repeat an earlier text: {about['repeated']:,}; texts with two labels: {about['two_labels']:,}"


def summary(name: str, about: Mapping, dropped: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Lines for a terminal: rows, columns, rule of the splits, classes and lengths by split, repeats, what is assumed."""
    columns = ", ".join(f"{ours} from {theirs!r}" for ours, theirs in about["columns"].items())
    lines = [f"{name}: {rows_in_words(about, dropped)}", f"columns: {columns}", f"splits: {about['splits']}"]
    lines += _table(list(_rows(about)))
    return [*lines, repeats_in_words(about), *about["assumed"]]


def in_words(dataset: Mapping) -> dict[str, str]:
    """The same for a page or a card, by heading: of what run.json says of a data set; {} where that is not own data.

    Raises KeyError where it lacks what that says.
    """
    about = dataset.get("about")
    if not about:
        return {}
    classes = [f"{cut(name, 60)} {_listed(counts)}" for name, counts in about["classes"].items()]
    classes = [*classes[:MOST], f"and {len(classes) - MOST:,} more"] if len(classes) > MOST else classes
    words = [f"{split} {of_split[2]:,.0f} ({_between(of_split[1::2])})" for split, of_split in about["words"].items()]
    return {
        "rows": rows_in_words(about, dataset["dropped"]),
        "splits": about["splits"],
        f"texts of each class ({', '.join(about['words'])})": "; ".join(classes),
        "words of a text (median, half of them between)": "; ".join(words),
        "repeated texts": repeats_in_words(about),
        **({"assumed": "; ".join(about["assumed"])} if about["assumed"] else {}),
    }


def _rows(about: Mapping) -> Iterator[list[str]]:
    classes, words = about["classes"], about["words"]
    yield ["", *words]
    for number, (name, counts) in enumerate(classes.items()):
        if number == MOST:
            yield [f"and {len(classes) - MOST:,} more", *("" for _ in words)]
            break
        yield [cut(name, 30), *(f"{counts[split]:,}" for split in words)]
    yield ["all", *(f"{sum(counts[split] for counts in classes.values()):,}" for split in words)]
    yield ["words of a text, median", *(f"{of_split[2]:,.0f}" for of_split in words.values())]
    yield ["half of them between", *(_between(of_split[1::2]) for of_split in words.values())]
    yield ["all between", *(_between(of_split[::4]) for of_split in words.values())]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,}" for count in counts.values())


def _between(ends: Sequence[float]) -> str:
    return " and ".join(f"{end:,.0f}" for end in ends)


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
