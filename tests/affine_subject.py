"""A subject whose attention and values are written down: logits are sum_t a_t v_t + b, exactly."""

import torch

from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.subjects import Batch


class AffineSubject:
    """Attention (B,T), and states that are values of the classes already."""

    kind, device, pad_token_id = "texts of the tests", torch.device("cpu"), None
    can = capabilities = frozenset({"classes", "states", "affine read-out", "intervention"})
    removal_renormalises = True  # as softmax attention's

    def __init__(self, weights, bias):
        self.weights, self.bias = weights, bias

    def attention(self, batch):
        return self.weights

    def attendable(self, batch):
        return batch["encoded"].mask

    def encoded(self, batch):
        return batch["encoded"]

    def decoder_weights(self, query=None):
        return torch.eye(len(self.bias), dtype=torch.float64), self.bias


def affine_texts(texts, bias):
    """The subject and the batch of texts (weights, values), weights in any unit."""
    length = max(1, *(len(weights) for weights, _ in texts))
    attention = torch.zeros(len(texts), length, dtype=torch.float64)
    values = torch.zeros(len(texts), length, len(bias), dtype=torch.float64)
    mask = torch.zeros(len(texts), length, dtype=torch.bool)
    for row, (weights, text_values) in enumerate(texts):
        if len(weights):
            attention[row, : len(weights)] = torch.tensor(weights, dtype=torch.float64) / sum(weights)
            values[row, : len(weights)] = torch.tensor(text_values, dtype=torch.float64)
            mask[row, : len(weights)] = True
    names = [f"t/{row}" for row in range(len(texts))]
    batch = Batch({"input_ids": mask.long(), "encoded": Encoded(values, mask, None), "instance_id": names})
    return AffineSubject(attention, torch.tensor(bias, dtype=torch.float64)), batch
