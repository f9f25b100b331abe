"""Commands that train and measure: one run by a recipe, a model on texts of your own, many runs by the file of a study."""

import re
from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli.command import DEVICE, argument, command, flag, is_main_process
from attnfaith.support.errors import AttnfaithError


ADD = argument(
    "--add", nargs="+", default=[], metavar="NAME", help="measures beside those of the recipe (`attnfaith list measures`)"
)


DEFAULT = "(default: %(default)s)"


def _load(path: Path | None, overrides: Sequence, added: Sequence[str], **how):
    """The recipe with the measures of `--add`. Its data set, measures and their options are checked before torch is
    imported.
    """
    from attnfaith import recipes
    from attnfaith.measurement import registry

    recipe = recipes.load(path, overrides, **how)
    if added:
        producers = [*dict.fromkeys([*recipe.measure.producers, *added])]
        recipe = recipes.load(path, [*overrides, ("measure.producers", producers)], **how)
    recipes.check_data(recipe)
    measures = registry.check_names(recipe.measure.producers, recipe.reads)
    registry.check_options(measures, recipe.measure.options, recipe.reads)
    return recipe


@command(
    argument(
        "--config",
        type=Path,
        metavar="RECIPE",
        help="a file, or one of `attnfaith list recipes` (default: the quickstart, or the defaults on --data.name)",
    ),
    ADD,
    argument("--seeds", nargs="+", type=int, default=[], metavar="SEED", help="a run for each, in output_dir/seed_SEED"),
    flag("--overwrite_output_dir", help="replace the run that lies in output_dir"),
    flag("--resume_from_checkpoint", help="go on with the run that lies in output_dir"),
    keys=("",),
    examples=(
        "train --config meister_2021/sst.yaml --seed 11",
        "train --data.name sst --encoder cnn --add integrated_gradients",
        "train --data.name sst --seeds 10 11 12               # a run for each seed, then mean ± std",
    ),
)
def train(args):
    """Train, measure and report by a recipe; with no arguments, the quickstart.

    Every key of the recipe can be overridden: --seed 3, --encoder cnn, --training.learning_rate 1e-4, --producers gradient
    leave_one_out. On several devices: accelerate launch -m attnfaith train.
    """
    recipe = _load(args.config, args.overrides, args.add)
    if recipe.data.path is not None and recipe.reads == "texts":
        from attnfaith.data.own_data import check_own

        check_own(recipe.data)
    if args.seeds:
        _train_seeds(args, recipe)
        return
    if args.config is None and is_main_process():
        print(f"no --config is given: {recipe.name}, in {recipe.output_dir}")
    path = _run(args, recipe, resume=args.resume_from_checkpoint)
    if is_main_process():
        print(f"{'report' if recipe.report.page else 'record'}: {path}")


def _run(args, recipe, *, resume: bool) -> Path:
    from attnfaith import recipes, runs

    with recipes.named(str(args.config or recipe.name)):
        return runs.run(recipe, overwrite=args.overwrite_output_dir, resume=resume)


def _train_seeds(args, recipe) -> None:
    """Carry out the recipe for each seed in a folder of its own, and write the tables <output_dir>/seeds.md and others."""
    folder = Path(recipe.output_dir)
    if (folder / "recipe.yaml").exists():
        raise AttnfaithError(f"{folder} is a run: its seeds go into folders in it; give another --output_dir")
    from attnfaith.record import load
    from attnfaith.reporting.cells import split_cells
    from attnfaith.reporting.seed_tables import FORMATS, overview
    from attnfaith.support.files import write_atomically

    cells = []
    for seed in dict.fromkeys(args.seeds):
        place = folder / f"seed_{seed}"
        if is_main_process():
            print(f"seed {seed}, in {place}", flush=True)
        own = [("seed", seed), ("output_dir", str(place)), ("name", f"{recipe.name}-{seed}")]
        _run(args, _load(args.config, [*args.overrides, *own], args.add), resume=not args.overwrite_output_dir)
        cells += split_cells(load(place / "record.parquet"))
    tables = overview(cells)
    texts = {kind: "\n".join(table.formatted(kind) for table in tables) for kind in ("text", "markdown", "latex")}
    print(f"\n{texts.pop('text')}")
    for kind, text in texts.items():
        write_atomically(folder / f"seeds{FORMATS[kind]}", text)
    for table in tables:
        write_atomically(folder / f"seeds-{table.name}.csv", table.formatted("csv"))
    print(f"tables: {folder / 'seeds.md'}, seeds.tex and seeds-*.csv; others of these runs: attnfaith table {folder}")


