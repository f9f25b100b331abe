"""Train, measure, card and push a grid of checkpoints."""

from collections.abc import Sequence

from attnfaith.study.arguments import release_parser as parser


def main(arguments: Sequence[str] | None = None) -> None:
    known, unread = parser().parse_known_args(arguments)  # help, and most mistakes, before what takes long is imported
    from attnfaith import recipes

    if not unread:
        recipes.find(known.study, "study")
    from attnfaith.study.release import main as run_release

    run_release(arguments)
