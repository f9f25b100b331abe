"""A wide table of runs: mean ± std over seeds, as Markdown, LaTeX or CSV."""

import re
from collections.abc import Sequence
from pathlib import Path

from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


KINDS = ("markdown", "latex", "csv", "text")
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".txt": "text"}
EXAMPLES = (
    "table runs/*/ --rows encoder --columns measure",
    "table runs/sst --rows dataset encoder --columns projection --where measure=gradient --format latex",
    "table runs/sst --rows encoder --columns quantity --output numbers.csv",
    "table runs/sst --rows encoder --columns projection --value performance.roc_auc",
)


def parser() -> Parser:
    made = Parser(
        "table",
        "Put numbers of several runs into a wide table. Runs that differ in their seed alone become mean ± standard "
        "deviation, with the number of seeds; one seed has no spread. Without --rows and --columns: the kinds of models "
        "that there are, by measure and by the other numbers.",
        examples=EXAMPLES,
    )
    made.add_argument("run", nargs="+", metavar="RUN", help="run, record, Hub id, or a folder of runs")
    made.add_argument("--rows", nargs="+", metavar="KEY", help="what names the rows, such as dataset encoder projection")
    made.add_argument("--columns", metavar="KEY", help="what names the columns: measure, quantity, projection, class, …")
    made.add_argument(
        "--value",
        metavar="TABLE.NUMBER",
        help="a number of the report's tables, such as performance.accuracy (default: means over texts)",
    )
    made.add_argument("--where", nargs="+", default=[], metavar="KEY=VALUE", help="only these, such as projection=softmax")
    made.add_argument("--format", choices=KINDS, help="(default: by the suffix of --output, else text)")
    made.add_argument("--output", type=Path, help="a file to write to: .md, .tex, .csv or .txt")
    made.add_argument("--mix-versions", action="store_true", help="join records even if different code measured them")
    return made


def main(arguments: Sequence[str] | None = None) -> str:
    known = parser().parse_args(arguments)
    kind = known.format or (SUFFIXES.get(known.output.suffix) if known.output else "text")
    if kind is None:
        raise AttnfaithError(f"--output {known.output}: end it in {', '.join(SUFFIXES)}, or give --format")
    if bool(known.rows) != bool(known.columns):
        raise AttnfaithError("--rows and --columns go together: give both, or neither")
    if not known.rows and (known.value or known.where):
        raise AttnfaithError("--value and --where are for a table with --rows and --columns")
    pairs = [re.fullmatch(r"([^=]+)=(.*)", word) for word in known.where]
    if not all(pairs):
        raise AttnfaithError(f"--where {' '.join(known.where)}: write KEY=VALUE, such as projection=softmax")
    from attnfaith import record
    from attnfaith.files import write_atomically
    from attnfaith.locate import locate_each
    from attnfaith.reporting.cells import split_cells
    from attnfaith.reporting.wide import NUMBERS, overview, wide_table

    tables = [source.load() for source in locate_each(known.run)]
    if not known.mix_versions:
        record.check_one_version(tables, remedy="measure them anew with one, or give --mix-versions")
    cells = [cell for table in tables for cell in split_cells(table)]
    if known.rows:
        made = [wide_table(cells, known.rows, known.columns, known.value or NUMBERS, {pair[1]: pair[2] for pair in pairs})]
    else:
        made = overview(cells)
    if kind == "csv" and len(made) > 1:
        raise AttnfaithError("a CSV holds one table: give --rows and --columns")
    text = "\n".join(table.formatted(kind) for table in made)
    if known.output:
        write_atomically(known.output, text)
        print(f"table: {known.output}")
    else:
        print(text, end="")
    return text
