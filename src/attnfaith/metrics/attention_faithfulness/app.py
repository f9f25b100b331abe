"""The metric's Space: columns typed as JSON in; the results, and the numbers of each instance, out.

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


def answer(zeros_are_tokens, *texts):
    """Return the results, one row per statistic, and the numbers of each instance, one row per instance, as data frames.

    texts: the columns that were typed, each a JSON list of lists, in the order of COLUMNS.
    """
    columns = {name: json.loads(text) for name, text in zip(COLUMNS, texts, strict=True) if (text or "").strip()}
    # by its file, as the folder has another name on a Space; in memory, as nothing of a user belongs on the server's disk
    mask = "none" if zeros_are_tokens else None
    metric = evaluate.load(str(FOLDER / "attention_faithfulness.py"), keep_in_memory=True, mask=mask)
    results = metric.compute(**columns, per_text=True)
    by_text = pd.DataFrame(results.pop("per_text")).rename_axis("instance").reset_index()
    return pd.DataFrame({"statistic": list(results), "value": list(results.values())}), by_text


def build():
    """Return the page."""
    import gradio

    def compute(*values):
        try:
            return answer(*values)
        except (ValueError, TypeError) as error:
            raise gradio.Error(html.escape(str(error), quote=False)) from error

    zeros = gradio.Checkbox(label="zeros are tokens, not padding (sparse attention)")
    texts = [gradio.Textbox(EXAMPLE.get(name), label=f"{name} (JSON list of lists)") for name in COLUMNS]
    outputs = [gradio.Dataframe(label="results", wrap=True), gradio.Dataframe(label="each instance")]
    return gradio.Interface(compute, [zeros, *texts], outputs, title="Attention faithfulness", flagging_mode="never")


if __name__ == "__main__":
    build().launch(ssr_mode=False)
