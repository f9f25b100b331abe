"""How far links between the words of two sentences are those that people drew: the alignment error rate (AER).

People mark sure links S and possible ones; P holds both. For predicted links A, summed over all sentences,

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|),  precision = |A & P| / |A|,  recall = |A & S| / |S|,

each in 0..1. A quotient with nothing below is NaN. A sentence whose row is None on either side enters no sum.

Links of a sentence are text, as in .talp files: `i-j` a sure link of source word i and target word j, `ipj` or `i?j` a
possible one; predicted links of both kinds count alike. Shapes: N sentences, K links of one of them. Links as numbers are
[K, 3] int64: source word and target word from 0, and SURE or POSSIBLE; sorted, each pair once.

Source: Och & Ney (2003), A Systematic Comparison of Various Statistical Alignment Models, Computational Linguistics 29(1).
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from .columns import InputError, items, numbers, short


SURE, POSSIBLE = 2, 1
NAMES = ("alignment_error_rate", "precision", "recall")
WITHOUT_FIRST = 20
"""This many sentences with links, none of which links a first word, are taken to count from 1."""
_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)
_UNDEFINED = "?"  # stored for a row that is None: evaluate takes no None in a column of texts


def read_links(
    rows: Sequence, name: str, *, start: int, reverse: bool = False, lengths: Mapping[str, Sequence] | None = None
) -> list[np.ndarray | None]:
    """Return the links of N sentences, [K, 3] each; None where a row is None.

    rows: N texts such as "0-0 1p2". name: the column's name in errors. start: 0 or 1, the number of a sentence's first word.
    reverse: whether a link names the target word first. lengths: words of each sentence, "source" and "target", N each, NaN
    or None unknown; {} and None leave out their check.

    Raises InputError, naming the row and the link, for a text that is no link; a word before the first; and a word beyond
    the sentence. Without lengths the latter shows only in many sentences: WITHOUT_FIRST with links, of which none links a
    first word, are refused too.
    """
    if start not in (0, 1) or isinstance(start, bool):
        raise InputError(
            f"the number of the first word in {name} is {short(start)}; give 0 or 1: the links alone do not show it"
        )
    links = _parsed(items(rows, name, "text of links"), name, start, reverse)
    for side, column in (lengths or {}).items():
        if len(column) != len(links):
            raise InputError(f"{name} has {len(links)} rows and there are {len(column)} {side} sentences; give one each")
        words = ("source", "target").index(side)
        for place, (row, length) in enumerate(zip(links, column, strict=True)):
            if row is not None and length is not None and len(row) and row[:, words].max() >= length:
                source, target, _ = row[row[:, words].argmax()] + start
                raise InputError(
                    f"row {place}: {name} holds the link {source}-{target} (source-target), and its {side} sentence has "
                    f"{int(length)} words, counted from {start}: does it count from {1 - start}, or are the sides exchanged?"
                )
    filled = [row for row in links if row is not None and len(row)]
    if start == 0 and not lengths and len(filled) >= WITHOUT_FIRST and all((row[:, :2] > 0).all() for row in filled):
        raise InputError(
            f"none of the {len(filled)} sentences of {name} links a first word, so they seem to count from 1: give that "
            "number, or the number of words of each sentence"
        )
    return links


def _parsed(rows: Sequence, name: str = "links", start: int = 0, reverse: bool = False) -> list[np.ndarray | None]:
    """`read_links` without the checks that need all sentences or their lengths."""
    links = []
    for place, row in enumerate(rows):
        if row is not None and not isinstance(row, str):
            raise InputError(f"row {place}: {name} is {short(row)}; give the links of a sentence as text, such as '0-0 1-2'")
        kinds: dict[tuple[int, int], int] = {}
        for link in (row or "").split():
            parts = _LINK.fullmatch(link)
            if parts is None:
                raise InputError(f"row {place}: {name} holds {short(link)}; a link is i-j (sure) or ipj (possible)")
            pair = int(parts[1]) - start, int(parts[3]) - start
            if min(pair) < 0:
                raise InputError(
                    f"row {place}: {name} should count words from 1 and holds the link {link}: it counts from 0"
                )
            pair = pair[::-1] if reverse else pair
            kinds[pair] = max(kinds.get(pair, 0), SURE if parts[2] == "-" else POSSIBLE)
        values = np.array([(*pair, kinds[pair]) for pair in sorted(kinds)], np.int64).reshape(-1, 3)
        links.append(None if row is None else values)
    return links


def link_counts(links: Sequence, gold: Sequence) -> np.ndarray:
    """|A & S|, |A & P|, |A| and |S| of each sentence, [N, 4] float64; NaN where either row is None.

    links, gold: N each, [K, 3] or None, as `read_links` gives them.
    """
    if len(links) != len(gold):
        raise InputError(f"there are links of {len(links)} sentences and gold links of {len(gold)}; give one row each")
    counts = np.full((len(gold), 4), np.nan)
    for place, (row, gold_row) in enumerate(zip(links, gold, strict=True)):
        if row is not None and gold_row is not None:
            kinds = {(source, target): kind for source, target, kind in gold_row.tolist()}
            hits = [kinds.get((source, target), 0) for source, target, _ in row.tolist()]
            possible = sum(kind > 0 for kind in hits)
            counts[place] = hits.count(SURE), possible, len(hits), list(kinds.values()).count(SURE)
    return counts


def quotients(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numerators and denominators of NAMES, [..., 3] each, of counts [..., 4]; the error rate is 1 less its own."""
    sure, possible, links, gold = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    return np.stack([sure + possible, possible, sure], -1), np.stack([links + gold, links, gold], -1)


