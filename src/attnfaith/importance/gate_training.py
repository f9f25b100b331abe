"""The training of DiffMask's gates: as few open as may be, while the model says nearly what it said.

Shapes: B instances, T places of attention, C classes, S layers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from attnfaith.escaping import csv_text
from attnfaith.importance.gate_state import State
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
LOG = ("epoch", "layer", "steps", *NUMBERS, "validation_constraint", "validation_open", "validation_agreement", "chosen")


Share = number("a number from 0 to 1", ge=0, le=1)


@dataclass(frozen=True)
class Settings:
    """How gates are trained.

    margin: the divergence KL(p || p masked), in nats, up to which a mask is free. penalty: what is made small, "l0": the
    mean over tokens of P(gate open), as in the authors' paper; "log": of log P(gate open), as in their code. The slope of
    the latter grows without bound as a gate shuts: gates that once shut together stay so, and whether they do may hang on
    rounding. placeholder: of what is masked, "learned" or "zeros". A learned one may come to stand for a class, whose texts
    then need no token. multiplier_learning_rate: by how much the logarithm of a multiplier rises for each nat above the
    margin.
    valid_constraint, valid_agreement: the epoch that is kept is that with the fewest open gates among those that, on the
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
        self.parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self.slow = [one.detach().clone() for one in self.parameters]

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        if self.steps % EVERY == 0:
            with torch.no_grad():
                for slow, fast in zip(self.slow, self.parameters, strict=True):
                    slow.lerp_(fast, STEP)
                    fast.copy_(slow)


@dataclass(frozen=True)
class Trained:
    """Gates, and the log of their training: one row an epoch and layer, by LOG."""

    gates: Gates
    log: list[dict]

    @property
    def log_csv(self) -> str:
        return csv_text(
            [LOG, *([f"{row[key]:.6g}" if isinstance(row[key], float) else row[key] for key in LOG] for row in self.log)]
        )


class Training:
    """What a training of gates changes, epoch by epoch, and the draws that it makes.

    epoch: how many are done. chosen: the number of the epoch that is kept, from 0 on, with its share of open gates in `best`
    and its gates in chosen_state; all None where none was valid yet. multipliers (S,): one a layer.
    """

    def __init__(self, subject: Subject, batch, settings: Settings, seed: int):
        self.random = np.random.default_rng([seed, 0])
        self.noise = torch.Generator().manual_seed(seed)
        self.gates = Gates.of(subject, batch, settings.kind, seed)
        if settings.placeholder == "zeros":
            for one in self.gates.placeholders:
                one.data.zero_()
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

    def keep(self, open_share: float) -> None:
        """Take the gates as they are for the best so far."""
        self.best, self.chosen = open_share, self.epoch
        self.chosen_state = {name: value.clone() for name, value in self.gates.state_dict().items()}


def train_gates(
    subject: Subject, rows, validation, settings: Settings, seed: int, say=lambda line: None, state: State | None = None
) -> Trained:
    """Gates of a subject, trained on encoded texts; the subject stays as it was.

    Each step draws a layer l and looks at a batch: with gates z drawn for each token, loss = m_l (KL(p || p masked) -
    margin) + penalty, in which m_l > 0, the layer's multiplier, goes up that loss while the gates go down it. rows,
    validation: data sets as the subject's `rows` makes them; texts without tokens are left out. say: told of every epoch in
    a line. state: where the training is kept after each epoch, and goes on from.

    Three things differ from the authors' code, without which the outcome hung on the seed and on the rounding of the
    processor: gates stayed open, or all shut for good. The penalty is that of their paper ("l0", see `Settings`). Gates go
    down by Adam, not by centred RMSprop, which divides by the spread of slopes: a difference of nearly equal numbers while
    gates hardly move. A multiplier goes up as exp(rate (KL - margin)) (Rezende & Viola 2018, algorithm 1), in proportion to
    how far the divergence is off, and falls slowly below the margin; steps of one size overshoot, to 0 and to where a few
    masked words drive all gates open.

    The same arguments on the same machine give the same gates, stopped on the way or not: batches, layers and gates are
    drawn from streams of the seed. Parameters of the subject take no gradient. Raises ValueError where no text has a token,
    and where gates or multiplier stop being numbers.

    Source: De Cao et al. 2020, sections 2.2, 2.3 and appendix; bounds and Lookahead as in their code.
    """
    rows, validation = (_with_tokens(part) for part in (rows, validation))
    with differentiable(subject), subject.evaluating():
        made = Training(subject, subject.collate(rows.select([0]).to_list()), settings, seed)
        if state is not None and state.read(made):
            say(f"diffmask goes on after epoch {made.epoch} of {settings.epochs}")
        known, known_validation = {}, {}  # what the model says of each text, which no epoch changes
        while made.epoch < settings.epochs:
            sums, steps = _epoch(subject, rows, made, settings, known)
            seen = _validate(subject, made.gates, validation, settings, seed, known_validation)
            valid = seen[0] <= settings.valid_constraint and seen[2] >= settings.valid_agreement
            if valid and (made.best is None or seen[1] < made.best):
                made.keep(seen[1])
            made.log += _epoch_log(made.epoch, steps, sums, made.multipliers, seen)
            say(_line(made.epoch, settings, sums, steps, made.multipliers, seen))
            made.epoch += 1
            if state is not None:
                state.write(made)
    if made.chosen is None:
        say("no epoch met valid_constraint and valid_agreement on the validation texts: the last one is kept")
    else:
        made.gates.load_state_dict(made.chosen_state)
    last = settings.epochs - 1 if made.chosen is None else made.chosen
    log = [{**row, "chosen": int(row["epoch"] == last + 1)} for row in made.log]
    return Trained(made.gates.eval(), log)


