"""Serve a page that measures a model on a typed sentence, to be tried by hand."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


EXAMPLES = (
    "space runs/sst",
    "space OWNER/MODEL runs/sst runs/imdb --only",
    "space --host 0.0.0.0 --port 7860",
)


def parser() -> Parser:
    parser = Parser(
        "space",
        "Serve a page for one typed sentence: every measure as heat maps beside attention, how far attention is from being "
        "determined, what the model says when words or weights are changed, and the record to take away. It needs gradio: "
        "pip install 'attnfaith[space]'. It is stopped with Ctrl-C.",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "models", metavar="MODEL", nargs="*", help="models to choose from: folders, runs, or names on the Hub"
    )
    parser.add_argument(
        "--only", action="store_true", help="readers choose among these; without it they may name any on the Hub"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default: 127.0.0.1, this machine alone)")
    parser.add_argument("--port", type=int, metavar="N", help="port to serve at (default: the first free one from 7860)")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    from attnfaith.loading import is_repository
    from attnfaith.locate import MODEL

    if options.port is not None and not 0 < options.port < 65536:
        raise AttnfaithError(f"--port {options.port}: give a number from 1 to 65535")
    for name in options.models:
        places = Path(name) / "config.json", Path(name) / MODEL / "config.json"
        if not any(place.is_file() for place in places) and not is_repository(name):
            raise AttnfaithError(f"{name} is neither a run, nor the folder of a model, nor OWNER/NAME of one on the Hub")
    from attnfaith.space import Service, require_gradio, serve

    require_gradio()
    serve(Service(options.models, open=not options.only), host=options.host, port=options.port)
