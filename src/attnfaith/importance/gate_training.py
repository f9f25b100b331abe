"""The training of DiffMask's gates: as few open as may be, while the model predicts nearly what it predicted.

Shapes: B instances, T places of attention, C classes, S layers.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from attnfaith.escaping import csv_text
from attnfaith.files import write_atomically
from attnfaith.importance.gates import Gates, log_open, sampled, states_of
from attnfaith.importance.inputs import differentiable
from attnfaith.measurement.options import Count, Natural, Positive, number
from attnfaith.subjects import Subject


EVERY, STEP = 6, 0.5
"""Lookahead: after so many updates, this far from where the last such look ended to where they led."""
FIRST_MULTIPLIER, LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.3, 1e-4, 200.0
BELOW, ABOVE = -1.0, 4.0
"""How far, in nats, a divergence below or above the margin moves a multiplier at most."""
NUMBERS = ("constraint", "multiplier", "open", "agreement")
VALIDATION = ("validation_constraint", "validation_open", "validation_agreement")
LOG = ("epoch", "layer", "steps", *NUMBERS, *VALIDATION, "chosen")
FORMAT = "attnfaith training of gates 3"

Share = number("a number from 0 to 1", ge=0, le=1)


@dataclass(frozen=True)
class Settings:
    """How gates are trained.

    margin: the divergence KL(p || p masked), in nats, up to which a mask is free. penalty: what is made small, "l0": the
    mean over tokens of P(gate open), as in the authors' paper; "log": of log P(gate open), as in their code. The slope of
    the latter grows without bound as a gate shuts: gates that once shut together stay so, and whether they do may hang on
    rounding. placeholder: of what is masked, "learned" or "zeros". A learned one may come to stand for a class, whose texts
    then need no token. multiplier_learning_rate: by how much the logarithm of a multiplier rises for each nat above the
    margin. valid_constraint, valid_agreement: the best epoch is that with the fewest open gates among those that, on the
    validation texts, diverge by no more than this and keep the predicted class of this share; the last where none does.
    """

    kind: Literal["inputs", "states"] = "inputs"
    train_texts: Count = 2000
    validation_texts: Count = 500
    epochs: Count = 30
    batch_size: Count = 64
    margin: Positive = 0.1
    penalty: Literal["l0", "log"] = "l0"
    placeholder: Literal["learned", "zeros"] = "learned"
    learning_rate: Positive = 3e-3
    placeholder_learning_rate: Positive = 1e-3
    multiplier_learning_rate: Positive = 0.1
    warmup_steps: Natural = 100
    valid_constraint: Positive = 0.8
    valid_agreement: Share = 0.75


class Lookahead:
    """An optimizer whose parameters go, every EVERY steps, only STEP of the way back to where they went.

    Source: Zhang et al. 2019.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer, self.steps = optimizer, 0
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.slow = [parameter.detach().clone() for parameter in self.parameters]

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        if self.steps % EVERY == 0:
            with torch.no_grad():
                for slow, fast in zip(self.slow, self.parameters, strict=True):
                    slow.lerp_(fast, STEP)
                    fast.copy_(slow)


