"""Runs side by side over the texts and numbers that they share, with paired intervals."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.escaping import csv_frame
from attnfaith.usage import Parser


EXAMPLES = (
    "compare runs/softmax runs/sparsemax",
    "compare runs/softmax/seed_* runs/sparsemax/seed_* --output compared.csv",
    "compare OWNER/NAME runs/mine",
    "compare runs/honest runs/deceptive --page compared.html",
)


def parser() -> Parser:
    made = Parser(
        "compare",
        "Compare models over what their records share: the agreement with each measure, accuracy, what experiments changed. "
        "Every other one is compared with the first, text by text, with 95 % intervals and p-values corrected by Holm. Runs "
        "that differ in their seed alone are one side. What evidence does not show is called `cannot be told`, not equal.",
        examples=EXAMPLES,
    )
    made.add_argument("run", nargs="+", metavar="RUN", help="two or more: run, record, Hub id, or a folder of runs")
    made.add_argument("--output", type=Path, help="a file for all numbers, CSV")
    made.add_argument("--page", type=Path, help="a file for one page: a chart and the table")
    made.add_argument("--mix-versions", action="store_true", help="compare also what different code measured")
    return made


def main(arguments: Sequence[str] | None = None) -> object:
    known = parser().parse_args(arguments)
    from attnfaith.files import write_atomically
    from attnfaith.locate import locate_each

    sources = locate_each(known.run)
    from attnfaith.reporting.compare import compare
    from attnfaith.reporting.page.comparison import comparison_page

    made = compare(
        [source.load() for source in sources], [source.name for source in sources], mix_versions=known.mix_versions
    )
    print(made)
    if known.output:
        write_atomically(known.output, csv_frame(made.frame))
        print(f"\nnumbers: {known.output}")
    if known.page:
        write_atomically(known.page, comparison_page(made))
        print(f"\npage: {known.page}")
    return made
