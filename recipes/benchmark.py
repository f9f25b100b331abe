"""make benchmark: what the package does, beside a naive twin in the same run, in CPU milliseconds of one thread.

    python recipes/benchmark.py [--quick] [--seconds 3] [--tables steps training measures] [--output FOLDER]

The twin does the same the way the papers' scripts do it: a packed bidirectional LSTM, one optimiser call per parameter,
texts read again for every deleted token, one decoder pass per permutation, removed weight or step of the adversary, one
backward pass per point of a line (of inputs alone; ours is of states, too), scipy once per text. Both give the same numbers,
which is checked first; the exact adversary must not fall below the naive search, beside which it is timed. Tests of
attention are timed from the encoder's states on, on either side. Both read 32 texts at once, the papers' batch.

The model is the papers' BiLSTM, trained on SST where the data root has it, else on generated texts: an LSTM as drawn forgets
a deleted word soon, and leave-one-out has less to do. Its texts are words of the test split, joined and cut to one length.

Tables, each written when it is finished: `steps`; `training`, a step beside the twin's, and steps beside those without what
is named; `measures`, every measure beside gradient times input. --quick times small models for an instant, which shows that
all of it works and measures nothing.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import benchmark_twins as naive
import datasets
import numpy as np
import torch
from benchmark_timing import Benchmark, check_same
from scipy.stats import kendalltau
from transformers import AutoTokenizer

import attnfaith
from attnfaith import AttentionClassifierForSequenceClassification as Classifier
from attnfaith import RationaleClassifierForSequenceClassification as Selector
from attnfaith import recipes
from attnfaith.data.loading import ROOT_VARIABLE
from attnfaith.importance.gradients import Gradient
from attnfaith.importance.integrated import NODES, IntegratedGradients
from attnfaith.importance.perturbation import LeaveOneOut
from attnfaith.interventions.permutation import read_permuted
from attnfaith.interventions.targets import Pooled, read_out
from attnfaith.measurement import registry
from attnfaith.measurement.engine import measure
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.record import Identity
from attnfaith.runs import run
from attnfaith.subjects import Batch, subject_of
from attnfaith.training import AttentionTrainer, Diversity, RationaleTrainer
from attnfaith.training.losses import classification_loss


SST = "SetFit/sst2"  # below the data root
TESTS = ("gradient", "leave_one_out", "permutation", "adversary_exact", "minimal_flip_set")
FIRST = """import attnfaith, sys
attnfaith.measure(sys.argv[1], ["a film of wit and warmth"], measures=["gradient"], progress=False)"""
HOW = "CPU milliseconds of one thread, the medians of repetitions in turns"
IMPORTS = "import torch; from transformers import PreTrainedModel"  # which every model needs
WHOLE = SimpleNamespace(tokens=(20, 200), texts=32, few=8, epochs=4, width=None, splits=(2000, 200, 400))
QUICK = SimpleNamespace(tokens=(6,), texts=4, few=4, epochs=1, width=8, splits=(40, 20, 30))


def train(folder: Path, size: SimpleNamespace, root: str | None) -> str:
    """Train the benchmark's BiLSTM in a folder and measure its test split; return what it was trained on, in words."""
    own = ["--output_dir", str(folder), "--training.num_train_epochs", str(size.epochs), "--training.use_cpu", "true"]
    own += ["--measure.producers", "[gradient, leave_one_out, token_logits]"]
    if root and (Path(root) / SST).is_dir() and size is WHOLE:
        run(recipes.load("jain_wallace_2019/sst.yaml", own))
        return f"SST, {size.epochs} epochs"
    sizes = "{{train: {}, validation: {}, test: {}}}".format(*size.splits)
    own += ["--data.arguments", f"{{length: [10, 220], redundancy: 2, distractors: 1, sizes: {sizes}}}"]
    own += ["--model.embedding_size", str(size.width), "--model.hidden_size", str(size.width)] if size.width else []
    run(recipes.load(None, own))
    return f"generated texts, {size.epochs} epochs"


