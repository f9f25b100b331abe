"""Open the metric's Space in a headless Chromium, use it as a reader would, and leave screenshots to look at.

Needs an environment with the Space's own requirements, playwright and a Chromium, and nothing of this package:

    pip install -r src/attnfaith/metrics/attention_faithfulness/requirements.txt playwright
    python tests/metrics/browse_space.py SCREENSHOTS [RECORD.parquet] [--chromium /usr/bin/chromium]

Stops with an error at the first thing that is not as it should be.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from playwright.sync_api import expect, sync_playwright


SPACE = Path(__file__).parents[2] / "src/attnfaith/metrics/attention_faithfulness"
HOSTILE = [
    "<img src=x onerror='window.hit=1'>",
    "${window.hit=1}",
    "{{window.hit=1}}",
    "\u202eesrever",
    "</table><script>hit=1</script>",
]
# attention, importance -> a part of the message
WRONG = {
    ("0.5 0.6", "1 2"): "row 0: attention sums to 1.1",
    ("0.5 0.5\n1 0", "1 2"): "the columns differ in their number of rows",
    ("0.5 0.5", "1 2 3"): "row 0: attention has 2 values and importance has 3",
    ("0.5 half", "1 2"): "attention, line 1: 'half' is not a number",
    ("", ""): "Give attention",
    ("[[0.5, 0.5]", "1 2"): "attention is not valid JSON",
    ("1.5 -0.5", "1 2"): "negative value -0.5",
    ("<b onmouseover=hit=1>", "1"): "'<b' is not a number",
}


@contextlib.contextmanager
def served(home):
    """The address of the Space, served by a process with caches of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places = {"HF_HOME": home / "hf", "GRADIO_TEMP_DIR": home / "uploads", "GRADIO_SERVER_PORT": port}
    env = {**os.environ, **{name: str(place) for name, place in places.items()}, "GRADIO_SERVER_NAME": "127.0.0.1"}
    # as on a Space, the folder's name is not the metric's
    folder = shutil.copytree(SPACE, home / "app", ignore=shutil.ignore_patterns("__pycache__"))
    with open(home / "log.txt", "w") as log:
        process = subprocess.Popen([sys.executable, "app.py"], cwd=folder, env=env, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address, timeout=5)
                break
            assert process.poll() is None, (home / "log.txt").read_text()
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait()


def small_record(path):
    """A record of two cells with tokens as hostile as they come."""
    rng = np.random.default_rng(0)
    lengths = [len(HOSTILE), 3, 0, 12, 600, *rng.integers(1, 30, 40)]
    rows = {
        "instance_id": [f"text/{place}" for place in range(len(lengths))] * 2,
        "encoder": ["bilstm"] * len(lengths) + ["transformer"] * len(lengths),
        "tokens": [HOSTILE[:n] if n <= len(HOSTILE) else [f"word{t}" for t in range(n)] for n in lengths] * 2,
        "attention": [rng.dirichlet(np.ones(n)).tolist() for n in lengths * 2],
        "importance_gradient": [rng.normal(size=n).tolist() for n in lengths * 2],
        "importance_leave_one_out": [rng.random(size=n).tolist() for n in lengths * 2],
        "probs": rng.dirichlet(np.ones(2), 2 * len(lengths)).tolist(),
    }
    rows["tokens"] = [[*row, *["more"] * n][:n] for row, n in zip(rows["tokens"], lengths * 2, strict=True)]
    pq.write_table(pa.table(rows), path)
    return path


class Reader:
    """A person at the page."""

    def __init__(self, page, screenshots):
        self.page, self.screenshots = page, screenshots
        self.alert = page.get_by_role("alert").filter(has_text="This cannot be computed:")
        self.tiles = page.locator(".faithfulness .tile")

    def look(self, name):
        self.page.wait_for_timeout(700)  # what is loading fades out
        self.page.screenshot(path=self.screenshots / f"{name}.png", full_page=True)

    def type(self, attention, importance):
        self.page.get_by_role("tab", name="Type").click()
        self.page.get_by_label("attention", exact=False).first.fill(attention)
        self.page.get_by_label("importance", exact=False).first.fill(importance)
        self.page.get_by_role("button", name="Compute").locator("visible=true").click()

    def load(self, path):
        self.page.get_by_role("tab", name="File").click()
        remove = self.page.get_by_label("Clear").locator("visible=true")
        if remove.count():
            remove.first.click()
        self.page.locator("input[type=file]").first.set_input_files(path)

    def sees(self, tile, value):
        expect(self.tiles.filter(has_text=tile).locator("b")).to_have_text(value, timeout=60_000)

    def is_told(self, text):
        expect(self.alert).to_contain_text(text, timeout=60_000)
        assert self.tiles.count() == 0, "numbers of an earlier input stand beside the message"
        assert "Traceback" not in self.page.content()


