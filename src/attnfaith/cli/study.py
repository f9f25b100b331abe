"""Every cell of a study that is not complete, here or on a cluster, then its tables."""

from collections.abc import Sequence

from attnfaith.study.arguments import study_parser as parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser().parse_known_args(arguments)  # help, and most mistakes, before what takes long is imported
    from attnfaith.study.command import main as run_study

    run_study(arguments)
