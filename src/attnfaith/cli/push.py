"""Push finished runs to the Hub: models with cards, records, result tables, the metric."""

from collections.abc import Sequence

from attnfaith.usage import Parser


EXAMPLES = (
    "push runs/quickstart --to OWNER --dry-run",
    "push runs/quickstart --to OWNER",
)


def parser() -> Parser:
    made = Parser(
        "push",
        "Push finished runs to the Hub: each model with its card, their records, their tables and the metric. "
        "The token is that of `hf auth login` or HF_TOKEN. Only what differs is sent; an interrupted push is run again.",
        examples=EXAMPLES,
    )
    made.add_argument("run", nargs="+", metavar="RUN", help="folders of finished runs")
    made.add_argument("--to", metavar="OWNER", required=True, help="user or organisation that it will belong to")
    made.add_argument("--name", help="of the model (default: the recipe's name)")
    made.add_argument("--dry-run", action="store_true", help="only print what would be sent and its size")
    made.add_argument("--private", action="store_true", help="new repositories are private")
    made.add_argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)")
    made.add_argument("--create-pr", action="store_true", help="offer it as pull requests to repositories that are there")
    return made


def main(arguments: Sequence[str] | None = None) -> list[str]:
    known = parser().parse_args(arguments)
    from attnfaith.locate import locate_folder

    runs = [locate_folder(word, "a push") for word in known.run]
    from attnfaith import hub

    if not known.dry_run:
        hub.check(known.to, create_pr=known.create_pr)  # before the runs are read, which takes longer
    if known.name is not None and len(runs) > 1:
        raise hub.HubError(f"--name {known.name} for {len(runs)} runs: a name is for one of them; leave it out")
    how = {"private": known.private, "revision": known.revision, "create_pr": known.create_pr}
    plans = [hub.plan(run, known.to, name=known.name, **how) for run in runs]
    names = [plan.repos[-1].repo_id for plan in plans]
    if twice := [name for name in names if names.count(name) > 1]:
        raise hub.HubError(f"two runs would be {twice[0]}: push them one by one, with --name")
    if known.dry_run:
        print("\n\n".join(plan.describe() for plan in plans))
        return []
    return [address for plan in plans for address in hub.push(plan)]