def joined(record, tokenizer, tokens: int, count: int) -> torch.Tensor:
    """Ids (count, tokens + 2) of the words of a record's texts, joined and cut to one length, between markers."""
    words = [word for text in record.table.column("tokens").to_pylist() for word in text][: count * tokens]
    ids = torch.tensor(tokenizer.convert_tokens_to_ids(words)).view(count, tokens)
    begin, end = (torch.full((count, 1), mark) for mark in (tokenizer.bos_token_id, tokenizer.eos_token_id))
    return torch.cat([begin, ids, end], 1)


def add_measuring(bench: Benchmark, model, ids: torch.Tensor, size: SimpleNamespace, folder: Path) -> None:
    """Gradient, leave-one-out, Kendall's tau, integrated gradients, the tests of attention, and all of a paper's tests."""
    twin, tokens = naive.NaiveTwin(model).eval(), ids.shape[1] - 2
    count, lengths = len(ids), torch.full((len(ids),), tokens + 2)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    scores = np.abs(np.random.default_rng(0).normal(size=(2, count, tokens)))
    points = {"target": 1, "tolerance": 1e6}  # one rule of 15 points, those of the twin
    rule = [((1 + sign * node) / 2, weight / 2) for node, weight, _ in NODES for sign in ((1, -1) if node else (1,))]

    def scored(measure):
        return lambda: measure(model, batch)[f"importance_{measure.name}"]

    theirs = lambda: naive.gradient(twin, ids, lengths)[:, 1:-1]  # noqa: E731
    bench.add("gradient", tokens, scored(Gradient()), theirs, count, within=1e-5)
    theirs = lambda: naive.leave_one_out(twin, ids, lengths)[:, 1:-1]  # noqa: E731
    bench.add("leave-one-out", tokens, scored(LeaveOneOut()), theirs, count, within=1e-5)
    theirs = lambda: [kendalltau(*pair).statistic for pair in zip(*scores, strict=True)]  # noqa: E731
    bench.add("Kendall's tau with p-value", tokens, lambda: kendall_tau(*scores)[0], theirs, count, within=1e-9)
    theirs = lambda: naive.integrated_gradients(model, ids, rule)[:, 1:-1]  # noqa: E731
    ours = scored(IntegratedGradients(**points))
    bench.add(f"integrated gradients, {len(rule)} points", tokens, ours, theirs, count, within=1e-4)
    add_tests(bench, model, twin, batch, lengths)
    columns = {"instance_id": [f"benchmark/{row}" for row in range(count)], "input_ids": ids.tolist()}
    columns |= {"labels": [0] * count, "tokens": [["w"] * tokens] * count, "length": [tokens + 2] * count}
    rows, output = datasets.Dataset.from_dict({**columns, "truncated": [False] * count}), folder / "suite.parquet"
    cell, rng, noise = Identity("benchmark", "benchmark", "test", 0), np.random.default_rng(0), torch.randn(count, 5, tokens)
    ours = lambda: measure(model, rows, cell, TESTS, output, progress=False)  # noqa: E731
    for name, tests in {"naive": naive.suite, "published": naive.published_suite}.items():
        theirs = lambda tests=tests: tests(twin, ids, lengths, rng, noise)  # noqa: E731
        bench.add("all of Jain & Wallace's tests, to the record", tokens, ours, theirs, count, twin=name)


