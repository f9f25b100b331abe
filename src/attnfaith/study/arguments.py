"""What the commands `study` and `release` take. Light: their help is there before anything else is imported."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from attnfaith.usage import Parser


ALL = "all"
"""In place of a study: every one that the documents show."""
STUDY_EXAMPLES = (
    "study planted_evidence/encoders.yaml",
    "study planted_evidence/encoders.yaml --only 'cnn-*' --cores 1",
    "study planted_evidence/encoders.yaml --status",
    "study all --cores 2",
)
RELEASE_EXAMPLES = ("release --to OWNER --dry-run", "release recipes/release.yaml --to OWNER")


def study_parser() -> Parser:
    made = Parser(
        "study",
        "Run every cell of a study that is not complete, then make its tables. Stopped, killed or failed, the same command "
        "goes on.",
        examples=STUDY_EXAMPLES,
        epilog="Options of Snakemake, which runs the cells, may follow after a lone --, such as `-- --profile cluster`.",
    )
    made.add_argument(
        "study",
        type=Path,
        metavar="STUDY",
        help="the study, a YAML file (`attnfaith list studies` has those of the package), or `all` for every one whose "
        "tables are shown in the documents",
    )
    made.add_argument(
        "--tables", action="store_true", help="only rebuild tables, figures and page from the records there are"
    )
    made.add_argument("--status", action="store_true", help="only show how far the study is; nothing is written")
    made.add_argument("--mix-versions", action="store_true", help="tabulate records together that different code measured")
    _add_running(made)
    return made


def release_parser() -> Parser:
    made = Parser(
        "release",
        "Train, measure, card and push a grid of checkpoints. Stopped or failed, the same command goes on.",
        examples=RELEASE_EXAMPLES,
    )
    made.add_argument(
        "study", nargs="?", type=Path, metavar="STUDY", default="release.yaml", help="a study (default: %(default)s)"
    )
    made.add_argument("--to", metavar="OWNER", required=True, help="user or organisation that it will belong to")
    made.add_argument(
        "--cards", type=Path, default=Path("model_cards"), help="folder of the cards and their index (default: %(default)s)"
    )
    made.add_argument("--private", action="store_true", help="new repositories are private")
    made.add_argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)")
    made.add_argument("--dry-run", action="store_true", help="only say what is missing and what would be sent")
    _add_running(made)
    return made


def _add_running(parser: Parser) -> None:
    parser.add_argument("--cores", type=int, help="cells at a time, one thread each (default: one per GPU, or per core)")
    parser.add_argument("--executor", help="where cells run, a plugin of Snakemake such as slurm (default: this machine)")
    parser.add_argument("--only", metavar="PATTERN", help="the cells of such names, and those they wait for: 'base-*'")
    parser.add_argument(
        "--remeasure", action="store_true", help="measure cells anew whose records other code measured; models are kept"
    )


def read(parser: Parser, arguments: Sequence[str] | None) -> tuple[Namespace, list[str]]:
    """The arguments, and those after a lone --, which are Snakemake's."""
    own, rest = list(sys.argv[1:] if arguments is None else arguments), []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    return parser.parse_args(own), rest
