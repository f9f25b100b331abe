"""Material for a survey of people: heat maps of several models, which the reader cannot tell apart."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.usage import Parser


EXAMPLES = (
    "survey runs/honest runs/deceiving --output survey",
    "survey runs/honest runs/deceiving --output survey --texts 50 --seed 1 --questions Sure? Why?",
)


def parser() -> Parser:
    made = Parser(
        "survey",
        "Write material to hand out: survey.html, one page with heat maps of attention that needs nothing beside it; "
        "answers.csv, a sheet whose answers are empty; key.csv, which says of which run and text each item is, to be kept "
        "back. The texts are drawn from those that all runs hold. There are as many parts as runs: each has every text once "
        "and every run equally often, in random order and without a name. Subwords are summed to words.",
        examples=EXAMPLES,
    )
    made.add_argument("run", nargs="+", metavar="RUN", help="run, record, Hub id, or a folder of runs, of the same texts")
    made.add_argument("--output", type=Path, required=True, help="a new folder")
    made.add_argument("--texts", type=int, default=200, metavar="N", help="texts of each run (default: 200)")
    made.add_argument("--seed", type=int, default=0, help="of the draw and the order (default: 0)")
    made.add_argument("--questions", nargs="+", metavar="TEXT", help="asked of each item (default: two)")
    return made


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    known = parser().parse_args(arguments)
    from attnfaith import record
    from attnfaith.errors import AttnfaithError
    from attnfaith.locate import locate_each
    from attnfaith.reporting.cells import split_cells
    from attnfaith.reporting.survey import QUESTIONS, write_survey

    if known.seed < 0:
        raise AttnfaithError(f"--seed {known.seed}: a whole number of 0 or more")
    cells, names = [], []
    for source in locate_each(known.run):
        table = source.load()
        of_source = split_cells(record.by_word(table) if "word_of_token" in table.column_names else table)
        cells += of_source
        names += [source.name] * len(of_source)
    written = write_survey(
        cells, names, known.output, texts=known.texts, seed=known.seed, questions=known.questions or QUESTIONS
    )
    print(f"survey: {written[0]} (texts: {known.texts}, models: {len(cells)}); keep {written[2]} back")
    return written
