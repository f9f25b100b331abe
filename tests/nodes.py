"""Functions of a page's script, called in Node as the page calls them."""

import json
import shutil
import subprocess
from importlib.resources import files

import numpy as np


NODE = shutil.which("node")
NO_NODE = "Node is not installed: node"
DRIVER = """
const typed = (value) => Array.isArray(value)
  ? value.some((item) => typeof item === "string" || typeof item === "object" && item !== null) ? value.map(typed)
    : Float64Array.from(value, (item) => (item === null ? NaN : item))
  : value && typeof value === "object"
    ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, typed(item)])) : value;
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const [name, ...arguments] = JSON.parse(line);
  console.log(JSON.stringify({result: API[name](...arguments.map(typed))}, plain));
});
"""


class Node:
    """A process that holds a script of templates/ and answers `name(arguments)` of one object that the script makes."""

    def __init__(self, script, api):
        text = files("attnfaith.reporting").joinpath("templates", script).read_text(encoding="utf-8")
        code = f"{text}\n{DRIVER.replace('API', api)}"
        self.process = subprocess.Popen([NODE, "-e", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, name, *arguments):
        """Arrays become typed arrays of float64, NaN too; what comes back is plain lists."""
        self.process.stdin.write(json.dumps([name, *map(_plain, arguments)]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{name} failed in Node, which said why on standard error"
        return json.loads(line)["result"]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return [None if np.isnan(item) else item for item in value.ravel().tolist()]
    return value
