"""make benchmark: what each step costs, one thread, beside a naive twin in the same run.

The twin does the same computation the way the papers' scripts do it: a packed bidirectional LSTM, one optimiser call per
parameter, texts rebuilt and run again for every deleted token, one backward pass per state whose inputs are asked for, one
decoder pass per removed state, permutation or step of the adversary over whole states, scipy once per text. Both give the
same numbers, which is checked before anything is timed; the exact adversary is held against the naive search, which it must
not fall below. Interventions are timed from the encoder's states and attention on, on either side; one encoding costs what
`evaluation` does, and the values per token that all interventions start from have a row of their own. Figures are CPU time
of this process per text, the median of the repetitions, the two sides taking turns. Training runs on the papers' batches of
32; measuring on the batches that a measurement makes, the twin again on 32.

Pairs and documents of sentences have rows for training and leave-one-out, with sizes and training batches of the recipes
`jain_wallace_2019/babi_qa_3` (50) and `serrano_smith_2019/han_rnn` (64), whose dropout and clipping both sides leave out.
Their texts differ in length. The twin of pairs reads a question once for all deletions of its story. That of HAN reads one
document at a time, its sentences padded, and the whole document again for every deleted sentence.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import kendalltau
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from attnfaith._memory import keep_freed_memory
from attnfaith.data.collation import pad_batch
from attnfaith.experiments import adversary_exact, adversary_search, erasure, minimal_flip_set, permutation
from attnfaith.experiments._readout import read_out
from attnfaith.importance import _removal, gradient, gradient_hidden_to_input, leave_one_out
from attnfaith.importance._fast.removal import without_token
from attnfaith.measurement import BATCH_INSTANCES, BATCH_TOKENS
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.objectives import classification_loss, reduce
from attnfaith.reporting import save_table
from attnfaith.subjects import Batch, subject_of


VOCABULARY, BATCH = 13826, 32  # SST's vocabulary and the papers' batch
STORIES, DOCUMENTS = 50, 64  # the batches of bAbI and of HAN
SMALL = 1e-6  # allowed difference where the values themselves are below .001: an untrained model on long stories
# CPU milliseconds per text of the reference implementation at 20 and 200 tokens, measured apart on the same kind of machine;
# encoding is included in its interventions.
REFERENCE = {
    "training step": (2.0, 24),
    "evaluation": (None, 3),
    "gradient": (0.85, 23),
    "leave-one-out, inputs": (5.5, 625),
    "permutation, 100 draws": (3.0, 28),
    "adversary, search": (19, 324),
    "adversary, exact": (19, 324),  # of the search: there is no other exact one
}


def bidirectional(one, other):
    """One bidirectional layer with the weights of two that read onward and backward."""
    layer = type(one)(one.input_size, one.hidden_size, batch_first=True, bidirectional=True)
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
    found = twin.states(embedded, lengths)[:, 1:-1].norm(dim=-1).sum(0)
    slopes = [torch.autograd.grad(length, embedded, retain_graph=True)[0] for length in found]
    return torch.stack([slope[:, 1:-1].norm(dim=-1) for slope in slopes], 1)


@torch.no_grad()
def naive_leave_one_out(twin, ids, lengths, *question):
    probs = twin(ids, lengths, *question).softmax(-1)
    found = torch.zeros(ids.shape)
    for position in range(1, ids.shape[1] - 1):
        rows = (lengths > position + 1).nonzero().squeeze(1)  # shorter texts have no such word
        without = torch.cat([ids[rows, :position], ids[rows, position + 1 :]], 1)
        changed = twin(without, lengths[rows] - 1, *(state[rows] for state in question)).softmax(-1)
        found[rows, position] = (changed - probs[rows]).abs().sum(-1) / 2
    return found


@torch.no_grad()
def naive_leave_one_out_sentences(twin, documents):
    """One tensor (S,) per document: every sentence deleted, the rest read again from its words on."""
    found = []
    for sentences in documents:
        probs = twin.read(sentences).softmax(-1)
        shorter = [sentences[:place] + sentences[place + 1 :] for place in range(len(sentences))]
        changed = torch.cat([twin.read(rest) for rest in shorter]).softmax(-1)
        found.append((changed - probs).abs().sum(-1) / 2)
    return found


def naive_leave_one_out_hidden(twin, ids, lengths):
    hidden = twin.states(twin.embeddings(ids), lengths)
    attention = twin.attend(hidden, lengths)
    probs = twin.output((attention[..., None] * hidden).sum(1)).softmax(-1)
    found = torch.zeros(ids.shape)
    for position in range(1, ids.shape[1] - 1):
        weights = attention.clone()
        weights[:, position] = 0
        weights = weights / weights.sum(-1, keepdim=True)
        changed = twin.output((weights[..., None] * hidden).sum(1)).softmax(-1)
        found[:, position] = (changed - probs).abs().sum(-1).detach() / 2
    return found


@torch.no_grad()
def naive_permutation(twin, hidden, attention, orders):
    """Probabilities (B,K,C): one pass of the decoder over whole states for each of K orders (B,K,T) of the inner weights."""
    found = []
    for draw in range(orders.shape[1]):
        weights = torch.zeros_like(attention)
        weights[:, 1:-1] = attention[:, 1:-1].gather(1, orders[:, draw])
        found.append(twin.output((weights[..., None] * hidden).sum(1)).softmax(-1))
    return torch.stack(found, 1)


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
        found = weights.softmax(-1)
        change = (twin.output(found @ states).softmax(-1)[..., 1] - p).abs()
        apart = divergence(found[:, :, None], found[:, None]).mean((1, 2))
        loss = (500 * (change - 0.01).relu() - divergence(found, own)).sum(1) - apart
        loss.sum().backward()
        optimizer.step()
    found = weights.softmax(-1).detach()
    return found, twin.output(found @ states).softmax(-1)[..., 1].detach()


@torch.no_grad()
def naive_erasure(twin, hidden, attention, order):
    """Weights removed in an order (B,T) until the decision changes, one decoder pass each; NaN where it never does."""
    before = twin.output((attention[..., None] * hidden).sum(1)).argmax(-1)
    weights = attention.clone()
    found = torch.full((len(weights),), torch.nan)
    rows = torch.arange(len(weights))
    for count, place in enumerate(order.t(), 1):
        weights[rows, place + 1] = 0
        total = weights.sum(-1, keepdim=True)
        left = torch.where(total > 0, weights / total, 0.0)
        changed = twin.output((left[..., None] * hidden).sum(1)).argmax(-1) != before
        found[changed & found.isnan()] = count
    return found


@torch.no_grad()
def naive_minimal_flip_set(twin, hidden, attention):
    """The same in the order that is minimal for two classes: by the evidence for the predicted class, weight for weight."""
    gap = twin.output.weight[1] - twin.output.weight[0], twin.output.bias[1] - twin.output.bias[0]
    margins = attention * (hidden @ gap[0] + gap[1])
    sign = torch.where(margins.sum(1) > 0, 1.0, -1.0)
    order = (margins * sign[:, None])[:, 1:-1].argsort(dim=1, descending=True, stable=True)
    return naive_erasure(twin, hidden, attention, order)


def hidden_leave_one_out(model, batch):
    with torch.no_grad():
        encoded = model.encode(**batch)
        attention = model.attend(*encoded)
        return _removal.without_state(subject_of(model), encoded.hidden, attention).softmax(-1)


@torch.no_grad()
def deletions(model, batch):
    return without_token(model, batch, model.encode(**batch))


def training_step(model, optimizer, forward, labels):
    optimizer.zero_grad()
    reduce(classification_loss(forward(), labels), "sum").backward()
    optimizer.step()


def take_turns(sides, repeats):
    """Median CPU seconds of each of some functions, called in turn after one call each to warm up."""
    for call in sides:
        call()
    spent = [[] for _ in sides]
    for _ in range(repeats):
        for call, times in zip(sides, spent, strict=True):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
    return [statistics.median(times) for times in spent]


def same(ours, theirs, what, within=1e-5):
    difference = max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(ours, theirs, strict=True))
    if not difference <= within:
        raise ValueError(f"{what}: ours and the naive twin differ by {difference:.1e}; nothing was timed")


def same_training(embeddings, ours, theirs, labels, what):
    """Checks what a training step sends all the way back, the gradient of the loss in the word vectors."""
    losses = (reduce(classification_loss(logits, labels), "sum") for logits in (ours, theirs))
    same(*(torch.autograd.grad(loss, embeddings.weight)[0] for loss in losses), what, SMALL)


def optimizers(model, twin):
    """One call for all parameters for the model, one per parameter for the twin."""
    options = {"lr": 1e-3, "weight_decay": 1e-5, "amsgrad": True}
    return (
        torch.optim.Adam(model.parameters(), fused=True, **options),
        torch.optim.Adam(twin.parameters(), foreach=False, **options),
    )


def timed(step, shape, tokens, ours, theirs, texts, twin_texts, repeats):
    """The row of a step: both sides' time per text, for so many texts that a call of each deals with."""
    mine, naive = take_turns((ours, theirs), repeats)
    mine, naive = 1e3 * mine / texts, 1e3 * naive / twin_texts
    row = {
        "step": step,
        "shape": shape,
        "tokens": tokens,
        "texts": texts,
        "naive_twin_texts": twin_texts,
        "ms_per_text": mine,
        "naive_twin_ms_per_text": naive,
        "times_faster": naive / mine,
        "reference_ms_per_text": dict(zip((20, 200), REFERENCE.get(step, (None, None)), strict=True)).get(tokens),
        "repeats": repeats,
    }
    print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{value}" for key, value in row.items()))
    return row


