"""Train the gates of DiffMask for a model that is no run, on your own texts."""

import os
from pathlib import Path

import numpy as np

from attnfaith.api.texts import read_texts
from attnfaith.data.sources import draw
from attnfaith.importance.diffmask import DiffMask, train
from attnfaith.loading import open_subject
from attnfaith.measurement.registry import mistake
from attnfaith.subjects.base import plainly
from attnfaith.support.errors import AttnfaithError


@plainly()
def train_gates(
    model,
    texts,
    output: str | os.PathLike,
    *,
    validation=None,
    tokenizer=None,
    text: str = "text",
    text_pair: str | None = None,
    device=None,
    seed: int = 0,
    progress: bool = True,
    **settings,
) -> Path:
    """Train the gates that the measure `diffmask` needs, and keep them in a safetensors file; returns its path.

    Args:
        model, texts, tokenizer, text, text_pair, device: as `attnfaith.measure` takes them. Texts need no
            labels: the gates keep the model's prediction.
        output: path of the file; beside it, its name ending in .csv, the log: divergence, multiplier, share of open gates
            and of kept classes, by epoch and layer.
        validation: texts by which the best epoch is chosen; None sets a tenth of `texts` apart, at least one.
        seed: of the draws of texts, batches, layers and gates.
        progress: say each epoch in a line.
        settings: of the training, the options of `diffmask` (`attnfaith.measures()`) but for `gates`.

    Then measure other texts with `measures=["diffmask"], options={"diffmask": {"gates": output}}`.

    Raises AttnfaithError for arguments other than these, before any work.
    """
    try:
        training = DiffMask(**settings)
    except ValueError as error:
        raise AttnfaithError(f"settings of diffmask: {mistake(error, settings)}") from error
    subject = open_subject(model, tokenizer=tokenizer, device=device)

    def encoded(texts):
        return subject.rows(read_texts(texts, text=text, text_pair=text_pair).dataset)

    rows = encoded(texts)
    if validation is not None:
        held_out = encoded(validation)
    elif len(rows) < 2:
        raise AttnfaithError(f"{len(rows)} text: give two or more, of which one is set apart, or validation=…")
    else:
        order, count = np.random.default_rng(seed).permutation(len(rows)), max(1, len(rows) // 10)
        rows, held_out = rows.select(np.sort(order[count:])), rows.select(np.sort(order[:count]))
    rows = rows.select(draw(np.arange(len(rows)), training.train_texts, seed, "train"))
    held_out = held_out.select(draw(np.arange(len(held_out)), training.validation_texts, seed, "validation"))
    say = print if progress else lambda line: None
    return train(subject, rows, held_out, Path(output), seed=seed, say=say, **settings)
