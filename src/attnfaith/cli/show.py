"""One text, or pair of sentences, in the terminal: its tokens, and what every measure says of each."""

from collections.abc import Sequence

from attnfaith.usage import Parser


EXAMPLES = (
    "show runs/quickstart 17",
    "show runs/quickstart                       # the texts of best and of worst agreement",
    "show OWNER/NAME sst/test/17 --measures gradient lime",
)


def parser() -> Parser:
    made = Parser(
        "show",
        "Show a text as a table: its tokens, with the scores of attention and of every measure. Of a pair of sentences: "
        "what each target word reads of the source.",
        examples=EXAMPLES,
    )
    made.add_argument("run", metavar="RUN", help="run, record or Hub id")
    made.add_argument("text", nargs="*", metavar="TEXT", help="numbers from 0, or instance ids (default: best and worst)")
    made.add_argument(
        "--measures", nargs="+", default=[], metavar="NAME", help="(default: all of inputs; of pairs the best reading)"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> str:
    known = parser().parse_args(arguments)
    from attnfaith.locate import locate
    from attnfaith.reporting.cells import one_cell

    cell = one_cell(locate(known.run).load())
    from attnfaith.reporting.heatmap import choose
    from attnfaith.reporting.notebook import Shown, row_of
    from attnfaith.reporting.pairs import ShownPair, choose_pairs

    rows = [row_of(cell, word) for word in known.text]
    if cell.of_sequences:
        rows = rows or [row for _, group in choose_pairs(cell, 1) for row in group]
        parts = [str(ShownPair(cell, row, known.measures)) for row in rows]
    else:
        best, worst, _ = choose(cell, 1)
        parts = [str(Shown(cell, row, known.measures or None)) for row in rows or [*best, *worst]]
    shown = "\n\n".join(parts)
    print(shown)
    return shown