def alignment_scores(counts: np.ndarray) -> np.ndarray:
    """NAMES of counts, [..., 3] in 0..1 of [..., 4]: one sentence's, or their sums. NaN where a quotient is undefined."""
    above, below = quotients(counts)
    scores = np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)
    scores[..., 0] = 1 - scores[..., 0]
    return scores


def alignment_results(counts: np.ndarray) -> dict[str, float | int]:
    """Return NAMES and the sums over all sentences of `link_counts`; undefined: sentences without links or gold."""
    defined = counts[~np.isnan(counts[:, 0])]
    sums = defined.sum(axis=0)
    results = dict(zip(NAMES, map(float, alignment_scores(sums)), strict=True))
    results |= dict(zip(("links_sure", "links_possible", "links", "gold_sure"), map(int, sums), strict=True))
    return results | {"undefined": len(counts) - len(defined)}


def link_columns(
    links: Sequence,
    gold_links: Sequence,
    source_length: Sequence | None = None,
    target_length: Sequence | None = None,
    links_from: int | None = None,
    gold_from: int | None = None,
    links_reversed: bool = False,
) -> dict[str, Sequence]:
    """Return the metric's columns as they are stored: links as text from 0, source first. Errors as `read_links`."""
    columns = {"source": source_length, "target": target_length}
    lengths = {side: numbers(column, f"{side}_length") for side, column in columns.items() if column is not None}
    predicted = read_links(links, "links", start=links_from, reverse=links_reversed, lengths=lengths)
    gold = read_links(gold_links, "gold_links", start=gold_from, lengths=lengths)
    link_counts(predicted, gold)  # raises InputError where they differ in number
    stored = {f"{side}_length": column for side, column in lengths.items()}
    return stored | {"links": list(map(_written, predicted)), "gold_links": list(map(_written, gold))}


def _written(links: np.ndarray | None) -> str:
    if links is None:
        return _UNDEFINED
    return " ".join(f"{source}{'-' if kind == SURE else 'p'}{target}" for source, target, kind in links.tolist())


def link_results(*columns: Sequence[str]) -> tuple[dict, dict]:
    """Return `alignment_results` of stored links and gold, and NAMES of each sentence, [N] each."""
    counts = link_counts(*(_parsed([None if row == _UNDEFINED else row for row in rows]) for rows in columns))
    return alignment_results(counts), dict(zip(NAMES, alignment_scores(counts).T, strict=True))
