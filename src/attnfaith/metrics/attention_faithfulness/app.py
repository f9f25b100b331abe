"""The metric's Space: attention and importance in, typed or as a file; the numbers and a picture out.

`python app.py` serves it. Nothing that comes in is trusted: a file is bytes, never a path, and told apart by its content;
sizes are checked before the work; nothing is unpickled or evaluated; all text that goes back to the page is escaped.

Shapes: N instances, T tokens of one instance, C classes.
"""

import contextlib
import csv
import functools
import html
import importlib
import io
import json
import logging
import math
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


FOLDER = Path(__file__).parent
MAX_FILE = 100 * 2**20  # bytes of an uploaded file
MAX_TEXT = 20 * 2**20  # bytes of JSON, CSV or a box: its numbers take ten times that as Python objects
MAX_VALUES = 5_000_000  # values in all columns together: half a minute of work
MAX_CHOICES = 1000  # cells or measures in a list
MAX_DRAWN = 400  # tokens of a picture; nobody reads more, and they make the page slow
MAX_TOKEN = 40  # letters of a token shown
MAX_MEMORY = 4 * 2**30  # bytes of the process that tries a Parquet file
MAX_SECONDS = 60  # of that process
PARQUET = b"PAR1"
TRY_PARQUET = "--try-parquet"
# what tells the cells of a record apart, where it has them
IDENTITY = (
    *("dataset", "texts", "training_texts", "split", "model", "encoder", "hierarchy", "level", "alignment", "score_scale"),
    *("projection", "projection_parameter", "readout", "vectors", "vectors_scale", "vectors_digest", "objective"),
    *("attention_rate", "random_erasure", "adversary_weight", "adversary_divergence", "adversary_frozen", "attention_kind"),
    *("base_encoder", "base_projection", "base_projection_parameter", "base_objective", "base_adversary_weight", "seed"),
)
BINS = np.linspace(-1, 1, 21)
# column -> rows shown when the page opens: a dense attention, one on a single token, an even one
EXAMPLE = {
    "attention": "0.1 0.2 0.7\n0 0 1\n0.4 0.1 0.1 0.4",
    "importance": "1 3 2\n0.1 0.2 0.3\n5 1 2 4",
    "probs": "",
    "counterfactual_attention": "",
    "counterfactual_probs": "",
}
# heading -> how the statistics below it begin
GROUPS = {
    "Instances": ("n",),
    "Concentration of attention": ("normalised_entropy", "support_size", "share_of_zeros"),
    "Agreement with importance": ("kendall_tau", "tie_ceiling", "top_k_overlap", "support_auprc"),
    "Change of the prediction": ("tvd", "flip_fraction"),
    "Distance of the attentions": ("jsd",),
}
CSS = """
.faithfulness { --attention: #0072b2; --importance: #d55e00; color: var(--body-text-color); margin-bottom: 1.2rem; }
.dark .faithfulness { --attention: #56b4e9; --importance: #e69f00; }
.faithfulness .problem { border-left: 4px solid #c62828; background: rgb(198 40 40 / 10%); padding: .6rem .8rem; }
.faithfulness .quiet { color: color-mix(in srgb, var(--body-text-color) 70%, transparent); }
.faithfulness .tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin-bottom: .8rem; }
.faithfulness .tile { flex: 1 1 9rem; padding: .6rem .8rem;
  border: 1px solid var(--border-color-primary); border-radius: 8px; }
.faithfulness .tile b { display: block; font-size: 1.6rem; line-height: 1.3; font-weight: 600; }
.faithfulness .tile span { display: block; font-size: .82rem; }
.faithfulness .wide { overflow-x: auto; }
.faithfulness table { width: 100%; border-collapse: collapse; border: 0 !important; font-size: .85rem; margin: 0; }
.faithfulness tr { border: 0 !important; border-top: 1px solid var(--border-color-primary) !important; }
.faithfulness th, .faithfulness td { text-align: left; padding: .2rem .5rem; border: 0 !important; vertical-align: top; }
.faithfulness .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.faithfulness code { font-size: .8rem; background: none; border: 0; padding: 0; }
.faithfulness .title { font-weight: 600; margin: .4rem 0; }
.faithfulness svg { width: 100%; max-width: 760px; height: auto; display: block; }
.faithfulness svg text { fill: currentColor; font-size: 12px; }
.faithfulness .bars { max-height: 34rem; overflow: auto; }
.faithfulness .bars tr { border: 0 !important; }
.faithfulness .bars th, .faithfulness .bars td { padding: .08rem .5rem; vertical-align: middle; }
.faithfulness .bars td.token { text-align: center; white-space: nowrap; }
.faithfulness .bars td.bar { width: 34%; min-width: 4rem; }
.faithfulness .bar div { height: .85rem; border-radius: 2px; }
.faithfulness .bar .some { min-width: 1px; }
@media (max-width: 640px) { .faithfulness .rank { display: none; } .faithfulness svg text { font-size: 22px; } }
"""


