"""What the Space answers on one typed text: a record with its page, predictions of edited texts and under other attentions.

All of it is measured by `attnfaith.measure`, and shown by the report's own page. Nothing that comes in is trusted: names of
models are checked against those offered or must be names on the Hub, sizes are checked before the work, and nothing is
unpickled or evaluated.

Shapes: T tokens of the text, C classes, K attentions.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from attnfaith.api.measuring import measure
from attnfaith.api.records import Record
from attnfaith.api.texts import Columns, read_texts
from attnfaith.errors import counted, cut, excerpt
from attnfaith.interventions.targets import AFFINE, read_out, softmax, under
from attnfaith.loading import open_subject
from attnfaith.reporting import sections
from attnfaith.reporting.cells import Cell, name_class
from attnfaith.reporting.page.page import render_page
from attnfaith.space.errors import SpaceError
from attnfaith.subjects.translator import SequenceSubject


MOST_LETTERS = 2_000
MOST_TOKENS = 256
"""Of a text that is measured: leave-one-out reads it once for each of them."""
MOST_EDITS = 64
"""Edited texts that are read at once."""
MOST_BYTES = 2 * 10**9
"""Weights of a model that is fetched because a reader named it."""
MOST_CLASSES = 8
KEPT = 16
"""Records that are kept for the next question on the same text."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
WEIGHTS = ".safetensors"  # nothing else is fetched
OWN, UNIFORM, WITHOUT, TYPED = "the model's own", "uniform", "no weight on the largest", "typed"


@dataclass(frozen=True)
class Prediction:
    """What the model says of a text, or under an attention. name: of which. probs: (C,). tvd: the total variation distance
    from the first prediction beside it, 0..1. flips: whether the most probable class is another than there.
    """

    name: str
    probs: np.ndarray
    tvd: float
    flips: bool


