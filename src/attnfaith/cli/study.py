"""The command of studies: many runs by one file."""

from pathlib import Path

from attnfaith.cli.command import argument, command, flag, is_main_process
from attnfaith.support.errors import AttnfaithError


@command(
    argument("study", type=Path, metavar="STUDY", help="a YAML file; `attnfaith list studies` has those of the package"),
    argument("--limit", type=int, metavar="N", help="measure N texts a cell: a trial, in folders of its own"),
    argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="set this in every recipe: a trial, in folders of its own"
    ),
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
    from attnfaith.reporting.analysis import StudyError
    from attnfaith.study import command, plan

    planned = plan.read_study(args.study)
    planned = plan.trial(planned, settings) if settings else planned
    if args.status:
        return command.show_status(planned)
    how = {name: getattr(args, name) for name in ("cores", "executor", "only", "mix_versions")}
    _, missing = command.carry_out(planned, run=not args.tables, options=args.rest, **how)
    if missing:
        raise StudyError(missing)
