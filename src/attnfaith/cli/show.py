"""One text in the terminal: its tokens, and what every measure says of each."""

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
        "Show a text with the scores of attention and of every measure side by side. Colours go away with NO_COLOR, in a "
        "pipe and on a dumb terminal; FORCE_COLOR keeps them.",
        examples=EXAMPLES,
    )
    made.add_argument("run", metavar="RUN", help="run, record or Hub id")
    made.add_argument("text", nargs="*", metavar="TEXT", help="numbers from 0, or instance ids (default: best and worst τ)")
    made.add_argument("--measures", nargs="+", default=[], metavar="NAME", help="(default: all of inputs)")
    return made


def main(arguments: Sequence[str] | None = None) -> str:
    known = parser().parse_args(arguments)
    from attnfaith import terminal
    from attnfaith.locate import locate
    from attnfaith.reporting.cells import one_cell
    from attnfaith.reporting.page.heatmap import choose
    from attnfaith.reporting.shown import row_of, show

    cell = one_cell(locate(known.run).load())
    rows = [row_of(cell, word) for word in known.text]
    if not rows:
        best, worst, _ = choose(cell, 1)
        rows = [*best, *worst]
    how = {"columns": terminal.columns(), "colour": terminal.coloured()}
    shown = "\n".join(show(cell, row, known.measures, **how) for row in rows)
    print(shown, end="")
    return shown
