"""The Space: a page that measures a model on one typed sentence, and predicts edited sentences.

`Service` answers the questions; `build` is the page, which needs gradio, the extra `space`. Input is not trusted: names of
models are checked against those offered, sizes before the work, and nothing is unpickled or evaluated.
"""

import logging
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from attnfaith.api.measuring import measure
from attnfaith.api.records import Record
from attnfaith.api.texts import read_texts
from attnfaith.loading import open_subject
from attnfaith.reporting import sections
from attnfaith.reporting.cells import name_class
from attnfaith.reporting.page import render_page
from attnfaith.subjects import SequenceSubject
from attnfaith.support.errors import AttnfaithError, excerpt
from attnfaith.support.escaping import html


MOST_LETTERS = 2_000
MOST_TOKENS = 256  # of a text that is measured: leave-one-out reads it once for each of them
MOST_EDITS = 64  # edited texts at once
MOST_CLASSES = 8  # columns of a table of predictions
MOST_RECORDS = 16  # kept for the next question on the same text
TITLE = "Does attention explain this prediction?"
EXAMPLE = "a moving and brilliant portrait of a family that never feels long"
HEAD = (
    f"# {TITLE}\nOne sentence, one model: every measure beside attention, what the model would answer under other weights, "
    "and its predictions for other words. A single text is an illustration; whether attention explains a model takes many: "
    "`attnfaith measure`."
)
CSS = ".space-frame { width: 100%; height: 85vh; min-height: 30rem; border: 1px solid #8886; background: #fff; }"


class Service:
    """Answers questions on one typed text by one or more models. Input that the page does not take raises AttnfaithError.

    offered: folders, runs and names on the Hub to choose from, as `attnfaith.measure` takes them.
    """

    def __init__(self, offered: Sequence[str]):
        names = [Path(name).resolve().name if Path(name).exists() else name for name in offered]
        pairs = zip(names, offered, strict=True)
        self.offered = {label if names.count(label) == 1 else name: name for label, name in pairs}
        self._cached = lru_cache(MOST_RECORDS)(self._measure)
        self._lock = threading.Lock()

    def model(self, name: object) -> str:
        """Return the folder, run or name on the Hub for the name that a reader chose."""
        if not isinstance(name, str) or name not in self.offered:
            raise AttnfaithError(f"the model {excerpt(name)} is not offered here: choose {', '.join(self.offered)}")
        return self.offered[name]

    def record(self, name: object, text: object) -> Record:
        """Return the record of one text: the default measures of the model, kept for the next question."""
        model, text = self.model(name), checked(text)
        with self._lock:
            return self._cached(model, text)

    def _measure(self, model: str, text: str) -> Record:
        subject = open_subject(model)
        if isinstance(subject, SequenceSubject):
            raise AttnfaithError("this page takes classifiers: `attnfaith view` shows a model from sequences to sequences")
        count = len(subject.rows(read_texts([text], name="typed").dataset)[0]["tokens"])
        if not 0 < count <= MOST_TOKENS:
            raise AttnfaithError(f"the model reads {count} tokens in this text: this page takes 1 to {MOST_TOKENS}")
        return measure(model, [text], name="typed", split="text", progress=False)

    def edit(self, name: object, text: object, edits: object) -> pd.DataFrame:
        """Return the probabilities of the text and of each line of `edits`, a row each; of many classes the MOST_CLASSES
        that are most probable anywhere. TVD: total variation distance from the text's own prediction, 0..1.
        """
        lines = [checked(line) for line in str(edits or "").splitlines() if line.strip()]
        if not 0 < len(lines) <= MOST_EDITS:
            raise AttnfaithError(f"{len(lines)} edited texts: this page reads 1 to {MOST_EDITS}, one on each line")
        model, texts = self.model(name), [checked(text), *lines]
        with self._lock:
            (cell,) = measure(model, texts, measures=[], name="typed", split="text", progress=False).cells
        probs, decisions = cell.probs.astype(np.float64), cell.predicted
        names = [name_class(str(number), cell.class_names) for number in range(probs.shape[1])]
        classes = sorted(np.argsort(-probs.max(0), kind="stable")[:MOST_CLASSES])
        table = pd.DataFrame(probs[:, classes].round(3), columns=[names[number] for number in classes])
        table.insert(0, "text", texts)
        table["TVD"] = (np.abs(probs - probs[0]).sum(1) / 2).round(3)
        table["decision"] = [f"{names[number]}{'' if number == decisions[0] else ' (flips)'}" for number in decisions]
        return table


