"""DiffMask (De Cao et al. 2020): which tokens a trained gate lets through while the model says nearly the same."""

import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

import attnfaith
from attnfaith.files import write_atomically
from attnfaith.importance._concrete import log_open
from attnfaith.importance._gate_state import State
from attnfaith.importance._gate_training import Settings, train_gates
from attnfaith.importance._gates import KINDS, about_gates, load_gates, save_gates, states_of
from attnfaith.outputs import digest_data
from attnfaith.record import Column, ragged
from attnfaith.subjects import SubjectError, asks, require


COLUMNS = {
    "importance_diffmask": Column(
        ("T",),
        range=(0.0, 1.0),
        words="largest",
        unit="probability",
        doc="that the gates leave a token open: its embedding is not wholly replaced (kind inputs, gates of all layers "
        "multiplied); or the share of layers at which they leave its state open (kind states)",
    ),
    "diffmask_layers": Column(
        ("S", "T"),
        range=(0.0, 1.0),
        unit="probability",
        doc="that gates are open by layer, 0 the embeddings: those of layers 0..l multiplied (kind inputs), or that of "
        "layer l (kind states)",
    ),
}
NEEDS = frozenset({"classes", "embeddings", "token states"})
COST = "reading"
PENALTIES, PLACEHOLDERS = ("l0", "log"), ("learned", "zeros")
FOLDER = "gates"
"""Where a run keeps what it trained."""
POSITIVE = ("learning_rate", "placeholder_learning_rate", "multiplier_learning_rate", "margin", "valid_constraint")
COUNTS = ("train_texts", "validation_texts", "epochs", "batch_size")


