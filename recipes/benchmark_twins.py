"""Naive twins: models and tests as the papers' scripts have them, which `benchmark.py` times beside the package.

Shapes: B instances, T tokens, H hidden, K draws.
"""

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class NaiveTwin(nn.Module):
    """The same function with the same weights, as the papers' scripts compute it."""

    def __init__(self, model):
        super().__init__()
        inner = model.model
        self.embeddings, self.alignment, self.output = inner.embeddings, inner.alignment, model.decoder.context
        onward, backward = inner.encoder.directions
        self.lstm = nn.LSTM(onward.input_size, onward.hidden_size, batch_first=True, bidirectional=True)
        weights = onward.state_dict() | {f"{name}_reverse": value for name, value in backward.state_dict().items()}
        self.lstm.load_state_dict(weights)

    def states(self, embedded, lengths):
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]

    def attend(self, hidden, lengths):
        scores = self.alignment(hidden)
        positions = torch.arange(hidden.shape[1])
        hide = (positions == 0) | (positions >= lengths[:, None] - 1)
        return scores.masked_fill(hide, -torch.inf).softmax(-1)

    def forward(self, ids, lengths):
        hidden = self.states(self.embeddings(ids), lengths)
        return self.output((self.attend(hidden, lengths)[..., None] * hidden).sum(1))


def gradient(twin, ids, lengths):
    twin.zero_grad()
    embedded = twin.embeddings(ids)
    embedded.retain_grad()
    hidden = twin.states(embedded, lengths)
    logits = twin.output((twin.attend(hidden, lengths).detach()[..., None] * hidden).sum(1))
    logits.softmax(-1).amax(-1).sum().backward()
    return (embedded * embedded.grad).sum(-1).abs().detach()


@torch.no_grad()
def leave_one_out(twin, ids, lengths):
    probs = twin(ids, lengths).softmax(-1)
    distances = torch.zeros(ids.shape)
    for position in range(1, ids.shape[1] - 1):
        rows = (lengths > position + 1).nonzero().squeeze(1)  # shorter texts have no such word
        without = torch.cat([ids[rows, :position], ids[rows, position + 1 :]], 1)
        changed = twin(without, lengths[rows] - 1).softmax(-1)
        distances[rows, position] = (changed - probs[rows]).abs().sum(-1) / 2
    return distances


@torch.no_grad()
def permutation(twin, hidden, attention, orders):
    """Probabilities (B,K,C): one pass of the decoder over whole states for each of K orders (B,K,T) of the inner weights."""
    probs = []
    for draw in range(orders.shape[1]):
        weights = torch.zeros_like(attention)
        weights[:, 1:-1] = attention[:, 1:-1].gather(1, orders[:, draw])
        probs.append(twin.output((weights[..., None] * hidden).sum(1)).softmax(-1))
    return torch.stack(probs, 1)


def adversary(twin, hidden, attention, noise, steps=500, pool=torch.matmul):
    """Jain & Wallace's search over whole states from log-weights (B,K,T) of the inner tokens: attentions, p of class 1.

    pool: what sums the states by weights.
    """
    states, own = hidden[:, 1:-1].detach(), attention[:, None, 1:-1].detach()
    p = twin.output(pool(own, states)).softmax(-1)[..., 1].detach()
    weights = noise.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.01, amsgrad=True)

    def divergence(x, y):
        middle = (x + y) / 2
        return sum((part * ((part + 1e-10).log() - (middle + 1e-10).log())).sum(-1) for part in (x, y)) / 2

    for _ in range(steps):
        optimizer.zero_grad()
        attentions = weights.softmax(-1)
        change = (twin.output(pool(attentions, states)).softmax(-1)[..., 1] - p).abs()
        apart = divergence(attentions[:, :, None], attentions[:, None]).mean((1, 2))
        loss = (500 * (change - 0.01).relu() - divergence(attentions, own)).sum(1) - apart
        loss.sum().backward()
        optimizer.step()
    attentions = weights.softmax(-1).detach()
    return attentions, twin.output(pool(attentions, states)).softmax(-1)[..., 1].detach()


