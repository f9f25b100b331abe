"""Cards of trained checkpoints and their index, as they are pushed, without pushing."""

from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.errors import AttnfaithError, counted
from attnfaith.usage import Parser


EXAMPLES = ("cards runs/quickstart --to OWNER",)


def parser() -> Parser:
    made = Parser(
        "cards",
        "Write one card per run, their figures and the index.",
        examples=EXAMPLES,
    )
    made.add_argument("run", nargs="+", metavar="RUN", help="folders of finished runs")
    made.add_argument("--to", required=True, metavar="OWNER", help="user or organisation of the repositories on the Hub")
    made.add_argument("--output", type=Path, default=Path("model_cards"), help="folder of the cards (default: %(default)s)")
    return made


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    known = parser().parse_args(arguments)
    from attnfaith.locate import locate_folder

    runs = [locate_folder(word, "a card") for word in known.run]
    from attnfaith import recipes
    from attnfaith.data.registry import facts
    from attnfaith.hub import repo_id_of, shared_repos
    from attnfaith.reporting.cards import checkpoint_name, write_cards

    names = [checkpoint_name(recipes.load(folder / common.RECIPE).name) for folder in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise AttnfaithError(f"two of the runs are called {twice[0]}: give runs whose recipes have different names")
    written = write_cards(
        {repo_id_of(known.to, name): folder for name, folder in zip(names, runs, strict=True)},
        known.output,
        facts,
        **shared_repos(known.to),
    )
    print(f"cards: {known.output} ({len(names)} of checkpoints, {counted(len(written), 'file')})")
    return written
