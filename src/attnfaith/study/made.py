"""What made the tables of a study, kept beside them: the commits and libraries of its records, and the hours they took."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from attnfaith import record
from attnfaith.files import write_atomically
from attnfaith.study import status
from attnfaith.study.plan import Cell


MADE = "made.json"
SAME = ("version", "commit", "dirty", "libraries", "python", "device")
"""What cells of one making have in common, of their records' provenance."""


def write_made(study: Mapping, planned: list[Cell], ready: Mapping[str, Path]) -> Path:
    """Write <results>/made.json and return its path.

    cells: how many are planned, and complete. seconds: what the complete ones took, one thread each, summed; a cell that was
    stopped and went on counts from where it went on, and those of which nobody knows (`cells_without_seconds`) not at all.
    made_by: for each distinct provenance (`SAME`; null where a record has none), it and how many cells have it, the most
    common first. One entry whose dirty is false says that everything beside this file comes from one commit.
    """
    took = [status.state_of(Path(study["output_dir"]), cell).seconds for cell in planned if cell.name in ready]
    counts: dict[str, int] = {}
    for folder in ready.values():
        for part in record.settings(pq.read_schema(folder / "record.parquet").empty_table()):
            known = {name: (part.get("provenance") or {}).get(name) for name in SAME}
            key = json.dumps(known, sort_keys=True)
            counts[key] = counts.get(key, 0) + 1
    makers = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    made = {
        "cells": {"planned": len(planned), "complete": len(ready)},
        "seconds": round(sum(seconds for seconds in took if not math.isnan(seconds)), 1),
        "cells_without_seconds": sum(map(math.isnan, took)),
        "made_by": [{"cells": count, **json.loads(known)} for known, count in makers],
    }
    return write_atomically(Path(study["results"]) / MADE, json.dumps(made, indent=1) + "\n")
