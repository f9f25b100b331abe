"""Publish and check: pushes, cards and reproductions of finished runs."""

from pathlib import Path

from attnfaith.cli.command import OWNER, RUNS, argument, command, flag, is_main_process
from attnfaith.support.errors import AttnfaithError, counted


@command(
    RUNS,
    OWNER,
    argument("--name", help="of the model, where one run is pushed (default: the recipe's name)"),
    flag("--dry-run", help="only print what would be sent and its size"),
    flag("--private", help="new repositories are private"),
    examples=("push runs/quickstart --to OWNER --dry-run", "push runs/quickstart runs/sparse --to OWNER"),
)
def push(args):
    """Push finished runs to the Hub: models with cards, records, result tables, the metric.

    The token is that of `hf auth login` or HF_TOKEN. Only what differs is sent; an interrupted push is run again.
    """
    folders = _folders(args, "a push")
    from attnfaith import hub

    if not args.dry_run:
        hub.check(args.to)  # before the runs are read, which takes longer
    for name, folder in folders.items():
        repos = hub.plan(folder, args.to, name=name)
        if args.dry_run:
            print(*(repo.listing() for repo in repos), sep="\n")
        else:
            hub.push(repos, private=args.private)


def _folders(args, needs: str) -> dict[str, Path]:
    """Name on the Hub -> folder of each run. Raises AttnfaithError where there is no run, or two have one name."""
    from attnfaith.record.lookup import run_folder

    folders = [run_folder(word, needs) for word in args.run]
    from attnfaith import recipes
    from attnfaith.reporting.cards import checkpoint_name

    own = getattr(args, "name", None)
    named = {own or checkpoint_name(recipes.load(folder / "recipe.yaml").name): folder for folder in folders}
    if len(named) < len(folders):
        raise AttnfaithError(f"two of the runs would be called alike ({', '.join(named)}): give each one --name")
    return named


@command(
    RUNS,
    OWNER,
    argument("--output", type=Path, default=Path("model_cards"), help="folder of the cards (default: %(default)s)"),
    examples=("cards runs/quickstart --to OWNER",),
)
def cards(args):
    """Cards of trained checkpoints, as they are pushed, without pushing."""
    folders = _folders(args, "a card")
    from attnfaith.data.registry import facts
    from attnfaith.hub import RECORDS, repo_id_of
    from attnfaith.reporting.cards import write_cards

    checkpoints = {repo_id_of(args.to, name): folder for name, folder in folders.items()}
    written = write_cards(checkpoints, args.output, facts, repo_id_of(args.to, RECORDS))
    print(f"cards: {args.output} ({len(folders)} of checkpoints, {counted(len(written), 'file')})")


@command(
    argument("source", help="folder of a run, or OWNER/NAME of a model on the Hub"),
    argument("--output", type=Path, help="folder of the new run (default: runs/reproduced/NAME)"),
    argument("--data.path", dest="data_path", metavar="PATH", help="where its own data lie (runs of own data)"),
    examples=("reproduce runs/quickstart", "reproduce OWNER/NAME --output again"),
)
def reproduce(args):
    """Train and measure a recorded run anew and report which numbers agree; exit code 1 where one does not.

    Every result is compared: exactly, within its tolerance, or not; reproduction.csv has them all.
    """
    from attnfaith.loading import is_repository
    from attnfaith.record.lookup import run_folder

    if not is_repository(args.source):
        run_folder(args.source, "a reproduction")  # before torch is imported
    from attnfaith import reproduction

    folder, compared = reproduction.reproduce(args.source, args.output, data_path=args.data_path)
    if is_main_process():
        print(f"{reproduction.describe(compared)}\nall results: {folder / reproduction.TABLE}")
    if (compared["agreement"] == reproduction.NOT).any():
        raise SystemExit(1)
