"""Tables, figures and page from a record, without a model."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


EXAMPLES = (
    "report runs/quickstart",
    "report runs/one runs/two --output both",
)


def parser() -> Parser:
    made = Parser(
        "report",
        "Write tables, figures and a page from the records of one or more runs.",
        examples=EXAMPLES,
    )
    made.add_argument("run", nargs="+", metavar="RUN", help="run, record, Hub id, or a folder of runs")
    made.add_argument("--output", type=Path, help="folder of the report (default: that of the run, where one is given)")
    made.add_argument("--examples", type=int, help="texts of best and of worst agreement (default: as the run's, or 5)")
    made.add_argument("--words", action="store_true", help="sum what a model of subwords says over the subwords of a word")
    made.add_argument("--mix-versions", action="store_true", help="join records even if different code measured them")
    return made


def main(arguments: Sequence[str] | None = None) -> Path:
    known = parser().parse_args(arguments)
    from attnfaith.locate import locate_each

    sources = locate_each(known.run)
    own = sources[0].folder if len(sources) == 1 else None
    if known.output is None and own is None:
        raise AttnfaithError("--output is needed: the folder of the report; only one run has a report of its own")
    from attnfaith import recipes, record
    from attnfaith.reporting import run_facts, write_report
    from attnfaith.reporting.page.report import facts_of

    recipe = recipes.load(own / common.RECIPE) if own and (own / common.RECIPE).is_file() else None
    tables = [source.load() for source in sources]
    if not known.mix_versions:
        record.check_one_version(tables, remedy="measure them anew with one, or give --mix-versions")
    if known.words:
        tables = [record.by_word(record.concatenate(tables, mix_versions=True))]
    section = recipe.report if recipe else recipes.Report()
    page = write_report(
        record.concatenate(tables, mix_versions=True),
        known.output or own / (f"{common.REPORT}_words" if known.words else common.REPORT),
        title=section.title,
        facts=run_facts(tables[0], recipe.note) if recipe else facts_of(tables[0]) if len(tables) == 1 else None,
        n_examples=section.examples if known.examples is None else known.examples,
    )
    print(f"report: {page}")
    return page
