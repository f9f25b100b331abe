"""What a record says in short: its report, and the metric of all that it holds."""

import os
from pathlib import Path

from attnfaith import recipes, record
from attnfaith.escaping import printable
from attnfaith.measurement.registry import classes
from attnfaith.metrics.attention_faithfulness.attention_faithfulness import AttentionFaithfulness
from attnfaith.recipes import Recipe
from attnfaith.reporting import run_facts, write_report
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.sections.performance import accuracy_in_words
from attnfaith.reporting.verdicts import verdict


def report(path: str | os.PathLike, output: str | os.PathLike, recipe: Recipe | None = None) -> Path:
    """Tables, figures and page of a record; returns the page's path."""
    table = record.load(path)
    section = recipe.report if recipe else recipes.Report()
    facts = run_facts(table, recipe.note if recipe else None)
    return write_report(table, output, title=section.title, facts=facts, n_examples=section.examples)


def faithfulness(path: str | os.PathLike) -> dict[str, dict]:
    """The metric `attention_faithfulness` of what a record holds, by the name of the measure or experiment.

    Attention against each measure of input importance; the model's own attention and prediction against those of each
    experiment, where every draw is one row and a text without draws is one undefined row. Undefined is None, so that the
    result is JSON.
    """
    table = record.load(path)
    metric = AttentionFaithfulness(keep_in_memory=True, mask="none")  # a record holds no padding
    own = {name: record.rows(table, name) for name in ("attention", "probs")}
    scores = {}
    for name in table.column_names:
        if name.startswith("importance_") and not name.endswith("_hidden"):
            scores[name.removeprefix("importance_")] = metric.compute(importance=record.rows(table, name), **own)
    for measure in sorted(classes(), key=lambda measure: measure.name):
        name, arguments = measure.name, {}
        for argument, column in measure.metric.items():
            if column in table.column_names:
                draws = record.rows(table, column)
                if len(record.axes(table.schema.field(column))) == 1:  # one counterfactual a text, without an axis of draws
                    draws = [row[None] for row in draws]
                original = argument.removeprefix("counterfactual_")
                arguments[argument] = [row for rows in draws for row in (rows if len(rows) else [None])]
                arguments[original] = [
                    row for row, rows in zip(own[original], draws, strict=True) for _ in range(len(rows) or 1)
                ]
        if arguments:
            scores[name] = metric.compute(**arguments)
    return {
        name: {key: None if value != value else value for key, value in values.items()} for name, values in scores.items()
    }


def print_results(path: str | os.PathLike) -> None:
    """Two lines for each cell of a record of texts: how often its model is right, and the verdict on its attention."""
    for cell in split_cells(record.load(path)):
        if accuracy := accuracy_in_words(cell):
            print(printable(f"{cell.heading['dataset']} {cell.heading['split']}: {accuracy}"))
        found = verdict([cell.of_inputs])
        print(printable(f"attention: {found.headline}. {found.reason}"))