def _epoch(subject: Subject, rows, made: Training, settings: Settings, known: dict) -> tuple[np.ndarray, np.ndarray]:
    """One pass over the texts: the sums (S,N) of NUMBERS by layer, and how often each layer (S,) was drawn."""
    count = len(made.gates.sizes)
    sums, steps = np.zeros((count, len(NUMBERS))), np.zeros(count, int)
    for batch in _batches(subject, rows, made.random.permutation(len(rows)), settings.batch_size):
        layer = int(made.random.integers(count))
        kl, log_kept, kept, same = _look(subject, made.gates, batch, layer, made.noise, known)
        penalty = (log_kept if settings.penalty == "log" else kept).mean()
        (made.multipliers[layer] * (kl.mean() - settings.margin) + penalty).backward()
        made.step(layer, float(kl.detach().mean()) - settings.margin)
        said = [float(value.detach().mean()) for value in (kl, made.multipliers[layer], kept, same)]
        if not all(map(math.isfinite, said)):
            raise ValueError(
                f"the training of gates diverged in epoch {made.epoch + 1}, layer {layer} (divergence {said[0]:g}, "
                f"multiplier {said[1]:g}): lower learning_rate or multiplier_learning_rate"
            )
        sums[layer] += said
        steps[layer] += 1
    return sums, steps


def _with_tokens(rows):
    some = [number for number, tokens in enumerate(rows["tokens"]) if len(tokens)]
    if not some:
        raise ValueError("no text of a split has a token that gates could be trained on")
    return rows.select(some)


def _batches(subject: Subject, rows, order: np.ndarray, size: int) -> Iterator:
    for start in range(0, len(order), size):
        yield subject.collate(rows.select(order[start : start + size].tolist()).to_list())


def _look(subject: Subject, gates: Gates, batch, layer: int, noise: torch.Generator, known: dict[str, torch.Tensor]):
    """Of each instance (B,): KL(p || p masked) at a layer; the means over its tokens of log P(open) and of P(open); and
    whether the predicted class stays.
    """
    states, mask = states_of(subject, batch), subject.attendable(batch)
    whole = _whole(subject, batch, known)
    logits = gates.logits(states, gates.layers_of(layer))
    uniform = torch.rand(logits.shape, generator=noise, dtype=torch.float32).clamp(1e-6, 1 - 1e-6).to(logits.device)
    drawn = sampled(logits, uniform).prod(2)
    log_kept = log_open(logits).sum(2)
    masked = gates.masked(subject, batch, layer, states, drawn).float()
    tokens = mask.sum(1)
    means = [torch.where(mask, values, 0.0).sum(1) / tokens for values in (log_kept, log_kept.exp())]
    return divergence(whole, masked), *means, (whole.argmax(1) == masked.argmax(1)).float()


@torch.no_grad()
def _whole(subject: Subject, batch, known: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits (B,C) of the texts as they are, computed once of each."""
    names = batch["instance_id"]
    if any(name not in known for name in names):
        known.update(zip(names, subject.predict(batch).float(), strict=True))
    return torch.stack([known[name] for name in names])


def divergence(whole: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats (B,), 0 or more, of logits (B,C); classes that both bar, by -inf, count nothing."""
    barred = torch.isneginf(whole) & torch.isneginf(masked)
    one, other = (logits.log_softmax(1).masked_fill(barred, 0.0) for logits in (whole, masked))
    return (one.exp().masked_fill(barred, 0.0) * (one - other)).sum(1)


@torch.no_grad()
def _validate(
    subject: Subject, gates: Gates, rows, settings: Settings, seed: int, known: dict
) -> tuple[float, float, float]:
    """Means of divergence, open gates and kept classes at the last layer, with gates drawn the same each time."""
    noise = torch.Generator().manual_seed(seed)
    order = np.arange(len(rows))
    looks = [
        (kl, kept, same)
        for batch in _batches(subject, rows, order, settings.batch_size)
        for kl, _, kept, same in [_look(subject, gates, batch, len(gates.sizes) - 1, noise, known)]
    ]
    return tuple(float(torch.cat(part).mean()) for part in zip(*looks, strict=True))


def _epoch_log(epoch: int, steps, sums, multipliers, seen) -> list[dict]:
    rows = []
    for layer, (count, total) in enumerate(zip(steps.tolist(), sums, strict=True)):
        means = dict(zip(NUMBERS, (total / count if count else np.full(len(NUMBERS), np.nan)).tolist(), strict=True))
        means["multiplier"] = multipliers[layer].item()
        rows.append({"epoch": epoch + 1, "layer": layer, "steps": count, **means} | dict(zip(LOG[-4:-1], seen, strict=True)))
    return rows


def _line(epoch: int, settings: Settings, sums, steps, multipliers, seen) -> str:
    kl, _, kept, same = sums.sum(0) / max(1, steps.sum())
    values = [one.item() for one in multipliers]
    return (
        f"diffmask epoch {epoch + 1}/{settings.epochs}: divergence {kl:.3f} (margin {settings.margin:g}), multiplier "
        f"{min(values):.3g} to {max(values):.3g}, gates open {kept:.1%}, same class {same:.1%}; validation, last layer: "
        f"{seen[0]:.3f}, {seen[1]:.1%}, {seen[2]:.1%}"
    )
