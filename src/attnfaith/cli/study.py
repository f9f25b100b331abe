"""Many runs: the cells of a study, and a release of them."""

import os
from pathlib import Path

from attnfaith.cli.command import argument, command, flag
from attnfaith.support.errors import AttnfaithError


ALL = "all"
RUNNING = (
    argument("--cores", type=int, help="cells at a time, one thread each (default: one per GPU, or per core)"),
    argument("--executor", help="where cells run, a plugin of Snakemake such as slurm (default: this machine)"),
    argument("--only", metavar="PATTERN", help="the cells of such names, and those they wait for: 'base-*'"),
    flag("--remeasure", help="measure cells anew whose records other code measured; models are kept"),
)


def _how(args) -> dict:
    """How `run_cells` is to run cells; what stands after a lone -- goes to Snakemake."""
    if args.cores is not None and args.cores < 1:
        raise AttnfaithError(f"--cores {args.cores}: at least 1 cell at a time")
    how = {name: getattr(args, name) for name in ("cores", "executor", "only", "remeasure")}
    return {**how, "options": args.rest}


@command(
    argument(
        "study",
        type=Path,
        metavar="STUDY",
        help="the study, a YAML file (`attnfaith list studies` has those of the package), or `all` for every one whose "
        "tables are shown in the documents",
    ),
    argument("--limit", type=int, metavar="N", help="measure N texts a cell: a trial, in folders of its own"),
    argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="set this in every recipe: a trial, in folders of its own"
    ),
    flag("--tables", help="only rebuild tables, figures and page from the records"),
    flag("--status", help="only show how far the study is; nothing is written"),
    flag("--mix-versions", help="tabulate records together that different code measured"),
    *RUNNING,
    examples=(
        "study planted_evidence/study.yaml",
        "study planted_evidence/study.yaml --only 'plain-*' --cores 1",
        "study planted_evidence/study.yaml --limit 50 --set num_train_epochs=1",
        "study planted_evidence/study.yaml --status",
        "study all --cores 2",
    ),
    epilog="Options of Snakemake, which runs the cells, may follow after a lone --, such as `-- --profile cluster`.",
)
def study(args):
    """Every cell of a study that is not complete, here or on a cluster, then its tables.

    Stopped, killed or failed, the same command goes on.
    """
    how = _how(args) | {"run": not args.tables, "mix_versions": args.mix_versions}
    if int(os.environ.get("RANK", 0)) > 0:  # launched as several processes: the first one starts those that are needed
        return
    if args.tables and args.remeasure:
        raise AttnfaithError("--tables only reads records: leave it out to measure them anew with --remeasure")
    settings = args.set + ([f"measure.limit={args.limit}"] if args.limit is not None else [])
    if str(args.study) == ALL and (args.only or settings):
        raise AttnfaithError(f"--only, --limit and --set are for one study: name it in place of `{ALL}`")
    from attnfaith import recipes

    if str(args.study) != ALL:
        recipes.find(args.study, "study")
    from attnfaith.reporting.analysis import StudyError
    from attnfaith.study import command, plan

    if str(args.study) == ALL:
        missing = command.carry_out_all(only_status=args.status, **how)
    else:
        planned = plan.read_study(args.study)
        planned = plan.trial(planned, settings) if settings else planned
        if args.status:
            return command.show_status(planned)
        _, missing = command.carry_out(planned, **how)
    if missing:
        raise StudyError(missing)


@command(
    argument("study", nargs="?", type=Path, metavar="STUDY", default="release.yaml", help="a study (default: %(default)s)"),
    argument("--to", metavar="OWNER", required=True, help="user or organisation that it will belong to"),
    argument(
        "--cards", type=Path, default=Path("model_cards"), help="folder of the cards and their index (default: %(default)s)"
    ),
    flag("--private", help="new repositories are private"),
    argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)"),
    flag("--dry-run", help="only say what is missing and what would be sent"),
    *RUNNING,
    examples=("release --to OWNER --dry-run", "release recipes/release.yaml --to OWNER"),
)
def release(args):
    """Train, measure, card and push a grid of checkpoints.

    Stopped or failed, the same command goes on.
    """
    how = _how(args)
    if int(os.environ.get("RANK", 0)) > 0:
        return
    from attnfaith import recipes

    recipes.find(args.study, "study")
    from attnfaith.study.plan import read_study
    from attnfaith.study.release import release

    where = {"private": args.private, "revision": args.revision, "dry_run": args.dry_run}
    release(read_study(args.study), args.to, args.cards, **where, **how)
