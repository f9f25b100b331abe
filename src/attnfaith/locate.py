"""Find records and runs by a word: the folder of a run, a record file, or a repository on the Hub."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import yaml

from attnfaith import record
from attnfaith.record.identity import RECIPE
from attnfaith.support.errors import AttnfaithError, closest, cut, excerpt


FETCHED = Path("runs") / "hub"
MODEL, CHECKPOINT = "model", ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
RECORD, STATE, CARD = "record.parquet", "run.json", "README.md"
REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(:(?P<configuration>[\w.-]+))?")
MOST_NAMED = 8


class LocateError(AttnfaithError):
    """Nothing that can be read lies where a word says. The message names what is near."""


@dataclass(frozen=True)
class Source:
    """One record. name: for people. folder: of its run, None where it is not that of a run here. paths: its files."""

    name: str
    paths: tuple[Path, ...]
    folder: Path | None = None

    def load(self) -> pa.Table:
        """The record. Raises RecordError where it cannot be read."""
        tables = [record.load(path) for path in self.paths]
        return tables[0] if len(tables) == 1 else record.concatenate(tables, mix_versions=True)


def locate(word: str | os.PathLike, *, revision: str | None = None) -> Source:
    """The one record that a word names: a run's folder, a record file, OWNER/NAME of a model on the Hub whose card names its
    records, or of a data set of records with one configuration; OWNER/NAME:CONFIGURATION of one with several.

    What lies here comes first. What comes from the Hub is kept in huggingface_hub's cache. revision: of the repository.

    Raises LocateError where there is nothing of the kind, naming what is near, or more than one.
    """
    sources = list(locate_all(word, revision=revision))
    if len(sources) > 1:
        names = _listed([source.name for source in sources])
        raise LocateError(f"{cut(str(word))} holds {len(sources)} records: name one of {names}")
    return sources[0]


def locate_each(words: Sequence[str | Path]) -> list[Source]:
    """Every record of several words; one that two of them name comes once."""
    sources = [source for word in words for source in locate_all(word)]
    return list({source.paths: source for source in sources}.values())


def locate_all(word: str | os.PathLike, *, revision: str | None = None) -> Iterator[Source]:
    """Every record that a word names: also of a folder of runs, such as that of a study or of seeds, and of all
    configurations of a data set. In the order of their names, numbers by size. Raises LocateError as `locate` does.
    """
    path = Path(word)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError) as error:  # too long for a path, or a character that none may have
        raise LocateError(f"{excerpt(str(word))} is no run, record or repository: {error.args[-1]}") from error
    if is_file:
        yield Source(str(word), (path,))
    elif is_folder:
        yield from _in_folder(path)
    elif (match := REPOSITORY.fullmatch(str(word))) and not closest(path.name, _neighbours(path)):
        yield from _on_hub(match["repo"], match["configuration"], path, revision)
    else:
        raise LocateError(f"no run or record at {cut(str(word))}{_near(path)}")


def locate_folder(word: str | Path, needs: str) -> Path:
    """The folder of a run on this machine. needs: what is done with it, in words, for the message. Raises LocateError for
    all else.
    """
    path = Path(word)
    if path.is_dir():
        return path
    if path.is_file():
        raise LocateError(f"{cut(str(word))} is a file; {needs} needs the folder of a run, with its model and recipe")
    if REPOSITORY.fullmatch(str(word)) and not path.parent.is_dir():
        raise LocateError(
            f"no folder {cut(str(word))} here; {needs} needs that of a run: of a model on the Hub `attnfaith reproduce "
            f"{cut(str(word))}` makes one"
        )
    raise LocateError(f"no folder of a run at {cut(str(word))}{_near(path)}")


def fetch_folder(repo_id: str) -> Path:
    """The folder, here, of a run that was pushed: its recipe, its state and its model, below runs/hub. What lies there from
    before is taken as it is. Nothing pickled, and no code, is fetched.

    Raises LocateError where the Hub does not give it, or it is no run.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    folder, names = FETCHED / repo_id.replace("/", "--"), (RECIPE, STATE, *CHECKPOINT)
    if (folder / RECIPE).is_file():
        return folder
    try:
        snapshot = Path(snapshot_download(repo_id, allow_patterns=[*names]))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise LocateError(f"no folder of a run at {cut(repo_id)}, and on the Hub {why_not(error, repo_id)}") from error
    if missing := [name for name in names if not (snapshot / name).is_file()]:
        raise LocateError(f"{repo_id} on the Hub is no run of this package: it lacks {', '.join(missing)}")
    (folder / MODEL).mkdir(parents=True, exist_ok=True)
    for name in (*CHECKPOINT, STATE, RECIPE):  # the recipe last: with it the folder is whole
        shutil.copyfile(snapshot / name, (folder / MODEL if name in CHECKPOINT else folder) / name)
    return folder


