"""Gates of DiffMask for a model that is no run: trained on texts of one's own, then given to `measure`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.api.texts import Columns, read_texts
from attnfaith.data.sources import draw
from attnfaith.data.tokenization import by_words
from attnfaith.importance.diffmask import DiffMask, train
from attnfaith.loading import open_subject
from attnfaith.subjects.base import plainly
from attnfaith.support.errors import AttnfaithError


if TYPE_CHECKING:
    from datasets import Dataset


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
    level: str = "sentence",
    device=None,
    seed: int = 0,
    progress: bool = True,
    **settings,
) -> Path:
    """Train the gates that the measure `diffmask` needs, and keep them in a safetensors file; returns its path.

    Args:
        model, texts, tokenizer, text, text_pair, level, device: as `attnfaith.measure` takes them. Texts need no
            labels: what is kept is what the model says.
        output: path of the file; beside it, its name ending in .csv, the log: divergence, multiplier, share of open gates
            and of kept classes, by epoch and layer.
        validation: texts by which the best epoch is chosen; None sets a tenth of `texts` apart, at least one.
        seed: of what is drawn: which texts, batches, layers and gates.
        progress: say each epoch in a line.
        settings: of the training, the options of `diffmask` (`attnfaith.measures()`) but for `gates`.

    Then `attnfaith.measure(model, others, measures=["diffmask"], options={"diffmask": {"gates": output}})`. Give it other
    texts than those the gates were trained on.

    Raises AttnfaithError for what is not as said here, before any work.
    """
    try:
        training = DiffMask(**settings)
    except (TypeError, ValueError) as error:
        raise AttnfaithError(f"settings of diffmask: {error}") from error
    subject = open_subject(model, tokenizer=tokenizer, device=device, level=level)

    def encoded(texts) -> "Dataset":
        rows = subject.rows(read_texts(texts, None, Columns(text, text_pair, None), None).dataset)
        return by_words(rows) if subject.level == "word" and "words" in rows.column_names else rows

    rows = encoded(texts)
    if validation is not None:
        others = encoded(validation)
    elif len(rows) < 2:
        raise AttnfaithError(f"{len(rows)} text: give two or more, of which one is set apart, or validation=…")
    else:
        order, apart = np.random.default_rng(seed).permutation(len(rows)), max(1, len(rows) // 10)
        rows, others = rows.select(np.sort(order[apart:])), rows.select(np.sort(order[:apart]))
    rows = rows.select(draw(np.arange(len(rows)), training.train_texts, seed, "train"))
    others = others.select(draw(np.arange(len(others)), training.validation_texts, seed, "validation"))
    say = print if progress else lambda line: None
    try:
        return train(subject, rows, others, Path(output), seed=seed, say=say, **settings)
    except AttnfaithError:
        raise
    except ValueError as error:
        raise AttnfaithError(f"diffmask: {error}") from error