def measure_length(tokens, repeats):
    torch.manual_seed(0)
    model = AttentionClassifierForSequenceClassification(AttentionClassifierConfig(vocab_size=VOCABULARY)).eval()
    twin = NaiveTwin(model).eval()
    texts = BATCH if tokens < 100 else 8
    measured = min(BATCH_INSTANCES, BATCH_TOKENS // (tokens + 2))  # the batches that a measurement makes of such texts
    every = torch.randint(4, VOCABULARY, (measured, tokens + 2))
    large = {"input_ids": every, "attention_mask": torch.ones_like(every)}
    ids = every[:BATCH]
    labels = torch.randint(0, 2, (BATCH,))
    lengths = torch.full((BATCH,), tokens + 2)
    batch = {name: values[:BATCH] for name, values in large.items()}
    few = {name: values[:texts] for name, values in batch.items()}
    inner = slice(1, tokens + 1)

    naive = naive_gradient(twin, ids, lengths)[:, inner]
    same(gradient.measure(model, batch)["importance_gradient"], naive, "gradient")
    made = leave_one_out.measure(model, few)
    naive = naive_leave_one_out(twin, ids[:2], lengths[:2])[:, inner]
    same(made["importance_leave_one_out"][:2], naive, "leave-one-out, inputs")
    naive = naive_leave_one_out_hidden(twin, ids[:2], lengths[:2])[:, inner]
    same(made["importance_leave_one_out_hidden"][:2], naive, "leave-one-out, hidden")
    naive = naive_hidden_to_input(twin, ids[:2], lengths[:2])
    same(gradient_hidden_to_input.sensitivities(model, few)[:2], naive, "gradient of states in inputs")

    with torch.no_grad():
        attention = model(**batch).attention[:, inner].double().numpy()
    scores = np.abs(np.random.default_rng(0).normal(size=attention.shape))
    many = (np.tile(attention, (8, 1)), np.tile(scores, (8, 1)))
    same([kendall_tau(*many)[0]], [[kendalltau(a, b).statistic for a, b in zip(*many, strict=True)]], "Kendall")

    fast, slow = optimizers(model, twin)
    rows = []

    def add(step, ours, theirs, count, times=repeats, own=None):
        rows.append(timed(step, f"{tokens} words", tokens, ours, theirs, own or count, count, times))

    @torch.no_grad()
    def evaluate():
        model(**large)

    add("evaluation", evaluate, lambda: twin(ids, lengths), BATCH, own=measured)
    add("gradient", lambda: gradient.measure(model, large), lambda: naive_gradient(twin, ids, lengths), BATCH, own=measured)
    add(
        "gradient of states in inputs",
        lambda: gradient_hidden_to_input.measure(model, few),
        lambda: naive_hidden_to_input(twin, ids[:texts], lengths[:texts]),
        texts,
        max(3, repeats // 3),
    )
    add(
        "leave-one-out, inputs",
        lambda: without_token(model, {**few, "token_type_ids": None}, model.encode(**few)),
        lambda: naive_leave_one_out(twin, ids[:texts], lengths[:texts]),
        texts,
        max(3, repeats // 3),
    )
    add(
        "leave-one-out, hidden",
        lambda: hidden_leave_one_out(model, large),
        lambda: naive_leave_one_out_hidden(twin, ids, lengths),
        BATCH,
        max(3, repeats // 3),
        measured,
    )
    add(
        "Kendall with p-value",
        lambda: kendall_tau(*many),
        lambda: [kendalltau(a, b) for a, b in zip(*many, strict=True)],
        len(many[0]),
    )
    interventions(model, twin, large, ids, lengths, add, repeats)
    model.train()
    add(
        "training step",
        lambda: training_step(model, fast, lambda: model(**batch).logits, labels),
        lambda: training_step(twin, slow, lambda: twin(ids, lengths), labels),
        BATCH,
    )
    return rows


def between(mean, spread, count):
    """So many numbers from mean - spread to mean + spread, and this range in words."""
    return torch.randint(mean - spread, mean + spread + 1, (count,)).tolist(), f"{mean - spread} to {mean + spread}"


def measured_texts(ids):
    """How many texts a measurement's batch has that are as long as the longest of these (B,L)."""
    return min(len(ids), BATCH_INSTANCES, BATCH_TOKENS // ids.shape[1])


def measure_stories(words, repeats, asked=8):
    """Rows of a model of pairs, on stories of about so many words."""
    torch.manual_seed(0)
    config = AttentionClassifierConfig(
        vocab_size=40,  # such stories know few words
        embedding_size=50,
        embedding_std=1.0,
        hidden_size=64,
        query="text",
        readout="tanh",
        num_labels=6,
    )
    model = AttentionClassifierForSequenceClassification(config).eval()
    twin = NaivePairTwin(model).eval()
    sizes, said = between(words, words // 5, STORIES)
    stories = [[2, *torch.randint(4, config.vocab_size, (size,)).tolist(), 3] for size in sizes]
    questions = [[2, *torch.randint(4, config.vocab_size, (asked,)).tolist(), 3] for _ in stories]
    pairs = [
        {"input_ids": story + question, "token_type_ids": [0] * len(story) + [1] * len(question)}
        for story, question in zip(stories, questions, strict=True)
    ]
    batch, ids = pad_batch(pairs), pad_batch([{"input_ids": story} for story in stories])["input_ids"]
    lengths, questions = torch.tensor([len(story) for story in stories]), torch.tensor(questions)
    labels = torch.randint(0, config.num_labels, (STORIES,))
    measured = {name: values[: measured_texts(batch["input_ids"])] for name, values in batch.items()}
    step, shape = "{}, story and question", f"story of {said} words, question of {asked}"

    def naive_training():
        return twin(ids, lengths, twin.read_question(questions))

    def naive_deletions(texts):
        with torch.no_grad():
            question = twin.read_question(questions[:texts])
        return naive_leave_one_out(twin, ids[:texts, : max(lengths[:texts])], lengths[:texts], question)

    same_training(model.model.embeddings, model(**batch).logits, naive_training(), labels, step.format("training step"))
    naive = [row[1 : 1 + size].numpy() for row, size in zip(naive_deletions(2), sizes[:2], strict=True)]
    few = {name: values[:2] for name, values in batch.items()}
    same(leave_one_out.measure(model, few)["importance_leave_one_out"], naive, step.format("leave-one-out"), SMALL)

    fast, slow = optimizers(model, twin)
    removed = timed(
        step.format("leave-one-out"),
        shape,
        words,
        lambda: deletions(model, measured),
        lambda: naive_deletions(STORIES),
        len(measured["input_ids"]),
        STORIES,
        max(3, repeats // 3),
    )
    model.train()
    trained = timed(
        step.format("training step"),
        shape,
        words,
        lambda: training_step(model, fast, lambda: model(**batch).logits, labels),
        lambda: training_step(twin, slow, naive_training, labels),
        STORIES,
        STORIES,
        repeats,
    )
    return [removed, trained]


def measure_documents(sentences, words, repeats):
    """Rows of HAN, on documents of about so many sentences of about so many words."""
    torch.manual_seed(0)
    config = AttentionClassifierConfig(
        vocab_size=16629,  # IMDB's
        embedding_size=200,
        hidden_size=100,
        alignment_size=100,
        encoder="bigru",
        hierarchy="sentence",
    )
    model = AttentionClassifierForSequenceClassification(config).eval()
    twin = NaiveDocumentTwin(model).eval()
    counts, said = between(sentences, sentences // 2, DOCUMENTS)
    sizes, said_words = between(words, words // 2, sum(counts))
    every = iter(torch.randint(5, config.vocab_size, (sum(sizes),)).split(sizes))
    documents = [[next(every) for _ in range(count)] for count in counts]
    mark = config.sentence_token_id
    joined = [[2, *(word for part in parts for word in (*part.tolist(), mark))][:-1] + [3] for parts in documents]
    batch = pad_batch([{"input_ids": ids} for ids in joined])
    labels = torch.randint(0, 2, (DOCUMENTS,))
    measured = {name: values[: measured_texts(batch["input_ids"])] for name, values in batch.items()}
    texts = len(measured["input_ids"])
    shape = f"{said} sentences of {said_words} words"

    same_training(model.model.embeddings, model(**batch).logits, twin(documents), labels, "training step, HAN")
    few = {name: values[:2] for name, values in batch.items()}
    naive = [values.numpy() for values in naive_leave_one_out_sentences(twin, documents[:2])]
    same(leave_one_out.measure(model, few)["importance_leave_one_out"], naive, "leave-one-out of sentences, HAN", SMALL)

    fast, slow = optimizers(model, twin)
    removed = timed(
        "leave-one-out of sentences, HAN",
        shape,
        sentences * words,
        lambda: deletions(model, measured),
        lambda: naive_leave_one_out_sentences(twin, documents[:texts]),
        texts,
        texts,
        max(3, repeats // 3),
    )
    model.train()
    trained = timed(
        "training step, HAN",
        shape,
        sentences * words,
        lambda: training_step(model, fast, lambda: model(**batch).logits, labels),
        lambda: training_step(twin, slow, lambda: twin(documents), labels),
        DOCUMENTS,
        DOCUMENTS,
        repeats,
    )
    return [removed, trained]


def interventions(model, twin, large, ids, lengths, add, repeats):
    """The rows of the experiments: from the encoder's states on, after a check against the twin."""
    measured, subject = len(large["input_ids"]), subject_of(model)
    with torch.no_grad():
        hidden = twin.states(twin.embeddings(ids), lengths)
        attention = twin.attend(hidden, lengths)
        batch = {**large, "instance_id": [f"benchmark/{row}" for row in range(measured)]}
        batch["encoded"] = model.encode(**large)
        batch["attention"] = model.attend(*batch["encoded"])
    first = {name: value[:BATCH] for name, value in batch.items() if name not in ("encoded", "attention")}
    inner = ids.shape[1] - 2
    rng = np.random.default_rng(0)
    orders = torch.from_numpy(rng.permuted(np.broadcast_to(np.arange(inner), (BATCH, 100, inner)), axis=2))
    noise = torch.from_numpy(3 * rng.standard_normal((BATCH, 5, inner))).float()

    given = permutation.permuted(model, first, list(orders.numpy()))
    same(given, naive_permutation(twin, hidden, attention, orders), "permutation")
    sizes = minimal_flip_set.measure(model, first)["minimal_flip_size"]
    same([np.nan_to_num(sizes)], [naive_minimal_flip_set(twin, hidden, attention).nan_to_num()], "minimal flip set")
    by_attention = attention[:, 1:-1].argsort(dim=1, descending=True, stable=True)
    sizes = erasure.measure(model, first)["erasure_flip_size_attention"]
    same([np.nan_to_num(sizes)], [naive_erasure(twin, hidden, attention, by_attention).nan_to_num()], "erasure")
    found, p = naive_adversary(twin, hidden, attention, noise)
    own = model(**{name: large[name][:BATCH] for name in large}).logits.softmax(-1)[:, 1:]
    kept = ((p - own).abs() <= 0.01).numpy()
    searched = [
        jensen_shannon_divergence(row.double().numpy(), a.expand(len(row), -1).double().numpy())
        for row, a in zip(found, attention[:, 1:-1], strict=True)
    ]
    exact = adversary_exact.measure(model, first, epsilons=[0.01])["adversary_exact_jsd"]
    reached = np.array([np.max(row, initial=0.0, where=keep) for row, keep in zip(searched, kept, strict=True)])
    if not (reached <= np.array(exact)[:, 0] + 1e-6).all():
        raise ValueError("the naive search found more than the exact adversary; nothing was timed")

    def once():
        return read_out(subject, Batch.of({name: value for name, value in batch.items() if name != "read_out"}, subject))

    def naive_values():
        with torch.no_grad():
            return [twin.output(states) for states in hidden]

    add("read-out, for all experiments", once, naive_values, BATCH, own=measured)
    batch = Batch.of(batch, subject)
    read_out(subject, batch)  # from here on as in a measurement: once for all
    add(
        "permutation, 100 draws",
        lambda: permutation.measure(subject, batch),
        lambda: drawn_naively(twin, hidden, lengths, rng),
        BATCH,
        own=measured,
    )
    slow = max(3, repeats // 3)
    add(
        "adversary, search",
        lambda: adversary_search.measure(subject, batch),
        lambda: naive_adversary(twin, hidden, attention, noise),
        BATCH,
        slow,
        measured,
    )
    add(
        "adversary, exact",
        lambda: adversary_exact.measure(subject, batch, epsilons=[0.01]),
        lambda: naive_adversary(twin, hidden, attention, noise),
        BATCH,
        slow,
        measured,
    )
    add(
        "erasure, all orders",
        lambda: erasure.measure(subject, batch),
        lambda: [naive_erasure(twin, hidden, attention, orders[:, draw]) for draw in range(8)],
        BATCH,
        slow,
        measured,
    )
    add(
        "minimal flip set",
        lambda: minimal_flip_set.measure(subject, batch),
        lambda: naive_minimal_flip_set(twin, hidden, attention),
        BATCH,
        own=measured,
    )


def memory(texts, tokens, producers):
    """Peak resident memory in MiB of measuring so many texts of so many tokens, in a process of its own."""
    command = [sys.executable, __file__, "--memory-run", str(texts), str(tokens), *producers]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(result.stdout.split()[-1])


def memory_run(texts, tokens, producers):
    from datasets import Dataset

    from attnfaith.measurement import measure
    from attnfaith.record import Identity

    def rows():
        rng = np.random.default_rng(0)
        for number in range(texts):
            words = rng.integers(4, VOCABULARY, tokens)
            yield {
                "instance_id": f"generated/test/{number}",
                "input_ids": [2, *words.tolist(), 3],
                "labels": int(number % 2),
                "tokens": [f"w{word}" for word in words],
                "length": tokens + 2,
                "truncated": False,
            }

    with tempfile.TemporaryDirectory() as folder:
        dataset = Dataset.from_generator(rows, cache_dir=folder)
        model = AttentionClassifierForSequenceClassification(AttentionClassifierConfig(vocab_size=VOCABULARY))
        cell = Identity("generated", "benchmark", "test", 0)
        measure(model, dataset, cell, producers, Path(folder) / "record.parquet")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, default=Path("recipes/benchmark_results"))
    parser.add_argument(
        "--memory", action="store_true", help="measure 25,000 texts of 250 tokens (about 20 minutes) instead"
    )
    parser.add_argument("--memory-run", nargs="+", help=argparse.SUPPRESS)
    known = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every command of the package does; the twin has it, too
    if known.memory_run:
        texts, tokens, *producers = known.memory_run
        return memory_run(int(texts), int(tokens), producers)
    if known.memory:
        plans = [
            (25000, 250, ["gradient", "gradient_norm"]),
            (1000, 250, ["gradient", "gradient_norm", "leave_one_out"]),
            (100, 250, ["gradient_hidden_to_input"]),
            (2, 4000, ["gradient_hidden_to_input"]),
        ]
        rows = [{"texts": n, "tokens": t, "producers": ", ".join(p), "peak_mib": memory(n, t, p)} for n, t, p in plans]
        save_table(pd.DataFrame(rows), known.output / "memory")
        return print(*rows, sep="\n")
    rows = [row for tokens in (20, 200) for row in measure_length(tokens, known.repeats)]
    rows += measure_stories(300, known.repeats) + measure_documents(10, 18, known.repeats)
    save_table(pd.DataFrame(rows), known.output / "steps")
    print(f"table: {known.output}/steps.md")


if __name__ == "__main__":
    main()