EMPTY = "there is no instance: give at least one row"
UNREADABLE = "the file is not a readable Parquet file: damaged, encrypted, cut off or of other types"


class InputError(ValueError):
    """What came in cannot be used; the message says what it was, what is allowed and what to do."""


@dataclass
class Answer:
    """What the page shows: pieces of HTML, the results as plain values, and the columns for drawing other instances.

    columns: name -> N rows, as `columns_of_texts` gives them, and with an importance "tau": one value per instance.
    """

    message: str
    numbers: str = ""
    histogram: str = ""
    bars: str = ""
    results: dict = field(default_factory=dict)
    columns: dict = field(default_factory=dict)
    n: int = 0


# ---------------------------------------------------------------------------------------------- reading


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
    if not set(columns) & set(EXAMPLE):
        raise InputError(f"the file has the columns {_listed(names)}; none of them is one of {_listed(EXAMPLE)}")
    return columns, _choices(columns, names)


def _choices(columns, names, importance=(), cells=()):
    aside = [name for name in names if name not in columns and name not in ("instance", "token")]
    return {"importance": list(importance), "cell": list(cells), "used": list(columns), "aside": aside}


def _listed(names):
    names = [_cut(name) for name in names]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _short(value):
    return f"'{_cut(value)}'"


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
    columns = {name: _rows(rows, name) for name, rows in value.items() if name in EXAMPLE}
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
            raise InputError(f"the header names a column twice: {_listed(names)}")
        lines = []
        for line in reader:
            if None in line or None in line.values():
                raise InputError(f"line {reader.line_num} of the file has not the {len(names)} cells of the header")
            lines.append((reader.line_num, line))
    except csv.Error as error:
        raise InputError(f"line {reader.reader.line_num} of the file cannot be read as CSV: {error}") from error
    known = [name for name in names if name in EXAMPLE]
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
            found = _row_of_text(line[name], f"{name}, line {number}")
            if found is not None and len(found) != 1:
                raise InputError(
                    f"{name}, line {number} holds {len(found)} numbers; with a column 'instance' a line is one token"
                )
            columns[name][-1].append(math.nan if found is None else found[0])
        if with_tokens:
            columns["tokens"][-1].append(line["token"])
    return {name: rows if name == "tokens" else [np.array(row) for row in rows] for name, rows in columns.items()}


def _is_harmless(data, importance, cell):
    """Whether a process of its own survives reading the file: a damaged one can end the process that reads it, and a small
    one can unfold into more than the memory holds.
    """
    command = [sys.executable, __file__, TRY_PARQUET, json.dumps([importance, cell])]
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
            raise InputError(
                f"the record has no column {_short(importance)}; its importance columns are {_listed(measures)}"
            )
        chosen = importance or next(iter(measures), None)
        # column of the metric -> column of the file
        wanted = {name: name for name in EXAMPLE if name in names and name != "importance"}
        if chosen:
            wanted["importance"] = chosen
        if not wanted:
            raise InputError(f"the file has the columns {_listed(names)}; none of them is one of {_listed(EXAMPLE)}")
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
    found = [(table.select(identity).slice(row, 1).to_pylist()[0], cell) for cell, row in enumerate(first)][:MAX_CHOICES]
    differ = [name for name in identity if len({row[name] for row, _ in found}) > 1]
    labels = {", ".join(f"{name} {_cut(row[name])}" for name in differ): cell for row, cell in found}
    if wanted is not None and wanted not in labels:
        raise InputError(f"the record has no cell {_short(wanted)}; its cells are {_listed(labels)}")
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