def _in_folder(folder: Path) -> Iterator[Source]:
    if (folder / RECORD).is_file():
        yield Source(str(folder), (folder / RECORD,), folder)
        return
    if (folder / RECIPE).is_file() or (folder / STATE).is_file():
        raise LocateError(f"{folder} is a run without a record: `attnfaith measure {folder}` makes it")
    inside = [path.parent for path in folder.glob(f"*/{RECORD}")]
    if not inside:
        raise LocateError(f"{folder} holds no {RECORD}, nor do the folders in it: give the folder of a run{_near(folder)}")
    for path in sorted(inside, key=_by_number):
        yield Source(str(path), (path / RECORD,), path)


def _by_number(path: Path) -> list[tuple[int, str]]:
    """seed_2 comes before seed_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _neighbours(path: Path) -> list[str]:
    """Names of the runs and records that lie where a path leads."""
    try:
        return sorted(it.name for it in path.parent.iterdir() if (it / RECORD).is_file() or it.suffix == ".parquet")
    except OSError:
        return []


def _near(path: Path) -> str:
    """The end of a message: what lies there of a name like it, or of any."""
    neighbours = _neighbours(path)
    if near := closest(path.name, neighbours):
        return f"; did you mean {path.parent / near}?"
    if (path.parent / RECORD).is_file() and (path.parent / STATE).is_file():
        return f"; did you mean the run {path.parent}?"
    return f"; in {path.parent} there are {_listed(neighbours)}" if neighbours else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


# ------------------------------------------------------------------------------------------------ on the Hub


def _on_hub(repo_id: str, configuration: str | None, path: Path, revision: str | None) -> Iterator[Source]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    absent = (RepositoryNotFoundError, EntryNotFoundError, HfHubHTTPError, OSError, HFValidationError)
    try:
        card = card_of(hf_hub_download(repo_id, CARD, revision=revision))
    except absent as error:
        no_card = error
    else:
        if not card.get("records"):
            raise LocateError(f"{repo_id}: the model's card names no record; give the data set that holds it")
        wanted = configuration or card.get("configuration") or repo_id.rpartition("/")[2]
        yield from configurations(card["records"], wanted, None, repo_id)
        return
    try:
        yield from configurations(repo_id, configuration, revision)
    except absent as error:
        raise LocateError(
            f"no run or record at {cut(str(path))}{_near(path)}, and on the Hub {why_not(no_card, repo_id)}"
        ) from error


def why_not(error: Exception, repo_id: str) -> str:
    """Why a repository cannot be read, in short; error: of huggingface_hub, or one that it caused."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    repo_id, causes = cut(repo_id), (error, error.__cause__)
    if any(isinstance(cause, HFValidationError) for cause in causes):
        return "no repository has such a name"
    if any(isinstance(cause, LocalEntryNotFoundError) for cause in causes):
        why = "HF_HUB_OFFLINE is set, so that nothing is fetched" if constants.HF_HUB_OFFLINE else "the Hub is not reached"
        return f"{repo_id} cannot be looked up: it is not in the cache, and {why}"
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return f"there is no {repo_id} that you may read; private ones need `hf auth login`"
    return f"{repo_id} cannot be read ({type(error).__name__}: {excerpt(error)})"


def card_of(path: str) -> dict:
    """The part of a checkpoint's card that is for this package; {} of any other card."""
    from huggingface_hub import ModelCard

    try:
        data = ModelCard(Path(path).read_text(encoding="utf-8")).data.get("attnfaith")
    except (ValueError, yaml.YAMLError):
        return {}
    return data if isinstance(data, dict) else {}


def configurations(
    repo_id: str, wanted: str | None = None, revision: str | None = None, name: str | None = None
) -> Iterator[Source]:
    """The records of a data set on the Hub, one for each of its configurations, or that of the one that is wanted.

    name: of the source, for people. Raises LocateError where there is none, and what huggingface_hub raises.
    """
    from huggingface_hub import HfApi, snapshot_download

    pattern = f"{wanted or '*'}/*.parquet"
    folder = Path(snapshot_download(repo_id, repo_type="dataset", revision=revision, allow_patterns=pattern))
    parts: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(pattern)):
        parts.setdefault(path.parent.name, []).append(path)
    if not parts and wanted:
        files = HfApi().list_repo_files(repo_id, repo_type="dataset", revision=revision)
        known = sorted({path.partition("/")[0] for path in files if path.endswith(".parquet")})
        raise LocateError(f"the data set {repo_id} holds no record of {wanted}; it has {_listed(known)}")
    if not parts:
        raise LocateError(f"the data set {repo_id} holds no record")
    for configuration, paths in parts.items():
        yield Source(name or (repo_id if len(parts) == 1 else f"{repo_id}:{configuration}"), tuple(paths))
