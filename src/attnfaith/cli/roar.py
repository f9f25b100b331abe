"""Remove the words that a measure ranks first, and retrain."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.usage import Parser


EXAMPLES = ("roar runs/quickstart --output roar --measures attention gradient --shares 0.1 0.5 --seeds 10 11",)


def parser() -> Parser:
    made = Parser(
        "roar",
        "Remove the words that a measure ranks first from all texts, and train a model anew on what is left: a measure that "
        "knows what mattered costs more accuracy than words taken at random.",
        examples=EXAMPLES,
    )
    made.add_argument("run", metavar="RUN", help="the folder of a finished run")
    made.add_argument("--output", type=Path, required=True, help="the folder of scores and results")
    made.add_argument("--measures", nargs="+", default=["attention", "gradient", "leave_one_out"], metavar="NAME")
    made.add_argument("--shares", nargs="+", type=float, metavar="SHARE", help="of the words (default: .1 .3 .5 .7 .9)")
    made.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="of the fresh models (default: the run's)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    known = parser().parse_args(arguments)
    from attnfaith.locate import locate_folder
    from attnfaith.measurement import registry

    folder = locate_folder(known.run, "retraining")
    registry.check_names([name for name in known.measures if name != "attention"])
    from datasets import disable_progress_bars

    from attnfaith.roar import SHARES, roar, summary

    disable_progress_bars()
    rows = roar(folder, known.output, known.measures, known.shares or SHARES, known.seeds)
    print(summary(rows).to_string(index=False))