# ---------------------------------------------------------------------------------------------- computing


def answer(read):
    """(Answer, choices) to what `read()` gives as (columns, choices). What is wrong with it becomes the message; choices is
    then what was read of them, or None.
    """
    choices = None
    try:
        columns, choices = read()
        _check(columns)
        results, tau = measured(columns)
    except ValueError as error:
        return _refused(str(error)), choices
    except Exception:
        logging.exception("an input could not be computed")
        return _refused("the page failed on this input, and its log says where; try fewer instances"), choices
    aside = choices["aside"]
    told = f"Used: {_listed(choices['used'])}."
    if aside:
        told += f" Not used: {_listed(aside) if len(aside) <= 4 else f'{len(aside)} other columns'}."
    drawn = columns | ({} if tau is None else {"tau": tau})
    found = Answer(
        message=_block(f'<p class="quiet">{_safe(told)}</p>'),
        numbers=numbers_html(results),
        histogram="" if tau is None else histogram_html(tau),
        bars=bars_html(drawn, 0),
        results={name: None if math.isnan(value) else value for name, value in results.items()},
        columns=drawn,
        n=results["n"],
    )
    return found, choices


def _refused(text):
    problem = f'<p class="problem" role="alert"><strong>This cannot be computed:</strong> {_safe(text)}</p>'
    return Answer(message=_block(problem), results={"error": text})


def measured(columns):
    """(statistic -> value, tau-b [N] or None without importance) of the columns; other columns than the metric's are left
    aside. Raises ValueError as the metric does.
    """
    import evaluate  # seconds, which the process that tries a file need not spend

    # by its file, as the folder has another name on a Space; in memory, as nothing of a user belongs on the server's disk
    metric = evaluate.load(str(FOLDER / "attention_faithfulness.py"), keep_in_memory=True)
    results = metric.compute(**{name: columns[name] for name in EXAMPLE if name in columns})
    if not {"attention", "importance"} <= columns.keys():
        return results, None
    siblings = type(metric).__module__.rpartition(".")[0]
    return results, importlib.import_module(f"{siblings}.rank_agreement").kendall_tau(
        columns["attention"], columns["importance"]
    )[0]


def _check(columns):
    """InputError where the columns hold nothing or too much, or tokens do not fit; the metric checks the rest."""
    given = [rows for name, rows in columns.items() if name in EXAMPLE]
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


# ---------------------------------------------------------------------------------------------- showing


def _cut(text):
    text = str(text)
    return text if len(text) <= MAX_TOKEN else text[:MAX_TOKEN] + "…"


def _safe(text):
    """Text for HTML: escaped, and without the halves of letters that UTF-8 cannot hold."""
    return html.escape(str(text).encode("utf-8", "replace").decode())


def _block(content):
    return f'<div class="faithfulness">{content}</div>'


def _minus(number):
    return number.replace("-", "\u2212")  # as wide as the plus


def _number(value):
    """A count as it is, a statistic to three decimals, NaN as "undefined"."""
    if math.isnan(value):
        return "undefined"
    return f"{value:,}" if isinstance(value, int) else _minus(f"{value:.3f}")


@functools.cache
def meanings():
    """Statistic -> (meaning, range, direction), from the card's table of output values."""
    found = {}
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            found |= {name: tuple(cell.replace("`", "") for cell in cells[1:]) for name in re.findall(r"`(\w+)`", cells[0])}
    return found


def numbers_html(results):
    """The main numbers as tiles, then all of them with range and meaning, grouped by the question they answer."""
    tiles = [_tile(*tile) for tile in _tiles(results)]
    rows = []
    for heading, beginnings in GROUPS.items():
        names = [name for name in results if name in beginnings or name.startswith(tuple(f"{one}_" for one in beginnings))]
        if names:
            rows.append(f'<tr><th colspan="4" scope="rowgroup">{heading}</th></tr>')
        for name in names:
            meaning, extent, direction = meanings()[re.sub(r"_class_\d+", "_class_0", name)]
            said = f"{meaning}; {direction}" if direction else meaning
            rows.append(
                f'<tr><td><code>{_safe(name)}</code></td><td class="number">{_number(results[name])}</td>'
                f'<td>{_safe(extent)}</td><td class="quiet">{_safe(said)}</td></tr>'
            )
    head = "<tr><th>Statistic</th><th>Value</th><th>Range</th><th>Meaning</th></tr>"
    return _block(
        f'<div class="tiles">{"".join(tiles)}</div>'
        f"<details><summary>All {len(results)} numbers</summary>"
        f'<div class="wide"><table>{head}{"".join(rows)}</table></div></details>'
    )


