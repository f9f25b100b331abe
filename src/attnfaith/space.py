"""The Space: a page that measures a model on one typed sentence, and lets the reader edit its words and weights.

`Service` answers the questions; `build` is the page, which needs gradio, the extra `space`. Numbers come from
`attnfaith.measure` and the report's own page shows them. Input is not trusted: names of models are checked against those
offered or must be names on the Hub, sizes are checked before the work, and nothing is unpickled or evaluated.

Shapes: T tokens of the text, C classes, K predictions.
"""

import logging
import re
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from attnfaith.api.measuring import measure
from attnfaith.api.records import Record
from attnfaith.api.texts import read_texts
from attnfaith.interventions.targets import read_out, softmax
from attnfaith.loading import open_subject
from attnfaith.reporting import sections
from attnfaith.reporting.cells import name_class
from attnfaith.reporting.page.page import render_page
from attnfaith.subjects.translator import SequenceSubject
from attnfaith.support.errors import AttnfaithError, counted, cut, excerpt
from attnfaith.support.escaping import html


MOST_LETTERS = 2_000
MOST_TOKENS = 256  # of a text that is measured: leave-one-out reads it once for each of them
MOST_EDITS = 64  # edited texts at once
MOST_BYTES = 2 * 10**9  # of weights of a model that is fetched because a reader named it
MOST_CLASSES = 8  # columns of a table of predictions
MOST_RECORDS = 16  # kept for the next question on the same text
MOST_FILES = 50  # of records to be fetched
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
WEIGHTS = ".safetensors"  # nothing else is fetched
OWN, UNIFORM, WITHOUT, TYPED = "the model's own", "uniform", "no weight on the largest", "typed"
EXAMPLE = "a moving and brilliant portrait of a family that never feels long"
HEAD = (
    "# Does attention explain this prediction?\nOne sentence, one model: every measure beside attention, how far attention "
    "is from being determined, and the predictions for other words or weights. A single text is an illustration; whether "
    "attention explains a model takes many: `attnfaith measure`."
)
CSS = ".space-frame { width: 100%; height: 85vh; min-height: 30rem; border: 1px solid #8886; background: #fff; }"


class GradioError(AttnfaithError, ImportError):
    """gradio is missing."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions beside the first of them: K names, probs (K,C), C names of classes."""

    names: list[str]
    probs: np.ndarray
    classes: tuple[str, ...]

    @property
    def tvd(self) -> np.ndarray:
        """Total variation distance from the first prediction, (K,) in 0..1."""
        return np.abs(self.probs - self.probs[0]).sum(1) / 2

    def table(self, heading: str) -> pd.DataFrame:
        """One row per prediction; of many classes the MOST_CLASSES that are most probable anywhere."""
        places = sorted(np.argsort(-self.probs.max(0), kind="stable")[:MOST_CLASSES])
        decisions = self.probs.argmax(1)
        columns = {heading: self.names} | {self.classes[place]: self.probs[:, place].round(3) for place in places}
        columns["TVD from the first"] = self.tvd.round(3)
        flips = np.where(decisions == decisions[0], "", " (flips)")
        columns["decision"] = [self.classes[place] + flip for place, flip in zip(decisions, flips, strict=True)]
        return pd.DataFrame(columns)


