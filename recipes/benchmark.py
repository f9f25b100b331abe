"""make benchmark: what each step costs, one thread, beside a naive twin in the same run.

The twin does the same computation the way the papers' scripts do it: a packed bidirectional LSTM, one optimiser call per
parameter, texts rebuilt and run again for every deleted token, one decoder pass per removed state, scipy once per text. Both
give the same numbers, which is checked before anything is timed. Figures are CPU time of this process per text, the median
of the repetitions, the two sides taking turns. Training runs on the papers' batches of 32; measuring on the batches that a
measurement makes, the twin again on 32.
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
from attnfaith.importance import gradient, leave_one_out
from attnfaith.measurement import BATCH_INSTANCES, BATCH_TOKENS
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.objectives import classification_loss, reduce
from attnfaith.reporting import save_table


VOCABULARY, BATCH = 13826, 32  # SST's vocabulary and the papers' batch
# CPU milliseconds per text of the reference implementation at 20 and 200 tokens, measured apart on the same kind of machine.
REFERENCE = {
    "training step": (2.0, 24),
    "evaluation": (None, 3),
    "gradient": (0.85, 23),
    "leave-one-out, inputs": (5.5, 625),
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
    model.train()
    add(
        "training step",
        lambda: training_step(model, fast, lambda: model(**batch).logits, labels),
        lambda: training_step(twin, slow, lambda: twin(ids, lengths), labels),
        BATCH,
    )
    return rows


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
        plans = [(25000, 250, ["gradient", "gradient_norm"]), (1000, 250, ["gradient", "gradient_norm", "leave_one_out"])]
        rows = [{"texts": n, "tokens": t, "producers": ", ".join(p), "peak_mib": memory(n, t, p)} for n, t, p in plans]
        save_table(pd.DataFrame(rows), known.output / "memory")
        return print(*rows, sep="\n")
    rows = [row for tokens in (20, 200) for row in measure_length(tokens, known.repeats)]
    save_table(pd.DataFrame(rows), known.output / "steps")
    print(f"table: {known.output}/steps.md")


if __name__ == "__main__":
    main()
