"""Train, measure, card and push a grid of checkpoints.

A release is a study (recipes/release.yaml is the one that is released) and an owner on the Hub. Its cells are run as a
study's and its cards written into a folder; then each complete cell is pushed as `attnfaith push` does: its checkpoint to
<owner>/<cell>, its record to <owner>/attnfaith-records. At the end the study's tables go to <owner>/attnfaith-results. The
same call goes on where it was stopped, and pushes what was not.
"""

from collections.abc import Mapping
from pathlib import Path

from attnfaith import hub
from attnfaith.data.registry import facts
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.cards import checkpoint_name, write_cards
from attnfaith.study.command import carry_out, prepare
from attnfaith.study.plan import choose, complete
from attnfaith.support import provenance
from attnfaith.support.errors import counted


def release(
    study: Mapping,
    owner: str,
    cards: Path,
    *,
    only: str | None = None,
    dry_run: bool = False,
    private: bool = False,
    revision: str | None = None,
    **how,
) -> None:
    """Run what is missing of a study, then push all of it.

    cards: the folder of the cards. dry_run: only print what is missing and what would be sent. how: the options of
    `execute.run_cells`. Raises StudyError at the end for cells that are not complete or were refused, HubError where the Hub
    fails: what is pushed by then stays.
    """
    planned, wanted = prepare(study)
    chosen = [cell.name for cell in choose(planned, only)]
    names = {name: checkpoint_name(name) for name in wanted}
    for name in (*names.values(), hub.RECORDS, hub.RESULTS):
        hub.repo_id_of(owner, name)
    where = {"private": private, "revision": revision}
    if dry_run:
        ready = {name: Path(wanted[name].output_dir) for name in chosen if complete(wanted[name])}
        for name, folder in ready.items():
            print(hub.plan(folder, owner, name=names[name], with_results=False, **where).describe())
        missing = [name for name in chosen if name not in ready]
        print(f"{counted(len(ready), 'cell')} complete, {len(missing)} not" + (f": {', '.join(missing)}" if missing else ""))
        return
    hub.check(owner)
    if provenance.checkout()[1] and not all(complete(wanted[name]) for name in chosen):
        raise StudyError("the code has uncommitted changes, so what it makes now would be refused: commit them first")
    ready, missing = carry_out(study, only=only, **how)
    carded = {hub.repo_id_of(owner, names[name]): folder for name, folder in ready.items()}
    write_cards(carded, cards, facts, **hub.shared_repos(owner))
    print(f"cards of {counted(len(carded), 'checkpoint')}: {cards}")
    problems = [missing] if missing else []
    for number, name in enumerate((name for name in chosen if name in ready), start=1):
        print(f"{name} ({number} of {len(chosen)})", flush=True)
        try:
            plan = hub.plan(ready[name], owner, name=names[name], with_results=False, **where)
        except ValueError as error:  # about this run, not the Hub
            problems.append(f"{name} is not pushed: {error}")
        else:
            hub.push(plan)
    print("tables", flush=True)
    hub.push(hub.plan_results(study["results"], {names[name]: folder for name, folder in ready.items()}, owner, **where))
    if problems:
        raise StudyError("; ".join(problems))
