"""Train, measure, card and push a grid of checkpoints: the command `attnfaith release`.

A release is a study (`plan.Study`; recipes/release.yaml is the one that is released) and an owner on the Hub. Its cells are
run as a study's, its cards are written into a folder, and then each complete cell is pushed as `attnfaith push` does: its
checkpoint to <owner>/<cell>, its record to <owner>/attnfaith-records; at the end the study's tables go to
<owner>/attnfaith-results. The same command goes on where it was stopped, and pushes what was not.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from attnfaith import hub, provenance
from attnfaith.data.registry import facts
from attnfaith.errors import counted
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.cards import checkpoint_name, write_cards
from attnfaith.study.arguments import release_parser
from attnfaith.study.command import carry_out, options, prepare
from attnfaith.study.plan import choose, complete, read_study


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of a study, then push all of it."""
    known, how = options(release_parser(), arguments)
    if known is None:
        return
    study = read_study(known.study)
    planned, wanted = prepare(study)
    chosen = [cell.name for cell in choose(planned, known.only)]
    names = {name: checkpoint_name(name) for name in wanted}
    for name in (*names.values(), hub.RECORDS, hub.RESULTS):
        hub.repo_id_of(known.to, name)
    where = {"private": known.private, "revision": known.revision}
    if known.dry_run:
        ready = {name: Path(wanted[name].output_dir) for name in chosen if complete(wanted[name])}
        describe(ready, names, known.to, missing=[name for name in chosen if name not in ready], **where)
        return
    hub.check(known.to)
    if provenance.checkout()[1] and not all(complete(wanted[name]) for name in chosen):
        raise StudyError("the code has uncommitted changes, so what it makes now would be refused: commit them first")
    ready, missing = carry_out(study, only=known.only, **how)
    cards = {hub.repo_id_of(known.to, names[name]): folder for name, folder in ready.items()}
    write_cards(cards, known.cards, facts, **hub.shared_repos(known.to))
    print(f"cards of {counted(len(cards), 'checkpoint')}: {known.cards}")
    refused = push(study, {name: ready[name] for name in chosen if name in ready}, ready, names, known.to, **where)
    said = [missing, *(f"{name} is not pushed: {why}" for name, why in refused.items())]
    if any(said):
        raise StudyError("; ".join(filter(None, said)))


def describe(ready: Mapping[str, Path], names: Mapping[str, str], owner: str, *, missing, **how) -> None:
    """Print what a push of the complete cells would send."""
    for name, folder in ready.items():
        print(hub.plan(folder, owner, name=names[name], with_results=False, **how).describe())
    print(f"{counted(len(ready), 'cell')} complete, {len(missing)} not" + (f": {', '.join(missing)}" if missing else ""))


def push(
    study: Mapping, chosen: Mapping[str, Path], ready: Mapping[str, Path], names: Mapping[str, str], owner: str, **how
) -> dict[str, str]:
    """Push checkpoints and records of the chosen cells one by one, then the tables of all; why a cell was refused, by name.

    Raises HubError where the Hub fails: what is pushed by then stays.
    """
    refused = {}
    for number, (name, folder) in enumerate(chosen.items(), start=1):
        print(f"{name} ({number} of {len(chosen)})", flush=True)
        try:
            planned = hub.plan(folder, owner, name=names[name], with_results=False, **how)
        except ValueError as error:  # of this run, not of the Hub
            refused[name] = str(error)
            continue
        hub.push(planned)
    print("tables", flush=True)
    hub.push(hub.plan_results(study["results"], {names[name]: folder for name, folder in ready.items()}, owner, **how))
    return refused
