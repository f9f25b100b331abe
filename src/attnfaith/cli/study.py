"""Every cell of a study that is not complete, here or on a cluster, then its tables."""

from collections.abc import Sequence

from attnfaith.study.arguments import ALL
from attnfaith.study.arguments import study_parser as parser


def main(arguments: Sequence[str] | None = None) -> None:
    known, unread = parser().parse_known_args(arguments)  # help, and most mistakes, before what takes long is imported
    if str(known.study) == ALL:
        from attnfaith.study.every import main as run_all

        return run_all(arguments)
    from attnfaith import recipes

    if not unread:
        recipes.find(known.study, "study")
    from attnfaith.study.command import main as run_study

    run_study(arguments)
