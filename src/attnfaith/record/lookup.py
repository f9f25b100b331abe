"""Look up records and runs: the folder of a run, a record file, or a repository on the Hub."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from attnfaith.support.errors import AttnfaithError, closest, cut, excerpt
from attnfaith.support.files import CARD, CHECKPOINT, MODEL, RECIPE, RECORD, STATE


FETCHED = Path("runs") / "hub"
REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(:(?P<configuration>[\w.-]+))?")


class NotFoundError(AttnfaithError):
    """No record or run where it was looked for. The message names what is near."""


def find_record(word: str | os.PathLike, *, revision: str | None = None) -> Path:
    """Return the file of one record.

    word: the folder of a run, a record file, OWNER/NAME of a model on the Hub whose card names its records or of a data set
    of records, or OWNER/NAME:CONFIGURATION. A path on this machine comes first. revision: of the repository.

    Raises NotFoundError where there is no record, naming what is near, or more than one.
    """
    names = find_records(word, revision=revision)
    if len(names) > 1:
        there = cut(", ".join(names.values()), 200)
        raise NotFoundError(f"{cut(str(word))} holds {len(names)} records: name one of {there}")
    return next(iter(names))


def find_records(*words: str | os.PathLike, revision: str | None = None) -> dict[Path, str]:
    """Return {file: name for people} of all records of some words, each once, in the order of their names, numbers by size.

    A word may also be a folder of runs, such as that of a study, or a data set of many configurations. Raises NotFoundError
    as `find_record` does.
    """
    names = {}
    for word in words:
        path = Path(word)
        if os.path.isfile(word):
            names[path] = str(word)
        elif os.path.isdir(word):
            names |= _in_folder(path)
        elif (near := _near(path)) or not (match := REPOSITORY.fullmatch(str(word))):
            raise NotFoundError(f"no run or record at {cut(str(word))}{near}")
        else:
            names |= _on_hub(match["repo"], match["configuration"], revision)
    return names


def run_folder(word: str | Path, needs: str) -> Path:
    """Return the folder of a run on this machine. needs: the work that needs it, for the message. Raises NotFoundError."""
    path = Path(word)
    if os.path.isdir(word):
        return _whole(path, cut(str(word)))
    if os.path.isfile(word):
        raise NotFoundError(f"{cut(str(word))} is a file; {needs} needs the folder of a run, with its model and recipe")
    raise NotFoundError(
        f"no folder of a run at {cut(str(word))}{_near(path)}; {needs} needs one: `attnfaith reproduce OWNER/NAME` makes "
        "that of a model on the Hub"
    )


def run_on_hub(repo_id: str, names: Sequence[str] = (RECIPE, STATE)) -> Path:
    """Return the folder, in the cache of the Hub, of a run's recipe and state, or of other files of it.

    Raises NotFoundError where the Hub does not give them, or it is no run.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        snapshot = Path(snapshot_download(repo_id, allow_patterns=[*names]))
    except (errors.HFValidationError, OSError) as error:
        raise NotFoundError(
            f"no folder of a run at {cut(repo_id)}, and on the Hub {why_unreadable(error, repo_id)}"
        ) from error
    return _whole(snapshot, f"{repo_id} on the Hub", names)


def _whole(folder: Path, name: str, files: Sequence[str] = (RECIPE, STATE)) -> Path:
    """The folder. name: for the message. Raises NotFoundError where it lacks files of a run."""
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise NotFoundError(f"{name} is no run of this package: it lacks {', '.join(missing)}")
    return folder


def fetch_run(repo_id: str) -> Path:
    """Return the folder below runs/hub of a run on the Hub, fetched unless it is there: recipe, state and model, no code."""
    folder = FETCHED / repo_id.replace("/", "--")
    if not (folder / RECIPE).is_file():
        snapshot = run_on_hub(repo_id, (RECIPE, STATE, *CHECKPOINT))
        (folder / MODEL).mkdir(parents=True, exist_ok=True)
        for name in (*CHECKPOINT, STATE, RECIPE):  # the recipe last: with it the folder is whole
            shutil.copyfile(snapshot / name, (folder / MODEL if name in CHECKPOINT else folder) / name)
    return folder


