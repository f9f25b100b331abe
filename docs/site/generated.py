"""Pages that are made from the code: the record's columns, the recipe's keys, producers, data sets, help, docstrings."""

import contextlib
import inspect
import io
import json
import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from pydantic import TypeAdapter

import attnfaith
from attnfaith import catalogue, cli, measurement, record
from attnfaith.data.registry import DATASETS
from attnfaith.recipes import Recipe
from attnfaith.subjects import CAPABILITIES


READING = Path(__file__).with_name("record.md")  # how a record is read, written by hand


def line(*cells: object) -> str:
    """A row of a Markdown table."""
    written = (str(cell).replace("|", "\\|").replace("][", "]\\[").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(written) + " |"


def grid(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heads = list(heads)
    return "\n".join([line(*heads), "|" + "---|" * len(heads), *(line(*row) for row in rows)])


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def limits(column: record.Column) -> str:
    if column.distribution:
        return "0 to 1, sums to 1"
    if column.range is None:
        return ""
    low, high = column.range
    return " ".join((f"from {low:g}" if low is not None else "", f"to {high:g}" if high is not None else "")).strip()


def columns(described: dict[str, record.Column]) -> str:
    """Columns of a record, all that each says of itself."""
    rows = (
        (
            code(name),
            column.doc,
            " ".join(
                ["".join(f"[{axis}]" for axis in column.axes), column.dtype, "or null" if column.nullable else ""]
            ).strip(),
            ", ".join(filter(None, (limits(column), column.unit, "signed" if column.signed else ""))),
            column.undefined,
        )
        for name, column in described.items()
    )
    return grid(("column", "meaning", "axes and type", "range, unit, sign", "undefined"), rows)


def modules() -> dict[str, object]:
    """Every measure of importance and experiment, by name."""
    return {name: import_module(path) for name, path in measurement.producers().items()}


def record_page() -> str:
    common = {name: column for name, column in record.COLUMNS.items() if name not in record.IDENTITY_COLUMNS}
    parts = [
        READING.read_text(encoding="utf-8").rstrip(),
        "## The rules",
        f"This is version {record.VERSION} of the format, kept in the file's metadata. Axes: T tokens (of hierarchical "
        "models sentences, or words), C classes, K draws or attentions, M measures, S shares, W words of a sentence, Q "
        "words of a second text; of sentence pairs T source words, G target words, L layers of the decoder, A heads, R two "
        "rows of a target word: 0 the one that predicts it, 1 the one in which it is the input.",
        "In each row all [T] columns have one length, and all [C] columns another. A column with a range that sums to 1 is "
        "a distribution along its last axis. Files that break a rule are refused with column and row.",
        "## Columns of every record of texts",
        columns(common),
        "## Columns of every record of sentence pairs",
        columns({name: one for name, one in record.SEQUENCE_COLUMNS.items() if name not in record.IDENTITY_COLUMNS}),
        "## Identity: which model, on which texts",
        columns(record.IDENTITY_COLUMNS),
        "## Columns that some data or models have",
        columns(record.OPTIONAL_COLUMNS),
        "## Columns of measures and experiments",
        "Each producer adds its own.",
    ]
    for name, module in modules().items():
        parts += [f"### {name}", columns(module.COLUMNS)]
    return "\n\n".join(parts)


def producers_page() -> str:
    parts = [
        "# Measures and experiments",
        "All that `--measure.producers` may name. *Needs* is what it asks of a model; a model that lacks it is refused with "
        "a line that says so.",
        "## What a model may be able to do",
        grid(("capability", "what it means"), sorted(CAPABILITIES.items())),
    ]
    for title, package in (("Measures of importance", "importance"), ("Experiments", "experiments")):
        parts += [f"## {title}"]
        for name, one in modules().items():
            if one.__name__.split(".")[1] == package:
                parts += [f"### {name}", inspect.getdoc(one).split("\n\n")[0], facts(name, one)]
    return "\n\n".join(parts)


def facts(name: str, module) -> str:
    """What a producer needs, takes and adds to a record."""
    extra = getattr(module, "COLUMN_NEEDS", {})
    added = [
        f"{code(column)}{' (needs ' + ', '.join(sorted(extra[column])) + ')' if column in extra else ''}"
        for column in module.COLUMNS
    ]
    lines = [
        f"* needs: {', '.join(sorted(module.NEEDS)) or 'nothing'}",
        f"* costs: {catalogue.COSTS[module.COST]}",
        f"* options: {', '.join(code(option) for option in options(module)) or 'none'}",
        f"* adds: {', '.join(added)} ([what they hold](record.md#{name}))",
    ]
    return "\n".join(lines)


def options(module) -> Iterator[str]:
    """Keyword arguments of a producer with their defaults, as a recipe's measure.options takes them."""
    for name, parameter in inspect.signature(module.measure).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and name != "seed":
            yield f"{name}={parameter.default}"


def kind(schema: dict) -> str:
    """The type of a key of a recipe in words, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}"
    if schema.get("type") == "object":
        return "mapping"
    bounds = {"minimum": "from", "maximum": "to", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    said = [f"{word} {schema[bound]:g}" for bound, word in bounds.items() if bound in schema]
    return ", ".join([words.get(schema.get("type"), "any value"), *said])


def recipe_page() -> str:
    schema = TypeAdapter(Recipe).json_schema()
    sections = {
        name: schema["$defs"][one["$ref"].split("/")[-1]] for name, one in schema["properties"].items() if "$ref" in one
    }

    def keys(given: dict) -> str:
        rows = (
            (
                code(name),
                kind(one),
                "required"
                if name in given.get("required", ())
                else code(json.dumps(one["default"]))
                if "default" in one
                else "",
                one.get("description", ""),
            )
            for name, one in given["properties"].items()
            if "$ref" not in one
        )
        return grid(("key", "value", "default", "meaning"), rows)

    parts = [
        "# The recipe",
        "One YAML file. Keys of a section stand below its name; on a command line `--section.key value`, or `--key value` "
        "where only one section has that key. Where no default stands here, it is an empty list or mapping.",
        "## At the top",
        keys(schema),
    ]
    for name, one in sections.items():
        parts += [f"## {name}", one.get("description", "").split("\n\n")[0], keys(one)]
    return "\n\n".join(parts)


def help_of(arguments: list[str]) -> str:
    """What a command writes when it is asked for help."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        cli.main([*arguments, "--help"])
    return shown.getvalue().rstrip()


def command_line_page() -> str:
    parts = ["# The command line", f"```text\n{help_of([])}\n```"]
    for name in cli.COMMANDS:
        parts += [f"## {name}", f"```text\n{help_of([name])}\n```"]
    return "\n\n".join(parts)


def data_sets_page() -> str:
    rows = (
        (
            code(name),
            "text and query" if entry.pair else "text",
            ", ".join(map(str, entry.label_names)) or "the answers",
            code(entry.hub_id or "") if not entry.built_in else "generated",
            entry.licence,
            entry.citation,
            entry.notes,
        )
        for name, entry in DATASETS.items()
    )
    heads = ("name", "what is read", "classes", "on the Hub", "licence", "from", "notes")
    return "\n\n".join(["# Data sets", "All that `--data.name` may name.", grid(heads, rows)])


def interface() -> dict[str, str]:
    """One page for each part of the package, with the docstrings of its public modules."""
    pages = {}
    for part in pkgutil.iter_modules(attnfaith.__path__, "attnfaith."):
        name = part.name.split(".")[-1]
        if name.startswith("_"):
            continue
        inside = [part.name]
        if part.ispkg:
            package = import_module(part.name)
            walked = (one.name for one in pkgutil.walk_packages(package.__path__, f"{part.name}."))
            inside += [one for one in walked if not any(word.startswith("_") for word in one.split("."))]
        pages[f"reference/api/{name}.md"] = "\n\n".join([f"# attnfaith.{name}", *(f"::: {one}" for one in inside)])
    return pages


def pages() -> dict[str, str]:
    """Every generated page: its place below docs/, and its Markdown."""
    return {
        "reference/record.md": record_page(),
        "reference/recipe.md": recipe_page(),
        "reference/producers.md": producers_page(),
        "reference/data_sets.md": data_sets_page(),
        "reference/command_line.md": command_line_page(),
        **interface(),
    }
