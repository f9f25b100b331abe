"""DiffMask (De Cao et al. 2020): which tokens a trained gate lets through while the model predicts nearly the same.

Gates are binary concrete variables, stretched to (LOW, HIGH) and clamped to 0..1. With s = sigmoid((a + log u - log(1 - u))
/ T), u uniform on (0,1) and a the gate's logit, the gate is z = min(1, max(0, LOW + (HIGH - LOW) s)). So a gate is exactly 0
with a probability above 0, and never exactly 1 (Louizos et al. 2018, section 2.2; bounds: De Cao et al. 2020, section 2.3).

Shapes: B instances, L input positions, T places of attention, C classes, S layers, the embeddings among them, E embedding, H
hidden.
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import attnfaith
from attnfaith.data.fingerprint import digest_data
from attnfaith.importance.gradients import differentiable
from attnfaith.importance.targets import score
from attnfaith.measurement.options import Count, Natural, Positive
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column, ragged
from attnfaith.subjects import Batch, Subject, SubjectError, per_token, require, whole_logits
from attnfaith.support.draws import drawing
from attnfaith.support.errors import FileError, excerpt
from attnfaith.support.files import write_atomically


SPAN, SHIFT = 10.0, 5.0
"""A logit is SPAN tanh(.) + SHIFT: from -5 to 15 at the start, where nearly every gate is open."""
FORMAT = "attnfaith gates 1"
TEMPERATURE, LOW, HIGH = 0.2, -0.2, 1.0
EDGE = TEMPERATURE * math.log(-LOW / HIGH)
"""T log(s / (1 - s)) of the s that is stretched to 0."""
FOLDER = "gates"
"""Where a run keeps what it trained."""
EVERY, STEP = 6, 0.5
"""Lookahead: after so many updates, this far from where the last such look ended to where they led."""
PLACEHOLDER_RATE, MULTIPLIER_RATE = 1e-3, 0.1
FIRST_MULTIPLIER, LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.3, 1e-4, 200.0
BELOW, ABOVE = -1.0, 4.0
"""How far, in nats, a divergence below or above the margin moves a multiplier at most."""
VALID_CONSTRAINT, VALID_AGREEMENT = 0.8, 0.75
"""On the validation texts, the largest divergence and the least share of kept classes of an epoch that may be chosen."""
NUMBERS = ("constraint", "multiplier", "open", "agreement")
VALIDATION = ("validation_constraint", "validation_open", "validation_agreement")
LOG = ("epoch", "layer", "steps", *NUMBERS, *VALIDATION, "chosen")


def sampled(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Gates in 0..1 of logits, from as many draws in (0,1); differentiable in the logits where a gate is not clamped."""
    noise = uniform.log() - torch.log1p(-uniform)
    return (LOW + (HIGH - LOW) * torch.sigmoid((logits + noise) / TEMPERATURE)).clamp(0, 1)


def log_open(logits: torch.Tensor) -> torch.Tensor:
    """log P(z > 0) of gates by their logits: -softplus(T log(-LOW / HIGH) - a), in closed form."""
    return -nn.functional.softplus(EDGE - logits)


class Gate(nn.Sequential):
    """Logits of one layer's gates: two layers with weight norm and a tanh behind each, scaled and shifted."""

    def __init__(self, size: int, width: int):
        super().__init__(weight_norm(nn.Linear(size, width)), nn.Tanh(), weight_norm(nn.Linear(width, 1)), nn.Tanh())
        self.shift = nn.Parameter(torch.tensor(SHIFT))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return SPAN * super().forward(states).squeeze(-1) + self.shift


