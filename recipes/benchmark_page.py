"""How large the page of a report is, and how soon it can be used, by the number of its texts.

    python recipes/benchmark_page.py [--texts 500 5000] [--tokens 20] [--browser chromium]

Texts are drawn at random: words of a vocabulary of WORDS, attention, two other measures and what each token adds to the
logits of two classes, in float32 as models give them, which hardly deflates. The page is that of `attnfaith report` without
figures. Opened: seconds from the request for the file until every control answers, in a browser without a window; sorted:
until the list stands in another order, by the smallest set that flips, which the page then computes of every text. Both are
the median of REPEATS, on this machine. Needs playwright and a browser.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from attnfaith import record as records
from attnfaith.experiments.token_logits import COLUMNS as VALUES
from attnfaith.record import Column, Identity
from attnfaith.reporting import sections
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.page.page import render_page


WORDS, REPEATS, MEASURES = 8000, 3, ("gradient", "leave_one_out")
LONGEST_WAIT = 120_000  # milliseconds


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


def timed(browser, path: Path) -> tuple[float, float]:
    """Seconds until the page can be used, and until its list is sorted anew."""
    page = browser.new_page()
    page.set_default_timeout(LONGEST_WAIT)
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready")
    opened = time.perf_counter()
    page.locator("[name=by]").select_option("flips")
    done = time.perf_counter()
    page.close()
    return opened - start, done - opened


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, nargs="+", default=[500, 5000])
    parser.add_argument("--tokens", type=int, default=20, help="of a text, on average")
    parser.add_argument("--browser", default=next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None))
    given = parser.parse_args(arguments)
    print("| texts | tokens | size (MB) | opened (s) | sorted (s) |\n|---|---|---|---|---|")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"], timeout=LONGEST_WAIT)
        for texts in given.texts:
            path = Path(folder) / f"{texts}.html"
            path.write_text(page_of(drawn(texts, given.tokens)), encoding="utf-8")
            opened, ordered = (
                statistics.median(one) for one in zip(*(timed(browser, path) for _ in range(REPEATS)), strict=True)
            )
            size = path.stat().st_size / 1e6
            print(f"| {texts:,} | {given.tokens} | {size:.2f} | {opened:.2f} | {ordered:.2f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
