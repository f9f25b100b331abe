"""Pooled models read stage by stage, for tests of what interventions give."""

import numpy as np
import torch


def encoded(model, batch):
    return model.encode(**{name: value for name, value in batch.items() if name != "instance_id"})


def attention_of(model, batch, row):
    """Attention (T,) of one text, float64."""
    stages = encoded(model, batch)
    return model.attend(*stages)[row, stages.mask[row]].detach().double().numpy()


def decoded(model, batch, row, weights):
    """Class probabilities (K,C) by the decoder itself, of attentions (K,T) over the tokens of one text."""
    hidden, mask, query = encoded(model, batch)
    attention = torch.zeros(1, len(weights), mask.shape[1], dtype=hidden.dtype)
    attention[0][:, mask[row]] = torch.as_tensor(np.asarray(weights)).to(hidden.dtype)
    logits = model.decode(hidden[row, None], attention, None if query is None else query[row, None])
    return logits[0].detach().double().softmax(-1).numpy()
