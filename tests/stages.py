"""Texts of this package's classifiers read stage by stage: a second route to what measures give."""

import numpy as np
import torch
from scipy.special import softmax


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def inputs_of(batch):
    return {name: batch[name] for name in INPUTS if batch.get(name) is not None}


@torch.no_grad()
def stages(model, batch):
    """The encoded batch, its attention (B,T) and logits (B,C)."""
    encoded = model.encode(**inputs_of(batch))
    attention = model.attend(*encoded)
    return encoded, attention, model.decode(encoded.hidden, attention, encoded.query)


def logits_of(model, batch):
    return stages(model, batch)[2].double()


def embedded_of(model, batch):
    return model.get_input_embeddings()(batch["input_ids"]).detach()


def logits_at(model, batch, embedded, *, attention=None, items=None):
    """Logits (B,C) of embeddings (B,L,E) in place of the ids, with gradients. attention: one to hold; None: its own."""
    inputs = {**inputs_of(batch), "input_ids": None}
    encoded = model.encode(inputs_embeds=embedded, **({} if items is None else {"items": items}), **inputs)
    return model.decode(encoded.hidden, model.attend(*encoded) if attention is None else attention, encoded.query)


class Text:
    """One text of a batch: its states, its attention (T,), and the decoder under any attention over its tokens."""

    @torch.no_grad()
    def __init__(self, model, batch, row=0):
        hidden, mask, query = model.encode(**inputs_of(batch))
        self.model, self.hidden, self.mask = model, hidden[row, None], mask[row, None]
        self.query = None if query is None else query[row, None]
        self.places = mask[row].nonzero().squeeze(1).tolist()
        self.attention = self._attended(self.mask)

    def _attended(self, mask):
        return self.model.attend(self.hidden, mask, self.query)[0, self.places].double().numpy()

    def __len__(self):
        return len(self.places)

    @property
    def states(self):
        return self.hidden[0, self.places].double().numpy()

    @torch.no_grad()
    def logits(self, weights):
        """(K,C) under attentions (K,T) over its tokens, or (C,) under one."""
        weights = np.asarray(weights)
        spread = torch.zeros(1, *weights.shape[:-1], self.mask.shape[1], dtype=self.hidden.dtype)
        spread[..., self.places] = torch.from_numpy(weights).to(spread)
        return self.model.decode(self.hidden, spread, self.query)[0].double().numpy()

    def probs(self, weights):
        return softmax(self.logits(weights), -1)

    def without(self, removed):
        """Its attention with these tokens at 0, renormalised."""
        left = self.attention.copy()
        left[removed] = 0
        return left / left.sum() if left.sum() > 0 else left

    @torch.no_grad()
    def reprojected(self, removed):
        """The attention of the model when it may not attend to these tokens."""
        mask = self.mask.clone()
        mask[0, [self.places[token] for token in removed]] = False
        return self._attended(mask)

    def first_flip(self, order, attend):
        """How many of the first tokens of an order must go until the decision changes; NaN where it never does."""
        own = self.logits(self.attention).argmax()
        sizes = (size for size in range(1, len(order) + 1) if self.logits(attend(order[:size])).argmax() != own)
        return next(sizes, np.nan)
