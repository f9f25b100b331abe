"""Train, measure and report by a recipe; with no arguments, the quickstart."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli import common
from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


EXAMPLES = (
    "train                                                # the quickstart, in seconds",
    "train --config meister_2021/sst.yaml --seed 11",
    "train --data.name sst --encoder cnn --add integrated_gradients",
    "train --data.name sst --seeds 10 11 12               # a run for each seed, then mean ± std",
)


def parser() -> Parser:
    made = common.recipe_parser(
        "train",
        "Train a model, measure its attention and write a report. Every key of the recipe can be overridden: --seed 3, "
        "--encoder cnn, --training.learning_rate 1e-4, --producers gradient leave_one_out.",
        examples=EXAMPLES,
    )
    made.add_argument(
        "--config",
        type=Path,
        metavar="RECIPE",
        help="a file, or a recipe of the package such as meister_2021/sst.yaml (default: the quickstart, or with "
        "--data.name the defaults on that data set; `attnfaith list recipes` has all)",
    )
    common.add_producers(made)
    made.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="SEED",
        help="a run for each, in output_dir/seed_SEED, then their mean and spread; stopped, the same command goes on",
    )
    made.add_argument("--overwrite_output_dir", action="store_true", help="replace the run that lies in output_dir")
    made.add_argument("--resume_from_checkpoint", action="store_true", help="go on with the run that lies in output_dir")
    made.add_argument(
        "--remeasure", action="store_true", help="with it, measure the model there anew if other code measured it"
    )
    hub = made.add_argument_group(
        "the Hub", "as transformers' Trainer has them; the token is that of `hf auth login` or HF_TOKEN"
    )
    hub.add_argument("--push_to_hub", action="store_true", help="push the run when it is complete")
    hub.add_argument("--hub_model_id", metavar="[OWNER/]NAME", help="of the model (default: you, and the recipe's name)")
    hub.add_argument("--hub_private_repo", action="store_true", help="new repositories are private")
    hub.add_argument("--hub_revision", metavar="BRANCH", help="the branch to push to (default: main)")
    for refused in ("--hub_token", "--hub_strategy", "--hub_always_push"):
        hub.add_argument(refused, nargs="?", const=True, help=argparse.SUPPRESS)
    common.add_processes(made)
    return made


def main(arguments: Sequence[str] | None = None) -> Path | None:
    known, overrides = common.read(parser(), arguments)
    _check_hub_options(known)
    if known.remeasure and not (known.resume_from_checkpoint or known.seeds):
        raise AttnfaithError("--remeasure is for a run that lies there: add --resume_from_checkpoint")
    from attnfaith import recipes

    overrides = common.with_producers(known, known.config, overrides)
    recipe = recipes.load(known.config, overrides)
    common.check_producers(recipe)
    if recipe.data.path is not None and recipe.model.type is None:
        from attnfaith.data.own_data import check_own

        check_own(recipe.data)
    if known.seeds:
        from attnfaith.cli import seeds

        return seeds.train(known, recipe, overrides, arguments)
    if known.processes is not None:
        return common.in_processes("train", known.processes, arguments)
    if known.config is None and common.is_main_process():
        print(f"no --config is given: {recipe.name}, in {recipe.output_dir}")
    from attnfaith import runs

    destination = _destination(known, recipe) if known.push_to_hub else None
    how = {"overwrite": known.overwrite_output_dir, "resume": known.resume_from_checkpoint, "remeasure": known.remeasure}
    with recipes.named(str(known.config or recipe.name)):
        page = runs.run(recipe, **how)
    if common.is_main_process():
        print(f"\nreport: {page}")
        if destination:
            _push_run(Path(recipe.output_dir), *destination, known)
    return page


def _check_hub_options(known: argparse.Namespace) -> None:
    if known.hub_token is not None:
        raise AttnfaithError(
            "--hub_token: a token on a command line is read by everybody on the machine and kept by the shell: log in with "
            "`hf auth login`, or set HF_TOKEN"
        )
    for name in ("hub_strategy", "hub_always_push"):
        if getattr(known, name) is not None:
            raise AttnfaithError(f"--{name}: a run is pushed whole, when it is complete: leave it out")
    for name in ("hub_model_id", "hub_private_repo", "hub_revision"):
        if getattr(known, name) and not known.push_to_hub:
            raise AttnfaithError(f"--{name} is for a run that is pushed: add --push_to_hub")


def _destination(known: argparse.Namespace, recipe) -> tuple[str, str]:
    """(owner, name) of the model; asked before work is done that could not be pushed."""
    from attnfaith import hub, provenance
    from attnfaith.reporting.cards import checkpoint_name

    if recipe.model.type is not None:
        raise AttnfaithError(
            f"--push_to_hub with model.type={recipe.model.type!r}: only classifiers of this package have a card; leave it "
            "out, and push the model by its own push_to_hub"
        )
    if recipe.model.pretrained is not None:
        raise AttnfaithError(
            "--push_to_hub: only classifiers of this package have a card and records; leave it out, and push the model "
            "by its own push_to_hub"
        )
    if provenance.checkout()[1] and not known.resume_from_checkpoint:
        raise AttnfaithError(
            "--push_to_hub: a run by code with uncommitted changes is not pushed: commit them, or leave it out"
        )
    owner, _, name = (known.hub_model_id or "").rpartition("/")
    owner = hub.check(owner or None)
    name = name or checkpoint_name(recipe.name)
    hub.repo_id_of(owner, name)
    return owner, name


def _push_run(run: Path, owner: str, name: str, known: argparse.Namespace) -> None:
    from attnfaith import hub

    try:
        hub.push(hub.plan(run, owner, name=name, private=known.hub_private_repo, revision=known.hub_revision))
    except hub.HubError as error:
        again = [f"attnfaith push {run} --to {owner} --name {name}", "--private" if known.hub_private_repo else ""]
        again += [f"--revision {known.hub_revision}" if known.hub_revision else ""]
        raise hub.HubError(f"{error}; the run itself is whole, `{' '.join(filter(None, again))}` pushes it") from error