class Gates(nn.Module):
    """Gates of the places of attention, made of the states of a subject; float32.

    Layer l has a gate of (h_0, h_l), and those of layers 0..l are multiplied. sizes: that of h_0, the embeddings, and of
    each layer's states. width: of the hidden layer. placeholders: one vector, that stands in place of a masked embedding.
    about: facts of the file that they come from. subject: the one that is known to be theirs.
    """

    about: dict[str, Any]
    subject: Subject | None = None

    def __init__(self, sizes: Sequence[int], width: int):
        super().__init__()
        self.sizes, self.width = tuple(sizes), width
        self.gates = nn.ModuleList(Gate(size + sizes[0], width) for size in sizes)
        self.placeholders = nn.ParameterList([nn.Parameter(torch.zeros(sizes[0]))])

    @classmethod
    def of(cls, subject: Subject, batch: Batch, seed: int) -> "Gates":
        """Fresh gates of a subject; batch: any of it. The placeholder is the vector of the mask token, or of the unknown
        word where there is none.
        """
        states = states_of(subject, batch)
        with drawing(seed):
            gates = cls([layer.shape[2] for layer in states], max(32, states[0].shape[2] // 4))
        token = getattr(subject, "mask_token_id", None)
        vector = subject.vocabulary()[subject.unknown_token_id if token is None else token]
        gates.placeholders[0].data.copy_(vector.detach().float())
        return gates.to(subject.device)

    def logits(self, states: Sequence[torch.Tensor], count: int) -> torch.Tensor:
        """Logits (B,T,count) of the gates of the first layers, from the states (B,T,·) of layers 0..S-1."""
        pairs = (torch.cat([states[0], layer], 2) for layer in states[:count])
        return torch.stack([gate(pair) for gate, pair in zip(self.gates, pairs, strict=False)], 2)

    def masked(self, subject: Subject, batch: Batch, gates: torch.Tensor) -> torch.Tensor:
        """Logits (B,C) of a subject where the gates (B,T) let that much of embeddings through."""
        open_share = of_positions(subject, batch, gates).unsqueeze(2)
        embedded = subject.embed(batch).detach()
        return subject.predict(batch, open_share * embedded + (1 - open_share) * self.placeholders[0].to(embedded))


@torch.no_grad()
def states_of(subject: Subject, batch: Batch) -> list[torch.Tensor]:
    """h_0, the embeddings of the places of attention, and the states of each layer: S of (B,T,·), float32, without gradient.

    The embedding of a place that holds several input positions is their mean.
    """
    embedded, items = subject.embed(batch), subject.items(batch)
    if items is not None:
        places = torch.arange(subject.attendable(batch).shape[1], device=items.device)
        belongs = (items.unsqueeze(1) == places[:, None]).to(embedded)
        embedded = belongs @ embedded / belongs.sum(2, keepdim=True).clamp(min=1)
    return [embedded.float(), *(states.float() for states in subject.states_by_layer(batch))]


def of_positions(subject: Subject, batch: Batch, gates: torch.Tensor) -> torch.Tensor:
    """Gates (B,T) as those of input positions (B,L): 1 where a position belongs to no place of attention."""
    items = subject.items(batch)
    if items is None:
        return torch.where(subject.attendable(batch), gates, 1.0)
    return torch.where(items >= 0, gates.gather(1, items.clamp(min=0)), 1.0)


def save_gates(gates: Gates, path: Path, about: dict) -> None:
    """Write gates and facts about them, as JSON can, to a safetensors file that is whole or not there."""
    fields = {"format": FORMAT, "sizes": gates.sizes, "width": gates.width, **about}
    tensors = {name: values.detach().cpu().contiguous() for name, values in gates.state_dict().items()}
    write_atomically(path, save(tensors, {"attnfaith": json.dumps(fields)}))


def load_gates(path: str | Path) -> Gates:
    """The gates of a file, on the CPU, with the facts about them as `about`.

    Raises FileError for a file that is not there, or holds no gates.
    """
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["attnfaith"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        gates = Gates(about["sizes"], about["width"])
        gates.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(
            f"{path} holds no gates that can be read ({excerpt(error)}): give a file that a training of diffmask wrote"
        ) from error
    gates.about = about
    return gates.eval()


@register
class DiffMask(Measure):
    """DiffMask (De Cao et al. 2020): which tokens a trained gate lets through while the model predicts nearly the same.

    A gate z in 0..1 of each token is made of the model's own states by a small network that was trained once for all texts:
    an embedding h becomes z h + (1 - z) b, b a placeholder, and as few gates are open as keep KL(p || p masked) near
    `margin` nats. Layer l's gates see (h_0, h_l), and gates of layers 0..l are multiplied. What is scored is P(z > 0);
    nothing is drawn. No token is scored by what the model predicts without it, so look at the log of the training: how far
    was the masked model from its prediction?

    gates: the file of trained gates. All other options are of the training that a run does for itself without `gates`.
    margin: the divergence, in nats, up to which a mask is free. placeholder: "learned" or "zeros"; a learned one may come to
    stand for a class, whose texts then need no token. The best epoch has the fewest open gates among those that, on the
    validation texts, diverge by at most 0.8 nats and keep three quarters of the predicted classes; it is the last where none
    does. The run's seed draws the training. Raises FileError for a file that holds no gates.

    Source: De Cao et al. 2020, section 2.
    """

    name, cost, needs = "diffmask", "reading", frozenset({"classes", "embeddings", "token states"})
    columns = {
        "importance_diffmask": score(
            "probability that trained gates leave a token open, so that its embedding is not wholly replaced, gates of all "
            "layers multiplied; markers, padding and a second text that is not attended to are never masked, a sentence is "
            "masked whole",
            range=(0.0, 1.0),
            unit="probability",
        ),
        "diffmask_layers": Column(
            ("S", "T"),
            range=(0.0, 1.0),
            unit="probability",
            doc="that gates are open by layer, 0 the embeddings: those of layers 0..l multiplied",
        ),
    }

    train_texts: Count = 2000
    validation_texts: Count = 500
    epochs: Count = 30
    batch_size: Count = 64
    margin: Positive = 0.1
    placeholder: Literal["learned", "zeros"] = "learned"
    learning_rate: Positive = 3e-3
    warmup_steps: Natural = 100
    gates: str | None = None

    def __post_init__(self):
        changed = [name for name, value in self.settings.items() if value != self.options()[name]]
        if self.gates is not None and changed:
            raise ValueError(
                f"gates={self.gates!r} are trained, and {', '.join(changed)} of their training given: leave out either"
            )

    @property
    def settings(self) -> dict[str, object]:
        """How gates are trained: the options but for `gates`."""
        return {name: value for name, value in asdict(self).items() if name != "gates"}

    def check(self, subject, dataset) -> None:
        """Raise ValueError without gates and for a file that holds none, SubjectError for gates of another model."""
        if self.gates is None:
            raise ValueError(
                "gates=None, and gates have to be trained: a run trains its own (attnfaith measure RUN --add diffmask); for "
                "another model attnfaith.train_gates(model, texts, PATH), and options={'diffmask': {'gates': PATH}}"
            )
        if subject is self._trained.subject or not hasattr(subject, "digest"):
            return  # a digest reads all weights, and every batch is checked
        trained, here = self._trained.about["model"], subject.digest()
        if trained != here:
            raise SubjectError(
                f"the gates in {self.gates} were trained for another model (digest {trained[:12]}, here {here[:12]}): "
                "train gates of this one"
            )
        self._trained.subject = subject

    @functools.cached_property
    def _trained(self) -> Gates:
        return load_gates(self.gates)

    @property
    def is_trained(self) -> bool:
        """Whether gates are given: a run trains its own by `prepare`."""
        return self.gates is not None

    def prepare(self, subject, splits: Callable, folder: Path, *, seed: int) -> "DiffMask":
        """Return the measure with the gates in a run's folder, trained if they are not there.

        What made them names the file, so that other settings train other gates.
        """
        rows, validation = splits("train", self.train_texts), splits("validation", self.validation_texts)
        texts = digest_data(rows), digest_data(validation)
        origin = [subject.digest(), self.settings, seed, *texts, attnfaith.__version__]
        path = Path(folder) / FOLDER / f"{_short(json.dumps(origin).encode())}.safetensors"
        if not path.is_file():
            self.train(subject, rows, validation, path, seed=seed)
        return DiffMask(gates=str(path))

    def train(self, subject, rows, validation, path: Path, *, seed: int = 0, say: Callable = print) -> Path:
        """Train gates of a subject on all of the encoded texts (`Subject.rows`), see `train_gates`, and write them to a
        safetensors file; returns its path. The log is written beside it, its name ending in .csv.
        """
        require(subject, self.needs, "diffmask")
        gates, log = train_gates(subject, rows, validation, self, seed, say)
        about = {"model": subject.digest(), "settings": self.settings, "seed": seed, "texts": [len(rows), len(validation)]}
        write_atomically(path.with_suffix(".csv"), log.to_csv(index=False, na_rep="NaN", float_format="%.6g"))
        save_gates(gates, path, about)
        return path

    def stated(self) -> dict:
        """The options as a record keeps them: the digest of the gates, and how they were trained."""
        if self.gates is None:
            return self.settings
        return {"gates": _short(Path(self.gates).read_bytes()), **self._trained.about["settings"]}

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        states, mask = states_of(subject, batch), subject.attendable(batch)
        layers = log_open(self._trained.to(subject.device).logits(states, len(states))).cumsum(2).exp()
        return {
            "importance_diffmask": per_token(subject, batch, layers[:, :, -1]),
            "diffmask_layers": [values.T for values in ragged(layers.cpu(), mask.cpu())],
        }


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def train_gates(
    subject: Subject, rows, validation, measure: DiffMask, seed: int, say=lambda line: None
) -> tuple[Gates, pd.DataFrame]:
    """Train gates of a subject on encoded texts; the subject stays as it was. Return them, and the log: a row an epoch and
    layer, by LOG.

    Each step draws a layer l and reads a batch: with gates z drawn for each token, loss = m_l (KL(p || p masked) - margin) +
    the mean of P(gate open), in which m_l > 0, the layer's multiplier, goes up that loss while the gates go down it. Texts
    without tokens are left out. measure: its options are those of the training. say: called with a line an epoch.

    The authors' code takes log P(gate open), whose slope grows without bound as a gate shuts, and steps of one size for the
    multiplier: gates stayed open, or all shut for good. Here the penalty is that of their paper, the optimiser Adam, and a
    multiplier goes up as exp(rate (KL - margin)) (Rezende & Viola 2018, algorithm 1).

    Raises ValueError where no text has a token, and where gates or multiplier stop being numbers.

    Source: De Cao et al. 2020, sections 2.2, 2.3 and appendix; bounds and Lookahead (Zhang et al. 2019) as in their code.
    """
    rows, validation = _with_tokens(rows), _with_tokens(validation)
    random, noise = np.random.default_rng([seed, 0]), torch.Generator().manual_seed(seed)
    log, fewest, chosen, state = [], math.inf, None, {}
    with differentiable(subject), subject.evaluating():
        gates = Gates.of(subject, subject.collate(rows.select([0]).to_list()), seed)
        groups = [{"params": list(gates.gates.parameters()), "lr": measure.learning_rate}]
        if measure.placeholder == "learned":
            groups.append({"params": list(gates.placeholders.parameters()), "lr": PLACEHOLDER_RATE})
        else:
            gates.placeholders[0].data.zero_()
        optimizer, multipliers = torch.optim.Adam(groups), torch.full((len(gates.sizes),), FIRST_MULTIPLIER)
        warmup = max(1, measure.warmup_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
        parameters = [parameter for group in groups for parameter in group["params"]]
        slow = [parameter.detach().clone() for parameter in parameters]
        for epoch in range(1, measure.epochs + 1):
            steps = []
            for batch in _batches(subject, rows, random.permutation(len(rows)), measure.batch_size):
                layer = int(random.integers(len(gates.sizes)))
                divergence, opened, same = (part.mean() for part in _mask(subject, gates, batch, layer, noise))
                (multipliers[layer].item() * (divergence - measure.margin) + opened).backward()
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                if schedule.last_epoch % EVERY == 0:
                    with torch.no_grad():
                        for earlier, parameter in zip(slow, parameters, strict=True):
                            parameter.copy_(earlier.lerp_(parameter, STEP))
                above = min(max(divergence.item() - measure.margin, BELOW), ABOVE)
                multipliers[layer] *= math.exp(MULTIPLIER_RATE * above)
                multipliers.clamp_(LEAST_MULTIPLIER, MOST_MULTIPLIER)
                steps.append((layer, *(part.item() for part in (divergence, multipliers[layer], opened, same))))
                if not all(map(math.isfinite, steps[-1])):
                    raise ValueError(f"the training of gates diverged in epoch {epoch}, layer {layer}: lower learning_rate")
            means = _validate(subject, gates, validation, measure.batch_size, seed)
            if means[0] <= VALID_CONSTRAINT and means[2] >= VALID_AGREEMENT and means[1] < fewest:
                fewest, chosen = means[1], epoch
                state = {name: value.clone() for name, value in gates.state_dict().items()}
            table = pd.DataFrame(steps, columns=("layer", *NUMBERS))
            by_layer = table.groupby("layer").mean().reindex(range(len(gates.sizes)))
            facts = {"epoch": epoch, "multiplier": multipliers.tolist(), **dict(zip(VALIDATION, means, strict=True))}
            counts = table["layer"].value_counts().reindex(by_layer.index, fill_value=0)
            log.append(by_layer.assign(**facts, steps=counts).reset_index())
            kl, _, opened, same = table[[*NUMBERS]].mean()
            say(
                f"diffmask epoch {epoch}/{measure.epochs}: divergence {kl:.3f} (margin {measure.margin:g}), multiplier "
                f"{multipliers.min():.3g} to {multipliers.max():.3g}, gates open {opened:.1%}, same class {same:.1%}; "
                f"validation, last layer: {means[0]:.3f}, {means[1]:.1%}, {means[2]:.1%}"
            )
    if chosen is None:
        say("no epoch was valid on the validation texts: the last one is kept")
    gates.load_state_dict(state or gates.state_dict())
    table = pd.concat(log, ignore_index=True)
    table["chosen"] = (table["epoch"] == (chosen or measure.epochs)).astype(int)
    return gates.eval(), table[[*LOG]]


def _with_tokens(rows):
    chosen = [number for number, tokens in enumerate(rows["tokens"]) if len(tokens)]
    if not chosen:
        raise ValueError("no text of a split has a token that gates could be trained on")
    return rows.select(chosen)


def _batches(subject: Subject, rows, order: np.ndarray, size: int) -> Iterator:
    for start in range(0, len(order), size):
        yield subject.collate(rows.select(order[start : start + size].tolist()).to_list())


def _mask(subject: Subject, gates: Gates, batch, layer: int, noise: torch.Generator) -> tuple:
    """Mask a batch at a layer by gates that are drawn: of each instance (B,) KL(p || p masked) in nats, the mean over its
    tokens of P(open), and 1 where the predicted class stays.
    """
    mask, whole = subject.attendable(batch), whole_logits(subject, batch).float()
    gate_logits = gates.logits(states_of(subject, batch), layer + 1)
    uniform = torch.rand(gate_logits.shape, generator=noise, dtype=torch.float32).clamp(1e-6, 1 - 1e-6)
    masked = gates.masked(subject, batch, sampled(gate_logits, uniform.to(gate_logits.device)).prod(2)).float()
    opened = torch.where(mask, log_open(gate_logits).sum(2).exp(), 0.0).sum(1) / mask.sum(1)
    return divergence_of(whole, masked), opened, (whole.argmax(1) == masked.argmax(1)).float()


def divergence_of(whole: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats (B,) of logits (B,C)."""
    return nn.functional.kl_div(masked.log_softmax(1), whole.log_softmax(1), reduction="none", log_target=True).sum(1)


@torch.no_grad()
def _validate(subject: Subject, gates: Gates, rows, size: int, seed: int) -> list[float]:
    """Means of divergence, open gates and kept classes at the last layer, with gates drawn the same each time."""
    noise, last = torch.Generator().manual_seed(seed), len(gates.sizes) - 1
    batches = _batches(subject, rows, np.arange(len(rows)), size)
    masked = [_mask(subject, gates, batch, last, noise) for batch in batches]
    return [float(torch.cat(parts).mean()) for parts in zip(*masked, strict=True)]