class Service:
    """Answers questions on one typed text by one or more models.

    offered: folders, runs and names on the Hub to choose from, as `attnfaith.measure` takes them. open: whether a reader may
    name another model on the Hub; a folder of this machine is only ever one of `offered`. Input that the page does not take
    raises AttnfaithError with what to do.
    """

    def __init__(self, offered: Sequence[str] = (), *, open: bool = True):
        self.offered = {short_name(name, offered): name for name in dict.fromkeys(offered)}
        self.open = open
        if not (self.offered or open):
            raise AttnfaithError("no model is offered and none may be named: give a folder, a run or a name on the Hub")
        self._cached = lru_cache(MOST_RECORDS)(self._measure)
        self._lock = threading.Lock()

    def model(self, name: object) -> str:
        """Return the folder, run or name on the Hub for the name that a reader chose or typed."""
        name = name.strip() if isinstance(name, str) else ""
        if name in self.offered:
            return self.offered[name]
        choose = f"choose {', '.join(self.offered)}" if self.offered else "give OWNER/NAME of a model on the Hub"
        if not name:
            raise AttnfaithError(f"no model was named: {choose}")
        if not self.open:
            raise AttnfaithError(f"the model {excerpt(name)} is not offered here: {choose}")
        if not HUB_NAME.fullmatch(name) or ".." in name:
            raise AttnfaithError(f"{excerpt(name)} is no name of a model on the Hub: {choose}, such as owner/model")
        if Path(name).exists():
            raise AttnfaithError(f"{excerpt(name)} is a folder of the server, which no reader may name: {choose}")
        size = _size_on_hub(name)
        if size > MOST_BYTES:
            raise AttnfaithError(
                f"{name} has {size / 1e9:.1f} GB of weights, and this page takes {MOST_BYTES / 1e9:.0f} GB: measure it on a "
                "machine of your own, attnfaith space MODEL"
            )
        return name

    def record(self, name: object, text: object) -> Record:
        """Return the record of one text: the default measures of the model, kept for the next question."""
        model, text = self.model(name), checked(text)
        with self._lock:
            return self._cached(model, text)

    def _measure(self, model: str, text: str) -> Record:
        check_length(open_subject(model), text)
        return measure(model, [text], name="typed", split="text", progress=False)

    def edit(self, name: object, text: object, edits: object) -> Predictions:
        """Return predictions for the text and for each line of `edits`."""
        lines = [checked(line) for line in (edits if isinstance(edits, str) else "").splitlines() if line.strip()]
        if not lines:
            raise AttnfaithError("there is no edited text: write one on a line, or several")
        return self._predictions(name, checked(text), lines)

    def without_words(self, name: object, text: object) -> Predictions:
        """Return predictions for the text and for it without each of its words, the largest change first."""
        words = checked(text).split()
        if len(words) < 2:
            raise AttnfaithError("the text has one word: without it nothing is left to read")
        texts = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
        names = [f"without “{cut(word, 40)}” (word {place})" for place, word in enumerate(words, 1)]
        predictions = self._predictions(name, " ".join(words), texts, names)
        order = [0, *(1 + np.argsort(-predictions.tvd[1:], kind="stable"))]
        return Predictions([predictions.names[place] for place in order], predictions.probs[order], predictions.classes)

    def _predictions(self, name, text: str, edits: list[str], names: list[str] | None = None) -> Predictions:
        if len(edits) > MOST_EDITS:
            raise AttnfaithError(f"{len(edits)} texts: this page reads {MOST_EDITS} at once, so give fewer or shorter ones")
        model = self.model(name)
        with self._lock:
            record = measure(model, [text, *edits], measures=[], name="typed", split="text", progress=False)
        (cell,) = record.cells
        probs = np.array(cell.table.column("probs").to_pylist(), np.float64)
        return Predictions(["the text", *(names or edits)], probs, _names_of_classes(cell.class_names, probs))

    def under(self, name: object, text: object, weights: object = "") -> Predictions:
        """Return predictions for the text under other attentions: uniform, without its largest weight, and the typed one.

        weights: "", or T numbers of 0 or more, of which one is above 0; they are divided by their sum. The predictions are
        exact: the model's own read-out, states held.
        """
        model, text = self.model(name), checked(text)
        with self._lock:
            subject = open_subject(model)
            row = check_length(subject, text)
            if "intervention" not in subject.capabilities:
                raise AttnfaithError(
                    f"{subject.kind} cannot be asked here about another attention: what is shown is made of many heads; the "
                    "measures say what the model does when those are permuted"
                )
            with subject.evaluating(), torch.no_grad():
                names, probs = under_attentions(subject, subject.collate([row]), weights, row["tokens"])
        return Predictions(names, probs, _names_of_classes(subject.class_names, probs))


