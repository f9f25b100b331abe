"""Much of everything: records of 50,000 texts, a text of 100,000 tokens, 1,000 classes; the time and memory that they take.

Each work is done in a process of its own, which says how long it took and the most memory that it held. More memory than
LIMITS is a defect, and more processor time; what the package refuses is none where its message says what the limit is and
what to do.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tests.campaigns.attempt import Attempt, Outcome


ROOT = Path(__file__).parents[2]
GIGABYTE = 10**9
OF_RECORDS, OF_TEXTS = 1 * GIGABYTE, 2 * GIGABYTE  # bytes that a process may hold
REPORT_SECONDS = 60  # of the processor
SMALL = {"texts": 400, "tokens": 2_000, "classes": 40}
FULL = {"texts": 50_000, "tokens": 100_000, "classes": 1_000}
VOCABULARY = 200
MEASURED = 100  # texts that are measured; records of more repeat these under other names
ENCODERS = ("bilstm", "average", "cnn")
SLOW = ("leave_one_out", "occlusion", "lime", "kernel_shap")  # read a text as often as it has tokens, or more


@dataclass(frozen=True)
class Work:
    """name: of the attempt. do: what is done, by its name in WORKS, with these arguments. prepare: what makes the files that
    it needs, in another process. memory, seconds: limits; no limit of time where None. refused: it may be refused.
    """

    name: str
    do: str
    arguments: tuple = ()
    prepare: tuple[tuple, ...] = ()
    memory: int = OF_RECORDS
    seconds: float | None = None
    refused: bool = False


def works(sizes: dict[str, int]) -> list[Work]:
    texts, tokens, classes = sizes["texts"], sizes["tokens"], sizes["classes"]
    many = ("tile", "many.parquet", 2, texts)
    other = ("tile", "other.parquet", 2, texts, 1)
    of_classes = ("tile", "classes.parquet", classes, max(texts // 25, MEASURED))
    return [
        Work(f"records/report of {texts:,} texts", "report", ("many.parquet",), (many,), seconds=REPORT_SECONDS),
        Work(f"records/write {texts:,} texts", "write", ("many.parquet",), (many,)),
        Work(f"records/read {texts:,} texts", "read", ("many.parquet",), (many,)),
        Work(f"records/show of {texts:,} texts", "command", ("show", "many.parquet"), (many,)),
        Work(
            f"records/compare of {texts:,} texts",
            "command",
            ("compare", "many.parquet", "other.parquet", "--page", "page.html"),
            (many, other),
        ),
        *(
            Work(f"long text/{encoder}: {name}", "measure_text", (encoder, tokens, name), memory=OF_TEXTS)
            for encoder in ENCODERS
            for name in ("by default", "report")
        ),
        *(
            Work(f"long text/bilstm: {name}", "measure_text", ("bilstm", tokens, name), memory=OF_TEXTS, refused=True)
            for name in _others(slow=False)
        ),
        Work("long text/a Transformer", "measure_transformer", (tokens,), memory=OF_TEXTS),
        Work(
            "long text/of three classes: adversary",
            "measure_text",
            ("bilstm", tokens, "adversary_exact", 3),
            memory=OF_TEXTS,
        ),
        Work(f"classes/measure {classes:,}", "measure_classes", (classes,), memory=OF_TEXTS),
        Work(f"classes/report of {classes:,}", "report", ("classes.parquet",), (of_classes,)),
        Work(f"classes/show of {classes:,}", "command", ("show", "classes.parquet"), (of_classes,)),
    ]


def attempts(full: bool, seed: int) -> Iterable[Attempt]:
    """All works at full size, or at a small one. Nothing in them is drawn but with fixed seeds."""
    for work in works(FULL if full else SMALL):
        yield Attempt(work.name, partial(attempt, work))


def attempt(work: Work, folder: Path) -> Outcome:
    """Do the work in processes of its own, in a folder."""
    for prepared in work.prepare:
        _run(folder, *prepared)
    said = _run(folder, work.do, *work.arguments)
    defects = []
    if "refused" in said:
        allowed = work.refused and re.search(r"\d", said["refused"]) and re.search(r"[:;]", said["refused"])
        defects += [] if allowed else [f"{work.name} is refused: {said['refused']}"]
    if said["bytes"] > work.memory:
        defects.append(f"{work.name} held {said['bytes'] / GIGABYTE:.2f} GB, more than {work.memory / GIGABYTE:.0f}")
    if work.seconds is not None and said["processor_seconds"] > work.seconds:
        defects.append(f"{work.name} took {said['processor_seconds']:.0f} s, more than {work.seconds:.0f}")
    measured = {key: value for key, value in said.items() if key != "refused"} | {"refused": int("refused" in said)}
    return Outcome(1, tuple(defects), measured)


def _run(folder: Path, do: str, *arguments) -> dict:
    command = [sys.executable, "-m", "tests.campaigns.load", do, json.dumps(arguments)]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise RuntimeError(f"{do} ended with {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


# --------------------------------------------------------------------------------------- what is done in a process


def _model(encoder: str, classes: int):
    """An attention classifier with random weights that are large enough for attention to be far from flat."""
    import torch

    from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification

    torch.default_generator.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 8}
    config = AttentionClassifierConfig(**sizes, num_labels=classes, embedding_std=0.5, encoder=encoder)
    model = AttentionClassifierForSequenceClassification(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and not name.startswith("model.embeddings"):
                parameter.mul_(3)
    return model.eval()


def _rows(lengths: Iterable[int], classes: int, seed: int = 0):
    """Encoded texts of random words."""
    import datasets

    generator = np.random.default_rng(seed)
    rows = []
    for number, length in enumerate(lengths):
        words = generator.integers(4, VOCABULARY, length).tolist()
        row = {"instance_id": f"load/test/{number}", "input_ids": [2, *words, 3], "tokens": [f"w{word}" for word in words]}
        rows.append(row | {"labels": int(generator.integers(classes)), "truncated": False, "length": length + 2})
    return datasets.Dataset.from_list(rows)


def _measured(path: Path, encoder: str, classes: int, lengths: Iterable[int], names: Iterable[str] | None, seed: int = 0):
    """Measure texts of these lengths, by default as `attnfaith measure` does; returns the path of the record."""
    from attnfaith import catalogue, measurement, record
    from attnfaith.api import measuring
    from attnfaith.subjects import subject_of

    model, rows = _model(encoder, classes), _rows(lengths, classes)
    if names is None:
        names = measuring._defaults(None, None, subject_of(model), rows, lambda line: None)
    assert all(name in {one.name for one in catalogue.entries()} for name in names)
    identity = record.Identity("load", "texts", "test", seed)
    return measurement.measure(model, rows, identity, list(names), path, discard=True, progress=False)


def _lengths() -> np.ndarray:
    drawn = np.random.default_rng(1).gamma(2.5, 8, MEASURED)
    return np.clip(drawn.astype(int), 0, 80)


def tile(path: str, classes: int, texts: int, seed: int = 0) -> None:
    """A record of so many texts: those that are measured, again and again under other names."""
    import pyarrow as pa

    from attnfaith import record

    few = record.load(_measured(Path("few.parquet"), "bilstm", classes, _lengths(), None, seed))
    table = few.take(pa.array(np.arange(texts) % few.num_rows))
    place = table.schema.get_field_index("instance_id")
    names = pa.array([f"load/test/{number}" for number in range(texts)])
    record.save(table.set_column(place, table.schema.field(place), names), path)


def report(path: str) -> None:
    from attnfaith import record
    from attnfaith.reporting import write_report
    from attnfaith.reporting.page.report import facts_of

    table = record.load(path)
    write_report(table, "report", facts=facts_of(table))


def read(path: str) -> None:
    from attnfaith import record

    record.load(path)


def write(path: str) -> None:
    from attnfaith import record

    record.save(record.load(path), "again.parquet")


def command(name: str, *words: str) -> None:
    importlib.import_module(f"attnfaith.cli.{name}").main(words)


def measure_text(encoder: str, tokens: int, name: str, classes: int = 2) -> None:
    """One text of so many tokens, by one measure or experiment or by those that are the default; or its report."""
    names = None if name in ("by default", "report") else [name]
    path = _measured(Path("long.parquet"), encoder, classes, [tokens], names)
    if name == "report":
        report(str(path))


def measure_transformer(tokens: int) -> None:
    """A text far longer than a Transformer reads: it is cut, and the record says so."""
    import attnfaith
    from tests.small_classifiers import classifier, tokenizer

    model = classifier("bert")
    text = " ".join(["the old ship sank and sailed slowly ."] * (tokens // 8))
    made = attnfaith.measure(model, [text], tokenizer=tokenizer(), progress=False)
    assert made.table.column("truncated").to_pylist() == [True]


def measure_classes(classes: int) -> None:
    _measured(Path("classes.parquet"), "bilstm", classes, _lengths()[:20], None)


def _others(slow: bool) -> list[str]:
    """The measures and experiments of this package's classifiers, by name: those that need nothing but texts."""
    from tests.pooled_producers import POOLED

    given = ("diffmask", "group_mass", "permissible_only", "value_norm_share", "rationale_erasure")  # need more than texts
    return [name for name in POOLED if name not in given and (name in SLOW) == slow]


WORKS: dict[str, Callable[..., None]] = {
    one.__name__: one for one in (tile, report, read, write, command, measure_text, measure_transformer, measure_classes)
}


def _most_memory() -> int:
    """The most bytes that this process held. Not `getrusage`: that begins with what the one that started it held."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=WORKS)
    parser.add_argument("arguments", type=json.loads)
    known = parser.parse_args()
    from attnfaith.errors import AttnfaithError

    started, busy, said = time.monotonic(), time.process_time(), {}
    try:
        WORKS[known.do](*known.arguments)
    except AttnfaithError as error:
        said["refused"] = str(error)
    said |= {"seconds": time.monotonic() - started, "processor_seconds": time.process_time() - busy, "bytes": _most_memory()}
    print(f"\n{json.dumps(said)}")


if __name__ == "__main__":
    main()
