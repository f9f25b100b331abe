"""Values as they are stored, and what it means that today's are the same."""

import datetime
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
import transformers

import attnfaith


VALUES = Path(__file__).parent / "values"
MEASURES: dict[str, str] = {}
COLUMNS: dict[str, str] = {}
"""What a measure or a column of the goldens is called today, where that is something else: the only place to say so."""

RELATIVE = 1e-6
"""Of float64 arithmetic some 1e-13 would do; records hold most columns as float32, whose rounding is 6e-8 of a value."""
FLOOR = 2**12 * np.finfo(np.float64).eps
"""9e-13 of the largest number of a column, or of 1. Values are differences of probabilities, logits and weights near 1, sums
of up to 2**6 rounded terms, and a network takes the rounding of its first layer to at most 2**6 of it at its last."""
ABSOLUTE = {"importance_diffmask": 2**-17, "diffmask_layers": 2**-17}
"""Column -> a larger floor. Gates are float32: the rounding of one step, 2**-24, after two steps and 2**6 rounded terms."""


def read(name: str) -> dict:
    """A file of goldens without its provenance."""
    return parsed((VALUES / f"{name}.json").read_text(encoding="utf-8"))


def parsed(text: str) -> dict:
    return {name: part for name, part in json.loads(text).items() if name != "provenance"}


def text_of(value, depth: int = 0) -> str:
    """JSON with a line for each text: differences are seen by line."""
    blank = " " * depth
    if isinstance(value, dict):
        parts = (f"{blank} {json.dumps(key)}: {text_of(part, depth + 1)}" for key, part in value.items())
        return "{\n" + ",\n".join(parts) + f"\n{blank}}}"
    if isinstance(value, list) and any(isinstance(part, list) for part in value):
        return "[\n" + ",\n".join(f"{blank} {json.dumps(part, separators=(',', ':'))}" for part in value) + f"\n{blank}]"
    return json.dumps(value)


def columns_of(table: pa.Table) -> dict[str, list]:
    """What a record holds of each text: all columns from the tokens on. Those before it say what was measured, no numbers.

    A float32 is written by the fewest digits that give it back.
    """
    names = table.column_names[table.column_names.index("tokens") :]
    return {name: plain(table.column(name).to_pylist(), str(table.schema.field(name).type)) for name in names}


def plain(value, kind: str = "double"):
    if isinstance(value, list):
        return [plain(part, kind) for part in value]
    if isinstance(value, float):
        return float(value if "double" in kind else str(np.float32(value)))
    return value


def leaves(value, path: str = "") -> dict[str, object]:
    """What nested dictionaries hold, by the path to it."""
    if not isinstance(value, dict):
        return {path: value}
    return {key: leaf for name, part in value.items() for key, leaf in leaves(part, f"{path}/{name}").items()}


def difference(golden, today, floor: float) -> float:
    """How far apart two values are, nested alike, over what is allowed; infinity where they are not of one kind."""
    if isinstance(golden, dict) and isinstance(today, dict) and golden.keys() == today.keys():
        return max((difference(part, today[name], floor) for name, part in golden.items()), default=0.0)
    if isinstance(golden, list) and isinstance(today, list) and len(golden) == len(today):
        return max((difference(*parts, floor) for parts in zip(golden, today, strict=True)), default=0.0)
    if isinstance(golden, float) and isinstance(today, int | float) and not isinstance(today, bool):
        if golden == today or (math.isnan(golden) and math.isnan(today)):
            return 0.0
        apart = abs(golden - today) / (RELATIVE * abs(golden) + floor)
        return apart if math.isfinite(apart) else math.inf
    return 0.0 if golden == today else math.inf


def largest(value) -> float:
    """The largest finite number, by its size, in nested lists and dictionaries; 1 or more."""
    if isinstance(value, list | dict):
        return max(map(largest, value.values() if isinstance(value, dict) else value), default=1.0)
    return max(1.0, abs(value)) if isinstance(value, int | float) and math.isfinite(value) else 1.0


def changes(golden: dict, today: dict) -> dict[str, float]:
    """By its path every value that is not quite what it was: how far it is from it over what is allowed."""
    old, new, apart = leaves(golden), leaves(today), {}
    for path, value in old.items():
        group, name = path.rsplit("/", 1)
        floor = ABSOLUTE.get(name, FLOOR) * largest(value)
        apart[path] = difference(value, new.get(f"{group}/{COLUMNS.get(name, name)}"), floor)
    return {path: times for path, times in apart.items() if times}


def moved(golden: dict, today: dict) -> list[str]:
    """What is further from what it was than is allowed."""
    old, new = leaves(golden), leaves(today)
    far = [(path, times) for path, times in changes(golden, today).items() if times > 1]
    return [f"{path}: {times:.3g} times: {str(old[path])[:300]} is {str(new.get(path))[:300]}" for path, times in far]


def lacks(measure, *arguments) -> bool:
    """Whether a measurement is refused."""
    try:
        measure(*arguments)
    except attnfaith.AttnfaithError:
        return True
    return False


def provenance() -> dict[str, str]:
    """What made the values."""
    commit = subprocess.run(["git", "log", "-1", "--format=%H", "--", "src"], capture_output=True, text=True, check=True)
    versions = {module.__name__: module.__version__ for module in (attnfaith, torch, transformers, np)}
    origin = {"command": "python -m tests.golden.write", "date": datetime.date.today().isoformat()}
    return {**origin, "commit": commit.stdout.strip(), **versions}
