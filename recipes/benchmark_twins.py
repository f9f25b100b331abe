"""Naive twins of the models, and what the papers' scripts do with them: what `benchmark.py` times its steps beside.

Shapes: B instances, T tokens, H hidden, K draws.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from attnfaith.models.encoders import OrthogonalLSTM


def bidirectional(one, other):
    """One bidirectional layer with the weights of two that read onward and backward."""
    kind = {"LSTM": nn.LSTM, "GRU": nn.GRU}[one.mode]
    layer = kind(one.input_size, one.hidden_size, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for name, parameter in one.named_parameters():
            getattr(layer, name).copy_(parameter)
            getattr(layer, f"{name}_reverse").copy_(getattr(other, name))
    return layer


def packed_states(layer, embedded, lengths):
    packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(layer(packed)[0], batch_first=True)[0]


class NaiveTwin(nn.Module):
    """The same function with the same weights, as the papers' scripts compute it."""

    def __init__(self, model):
        super().__init__()
        inner = model.model
        self.embeddings, self.alignment, self.output = inner.embeddings, inner.alignment, model.decoder.context
        self.lstm = bidirectional(*inner.encoder.directions)

    def states(self, embedded, lengths):
        return packed_states(self.lstm, embedded, lengths)

    def attend(self, hidden, lengths, question=None):
        scores = self.alignment(hidden, question)
        positions = torch.arange(hidden.shape[1])
        hide = (positions == 0) | (positions >= lengths[:, None] - 1)
        return scores.masked_fill(hide, -torch.inf).softmax(-1)

    def forward(self, ids, lengths):
        hidden = self.states(self.embeddings(ids), lengths)
        return self.output((self.attend(hidden, lengths)[..., None] * hidden).sum(1))


class NaivePairTwin(NaiveTwin):
    """The same for a story and the state of a question about it."""

    def __init__(self, model):
        super().__init__(model)
        self.question_lstm, self.output = bidirectional(*model.model.query_encoder.directions), model.decoder

    def read_question(self, ids):
        """(B,H): the ends of both directions over questions (B,T) of one length."""
        return torch.cat([*self.question_lstm(self.embeddings(ids))[1][0]], -1)

    def forward(self, ids, lengths, question):
        hidden = self.states(self.embeddings(ids), lengths)
        return self.output((self.attend(hidden, lengths, question)[..., None] * hidden).sum(1), question)


class NaiveDocumentTwin(nn.Module):
    """The same for documents of sentences, one document after another."""

    def __init__(self, model):
        super().__init__()
        inner, reader = model.model, model.model.sentence_reader
        self.embeddings, self.output = inner.embeddings, model.decoder
        self.word_gru, self.word_alignment = bidirectional(*reader.word_encoder.directions), reader.word_alignment
        self.sentence_gru, self.alignment = bidirectional(*inner.encoder.directions), inner.alignment

    def read(self, sentences):
        """Logits (1,C) of a document, a list of ids (W,)."""
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        states = packed_states(self.word_gru, self.embeddings(pad_sequence(sentences, batch_first=True)), lengths)
        beyond = torch.arange(states.shape[1]) >= lengths[:, None]
        weights = self.word_alignment(states).masked_fill(beyond, -torch.inf).softmax(-1)
        hidden = self.sentence_gru((weights[..., None] * states).sum(1)[None])[0]
        return self.output((self.alignment(hidden).softmax(-1)[..., None] * hidden).sum(1))

    def forward(self, documents):
        return torch.cat([self.read(sentences) for sentences in documents])


class NaiveOnwardTwin(NaiveTwin):
    """The same for an LSTM that reads onward, cell by cell; orthogonal: each state less its part along the mean before."""

    def __init__(self, model):
        nn.Module.__init__(self)
        inner = model.model
        self.embeddings, self.alignment, self.output = inner.embeddings, inner.alignment, model.decoder.context
        (layer,) = inner.encoder.directions
        self.orthogonal = isinstance(layer, OrthogonalLSTM)
        self.cell = nn.LSTMCell(layer.input_size, layer.hidden_size)
        self.cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})

    def states(self, embedded, lengths):
        state = memory = embedded.new_zeros(len(embedded), self.cell.hidden_size)
        states = []
        for token in embedded.unbind(1):
            state, memory = self.cell(token, (state, memory))
            if self.orthogonal and states:
                mean = torch.stack(states, 1).mean(1)
                share = (state * mean).sum(1, keepdim=True) / ((mean * mean).sum(1, keepdim=True) + 1e-6)
                state = state - share * mean
            states.append(state)
        return torch.stack(states, 1)


def naive_gradient(twin, ids, lengths):
    twin.zero_grad()
    embedded = twin.embeddings(ids)
    embedded.retain_grad()
    hidden = twin.states(embedded, lengths)
    logits = twin.output((twin.attend(hidden, lengths).detach()[..., None] * hidden).sum(1))
    logits.softmax(-1).amax(-1).sum().backward()
    return (embedded * embedded.grad).sum(-1).abs().detach()


def naive_hidden_to_input(twin, ids, lengths):
    """||d ||h_p|| / d x_i|| (B,T,T) of the inner tokens, without the gradients of weights that a script would make, too."""
    embedded = twin.embeddings(ids).detach().requires_grad_()
    norms = twin.states(embedded, lengths)[:, 1:-1].norm(dim=-1).sum(0)
    slopes = [torch.autograd.grad(length, embedded, retain_graph=True)[0] for length in norms]
    return torch.stack([slope[:, 1:-1].norm(dim=-1) for slope in slopes], 1)


