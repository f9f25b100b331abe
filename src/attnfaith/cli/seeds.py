"""`attnfaith train --seeds 10 11 12`: a run for each seed, then the mean and the spread of their numbers."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from attnfaith import recipes
from attnfaith.cli import common
from attnfaith.errors import AttnfaithError
from attnfaith.files import write_atomically
from attnfaith.locate import locate
from attnfaith.recipes import Recipe
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.wide import FORMATS, overview


def train(known: Namespace, recipe: Recipe, overrides: Sequence[str], arguments: Sequence[str] | None) -> Path:
    """Carry out the recipe for each seed in a folder of its own, one after the other; a run that is complete is kept.

    Returns the path of the tables, <output_dir>/seeds.md; seeds.tex and a .csv of each lie there too.
    """
    if twice := sorted({seed for seed in known.seeds if known.seeds.count(seed) > 1}):
        raise AttnfaithError(f"--seeds {' '.join(map(str, known.seeds))}: {twice[0]} is there twice; give each seed once")
    if known.push_to_hub:
        raise AttnfaithError("--push_to_hub with --seeds: push the runs when all are complete, with attnfaith push")
    folder = Path(recipe.output_dir)
    if (folder / common.RECIPE).exists():
        raise AttnfaithError(f"{folder} is a run: its seeds go into folders in it; give another --output_dir")
    folders = []
    for number, seed in enumerate(known.seeds, start=1):
        place = folder / f"seed_{seed}"
        own = [f"--seed={seed}", f"--output_dir={json.dumps(str(place))}", f"--name={json.dumps(f'{recipe.name}-{seed}')}"]
        if common.is_main_process():
            print(f"seed {seed} ({number} of {len(known.seeds)}), in {place}", flush=True)
        _train_one(known, [*overrides, *own], own, arguments)
        folders.append(place)
    cells = [cell for place in folders for cell in split_cells(locate(place).load())]
    tables = overview(cells)
    print("\n" + "\n".join(table.text() for table in tables))
    for kind in ("markdown", "latex"):
        write_atomically(folder / f"seeds{FORMATS[kind]}", "\n".join(table.formatted(kind) for table in tables))
    for table in tables:
        write_atomically(folder / f"seeds-{table.name}.csv", table.csv())
    print(f"tables: {folder / 'seeds.md'}, seeds.tex and seeds-*.csv; others of these runs: attnfaith table {folder}")
    return folder / "seeds.md"


def _train_one(known: Namespace, overrides: Sequence[str], own: Sequence[str], arguments: Sequence[str] | None) -> None:
    how = {"overwrite": known.overwrite_output_dir, "resume": not known.overwrite_output_dir, "remeasure": known.remeasure}
    if known.processes is not None:
        words = common.without_option("--seeds", arguments, several=True)
        resume = [] if known.overwrite_output_dir or known.resume_from_checkpoint else ["--resume_from_checkpoint"]
        return common.in_processes("train", known.processes, [*words, *own, *resume])
    from attnfaith import runs

    one = recipes.load(known.config, overrides)
    with recipes.named(str(known.config or one.name)):
        runs.run(one, **how)
