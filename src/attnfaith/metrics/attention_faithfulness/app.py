"""The metric's Space: columns in, typed as JSON or as a table; the results, and the numbers of each instance, out.

`python app.py` serves it. Nothing is unpickled or evaluated.
"""

import html
import json
from pathlib import Path

import evaluate
import pandas as pd


FOLDER = Path(__file__).parent
COLUMNS = ("attention", "importance", "probs", "counterfactual_attention", "counterfactual_probs")
MOST_VALUES = 5_000_000  # in all columns together: half a minute of work
EXAMPLE = {"attention": "[[0.1, 0.2, 0.7], [0.4, 0.1, 0.1, 0.4]]", "importance": "[[1, 3, 2], [5, 1, 2, 4]]"}
READERS = {
    ".parquet": pd.read_parquet,
    ".json": lambda path: pd.read_json(path, precise_float=True),  # else .3 is no longer .3, and ties go
    ".jsonl": lambda path: pd.read_json(path, precise_float=True, lines=True),
    ".csv": lambda path: pd.read_csv(path, keep_default_na=False, dtype=str),  # a cell holds a JSON list
}


def columns_of_table(path, importance=""):
    """Return the columns of a record, or of another table with a list of numbers per cell; importance: which, else the
    first.
    """
    if path is None or Path(path).suffix.lower() not in READERS:
        raise ValueError(f"choose a table, a file that ends in {', '.join(READERS)}")
    table = READERS[Path(path).suffix.lower()](path)
    measures = [name for name in table if str(name).startswith("importance")]
    if importance and importance not in measures:
        raise ValueError(f"the table has no column {importance!r} of importance; choose one of {', '.join(measures)}")
    names = {name: name for name in COLUMNS if name in table}
    if measures:
        names["importance"] = importance or measures[0]
    return {
        name: [json.loads(cell) if isinstance(cell, str) else cell for cell in table[column]]
        for name, column in names.items()
    }


def columns_of_texts(*texts):
    """Return the columns that were typed, each a JSON list of lists, in the order of COLUMNS."""
    return {name: json.loads(text) for name, text in zip(COLUMNS, texts, strict=True) if (text or "").strip()}


def answer(columns, zeros_are_tokens=False):
    """The results, one row per statistic, and the numbers of each instance, one row per instance, as data frames."""
    rows = [row for column in columns.values() for row in column if row is not None]
    if sum(len(row) for row in rows) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values; give fewer instances")
    # by its file, as the folder has another name on a Space; in memory, as nothing of a user belongs on the server's disk
    mask = "none" if zeros_are_tokens else None
    metric = evaluate.load(str(FOLDER / "attention_faithfulness.py"), keep_in_memory=True, mask=mask)
    results = metric.compute(**columns, per_text=True)
    by_text = pd.DataFrame(results.pop("per_text")).rename_axis("instance").reset_index()
    return pd.DataFrame({"statistic": list(results), "value": list(results.values())}), by_text


def build():
    """The page, as gradio Blocks."""
    import gradio

    def shown(read, zeros_are_tokens, *inputs):
        try:
            results, by_text = answer(read(*inputs), zeros_are_tokens)
        except (ValueError, TypeError, OSError) as error:
            raise gradio.Error(html.escape(str(error), quote=False)) from error
        return results, by_text, by_text.dropna(subset="kendall_tau") if "kendall_tau" in by_text else None

    card = (FOLDER / "README.md").read_text(encoding="utf-8").split("---", 2)[2]
    with gradio.Blocks(title="Attention faithfulness", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gradio.Markdown("# Attention faithfulness\nDoes attention rank the tokens of a text as an importance measure does?")
        with gradio.Row():
            with gradio.Column(scale=2, min_width=320):
                zeros = gradio.Checkbox(label="zeros are tokens, not padding (sparse attention)")
                with gradio.Tab("Type"):
                    texts = [gradio.Textbox(EXAMPLE.get(name), label=f"{name} (JSON list of lists)") for name in COLUMNS]
                    typed = gradio.Button("Compute", variant="primary")
                with gradio.Tab("Table"):
                    file = gradio.File(label="record.parquet, JSON, JSON lines or CSV", type="filepath", height=140)
                    importance = gradio.Textbox(label="column of importance (by default the first)")
                    uploaded = gradio.Button("Compute", variant="primary")
                    gradio.Markdown("One instance a row, a list of numbers a cell: `[0.3, 0.7]`, in CSV as JSON in quotes.")
            with gradio.Column(scale=3, min_width=420):
                results = gradio.Dataframe(label="results", wrap=True)
                plot = gradio.BarPlot(x="kendall_tau", y="instance", x_bin=0.1, y_aggregate="count", x_lim=[-1, 1])
                by_text = gradio.Dataframe(label="each instance")
        with gradio.Accordion("Metric card", open=False):
            gradio.Markdown(card)
        outputs = [results, by_text, plot]
        typed.click(lambda *inputs: shown(columns_of_texts, *inputs), [zeros, *texts], outputs, api_name="typed")
        uploaded.click(
            lambda *inputs: shown(columns_of_table, *inputs), [zeros, file, importance], outputs, api_name="table"
        )
    return page


if __name__ == "__main__":
    build().launch(max_file_size="100mb", ssr_mode=False)