class Desk:
    """Answers of one or more models.

    offered: folders, runs and names on the Hub to choose from, as `attnfaith.measure` takes them. open: whether a reader may
    name another model on the Hub; a folder of this machine is only ever one of `offered`.

    Raises SpaceError where there would be nothing to choose.
    """

    def __init__(self, offered: Sequence[str] = (), *, open: bool = True):
        self.offered = {called(name, offered): name for name in dict.fromkeys(offered)}
        self.open = open
        if not (self.offered or open):
            raise SpaceError("no model is offered and none may be named: give a folder, a run or a name on the Hub")
        self._records: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self._lock = threading.Lock()

    # -------------------------------------------------------------------------------------------- what is asked

    def model(self, name: object) -> str:
        """What `attnfaith.measure` opens for the name that a reader chose or typed.

        Raises SpaceError for a name that is neither offered nor, where that is allowed, one on the Hub; for a model on the
        Hub above MOST_BYTES.
        """
        name = name.strip() if isinstance(name, str) else ""
        if name in self.offered:
            return self.offered[name]
        choose = f"choose {', '.join(self.offered)}" if self.offered else "give OWNER/NAME of a model on the Hub"
        if not name:
            raise SpaceError(f"no model was named: {choose}")
        if not self.open:
            raise SpaceError(f"the model {excerpt(name)} is not offered here: {choose}")
        if not HUB_NAME.fullmatch(name) or ".." in name:
            raise SpaceError(f"{excerpt(name)} is no name of a model on the Hub: {choose}, such as owner/model")
        if Path(name).exists():
            raise SpaceError(f"{excerpt(name)} is a folder of the server, which nobody may name: {choose}")
        if (size := _size_on_hub(name)) > MOST_BYTES:
            raise SpaceError(
                f"{name} has {size / 1e9:.1f} GB of weights, and this page takes {MOST_BYTES / 1e9:.0f} GB: measure it on a "
                "machine of your own, attnfaith space MODEL"
            )
        return name

    def measured(self, name: object, text: object) -> Record:
        """The record of one text: cheap measures and experiments that the model is capable of, kept for the next question.

        Raises SpaceError for a model or text that the page does not take, AttnfaithError for what `measure` refuses.
        """
        model, text = self.model(name), checked(text)
        with self._lock:
            if (model, text) not in self._records:
                check_length(open_subject(model), text)
                self._records[model, text] = measure(model, [text], name="typed", split="text", progress=False)
                while len(self._records) > KEPT:
                    self._records.popitem(last=False)
            self._records.move_to_end((model, text))
            return self._records[model, text]

    def edited(self, name: object, text: object, edits: object) -> tuple[list[Prediction], tuple[str, ...]]:
        """What the model says of the text and of each line of `edits`, and the names of its classes.

        Raises SpaceError as `measured`, and for no line or above MOST_EDITS.
        """
        text = checked(text)
        lines = [" ".join(line.split()) for line in (edits if isinstance(edits, str) else "").splitlines() if line.strip()]
        if not lines:
            raise SpaceError("there is no edited text: write one on a line, or several")
        return self._predicted(name, text, lines)

    def without_words(self, name: object, text: object) -> tuple[list[Prediction], tuple[str, ...]]:
        """What the model says of the text, and of it without each of its words, the largest change first."""
        words = checked(text).split()
        if len(words) < 2:
            raise SpaceError("the text has one word: without it nothing is left to read")
        texts = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
        names = [f"without “{cut(word, 40)}” (word {place})" for place, word in enumerate(words, 1)]
        (first, *others), classes = self._predicted(name, " ".join(words), texts, names)
        return [first, *sorted(others, key=lambda one: -one.tvd)], classes

    def _predicted(self, name, text, texts, names=None) -> tuple[list[Prediction], tuple[str, ...]]:
        if len(texts) > MOST_EDITS:
            raise SpaceError(f"{len(texts)} texts: this page reads {MOST_EDITS} at once, so give fewer or shorter ones")
        model = self.model(name)
        edited = [checked(one) for one in texts]
        with self._lock:
            record = measure(model, [text, *edited], measures=[], name="typed", split="text", progress=False)
        (cell,) = record.cells
        probs = np.array(cell.table.column("probs").to_pylist(), np.float64)
        return predictions(["the text", *(names or edited)], probs), classes_of(cell)

    def under(self, name: object, text: object, weights: object = "") -> tuple[list[Prediction], tuple[str, ...]]:
        """What the model says of the text under other attentions: uniform, without its largest weight, and the one typed.

        weights: "", or T numbers of 0 or more, of which one is above 0; they are divided by their sum. What is said under
        them is exact: the model's own read-out, states held.

        Raises SpaceError as `measured`, for weights that are not as said here, and for a model that cannot be asked.
        """
        model, text = self.model(name), checked(text)
        with self._lock:
            subject = open_subject(model)
            row = check_length(subject, text)
            if "intervention" not in subject.capabilities:
                raise SpaceError(
                    f"{subject.kind} cannot be asked here about another attention: what is shown is made of many heads; the "
                    "measures say what the model does when those are permuted"
                )
            with subject.evaluating(), torch.no_grad():
                attentions, probs = _asked(subject, subject.collate([row]), weights, row["tokens"])
        names = tuple(subject.class_names)
        return predictions(attentions, probs), tuple(name_class(str(c), names) for c in range(probs.shape[1]))


