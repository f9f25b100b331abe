"""A model of transformers that reads given embeddings in place of those of its tokens. Shapes: B instances, L positions."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def embedding(model, ids: torch.Tensor, embedded: torch.Tensor) -> Iterator[None]:
    """Within, the table of tokens gives these embeddings for these ids, also where a decoder reads them one place later.

    A model may have the table several times, over the same weights, each time with a factor of its own (BART).
    """

    def given(module, args, output):
        asked, values = args[0], embedded * (getattr(module, "embed_scale", 1.0) / getattr(table, "embed_scale", 1.0))
        if asked.shape != ids.shape and asked.shape == ids.T.shape and torch.equal(asked, ids.T):
            return values.to(output.dtype).transpose(0, 1)
        if asked.shape != ids.shape:
            return output
        if torch.equal(asked, ids):
            return values.to(output.dtype)
        if torch.equal(asked[:, 1:], ids[:, :-1]):
            return torch.cat([output[:, :1], values[:, :-1].to(output.dtype)], 1)
        return output

    table = model.get_input_embeddings()
    tables = [one for one in model.modules() if isinstance(one, torch.nn.Embedding) and one.weight is table.weight]
    handles = [one.register_forward_hook(given) for one in tables or [table]]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
