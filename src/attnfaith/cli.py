"""The command line. A command is one function of its arguments, listed in COMMANDS; it imports what it needs itself."""

import argparse
import difflib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from attnfaith._memory import keep_freed_memory
from attnfaith.errors import AttnfaithError
from attnfaith.files import refusals
from attnfaith.launch import launch, tell_parent


RECORD, RECIPE, REPORT = "record.parquet", "recipe.yaml", "report"  # in the folder of a run


def _is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def _recipe_parser(name: str, description: str, *sections: str) -> argparse.ArgumentParser:
    """A parser whose help lists the keys of a recipe, all or those of some sections, and that leaves them to `recipes`."""
    from attnfaith import recipes

    return argparse.ArgumentParser(
        prog=f"attnfaith {name}",
        description=description,
        epilog=recipes.describe(*sections),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a short key of a recipe is no abbreviation of an option
    )


def _add_processes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes", type=int, metavar="N", help="work in so many processes on this machine, on a GPU each where there are"
    )


def _launch(command: str, processes: int, arguments: Sequence[str] | None) -> None:
    """Do a command in several processes: its own arguments but for their number."""
    if processes < 1:
        raise AttnfaithError(f"--processes {processes}: at least 1")
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    _add_processes(parser)
    _, rest = parser.parse_known_args(arguments)
    if code := launch(command, rest, processes):
        raise SystemExit(code)


def train(arguments: Sequence[str] | None = None) -> Path | None:
    """Train, measure and report by a recipe; with no arguments, the quickstart."""
    parser = _recipe_parser(
        "train",
        "Train a model, measure its attention and write a report. Every key of the recipe\n"
        "can be overridden: --seed 3, --encoder cnn, --training.learning_rate 1e-4.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="RECIPE",
        help="a file, or a recipe of the package such as meister_2021/sst.yaml (default: the quickstart, or with "
        "--data.name the defaults on that data set)",
    )
    parser.add_argument("--overwrite_output_dir", action="store_true", help="replace the run that lies in output_dir")
    parser.add_argument("--resume_from_checkpoint", action="store_true", help="go on with the run that lies in output_dir")
    parser.add_argument(
        "--remeasure", action="store_true", help="with it, measure the model there anew if other code measured it"
    )
    hub = parser.add_argument_group(
        "the Hub", "as transformers' Trainer has them; the token is that of `hf auth login` or HF_TOKEN"
    )
    hub.add_argument("--push_to_hub", action="store_true", help="push the run when it is complete")
    hub.add_argument("--hub_model_id", metavar="[OWNER/]NAME", help="of the model (default: you, and the recipe's name)")
    hub.add_argument("--hub_private_repo", action="store_true", help="new repositories are private")
    hub.add_argument("--hub_revision", metavar="BRANCH", help="the branch to push to (default: main)")
    for refused in ("--hub_token", "--hub_strategy", "--hub_always_push"):
        hub.add_argument(refused, nargs="?", const=True, help=argparse.SUPPRESS)
    _add_processes(parser)
    known, overrides = parser.parse_known_args(arguments)
    _check_hub_options(known)
    if known.remeasure and not known.resume_from_checkpoint:
        raise AttnfaithError("--remeasure is for a run that lies there: add --resume_from_checkpoint")
    from attnfaith import recipes

    recipe = recipes.load(known.config, overrides)
    if known.processes is not None:
        return _launch("train", known.processes, arguments)
    if known.config is None and _is_main_process():
        print(f"no --config is given: {recipe.name}, in {recipe.output_dir}")
    from attnfaith import runs

    destination = _destination(known, recipe) if known.push_to_hub else None
    how = {"overwrite": known.overwrite_output_dir, "resume": known.resume_from_checkpoint, "remeasure": known.remeasure}
    with recipes.named(str(known.config or recipe.name)):
        page = runs.run(recipe, **how)
    if _is_main_process():
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


def measure(arguments: Sequence[str] | None = None) -> Path | None:
    """Measure the model of a run again, with other producers, split or limit."""
    parser = _recipe_parser(
        "measure",
        "Measure a trained run: --measure.producers [gradient], --split validation, --limit 500.\n"
        "Without overrides, as the run's recipe says.",
        "measure",
    )
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument(
        "--output", type=Path, help="path of the record (default: the run's own, and its report is written anew)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the record that lies there, also if it is of another measurement"
    )
    _add_processes(parser)
    known, overrides = parser.parse_known_args(arguments)
    from attnfaith import recipes

    recipe = recipes.load(known.run / RECIPE, overrides)
    if known.processes is not None:
        return _launch("measure", known.processes, arguments)
    from attnfaith import runs

    with recipes.named(str(known.run / RECIPE)):
        path = runs.measure_run(known.run, recipe, known.output, overwrite=known.overwrite)
    if _is_main_process():
        print(f"record: {path}")
    return path


def _record_of(path: Path) -> Path:
    """The record that a path names: a file, or that in the folder of a run."""
    return path / RECORD if path.is_dir() else path