def _tile(label, value, note):
    return f'<div class="tile"><span>{label}</span><b>{_number(value)}</b><span class="quiet">{note}</span></div>'


def _tiles(results):
    yield "Instances", results["n"], ""
    if "kendall_tau" in results:
        low, high = results["kendall_tau_ci_low"], results["kendall_tau_ci_high"]
        interval = "undefined" if math.isnan(low) else f"{_number(low)} to {_number(high)}"
        yield "Kendall’s τ-b, mean", results["kendall_tau"], f"95 % interval: {interval}"
        over = _number(results["kendall_tau_over_ceiling"])
        yield "Highest τ-b that ties allow", results["tie_ceiling"], f"τ-b over it: {over}"
    if "normalised_entropy" in results:
        note = f"tokens with weight, mean: {results['support_size']:.1f}"
        yield "Entropy of attention over its maximum", results["normalised_entropy"], note
    if "tvd" in results:
        note = f"decisions changed: {_number(results['flip_fraction'])}"
        yield "Total variation distance", results["tvd"], note
    if "jsd" in results:
        yield "Jensen-Shannon divergence", results["jsd"], "nats; at most 0.693"


def histogram_html(tau):
    """How many instances have which tau-b, [N] with NaN where undefined; bins of 0.1, the mean as a dashed line."""
    defined = tau[~np.isnan(tau)]
    undefined = len(tau) - len(defined)
    title = f"Kendall’s τ-b between attention and importance, {len(defined):,} of {len(tau):,} instances"
    note = f"; undefined for {undefined:,}" if undefined else ""
    heading = f'<p class="title">{title}{note}</p>'
    if not len(defined):
        return _block(heading + '<p class="quiet">τ-b needs two tokens and scores that are not all equal.</p>')
    counts, _ = np.histogram(defined, BINS)
    left, right, top, bottom = 52, 748, 34, 200
    high = max(counts.max(), 1)

    def across(value):
        return left + (value + 1) / 2 * (right - left)

    def up(count):
        return bottom - count / high * (bottom - top)

    parts = []
    for count in sorted({0, high // 2, high} if high > 1 else {0, 1}):
        parts.append(
            f'<line x1="{left}" x2="{right}" y1="{up(count):.1f}" y2="{up(count):.1f}" stroke="currentColor" opacity=".18"/>'
            f'<text x="{left - 8}" y="{up(count) + 4:.1f}" text-anchor="end">{count:,}</text>'
        )
    for count, low, end in zip(counts, BINS[:-1], BINS[1:], strict=True):
        if count:
            parts.append(
                f'<rect x="{across(low) + 1:.1f}" y="{up(count):.1f}" width="{across(end) - across(low) - 2:.1f}" '
                f'height="{bottom - up(count):.1f}" fill="var(--attention)" rx="1">'
                f"<title>{count:,} between {low:.1f} and {end:.1f}</title></rect>"
            )
    for tick in (-1, -0.5, 0, 0.5, 1):
        parts.append(f'<text x="{across(tick):.1f}" y="{bottom + 20}" text-anchor="middle">{_minus(f"{tick:g}")}</text>')
    mean = float(defined.mean())
    anchor = "end" if mean > 0.7 else "start"
    parts.append(
        f'<line x1="{across(mean):.1f}" x2="{across(mean):.1f}" y1="{top - 8}" y2="{bottom}" stroke="var(--importance)" '
        f'stroke-width="2" stroke-dasharray="6 4"/><text x="{across(mean) + (-6 if anchor == "end" else 6):.1f}" '
        f'y="{top - 10}" text-anchor="{anchor}">mean {_number(mean)}</text>'
    )
    axis = f'<text x="{(left + right) / 2}" y="{bottom + 44}" text-anchor="middle">τ-b of an instance</text>'
    picture = f'<svg viewBox="0 0 760 252" role="img" aria-label="{title}, mean {_number(mean)}">'
    return _block(f"{heading}{picture}{''.join(parts)}{axis}</svg>")


def bars_html(columns, row):
    """One instance, a line per token: attention to the left, importance to the right, each to the scale of its own row."""
    if "attention" not in columns:
        return ""
    if not 0 <= row < len(columns["attention"]):
        return _block(f'<p class="quiet">There is no row {row}.</p>')
    rows = {name: columns[name][row] for name in ("attention", "importance") if name in columns}
    title = f'<p class="title">Row {row}{_tau_of(columns, row)}</p>'
    known = {name: values for name, values in rows.items() if values is not None}
    length = max((len(values) for values in known.values()), default=0)
    if not length:
        return _block(f'{title}<p class="quiet">This row has no tokens, or is undefined.</p>')
    shown = min(length, MAX_DRAWN)
    tokens = _shown_tokens(columns, row, shown)
    cells = {name: _bar_cells(name, known[name], shown) if name in known else ["<td></td>" * 3] * shown for name in rows}
    both = "importance" in rows
    lines = [
        f'<tr>{cells["attention"][place]}<td class="token"><bdi>{_safe(tokens[place])}</bdi></td>'
        f"{cells['importance'][place] if both else ''}</tr>"
        for place in range(shown)
    ]
    ends = '<th class="number">importance</th><th class="number rank">rank</th>' if both else ""
    head = f'<tr><th class="number rank">rank</th><th class="number">attention</th><th></th><th></th><th></th>{ends}</tr>'
    cut = f'<p class="quiet">The first {shown} of {length:,} tokens.</p>' if shown < length else ""
    return _block(f'{title}{cut}<div class="bars"><table>{head}{"".join(lines)}</table></div>')


def _tau_of(columns, row):
    return f": τ-b {_number(float(columns['tau'][row]))}" if "tau" in columns else ""


def _shown_tokens(columns, row, shown):
    if "tokens" not in columns:
        return list(range(shown))
    tokens = columns["tokens"][row]
    tokens = tokens.values[:shown].to_pylist() if isinstance(tokens, pa.ListScalar) else tokens[:shown]
    return [_cut(token) for token in tokens]


def _bar_cells(name, values, shown):
    """Cells of the first `shown` values: rank, number and a bar from zero, for importance the other way round.

    Ranks are what tau compares: 1 is the largest, "=" marks a tie.
    """
    values = np.asarray(values, dtype=np.float64)
    _, group, count = np.unique(-values, return_inverse=True, return_counts=True)
    ranks, tied = (np.cumsum(count) - count + 1)[group], (count > 1)[group]
    finite = np.where(np.isfinite(values), values, 0)
    low, high = min(finite.min(), 0), max(finite.max(), 0)
    extent = (high - low) or 1
    found = []
    for place in range(shown):
        size = finite[place]
        start = "auto" if name == "attention" else f"{(min(size, 0) - low) / extent:.2%}"
        style = f"background:var(--{name});margin-left:{start};width:{abs(size) / extent:.2%}"
        cells = [
            f'<td class="number quiet rank">{ranks[place]}{"=" if tied[place] else ""}</td>',
            f'<td class="number">{_minus(f"{values[place]:.3g}")}</td>',
            f'<td class="bar"><div class="{"some" if size else "none"}" style="{style}"></div></td>',
        ]
        found.append("".join(cells if name == "attention" else [cells[2], cells[1], cells[0]]))
    return found


# ---------------------------------------------------------------------------------------------- the page


def build():
    """The page, as gradio Blocks."""
    import gradio

    def outputs_of(found):
        """Values of `outputs`, below."""
        slider = gradio.Slider(maximum=max(found.n - 1, 1), value=0, visible=found.n > 1 and bool(found.bars))
        return found.message + found.numbers + found.histogram, slider, found.bars, found.results, found.columns

    def typed(attention, importance, probs="", counterfactual_attention="", counterfactual_probs=""):
        texts = (attention, importance, probs, counterfactual_attention, counterfactual_probs)

        def read():
            # None: a box that was never opened
            columns = columns_of_texts({name: text or "" for name, text in zip(EXAMPLE, texts, strict=True)})
            return columns, _choices(columns, list(columns))

        return outputs_of(answer(read)[0])

    def choice(name, choices, chosen):
        offered = choices[name] if choices else []
        value = chosen if chosen in offered else next(iter(offered), None)
        return gradio.Dropdown(choices=offered, value=value, visible=len(offered) > 1)

    def opened(data):
        return filed(data, None, None)

    def filed(data, importance=None, cell=None):
        if data is None:
            found, choices = _refused("no file was given: choose one first"), None
        else:
            found, choices = answer(lambda: columns_of_file(data, importance or None, cell or None))
        return *outputs_of(found), choice("importance", choices, importance), choice("cell", choices, cell)

    card = (FOLDER / "README.md").read_text(encoding="utf-8").split("---", 2)[2]
    with gradio.Blocks(title="Attention faithfulness", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gradio.Markdown(
            "# Attention faithfulness\nDoes attention rank the tokens of a text as an importance measure does? Type or "
            "load both, see Kendall’s τ-b and its limits, and look at the instances behind the mean."
        )
        columns = gradio.State({}, time_to_live=3600)
        with gradio.Row():
            with gradio.Column(scale=2, min_width=320):
                with gradio.Tab("Type"):
                    boxes = [
                        gradio.Textbox(
                            EXAMPLE[name],
                            label=name,
                            lines=4,
                            max_lines=12,
                            info="one row of numbers per instance, or a JSON list of lists",
                        )
                        for name in ("attention", "importance")
                    ]
                    with gradio.Accordion("Predictions and another attention", open=False):
                        boxes += [gradio.Textbox(label=name, lines=2, max_lines=8) for name in list(EXAMPLE)[2:]]
                    compute_typed = gradio.Button("Compute", variant="primary")
                with gradio.Tab("File"):
                    file = gradio.File(label="record (.parquet), JSON or CSV", type="binary", height=140)
                    # other values than those on offer are refused with the ones there are: a program may name one at once
                    importance = gradio.Dropdown(label="importance", allow_custom_value=True, visible=False)
                    cell = gradio.Dropdown(label="cell of the record", allow_custom_value=True, visible=False)
                    compute_file = gradio.Button("Compute", variant="primary")
                    gradio.Markdown(FILES)
            with gradio.Column(scale=3, min_width=420):
                report = gradio.HTML(label="report")
                row = gradio.Slider(0, 1, 0, step=1, label="row drawn", visible=False)
                bars = gradio.HTML(label="bars")
                with gradio.Accordion("Results as JSON", open=False):
                    results = gradio.JSON(label="results", show_label=False)
        with gradio.Accordion("Metric card", open=False):
            gradio.Markdown(card)
        outputs = [report, row, bars, results, columns]
        page.load(typed, boxes, outputs, api_name="example", api_visibility="private")
        compute_typed.click(typed, boxes, outputs, api_name="typed")
        file.upload(opened, file, [*outputs, importance, cell], api_visibility="private")
        compute_file.click(filed, [file, importance, cell], [*outputs, importance, cell], api_name="file")
        row.change(bars_html, [columns, row], bars, api_visibility="private", show_progress="hidden")
    return page


FILES = """
**Record**: the `record.parquet` of a run, or any Parquet file with the columns `attention` and `importance` (or
`importance_<measure>`), one list of numbers per instance.

**JSON**: an object of columns, or a list of objects with one instance each.
```json
{"attention": [[0.3, 0.7]],
 "importance": [[1, 2]],
 "tokens": [["not", "bad"]]}
```
**CSV**: an instance a line,
```
tokens,attention,importance
not bad,0.3 0.7,1 2
```
or, with a column `instance`, a token a line.
```
instance,token,attention,importance
a,not,0.3,1
a,bad,0.7,2
```
"""


def main():
    if sys.argv[1:2] == [TRY_PARQUET]:
        _try_parquet(*json.loads(sys.argv[2]))
        return
    build().launch(css=CSS, max_file_size=MAX_FILE, state_session_capacity=50, ssr_mode=False, run_history=False)


if __name__ == "__main__":
    main()