def checked(text: object) -> str:
    """Return the text with single blanks; lone surrogates are replaced."""
    if not isinstance(text, str) or not text.strip():
        raise AttnfaithError("there is no text: write a sentence")
    if len(text) > MOST_LETTERS:
        raise AttnfaithError(
            f"the text has {len(text):,} letters: this page takes {MOST_LETTERS:,}; `attnfaith measure` any"
        )
    return " ".join(text.encode("utf-8", "replace").decode().split())


def framed(record: Record) -> str:
    """Return the report's page of a record, without figures, in a frame whose scripts reach neither this page nor its
    origin, cookies or windows.
    """
    page = render_page(record.cells, sections.frames(record.cells), title=TITLE, facts={}, n_examples=1)
    return f'<iframe class="space-frame" title="Report" sandbox="allow-scripts" srcdoc="{html(page)}"></iframe>'


def build(service: Service):
    """The page, as gradio Blocks. Raises AttnfaithError where gradio is missing."""
    try:
        import gradio
    except ImportError as error:
        raise AttnfaithError("the Space needs gradio, an optional extra: pip install 'attnfaith[space]'") from error
    folder = tempfile.TemporaryDirectory()

    def answering(question: Callable) -> Callable:
        """The question with errors as the page shows them; a fault of the package is logged and not shown."""

        def answer(*inputs):
            try:
                return question(*inputs)
            except AttnfaithError as error:
                raise gradio.Error(html(error)) from None
            except Exception:
                logging.exception("a question could not be answered")
                raise gradio.Error("the page failed on this input, and its log says where; try another text") from None

        return answer

    def show_record(model, text):
        record = service.record(model, text)
        path = record.save(Path(folder.name) / "record.parquet")  # one question at a time; gradio serves a copy
        return framed(record), gradio.DownloadButton(value=str(path), interactive=True)

    names = list(service.offered)
    with gradio.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gradio.Markdown(HEAD)
        model = gradio.Dropdown(names, value=names[0], label="model")
        limits = f"at most {MOST_LETTERS:,} letters and {MOST_TOKENS} tokens"
        text = gradio.Textbox(EXAMPLE, label="text", lines=2, max_lines=8, info=limits)
        with gradio.Tab("Measures"):
            with gradio.Row():
                ask = gradio.Button("Measure", variant="primary")
                download = gradio.DownloadButton("Record (parquet)", interactive=False)
            frame = gradio.HTML(label="report")
        with gradio.Tab("Edit words"):
            edits = gradio.Textbox(label="edited texts", lines=3, max_lines=12, info="one on each line")
            ask_edits = gradio.Button("Predict", variant="primary")
            table = gradio.Dataframe(label="predictions of edited texts", wrap=True)
        ask.click(answering(show_record), [model, text], [frame, download], api_name="measure")
        ask_edits.click(answering(service.edit), [model, text, edits], table, api_name="edit")
    return page


def serve(service: Service, *, host: str = "127.0.0.1", port: int | None = None) -> None:
    """Serve the page until it is stopped. port: None takes the first free one from 7860.

    Raises AttnfaithError where gradio is missing or the port is taken.
    """
    page = build(service)
    try:
        page.queue(max_size=20, default_concurrency_limit=1).launch(
            server_name=host, server_port=port, css=CSS, ssr_mode=False, run_history=False, max_file_size="1kb"
        )
    except OSError as error:
        raise AttnfaithError(f"the page cannot be served at {host}, port {port or '7860 and after'}: {error}") from error
