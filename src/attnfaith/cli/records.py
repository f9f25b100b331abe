"""Look at results: reports, texts, models, runs side by side, tables, the Space."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli.command import DEVICE, MIX, RECORDS, argument, command
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import write_atomically


@command(
    RECORDS,
    argument("--output", type=Path, help="folder of the report (default: that of the run, where one is given)"),
    argument("--examples", type=int, help="pairs of sentences of lowest and of highest error (default: as the run's, or 5)"),
    MIX,
    examples=("report runs/quickstart", "report runs/one runs/two --output both"),
)
def report(args):
    """Tables, figures and page from the records of one or more runs, without a model."""
    from attnfaith.record.lookup import find_records

    paths = [*find_records(*args.run)]
    own = paths[0].parent if len(paths) == 1 and paths[0].name == "record.parquet" else None
    if args.output is None and own is None:
        raise AttnfaithError("--output is needed: the folder of the report; only one run has a report of its own")
    from attnfaith import recipes, record
    from attnfaith.reporting.page import write_report

    table = record.concatenate(_tables(paths, mix_versions=args.mix_versions))
    section = recipes.load(own / "recipe.yaml").report if own and (own / "recipe.yaml").is_file() else recipes.Report()
    examples = section.examples if args.examples is None else args.examples
    print(f"report: {write_report(table, args.output or own / 'report', title=section.title, n_examples=examples)}")


def _tables(paths, *, mix_versions: bool) -> list:
    """The records of some files; of one version of the package unless mix_versions."""
    from attnfaith import record

    tables = [record.load(path) for path in paths]
    if not mix_versions:
        record.check_one_version(tables)
    return tables


def cells_of(words: Sequence[str], *, mix_versions: bool) -> list:
    """The cells of runs, records, Hub ids and folders of runs."""
    from attnfaith.record.lookup import find_records
    from attnfaith.reporting.cells import split_cells

    return [cell for table in _tables(find_records(*words), mix_versions=mix_versions) for cell in split_cells(table)]


@command(
    argument("run", metavar="RUN", help="run, record or Hub id"),
    argument("text", nargs="*", metavar="TEXT", help="numbers from 0, or instance ids (default: one of the middle)"),
    argument("--measures", nargs="+", metavar="NAME", help="(default: all of inputs)"),
    examples=("show runs/quickstart", "show OWNER/NAME sst/test/17 --measures gradient lime"),
)
def show(args):
    """One text in the terminal: its tokens with the scores of every measure; or a pair of sentences with its gold links."""
    from attnfaith.api.records import load
    from attnfaith.reporting.heatmap import middle_text

    record = load(args.run)
    texts = args.text or [0 if record.of_sequences else middle_text(record.cells[0])[0]]
    print("\n\n".join(str(record.show(text, args.measures)) for text in texts))


@command(
    argument("model", metavar="MODEL", help="a model with attention: its folder, a run, or a name on the Hub; or a record"),
    argument("text", nargs="?", metavar="TEXT", help="the text; of a record of sentence pairs a number or an id"),
    argument("--pair", metavar="TEXT", help="the second text, of a model that reads two; the target of a translator"),
    argument("--measure", nargs="+", metavar="NAME", help="attention, rollout, alti, value_zeroing, … (default: all)"),
    DEVICE,
    argument("--output", type=Path, default=Path("view.html"), help="the page (default: view.html)"),
    examples=(
        'view OWNER/MODEL "a moving and brilliant portrait"',
        'view runs/sst "a clumsy film" --measure alti value_zeroing --output clumsy.html',
        'view OWNER/MODEL "A man sleeps." --pair "A person is awake."',
    ),
)
def view(args):
    """All self-attention of a model on one text, in a page to look at and to send.

    The page shows what the answer takes of each word, and attention of each layer and head, rollout, ALTI and value zeroing;
    for pairs of sentences which words align, with gold links. It is one file that needs no network.
    """
    from attnfaith.loading import model_folder
    from attnfaith.measurement import registry
    from attnfaith.reporting.view import TITLES
    from attnfaith.support.errors import nearest

    names = {*TITLES, *registry.names("pairs")}  # checked before torch is imported, as the model is
    for name in args.measure or ():
        if name not in names:
            raise AttnfaithError(f"--measure {name}: there is no such measure here{nearest(name, names)}")
    if not Path(args.model).exists():
        model_folder(args.model)
    from attnfaith.api.viewing import view

    text = args.text if args.pair is None else (args.text, args.pair)
    drawing = view(args.model, text, args.measure, device=args.device)
    page = drawing.save(args.output)
    print(f"{drawing}\nview: {page} ({page.stat().st_size / 1e3:,.0f} kB)")


@command(
    RECORDS,
    argument("--output", type=Path, help="a file for all numbers, CSV"),
    argument("--page", type=Path, help="a file for one page: a chart and the table"),
    MIX,
    examples=(
        "compare runs/softmax runs/sparsemax",
        "compare runs/softmax/seed_* runs/sparsemax/seed_* --output compared.csv --page compared.html",
    ),
)
def compare(args):
    """Runs side by side over the texts and numbers that they share, with paired intervals.

    Every other one is compared with the first, text by text, with 95 % intervals and p-values corrected by Holm: the
    agreement with each measure, accuracy, effects of experiments. Runs that differ in their seed alone are one side.
    Without enough evidence the answer is `cannot be told`, not equal.
    """
    from attnfaith.api.records import compare
    from attnfaith.reporting.compare import comparison_page
    from attnfaith.support.escaping import csv_frame

    comparison = compare(*args.run, mix_versions=args.mix_versions)
    print(comparison)
    if args.output:
        print(f"\nnumbers: {write_atomically(args.output, csv_frame(comparison.frame))}")
    if args.page:
        print(f"\npage: {write_atomically(args.page, comparison_page(comparison))}")


SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".txt": "text"}


@command(
    RECORDS,
    argument("--rows", nargs="+", metavar="KEY", help="what names the rows, such as dataset encoder projection"),
    argument("--columns", metavar="KEY", help="what names the columns: measure, quantity, projection, …"),
    argument("--where", nargs="+", metavar="KEY=VALUE", help="only these, such as projection=softmax"),
    argument("--format", choices=tuple(SUFFIXES.values()), help="(default: by the suffix of --output, else text)"),
    argument("--output", type=Path, help="a file to write to: .md, .tex, .csv or .txt"),
    MIX,
    examples=(
        "table runs/*/ --rows encoder --columns measure",
        "table runs/sst --rows dataset encoder --columns projection --where measure=gradient --format latex",
        "table runs/sst --rows encoder --columns quantity --output numbers.csv",
    ),
)
def table(args):
    """A wide table of runs: mean ± std over seeds, as Markdown, LaTeX or CSV.

    Runs that differ in their seed alone become mean ± standard deviation, with the number of seeds; one seed has no spread.
    Without --rows and --columns: kinds of models by measure and by the other numbers.
    """
    kind = args.format or (SUFFIXES.get(args.output.suffix) if args.output else "text")
    if kind is None:
        raise AttnfaithError(f"--output {args.output}: end it in {', '.join(SUFFIXES)}, or give --format")
    if (args.rows or args.columns or args.where) and not (args.rows and args.columns):
        raise AttnfaithError("--rows and --columns go together, and --where only with both")
    from attnfaith.reporting.seed_tables import overview, seed_table

    cells = cells_of(args.run, mix_versions=args.mix_versions)
    where = dict(word.partition("=")[::2] for word in args.where or ())
    wide = [seed_table(cells, args.rows, args.columns, where)] if args.rows else overview(cells)
    if kind == "csv" and len(wide) > 1:
        raise AttnfaithError("a CSV holds one table: give --rows and --columns")
    text = "\n".join(part.formatted(kind) for part in wide)
    print(f"table: {write_atomically(args.output, text)}\n" if args.output else text, end="")


@command(
    argument("models", metavar="MODEL", nargs="+", help="models to choose from: folders, runs, or names on the Hub"),
    argument("--host", default="127.0.0.1", help="address to serve at (default: 127.0.0.1, this machine alone)"),
    argument("--port", type=int, metavar="N", help="port to serve at (default: the first free one from 7860)"),
    examples=("space runs/sst", "space OWNER/MODEL runs/sst runs/imdb --host 0.0.0.0 --port 7860"),
)
def space(args):
    """Serve a page that measures a model on a typed sentence, to be tried by hand.

    It shows every measure as heat maps beside attention, the predictions for other words or weights, and the record as a
    file. It needs gradio: pip install 'attnfaith[space]'. Ctrl-C stops it.
    """
    from attnfaith.loading import is_repository, model_folder

    for name in args.models:
        if not is_repository(name):
            model_folder(name)
    from attnfaith.space import Service, serve

    serve(Service(args.models), host=args.host, port=args.port)
