"""What the gradient measures share: inputs that gradients can be taken of."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from attnfaith.models.modeling_attention_classifier import Encoded


@contextmanager
def differentiable_inputs(model, batch) -> Iterator[tuple[torch.Tensor, Encoded]]:
    """Embeddings (B,L,E) that require a gradient and what the encoder makes of them; the parameters do not.

    cuDNN refuses a backward pass through an LSTM in eval mode, and train mode would turn dropout on, so cuDNN is off here.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            embedded = model.get_input_embeddings()(batch["input_ids"]).requires_grad_()
            encoded = model.encode(
                inputs_embeds=embedded,
                attention_mask=batch["attention_mask"],
                token_type_ids=batch.get("token_type_ids"),
            )
            yield embedded, encoded
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def gradients(output: torch.Tensor, inputs: list[torch.Tensor], last: bool = True) -> list[torch.Tensor]:
    """d sum(output) / d input for each input; zero for one that output does not depend on (an empty text).

    last=False keeps what the encoding needs for the gradients of a further output.
    """
    if not output.requires_grad:
        return [torch.zeros_like(value) for value in inputs]
    found = torch.autograd.grad(output.sum(), inputs, allow_unused=True, retain_graph=not last)
    return [torch.zeros_like(value) if gradient is None else gradient for gradient, value in zip(found, inputs, strict=True)]


def log_odds(logits: torch.Tensor) -> torch.Tensor:
    """(B,) in float64: log(p / (1 - p)) of the predicted class from logits (B,C), exact where p rounds to 1.

    The logit of the predicted class minus the log-sum-exp of the others; with two classes the difference of logits.
    """
    logits = logits.double()
    predicted = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, predicted, -float("inf")).logsumexp(-1)
    return logits.gather(-1, predicted).squeeze(-1) - others
