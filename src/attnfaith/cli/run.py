"""Train and measure: one run by a recipe, a model on texts of your own, many runs by the file of a study."""

import re
from dataclasses import replace
from pathlib import Path

from attnfaith.cli.command import DEVICE, argument, command, flag, is_main_process
from attnfaith.cli.records import cells_of
from attnfaith.support.errors import AttnfaithError


ADD = argument(
    "--add", nargs="+", default=[], metavar="NAME", help="measures beside those of the recipe (`attnfaith list measures`)"
)


def _load(path: Path | None, args, *, untrusted: bool = False):
    """The recipe with the overrides of the command line, and the measures of `--add`. Names of data, measures and parts of
    models are checked before torch is imported.
    """
    from attnfaith import recipes
    from attnfaith.measurement import registry
    from attnfaith.recipes.files import check_data
    from attnfaith.support.errors import excerpt, nearest

    recipe = recipes.load(path, args.overrides, untrusted=untrusted)
    producers = [*dict.fromkeys([*recipe.measure.producers, *args.add])]
    registry.check_options(registry.check_names(producers, recipe.reads), recipe.measure.options, recipe.reads)
    check_data(recipe)
    for part in ("encoder", "alignment", "projection") if recipe.kind == "classifier" else ():
        name, names = getattr(recipe.model, part), registry.catalogue()[f"{part}s"]
        if name not in names:
            raise recipes.RecipeError(f"model.{part}={excerpt(name)} is no {part}{nearest(name, names)}")
    return replace(recipe, measure=replace(recipe.measure, producers=producers)) if args.add else recipe


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
    recipe = _load(args.config, args)
    if recipe.data.path is not None and recipe.reads == "texts":
        from attnfaith.data.own_data import check_own

        check_own(recipe.data)
    if args.config is None and is_main_process():
        print(f"no --config is given: {recipe.name}, in {recipe.output_dir}")
    from attnfaith import runs

    seeds = dict.fromkeys(args.seeds)
    resume = args.resume_from_checkpoint or bool(seeds and not args.overwrite_output_dir)
    parts = [
        replace(recipe, seed=seed, output_dir=f"{recipe.output_dir}/seed_{seed}", name=f"{recipe.name}-{seed}")
        for seed in seeds
    ]
    for part in parts or [recipe]:
        path = runs.run(part, overwrite=args.overwrite_output_dir, resume=resume)
        if is_main_process():
            print(f"{'report' if recipe.report.page else 'record'}: {path}")
    if seeds and is_main_process():
        from attnfaith.reporting.seed_tables import overview

        tables = overview(cells_of([part.output_dir for part in parts], mix_versions=True))
        print("", *(table.formatted("text") for table in tables), sep="\n")
        print(f"other tables, files to paste: attnfaith table {recipe.output_dir}")


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
    keys=("data.", "measure.", "plugins"),
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

    own_texts = any(key.startswith("data.") for key, _ in args.overrides)
    if own_texts or args.attention or args.labels or args.links:
        _measure_model(args)
        return
    if Path(args.run, "config.json").is_file() and not Path(args.run, "recipe.yaml").is_file():
        raise AttnfaithError(f"{args.run} is a model without a recipe: give its texts, with --data.path or --data.hub_id")
    on_hub = is_repository(args.run)
    folder = fetch_run(args.run) if on_hub else run_folder(args.run, "measuring")
    recipe = _load(folder / "recipe.yaml", args, untrusted=on_hub)
    if on_hub and recipe.data.path is not None:  # a recipe from the Hub must not name a file of this machine
        raise AttnfaithError(f"{args.run} was trained on a file: `attnfaith reproduce {args.run} --data.path FILE` takes it")
    from attnfaith import runs

    path = runs.measure_run(folder, recipe, args.output, overwrite=args.overwrite, device=args.device)
    if is_main_process():
        print(f"record: {path}")


def _measure_model(args) -> None:
    """Measure any model on your own texts; write a folder with the record and its report."""
    from attnfaith import recipes
    from attnfaith.data.own_data import read_texts
    from attnfaith.measurement import registry
    from attnfaith.support.files import folder_lock

    keys = [key for key, _ in args.overrides]
    if not {"data.path", "data.hub_id"} & {*keys}:
        raise AttnfaithError("give texts that lie in a file or on the Hub: --data.path FILE or --data.hub_id OWNER/NAME")
    recipe = recipes.load(None, args.overrides)
    data, section = recipe.data, recipe.measure
    of_pairs = registry.names("pairs")  # what the model reads is known when it is loaded
    registry.check_names([name for name in dict.fromkeys([*section.producers, *args.add]) if name not in of_pairs])
    name = re.sub(r"[^\w.-]+", "-", Path(args.run).name if Path(args.run).is_dir() else args.run)
    folder = args.output or Path("runs") / f"{name}-{recipe.name}"
    path = folder / "record.parquet"
    if path.exists() and not args.overwrite:
        raise AttnfaithError(f"{path} is there already: name another --output, or replace it with --overwrite")
    texts = read_texts(data, section.split, section.limit, section.seed)
    from attnfaith.api.measuring import measure

    with folder_lock(folder, "a measurement"):
        record = measure(
            args.run,
            texts,
            args.labels,
            section.producers if "measure.producers" in keys else None,
            add=args.add,
            options=section.options or None,
            device=args.device,
            text=data.text or "text",
            text_pair=data.text_pair,
            label=data.label,
            attention=None if args.attention is None else recipes.read_value(args.attention, "--attention"),
            seed=section.seed,
            name=recipe.name,
            split=section.split if data.hub_id is not None or Path(data.path).is_dir() else "measured",
            output=path,
            batch_tokens=section.batch_tokens if "measure.batch_tokens" in keys else None,
            links=args.links,
            links_from=args.links_from,
        )
        page = record.report(folder / "report")
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
    settings = args.set + ([f"measure.limit={args.limit}"] if args.limit is not None else [])
    from attnfaith.study import execute, plan

    planned = plan.trial(plan.read_study(args.study), settings)
    if args.status:
        execute.show_status(planned)
    else:
        how = {name: getattr(args, name) for name in ("cores", "executor", "only", "mix_versions")}
        execute.carry_out(planned, run=not args.tables, options=args.rest, **how)
