"""The metric's Space: attention and importance in, typed or as a file; the numbers and a picture out.

`python app.py` serves it. Nothing that comes in is trusted: a file is bytes, never a path, and told apart by its content;
sizes are checked before the work; nothing is unpickled or evaluated; all text that goes back to the page is escaped.

Shapes: N instances, T tokens of one instance, C classes.
"""

import logging
import math
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path


FOLDER = Path(__file__).parent
if not __package__:  # a script, as a Space runs it: the folder, whatever it is called, becomes the package of its siblings
    __package__ = "space"
    sys.modules[__package__] = types.ModuleType(__package__)
    sys.modules[__package__].__path__ = [str(FOLDER)]

from .drawing import bars_html, block, histogram_html, numbers_html, safe  # noqa: E402
from .rank_agreement import kendall_tau  # noqa: E402
from .reading import COLUMNS, MAX_FILE, check, choices_of, columns_of_file, columns_of_texts, listed  # noqa: E402


# column -> rows shown when the page opens: a dense attention, one on a single token, an even one
EXAMPLE = dict.fromkeys(COLUMNS, "") | {
    "attention": "0.1 0.2 0.7\n0 0 1\n0.4 0.1 0.1 0.4",
    "importance": "1 3 2\n0.1 0.2 0.3\n5 1 2 4",
}


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


# ---------------------------------------------------------------------------------------------- computing


def answer(read):
    """(Answer, choices) to what `read()` gives as (columns, choices). What is wrong with it becomes the message; choices is
    then what was read of them, or None.
    """
    choices = None
    try:
        columns, choices = read()
        check(columns)
        results, tau = measured(columns)
    except ValueError as error:
        return _refused(str(error)), choices
    except Exception:
        logging.exception("an input could not be computed")
        return _refused("the page failed on this input, and its log says where; try fewer instances"), choices
    aside = choices["aside"]
    note = f"Used: {listed(choices['used'])}."
    if aside:
        note += f" Not used: {listed(aside) if len(aside) <= 4 else f'{len(aside)} other columns'}."
    drawn = columns | ({} if tau is None else {"tau": tau})
    shown = Answer(
        message=block(f'<p class="quiet">{safe(note)}</p>'),
        numbers=numbers_html(results),
        histogram="" if tau is None else histogram_html(tau),
        bars=bars_html(drawn, 0),
        results={name: None if math.isnan(value) else value for name, value in results.items()},
        columns=drawn,
        n=results["n"],
    )
    return shown, choices


def _refused(text):
    problem = f'<p class="problem" role="alert"><strong>This cannot be computed:</strong> {safe(text)}</p>'
    return Answer(message=block(problem), results={"error": text})


def measured(columns):
    """(statistic -> value, tau-b [N] or None without importance) of the columns; other columns than the metric's are left
    aside. Raises ValueError as the metric does.
    """
    import evaluate  # takes seconds; the page is there before

    # by its file, as the folder has another name on a Space; in memory, as nothing of a user belongs on the server's disk
    metric = evaluate.load(str(FOLDER / "attention_faithfulness.py"), keep_in_memory=True)
    results = metric.compute(**{name: columns[name] for name in COLUMNS if name in columns})
    if not {"attention", "importance"} <= columns.keys():
        return results, None
    return results, kendall_tau(columns["attention"], columns["importance"])[0]


# ---------------------------------------------------------------------------------------------- the page


def build():
    """The page, as gradio Blocks."""
    import gradio

    def outputs_of(reply):
        """Values of `outputs`, below."""
        slider = gradio.Slider(maximum=max(reply.n - 1, 1), value=0, visible=reply.n > 1 and bool(reply.bars))
        return reply.message + reply.numbers + reply.histogram, slider, reply.bars, reply.results, reply.columns

    def typed(attention, importance, probs="", counterfactual_attention="", counterfactual_probs=""):
        texts = (attention, importance, probs, counterfactual_attention, counterfactual_probs)

        def read():
            # None: a box that was never opened
            columns = columns_of_texts({name: text or "" for name, text in zip(COLUMNS, texts, strict=True)})
            return columns, choices_of(columns, list(columns))

        return outputs_of(answer(read)[0])

    def choice(name, choices, chosen):
        offered = choices[name] if choices else []
        value = chosen if chosen in offered else next(iter(offered), None)
        return gradio.Dropdown(choices=offered, value=value, visible=len(offered) > 1)

    def opened(data):
        return filed(data, None, None)

    def filed(data, importance=None, cell=None):
        if data is None:
            reply, choices = _refused("no file was given: choose one first"), None
        else:
            reply, choices = answer(lambda: columns_of_file(data, importance or None, cell or None))
        return *outputs_of(reply), choice("importance", choices, importance), choice("cell", choices, cell)

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
                        boxes += [gradio.Textbox(label=name, lines=2, max_lines=8) for name in COLUMNS[2:]]
                    compute_typed = gradio.Button("Compute", variant="primary")
                with gradio.Tab("File"):
                    file = gradio.File(label="record (.parquet), JSON or CSV", type="binary", height=140)
                    # other values than those on offer are refused with the ones there are: a program may name one at once
                    importance = gradio.Dropdown(label="importance", allow_custom_value=True, visible=False)
                    cell = gradio.Dropdown(label="cell of the record", allow_custom_value=True, visible=False)
                    compute_file = gradio.Button("Compute", variant="primary")
                    gradio.Markdown((FOLDER / "files.md").read_text(encoding="utf-8"))
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


if __name__ == "__main__":
    css = (FOLDER / "page.css").read_text(encoding="utf-8")
    build().launch(css=css, max_file_size=MAX_FILE, state_session_capacity=50, ssr_mode=False, run_history=False)
