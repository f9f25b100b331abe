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
    from attnfaith.reporting.page.heatmap import choose
    from attnfaith.reporting.pairs import choose_pairs
    from attnfaith.reporting.shown import row_of, show
    from attnfaith.reporting.shown_pairs import readings_of, show_pair

    rows = [row_of(cell, word) for word in known.text]
    if cell.of_sequences:
        ways = readings_of(cell, known.measures)
        rows = rows or [row for _, group in choose_pairs(cell, 1) for row in group]
        parts = [show_pair(cell, row, ways) for row in rows]
    else:
        if not rows:
            best, worst, _ = choose(cell, 1)
            rows = [*best, *worst]
        parts = [show(cell, row, known.measures) for row in rows]
    shown = "\n".join(parts)
    print(shown, end="")
    return shown
