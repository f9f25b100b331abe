"""Train, measure, card and push a grid of checkpoints."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli.study import add_running, read
from attnfaith.usage import Parser


def parser() -> Parser:
    release = Parser(
        "release",
        "Train, measure, card and push a grid of checkpoints. Stopped or failed, the same command goes on.",
        examples=("release --to OWNER --dry-run", "release recipes/release.yaml --to OWNER"),
    )
    release.add_argument(
        "study", nargs="?", type=Path, metavar="STUDY", default="release.yaml", help="a study (default: %(default)s)"
    )
    release.add_argument("--to", metavar="OWNER", required=True, help="user or organisation that it will belong to")
    release.add_argument(
        "--cards", type=Path, default=Path("model_cards"), help="folder of the cards and their index (default: %(default)s)"
    )
    release.add_argument("--private", action="store_true", help="new repositories are private")
    release.add_argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)")
    release.add_argument("--dry-run", action="store_true", help="only say what is missing and what would be sent")
    add_running(release)
    return release


def main(arguments: Sequence[str] | None = None) -> None:
    if (words := read(parser(), arguments)) is None:
        return
    options, how = words
    from attnfaith import recipes

    recipes.find(options.study, "study")
    from attnfaith.study.plan import read_study
    from attnfaith.study.release import release

    where = {"private": options.private, "revision": options.revision, "dry_run": options.dry_run}
    release(read_study(options.study), options.to, options.cards, **where, **how)
