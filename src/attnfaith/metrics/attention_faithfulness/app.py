"""The metric's Space: columns in, typed as JSON or as a table; the results, and the numbers of each instance, out.

`python app.py` serves it.
"""

import html
import json
from pathlib import Path

import evaluate
import pandas as pd


FOLDER = Path(__file__).parent
COLUMNS = ("attention", "importance", "probs", "counterfactual_attention", "counterfactual_probs")
EXAMPLE = {"attention": "[[0.1, 0.2, 0.7], [0.4, 0.1, 0.1, 0.4]]", "importance": "[[1, 3, 2], [5, 1, 2, 4]]"}
READERS = {
    ".parquet": pd.read_parquet,
    ".json": lambda path: pd.read_json(path, precise_float=True),  # else .3 is no longer .3, and ties go
    ".jsonl": lambda path: pd.read_json(path, precise_float=True, lines=True),
    ".csv": lambda path: pd.read_csv(path, keep_default_na=False, dtype=str),  # a cell holds a JSON list
}


def columns_of_table(path, importance=""):
    """Return the columns of a record, or of another table with a list of numbers per cell. importance: the name of its
    column, by default the first.
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
    """Return the results, one row per statistic, and the numbers of each instance, one row per instance, as data frames."""
    # by its file, as the folder has another name on a Space; in memory, as nothing of a user belongs on the server's disk
    mask = "none" if zeros_are_tokens else None
    metric = evaluate.load(str(FOLDER / "attention_faithfulness.py"), keep_in_memory=True, mask=mask)
    results = metric.compute(**columns, per_text=True)
    by_text = pd.DataFrame(results.pop("per_text")).rename_axis("instance").reset_index()
    return pd.DataFrame({"statistic": list(results), "value": list(results.values())}), by_text


def build():
    """Return the page: a tab to type columns in, and one for a table."""
    import gradio

    def interface(read, inputs, name):
        def compute(zeros_are_tokens, *values):
            try:
                return answer(read(*values), zeros_are_tokens)
            except (ValueError, TypeError, OSError) as error:
                raise gradio.Error(html.escape(str(error), quote=False)) from error

        zeros = gradio.Checkbox(label="zeros are tokens, not padding (sparse attention)")
        outputs = [gradio.Dataframe(label="results", wrap=True), gradio.Dataframe(label="each instance")]
        return gradio.Interface(compute, [zeros, *inputs], outputs, api_name=name, flagging_mode="never")

    texts = [gradio.Textbox(EXAMPLE.get(name), label=f"{name} (JSON list of lists)") for name in COLUMNS]
    file = gradio.File(label="record.parquet, JSON, JSON lines or CSV: an instance a row, a JSON list a cell")
    importance = gradio.Textbox(label="column of importance (by default the first)")
    pages = [interface(columns_of_texts, texts, "typed"), interface(columns_of_table, [file, importance], "table")]
    return gradio.TabbedInterface(pages, ["Type", "Table"], title="Attention faithfulness")


if __name__ == "__main__":
    build().launch(max_file_size="20mb", ssr_mode=False)
