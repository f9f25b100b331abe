"""Write the measures and the gold evidence of a record as ERASER's files, which its own evaluation reads."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.errors import counted
from attnfaith.usage import Parser


EXAMPLES = ("eraser runs/movies --output eraser",)


def parser() -> Parser:
    made = Parser(
        "eraser",
        "Write a record of one model in ERASER's format: <split>.jsonl and docs.jsonl, the labelled texts with "
        "their gold evidence where the record has it; results/<measure>.jsonl, the scores of each measure that "
        "rationale_erasure tested, its rationale and the predictions with and without it.",
        examples=EXAMPLES,
    )
    made.add_argument("run", metavar="RUN", help="run, record or Hub id")
    made.add_argument("--output", type=Path, required=True, help="folder of the files")
    made.add_argument(
        "--share", type=float, help="share of the tokens that a rationale holds (default: the mean share of the gold ones)"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    known = parser().parse_args(arguments)
    from attnfaith.data.eraser import write_annotations, write_results
    from attnfaith.locate import locate
    from attnfaith.reporting import eraser
    from attnfaith.reporting.cells import one_cell

    cell = one_cell(locate(known.run).load())
    annotations, split = eraser.annotations(cell), cell.heading["split"]
    results = {name: eraser.results(cell, name, known.share) for name in eraser.measures(cell)}
    if annotations:
        texts = {row["instance_id"] for row in annotations}
        results = {name: [row for row in rows if row["instance_id"] in texts] for name, rows in results.items()}
    written = [write_annotations(known.output, split, annotations)] if annotations else []
    written += [write_results(known.output / "results" / f"{name}.jsonl", rows) for name, rows in results.items()]
    print(
        f"eraser: {known.output} ({counted(len(annotations), 'annotation')}, results of {counted(len(results), 'measure')})"
    )
    return written
