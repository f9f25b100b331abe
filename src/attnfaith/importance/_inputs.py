"""What the gradient measures share: inputs that gradients can be taken of."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from attnfaith.models.modeling_attention_classifier import Encoded


@contextmanager
def without_parameters(model) -> Iterator[None]:
    """Within, no parameter requires a gradient: only what is made to."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


@contextmanager
def differentiable_inputs(model, batch) -> Iterator[tuple[torch.Tensor, Encoded]]:
    """Embeddings (B,L,E) that require a gradient and what the encoder makes of them; the parameters do not.

    cuDNN refuses a backward pass through an LSTM in eval mode, and train mode would turn dropout on, so cuDNN is off here.
    """
    with without_parameters(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embedded = model.get_input_embeddings()(batch["input_ids"]).requires_grad_()
        encoded = model.encode(
            inputs_embeds=embedded,
            attention_mask=batch["attention_mask"],
            token_type_ids=batch.get("token_type_ids"),
            items=items(model, batch),
            answer_mask=batch.get("answer_mask"),
        )
        yield embedded, encoded


def attended(model, batch) -> tuple[Encoded, torch.Tensor]:
    """What the encoder makes of a batch, and attention (B,T); taken from where a measurement has put them."""
    with torch.no_grad():
        encoded = batch.get("encoded")
        if encoded is None:
            encoded = model.encode(**text_inputs(batch), answer_mask=batch.get("answer_mask"))
        return encoded, batch["attention"] if "attention" in batch else model.attend(*encoded)


def text_inputs(batch) -> dict[str, torch.Tensor | None]:
    """What says which text an instance is, as `model.encode` and `model.items` take it."""
    return {name: batch.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}


def token_counts(model, batch) -> list[int]:
    """The number T of attendable tokens of each instance."""
    return model.attendable(**text_inputs(batch)).sum(1).tolist()


def items(model, batch) -> torch.Tensor | None:
    """(B,L): the item of attention that an input position is part of, -1 for none; None where each token is its own."""
    if model.level == "token":
        return None
    return model.items(**text_inputs(batch))


def item_sums(values: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    """Values (B,L) of input positions, summed over those of each item: (B,T). Of tokens that are items as they are."""
    if items is None:
        return values
    sums = values.new_zeros(len(values), max(1, int(items.max()) + 1) + 1)
    return sums.scatter_add(1, items + 1, values)[:, 1:]  # column 0 takes what belongs to no item


def item_norms(vectors: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    """Vectors (B,L,E) of input positions to the length (B,T) of all that belong to an item, taken as one vector."""
    norms = vectors.norm(dim=-1)
    return norms if items is None else item_sums(norms.double().square(), items).sqrt()


def gradients(output: torch.Tensor, inputs: list[torch.Tensor], last: bool = True) -> list[torch.Tensor]:
    """d sum(output) / d input for each input; zero for one that output does not depend on (an empty text).

    last=False keeps what the encoding needs for the gradients of a further output.
    """
    needed = [value for value in inputs if value.requires_grad]
    if not output.requires_grad or not needed:
        return [torch.zeros_like(value) for value in inputs]
    found = iter(torch.autograd.grad(output.sum(), needed, allow_unused=True, retain_graph=not last))
    slopes = [next(found) if value.requires_grad else None for value in inputs]
    return [torch.zeros_like(value) if slope is None else slope for slope, value in zip(slopes, inputs, strict=True)]


def log_odds(logits: torch.Tensor) -> torch.Tensor:
    """(B,) in float64: log(p / (1 - p)) of the predicted class from logits (B,C), exact where p rounds to 1.

    The logit of the predicted class minus the log-sum-exp of the others; with two classes the difference of logits.
    """
    logits = logits.double()
    predicted = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, predicted, -float("inf")).logsumexp(-1)
    return logits.gather(-1, predicted).squeeze(-1) - others