def under_attentions(subject, batch, weights: object, tokens: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the names of K attentions and the probabilities under them, (K,C)."""
    (readout,) = read_out(subject, batch)
    attention, count = readout.attention, len(readout.attention)
    attentions = {OWN: attention, UNIFORM: np.full(count, 1 / count)}
    rest = np.where(np.arange(count) == attention.argmax(), 0.0, attention)
    if rest.sum() > 0:
        attentions[f"{WITHOUT}, “{cut(str(tokens[attention.argmax()]), 40)}”"] = rest / rest.sum()
    if isinstance(weights, str) and weights.strip():
        attentions[TYPED] = typed_weights(weights, count)
    stacked = np.stack(list(attentions.values()))
    return list(attentions), softmax(readout.logits(stacked))


def typed_weights(text: str, count: int) -> np.ndarray:
    """Return weights (T,) that sum to 1, from `count` numbers written with blanks or commas between them."""
    words = text[: MOST_TOKENS * 30].replace(",", " ").split()
    if len(words) != count:
        raise AttnfaithError(
            f"{counted(len(words), 'weight')} for {counted(count, 'token')}: write one for each token, in their order"
        )
    try:
        weights = np.array([float(word) for word in words])
    except ValueError as error:
        raise AttnfaithError(f"{excerpt(text)} holds more than numbers: write weights such as 0.2 0.7 0.1") from error
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(weights).all() or (weights < 0).any() or not 0 < total < np.inf:
        raise AttnfaithError("weights are finite, 0 or more, and one of them is above 0: they are divided by their sum")
    return weights / total


def checked(text: object) -> str:
    """Return the text with single blanks; lone surrogates are replaced."""
    if not isinstance(text, str) or not text.strip():
        raise AttnfaithError("there is no text: write a sentence")
    if len(text) > MOST_LETTERS:
        raise AttnfaithError(
            f"the text has {len(text):,} letters: this page takes {MOST_LETTERS:,}; `attnfaith measure` any"
        )
    return " ".join(text.encode("utf-8", "replace").decode().split())


def check_length(subject, text: str) -> dict:
    """Return the encoded text. Raises AttnfaithError unless a classifier reads 1 to MOST_TOKENS tokens in it."""
    if isinstance(subject, SequenceSubject):
        raise AttnfaithError(
            "this is a model from sequences to sequences, and this page takes classifiers: attnfaith view MODEL"
        )
    row = subject.rows(read_texts([text], name="typed").dataset)[0]
    if not 0 < len(row["tokens"]) <= MOST_TOKENS:
        raise AttnfaithError(f"the model reads {len(row['tokens'])} tokens in this text: this page takes 1 to {MOST_TOKENS}")
    return row


def _names_of_classes(names: Sequence[str], probs: np.ndarray) -> tuple[str, ...]:
    return tuple(name_class(str(number), tuple(names)) for number in range(probs.shape[1]))


def short_name(name: str, offered: Sequence[str]) -> str:
    """Return a folder's last part, with its parent where two have the same; no path of the server."""
    folder = Path(name)
    if not folder.exists():
        return str(name)
    last = folder.resolve().name
    names = [Path(other).resolve().name for other in dict.fromkeys(offered) if other != name and Path(other).exists()]
    return f"{folder.resolve().parent.name}/{last}" if last in names else last


def _size_on_hub(name: str) -> int:
    """Bytes of a model's weights on the Hub; 0 without an answer, as without a network."""
    from huggingface_hub import HfApi

    try:
        files = HfApi().model_info(name, files_metadata=True, timeout=10).siblings or []
    except Exception:  # of whichever library carries its requests; `load_subject` says what is wrong
        return 0
    return sum(file.size or 0 for file in files if file.rfilename.endswith(WEIGHTS))


# ---------- the page


def require_gradio() -> None:
    """Raise GradioError, an ImportError, naming the extra to install, where gradio is missing."""
    try:
        import gradio  # noqa: F401
    except ImportError as error:
        raise GradioError("the Space needs gradio, an optional extra: pip install 'attnfaith[space]'") from error


def report(record: Record) -> str:
    """Return the report's page of a record as one HTML document without figures."""
    tables = sections.frames(record.cells)
    title = "Does attention explain this prediction?"
    return render_page(record.cells, tables, [()] * len(record.cells), title=title, facts={}, n_examples=1)


def framed(page: str) -> str:
    """Return a page in a frame whose scripts reach neither this page nor its origin, cookies or windows."""
    return f'<iframe class="space-frame" title="Report" sandbox="allow-scripts" srcdoc="{html(page)}"></iframe>'


def message(error: Exception) -> str:
    """Return an error as HTML for the page; a fault of the package is logged and not shown."""
    if isinstance(error, AttnfaithError):
        return html(" ".join(str(error).split()))
    logging.error("a question could not be answered", exc_info=error)
    return "the page failed on this input, and its log says where; try another text"


def build(service: Service):
    """The page, as gradio Blocks. Raises GradioError where gradio is missing."""
    require_gradio()
    import gradio

    folder, slots = tempfile.TemporaryDirectory(), cycle(range(MOST_FILES))

    def answer(question: Callable, *inputs) -> object:
        try:
            return question(*inputs)
        except Exception as error:
            raise gradio.Error(message(error)) from None

    def show_record(model, text):
        record = service.record(model, text)
        path = record.save(Path(folder.name) / f"record-{next(slots)}.parquet")  # gradio serves a copy
        return framed(report(record)), gradio.DownloadButton(value=str(path), interactive=True)

    names = list(service.offered)
    with gradio.Blocks(title="Attention, measured", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gradio.Markdown(HEAD)
        model = gradio.Dropdown(
            names,
            value=names[0] if names else None,
            label="model",
            info="or OWNER/NAME of a text classifier on the Hub" if service.open else None,
            allow_custom_value=True,  # the service checks it, and says what may be chosen
        )
        text = gradio.Textbox(
            EXAMPLE, label="text", lines=2, max_lines=8, info=f"at most {MOST_LETTERS:,} letters and {MOST_TOKENS} tokens"
        )
        with gradio.Tab("Measures"):
            with gradio.Row():
                ask = gradio.Button("Measure", variant="primary")
                download = gradio.DownloadButton("Record (parquet)", interactive=False)
            frame = gradio.HTML(label="report")
        with gradio.Tab("Edit words"):
            edits = gradio.Textbox(label="edited texts", lines=3, max_lines=12, info="one on each line")
            with gradio.Row():
                ask_edits = gradio.Button("Predict", variant="primary")
                ask_words = gradio.Button("Leave out each word")
            edit_table = gradio.Dataframe(label="predictions of edited texts", wrap=True)
        with gradio.Tab("Other attention"):
            weights = gradio.Textbox(label="weights", lines=2, max_lines=6, info="one number for each token; may stay empty")
            ask_under = gradio.Button("Ask", variant="primary")
            weight_table = gradio.Dataframe(label="predictions under other attention", wrap=True)
        ask.click(lambda *inputs: answer(show_record, *inputs), [model, text], [frame, download], api_name="measure")
        for button, question, inputs, heading, table in (
            (ask_edits, service.edit, [model, text, edits], "text", edit_table),
            (ask_words, service.without_words, [model, text], "text", edit_table),
            (ask_under, service.under, [model, text, weights], "attention", weight_table),
        ):

            def show_table(*inputs, question=question, heading=heading):
                return answer(lambda: question(*inputs).table(heading))

            button.click(show_table, inputs, table, api_name=question.__name__)
    return page


def serve(service: Service, *, host: str = "127.0.0.1", port: int | None = None) -> None:
    """Serve the page until it is stopped. port: None takes the first free one from 7860.

    Raises GradioError where gradio is missing, AttnfaithError where the port is taken.
    """
    page = build(service)
    try:
        page.queue(max_size=20, default_concurrency_limit=1).launch(
            server_name=host, server_port=port, css=CSS, ssr_mode=False, run_history=False, max_file_size="1kb"
        )
    except OSError as error:
        raise AttnfaithError(f"the page cannot be served at {host}, port {port or '7860 and after'}: {error}") from error
