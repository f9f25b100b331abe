"""Every cell of a study that is not complete, here or on a cluster, then its tables."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


ALL = "all"
EXAMPLES = (
    "study planted_evidence/encoders.yaml",
    "study planted_evidence/encoders.yaml --only 'cnn-*' --cores 1",
    "study planted_evidence/encoders.yaml --limit 50 --set num_train_epochs=1",
    "study planted_evidence/encoders.yaml --status",
    "study all --cores 2",
)


def parser() -> Parser:
    study = Parser(
        "study",
        "Run every cell of a study that is not complete, then make its tables. Stopped, killed or failed, the same command "
        "goes on.",
        examples=EXAMPLES,
        epilog="Options of Snakemake, which runs the cells, may follow after a lone --, such as `-- --profile cluster`.",
    )
    study.add_argument(
        "study",
        type=Path,
        metavar="STUDY",
        help="the study, a YAML file (`attnfaith list studies` has those of the package), or `all` for every one whose "
        "tables are shown in the documents",
    )
    study.add_argument("--limit", type=int, metavar="N", help="measure N texts a cell: a trial, in folders of its own")
    study.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="set this in every recipe: a trial, in folders of its own"
    )
    study.add_argument("--tables", action="store_true", help="only rebuild tables, figures and page from the records")
    study.add_argument("--status", action="store_true", help="only show how far the study is; nothing is written")
    study.add_argument("--mix-versions", action="store_true", help="tabulate records together that different code measured")
    add_running(study)
    return study


def add_running(study: Parser) -> None:
    study.add_argument("--cores", type=int, help="cells at a time, one thread each (default: one per GPU, or per core)")
    study.add_argument("--executor", help="where cells run, a plugin of Snakemake such as slurm (default: this machine)")
    study.add_argument("--only", metavar="PATTERN", help="the cells of such names, and those they wait for: 'base-*'")
    study.add_argument(
        "--remeasure", action="store_true", help="measure cells anew whose records other code measured; models are kept"
    )


def read(parser: Parser, arguments: Sequence[str] | None) -> tuple[Namespace, dict] | None:
    """The arguments, and how `run_cells` is to run cells by them; what stands after a lone -- goes to Snakemake. None in a
    process that has nothing to do: launched as several processes, the first one starts those that are needed.
    """
    own, rest = list(sys.argv[1:] if arguments is None else arguments), []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    if int(os.environ.get("RANK", 0)) > 0:
        return None
    if options.cores is not None and options.cores < 1:
        raise AttnfaithError(f"--cores {options.cores}: at least 1 cell at a time")
    how = {"cores": options.cores, "executor": options.executor, "options": rest, "remeasure": options.remeasure}
    return options, {**how, "only": options.only}


def main(arguments: Sequence[str] | None = None) -> None:
    if (words := read(parser(), arguments)) is None:
        return
    options, how = words
    if options.tables and options.remeasure:
        raise AttnfaithError("--tables only reads records: leave it out to measure them anew with --remeasure")
    how |= {"run": not options.tables, "mix_versions": options.mix_versions}
    settings = options.set + ([f"measure.limit={options.limit}"] if options.limit is not None else [])
    if str(options.study) == ALL and (options.only or settings):
        raise AttnfaithError(f"--only, --limit and --set are for one study: name it in place of `{ALL}`")
    from attnfaith import recipes

    if str(options.study) != ALL:
        recipes.find(options.study, "study")
    from attnfaith.reporting.analysis import StudyError
    from attnfaith.study import command, plan

    if str(options.study) == ALL:
        missing = command.carry_out_all(only_status=options.status, **how)
    else:
        study = plan.read_study(options.study)
        study = plan.trial(study, settings) if settings else study
        if options.status:
            return command.show_status(study)
        _, missing = command.carry_out(study, **how)
    if missing:
        raise StudyError(missing)
