"""All self-attention of a model on one text, in a page to look at and to send."""

import os
from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.errors import AttnfaithError, excerpt
from attnfaith.usage import Parser


EXAMPLES = (
    'view OWNER/MODEL "a moving and brilliant portrait"',
    'view runs/sst "a clumsy film" --measure alti value_zeroing --output clumsy.html --figures',
    'view OWNER/MODEL "A man sleeps." --pair "A person is awake."',
    "view runs/translator/record.parquet 17",
)


def parser() -> Parser:
    made = Parser(
        "view",
        "Write one page that shows what reads what in a model of many layers: attention of each layer and head, rollout, "
        "ALTI and value zeroing through the layers. Choose a token for what it reads and who reads it. Of pairs of "
        "sentences: which words align, by every measure, layer and head, with gold links. The page is one file and "
        "needs nothing else, no server and no network.",
        examples=EXAMPLES,
    )
    made.add_argument(
        "model", metavar="MODEL", help="a model with attention: its folder, a run, or a name on the Hub; or a record"
    )
    made.add_argument("text", nargs="?", metavar="TEXT", help="the text; of a record of sentence pairs a number or an id")
    made.add_argument(
        "--pair", metavar="TEXT", help="the second text, of a model that reads two; the target of one that translates"
    )
    made.add_argument(
        "--measure",
        nargs="+",
        metavar="NAME",
        help="attention, rollout, alti, value_zeroing: those to be seen, the first of them first (default: all that the "
        "model has); of one that translates its own measures",
    )
    common.add_device(made)
    made.add_argument("--output", type=Path, default=Path("view.html"), help="the page (default: view.html)")
    made.add_argument(
        "--figures",
        action="store_true",
        help="write figures too, as PNG, SVG and PDF, next to the page",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> Path:
    known = parser().parse_args(arguments)
    if known.output.suffix not in (".html", ".htm"):
        raise AttnfaithError(f"--output {excerpt(str(known.output))}: the page is HTML, so end its name in .html")
    if known.output.is_file() and GENERATOR not in known.output.read_bytes()[:1000]:
        raise AttnfaithError(f"{known.output} is there already, and is no page of this command: name another --output")
    from attnfaith.loading import model_folders
    from attnfaith.measurement import registry
    from attnfaith.reporting.view_figures import TITLES

    seen = {*TITLES, *registry.names("pairs")}
    if wrong := next((name for name in known.measure or () if name not in seen), None):
        raise AttnfaithError(f"nothing to be seen is called {excerpt(wrong)}; there are {', '.join(TITLES)}")
    if not os.path.exists(known.model):
        model_folders(known.model)
    from attnfaith.api.viewing import view
    from attnfaith.reporting.style import require_matplotlib, save_figure

    if known.figures:
        require_matplotlib()
    made = view(
        known.model, known.text if known.pair is None else (known.text, known.pair), known.measure, device=known.device
    )
    if known.figures and not hasattr(made, "figures"):
        raise AttnfaithError("--figures are of a text; those of sentence pairs are in the report: attnfaith report RECORD")
    figures = made.figures() if known.figures else {}
    page = made.save(known.output)
    print(f"{made}\nview: {page} ({page.stat().st_size / 1e3:,.0f} kB)")
    for name, figure in figures.items():
        written = save_figure(figure, page.with_name(f"{page.stem}-{name}"))
        print("figure: " + " ".join(map(str, written)))
    return page


GENERATOR = b'content="attnfaith view'