@command(
    argument("run", metavar="RUN", help="a run, or OWNER/NAME of one on the Hub; with --data.path, any text classifier"),
    ADD,
    argument("--attention", metavar="NAME", help="of many layers: last, all, rollout, or {layers: 3, head: 5}"),
    DEVICE,
    argument("--labels", choices=("names", "ids"), help="whole numbers as labels: names of classes, or numbers from 0"),
    argument("--links", metavar="FILE", help="of a translator: gold links, a line such as '0-0 1-2' for each pair"),
    argument("--links-from", type=int, default=0, metavar="N", help="the first word's number in links, 0 or 1 (default 0)"),
    argument("--output", type=Path, help="path of the record (default: the run's own); on your texts, folder of the report"),
    flag("--overwrite", help="replace the record that lies there, also if it holds another measurement"),
    keys=("measure",),
    examples=(
        "measure runs/quickstart --add integrated_gradients lime",
        "measure OWNER/MODEL --data.path reviews.csv --data.text review --data.label stars --attention rollout",
        "measure OWNER/TRANSLATOR --data.path pairs.tsv --data.text de --data.text_pair en --links gold.align",
        "measure runs/quickstart --producers gradient --split validation --limit 500 --output part.parquet",
    ),
)
def measure(args):
    """Measure a run again, with other producers, split or limit; or any text classifier on your own texts.

    Without overrides, the recipe of the run decides. A model is measured on texts of your own with --data.path FILE or
    --data.hub_id OWNER/NAME, and --data.text and --data.label for the columns; it needs no recipe.
    """
    from attnfaith.loading import is_repository
    from attnfaith.record.lookup import fetch_run, run_folder

    if any(key.startswith("data.") for key, _ in args.overrides):
        _measure_model(args)
        return
    option = next((name for name in ("attention", "labels", "links") if getattr(args, name) is not None), None)
    if option:
        raise AttnfaithError(f"--{option} is for a model on texts of your own: give --data.path FILE too")
    on_hub, folder = is_repository(args.run), Path(args.run)
    if (folder / "config.json").is_file() and not (folder / "recipe.yaml").is_file():
        raise AttnfaithError(f"{args.run} is a model without a recipe: give its texts, with --data.path or --data.hub_id")
    folder = fetch_run(args.run) if on_hub else run_folder(args.run, "measuring")
    recipe = _load(folder / "recipe.yaml", args.overrides, args.add, untrusted=on_hub)
    if on_hub and recipe.data.path is not None:  # a recipe from the Hub must not name a file of this machine
        raise AttnfaithError(f"{args.run} was trained on a file: `attnfaith reproduce {args.run} --data.path FILE` takes it")
    from attnfaith import recipes, runs

    with recipes.named(str(folder / "recipe.yaml")):
        path = runs.measure_run(folder, recipe, args.output, overwrite=args.overwrite, device=args.device)
    if is_main_process():
        print(f"record: {path}")


def _measure_model(args) -> None:
    """Measure any model on your own texts; write a folder with the record and its report."""
    from attnfaith import recipes
    from attnfaith.api.texts import chosen_columns
    from attnfaith.data.own_data import read_texts
    from attnfaith.loading import of_sequences
    from attnfaith.measurement import registry
    from attnfaith.support.files import folder_lock

    keys = [key for key, _ in args.overrides]
    refused = [key for key in keys if key.partition(".")[0] not in ("data", "measure", "plugins")]
    if refused:
        raise AttnfaithError(f"--{refused[0]}: a model that is measured takes keys of data and of measure")
    if not {"data.path", "data.hub_id"} & {*keys}:
        raise AttnfaithError("give texts that lie in a file or on the Hub: --data.path FILE or --data.hub_id OWNER/NAME")
    recipe = recipes.load(None, args.overrides)
    data, section = recipe.data, recipe.measure
    name = re.sub(r"[^\w.-]+", "-", Path(args.run).name if Path(args.run).is_dir() else args.run)
    folder = args.output or Path("runs") / f"{name}-{recipe.name}"
    path = folder / "record.parquet"
    if path.exists() and not args.overwrite:
        raise AttnfaithError(f"{path} is there already: name another --output, or replace it with --overwrite")
    if args.links is not None and section.limit is not None:
        raise AttnfaithError("--links name the links of all pairs in the file: leave out --limit, or cut both files")
    chosen = section.producers if "measure.producers" in keys else None
    reads = "pairs" if of_sequences(args.run) else "texts"
    measures = registry.check_names([*(chosen or ()), *args.add], reads)
    registry.check_options([*measures, *(section.options if chosen is None else ())], section.options, reads)
    texts = read_texts(data, section.split, section.limit, section.seed)
    columns = {"text": data.text or "text", "text_pair": data.text_pair, "label": data.label}
    chosen_columns(texts.column_names, **columns)
    from attnfaith.api.measuring import measure

    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder, "a measurement"):
        record = measure(
            args.run,
            texts,
            args.labels,
            chosen,
            add=args.add,
            options=section.options or None,
            device=args.device,
            **columns,
            attention=None if args.attention is None else recipes.read_value(args.attention, "--attention"),
            seed=section.seed,
            name=recipe.name,
            split=section.split if data.hub_id is not None or Path(data.path).is_dir() else "measured",
            output=path,
            batch_tokens=section.batch_tokens if "measure.batch_tokens" in keys else None,
            links=args.links,
            links_from=args.links_from,
        )
        page = record.report(folder / "report", title=recipe.report.title, examples=recipe.report.examples)
    print(f"{record}\nrecord: {path}\nreport: {page}")


