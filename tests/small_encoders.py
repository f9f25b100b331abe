"""Encoders of size 8 with random weights in float64, and texts for them."""

import torch
from torch import nn

from attnfaith.models import AttentionClassifierConfig
from attnfaith.models.encoders import ENCODERS


SIZE = 8  # of embeddings and states
LENGTHS = (7, 1, 4, 9, 2)


def build(name, seed=0, **fields):
    fields = {"embedding_size": SIZE, "hidden_size": SIZE, "intermediate_size": 12, "num_attention_heads": 2, **fields}
    torch.manual_seed(seed)
    encoder = ENCODERS[name](AttentionClassifierConfig(encoder=name, **fields)).double().eval()
    for parameter in encoder.parameters():  # layer norms and biases too: no part may hide behind a 0 or a 1
        nn.init.normal_(parameter, std=0.5)
    return encoder


def texts(lengths=LENGTHS, padding=0.0):
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    embedded = torch.randn(*mask.shape, SIZE, dtype=torch.float64, generator=generator)
    return torch.where(mask[..., None], embedded, padding), mask


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)