def check(
    *,
    gates: str | None = None,
    kind: str = "inputs",
    train_texts: int = 2000,
    validation_texts: int = 500,
    epochs: int = 30,
    batch_size: int = 64,
    margin: float = 0.1,
    penalty: str = "l0",
    placeholder: str = "learned",
    learning_rate: float = 3e-3,
    placeholder_learning_rate: float = 1e-3,
    multiplier_learning_rate: float = 0.1,
    warmup_steps: int = 100,
    valid_constraint: float = 0.8,
    valid_agreement: float = 0.75,
) -> None:
    """Raises ValueError for a kind or penalty that there is not, and for a number that is no number or out of range."""
    given = {name: value for name, value in locals().items() if name != "gates"}
    if gates is not None and not (isinstance(gates, str) and gates):
        raise ValueError(f"gates={gates!r}; give the path of a file of gates, or None for those of a run")
    for name, choices in (("kind", KINDS), ("penalty", PENALTIES), ("placeholder", PLACEHOLDERS)):
        if given[name] not in choices:
            raise ValueError(f"{name}={given[name]!r} is not known; choose one of {', '.join(choices)}")
    for name in (*COUNTS, "warmup_steps"):
        least = 0 if name == "warmup_steps" else 1
        if isinstance(given[name], bool) or not isinstance(given[name], int) or given[name] < least:
            raise ValueError(f"{name}={given[name]!r}; give a whole number from {least} on")
    for name in (*POSITIVE, "valid_agreement"):
        value = given[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0 or (value == 0 if name in POSITIVE else value > 1):
            raise ValueError(f"{name}={value!r}; give a number {'above 0' if name in POSITIVE else 'from 0 to 1'}")
    if gates is not None and (changed := [name for name, value in given.items() if value != getattr(Settings, name)]):
        raise ValueError(f"gates={gates!r} are trained, and {', '.join(changed)} of their training given: leave out either")


def check_model(subject, dataset, *, gates: str | None = None, kind: str = "inputs", **training) -> None:
    """Raises ValueError where no gates are given, or the file is none or of another model, and SubjectError for gates of
    states where the subject cannot predict from other states than its own.
    """
    if gates is None:
        raise ValueError(
            "gates=None, and gates have to be trained: a run trains its own (attnfaith measure RUN --add diffmask); for "
            "another model attnfaith.train_gates(model, texts, PATH), and options={'diffmask': {'gates': PATH}}"
        )
    about = about_gates(gates)
    if about["kind"] == "states":
        require(subject, {"other states"}, "diffmask of kind 'states'")
    if hasattr(subject, "digest") and about["model"] != subject.digest():
        raise SubjectError(
            f"the gates in {gates} were trained for another model (digest {about['model'][:12]}, here "
            f"{subject.digest()[:12]}): train gates of this one"
        )


@asks(NEEDS)
@torch.no_grad()
def measure(
    subject,
    batch,
    *,
    seed: int = 0,
    gates: str | None = None,
    kind: str = "inputs",
    train_texts: int = 2000,
    validation_texts: int = 500,
    epochs: int = 30,
    batch_size: int = 64,
    margin: float = 0.1,
    penalty: str = "l0",
    placeholder: str = "learned",
    learning_rate: float = 3e-3,
    placeholder_learning_rate: float = 1e-3,
    multiplier_learning_rate: float = 0.1,
    warmup_steps: int = 100,
    valid_constraint: float = 0.8,
    valid_agreement: float = 0.75,
) -> dict[str, list]:
    """The probability, by trained gates, that a token is let through; 0..1, one reading a text.

    A gate z in 0..1 of each token is made of the model's own states by a small network that was trained once for all texts:
    h becomes z h + (1 - z) b, b a learned placeholder, and as few gates are open as keep KL(p || p masked) near `margin`
    nats. What is scored is P(z > 0), the score of the authors' code; nothing is drawn. So a token is scored without a look
    at what the model says of this text without it: an explanation that is learnt may be wrong of a text unlike those it was
    learnt on, and the log of the training says how far the model, masked, was from what it says.

    Markers, padding and a second text that is not attended to are never masked; places that hold several input positions
    (sentences) are masked whole. kind "inputs": the embeddings are masked, layer l's gates see (h_0, h_l), gates of layers
    0..l are multiplied. kind "states": the states of layer l are masked by gates of these states alone ("other states").

    gates: the file of trained gates. All other options are of the training that a run does for itself, where `gates` is not
    given: see `_gate_training.Settings`. Batches, margin and bounds are the authors'; what differs, so that the outcome does
    not hang on rounding, `_gate_training.train_gates` says. The gates' learning rate is ten times theirs, for far fewer
    steps.

    The seed has no part in this; that of the run draws the training.

    Raises ValueError as `check` does, FileError for a file that holds no gates, and ValueError where there are none.

    Source: De Cao et al. 2020, section 2.
    """
    if gates is None:
        check_model(subject, None)
    trained = _loaded(str(gates), Path(gates).stat().st_mtime_ns if Path(gates).is_file() else 0, str(subject.device))
    states, mask = states_of(subject, batch), subject.attendable(batch)
    layers = log_open(trained.logits(states, range(len(states))))
    layers = (layers.cumsum(2) if trained.kind == "inputs" else layers).exp()
    scores = layers[:, :, -1] if trained.kind == "inputs" else layers.mean(2)
    per_layer = [ragged(layers[:, :, layer].cpu(), mask.cpu()) for layer in range(layers.shape[2])]
    return {
        "importance_diffmask": ragged(scores.cpu(), mask.cpu()),
        "diffmask_layers": [np.stack(rows) for rows in zip(*per_layer, strict=True)],
    }


@functools.lru_cache(maxsize=4)
def _loaded(path: str, changed: int, device: str):
    """The gates of a file, as it was when it was `changed`; kept, for a measurement asks batch by batch."""
    return load_gates(path, torch.device(device))


def train(subject, rows, validation, path: str | Path, *, seed: int = 0, say: Callable = print, **settings) -> Path:
    """Train gates of a subject on encoded texts (`Subject.rows`) and write them to a safetensors file; returns its path.

    The log, one row an epoch and layer with divergence, multiplier, open gates and kept classes, is written beside it, its
    name ending in .csv. Killed, the same call goes on after the last whole epoch, from a file that ends in .part. settings:
    fields of `_gate_training.Settings`; the texts are all used. The file holds the digest of the model, the settings, and
    the number of texts. Raises SubjectError for a subject that lacks what gates need, ValueError as `check` and
    `_gate_training.train_gates` do.
    """
    check(**settings)
    made = Settings(**settings)
    require(subject, NEEDS | ({"other states"} if made.kind == "states" else frozenset()), "diffmask")
    path = Path(path)
    about = {"model": subject.digest(), "settings": asdict(made), "seed": seed, "texts": [len(rows), len(validation)]}
    of = [*about.values(), digest_data(rows), digest_data(validation), attnfaith.__version__]
    state = State(path.with_suffix(".part"), _short(json.dumps(of).encode()))
    trained = train_gates(subject, rows, validation, made, seed, say, state)
    write_atomically(path.with_suffix(".csv"), trained.log_csv)
    save_gates(trained.gates, path, about)
    state.remove()
    return path


def pending(*, gates: str | None = None, **training) -> bool:
    """Whether gates have still to be trained: a run does so by `prepare`."""
    return gates is None


def prepare(subject, splits: Callable, folder: Path, *, seed: int = 0, gates: str | None = None, **settings) -> dict:
    """The options of `measure` for a run: the gates in its folder, trained if they are not there.

    splits: (name, most) -> at most so many encoded texts of a split. The file is named by what made it: model, settings,
    seed, texts and code; so other settings train other gates, and the same find these.
    """
    made = Settings(**settings)
    some, validation = splits("train", made.train_texts), splits("validation", made.validation_texts)
    named = [subject.digest(), asdict(made), seed, digest_data(some), digest_data(validation)]
    named.append(attnfaith.__version__)
    path = Path(folder) / FOLDER / f"{_short(json.dumps(named).encode())}.safetensors"
    if not path.is_file():
        train(subject, some, validation, path, seed=seed, **asdict(made))
    return {"gates": str(path)}


def stated(*, gates: str | None = None, **training) -> dict:
    """The options as a record keeps them: the digest of the gates, and how they were trained."""
    if gates is None:
        return training
    return {"gates": _short(Path(gates).read_bytes()), **about_gates(gates)["settings"]}


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