@command(
    argument("study", type=Path, metavar="STUDY", help="a YAML file; `attnfaith list studies` has those of the package"),
    argument("--limit", type=int, metavar="N", help="measure N texts a cell: a trial, in folders of its own"),
    argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="set this in every recipe: a trial, as --limit"),
    flag("--tables", help="only rebuild tables, figures and page from the records"),
    flag("--status", help="only show how far the study is; nothing is written"),
    flag("--mix-versions", help="tabulate records together that different code measured"),
    argument("--cores", type=int, help="cells at a time, one thread each (default: one per GPU, or per core)"),
    argument("--executor", help="where cells run, a plugin of Snakemake such as slurm (default: this machine)"),
    argument("--only", metavar="PATTERN", help="the cells of such names, and those they wait for: 'base-*'"),
    examples=(
        "study planted_evidence/study.yaml",
        "study planted_evidence/study.yaml --only 'plain-*' --cores 1",
        "study planted_evidence/study.yaml --limit 50 --set num_train_epochs=1",
        "study planted_evidence/study.yaml --status",
    ),
    epilog="Options of Snakemake, which runs the cells, may follow after a lone --, such as `-- --profile cluster`.",
)
def study(args):
    """Every cell of a study that is not complete, here or on a cluster, then its tables.

    Stopped, killed or failed, the same command goes on.
    """
    if not is_main_process():  # launched as several processes: the first one starts those that are needed
        return
    if args.cores is not None and args.cores < 1:
        raise AttnfaithError(f"--cores {args.cores}: at least 1 cell at a time")
    settings = args.set + ([f"measure.limit={args.limit}"] if args.limit is not None else [])
    from attnfaith import recipes

    recipes.find(args.study, "study")
    from attnfaith.study import execute, plan

    planned = plan.read_study(args.study)
    planned = plan.trial(planned, settings) if settings else planned
    if args.status:
        execute.show_status(planned)
    else:
        how = {name: getattr(args, name) for name in ("cores", "executor", "only", "mix_versions")}
        execute.carry_out(planned, run=not args.tables, options=args.rest, **how)


@command(
    argument("run", metavar="RUN", help="the folder of a finished run"),
    argument("--output", type=Path, required=True, help="folder of the study: its runs and its tables"),
    argument("--measures", nargs="+", default=["attention", "gradient", "leave_one_out"], metavar="NAME", help=DEFAULT),
    argument("--shares", nargs="+", type=float, default=[0.1, 0.3, 0.5, 0.7, 0.9], metavar="SHARE", help=DEFAULT),
    argument("--seeds", nargs="+", type=int, metavar="SEED", help="of the fresh models (default: the run's)"),
    argument("--cores", type=int, help="models at a time (default: one per GPU, or per core)"),
    examples=("roar runs/quickstart --output roar --measures attention gradient --shares 0.1 0.5 --seeds 10 11",),
)
def roar(args):
    """Remove the words that a measure ranks first, and retrain: a study of one run.

    The words go from all texts, and a model is trained anew on the rest: a measure that knows which words mattered costs
    more accuracy than words taken at random. A signed measure ranks by its size, too. Stopped, the same command goes on.
    """
    from attnfaith.measurement import registry
    from attnfaith.record.lookup import run_folder

    folder = run_folder(args.run, "retraining")
    scores = registry.check_names([name for name in args.measures if name != "attention"])
    import pandas as pd

    from attnfaith import recipes
    from attnfaith.study import execute, plan

    file, rest = str(folder / "recipe.yaml"), {"measure.producers": [], "measure.split": "test", "measure.limit": None}
    seeds = {"seed": args.seeds or [recipes.load(file).seed]}
    sizes = [f"absolute_{name}" for name in scores if registry.find(name).signed()]
    removal = {"data.removal.by": ["random", *args.measures, *sizes], "data.removal.share": args.shares}
    blocks = [{"name": "whole", "recipe": file, "set": rest, "grid": seeds}]
    rest = {**rest, "data.removal.base": str(folder)}
    blocks += [{"name": "without", "recipe": file, "set": rest, "grid": removal | seeds}]
    planned = {"output_dir": str(args.output), "results": str(args.output), "blocks": blocks, "tables": ["performance"]}
    planned["analysis"] = str(recipes.folder() / "roar" / "analysis.py")
    execute.carry_out(recipes.make_section(plan.Study, planned, "roar"), cores=args.cores, options=args.rest)
    print(pd.read_csv(args.output / "roar_summary.csv").to_string(index=False))
