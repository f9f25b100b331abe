"""The training of DiffMask's gates: as few open as may be, while the model says nearly what it said.

Shapes: B instances, T places of attention, C classes, S layers.
"""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from attnfaith.importance._concrete import log_open, sampled
from attnfaith.importance._gates import Gates, states_of
from attnfaith.importance._inputs import without_parameters
from attnfaith.subjects import Subject


EVERY, STEP = 6, 0.5
"""Lookahead: after so many updates, this far from where the last such look ended to where they led."""
MOST_MULTIPLIER = 200.0
NUMBERS = ("constraint", "multiplier", "open", "agreement")
LOG = ("epoch", "layer", "steps", *NUMBERS, "validation_constraint", "validation_open", "validation_agreement", "chosen")


@dataclass(frozen=True)
class Settings:
    """How gates are trained.

    margin: the divergence KL(p || p masked), in nats, up to which a mask is free. penalty: what is made small, "log": the
    mean over tokens of log P(gate open), as in the authors' code; "l0": of P(gate open), as in their paper. placeholder: of
    what is masked, "learned" or "zeros". A learned one may come to stand for a class, whose texts then need no token.
    valid_constraint, valid_agreement: the epoch that is kept is that with the fewest open gates among those that, on the
    validation texts, diverge by no more than this and keep the predicted class of this share; the last where none does.
    """

    kind: str = "inputs"
    train_texts: int = 2000
    validation_texts: int = 500
    epochs: int = 30
    batch_size: int = 64
    margin: float = 0.1
    penalty: str = "log"
    placeholder: str = "learned"
    learning_rate: float = 3e-3
    placeholder_learning_rate: float = 1e-3
    multiplier_learning_rate: float = 0.3
    warmup_steps: int = 100
    valid_constraint: float = 0.8
    valid_agreement: float = 0.75


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
        text = io.StringIO()
        writer = csv.DictWriter(text, LOG, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()} for row in self.log
        )
        return text.getvalue()


def train_gates(subject: Subject, rows, validation, settings: Settings, seed: int, say=lambda line: None) -> Trained:
    """Gates of a subject, trained on encoded texts; the subject stays as it was.

    Each step draws a layer l and looks at a batch: with gates z drawn for each token, loss = m_l (KL(p || p masked) -
    margin) + penalty, in which m_l >= 0, the layer's multiplier, goes up that loss while the gates go down it. rows,
    validation: data sets as the subject's `rows` makes them; texts without tokens are left out. say: told of every epoch in
    a line.

    The same arguments on the same machine give the same gates: batches, layers and gates are drawn from streams of the seed.
    Parameters of the subject take no gradient. Raises ValueError where no text has a token, and where gates or multiplier
    stop being numbers.

    Source: De Cao et al. 2020, sections 2.2, 2.3 and appendix; optimisers, bounds, start and penalty as in their code.
    """
    random = np.random.default_rng([seed, 0])
    noise = torch.Generator().manual_seed(seed)
    rows, validation = (_with_tokens(part) for part in (rows, validation))
    with without_parameters(subject), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), subject.evaluating():
        gates = Gates.of(subject, subject.collate(rows.select([0]).to_list()), settings.kind, seed)
        if settings.placeholder == "zeros":
            for one in gates.placeholders:
                one.data.zero_()
        count = len(gates.sizes)
        multipliers = [torch.nn.Parameter(torch.ones((), device=subject.device)) for _ in range(count)]
        masks, ascent, schedule = _optimizers(gates, multipliers, settings)
        log, best, chosen = [], None, None
        known, known_validation = {}, {}  # what the model says of each text, which no epoch changes
        for epoch in range(settings.epochs):
            sums = np.zeros((count, len(NUMBERS)))
            steps = np.zeros(count, int)
            for batch in _batches(subject, rows, random.permutation(len(rows)), settings.batch_size):
                layer = int(random.integers(count))
                kl, log_kept, kept, same = _look(subject, gates, batch, layer, noise, known)
                penalty = (log_kept if settings.penalty == "log" else kept).mean()
                (multipliers[layer] * (kl.mean() - settings.margin) + penalty).backward()
                masks.step()
                schedule.step()
                multipliers[layer].grad.neg_()
                ascent.step()
                for one in multipliers:
                    one.data.clamp_(0, MOST_MULTIPLIER)
                said = [float(value.detach().mean()) for value in (kl, multipliers[layer], kept, same)]
                if not all(map(math.isfinite, said)):
                    raise ValueError(
                        f"the training of gates diverged in epoch {epoch + 1}, layer {layer} (divergence {said[0]:g}, "
                        f"multiplier {said[1]:g}): lower learning_rate or multiplier_learning_rate"
                    )
                sums[layer] += said
                steps[layer] += 1
            seen = _validate(subject, gates, validation, settings, seed, known_validation)
            valid = seen[0] <= settings.valid_constraint and seen[2] >= settings.valid_agreement
            if valid and (best is None or seen[1] < best):
                best, chosen = seen[1], (epoch, {name: value.clone() for name, value in gates.state_dict().items()})
            log += _epoch_log(epoch, steps, sums, multipliers, seen)
            say(_line(epoch, settings, sums, steps, multipliers, seen))
    if chosen is None:
        say("no epoch met valid_constraint and valid_agreement on the validation texts: the last one is kept")
    else:
        gates.load_state_dict(chosen[1])
    last = settings.epochs - 1 if chosen is None else chosen[0]
    for row in log:
        row["chosen"] = int(row["epoch"] == last + 1)
    return Trained(gates.eval(), log)


def _with_tokens(rows):
    some = [number for number, tokens in enumerate(rows["tokens"]) if len(tokens)]
    if not some:
        raise ValueError("no text of a split has a token that gates could be trained on")
    return rows.select(some)


def _optimizers(gates: Gates, multipliers, settings: Settings):
    groups = [{"params": list(gates.gates.parameters()), "lr": settings.learning_rate}]
    if settings.placeholder == "learned":
        groups.append({"params": list(gates.placeholders.parameters()), "lr": settings.placeholder_learning_rate})
    masks = torch.optim.RMSprop(groups, centered=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(masks, lambda step: min(1.0, (step + 1) / max(1, settings.warmup_steps)))
    ascent = torch.optim.RMSprop(multipliers, lr=settings.multiplier_learning_rate)
    return Lookahead(masks), Lookahead(ascent), schedule


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
    uniform = torch.rand(logits.shape, generator=noise).clamp(1e-6, 1 - 1e-6).to(logits.device)
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