def _asked(subject, batch, weights: object, tokens: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Names of K attentions and the probabilities under them, (K,C)."""
    (own,) = read_out(subject, batch)
    count = len(own.attention)
    asked = {OWN: own.attention, UNIFORM: np.full(count, 1 / count)}
    rest = np.where(np.arange(count) == own.attention.argmax(), 0.0, own.attention)
    if rest.sum() > 0:
        asked[f"{WITHOUT}, “{cut(str(tokens[own.attention.argmax()]), 40)}”"] = rest / rest.sum()
    if isinstance(weights, str) and weights.strip():
        asked[TYPED] = weights_of(weights, count)
    every = np.stack(list(asked.values()))
    if AFFINE in subject.capabilities:
        return list(asked), softmax(own.logits(every))
    read = under(subject, batch, [0])
    logits = read(torch.from_numpy(every).to(subject.device, read.dtype)[None])
    return list(asked), logits[0].double().softmax(-1).cpu().numpy()


def weights_of(written: str, count: int) -> np.ndarray:
    """Weights (T,) that sum to 1, of numbers written with blanks or commas between them.

    Raises SpaceError for another count than `count`, for what is no number, is negative or not finite, and for a sum of 0.
    """
    words = written[: MOST_TOKENS * 30].replace(",", " ").split()
    if len(words) != count:
        raise SpaceError(
            f"{counted(len(words), 'weight')} for {counted(count, 'token')}: write one for each token, in their order"
        )
    weights = np.array([_number(word) for word in words])
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(weights).all() or (weights < 0).any() or not 0 < total < np.inf:
        raise SpaceError("weights are finite, 0 or more, and one of them is above 0: they are divided by their sum")
    return weights / total


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise SpaceError(f"{excerpt(word)} is no number: write weights such as 0.2 0.7 0.1") from error


def checked(text: object) -> str:
    """A text that the page takes, halves of letters that UTF-8 cannot hold replaced. Raises SpaceError for another."""
    if not isinstance(text, str) or not text.strip():
        raise SpaceError("there is no text: write a sentence")
    if len(text) > MOST_LETTERS:
        raise SpaceError(f"the text has {len(text):,} letters: this page takes {MOST_LETTERS:,}; `attnfaith measure` any")
    return " ".join(text.encode("utf-8", "replace").decode().split())


def check_length(subject, text: str) -> dict:
    """The text as the model reads it. Raises SpaceError for a model that is no classifier, and for a text without a word
    that it knows or above MOST_TOKENS.
    """
    if isinstance(subject, SequenceSubject):
        raise SpaceError(
            "the model is one from sequences to sequences, and this page asks classifiers: attnfaith view MODEL"
        )
    row = subject.rows(read_texts([text], None, Columns(), "typed").dataset)[0]
    if not 0 < len(row["tokens"]) <= MOST_TOKENS:
        raise SpaceError(f"the model reads {len(row['tokens'])} tokens in this text: this page takes 1 to {MOST_TOKENS}")
    return row


def predictions(names: Sequence[str], probs: np.ndarray) -> list[Prediction]:
    """Each row of probabilities (K,C) beside the first."""
    distances = np.abs(probs - probs[0]).sum(1) / 2
    flips = probs.argmax(1) != probs[0].argmax()
    return [Prediction(*row) for row in zip(names, probs, distances.tolist(), flips.tolist(), strict=True)]


def classes_of(cell: Cell) -> tuple[str, ...]:
    """The names of a cell's classes for reading."""
    count = len(cell.table.column("probs")[0])
    return tuple(name_class(str(number), cell.class_names) for number in range(count))


def table(rows: Sequence[Prediction], classes: Sequence[str], heading: str) -> pd.DataFrame:
    """Predictions beside one another; of many classes the MOST_CLASSES that are most probable anywhere."""
    probs = np.stack([row.probs for row in rows])
    shown = sorted(np.argsort(-probs.max(0), kind="stable")[:MOST_CLASSES])
    decided = [classes[int(row.probs.argmax())] + (" (flips)" if row.flips else "") for row in rows]
    columns = {heading: [row.name for row in rows]} | {classes[number]: probs[:, number].round(3) for number in shown}
    return pd.DataFrame(columns | {"TVD from the first": [round(row.tvd, 3) for row in rows], "decision": decided})


def page_of(record: Record, title: str) -> str:
    """The report's page of a record, without figures: one HTML document that needs nothing beside it."""
    tables = sections.frames(record.cells)
    return render_page(record.cells, tables, [()] * len(record.cells), title=title, facts={}, n_examples=1)


def called(name: str, among: Sequence[str]) -> str:
    """How the page calls a model: a folder by its last part, where that is no other's; it names no place of the server."""
    folder = Path(name)
    if not folder.exists():
        return str(name)
    last = folder.resolve().name
    others = [Path(other).resolve().name for other in dict.fromkeys(among) if other != name and Path(other).exists()]
    return f"{folder.resolve().parent.name}/{last}" if last in others else last


def _size_on_hub(name: str) -> int:
    """Bytes of a model's weights; 0 where the Hub does not say, such as without a network: what is here already is small."""
    from huggingface_hub import HfApi

    try:
        files = HfApi().model_info(name, files_metadata=True, timeout=10).siblings or []
    except Exception:  # of whichever library carries its requests; `load_subject` says what is wrong
        return 0
    return sum(file.size or 0 for file in files if file.rfilename.endswith(WEIGHTS))