def report(arguments: Sequence[str] | None = None) -> Path:
    """Tables, figures and page from a record, without a model."""
    parser = argparse.ArgumentParser(
        prog="attnfaith report", description="Write tables, figures and a page from the records of one or more runs."
    )
    parser.add_argument("run", type=Path, nargs="+", help="folders of runs, or their record.parquet")
    parser.add_argument("--output", type=Path, help="folder of the report (default: that of the run, where one is given)")
    parser.add_argument("--examples", type=int, help="texts of best and of worst agreement (default: as the run's, or 5)")
    parser.add_argument("--words", action="store_true", help="sum what a model of subwords says over the subwords of a word")
    parser.add_argument("--mix-versions", action="store_true", help="join records even if different code measured them")
    known = parser.parse_args(arguments)
    own = known.run[0] if len(known.run) == 1 and known.run[0].is_dir() else None
    if known.output is None and own is None:
        raise AttnfaithError("--output is needed: the folder of the report; only one run has a report of its own")
    from attnfaith import recipes, record
    from attnfaith.reporting import run_facts, write_report

    recipe = recipes.load(own / RECIPE) if own else None
    tables = [record.load(_record_of(path)) for path in known.run]
    if not known.mix_versions:
        record.check_one_code(tables, remedy="measure them anew with one, or give --mix-versions")
    if known.words:
        tables = [record.by_word(record.concatenate(tables, mix_versions=True))]
    section = recipe.report if recipe else recipes.Report()
    page = write_report(
        record.concatenate(tables, mix_versions=True),
        known.output or own / (f"{REPORT}_words" if known.words else REPORT),
        title=section.title,
        facts=run_facts(tables[0], recipe.note) if recipe else None,
        n_examples=section.examples if known.examples is None else known.examples,
    )
    print(f"report: {page}")
    return page


def eraser(arguments: Sequence[str] | None = None) -> list[Path]:
    """Write the measures and the gold evidence of a record as ERASER's files, which its own evaluation reads."""
    parser = argparse.ArgumentParser(
        prog="attnfaith eraser",
        description="Write a record of one model in ERASER's format: <split>.jsonl and docs.jsonl, the labelled texts with "
        "their gold evidence where the record has it; results/<measure>.jsonl, the scores of each measure that "
        "rationale_erasure tested, its rationale and the predictions with and without it.",
    )
    parser.add_argument("run", type=Path, help="folder of a run, or its record.parquet")
    parser.add_argument("--output", type=Path, required=True, help="folder of the files")
    parser.add_argument(
        "--share", type=float, help="share of the tokens that a rationale holds (default: the mean share of the gold ones)"
    )
    known = parser.parse_args(arguments)
    from attnfaith import record
    from attnfaith.data.eraser import write_annotations, write_results
    from attnfaith.reporting import eraser
    from attnfaith.reporting.cells import one_cell

    cell = one_cell(record.load(_record_of(known.run)))
    annotations, split = eraser.annotations(cell), cell.heading["split"]
    results = {name: eraser.results(cell, name, known.share) for name in eraser.measures(cell)}
    if annotations:
        texts = {row["instance_id"] for row in annotations}
        results = {name: [row for row in rows if row["instance_id"] in texts] for name, rows in results.items()}
    written = [write_annotations(known.output, split, annotations)] if annotations else []
    written += [write_results(known.output / "results" / f"{name}.jsonl", rows) for name, rows in results.items()]
    print(f"eraser: {known.output} ({len(annotations)} annotations, results of {len(results)} measures)")
    return written


