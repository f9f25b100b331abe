"""A stand-in for `attnfaith train`: a run in a moment, which fails or hangs where the title of its report asks for it."""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import attnfaith
from attnfaith import recipes, record
from attnfaith.record import model_fields, training_fields
from attnfaith.support.files import folder_lock


def write_record(recipe, version) -> None:
    identity = record.Identity(
        "x", "texts", "test", recipe.seed, **model_fields(recipe.model), **training_fields(recipe, recipes.load),
        attention_kind="given" if recipe.objective.kind == "guided" else "own",
    )  # fmt: skip
    scores = {f"importance_{name}": [[0.6, 0.4]] * 2 for name in ("gradient", "gradient_norm", "leave_one_out")}
    columns = {
        "instance_id": ["a", "b"], **record.as_columns(identity, 2), "tokens": [["u", "v"]] * 2, "label": [0, 1],
        "truncated": [False] * 2, "probs": [[0.7, 0.3]] * 2, "attention": [[0.5, 0.5]] * 2, **scores,
    }  # fmt: skip
    table = record.build(columns, {name: record.Column(("T",)) for name in scores})
    settings = {"recipe": dataclasses.asdict(recipe), "model": f"weights {recipe.seed}", "version": version}
    settings["columns"] = {"importance_gradient": "gradient"}
    record.save(record.with_settings(table, [settings]), Path(recipe.output_dir) / "record.parquet")


def main(words) -> None:
    recipe = recipes.load(words[1], words[3:])
    folder, title = Path(recipe.output_dir), recipe.report.title or ""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(recipes.dump(recipe))
    (folder / "environment.json").write_text(json.dumps({**os.environ, "pid": os.getpid()}))
    with open(folder / "starts", "a") as starts:
        starts.write("x")
    with folder_lock(folder, "a run"):
        if "fail" in title:
            print("working\nerror: it broke\n(set ATTNFAITH_TRACEBACK=1 for the traceback)")
            sys.exit(2)
        limit = time.monotonic() + 60
        while title.startswith("with ") and not (folder.with_name(title[5:]) / "starts").is_file():
            assert time.monotonic() < limit
            time.sleep(0.05)
        if "hang" in title:
            print("epoch 1 of 8", flush=True)
            time.sleep(900)
        write_record(recipe, "0.0.1" if "old" in title else attnfaith.__version__)
        state = {"status": "complete", "seconds": 7.5}
        if base := recipe.objective.base:
            (settings,) = record.settings(record.load(Path(base) / "record.parquet"))
            state["base"] = {"weights (SHA-256)": settings["model"]}
        (folder / "run.json").write_text(json.dumps(state))


if __name__ == "__main__":
    main(sys.argv[1:])