def weighted_sum(attentions, states):
    """Sums (B,K,H) of states by weights (B,K,T), by every product of a weight and a number of a state."""
    return (attentions[..., None] * states[:, None]).sum(2)


@torch.no_grad()
def minimal_flip_set(twin, hidden, attention):
    """Weights removed by their evidence for the predicted of two classes until it changes, one decoder pass each; NaN where
    it never does.
    """
    logits = twin.output((attention[..., None] * hidden).sum(1))
    gap = twin.output.weight[1] - twin.output.weight[0], twin.output.bias[1] - twin.output.bias[0]
    evidence = attention * (hidden @ gap[0] + gap[1]) * (logits[:, 1:] - logits[:, :1]).sign()
    order = evidence[:, 1:-1].argsort(dim=1, descending=True, stable=True)
    weights, sizes, rows = attention.clone(), torch.full((len(attention),), torch.nan), torch.arange(len(attention))
    for count, place in enumerate(order.t(), 1):
        weights[rows, place + 1] = 0
        total = weights.sum(-1, keepdim=True)
        rest = torch.where(total > 0, weights / total, 0.0)
        changed = twin.output((rest[..., None] * hidden).sum(1)).argmax(-1) != logits.argmax(-1)
        sizes[changed & sizes.isnan()] = count
    return sizes


def integrated_gradients(model, ids, rule):
    """Parts (B,L) of the logit of class 1 on the line from zeros between the markers, a pass for each (place, weight)."""
    end = model.get_input_embeddings()(ids).detach()
    start, slope = torch.zeros_like(end), 0
    start[:, [0, -1]] = end[:, [0, -1]]
    for place, weight in rule:
        point = (start + place * (end - start)).detach().requires_grad_()
        slope += weight * torch.autograd.grad(model(inputs_embeds=point).logits[:, 1].sum(), point)[0]
    return ((end - start) * slope).sum(-1)


def suite(twin, ids, lengths, rng, noise):
    """All of Jain & Wallace's tests of one batch without needless work, from the words on; returns nothing."""
    scores = gradient(twin, ids, lengths), leave_one_out(twin, ids, lengths)
    hidden, attention = read(twin, ids, lengths)
    taus(attention, scores)
    permutation(twin, hidden, attention, draw_orders(ids, rng))
    adversary(twin, hidden, attention, noise)
    minimal_flip_set(twin, hidden, attention)


def published_suite(twin, ids, lengths, rng, noise):
    """The same as the published code goes about it (model/Binary_Classification.py, commit 425a89a; no flip set is there).

    Each test reads the texts again; a permutation attends again, one for each order; the adversary pools by
    `weighted_sum`. Gradients with other inputs, and graphs that nothing differentiates, are left out, as in `suite`.
    """
    attention = read(twin, ids, lengths)[1]
    scores = gradient(twin, ids, lengths), leave_one_out(twin, ids, lengths)
    taus(attention, scores)
    hidden = read(twin, ids, lengths)[0]
    for order in draw_orders(ids, rng).split(1, dim=1):
        with torch.no_grad():
            attention = twin.attend(hidden, lengths)
        permutation(twin, hidden, attention, order)
    adversary(twin, *read(twin, ids, lengths), noise, pool=weighted_sum)


@torch.no_grad()
def read(twin, ids, lengths):
    """States (B,T,H) of the texts and attention (B,T) to them."""
    hidden = twin.states(twin.embeddings(ids), lengths)
    return hidden, twin.attend(hidden, lengths)


def taus(attention, scores):
    for each in scores:
        for weights, row in zip(attention, each, strict=True):
            kendalltau(weights[1:-1], row[1:-1])


def draw_orders(ids, rng):
    """100 orders of the inner places of each text: (B,100,T)."""
    inner = ids.shape[1] - 2
    return torch.from_numpy(rng.permuted(np.broadcast_to(np.arange(inner), (len(ids), 100, inner)), axis=2))
