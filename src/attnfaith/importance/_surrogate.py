"""What the measures share that fit a linear model to a black box: parts of a text in, what is explained out.

Both are captum's; here is what captum is given. Shapes: T items of a text, V parts.
"""

from collections.abc import Callable

import numpy as np
import torch

from attnfaith._parts import ABSENT, read_parts
from attnfaith._random import generator
from attnfaith.importance._captum import captum
from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import attended, token_counts


def check_sampling(target, output: str, samples: int, absent: str, least: int) -> None:
    """Raises ValueError for a target, an output or an absence that there is not, for fewer samples than `least`, and where
    captum is not installed.
    """
    check_target(target, output)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < least:
        raise ValueError(f"samples={samples!r}; give the parts of each text that are read, a whole number from {least} on")
    if absent not in ABSENT:
        raise ValueError(f"absent={absent!r} is not known; choose one of {', '.join(ABSENT)}")
    captum()


def check_sampled_model(model, dataset, target, output: str) -> None:
    """Raises ValueError for a class that the model does not have or an instance may not be given, or without captum."""
    captum()
    check_data(model, dataset, target=target, output=output)


def of_each(
    model, batch, fit: Callable, *, seed: int, purpose: str, target, output: str, absent: str
) -> list[tuple[np.ndarray, float]]:
    """For each instance the scores (T,) in float64 that `fit` gives, and how far their sum is from f(text) - f(nothing).

    fit(f, T) -> scores, f taking parts (V,T) of 0 and 1 to (V,); it draws from torch's generator, which is seeded for each
    instance by (seed, instance id, purpose) and put back. One item has all of the difference, without a fit, and no items
    have no scores: []. NaN where f of the text, of nothing or of a part is not finite.
    """
    (hidden, _, query), attention = attended(model, batch)
    with torch.no_grad():
        f = explaining(model.decode(hidden, attention, query), batch, target, output)
    found = []
    for row, (name, length) in enumerate(zip(batch["instance_id"], token_counts(model, batch), strict=True)):
        if not length:
            found.append((np.zeros(0), 0.0))
            continue
        value = _Value(model, _only(batch, row), f[row : row + 1], absent)
        ends = value(torch.stack([torch.zeros(length), torch.ones(length)]))
        scores = np.diff(ends.numpy())
        if length > 1 and not value.broken:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(generator(seed, name, purpose).integers(2**63)))
                scores = fit(value, length)
        if value.broken:
            scores = np.full(length, np.nan)
        found.append((scores, float(scores.sum() - (ends[1] - ends[0]))))
    return found


class _Value:
    """Parts (V,T) of one text, in 0 and 1, to what is explained of them, (V,) float64; `broken` once one is not finite."""

    def __init__(self, model, batch, f, absent: str):
        self.model, self.batch, self.f, self.absent = model, batch, f, absent
        self.broken = False

    def __call__(self, parts: torch.Tensor) -> torch.Tensor:
        different, number = np.unique(parts.numpy().astype(bool), axis=0, return_inverse=True)
        (logits,) = read_parts(self.model, self.batch, [different], self.absent)
        values = self.f(torch.from_numpy(logits[None]).to(self.model.device))[0].cpu()
        self.broken |= not bool(values.isfinite().all())
        return values.nan_to_num()[number.reshape(-1)]


def _only(batch, row: int) -> dict:
    """The inputs of one instance, without padding."""
    length = int(batch["attention_mask"][row].sum())
    given = {
        name: batch[name][row : row + 1, :length]
        for name in ("input_ids", "attention_mask", "token_type_ids")
        if batch.get(name) is not None
    }
    if batch.get("answer_mask") is not None:
        given["answer_mask"] = batch["answer_mask"][row : row + 1]
    return given
