"""Measure a run again, with other producers, split or limit; or any text classifier, on texts of one's own."""

import re
from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


EXAMPLES = (
    "measure runs/quickstart --add integrated_gradients lime",
    "measure OWNER/MODEL --data.path reviews.csv --data.text review --data.label stars --attention rollout",
    "measure OWNER/NAME --add occlusion --limit 100",
    "measure OWNER/TRANSLATOR --data.path pairs.tsv --data.text de --data.text_pair en --links gold.align --links-from 1",
    "measure runs/quickstart --producers gradient --split validation --limit 500 --output part.parquet",
)


def parser() -> Parser:
    made = common.recipe_parser(
        "measure",
        "Measure a trained run: --producers gradient, --split validation, --limit 500. Without overrides, as the recipe of "
        "the run says. Or measure a model on texts of your own: --data.path FILE or --data.hub_id OWNER/NAME, with "
        "--data.text and --data.label for the columns; it needs no recipe.",
        "measure",
        examples=EXAMPLES,
    )
    made.add_argument(
        "run",
        metavar="RUN",
        help="folder of a run, or OWNER/NAME of one on the Hub, which is put below runs/hub; with --data.path, any text "
        "classifier: its folder, or its name on the Hub",
    )
    common.add_producers(made)
    made.add_argument(
        "--attention",
        metavar="NAME",
        help="of a model of many layers, the attention that is shown: last, all, rollout, flow, or {layers: 3, head: 5}",
    )
    common.add_device(made)
    made.add_argument(
        "--labels", choices=("names", "ids"), help="what whole numbers as labels are: names of classes, or numbers from 0 on"
    )
    made.add_argument(
        "--links", metavar="FILE", help="of a model from sequences to sequences: gold links, a line such as '0-0 1-2' a pair"
    )
    made.add_argument("--links-from", type=int, default=0, help="the number of the first word in links, 0 or 1 (default 0)")
    made.add_argument(
        "--output",
        type=Path,
        help="path of the record (default: the run's own, and its report is written anew); of a model on your texts, folder "
        "of record and report (default: below runs)",
    )
    made.add_argument(
        "--overwrite", action="store_true", help="replace the record that lies there, also if it is of another measurement"
    )
    common.add_processes(made)
    return made


def main(arguments: Sequence[str] | None = None) -> Path | None:
    known, overrides = common.read(parser(), arguments)
    from attnfaith import recipes
    from attnfaith.loading import is_repository
    from attnfaith.locate import fetch_folder, locate_folder

    if any(key.startswith("data.") for key, _ in recipes.parse_overrides(overrides)):
        return _measure_model(known, overrides)
    if known.attention is not None:
        raise AttnfaithError("--attention is for a model on texts of your own: give --data.path FILE too")
    if known.labels is not None:
        raise AttnfaithError("--labels is for a model on texts of your own: give --data.path FILE too")
    if known.links is not None:
        raise AttnfaithError("--links is for a model on pairs of your own: give --data.path FILE too")
    of_hub = is_repository(known.run)
    if not of_hub and (Path(known.run) / "config.json").is_file() and not (Path(known.run) / common.RECIPE).is_file():
        raise AttnfaithError(
            f"{known.run} is a model without a recipe: say which texts it is measured on, --data.path FILE or --data.hub_id"
        )
    folder = fetch_folder(known.run) if of_hub else locate_folder(known.run, "measuring")
    path = folder / common.RECIPE
    overrides = common.with_producers(known, path, overrides)
    recipe = recipes.load(path, overrides)
    common.check_producers(recipe)
    if of_hub and recipe.data.path is not None:  # a recipe of a stranger names no file of this machine
        raise AttnfaithError(
            f"{known.run} was trained on a file; with that, `attnfaith reproduce {known.run} --data.path FILE` makes it anew"
        )
    if known.processes is not None:
        if known.device is not None:
            raise AttnfaithError("--device is of one process; several take an accelerator each: leave it out")
        return common.in_processes("measure", known.processes, arguments)
    from attnfaith import runs

    with recipes.named(str(path)):
        written = runs.measure_run(folder, recipe, known.output, overwrite=known.overwrite, device=known.device)
    if common.is_main_process():
        print(f"record: {written}")
    return written


def _measure_model(known, overrides: Sequence[str]) -> Path:
    """Any model, on texts of one's own: a folder with the record and its report."""
    from attnfaith import recipes
    from attnfaith.api.texts import Columns
    from attnfaith.data.own_data import read_texts
    from attnfaith.files import folder_lock
    from attnfaith.loading import of_sequences
    from attnfaith.measurement import registry

    if known.processes is not None:
        raise AttnfaithError("--processes is for runs; a model on texts of your own is measured in one process")
    given = recipes.parse_overrides(overrides)
    for key, _ in given:
        if key.partition(".")[0] not in ("data", "measure"):
            raise AttnfaithError(f"--{key}: a model that is measured takes keys of data and of measure")
    if not {"data.path", "data.hub_id"} & dict(given).keys():
        raise AttnfaithError("give texts that lie in a file or on the Hub: --data.path FILE or --data.hub_id OWNER/NAME")
    recipe = recipes.load(None, overrides)
    data, section = recipe.data, recipe.measure
    name = re.sub(r"[^\w.-]+", "-", Path(known.run).name if Path(known.run).is_dir() else known.run)
    folder = known.output or Path("runs") / f"{name}-{recipe.name}"
    path = folder / common.RECORD
    if path.exists() and not known.overwrite:
        raise AttnfaithError(f"{path} is there already: name another --output, or replace it with --overwrite")
    producers = [*section.producers] if "measure.producers" in dict(given) else None
    added = [one for word in known.add for one in word.split(",") if one]
    if known.links is not None and section.limit is not None:
        raise AttnfaithError("--links are of all pairs of the file: leave out --limit, or cut both files")
    names = [*dict.fromkeys([*(producers or []), *added])]
    reads = "pairs" if of_sequences(known.run) else "texts"
    measured = registry.check_names(names, reads)
    registry.check_options([*measured, *section.options] if producers is None else measured, section.options, reads)
    texts = read_texts(data, section.split, section.limit, section.seed)
    columns = {"text": data.text or "text", "text_pair": data.text_pair, "label": data.label}
    Columns(**columns).chosen(texts.column_names)
    from attnfaith.api.measuring import measure
    from attnfaith.loading import device_of

    device = None if known.device is None else device_of(known.device)
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder, "a measurement"):
        made = measure(
            known.run,
            texts,
            known.labels,
            device=device,
            measures=names if producers is not None else None,
            add=[] if producers is not None else added,
            options=section.options or None,
            **columns,
            level=section.level,
            attention=None if known.attention is None else recipes.read_value(known.attention, "--attention"),
            seed=section.seed,
            name=recipe.name,
            split=section.split if data.hub_id is not None or Path(data.path).is_dir() else "measured",
            output=path,
            batch_tokens=section.batch_tokens if "measure.batch_tokens" in dict(given) else None,
            links=known.links,
            links_from=known.links_from,
        )
        page = made.report(folder / common.REPORT, title=recipe.report.title, examples=recipe.report.examples)
    print(f"{made}\nrecord: {path}\nreport: {page}")
    return page