@torch.no_grad()
def naive_leave_one_out(twin, ids, lengths, *question):
    probs = twin(ids, lengths, *question).softmax(-1)
    distances = torch.zeros(ids.shape)
    for position in range(1, ids.shape[1] - 1):
        rows = (lengths > position + 1).nonzero().squeeze(1)  # shorter texts have no such word
        without = torch.cat([ids[rows, :position], ids[rows, position + 1 :]], 1)
        changed = twin(without, lengths[rows] - 1, *(state[rows] for state in question)).softmax(-1)
        distances[rows, position] = (changed - probs[rows]).abs().sum(-1) / 2
    return distances


@torch.no_grad()
def naive_leave_one_out_sentences(twin, documents):
    """One tensor (S,) per document: every sentence deleted, the rest read again from its words on."""
    distances = []
    for sentences in documents:
        probs = twin.read(sentences).softmax(-1)
        shorter = [sentences[:place] + sentences[place + 1 :] for place in range(len(sentences))]
        changed = torch.cat([twin.read(rest) for rest in shorter]).softmax(-1)
        distances.append((changed - probs).abs().sum(-1) / 2)
    return distances


def naive_leave_one_out_hidden(twin, ids, lengths):
    hidden = twin.states(twin.embeddings(ids), lengths)
    attention = twin.attend(hidden, lengths)
    probs = twin.output((attention[..., None] * hidden).sum(1)).softmax(-1)
    distances = torch.zeros(ids.shape)
    for position in range(1, ids.shape[1] - 1):
        weights = attention.clone()
        weights[:, position] = 0
        weights = weights / weights.sum(-1, keepdim=True)
        changed = twin.output((weights[..., None] * hidden).sum(1)).softmax(-1)
        distances[:, position] = (changed - probs).abs().sum(-1).detach() / 2
    return distances


@torch.no_grad()
def naive_permutation(twin, hidden, attention, orders):
    """Probabilities (B,K,C): one pass of the decoder over whole states for each of K orders (B,K,T) of the inner weights."""
    probs = []
    for draw in range(orders.shape[1]):
        weights = torch.zeros_like(attention)
        weights[:, 1:-1] = attention[:, 1:-1].gather(1, orders[:, draw])
        probs.append(twin.output((weights[..., None] * hidden).sum(1)).softmax(-1))
    return torch.stack(probs, 1)


@torch.no_grad()
def drawn_naively(twin, hidden, lengths, rng, draws=100):
    """The same as the papers' scripts do it: attention computed and each text shuffled anew for every draw."""
    for _ in range(draws):
        attention = twin.attend(hidden, lengths)
        orders = np.stack([rng.permutation(int(length) - 2) for length in lengths])
        naive_permutation(twin, hidden, attention, torch.from_numpy(orders[:, None]))


def naive_adversary(twin, hidden, attention, noise, steps=500):
    """Jain & Wallace's search over whole states from log-weights (B,K,T) of the inner tokens: attentions, p of class 1."""
    states, own = hidden[:, 1:-1].detach(), attention[:, None, 1:-1].detach()
    p = twin.output(own @ states).softmax(-1)[..., 1].detach()
    weights = noise.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.01, amsgrad=True)

    def divergence(x, y):
        middle = (x + y) / 2
        return sum((part * ((part + 1e-10).log() - (middle + 1e-10).log())).sum(-1) for part in (x, y)) / 2

    for _ in range(steps):
        optimizer.zero_grad()
        attentions = weights.softmax(-1)
        change = (twin.output(attentions @ states).softmax(-1)[..., 1] - p).abs()
        apart = divergence(attentions[:, :, None], attentions[:, None]).mean((1, 2))
        loss = (500 * (change - 0.01).relu() - divergence(attentions, own)).sum(1) - apart
        loss.sum().backward()
        optimizer.step()
    attentions = weights.softmax(-1).detach()
    return attentions, twin.output(attentions @ states).softmax(-1)[..., 1].detach()


@torch.no_grad()
def naive_erasure(twin, hidden, attention, order):
    """Weights removed in an order (B,T) until the decision changes, one decoder pass each; NaN where it never does."""
    before = twin.output((attention[..., None] * hidden).sum(1)).argmax(-1)
    weights = attention.clone()
    sizes = torch.full((len(weights),), torch.nan)
    rows = torch.arange(len(weights))
    for count, place in enumerate(order.t(), 1):
        weights[rows, place + 1] = 0
        total = weights.sum(-1, keepdim=True)
        left = torch.where(total > 0, weights / total, 0.0)
        changed = twin.output((left[..., None] * hidden).sum(1)).argmax(-1) != before
        sizes[changed & sizes.isnan()] = count
    return sizes


@torch.no_grad()
def naive_minimal_flip_set(twin, hidden, attention):
    """The same in the order that is minimal for two classes: by the evidence for the predicted class, weight for weight."""
    gap = twin.output.weight[1] - twin.output.weight[0], twin.output.bias[1] - twin.output.bias[0]
    margins = attention * (hidden @ gap[0] + gap[1])
    sign = torch.where(margins.sum(1) > 0, 1.0, -1.0)
    order = (margins * sign[:, None])[:, 1:-1].argsort(dim=1, descending=True, stable=True)
    return naive_erasure(twin, hidden, attention, order)