def push(arguments: Sequence[str] | None = None) -> list[str]:
    """Push finished runs to the Hub: models with cards, records, result tables, the metric."""
    parser = argparse.ArgumentParser(
        prog="attnfaith push",
        description="Push finished runs to the Hub: each model with its card, their records, their tables and the metric. "
        "The token is that of `hf auth login` or HF_TOKEN. Only what differs is sent; an interrupted push is run again.",
    )
    parser.add_argument("run", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--to", metavar="OWNER", required=True, help="user or organisation that it will belong to")
    parser.add_argument("--name", help="of the model (default: the recipe's name)")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be sent and its size")
    parser.add_argument("--private", action="store_true", help="new repositories are private")
    parser.add_argument("--revision", metavar="BRANCH", help="the branch to push to (default: main)")
    parser.add_argument("--create-pr", action="store_true", help="offer it as pull requests to repositories that are there")
    known = parser.parse_args(arguments)
    from attnfaith import hub

    if not known.dry_run:
        hub.check(known.to, create_pr=known.create_pr)  # before the runs are read, which takes longer
    how = {"private": known.private, "revision": known.revision, "create_pr": known.create_pr}
    planned = hub.plan(known.run, known.to, name=known.name, **how)
    if known.dry_run:
        print(planned.describe())
        return []
    return hub.push(planned)


def cards(arguments: Sequence[str] | None = None) -> list[Path]:
    """Cards of trained checkpoints and their index, as they are pushed, without pushing."""
    parser = argparse.ArgumentParser(
        prog="attnfaith cards", description="Write one card per run, their figures and the index."
    )
    parser.add_argument("run", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--to", required=True, metavar="OWNER", help="user or organisation of the repositories on the Hub")
    parser.add_argument(
        "--output", type=Path, default=Path("model_cards"), help="folder of the cards (default: %(default)s)"
    )
    known = parser.parse_args(arguments)
    from attnfaith import recipes
    from attnfaith.data.registry import facts
    from attnfaith.hub import repo_id_of, shared_repos
    from attnfaith.reporting.cards import checkpoint_name, write_cards

    names = [checkpoint_name(recipes.load(folder / RECIPE).name) for folder in known.run]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise AttnfaithError(f"two of the runs are called {twice[0]}: give runs whose recipes have different names")
    written = write_cards(
        {repo_id_of(known.to, name): folder for name, folder in zip(names, known.run, strict=True)},
        known.output,
        facts,
        **shared_repos(known.to),
    )
    print(f"cards: {known.output} ({len(names)} of checkpoints, {len(written)} files)")
    return written


def reproduce(arguments: Sequence[str] | None = None) -> None:
    """Train and measure a recorded run anew and say which numbers agree; exit code 1 where one does not."""
    parser = argparse.ArgumentParser(
        prog="attnfaith reproduce",
        description="Carry out the recipe of a finished run, or of a checkpoint on the Hub, in a folder of its own and "
        "compare every result: exactly, within its tolerance, or not (reproduction.csv has them all).",
    )
    parser.add_argument("source", help="folder of a run, or OWNER/NAME of a model on the Hub")
    parser.add_argument("--output", type=Path, help="folder of the new run (default: runs/reproduced/NAME)")
    parser.add_argument("--records", metavar="REPO", help="data set with the record (default: the one that the card names)")
    parser.add_argument("--revision", help="of the model's repository")
    known = parser.parse_args(arguments)
    from attnfaith import reproduction

    done = reproduction.reproduce(known.source, known.output, records_repo=known.records, revision=known.revision)
    if _is_main_process():
        print(reproduction.describe(done))
    if not done.agrees:
        raise SystemExit(1)


def study(arguments: Sequence[str] | None = None) -> None:
    """Every cell of a study that is not complete, here or on a cluster, then its tables."""
    from attnfaith.study.command import main as run_study

    run_study(sys.argv[1:] if arguments is None else arguments)


def release(arguments: Sequence[str] | None = None) -> None:
    """Train, measure, card and push a grid of checkpoints."""
    from attnfaith.study.release import main as run_release

    run_release(sys.argv[1:] if arguments is None else arguments)


def roar(arguments: Sequence[str] | None = None) -> None:
    """Remove the words that a measure ranks first, and retrain."""
    from attnfaith.roar import main as run_roar

    run_roar(arguments)


def install_metric(arguments: Sequence[str] | None = None) -> Path:
    """Make `evaluate.load("attention_faithfulness")` work without importing attnfaith."""
    argparse.ArgumentParser(prog="attnfaith install-metric", description=install_metric.__doc__).parse_args(arguments)
    from attnfaith.metrics import registration

    path = registration.install_metric()
    print(f"installed: {path}")
    return path


Command = Callable[[Sequence[str] | None], object]
COMMANDS: dict[str, Command] = {
    "train": train,
    "measure": measure,
    "report": report,
    "eraser": eraser,
    "cards": cards,
    "push": push,
    "reproduce": reproduce,
    "study": study,
    "release": release,
    "roar": roar,
    "install-metric": install_metric,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user can mend is one line on standard error and exit code 2."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or [""]
    if name in COMMANDS:
        return guarded(COMMANDS[name], rest)
    if name not in ("", "-h", "--help"):
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        print(f"error: unknown command {name!r}{hint} Known: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    print("usage: attnfaith COMMAND ...\n")
    for name_of_command, command in COMMANDS.items():
        print(f"  {name_of_command:15} {command.__doc__.splitlines()[0]}")
    print("\nattnfaith COMMAND --help says what a command takes.")
    return 0 if name else 2


def guarded(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. An AttnfaithError is told in one line, without its traceback, as is what the system
    refuses (a full disk); any other exception is a fault of the package and goes on.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:  # two processes on two cores must not start two threads each
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    keep_freed_memory()
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    try:
        with refusals(getattr(command, "__name__", "the command")):
            command(arguments)
    except KeyboardInterrupt:
        return 130
    except AttnfaithError as error:
        if os.environ.get("ATTNFAITH_TRACEBACK"):
            raise
        message = " ".join(str(error).split())
        if not tell_parent(message):
            print(f"error: {message}\n(set ATTNFAITH_TRACEBACK=1 for the traceback)", file=sys.stderr)
        return 2
    return 0
