"""The Space's page, as gradio Blocks over a `Desk`."""

import logging
import secrets
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path

from attnfaith.errors import AttnfaithError
from attnfaith.files import TemporaryFolder
from attnfaith.space.answers import MOST_LETTERS, MOST_TOKENS, Desk, page_of
from attnfaith.space.drawing import CSS, framed, problem, table
from attnfaith.space.errors import GradioError


EXAMPLE = "a moving and brilliant portrait of a family that never feels long"
HEAD = (
    "# Does attention explain this prediction?\nOne sentence, one model: every measure beside attention, how far attention "
    "is from being determined, and what the model says when words or weights are changed. A single text shows how things "
    "work; whether attention explains a model takes many: `attnfaith measure`."
)
MOST_FILES = 50


def require_gradio() -> None:
    """Raises GradioError, an ImportError, naming the extra to install, where gradio is missing."""
    try:
        import gradio  # noqa: F401
    except ImportError as error:
        raise GradioError("the Space needs gradio, an optional extra: pip install 'attnfaith[space]'") from error


def answered(answer: Callable[[], str]) -> str:
    """HTML of the answer, or what was wrong with the question; a fault of the package is logged and not shown."""
    try:
        return answer()
    except AttnfaithError as error:
        return problem(" ".join(str(error).split()))
    except Exception:
        logging.exception("a question could not be answered")
        return problem("the page failed on this input, and its log says where; try another text")


class Exports:
    """Record files to be fetched: the newest MOST_FILES, in a folder of the process that goes with it."""

    def __init__(self):
        self.folder = TemporaryFolder()
        self.made: deque[Path] = deque()

    def save(self, record) -> str:
        """The path of a record's file."""
        place = self.folder.path / secrets.token_hex(16)
        place.mkdir()
        self.made.append(place)
        while len(self.made) > MOST_FILES:
            shutil.rmtree(self.made.popleft(), ignore_errors=True)
        return str(record.save(place / "record.parquet"))


def build(desk: Desk):
    """The page, as gradio Blocks. Raises GradioError where gradio is missing."""
    require_gradio()
    import gradio

    exports = Exports()

    def measured(model, text):
        files = []

        def answer():
            record = desk.measured(model, text)
            files.append(exports.save(record))
            return framed(page_of(record, "Does attention explain this prediction?"))

        shown = answered(answer)
        return shown, gradio.DownloadButton(value=files[0] if files else None, interactive=bool(files))

    def edited(model, text, edits):
        return answered(lambda: table(*desk.edited(model, text, edits), "text"))

    def without_words(model, text):
        return answered(lambda: table(*desk.without_words(model, text), "text"))

    def under(model, text, weights):
        return answered(lambda: table(*desk.under(model, text, weights), "attention"))

    names = list(desk.offered)
    with gradio.Blocks(title="Attention, measured", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gradio.Markdown(HEAD)
        model = gradio.Dropdown(
            names,
            value=names[0] if names else None,
            label="model",
            info="or OWNER/NAME of a text classifier on the Hub" if desk.open else None,
            allow_custom_value=True,  # checked by the desk, which says what may be chosen
        )
        text = gradio.Textbox(
            EXAMPLE, label="text", lines=2, max_lines=8, info=f"at most {MOST_LETTERS:,} letters and {MOST_TOKENS} tokens"
        )
        with gradio.Tab("Measures"):
            with gradio.Row():
                ask = gradio.Button("Measure", variant="primary")
                record = gradio.DownloadButton("Record (parquet)", interactive=False)
            report = gradio.HTML(label="report")
        with gradio.Tab("Edit words"):
            edits = gradio.Textbox(label="edited texts", lines=3, max_lines=12, info="one on each line")
            with gradio.Row():
                ask_edits = gradio.Button("Predict", variant="primary")
                ask_words = gradio.Button("Leave out each word")
            of_edits = gradio.HTML(label="predictions of edited texts")
        with gradio.Tab("Other attention"):
            weights = gradio.Textbox(label="weights", lines=2, max_lines=6, info="one number for each token; may stay empty")
            ask_under = gradio.Button("Ask", variant="primary")
            of_weights = gradio.HTML(label="predictions under other attention")
        ask.click(measured, [model, text], [report, record], api_name="measure")
        ask_edits.click(edited, [model, text, edits], of_edits, api_name="edit")
        ask_words.click(without_words, [model, text], of_edits, api_name="without_words")
        ask_under.click(under, [model, text, weights], of_weights, api_name="under")
    return page


def serve(desk: Desk, *, host: str = "127.0.0.1", port: int | None = None) -> None:
    """Serve the page until it is stopped. port: None takes the first free one from 7860.

    Raises GradioError where gradio is missing, AttnfaithError where the port is taken.
    """
    page = build(desk)
    try:
        page.queue(max_size=20, default_concurrency_limit=1).launch(
            server_name=host, server_port=port, css=CSS, ssr_mode=False, run_history=False, max_file_size="1kb"
        )
    except OSError as error:
        raise AttnfaithError(f"the page cannot be served at {host}, port {port or '7860 and after'}: {error}") from error
