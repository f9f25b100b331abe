"""Every cell of a grid, resumable, then its tables: python recipes/study.py --config STUDY [--workers 2].

A study file names base recipes and a grid, `key: [values]`; each combination is one run in <output_dir>/<cell>. Cells that
are complete are kept, cells that were stopped go on, failed ones are shown as failed and tried again by the next call.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pandas as pd
import yaml

from attnfaith import record
from attnfaith.cli import guarded
from attnfaith.recipes import RecipeError
from attnfaith.reporting import (
    agreement_table,
    compare_with_published,
    performance_table,
    plausibility_table,
    save_table,
    seed_summary,
)


def cells(study: dict) -> list[tuple[str, Path, list[str]]]:
    """(name, recipe, overrides) of every run of the study."""
    found = []
    for block in study["blocks"]:
        grid = block.get("grid", {})
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            name = "-".join([Path(block["recipe"]).stem, *(f"{value}" for value in chosen.values())])
            folder = Path(study["output_dir"]) / name
            given = {**block.get("set", {}), **chosen, "output_dir": str(folder), "name": name}
            overrides = [f"--{key}={'null' if value is None else value}" for key, value in given.items()]
            found.append((name, Path(block["recipe"]), overrides))
    names = [name for name, _, _ in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RecipeError(f"the study has cells of one name: {twice}; vary a key of the grid")
    return found


def complete(folder: Path) -> bool:
    return (folder / "report" / "index.html").is_file()


def run_cell(folder: Path, recipe: Path, overrides: list[str]) -> int:
    """Run one cell in a process of its own, its output beside it in <cell>.log."""
    if complete(folder):
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "recipes/train.py", "--config", str(recipe), "--resume_from_checkpoint", *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(folder.with_name(f"{folder.name}.log"), "w", encoding="utf-8") as log:
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False).returncode


def tables(folders: list[Path], output: Path, published: Path | None) -> None:
    """One agreement table, one performance table and their means over seeds, from the records alone."""
    records = [record.load(folder / "record.parquet") for folder in folders]
    joined = record.concatenate(records)
    output.mkdir(parents=True, exist_ok=True)
    found = {"agreement": agreement_table(joined), "performance": performance_table(joined)}
    if "rationale" in joined.column_names:
        found["plausibility"] = plausibility_table(joined)
    several = len(joined.column("seed").combine_chunks().unique()) > 1
    for name, table in found.items():
        save_table(table, output / name)
        if several:
            save_table(seed_summary(table), output / f"{name}_over_seeds")
    if published:
        taus = pd.read_csv(published)
        scores = pd.read_csv(published.with_name(f"{published.stem}_performance.csv"))
        save_table(compare_with_published(found["agreement"], taus), output / "beside_published")
        save_table(side_by_side(found["performance"], found["agreement"], scores, taus), output / "side_by_side")


def side_by_side(
    performance: pd.DataFrame, agreement: pd.DataFrame, scores: pd.DataFrame, taus: pd.DataFrame
) -> pd.DataFrame:
    """One row per cell: accuracy and mean tau of each pair over all texts, measured and published (NaN where it is not)."""
    factors = ["dataset", "encoder", "alignment"]
    cell = [*factors, "vectors", "seed"]
    agreement, performance = (table.astype(dict.fromkeys(cell[:-1], str)) for table in (agreement, performance))
    rows = performance[[*cell, "n", "accuracy", "roc_auc"]].merge(scores, how="left", on=factors)
    for pair in dict.fromkeys(taus["pair"]):
        mine = agreement[(agreement["pair"] == pair) & (agreement["class"] == "overall")]
        theirs = taus[(taus["pair"] == pair) & (taus["class"] == "overall") & (taus["statistic"] == "tau_mean")]
        mine = mine[[*cell, "tau_mean"]].rename(columns={"tau_mean": f"tau {pair}"})
        theirs = theirs[[*factors, "value"]].rename(columns={"value": f"published tau {pair}"})
        rows = rows.merge(mine, how="left", on=cell).merge(theirs, how="left", on=factors)
    return rows.sort_values(cell, ignore_index=True)


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1, help="cells at a time, one thread each (default: %(default)s)")
    parser.add_argument("--tables", action="store_true", help="only rebuild the tables from the records that are there")
    known = parser.parse_args(arguments)
    study = yaml.safe_load(known.config.read_text(encoding="utf-8"))
    if unknown := sorted(set(study) - {"output_dir", "results", "blocks", "published"}):
        raise RecipeError(f"{known.config}: unknown keys {unknown}; known: output_dir, results, blocks, published")
    if missing := sorted({"output_dir", "results", "blocks"} - set(study)):
        raise RecipeError(f"{known.config} lacks {missing}")
    planned = cells(study)
    root = Path(study["output_dir"])
    failed, done, started = [], 0, time.perf_counter()
    with ThreadPoolExecutor(known.workers) as pool:
        tasks = {} if known.tables else {pool.submit(run_cell, root / n, recipe, extra): n for n, recipe, extra in planned}
        for task in as_completed(tasks):
            done += 1
            name = tasks[task]
            failed += [name] if task.result() else []
            elapsed = time.perf_counter() - started
            left = elapsed / done * (len(tasks) - done)
            print(
                f"{done}/{len(tasks)} {name}: {'FAILED' if task.result() else 'complete'}; {left / 60:.0f} min left",
                flush=True,
            )
    ready = [root / name for name, _, _ in planned if complete(root / name)]
    if not ready:
        raise RecipeError("no cell of the study is complete: there is nothing to tabulate")
    tables(ready, Path(study["results"]), Path(study["published"]) if study.get("published") else None)
    missing = len(planned) - len(ready)
    print(f"tables of {len(ready)} cells: {study['results']}" + (f"; {missing} cells are missing" if missing else ""))
    if failed:
        raise RecipeError(f"{len(failed)} cells failed: {failed}; their logs are beside them in {root}")


if __name__ == "__main__":
    sys.exit(guarded(main))
