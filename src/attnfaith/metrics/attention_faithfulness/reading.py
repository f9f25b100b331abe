"""What comes in: rows typed into boxes, or a file given as bytes, as columns of rows; checked, and told apart by content.

Run as a script it reads a Parquet file on standard input within bounds of memory and time, for `_is_harmless`.

Shapes: N instances, T tokens of one instance, C classes.
"""

import contextlib
import csv
import io
import json
import math
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


MAX_FILE = 100 * 2**20  # bytes of an uploaded file
MAX_TEXT = 20 * 2**20  # bytes of JSON, CSV or a box: its numbers take ten times that as Python objects
MAX_VALUES = 5_000_000  # values in all columns together: half a minute of work
MAX_CHOICES = 1000  # cells or measures in a list
MAX_TOKEN = 40  # letters of a token shown
MAX_MEMORY = 4 * 2**30  # bytes of the process that tries a Parquet file
MAX_SECONDS = 60  # of that process
PARQUET = b"PAR1"
COLUMNS = ("attention", "importance", "probs", "counterfactual_attention", "counterfactual_probs")  # those of the metric
# what tells the cells of a record apart, where it has them
IDENTITY = (
    *("dataset", "texts", "training_texts", "split", "model", "encoder", "hierarchy", "level", "alignment", "score_scale"),
    *("projection", "projection_parameter", "readout", "vectors", "vectors_scale", "vectors_digest", "objective"),
    *("tokenizer_digest", "reduction", "reduction_layers", "reduction_head"),
    *("attention_rate", "random_erasure", "adversary_weight", "adversary_divergence", "adversary_frozen", "attention_kind"),
    *("impermissible_mass", "impermissible_heads", "diversity", "word_tying", "word_tying_distance", "word_tying_padding"),
    *("masked_language_model", "masked_share", "base_impermissible_mass", "base_impermissible_heads", "base_diversity"),
    *("base_word_tying", "base_word_tying_distance", "base_word_tying_padding", "base_masked_language_model"),
    *("base_masked_share", "separate_impermissible", "selection_kind", "selection_encoder", "selection_budget"),
    *("selection_contiguous", "selection_threshold", "selection_transition", "selection_temperature"),
    *("selection_test_temperature", "selection_pooling", "selection_reads", "selection_vectors_shared"),
    *("selection_baseline", "selection_sparsity", "selection_coherence", "selection_target", "selection_lasso"),
    "selection_two_sided",
    *("base_encoder", "base_hierarchy", "base_alignment", "base_score_scale", "base_projection", "base_objective"),
    *("base_projection_parameter", "base_adversary_weight", "base_adversary_divergence", "base_adversary_frozen", "seed"),
)
EMPTY = "there is no instance: give at least one row"
UNREADABLE = "the file is not a readable Parquet file: damaged, encrypted, cut off or of other types"


class InputError(ValueError):
    """What came in cannot be used; the message says what it was, what is allowed and what to do."""


def columns_of_texts(texts):
    """Column -> N rows (arrays [T] or [C]; None where undefined) from one text per column; an empty text leaves it out.

    A text is a JSON list of lists, or one row a line: numbers between blanks or commas, `null` for an undefined row,
    `[]` for an empty one. Raises InputError naming column and line.
    """
    return {name: _rows_of_text(text, name) for name, text in texts.items() if text.strip()}


