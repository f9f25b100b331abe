"""make benchmark: what each step costs, one thread, beside a naive twin in the same run.

The twin does the same computation the way the papers' scripts do it: a packed bidirectional LSTM, one optimiser call per
parameter, texts rebuilt and run again for every deleted token, one backward pass per state whose inputs are asked for, one
decoder pass per removed state, permutation or step of the adversary over whole states, scipy once per text. Both give the
same numbers, which is checked before anything is timed; the exact adversary is held against the naive search, which it must
not fall below. Interventions are timed from the encoder's states and attention on, on either side; one encoding costs what
`evaluation` does, and the values per token that all interventions start from have a row of their own. Figures are CPU time
of this process per text, the median of the repetitions, the two sides taking turns. Training runs on the papers' batches of
32; measuring on the batches that a measurement makes, the twin again on 32.
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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnfaith._memory import keep_freed_memory
from attnfaith.experiments import adversary_exact, adversary_search, erasure, minimal_flip_set, permutation
from attnfaith.experiments._readout import read_out
from attnfaith.importance import gradient, gradient_hidden_to_input, leave_one_out
from attnfaith.measurement import BATCH_INSTANCES, BATCH_TOKENS
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.objectives import classification_loss, reduce
from attnfaith.reporting import save_table


VOCABULARY, BATCH = 13826, 32  # SST's vocabulary and the papers' batch
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


class NaiveTwin(nn.Module):
    """The same function with the same weights, as the papers' scripts compute it."""

    def __init__(self, model):
        super().__init__()
        inner = model.model
        self.embeddings, self.alignment, self.output = inner.embeddings, inner.alignment, model.decoder.context
        one, other = inner.encoder.forward_lstm, inner.encoder.backward_lstm
        self.lstm = nn.LSTM(one.input_size, one.hidden_size, batch_first=True, bidirectional=True)
        with torch.no_grad():
            for name, parameter in one.named_parameters():
                getattr(self.lstm, name).copy_(parameter)
                getattr(self.lstm, f"{name}_reverse").copy_(getattr(other, name))

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


def naive_leave_one_out(twin, ids, lengths):
    probs = twin(ids, lengths).softmax(-1)
    found = torch.zeros(ids.shape)
    for position in range(1, ids.shape[1] - 1):
        without = torch.cat([ids[:, :position], ids[:, position + 1 :]], 1)
        found[:, position] = (twin(without, lengths - 1).softmax(-1) - probs).abs().sum(-1).detach() / 2
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
        return leave_one_out.without_state(model, encoded.hidden, attention).softmax(-1)


def training_step(model, optimizer, forward, labels):
    optimizer.zero_grad()
    reduce(classification_loss(forward(), labels), "sum").backward()
    optimizer.step()


def take_turns(pairs, repeats):
    """Median CPU seconds of each of two functions, called in turn after one call each to warm up."""
    for call in pairs:
        call()
    spent = ([], [])
    for _ in range(repeats):
        for call, times in zip(pairs, spent, strict=True):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
    return [statistics.median(times) for times in spent]


def same(ours, theirs, what):
    difference = max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(ours, theirs, strict=True))
    if not difference <= 1e-5:
        raise ValueError(f"{what}: ours and the naive twin differ by {difference:.1e}; nothing was timed")


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

    options = {"lr": 1e-3, "weight_decay": 1e-5, "amsgrad": True}
    fast = torch.optim.Adam(model.parameters(), fused=True, **options)
    slow = torch.optim.Adam(twin.parameters(), foreach=False, **options)
    rows = []

    def add(step, ours, theirs, count, times=repeats, own=None):
        mine, naive = take_turns((ours, theirs), times)
        mine *= count / (own or count)
        reference = dict(zip((20, 200), REFERENCE.get(step, (None, None)), strict=True)).get(tokens)
        rows.append(
            {
                "step": step,
                "tokens": tokens,
                "ms_per_text": 1e3 * mine / count,
                "naive_twin_ms_per_text": 1e3 * naive / count,
                "times_faster": naive / mine,
                "reference_ms_per_text": reference,
                "repeats": times,
            }
        )
        print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{value}" for key, value in rows[-1].items()))

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
        lambda: leave_one_out.without_token(model, {**few, "token_type_ids": None}, model.encode(**few)),
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


def interventions(model, twin, large, ids, lengths, add, repeats):
    """The rows of the experiments: from the encoder's states on, after a check against the twin."""
    measured = len(large["input_ids"])
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
        return read_out(model, {name: value for name, value in batch.items() if name != "read_out"})

    def naive_values():
        with torch.no_grad():
            return [twin.output(states) for states in hidden]

    add("read-out, for all experiments", once, naive_values, BATCH, own=measured)
    read_out(model, batch)  # from here on as in a measurement: once for all
    add(
        "permutation, 100 draws",
        lambda: permutation.measure(model, batch),
        lambda: drawn_naively(twin, hidden, lengths, rng),
        BATCH,
        own=measured,
    )
    slow = max(3, repeats // 3)
    add(
        "adversary, search",
        lambda: adversary_search.measure(model, batch),
        lambda: naive_adversary(twin, hidden, attention, noise),
        BATCH,
        slow,
        measured,
    )
    add(
        "adversary, exact",
        lambda: adversary_exact.measure(model, batch, epsilons=[0.01]),
        lambda: naive_adversary(twin, hidden, attention, noise),
        BATCH,
        slow,
        measured,
    )
    add(
        "erasure, all orders",
        lambda: erasure.measure(model, batch),
        lambda: [naive_erasure(twin, hidden, attention, orders[:, draw]) for draw in range(8)],
        BATCH,
        slow,
        measured,
    )
    add(
        "minimal flip set",
        lambda: minimal_flip_set.measure(model, batch),
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

    from attnfaith.measurement import Cell, measure

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
        cell = Cell("generated", "benchmark", "test", 0)
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
    save_table(pd.DataFrame(rows), known.output / "steps")
    print(f"table: {known.output}/steps.md")


if __name__ == "__main__":
    main()
