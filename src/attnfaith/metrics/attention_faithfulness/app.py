"""The metric's Space: columns as JSON in, results out. `python app.py` serves it locally."""

import json
import math
from pathlib import Path

import evaluate


FOLDER = Path(__file__).parent
# column -> an example row per instance, shown when the page opens
EXAMPLE = {
    "attention": [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0]],
    "importance": [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3]],
    "probs": [[0.9, 0.1], [0.2, 0.8]],
    "counterfactual_attention": [[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]],
    "counterfactual_probs": [[0.8, 0.2], [0.6, 0.4]],
}


def results_of(*texts):
    """Statistic -> value, from one JSON text per column of EXAMPLE; "" leaves a column out. NaN reads "undefined"."""
    columns = {name: json.loads(text) for name, text in zip(EXAMPLE, texts, strict=True) if text.strip()}
    results = evaluate.load(str(FOLDER / "attention_faithfulness.py")).compute(**columns)
    return {name: "undefined" if math.isnan(value) else value for name, value in results.items()}


def main():
    import gradio

    def answer(*texts):
        try:
            return results_of(*texts)
        except ValueError as error:
            raise gradio.Error(str(error)) from error

    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    gradio.Interface(
        fn=answer,
        inputs=[gradio.Textbox(label=name, value=json.dumps(rows)) for name, rows in EXAMPLE.items()],
        outputs=gradio.JSON(label="results"),
        title="Metric: attention_faithfulness",
        description="One JSON list per column, one row per instance. Leave a column empty to do without it.",
        article=card.split("---", 2)[2],
        flagging_mode="never",
    ).launch()


if __name__ == "__main__":
    main()
