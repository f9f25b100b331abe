"""From folders of finished runs to the files of their cards."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from attnfaith import record as records
from attnfaith.errors import FileError
from attnfaith.files import read_object, write_atomically
from attnfaith.reporting.cards.findings import Checkpoint
from attnfaith.reporting.cards.model import answer_files, card_figures, card_of
from attnfaith.reporting.cards.shared import cards_index
from attnfaith.reporting.errors import ReportError


def read_checkpoint(folder: str | os.PathLike) -> Checkpoint:
    """The checkpoint of a finished run's folder: run.json, record.parquet, and other records of the same weights beside it.

    Raises ReportError where the folder is no run, or one that is not complete, and RecordError for a broken record.
    """
    folder = Path(folder)
    try:
        run = read_object(folder / "run.json")
    except FileError as error:
        raise ReportError(f"{folder} is no run: {error}; give the output_dir of one") from error
    if run.get("status") != "complete":
        raise ReportError(
            f"{folder} is not complete (its run.json says {run.get('status')!r}): finish it with --resume_from_checkpoint"
        )
    own = folder / "record.parquet"
    others = sorted(path for path in folder.glob("*.parquet") if path != own)
    return Checkpoint(run, [records.load(path) for path in (own, *others)])


def checkpoint_name(name: str) -> str:
    """A recipe's name as that of a repository, which may not hold "--": "sparsegen--100" is "sparsegen-minus-100"."""
    return name.replace("--", "-minus-")


def write_cards(
    folders: Mapping[str, str | os.PathLike],
    output: str | os.PathLike,
    facts: Callable[[Mapping | str], Mapping],
    *,
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> list[Path]:
    """Write <output>/<name>.md of each run, {repo id: folder of the run}, their figures and README.md, the index.

    facts: `attnfaith.data.registry.facts`. Returns the paths written. Raises ReportError as `read_checkpoint`, before
    anything is written.
    """
    output = Path(output)
    files: dict[Path, bytes] = {}
    checkpoints = {}
    for repo_id, folder in folders.items():
        checkpoint = checkpoints[repo_id] = read_checkpoint(folder)
        pictures = Path(folder) / "report" / "figures"
        at_hand = sorted(path.stem for path in pictures.glob("*.png"))
        text = card_of(
            checkpoint,
            repo_id,
            facts(checkpoint.recipe.get("data") or checkpoint.heading["dataset"]),
            figures=at_hand,
            records_repo=records_repo,
            results_repo=results_repo,
        )
        files[output / f"{repo_id.partition('/')[2]}.md"] = text.encode()
        for path, figure in card_figures(repo_id, at_hand).items():
            files[output / path] = (pictures / f"{figure}.png").read_bytes()
        files |= {output / path: content for path, content in answer_files(checkpoint, repo_id).items()}
    files[output / "README.md"] = cards_index(checkpoints).encode()
    return [write_atomically(path, content) for path, content in files.items()]
