"""How large the page of a report is, and how soon it can be used, by the number of its texts.

    python recipes/benchmark_page.py [--texts 500 5000] [--tokens 20] [--repeats 3] [--browser chromium]

Texts are drawn at random: words of a vocabulary of WORDS, attention, two other measures and what each token adds to the
logits of two classes, in float32 as models give them, which hardly deflates. The page is that of `attnfaith report` without
figures. Opened: from the request for the file until every control answers, in a browser without a window; sorted: until the
list stands in another order, by the smallest set that flips, which the page then computes of every text. Of both, seconds
that pass and seconds of a core that the page's process takes, the median of the repetitions. The first depend on what else
the machine does, which `load` says: how many processes ran or waited to, on average, in the minute before. Needs playwright
and a browser.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmark_timing import processor, save
from playwright.sync_api import sync_playwright

from attnfaith import record as records
from attnfaith.experiments.token_logits import COLUMNS as VALUES
from attnfaith.record import Column, Identity
from attnfaith.reporting import sections
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.page.page import render_page


WORDS, MEASURES = 8000, ("gradient", "leave_one_out")
LONGEST_WAIT = 120_000  # milliseconds
TIMES = ("opened_seconds", "opened_core_seconds", "sorted_seconds", "sorted_core_seconds")


def drawn(texts: int, tokens: int, seed: int = 0):
    """A record of so many texts, of half to one and a half times as many tokens."""
    generator = np.random.default_rng(seed)
    identity = asdict(Identity(dataset="drawn", texts="0" * 12, split="test", seed=seed))
    columns: dict[str, list] = {}
    for number in range(texts):
        length = int(generator.integers(tokens // 2, tokens + tokens // 2 + 1))
        attention = generator.dirichlet(np.full(length, 0.3)).astype(np.float32)
        values, bias = generator.normal(size=(length, 2)).astype(np.float32), np.zeros(2, np.float32)
        odds = np.exp(attention @ values)
        row = identity | {
            "instance_id": f"drawn/test/{number}",
            "tokens": [f"word{place}" for place in generator.zipf(1.3, length) % WORDS],
            "label": int(generator.integers(2)),
            "truncated": False,
            "probs": (odds / odds.sum()).astype(np.float32),
            "attention": attention,
            "token_logits": values,
            "token_logits_bias": bias,
        }
        row |= {f"importance_{name}": generator.random(length).astype(np.float32) for name in MEASURES}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return records.build(columns, {**VALUES, **{f"importance_{name}": Column(("T",)) for name in MEASURES}})


def page_of(record) -> str:
    """The page of the record's report, without figures."""
    cells = split_cells(record)
    return render_page(cells, sections.frames(cells), [[] for _ in cells], title="drawn", facts={}, n_examples=5)


def seconds(session) -> tuple[float, float]:
    """Seconds that passed, and seconds of a core that the page's process took, up to now."""
    known = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return time.perf_counter(), known["ProcessTime"]


def timed(browser, path: Path) -> dict[str, float]:
    """What it takes until the page can be used, and until its list is sorted anew."""
    page = browser.new_page()
    page.set_default_timeout(LONGEST_WAIT)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    moments = [seconds(session)]
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready")
    moments.append(seconds(session))
    page.locator("[name=by]").select_option("flips")
    moments.append(seconds(session))
    page.close()
    spent = [end - start for before, after in pairwise(moments) for start, end in zip(before, after, strict=True)]
    return dict(zip(TIMES, spent, strict=True))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, nargs="+", default=[500, 5000])
    parser.add_argument("--tokens", type=int, default=20, help="of a text, on average")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--browser", default=next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None))
    parser.add_argument("--output", type=Path, default=Path("recipes/benchmark_results/page"), help="without ending")
    given = parser.parse_args(arguments)
    load, rows = os.getloadavg()[0], []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"], timeout=LONGEST_WAIT)
        for texts in given.texts:
            path = Path(folder) / f"{texts}.html"
            path.write_text(page_of(drawn(texts, given.tokens)), encoding="utf-8")
            times = [timed(browser, path) for _ in range(given.repeats)]
            spent = {name: statistics.median(one[name] for one in times) for name in TIMES}
            size = path.stat().st_size / 1e6
            row = {"texts": texts, "tokens": given.tokens, "megabytes": size, **spent}
            rows.append(row | {"load": load, "repeats": given.repeats})
            print(rows[-1], flush=True)
        said = f"{processor()}, Chromium {browser.version}"
        browser.close()
    save(rows, given.output, f"A report's page in a browser without a window, the median of the repetitions. {said}.")
    print(f"table: {given.output}.md")


if __name__ == "__main__":
    main()
