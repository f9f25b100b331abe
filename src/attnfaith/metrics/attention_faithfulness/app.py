"""The metric's Space: attention and importance in, typed or as a file; the numbers, how tau is distributed, each instance.

`python app.py` serves it. pandas reads the files, and gradio shows tables and plots. Nothing is unpickled or evaluated.
"""

import html
import json
from pathlib import Path

import evaluate
import numpy as np
import pandas as pd


FOLDER = Path(__file__).parent
COLUMNS = ("attention", "importance", "probs", "counterfactual_attention", "counterfactual_probs")  # those of the metric
MOST_VALUES = 5_000_000  # in all columns together: half a minute of work
EXAMPLE = {"attention": "0.1 0.2 0.7\n0 0 1\n0.4 0.1 0.1 0.4", "importance": "1 3 2\n0.1 0.2 0.3\n5 1 2 4"}


def rows_of(text):
    """Rows of numbers from a text: a JSON list of lists, or a line of numbers for each instance."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, list) and all(isinstance(row, list | None) for row in value):
        return value
    return [[float(word) for word in line.replace(",", " ").split()] for line in text.splitlines()]


def columns_of_file(path, importance=None):
    """(columns of the metric and `tokens`, names of the importance columns) of a record or another table of instances.

    A table is Parquet, JSON, JSON lines or CSV by the ending of its name; in CSV a cell holds a row of numbers, as text.
    importance: which of the columns `importance` and `importance_*` to read; the first where None.
    """
    readers = {
        ".parquet": pd.read_parquet,
        ".json": lambda path: pd.read_json(path, precise_float=True),  # else .3 is no longer .3, and ties go
        ".jsonl": lambda path: pd.read_json(path, precise_float=True, lines=True),
        ".csv": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False),
    }
    ending = Path(path).suffix.lower()
    if ending not in readers:
        raise ValueError(f"a file ends in {', '.join(readers)}; this one ends in {ending!r}")
    table = readers[ending](path)
    measures = [name for name in table if str(name).startswith("importance")]
    names = {name: name for name in (*COLUMNS, "tokens") if name in table}
    if measures:
        names["importance"] = importance if importance in measures else measures[0]
    if "attention" not in names and "probs" not in names:
        raise ValueError(f"the file has the columns {', '.join(map(str, table))}; give attention or probs")
    columns = {name: [_row(cell, name) for cell in table[held]] for name, held in names.items()}
    return columns, measures


def _row(cell, name):
    if isinstance(cell, str):
        return cell.split() if name == "tokens" else (rows_of(cell) or [[]])[0]
    if cell is None or np.isscalar(cell):
        return None if pd.isna(cell) else [cell]
    return np.asarray(cell).tolist()


def answer(columns):
    """(results of the metric, tau-b of each instance or None without importance). Raises ValueError as the metric does."""
    if sum(len(row) for rows in columns.values() for row in rows if row is not None) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values; give fewer instances")
    # by its file, as the folder has another name on a Space; in memory, as nothing of a user belongs on the server's disk
    metric = evaluate.load(str(FOLDER / "attention_faithfulness.py"), keep_in_memory=True)
    results = metric.compute(**{name: columns[name] for name in COLUMNS if name in columns}, per_text=True)
    return results, results.pop("per_text").get("kendall_tau")


def build():
    """The page, as gradio Blocks."""
    import gradio

    def shown(columns):
        try:
            results, tau = answer(columns)
        except (ValueError, TypeError) as error:
            raise gradio.Error(html.escape(str(error), quote=False)) from error
        numbers = pd.DataFrame({"statistic": list(results), "value": list(results.values())})
        tau = np.array(tau or [], float)
        counts, edges = np.histogram(tau[~np.isnan(tau)], np.linspace(-1, 1, 21))
        plot = pd.DataFrame({"tau-b of an instance": (edges[:-1] + edges[1:]) / 2, "instances": counts})
        return numbers, plot, columns, gradio.Slider(maximum=max(results["n"] - 1, 1), value=0), instance(columns, 0)

    def instance(columns, row):
        named = {name: columns.get(name, {int(row): None})[int(row)] for name in ("tokens", "attention", "importance")}
        return pd.DataFrame({name: pd.Series(values) for name, values in named.items() if values is not None})

    def typed(*texts):
        try:
            return shown({name: rows_of(text) for name, text in zip(COLUMNS, texts, strict=True) if (text or "").strip()})
        except ValueError as error:
            raise gradio.Error(html.escape(str(error), quote=False)) from error

    def filed(path, importance=None):
        if path is None:
            raise gradio.Error("no file was given: choose one first")
        try:
            columns, measures = columns_of_file(path, importance)
        except (ValueError, OSError, TypeError) as error:
            raise gradio.Error(html.escape(str(error), quote=False)) from error
        chosen = importance if importance in measures else next(iter(measures), None)
        return *shown(columns), gradio.Dropdown(choices=measures, value=chosen, visible=len(measures) > 1)

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
                    info = "a line of numbers for each instance, or a JSON list of lists"
                    boxes = [gradio.Textbox(EXAMPLE[name], label=name, lines=4, info=info) for name in COLUMNS[:2]]
                    with gradio.Accordion("Predictions and another attention", open=False):
                        boxes += [gradio.Textbox(label=name, lines=2) for name in COLUMNS[2:]]
                    compute_typed = gradio.Button("Compute", variant="primary")
                with gradio.Tab("File"):
                    file = gradio.File(label="record (.parquet), JSON, JSON lines or CSV", type="filepath", height=140)
                    importance = gradio.Dropdown(label="importance", allow_custom_value=True, visible=False)
                    compute_file = gradio.Button("Compute", variant="primary")
                    gradio.Markdown((FOLDER / "files.md").read_text(encoding="utf-8"))
            with gradio.Column(scale=3, min_width=420):
                numbers = gradio.Dataframe(label="results", wrap=True)
                plot = gradio.BarPlot(x="tau-b of an instance", y="instances", x_lim=[-1, 1])
                row = gradio.Slider(0, 1, 0, step=1, label="instance")
                tokens = gradio.Dataframe(label="tokens of the instance")
        with gradio.Accordion("Metric card", open=False):
            gradio.Markdown(card)
        outputs = [numbers, plot, columns, row, tokens]
        page.load(typed, boxes, outputs, api_name="example", api_visibility="private")
        compute_typed.click(typed, boxes, outputs, api_name="typed")
        file.upload(filed, file, [*outputs, importance], api_name="upload", api_visibility="private")
        compute_file.click(filed, [file, importance], [*outputs, importance], api_name="file")
        row.change(instance, [columns, row], tokens, api_visibility="private", show_progress="hidden")
    return page


if __name__ == "__main__":
    build().launch(max_file_size="100mb", state_session_capacity=50, ssr_mode=False, run_history=False)