def why_unreadable(error: Exception, repo_id: str) -> str:
    """Return why a repository cannot be read, in short. error: of huggingface_hub, or caused by such an error."""
    from huggingface_hub import errors

    repo_id, kinds = cut(repo_id), (type(error), type(error.__cause__))
    reasons = {
        errors.HFValidationError: "no repository has such a name",
        errors.LocalEntryNotFoundError: f"{repo_id} cannot be looked up: it is not in the cache, and the Hub is not reached",
        errors.RepositoryNotFoundError: f"there is no {repo_id} that you may read; private ones need `hf auth login`",
    }
    for reason, text in reasons.items():
        if any(issubclass(kind, reason) for kind in kinds):
            return text
    return f"{repo_id} cannot be read ({type(error).__name__}: {excerpt(error)})"


def _in_folder(folder: Path) -> dict[Path, str]:
    if (folder / RECORD).is_file():
        return {folder / RECORD: str(folder)}
    if (folder / RECIPE).is_file() or (folder / STATE).is_file():
        raise NotFoundError(f"{folder} is a run without a record: `attnfaith measure {folder}` makes it")
    runs = [path.parent for path in folder.glob(f"*/{RECORD}")]
    if not runs:
        raise NotFoundError(f"{folder} holds no {RECORD}, nor do the folders in it: give the folder of a run{_near(folder)}")
    # seed_2 before seed_10
    runs.sort(key=lambda run: [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", run.name)])
    return {run / RECORD: str(run) for run in runs}


def _near(path: Path) -> str:
    """The end of a message: the run or record in the same folder whose name is most similar; "" without one."""
    try:
        names = [item.name for item in path.parent.iterdir() if (item / RECORD).is_file() or item.suffix == ".parquet"]
    except (OSError, ValueError):
        return ""
    near = closest(path.name, sorted(names))
    return f"; did you mean {path.parent / near}?" if near else ""


def _on_hub(repo_id: str, configuration: str | None, revision: str | None) -> dict[Path, str]:
    """The records that a model's card names, or those of a data set of records."""
    from huggingface_hub import ModelCard, errors, hf_hub_download

    try:
        path = hf_hub_download(repo_id, CARD, revision=revision)
    except (errors.HFValidationError, OSError) as unread:  # no model: perhaps a data set
        try:
            return _in_dataset(repo_id, configuration, revision)
        except (errors.HFValidationError, OSError) as error:
            why = why_unreadable(unread, repo_id)
            raise NotFoundError(f"no run or record at {repo_id}, and on the Hub {why}") from error
    try:
        card = ModelCard.load(path).data.get("attnfaith")
        records, own = card["records"], card["configuration"]
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise NotFoundError(f"{repo_id}: the model's card names no record; give the data set that holds it") from error
    return _in_dataset(records, configuration or own, name=repo_id)


def _in_dataset(repo_id: str, wanted: str | None, revision: str | None = None, name: str = "") -> dict[Path, str]:
    """The record of each configuration of a data set on the Hub, or of the wanted one. name: for people. What
    huggingface_hub raises goes on.
    """
    from huggingface_hub import HfApi, snapshot_download

    pattern = f"{wanted or '*'}/*.parquet"
    folder = Path(snapshot_download(repo_id, repo_type="dataset", revision=revision, allow_patterns=pattern))
    paths = sorted(folder.glob(pattern))
    if not paths:
        files = HfApi().list_repo_files(repo_id, repo_type="dataset", revision=revision)
        there = cut(", ".join(sorted({file.partition("/")[0] for file in files if file.endswith(".parquet")})), 200)
        raise NotFoundError(f"the data set {repo_id} holds no record{f' of {wanted}; it has {there}' if wanted else ''}")
    return {path: name or (repo_id if len(paths) == 1 else f"{repo_id}:{path.parent.name}") for path in paths}
