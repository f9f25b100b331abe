"""What the measures share that fit a linear model to a black box: parts of a text in, what is explained out.

Both are captum's; here is what captum is given. Shapes: T items of a text, V parts.
"""

from collections.abc import Callable

import numpy as np
import torch

from attnfaith.draws import default_dtype, drawing, generator
from attnfaith.importance._captum import captum
from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import token_counts
from attnfaith.subjects import require, whole_logits
from attnfaith.subjects.removal import ABSENT, read_parts


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


def check_sampled_model(subject, dataset, target, output: str, absent: str, who: str) -> None:
    """Raises ValueError for a class that the subject does not have or an instance may not be given, for an absence that it
    cannot read, and without captum.
    """
    captum()
    require(subject, {ABSENT[absent]}, f"{who} with absent='{absent}'")
    check_data(subject, dataset, target=target, output=output)


def of_each(
    subject, batch, fit: Callable, *, seed: int, purpose: str, target, output: str, absent: str
) -> list[tuple[np.ndarray, float]]:
    """For each instance the scores (T,) in float64 that `fit` gives, and how far their sum is from f(text) - f(nothing).

    fit(f, T) -> scores, f taking parts (V,T) of 0 and 1 to (V,); it draws from torch's generator, which is seeded for each
    instance by (seed, instance id, purpose) and put back, in float32. One item has all of the difference, without a fit,
    and no items have no scores: []. NaN where f of the text, of nothing or of a part is not finite.
    """
    with torch.no_grad():
        f = explaining(whole_logits(subject, batch), batch, target, output)
    fits = []
    for row, (name, length) in enumerate(zip(batch["instance_id"], token_counts(subject, batch), strict=True)):
        if not length:
            fits.append((np.zeros(0), 0.0))
            continue
        value = _Value(subject, batch.alone(row), f[row : row + 1], absent)
        ends = value(torch.stack([torch.zeros(length), torch.ones(length)]))
        scores = np.diff(ends.numpy())
        if length > 1 and not value.broken:
            with drawing(int(generator(seed, name, purpose).integers(2**63))):
                scores = fit(value, length)
        if value.broken:
            scores = np.full(length, np.nan)
        fits.append((scores, float(scores.sum() - (ends[1] - ends[0]))))
    return fits


class _Value:
    """Parts (V,T) of one text, in 0 and 1, to what is explained of them, (V,) float64; `broken` once one is not finite."""

    def __init__(self, subject, batch, f, absent: str):
        self.subject, self.batch, self.f, self.absent = subject, batch, f, absent
        self.broken, self.dtype = False, torch.get_default_dtype()

    def __call__(self, parts: torch.Tensor) -> torch.Tensor:
        different, number = np.unique(parts.numpy().astype(bool), axis=0, return_inverse=True)
        with default_dtype(self.dtype):
            (logits,) = read_parts(self.subject, self.batch, [different], self.absent)
        values = self.f(torch.from_numpy(logits[None]).to(self.subject.device))[0].cpu()
        self.broken |= not bool(values.isfinite().all())
        return values.nan_to_num()[number.reshape(-1)]
