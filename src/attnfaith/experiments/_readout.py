"""What the experiments share: the read-out as one scalar per token and class, and random draws per instance.

Where logits are affine in attention, those of any attention a are sum_t a_t v_t + b, v_t = W h_t: T x C numbers say all
about what another attention would make the model say, and no state is needed again. Elsewhere, with a decoder that is not
affine or at the word level of a hierarchical model, the model is asked about each attention. Shapes: B instances, T tokens,
C classes.
"""

from dataclasses import dataclass

import numpy as np
import torch

from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.models.queries import answers_of


@dataclass(frozen=True)
class Readout:
    """One instance: attention (T,) float64, summing to 1; values (T,C) and bias (C,) float64, None where logits are
    not affine; probs (C,), the prediction; answers (C,) bool: the classes that it may be given; all over the instance's
    attendable tokens.
    """

    attention: np.ndarray
    values: np.ndarray | None
    bias: np.ndarray | None
    probs: np.ndarray
    answers: np.ndarray

    def logits(self, attention: np.ndarray) -> np.ndarray:
        """Logits (..., C) of attentions (..., T). An attention that is all 0 leaves the bias. Only where affine."""
        return attention @ self.values + self.bias


def encode(model, batch) -> Encoded:
    """The encoder's output for a batch, taken from batch["encoded"] where the measurement has put it there."""
    if "encoded" in batch:
        return batch["encoded"]
    inputs = ("input_ids", "attention_mask", "token_type_ids", "answer_mask")
    return model.encode(**{name: batch.get(name) for name in inputs})


def read_out(model, batch) -> list[Readout]:
    """What an experiment needs of each instance of a batch, in float64 on the CPU.

    In a measurement, whose batch holds `encoded` and `attention`, it is computed once and kept as batch["read_out"] for the
    experiments that follow.
    """
    if "read_out" in batch:
        return batch["read_out"]
    found = _read_out(model, batch)
    if "encoded" in batch:
        batch["read_out"] = found
    return found


@torch.no_grad()
def _read_out(model, batch) -> list[Readout]:
    encoded = encode(model, batch)
    hidden, mask, query = encoded
    attention = batch["attention"] if "attention" in batch else model.attend(*encoded)
    mask = mask.cpu().numpy()
    weights = attention.double().cpu().numpy() * mask
    total = weights.sum(1, keepdims=True)
    # float32 weights sum to 1 within 1e-7; here exactly, so that nothing below depends on that rounding
    weights = np.divide(weights, total, out=weights, where=total > 0)
    if not model.affine:
        probs = model.decode(hidden, attention, query).double().softmax(-1).cpu().numpy()
        rows = zip(weights, mask, probs, _answers(query, probs), strict=True)
        return [Readout(row[keep], None, None, found, possible) for row, keep, found, possible in rows]
    weight, bias = model.decoder_weights(query)
    values = (hidden @ weight.t()).double().cpu().numpy()
    biases = bias.double().expand(len(mask), -1).cpu().numpy()
    probs = softmax((weights[:, None] @ values)[:, 0] + biases)
    return [
        Readout(row[keep], value[keep], shift, found, possible)
        for row, keep, value, shift, found, possible in zip(
            weights, mask, values, biases, probs, _answers(query, probs), strict=True
        )
    ]


def _answers(query, probs: np.ndarray) -> np.ndarray:
    answers = answers_of(query)
    return np.ones(probs.shape, bool) if answers is None else answers.cpu().numpy()


def attended_states(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """States (B,T,H) that attention is over, from hidden (B,L,H) and mask (B,L); 0 behind shorter texts, T at least 1."""
    states = torch.nn.utils.rnn.pad_sequence([row[keep] for row, keep in zip(hidden, mask, strict=True)], batch_first=True)
    return states if states.shape[1] else torch.nn.functional.pad(states, (0, 0, 0, 1))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
