"""The Space's page, as gradio Blocks over a `Desk`."""

import logging
import secrets
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path

from attnfaith.errors import AttnfaithError
from attnfaith.escaping import html
from attnfaith.files import TemporaryFolder
from attnfaith.space.answers import MOST_LETTERS, MOST_TOKENS, Desk, page_of, table
from attnfaith.space.errors import GradioError


EXAMPLE = "a moving and brilliant portrait of a family that never feels long"
HEAD = (
    "# Does attention explain this prediction?\nOne sentence, one model: every measure beside attention, how far attention "
    "is from being determined, and what the model says when words or weights are changed. A single text shows how things "
    "work; whether attention explains a model takes many: `attnfaith measure`."
)
MOST_FILES = 50
CSS = ".space-frame { width: 100%; height: 85vh; min-height: 30rem; border: 1px solid #8886; background: #fff; }"


def require_gradio() -> None:
    """Raises GradioError, an ImportError, naming the extra to install, where gradio is missing."""
    try:
        import gradio  # noqa: F401
    except ImportError as error:
        raise GradioError("the Space needs gradio, an optional extra: pip install 'attnfaith[space]'") from error


def framed(page: str) -> str:
    """A whole page in a frame: its own scripts run, and reach neither this page nor its origin, cookies or windows."""
    return f'<iframe class="space-frame" title="Report" sandbox="allow-scripts" srcdoc="{html(page)}"></iframe>'


def words_of(error: Exception) -> str:
    """What the page says of an error, as HTML; a fault of the package is logged and not shown."""
    if isinstance(error, AttnfaithError):
        return html(" ".join(str(error).split()))
    logging.error("a question could not be answered", exc_info=error)
    return "the page failed on this input, and its log says where; try another text"


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

    def answered(answer: Callable) -> object:
        try:
            return answer()
        except Exception as error:
            raise gradio.Error(words_of(error)) from None

    def measured(model, text):
        record = answered(lambda: desk.measured(model, text))
        shown = answered(lambda: framed(page_of(record, "Does attention explain this prediction?")))
        return shown, gradio.DownloadButton(value=exports.save(record), interactive=True)

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
            of_edits = gradio.Dataframe(label="predictions of edited texts", wrap=True)
        with gradio.Tab("Other attention"):
            weights = gradio.Textbox(label="weights", lines=2, max_lines=6, info="one number for each token; may stay empty")
            ask_under = gradio.Button("Ask", variant="primary")
            of_weights = gradio.Dataframe(label="predictions under other attention", wrap=True)
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
