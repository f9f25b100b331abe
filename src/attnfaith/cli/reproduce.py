"""Train and measure a recorded run anew and say which numbers agree; exit code 1 where one does not."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.usage import Parser


EXAMPLES = (
    "reproduce runs/quickstart",
    "reproduce OWNER/NAME --output again",
)


def parser() -> Parser:
    made = Parser(
        "reproduce",
        "Carry out the recipe of a finished run, or of a checkpoint on the Hub, in a folder of its own and "
        "compare every result: exactly, within its tolerance, or not (reproduction.csv has them all).",
        examples=EXAMPLES,
    )
    made.add_argument("source", help="folder of a run, or OWNER/NAME of a model on the Hub")
    made.add_argument("--output", type=Path, help="folder of the new run (default: runs/reproduced/NAME)")
    made.add_argument("--records", metavar="REPO", help="data set with the record (default: the one that the card names)")
    made.add_argument("--revision", help="of the model's repository")
    made.add_argument("--data.path", dest="data_path", metavar="PATH", help="where its own data lie (runs of own data)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    known = parser().parse_args(arguments)
    from attnfaith.loading import is_repository
    from attnfaith.locate import locate_folder

    if not is_repository(known.source):
        locate_folder(known.source, "a reproduction")
    from attnfaith import reproduction

    how = {"records_repo": known.records, "revision": known.revision, "data_path": known.data_path}
    done = reproduction.reproduce(known.source, known.output, **how)
    if common.is_main_process():
        print(reproduction.describe(done))
    if not done.agrees:
        raise SystemExit(1)
