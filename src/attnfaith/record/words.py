"""From a record over subwords to one over words.

Shapes: T tokens of a text, W words of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from attnfaith.record.identity import as_columns, from_row
from attnfaith.record.io import settings
from attnfaith.record.schema import COLUMNS, IDENTITY_COLUMNS, column_of, list_lengths, offsets, validate, with_settings
from attnfaith.support.errors import RecordError


CONTINUES = "##"
"""Prefix of a token that continues the word of the token before it."""
REPEATS = f"{CONTINUES}⋯"
"""Prefix of a token that is a further part, such as a byte, of a character that the token before it shows."""

RULES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": np.add.reduceat,
    "length": lambda values, starts: np.sqrt(np.add.reduceat(values**2, starts)),
    "largest": np.maximum.reduceat,
}
"""Rules by which the value of a word follows from those of its tokens (`Column.words`): functions of the values and of the
place where each word starts, to one value a word.

sum      of parts that add up, exact; of sizes of parts without a sign, an upper bound of the size of the word's part.
length   of gradients: the length of the gradient in all tokens of the word at once, exact.
largest  of marks: a word is marked where one of its tokens is.
"""


def by_word(table: pa.Table) -> pa.Table:
    """Return the record with words in place of subwords: the same texts, predictions and labels, at level "word".

    Tokens of a word are joined; their attention is summed, so that it is a distribution over words; a word is marked as
    rationale or impermissible where one of its tokens is. An importance follows the rule of its column (`Column.words`). One
    without a rule, such as leave-one-out, is left out, as are the results of interventions, which were carried out on
    tokens. `settings` of each cell lists under "words" the rule of each column and what was left out.

    Raises RecordError where the record is not of subwords: it has no column word_of_token.
    """
    if "word_of_token" not in table.column_names:
        raise RecordError(
            "the record has no column 'word_of_token', for its tokens are words, or sentences, already: leave out --words"
        )
    owner = table.column("word_of_token").combine_chunks()
    counts, words = list_lengths(owner).astype(np.int64), owner.flatten().to_numpy()
    text = np.repeat(np.arange(len(counts)), counts)
    new = np.ones(len(words), dtype=bool)
    new[1:] = (words[1:] != words[:-1]) | (text[1:] != text[:-1])
    starts = np.flatnonzero(new)
    bounds = offsets(np.bincount(text[starts], minlength=len(counts)))
    cells = table.column("cell").to_pylist()
    identities = {cell: as_columns(replace(from_row({"cell": cell}), level="word"), 1) for cell in set(cells)}
    columns: dict[pa.Field, pa.Array] = {}
    rules, left_out = {}, []
    for field in table.schema:
        column, values = column_of(field), table.column(field.name).combine_chunks()
        rule = {"attention": "sum", "rationale": "largest", "impermissible": "largest"}.get(field.name, column.words)
        if field.name == "tokens":
            strings = pa.array(_joined(values.flatten().to_pylist(), starts), pa.string())
            columns[field] = pa.ListArray.from_arrays(bounds, strings)
        elif rule:
            flat = values.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
            numbers = RULES[rule](flat, starts) if len(starts) else flat
            columns[field] = pa.ListArray.from_arrays(bounds, pa.array(numbers.astype(np.float32)))
            rules[field.name] = rule
        elif field.name in IDENTITY_COLUMNS:
            columns[field] = pa.array([identities[cell][field.name][0] for cell in cells])
        elif field.name in COLUMNS or field.name == "query_tokens":
            columns[field] = values
        elif field.name != "word_of_token":
            left_out.append(field.name)
    arrays = [array.cast(field.type) for field, array in columns.items()]
    record = pa.Table.from_arrays(arrays, schema=pa.schema(list(columns), table.schema.metadata))
    added = {"words": {"rules": rules, "left_out": left_out}}
    parts = [{**part, "identity": {**part.get("identity", {}), "level": "word"}, **added} for part in settings(table)]
    record = with_settings(record, parts)
    validate(record)
    return record


def words_of(tokens: Sequence[str], owners: Sequence[int]) -> tuple[list[str], list[int]]:
    """Return the words that a text's tokens make, and the number of each token's word, from 0.

    owners: `word_of_token` of the text.
    """
    if not len(tokens):
        return [], []
    new = np.ones(len(tokens), dtype=bool)
    new[1:] = np.diff(owners) != 0
    return _joined(list(tokens), np.flatnonzero(new)), (np.cumsum(new) - 1).tolist()


def _joined(tokens: list[str], starts: np.ndarray) -> list[str]:
    """The words that tokens make, without surrounding blanks."""
    words, ends = [], [*starts.tolist(), len(tokens)][1:]
    for start, end in zip(starts.tolist(), ends, strict=True):
        word = tokens[start]
        for token in tokens[start + 1 : end]:
            if not (token.startswith(REPEATS) and word.endswith(token.removeprefix(REPEATS))):
                word += token.removeprefix(CONTINUES)
        words.append(word.strip() or tokens[start])
    return words