def add_tests(bench: Benchmark, model, twin, batch: dict, lengths: torch.Tensor) -> None:
    """Permutation, search and exact adversary and the minimal flip set, from the encoder's states on."""
    ids, subject, rng = batch["input_ids"], subject_of(model), np.random.default_rng(0)
    count, tokens = ids.shape[0], ids.shape[1] - 2
    with torch.no_grad():
        hidden = twin.states(twin.embeddings(ids), lengths)
        attention, encoded = twin.attend(hidden, lengths), model.encode(**batch)
        ready = {**batch, "instance_id": [f"benchmark/{row}" for row in range(count)], "encoded": encoded}
        ready = Batch.of({**ready, "attention": model.attend(*encoded)}, subject)
        own = model(**batch).logits.softmax(-1)[:, 1:]
    read_out(subject, ready)  # once for all tests, as in a measurement
    orders = torch.from_numpy(rng.permuted(np.broadcast_to(np.arange(tokens), (count, 100, tokens)), axis=2))
    noise = torch.from_numpy(3 * rng.standard_normal((count, 5, tokens))).float()

    def search():
        return naive.adversary(twin, hidden, attention, noise)

    def exact():
        return registry.find("adversary_exact")(epsilons=[0.01])(subject, ready)["adversary_exact_jsd"]

    def flips():
        return np.nan_to_num([registry.find("minimal_flip_set")()(subject, ready)["minimal_flip_size"]])

    reached, p = search()
    kept = ((p - own).abs() <= 0.01).numpy()
    for other, weights, keep, most in zip(reached.double(), attention[:, 1:-1].double(), kept, exact(), strict=True):
        distances = jensen_shannon_divergence(other.numpy(), weights.expand(len(other), -1).numpy())
        if not np.max(distances, initial=0.0, where=keep) <= most[0] + 1e-6:
            raise ValueError("the naive search finds more than the exact adversary; nothing is timed")
    each = list(orders.numpy())
    ours = lambda: read_permuted(Pooled(subject, ready), each)[0]  # noqa: E731
    theirs = lambda: naive.permutation(twin, hidden, attention, orders)  # noqa: E731
    bench.add("permutation, 100 orders", tokens, ours, theirs, count, within=1e-5)
    bench.add("adversary, search", tokens, lambda: registry.find("adversary_search")()(subject, ready), search, count)
    bench.add("adversary, exact", tokens, exact, search, count)
    theirs = lambda: [naive.minimal_flip_set(twin, hidden, attention).nan_to_num()]  # noqa: E731
    bench.add("minimal flip set", tokens, flips, theirs, count, within=0)


def training_step(trainer_class, model, batch: dict, folder: Path, penalties=(), **options):
    """Return a call that trains a model by one step as the package does."""
    arguments = trainer_class.config_class(output_dir=str(folder), use_cpu=True, report_to=[], **options)
    trainer = trainer_class(model.train(), arguments, penalties=penalties)
    trainer.current_gradient_accumulation_steps = 1
    return optimised(trainer.create_optimizer(), lambda: trainer.compute_loss(model, dict(batch)))


def optimised(optimizer, loss):
    """Return a call that goes one step down a loss."""

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def add_training(bench: Benchmark, model, ids: torch.Tensor, size: SimpleNamespace, folder: Path) -> None:
    """A training step beside a naive twin's; orthogonal states, a penalty and selections beside a step without them."""
    torch.manual_seed(0)
    tokens, labels, lengths = ids.shape[1] - 2, torch.randint(0, 2, (len(ids),)), torch.full((len(ids),), ids.shape[1])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    sizes = {"vocab_size": model.config.vocab_size}
    sizes |= {"embedding_size": size.width, "hidden_size": size.width} if size.width else {}

    def made(kind=Classifier, **fields):
        return kind(kind.config_class(**sizes, **fields))

    twin, vectors = naive.NaiveTwin(model := made()).train(), model.get_input_embeddings().weight
    losses = [classification_loss(logits, labels).sum() for logits in (model(ids).logits, twin(ids, lengths))]
    check_same(*(torch.autograd.grad(loss, vectors)[0] for loss in losses), "training step", 1e-6)
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-3, weight_decay=1e-5, amsgrad=True, foreach=False)
    theirs = optimised(optimizer, lambda: classification_loss(twin(ids, lengths), labels).sum())
    bench.add("training step", tokens, training_step(AttentionTrainer, model, batch, folder), theirs, size.texts)
    encoders = [training_step(AttentionTrainer, made(encoder=name), batch, folder) for name in ("orthogonal_lstm", "lstm")]
    bench.add("orthogonal_lstm", tokens, *encoders, size.texts, twin="lstm")
    beside = training_step(AttentionTrainer, made(), batch, folder)
    steps = {"diversity": training_step(AttentionTrainer, made(), batch, folder, penalties=[Diversity(0.1)])}
    selections = {
        "bernoulli": ({}, {"sampler": "bernoulli"}),
        "hardkuma": ({"share": 0.2}, {"sampler": "hardkuma"}),
        "budget": ({}, {"sampler": "budget", "budget": 0.2}),
    }
    for name, (options, fields) in selections.items():
        model = made(Selector, **fields)
        torch.nn.init.normal_(model.selector.score.weight, std=0.1)  # as after some training: scores that differ
        steps[name] = training_step(RationaleTrainer, model, batch, folder, **options)
    for what, step in steps.items():
        bench.add(what, tokens, step, beside, size.texts, twin="plain classifier")