def use(reader, folder, record):
    page = reader.page
    reader.sees("Kendall", "0.655")  # (1/3 + sqrt(2/3) + 4/sqrt(24)) / 3, as the page opens
    reader.look("1-opened")
    reader.type("[[0.1, 0.2, 0.7], [0.6, 0.4]]", "3 2 1\n1 2")
    reader.sees("Kendall", "\u22121.000")
    expect(page.locator(".faithfulness svg rect")).to_have_count(1)
    expect(page.locator(".faithfulness .bars .some")).to_have_count(6)
    page.get_by_text("All 21 numbers").click()
    reader.look("2-typed")

    for number, ((attention, importance), message) in enumerate(WRONG.items()):
        reader.type(attention, importance)
        reader.is_told(message)
        if not number:
            reader.look("3-wrong")
    reader.type("0.5 0.5\n1", "1 2\n1")
    reader.sees("Kendall", "undefined")
    reader.look("4-undefined")

    reader.load(small_record(folder / "small.parquet"))
    reader.sees("Instances", "45")
    for token in HOSTILE:
        expect(page.locator(".bars .token").filter(has_text=token[:40])).to_have_count(1)
    assert page.evaluate("window.hit") is None, "a token ran as code"
    first = reader.tiles.filter(has_text="Kendall").inner_text()
    page.get_by_label("cell of the record").click()
    page.get_by_role("option", name="transformer").click()
    page.get_by_role("button", name="Compute").locator("visible=true").click()
    expect(reader.tiles.filter(has_text="Kendall")).not_to_have_text(first, use_inner_text=True, timeout=60_000)
    reader.look("5-hostile")
    row = page.get_by_label("number input for row drawn")
    row.fill("4")
    row.press("Enter")
    expect(page.locator(".faithfulness", has_text="The first 400 of 600 tokens.")).to_be_visible(timeout=60_000)
    expect(page.locator(".faithfulness .bars td.token")).to_have_count(400)

    (folder / "two.json").write_text(json.dumps({"attention": [[0.3, 0.7]], "importance": [[1, 2]], "label": [1]}))
    reader.load(folder / "two.json")
    reader.sees("Kendall", "1.000")
    expect(page.get_by_text("Used: attention, importance. Not used: label.")).to_be_visible()
    (folder / "lines.csv").write_text("instance,token,attention,importance\na,not,0.3,2\na,bad,0.7,1\n")
    reader.load(folder / "lines.csv")
    reader.sees("Kendall", "\u22121.000")
    for name, content, message in (
        ("weights.pkl", b"\x80\x04cos\nsystem\n", "neither Parquet nor text"),
        ("cut.parquet", (folder / "small.parquet").read_bytes()[:2000], "not a readable Parquet file"),
        ("other.csv", b"a,b\n1,2\n", "the file has the columns a, b"),
        ("empty.json", b"", "the file is empty"),
    ):
        (folder / name).write_bytes(content)
        reader.load(folder / name)
        reader.is_told(message)
    reader.look("6-wrong-file")

    if record:
        reader.load(record)
        expect(page.get_by_text("other columns.")).to_be_visible(timeout=120_000)
        reader.look("7-record")
    page.get_by_role("button", name="Metric card").click()
    expect(page.get_by_role("heading", name="Limitations and bias")).to_be_visible()
    reader.look("8-card")


def request(address, path, data=None, kind="application/json"):
    """Status and text of an answer of the server."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, data, {"Content-Type": kind})) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def attack(address, home):
    """No crafted request may read a file of the server, or have it fetch one."""
    secret = home / "secret.csv"
    secret.write_text("attention,importance\n1 0,8675309 1\n")
    inside = home / "app" / "README.md"
    for path in (secret, inside, "app.py", "/etc/passwd", "../secret.csv", f"{home}/uploads/../secret.csv"):
        status, text = request(address, f"/gradio_api/file={path}")
        assert status in (403, 404), (path, status, text[:200])
    for given in (
        str(secret),
        str(inside),
        "app.py",
        f"{home}/uploads/../secret.csv",
        f"file://{secret}",
        f"{address}/config",
    ):
        file = {"path": given, "meta": {"_type": "gradio.FileData"}}
        for extra in ({}, {"url": given}):
            body = json.dumps({"data": [file | extra, None, None]}).encode()
            status, text = request(address, "/gradio_api/call/file", body)
            assert status == 200, text
            _, text = request(address, f"/gradio_api/call/file/{json.loads(text)['event_id']}")
            assert "event: error" in text and "8675309" not in text and "Kendall" not in text, (given, text[:500])

    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.csv"\r\n\r\n'
    for size, expected in ((10, 200), (101 * 2**20, 413)):
        body = head + bytes(size) + b"\r\n--x--\r\n"
        status, text = request(address, "/gradio_api/upload", body, "multipart/form-data; boundary=x")
        assert status == expected, (size, status, text[:200])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("screenshots", type=Path)
    parser.add_argument("record", type=Path, nargs="?")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    given.screenshots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        home = Path(name)
        with served(home) as address:
            browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
            strangers = []
            for label, width, query in (("wide", 1280, ""), ("narrow-dark", 420, "/?__theme=dark")):
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.on("pageerror", lambda error: strangers.append(f"error: {error}"))
                page.on(
                    "request",
                    lambda sent: None if sent.url.startswith((address, "data:", "blob:")) else strangers.append(sent.url),
                )
                page.goto(address + query)
                reader = Reader(page, given.screenshots)
                if label == "wide":
                    use(reader, home, given.record)
                else:
                    reader.sees("Kendall", "0.655")
                    reader.look("9-narrow-dark")
            browser.close()
            log = (home / "log.txt").read_text()
            assert "Traceback" not in log, log
            attack(address, home)
    print("requests to elsewhere, errors of the page:", sorted(set(strangers)) or "none")
    print(f"the page does what it should; look at {given.screenshots}")


if __name__ == "__main__":
    main()
