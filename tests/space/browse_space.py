"""Open the Space in a headless Chromium, use it as a reader would, and leave screenshots to look at.

Needs this package with its extra `space`, playwright and a Chromium:

    python tests/space/browse_space.py SCREENSHOTS MODEL [MODEL ...] [--chromium /usr/bin/chromium]

Stops with an error at the first thing that is not as it should be.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pyarrow.parquet as pq
from playwright.sync_api import expect, sync_playwright


HOSTILE = "a <img src=x onerror='window.hit=1'> ${window.hit=1} {{window.hit=1}} </iframe><script>window.hit=1</script> film"
SLOW = 300_000
"""Milliseconds that a measurement may take on a machine that does other work."""


@contextlib.contextmanager
def served(home, models):
    """The address of the Space, served by a process with caches of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "GRADIO_TEMP_DIR": str(home / "made"), "GRADIO_ANALYTICS_ENABLED": "0"}
    with open(home / "log.txt", "w") as log:
        command = [sys.executable, "-m", "attnfaith", "space", *models, "--port", str(port)]
        process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address, timeout=5)
                break
            assert process.poll() is None, (home / "log.txt").read_text()
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait()


class Reader:
    """A person at the page."""

    def __init__(self, page, screenshots):
        self.page, self.screenshots = page, screenshots
        self.alert = page.get_by_role("alert").filter(has_text="Not answered:").locator("visible=true")
        self.answers = page.locator(".space-answer table").locator("visible=true")

    def look(self, name):
        self.page.wait_for_timeout(700)  # what is loading fades out
        self.page.screenshot(path=self.screenshots / f"{name}.png", full_page=True)

    def type(self, text):
        self.page.locator("textarea").first.fill(text)

    def press(self, tab, button):
        self.page.get_by_role("tab", name=tab).click()
        self.page.get_by_role("button", name=button, exact=True).click()


def use(reader, folder):
    page = reader.page
    reader.look("1-opened")
    reader.press("Measures", "Measure")
    frame = page.frame_locator("iframe.space-frame")
    expect(frame.locator("h1").first).to_be_visible(timeout=SLOW)
    assert page.locator("iframe.space-frame").get_attribute("sandbox") == "allow-scripts"
    reader.look("2-measured")
    with page.expect_download(timeout=SLOW) as fetched:
        page.get_by_role("button", name="Record (parquet)").click()
    fetched.value.save_as(folder / "record.parquet")
    table = pq.read_table(folder / "record.parquet")
    assert table.num_rows == 1 and {"attention", "probs"} <= set(table.column_names)

    reader.press("Edit words", "Predict")
    expect(reader.alert).to_contain_text("there is no edited text", timeout=SLOW)
    page.get_by_label("edited texts", exact=False).fill("a moving film\na dull film")
    reader.press("Edit words", "Predict")
    expect(reader.answers.locator("tr")).to_have_count(4, timeout=SLOW)
    reader.press("Edit words", "Leave out each word")
    expect(reader.answers.locator("tr").filter(has_text="without")).not_to_have_count(0, timeout=SLOW)
    reader.look("3-edited")

    reader.press("Other attention", "Ask")
    expect(reader.answers.locator("tr").filter(has_text="uniform")).to_have_count(1, timeout=SLOW)
    reader.look("4-other-attention")
    page.get_by_label("weights", exact=False).fill("1 x")
    reader.press("Other attention", "Ask")
    expect(reader.alert).to_contain_text("weights for", timeout=SLOW)

    reader.type(HOSTILE)
    reader.press("Edit words", "Predict")
    expect(reader.answers.locator("tr")).to_have_count(4, timeout=SLOW)
    page.get_by_label("edited texts", exact=False).fill(HOSTILE)
    reader.press("Edit words", "Predict")
    expect(reader.answers.locator("tr").filter(has_text="onerror='window.hit=1'")).to_have_count(1, timeout=SLOW)
    reader.press("Measures", "Measure")
    expect(frame.locator("body")).to_contain_text("film", timeout=SLOW)
    assert page.evaluate("window.hit") is None, "a text ran as code"
    assert all(inner.evaluate("window.hit") is None for inner in page.frames), "a text ran as code in the frame"
    reader.look("5-hostile")
    reader.type(" ")
    reader.press("Measures", "Measure")
    expect(reader.alert).to_contain_text("there is no text", timeout=SLOW)
    expect(page.locator("iframe.space-frame")).to_have_count(0)
    reader.look("6-refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("screenshots", type=Path)
    parser.add_argument("models", nargs="+", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    given.screenshots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        home = Path(name)
        with served(home, given.models) as address:
            browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
            strangers = []
            for label, width, query in (("wide", 1280, ""), ("narrow-dark", 400, "/?__theme=dark")):
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.set_default_timeout(SLOW)
                page.on("pageerror", lambda error: strangers.append(f"error: {error}"))
                page.on(
                    "request",
                    lambda sent: None if sent.url.startswith((address, "data:", "blob:")) else strangers.append(sent.url),
                )
                page.goto(address + query)
                reader = Reader(page, given.screenshots)
                if label == "wide":
                    use(reader, home)
                else:
                    reader.press("Edit words", "Leave out each word")
                    expect(reader.answers.locator("tr").filter(has_text="without")).not_to_have_count(0, timeout=SLOW)
                    reader.look("7-narrow-dark")
            browser.close()
        assert not strangers, strangers
    print("the Space answers as it should")


if __name__ == "__main__":
    main()
