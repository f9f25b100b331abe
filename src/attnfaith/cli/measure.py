"""Measure the model of a run again, with other producers, split or limit."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


EXAMPLES = (
    "measure runs/quickstart --add integrated_gradients lime",
    "measure OWNER/NAME --add occlusion --limit 100",
    "measure runs/quickstart --producers gradient --split validation --limit 500 --output part.parquet",
)


def parser() -> Parser:
    made = common.recipe_parser(
        "measure",
        "Measure a trained run: --producers gradient, --split validation, --limit 500. Without overrides, as the recipe of "
        "the run says.",
        "measure",
        examples=EXAMPLES,
    )
    made.add_argument(
        "run", metavar="RUN", help="folder of a run, or OWNER/NAME of one on the Hub, which is put below runs/hub"
    )
    common.add_producers(made)
    made.add_argument(
        "--output", type=Path, help="path of the record (default: the run's own, and its report is written anew)"
    )
    made.add_argument(
        "--overwrite", action="store_true", help="replace the record that lies there, also if it is of another measurement"
    )
    common.add_processes(made)
    return made


def main(arguments: Sequence[str] | None = None) -> Path | None:
    known, overrides = common.read(parser(), arguments)
    from attnfaith import recipes
    from attnfaith.locate import fetch_folder, is_repository, locate_folder

    of_hub = is_repository(known.run)
    folder = fetch_folder(known.run) if of_hub else locate_folder(known.run, "measuring")
    path = folder / common.RECIPE
    overrides = common.with_producers(known, path, overrides)
    recipe = recipes.load(path, overrides)
    if of_hub and recipe.data.path is not None:  # a recipe of a stranger names no file of this machine
        raise AttnfaithError(
            f"{known.run} was trained on a file; with that, `attnfaith reproduce {known.run} --data.path FILE` makes it anew"
        )
    if known.processes is not None:
        return common.in_processes("measure", known.processes, arguments)
    from attnfaith import runs

    with recipes.named(str(path)):
        written = runs.measure_run(folder, recipe, known.output, overwrite=known.overwrite)
    if common.is_main_process():
        print(f"record: {written}")
    return written
