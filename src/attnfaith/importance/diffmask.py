"""DiffMask (De Cao et al. 2020): which tokens a trained gate lets through while the model says nearly the same."""

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

import attnfaith
from attnfaith.data.fingerprint import digest_data
from attnfaith.files import write_atomically
from attnfaith.importance.columns import per_token, score
from attnfaith.importance.gate_training import Settings, State, train_gates
from attnfaith.importance.gates import about_gates, load_gates, log_open, save_gates, states_of
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column, ragged
from attnfaith.subjects import SubjectError, require


FOLDER = "gates"
"""Where a run keeps what it trained."""
GatesFile = Annotated[
    Annotated[str, Field(min_length=1)] | None,
    Field(description="the path of a file of gates, or None for those of a run"),
]


@register
class DiffMask(Settings, Measure):
    """DiffMask (De Cao et al. 2020): which tokens a trained gate lets through while the model says nearly the same.

    A gate z in 0..1 of each token is made of the model's own states by a small network that was trained once for all texts:
    h becomes z h + (1 - z) b, b a learned placeholder, and as few gates are open as keep KL(p || p masked) near `margin`
    nats. What is scored is P(z > 0), the score of the authors' code; nothing is drawn. So a token is scored without a look
    at what the model predicts for this text without it: an explanation that is learnt may be wrong of a text unlike those it
    was learnt on, and the log of the training says how far the model, masked, was from its prediction.

    kind "inputs": the embeddings are masked, layer l's gates see (h_0, h_l), gates of layers 0..l are multiplied. kind
    "states": the states of layer l are masked by gates of these states alone ("other states").

    gates: the file of trained gates. All other options are of the training that a run does for itself, where `gates` is not
    given: see `gate_training.Settings`. Batches, margin and bounds are the authors'; what differs, so that the outcome does
    not hang on rounding, `gate_training.train_gates` says. The gates' learning rate is ten times theirs, for far fewer
    steps. The run's seed draws the training. Raises FileError for a file that holds no gates.

    Source: De Cao et al. 2020, section 2.
    """

    name, cost = "diffmask", "reading"
    needs = frozenset({"classes", "embeddings", "token states"})
    columns = {
        "importance_diffmask": score(
            "probability that trained gates leave a token open, so that its embedding is not wholly replaced (kind inputs, "
            "gates of all layers multiplied), or the share of layers at which they leave its state open (kind states); "
            "markers, padding and a second text that is not attended to are never masked, a sentence is masked whole",
            range=(0.0, 1.0),
            words="largest",
            unit="probability",
        ),
        "diffmask_layers": Column(
            ("S", "T"),
            range=(0.0, 1.0),
            unit="probability",
            doc="that gates are open by layer, 0 the embeddings: those of layers 0..l multiplied (kind inputs), or that of "
            "layer l (kind states)",
        ),
    }

    gates: GatesFile = None

    def __post_init__(self):
        changed = [field.name for field in fields(Settings) if getattr(self, field.name) != field.default]
        if self.gates is not None and changed:
            raise ValueError(
                f"gates={self.gates!r} are trained, and {', '.join(changed)} of their training given: leave out either"
            )

    @property
    def settings(self) -> Settings:
        """How gates are trained."""
        return Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})

    def check(self, subject, dataset) -> None:
        """Raise ValueError without gates and for a file that holds none; SubjectError for gates of another model, and for
        gates of states where the subject cannot predict from other states than its own.
        """
        if self.gates is None:
            raise ValueError(
                "gates=None, and gates have to be trained: a run trains its own (attnfaith measure RUN --add diffmask); for "
                "another model attnfaith.train_gates(model, texts, PATH), and options={'diffmask': {'gates': PATH}}"
            )
        about = about_gates(self.gates)
        if about["kind"] == "states":
            require(subject, {"other states"}, "diffmask of kind 'states'")
        if hasattr(subject, "digest") and about["model"] != subject.digest():
            raise SubjectError(
                f"the gates in {self.gates} were trained for another model (digest {about['model'][:12]}, here "
                f"{subject.digest()[:12]}): train gates of this one"
            )

    @property
    def is_trained(self) -> bool:
        """Whether gates are given: a run trains its own by `prepare`."""
        return self.gates is not None

    def prepare(self, subject, splits: Callable, folder: Path, *, seed: int) -> "DiffMask":
        """Return the measure with the gates in a run's folder, trained if they are not there.

        The file is named by what made it (`_identity`): other settings train other gates, the same settings use these.
        """
        rows, validation = splits("train", self.train_texts), splits("validation", self.validation_texts)
        path = Path(folder) / FOLDER / f"{_identity(subject, self.settings, seed, rows, validation)}.safetensors"
        if not path.is_file():
            train(subject, rows, validation, path, seed=seed, **asdict(self.settings))
        return DiffMask(gates=str(path))

    def stated(self) -> dict:
        """The options as a record keeps them: the digest of the gates, and how they were trained."""
        if self.gates is None:
            return asdict(self.settings)
        return {"gates": _short(Path(self.gates).read_bytes()), **about_gates(self.gates)["settings"]}

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        if self.gates is None:
            self.check(subject, None)
        path = Path(self.gates)
        gates = _loaded(self.gates, path.stat().st_mtime_ns if path.is_file() else 0, str(subject.device))
        states, mask = states_of(subject, batch), subject.attendable(batch)
        layers = log_open(gates.logits(states, range(len(states))))
        layers = (layers.cumsum(2) if gates.kind == "inputs" else layers).exp()
        scores = layers[:, :, -1] if gates.kind == "inputs" else layers.mean(2)
        return {
            "importance_diffmask": per_token(subject, batch, scores),
            "diffmask_layers": [values.T for values in ragged(layers.cpu(), mask.cpu())],
        }


@functools.lru_cache(maxsize=4)
def _loaded(path: str, changed: int, device: str):
    """The gates of a file, as it was when it was `changed`; kept, for a measurement asks batch by batch."""
    return load_gates(path, torch.device(device))


def train(subject, rows, validation, path: str | Path, *, seed: int = 0, say: Callable = print, **settings) -> Path:
    """Train gates of a subject on encoded texts (`Subject.rows`) and write them to a safetensors file; returns its path.

    The log, one row an epoch and layer with divergence, multiplier, open gates and kept classes, is written beside it, its
    name ending in .csv. Killed, the same call goes on after the last whole epoch, from a file that ends in .part. settings:
    fields of `gate_training.Settings`; the texts are all used. The file holds the digest of the model, the settings, and
    the number of texts. Raises SubjectError for a subject that lacks what gates need, ValueError for a setting that is wrong
    and as `gate_training.train_gates` does.
    """
    settings = DiffMask(**settings).settings
    require(subject, DiffMask.needs | ({"other states"} if settings.kind == "states" else frozenset()), "diffmask")
    path = Path(path)
    about = {"model": subject.digest(), "settings": asdict(settings), "seed": seed, "texts": [len(rows), len(validation)]}
    state = State(path.with_suffix(".part"), _identity(subject, settings, seed, rows, validation))
    trained = train_gates(subject, rows, validation, settings, seed, say, state)
    write_atomically(path.with_suffix(".csv"), trained.log_csv)
    save_gates(trained.gates, path, about)
    state.remove()
    return path


def _identity(subject, settings: Settings, seed: int, rows, validation) -> str:
    """A digest of what makes gates: model, settings, seed, texts and the package's version."""
    texts = digest_data(rows), digest_data(validation)
    return _short(json.dumps([subject.digest(), asdict(settings), seed, *texts, attnfaith.__version__]).encode())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