def columns_of_file(data, importance=None, cell=None):
    """(columns, choices) of a record (Parquet), JSON or CSV file, given as bytes.

    Columns are those of the metric and `tokens`, as `columns_of_texts`. choices: "importance" -> the columns of importance
    that the file offers, "cell" -> the labels of its cells, "used", "aside" -> names of the columns read and not read.
    importance, cell: which of these to read; the first where None.

    JSON is an object of columns, or a list of objects with one instance each. CSV has a header and an instance a line, each
    cell a row as in `columns_of_texts`; or, with a column `instance`, a token a line. Raises InputError.
    """
    if not data:
        raise InputError("the file is empty: give a record (.parquet), a JSON file or a CSV file")
    if len(data) > MAX_FILE:
        raise InputError(f"the file has {len(data):,} bytes; at most {MAX_FILE:,} are read. Give fewer instances or columns")
    if data[:4] == PARQUET:
        if not _is_harmless(data, importance, cell):
            raise InputError(UNREADABLE)
        return _of_parquet(data, importance, cell)
    if len(data) > MAX_TEXT:
        raise InputError(
            f"the file has {len(data):,} bytes; of JSON and CSV at most {MAX_TEXT:,} are read. Give a parquet file"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("the file is neither Parquet nor text in UTF-8: give a record (.parquet), JSON or CSV") from error
    read = _of_json if text.lstrip()[:1] in ("{", "[") else _of_csv
    columns, names = read(text)
    if not set(columns) & set(COLUMNS):
        raise InputError(f"the file has the columns {listed(names)}; none of them is one of {listed(COLUMNS)}")
    return columns, choices_of(columns, names)


def choices_of(columns, names, importance=(), cells=()):
    aside = [name for name in names if name not in columns and name not in ("instance", "token")]
    return {"importance": list(importance), "cell": list(cells), "used": list(columns), "aside": aside}


def listed(names):
    names = [cut(name) for name in names]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _short(value):
    return f"'{cut(value)}'"


def _rows_of_text(text, name):
    if len(text) > MAX_TEXT:
        raise InputError(f"{name} has {len(text):,} characters; at most {MAX_TEXT:,} are read. Give a file")
    try:
        value = _json(text, name)
    except InputError:
        if "[[" in "".join(text[:100].split()):
            raise  # it was meant as JSON
    else:
        if isinstance(value, list) and any(isinstance(row, list) for row in value):
            return _rows(value, name)
    return [_row_of_text(line, f"{name}, line {number}") for number, line in enumerate(text.strip().splitlines(), 1)]


def _row_of_text(text, where):
    """One row [T] of numbers, or None for `null`; InputError says where."""
    text = text.strip()
    if text.lower() in ("null", "none", "nan"):
        return None
    if not text:
        raise InputError(f"{where} is blank: write [] for an empty text, null for an undefined one")
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    values = []
    for part in filter(None, re.split(r"[\s,;]+", text)):
        try:
            values.append(math.nan if part == "null" else float(part))
        except ValueError as error:
            raise InputError(f"{where}: {_short(part)} is not a number; write numbers between blanks or commas") from error
    return np.array(values)


def _json(text, name):
    try:
        return json.loads(text, parse_int=float)
    except RecursionError as error:
        raise InputError(f"{name} is nested too deeply; give a list of lists of numbers") from error
    except ValueError as error:
        raise InputError(f"{name} is not valid JSON: {error}") from error


def _rows(value, name):
    """Rows [T] of a JSON list of lists of numbers; InputError names the row."""
    if not isinstance(value, list):
        raise InputError(f"{name} is {_short(value)}; give a list with one list of numbers per instance")
    rows = []
    for place, row in enumerate(value):
        if row is not None and not isinstance(row, list):
            raise InputError(f"{name}, row {place} is {_short(row)}; give a list of numbers per instance")
        for number in row or ():
            if number is not None and not isinstance(number, float):
                raise InputError(f"{name}, row {place}: {_short(number)} is not a number")
        rows.append(None if row is None else np.array(row, dtype=np.float64))  # None within becomes NaN
    return rows


def _tokens(value):
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise InputError("tokens: give a list with one list of words per instance")
    return [[str(token) for token in row] for row in value]


def _of_json(text):
    value = _json(text, "the file")
    if isinstance(value, list):
        if not all(isinstance(item, dict) for item in value):
            raise InputError('the file is a list of other things than objects: name the columns, as in {"attention": [[…]]}')
        names = list(dict.fromkeys(name for item in value for name in item))
        value = {name: [item.get(name) for item in value] for name in names}
    columns = {name: _rows(rows, name) for name, rows in value.items() if name in COLUMNS}
    if "tokens" in value:
        columns["tokens"] = _tokens(value["tokens"])
    return columns, list(value)


def _of_csv(text):
    header = text.split("\n", 1)[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count), strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        if len(set(names)) < len(names):
            raise InputError(f"the header names a column twice: {listed(names)}")
        lines = []
        for line in reader:
            if None in line or None in line.values():
                raise InputError(f"line {reader.line_num} of the file has not the {len(names)} cells of the header")
            lines.append((reader.line_num, line))
    except csv.Error as error:
        raise InputError(f"line {reader.reader.line_num} of the file cannot be read as CSV: {error}") from error
    known = [name for name in names if name in COLUMNS]
    if "instance" in names:
        return _of_token_lines(lines, known, "token" in names), names
    columns = {name: [_row_of_text(line[name], f"{name}, line {number}") for number, line in lines] for name in known}
    if "tokens" in names:
        columns["tokens"] = [_words(line["tokens"]) for _, line in lines]
    return columns, names


def _words(cell):
    return _tokens([_json(cell, "tokens")])[0] if cell.lstrip().startswith("[") else cell.split()


def _of_token_lines(lines, known, with_tokens):
    columns = {name: [] for name in known} | ({"tokens": []} if with_tokens else {})
    seen, last = set(), None
    for number, line in lines:
        if line["instance"] != last or not seen:
            last = line["instance"]
            if last in seen:
                raise InputError(
                    f"line {number}: instance {_short(last)} comes again; keep the lines of an instance together"
                )
            seen.add(last)
            for rows in columns.values():
                rows.append([])
        for name in known:
            values = _row_of_text(line[name], f"{name}, line {number}")
            if values is not None and len(values) != 1:
                raise InputError(
                    f"{name}, line {number} holds {len(values)} numbers; with a column 'instance' a line is one token"
                )
            columns[name][-1].append(math.nan if values is None else values[0])
        if with_tokens:
            columns["tokens"][-1].append(line["token"])
    return {name: rows if name == "tokens" else [np.array(row) for row in rows] for name, rows in columns.items()}


def _is_harmless(data, importance, cell):
    """Whether a process of its own survives reading the file: a damaged one can end the process that reads it, and a small
    one can unfold into more than the memory holds.
    """
    command = [sys.executable, __file__, json.dumps([importance, cell])]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=2 * MAX_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _try_parquet(importance, cell):
    """Read the file on standard input within the bounds of memory and time; what is wrong with it is told elsewhere."""
    with contextlib.suppress(ImportError):  # on Windows, without bounds
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    with contextlib.suppress(InputError):
        _of_parquet(sys.stdin.buffer.read(), importance, cell)


def _of_parquet(data, importance, cell):
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        names = file.schema_arrow.names
        measures = [name for name in names if name == "importance" or name.startswith("importance_")][:MAX_CHOICES]
        if importance is not None and importance not in measures:
            raise InputError(f"the record has no column {_short(importance)}; its importance columns are {listed(measures)}")
        chosen = importance or next(iter(measures), None)
        # column of the metric -> column of the file
        wanted = {name: name for name in COLUMNS if name in names and name != "importance"}
        if chosen:
            wanted["importance"] = chosen
        if not wanted:
            raise InputError(f"the file has the columns {listed(names)}; none of them is one of {listed(COLUMNS)}")
        if "tokens" in names:
            wanted["tokens"] = "tokens"
        identity = [name for name in IDENTITY if name in names]
        read = [*wanted.values(), *identity]
        texts = _check_size(file.metadata, read)
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
        groups = (file.read_row_group(group, columns=read, use_threads=False) for group in range(file.num_row_groups))
        cells, table = _one_cell(pa.concat_tables(map(_with_short_texts, groups)), identity, cell)
        columns = {name: _arrow_rows(table, other) for name, other in wanted.items() if name != "tokens"}
        if "tokens" in wanted:
            columns["tokens"] = table.column("tokens").combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise InputError(UNREADABLE) from error
    aside = [name for name in names if name not in read]
    return columns, {"importance": measures, "cell": cells, "used": list(wanted.values()), "aside": aside}


def _check_size(metadata, read):
    """InputError where the columns hold nothing or too much, by what the file says of itself; the paths of their texts."""
    if not metadata.num_rows:
        raise InputError(EMPTY)
    chunks = [
        metadata.row_group(group).column(place)
        for group in range(metadata.num_row_groups)
        for place in range(metadata.num_columns)
    ]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in read]
    values = sum(chunk.num_values for chunk in chunks)
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    if values > MAX_VALUES or size > 4 * MAX_FILE:
        raise InputError(f"the file holds {values:,} values to read; at most {MAX_VALUES:,} are. Give fewer instances")
    return sorted({chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"})


def _one_cell(table, identity, wanted):
    """(labels of the cells of a record, the rows of one): the one that is wanted, or the first."""
    if not identity:
        return [], table
    codes = [pc.dictionary_encode(table.column(name).combine_chunks()).indices.fill_null(-1) for name in identity]
    keys = np.stack([code.to_numpy(zero_copy_only=False) for code in codes], axis=1)
    _, first, cell_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    cells = [(table.select(identity).slice(row, 1).to_pylist()[0], cell) for cell, row in enumerate(first)][:MAX_CHOICES]
    differ = [name for name in identity if len({row[name] for row, _ in cells}) > 1]
    labels = {", ".join(f"{name} {cut(row[name])}" for name in differ): cell for row, cell in cells}
    if wanted is not None and wanted not in labels:
        raise InputError(f"the record has no cell {_short(wanted)}; its cells are {listed(labels)}")
    chosen = labels[wanted] if wanted is not None else next(iter(labels.values()))
    return (list(labels) if differ else []), table.filter(pa.array(cell_of == chosen))


def _arrow_rows(table, name):
    """A list column as one array per instance (views), None where null; InputError where it is none of numbers."""
    column = table.column(name)
    try:
        array = column.combine_chunks().cast(pa.large_list(pa.float64()))
    except pa.ArrowException as error:
        raise InputError(f"column '{name}' holds {column.type}; give one list of numbers per instance") from error
    flat, bounds = array.values.to_numpy(zero_copy_only=False), array.offsets.to_numpy()
    known = array.is_valid().to_numpy(zero_copy_only=False)
    return [
        flat[start:stop] if is_known else None for start, stop, is_known in zip(bounds[:-1], bounds[1:], known, strict=True)
    ]


def _with_short_texts(table):
    """The table with its texts cut to what is shown. They come as dictionaries, each different text once: a long one that
    comes a million times fits into a small file, but not into memory.
    """
    for place, name in enumerate(table.column_names):
        array = table.column(name).combine_chunks()
        words = array.values if pa.types.is_list(array.type) else array
        if pa.types.is_dictionary(words.type):
            cut = pc.utf8_slice_codeunits(words.dictionary, 0, MAX_TOKEN + 1).take(words.indices)
            whole = cut if words is array else pa.ListArray.from_arrays(array.offsets, cut, mask=array.is_null())
            table = table.set_column(place, name, whole)
    if "tokens" in table.column_names:
        tokens = table.column("tokens")
        if tokens.null_count or not (pa.types.is_list(tokens.type) and pa.types.is_string(tokens.type.value_type)):
            raise InputError(
                f"column 'tokens' holds {tokens.type}, or nothing in a row; give one list of words per instance"
            )
    return table


def check(columns):
    """InputError where the columns hold nothing or too much, or tokens do not fit; the metric checks the rest."""
    given = [rows for name, rows in columns.items() if name in COLUMNS]
    if given and not any(len(rows) for rows in given):
        raise InputError(EMPTY)
    values = sum(len(row) for rows in given for row in rows if row is not None)
    if values > MAX_VALUES:
        raise InputError(f"the columns hold {values:,} numbers; at most {MAX_VALUES:,} are computed. Give fewer instances")
    if "tokens" not in columns:
        return
    for name in {"attention", "importance"} & columns.keys():
        if len(columns["tokens"]) != len(columns[name]):
            raise InputError(
                f"tokens has {len(columns['tokens'])} rows and {name} {len(columns[name])}; give one per instance"
            )
        for place, (tokens, row) in enumerate(zip(columns["tokens"], columns[name], strict=True)):
            if row is not None and len(tokens) != len(row):
                raise InputError(f"row {place}: tokens has {len(tokens)} words for {len(row)} values of {name}")


def cut(text):
    text = str(text)
    return text if len(text) <= MAX_TOKEN else text[:MAX_TOKEN] + "…"


if __name__ == "__main__":
    _try_parquet(*json.loads(sys.argv[1]))