class Training:
    """What a training of gates changes, epoch by epoch, and the draws that it makes.

    epoch: how many are done. log: one row an epoch and layer, by LOG. best: the share of open gates in the best epoch,
    chosen: its number from 0 on, and chosen_state: its gates; all None where no epoch was valid yet. multipliers (S,): one a
    layer.
    """

    def __init__(self, subject: Subject, batch, settings: Settings, seed: int):
        self.random = np.random.default_rng([seed, 0])
        self.noise = torch.Generator().manual_seed(seed)
        self.gates = Gates.of(subject, batch, settings.kind, seed)
        if settings.placeholder == "zeros":
            for placeholder in self.gates.placeholders:
                placeholder.data.zero_()
        self.multipliers = torch.full((len(self.gates.sizes),), FIRST_MULTIPLIER, device=subject.device)
        groups = [{"params": list(self.gates.gates.parameters()), "lr": settings.learning_rate}]
        if settings.placeholder == "learned":
            groups.append({"params": list(self.gates.placeholders.parameters()), "lr": settings.placeholder_learning_rate})
        self.rates, self.warmup_steps = [group["lr"] for group in groups], settings.warmup_steps
        self.multiplier_rate = settings.multiplier_learning_rate
        self.optimizer = Lookahead(torch.optim.Adam(groups))
        self.epoch, self.log = 0, []
        self.best, self.chosen, self.chosen_state = None, None, None
        self.set_rate()

    def set_rate(self) -> None:
        """The gates' rates rise in equal steps over the first updates."""
        share = min(1.0, (self.optimizer.steps + 1) / max(1, self.warmup_steps))
        for group, rate in zip(self.optimizer.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share

    def step(self, layer: int, above: float) -> None:
        """One update of gates, by the slopes that are there, and of a layer's multiplier, by how far the divergence is
        above the margin.
        """
        self.optimizer.step()
        self.set_rate()
        self.multipliers[layer] *= math.exp(self.multiplier_rate * min(max(above, BELOW), ABOVE))
        self.multipliers.clamp_(LEAST_MULTIPLIER, MOST_MULTIPLIER)

    @property
    def log_csv(self) -> str:
        rows = [[f"{row[key]:.6g}" if isinstance(row[key], float) else row[key] for key in LOG] for row in self.log]
        return csv_text([LOG, *rows])

    def choose(self, open_share: float) -> None:
        """Take the gates as they are for the best so far."""
        self.best, self.chosen = open_share, self.epoch
        self.chosen_state = {name: value.clone() for name, value in self.gates.state_dict().items()}


@dataclass(frozen=True)
class State:
    """A training of gates in a file: killed, it goes on from there to the same gates.

    identity: what the training is made of, model, settings, seed and texts; a file of another training is not read.
    """

    path: Path
    identity: str

    def write(self, training: Training) -> None:
        """Write a training as it stands after an epoch: whole, or as it was before."""
        optimizer = training.optimizer
        fields = {"epoch": training.epoch, "log": training.log, "best": training.best, "chosen": training.chosen}
        fields |= {"steps": optimizer.steps, "random": training.random.bit_generator.state}
        fields |= {"format": FORMAT, "identity": self.identity}
        tensors = {
            "multipliers": training.multipliers,
            "noise": training.noise.get_state(),
            **{f"gates.{name}": values for name, values in training.gates.state_dict().items()},
            **{f"chosen.{name}": values for name, values in (training.chosen_state or {}).items()},
            **{f"slow.{index}": values for index, values in enumerate(optimizer.slow)},
        }
        for index, moments in optimizer.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": values for name, values in moments.items()}
        tensors = {name: values.detach().cpu().contiguous().clone() for name, values in tensors.items()}
        write_atomically(self.path, save(tensors, {"attnfaith": json.dumps(fields)}))

    @torch.no_grad()
    def read(self, training: Training) -> bool:
        """Bring a fresh training to where the file says that it stood; False, and nothing is done, where there is no such
        file, it cannot be read, or is of another training.
        """
        try:
            with safe_open(self.path, "pt") as file:
                fields = json.loads((file.metadata() or {})["attnfaith"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (OSError, SafetensorError, KeyError, ValueError):
            return False
        if fields.get("format") != FORMAT or fields["identity"] != self.identity:
            return False
        training.gates.load_state_dict(_below("gates.", tensors))
        training.multipliers.copy_(tensors["multipliers"])
        training.noise.set_state(tensors["noise"])
        training.random.bit_generator.state = fields["random"]
        training.epoch, training.log = fields["epoch"], fields["log"]
        training.best, training.chosen = fields["best"], fields["chosen"]
        training.chosen_state = _below("chosen.", tensors) or None
        optimizer, adam = training.optimizer, training.optimizer.optimizer.state_dict()
        optimizer.steps = fields["steps"]
        for index, slow in enumerate(optimizer.slow):
            slow.copy_(tensors[f"slow.{index}"])
            if moments := _below(f"adam.{index}.", tensors):  # of a layer that was never drawn there are none
                adam["state"][index] = moments
        optimizer.optimizer.load_state_dict(adam)
        training.set_rate()
        return True

    def remove(self) -> None:
        """The training is done."""
        self.path.unlink(missing_ok=True)


def _below(start: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(start): values for name, values in tensors.items() if name.startswith(start)}


def train_gates(
    subject: Subject, rows, validation, settings: Settings, seed: int, say=lambda line: None, state: State | None = None
) -> Training:
    """Train gates of a subject on encoded texts, and return them with the log; the subject stays as it was.

    Each step draws a layer l and reads a batch: with gates z drawn for each token, loss = m_l (KL(p || p masked) - margin) +
    penalty, in which m_l > 0, the layer's multiplier, goes up that loss while the gates go down it. rows, validation: data
    sets as the subject's `rows` makes them; texts without tokens are left out. say: called with a line about every epoch.
    state: where the training is written after each epoch, and goes on from.

    Three things differ from the authors' code, without which the outcome hung on the seed and on the rounding of the
    processor: gates stayed open, or all shut for good. The penalty is that of their paper ("l0", see `Settings`). Gates go
    down by Adam, not by centred RMSprop, which divides by the spread of slopes: a difference of nearly equal numbers while
    gates hardly move. A multiplier goes up as exp(rate (KL - margin)) (Rezende & Viola 2018, algorithm 1), in proportion to
    how far the divergence is off, and falls slowly below the margin; steps of one size overshoot, to 0 and to where a few
    masked words drive all gates open.

    The same arguments on the same machine give the same gates, stopped on the way or not: batches, layers and gates are
    drawn from streams of the seed. Raises ValueError where no text has a token, and where gates or multiplier stop being
    numbers.

    Source: De Cao et al. 2020, sections 2.2, 2.3 and appendix; bounds and Lookahead as in their code.
    """
    rows, validation = (_with_tokens(part) for part in (rows, validation))
    with differentiable(subject), subject.evaluating():
        training = Training(subject, subject.collate(rows.select([0]).to_list()), settings, seed)
        if state is not None and state.read(training):
            say(f"diffmask goes on after epoch {training.epoch} of {settings.epochs}")
        logits, validation_logits = {}, {}  # of whole texts, which no epoch changes
        while training.epoch < settings.epochs:
            sums, steps = _epoch(subject, rows, training, settings, logits)
            means = _validate(subject, training.gates, validation, settings, seed, validation_logits)
            valid = means[0] <= settings.valid_constraint and means[2] >= settings.valid_agreement
            if valid and (training.best is None or means[1] < training.best):
                training.choose(means[1])
            training.log += _epoch_log(training, sums, steps, means)
            say(_line(training, settings, sums, steps, means))
            training.epoch += 1
            if state is not None:
                state.write(training)
    last = settings.epochs - 1
    if training.chosen is None:
        say("no epoch met valid_constraint and valid_agreement on the validation texts: the last one is kept")
    else:
        training.gates.load_state_dict(training.chosen_state)
        last = training.chosen
    for row in training.log:
        row["chosen"] = int(row["epoch"] == last + 1)
    training.gates.eval()
    return training


def _epoch(subject: Subject, rows, training: Training, settings: Settings, logits: dict) -> tuple[np.ndarray, np.ndarray]:
    """One pass over the texts: the sums (S,N) of NUMBERS by layer, and how often each layer (S,) was drawn."""
    count = len(training.gates.sizes)
    sums, steps = np.zeros((count, len(NUMBERS))), np.zeros(count, int)
    for batch in _batches(subject, rows, training.random.permutation(len(rows)), settings.batch_size):
        layer = int(training.random.integers(count))
        masked = _mask(subject, training.gates, batch, layer, training.noise, logits)
        penalty = (masked.log_open if settings.penalty == "log" else masked.open).mean()
        (training.multipliers[layer] * (masked.divergence.mean() - settings.margin) + penalty).backward()
        training.step(layer, float(masked.divergence.detach().mean()) - settings.margin)
        values = (masked.divergence, training.multipliers[layer], masked.open, masked.same)
        numbers = [float(value.detach().mean()) for value in values]
        if not all(map(math.isfinite, numbers)):
            raise ValueError(
                f"the training of gates diverged in epoch {training.epoch + 1}, layer {layer} (divergence {numbers[0]:g}, "
                f"multiplier {numbers[1]:g}): lower learning_rate or multiplier_learning_rate"
            )
        sums[layer] += numbers
        steps[layer] += 1
    return sums, steps


def _with_tokens(rows):
    chosen = [number for number, tokens in enumerate(rows["tokens"]) if len(tokens)]
    if not chosen:
        raise ValueError("no text of a split has a token that gates could be trained on")
    return rows.select(chosen)


def _batches(subject: Subject, rows, order: np.ndarray, size: int) -> Iterator:
    for start in range(0, len(order), size):
        yield subject.collate(rows.select(order[start : start + size].tolist()).to_list())


class Masked(NamedTuple):
    """What a mask does to each instance (B,)."""

    divergence: torch.Tensor  # KL(p || p masked) in nats
    log_open: torch.Tensor  # the mean over its tokens of log P(open)
    open: torch.Tensor  # the mean of P(open)
    same: torch.Tensor  # 1 where the predicted class stays, else 0


def _mask(subject: Subject, gates: Gates, batch, layer: int, noise: torch.Generator, logits: dict) -> Masked:
    """Mask a batch at a layer by gates that are drawn. logits: of whole texts by instance, filled as they are read."""
    states, mask = states_of(subject, batch), subject.attendable(batch)
    whole = _whole_logits(subject, batch, logits)
    gate_logits = gates.logits(states, gates.layers_of(layer))
    uniform = torch.rand(gate_logits.shape, generator=noise, dtype=torch.float32).clamp(1e-6, 1 - 1e-6)
    drawn = sampled(gate_logits, uniform.to(gate_logits.device)).prod(2)
    opened = log_open(gate_logits).sum(2)
    masked = gates.masked(subject, batch, layer, states, drawn).float()
    tokens = mask.sum(1)
    means = [torch.where(mask, values, 0.0).sum(1) / tokens for values in (opened, opened.exp())]
    return Masked(divergence(whole, masked), *means, (whole.argmax(1) == masked.argmax(1)).float())


@torch.no_grad()
def _whole_logits(subject: Subject, batch, logits: dict[str, torch.Tensor]) -> torch.Tensor:
    names = batch["instance_id"]
    if any(name not in logits for name in names):
        logits.update(zip(names, subject.predict(batch).float(), strict=True))
    return torch.stack([logits[name] for name in names])


def divergence(whole: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats (B,), 0 or more, of logits (B,C); classes that both bar, by -inf, count nothing."""
    barred = torch.isneginf(whole) & torch.isneginf(masked)
    log_p, log_q = (logits.log_softmax(1).masked_fill(barred, 0.0) for logits in (whole, masked))
    return (log_p.exp().masked_fill(barred, 0.0) * (log_p - log_q)).sum(1)


@torch.no_grad()
def _validate(subject: Subject, gates: Gates, rows, settings: Settings, seed: int, logits: dict) -> list[float]:
    """Means of divergence, open gates and kept classes at the last layer, with gates drawn the same each time."""
    noise, last = torch.Generator().manual_seed(seed), len(gates.sizes) - 1
    batches = _batches(subject, rows, np.arange(len(rows)), settings.batch_size)
    masked = [_mask(subject, gates, batch, last, noise, logits) for batch in batches]
    return [float(torch.cat([getattr(part, name) for part in masked]).mean()) for name in ("divergence", "open", "same")]


def _epoch_log(training: Training, sums: np.ndarray, steps: np.ndarray, means: list[float]) -> list[dict]:
    rows = []
    for layer, (count, total) in enumerate(zip(steps.tolist(), sums, strict=True)):
        averages = total / count if count else np.full(len(NUMBERS), np.nan)
        row = {"epoch": training.epoch + 1, "layer": layer, "steps": count}
        row |= dict(zip(NUMBERS, averages.tolist(), strict=True))
        row |= {"multiplier": training.multipliers[layer].item(), **dict(zip(VALIDATION, means, strict=True))}
        rows.append(row)
    return rows


def _line(training: Training, settings: Settings, sums: np.ndarray, steps: np.ndarray, means: list[float]) -> str:
    kl, _, opened, same = sums.sum(0) / max(1, steps.sum())
    multipliers = training.multipliers.tolist()
    return (
        f"diffmask epoch {training.epoch + 1}/{settings.epochs}: divergence {kl:.3f} (margin {settings.margin:g}), "
        f"multiplier {min(multipliers):.3g} to {max(multipliers):.3g}, gates open {opened:.1%}, same class {same:.1%}; "
        f"validation, last layer: {means[0]:.3f}, {means[1]:.1%}, {means[2]:.1%}"
    )