def add_measures(bench: Benchmark, model, ids: torch.Tensor, size: SimpleNamespace, folder: Path) -> None:
    """Every measure that the model can have, as it is measured by default."""
    ids = ids[: size.texts if ids.shape[1] < 100 else size.few]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    batch["instance_id"] = [f"benchmark/{row}" for row in range(len(ids))]
    classes = {one.name: one for one in registry.classes() if one.role() == "importance"}
    beside = classes["gradient_x_input"]()
    for name, cls in classes.items():
        if subject_of(model).capabilities >= cls.needs and cls().is_trained:
            measure_by = cls()
            calls = (lambda one=measure_by: one(model, batch)), (lambda: beside(model, batch))
            bench.add(name, ids.shape[1] - 2, *calls, len(ids), twin="gradient_x_input")


def add_process_and_report(bench: Benchmark, model: Path, record, folder: Path, repetitions: int) -> None:
    """The first number of a fresh process, beside imports alone; the report of all test texts, and its page's size."""

    def spent(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, str(model)], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    ours, imports = np.median([[spent(FIRST), spent(IMPORTS)] for _ in range(repetitions)], 0)
    bench.append("first number of a fresh process", 6, ours, "import of PreTrainedModel", imports, repetitions)
    start = time.process_time()
    page = record.report(folder)
    seconds, tokens = time.process_time() - start, np.mean([len(text) for text in record.table.column("tokens").to_pylist()])
    what = f"report of {len(record):,} texts, a page of {page.stat().st_size / 1e6:.2f} MB"
    bench.append(what, round(tokens), 1e3 * seconds, "none", float("nan"), 1)


TABLES = {"steps": add_measuring, "training": add_training, "measures": add_measures}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small models, to show that it works")
    parser.add_argument("--seconds", type=float, default=3, help="the least that each side is timed for")
    parser.add_argument("--output", type=Path, default=Path("recipes/benchmark_results"))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES], help="those that are timed and written")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size, seconds = (QUICK, 0.001) if options.quick else (WHOLE, options.seconds)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        about = f"Weights, but for steps of training: {train(folder / 'run', size, os.environ.get(ROOT_VARIABLE))}."
        model = Classifier.from_pretrained(folder / "run" / "model").eval()
        tokenizer, record = AutoTokenizer.from_pretrained(folder / "run" / "model"), attnfaith.load(folder / "run")
        for table in options.tables:
            bench = Benchmark(seconds)
            for tokens in size.tokens:
                TABLES[table](bench, model, joined(record, tokenizer, tokens, size.texts), size, folder)
            if table == "steps":
                add_process_and_report(bench, folder / "run" / "model", record, folder / "report", 1 if options.quick else 5)
            bench.save(options.output / table, f"{HOW}; of a text, but for the process and the report.", about)


if __name__ == "__main__":
    main()
