"""What is refused before a run is pushed: unfinished, of code that nobody has, of several runs, with local paths."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith.files import is_locked, read_object
from attnfaith.hub.repo import HubError, Repo
from attnfaith.loading import ModelError, load_model
from attnfaith.models import AttentionClassifierConfig, RationaleClassifierConfig
from attnfaith.subjects import subject_of


MODEL_TYPES = (AttentionClassifierConfig.model_type, RationaleClassifierConfig.model_type)  # that are pushed here
SECTIONS = ("data", "model", "training", "objective", "selection")  # of a recipe, that a training follows
TRAINED = ("dataset", "texts", "sizes", "truncated", "vocabulary", "tokenizer", "epochs", "best", "base")  # of run.json
SUFFIXES = {".json", ".py", ".safetensors"}  # of files in a checkpoint's folder: nothing that is unpickled


def check_folder(folder: Path) -> None:
    """Raise HubError unless this is the folder of a run, and no process writes there."""
    if not (folder / "run.json").is_file() or not (folder / "recipe.yaml").is_file():
        raise HubError(f"{folder} is no run (run.json, recipe.yaml): give the output_dir of one")
    for path in (folder, folder / "report"):
        if is_locked(path):
            raise HubError(f"{path} is being written: push the run when that has ended")


def check_finished(folder: Path, state: Mapping) -> None:
    """Raise HubError unless run.json reports a complete run and the code that made it."""
    if (status := state.get("status")) != "complete":
        raise HubError(
            f"{folder} is not complete (its run.json says {status!r}): finish it with --resume_from_checkpoint, then push"
        )
    provenance = state.get("provenance") or {}
    if "dirty" not in provenance:
        raise HubError(
            f"{folder} does not say which code made it, so nobody could make it again: measure it with this version "
            "(--resume_from_checkpoint --remeasure), then push"
        )
    check_committed(folder, provenance)


def check_committed(folder: Path, provenance: Mapping) -> None:
    """Raise HubError where no commit holds the code; of an installed package the version says which code it is."""
    for part in (provenance, provenance.get("begun") or {}):
        installed = part.get("dirty") is None and part.get("commit") is None
        if part.get("dirty", False) is not False and not installed:
            raise HubError(
                f"{folder} was made by code with uncommitted changes, so nobody could make it again: commit them, run it "
                "anew, then push"
            )


def check_one_run(path: Path, settings: Mapping, recipe: Mapping, state: Mapping, sections: Iterable[str]) -> None:
    """Raise HubError unless a record was measured in the run of this recipe.yaml and run.json.

    path, settings: of the record. sections: of the recipe, that must agree.
    """
    measured = settings["recipe"]
    different = ["seed"] if measured.get("seed") != recipe.get("seed") else []
    for section in sections:
        first, second = dict(measured.get(section) or {}), dict(recipe.get(section) or {})
        keys = sorted({*first, *second} - {"outputs"})
        different += [f"{section}.{key}" for key in keys if first.get(key) != second.get(key)]
    trained = settings.get("run") or {}
    different += [f"run.json {name}" for name in TRAINED if name in trained and trained[name] != state.get(name)]
    if different:
        raise HubError(
            f"{path} was measured in another run than the recipe.yaml and run.json beside it (different: "
            f"{', '.join(different)}): measure the run again, or move the record away"
        )


def check_model(folder: Path, digests: Mapping[Path, str]) -> None:
    """Raise HubError unless a checkpoint is one of ours, with code, without a pickle, and with the weights that each record
    was measured with.

    folder: of the checkpoint. digests: {record: digest of its model}.
    """
    try:
        model = load_model(folder)
        digest = subject_of(model).digest()
    except ModelError as error:
        raise HubError(str(error)) from error
    if model.config.model_type not in MODEL_TYPES:
        raise HubError(
            f"{folder} holds a checkpoint of model type {model.config.model_type!r}; only "
            f"{' and '.join(map(repr, MODEL_TYPES))} are pushed here: use that model's own push_to_hub"
        )
    auto_map = read_object(folder / "config.json").get("auto_map") or {}
    if not auto_map or not all((folder / f"{name.partition('.')[0]}.py").is_file() for name in auto_map.values()):
        raise HubError(f"{folder} lacks the code that loads it elsewhere (auto_map, *.py): save the model again")
    if other := [path for path, measured in digests.items() if measured != digest]:
        raise HubError(f"{folder} has other weights than {other[0]} was measured with: measure it again, then push")


def check_files(folder: Path) -> None:
    """Raise HubError where the folder of a checkpoint holds what no run of ours writes there."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in SUFFIXES or not path.is_file():
            raise HubError(
                f"{path} is not pushed: a checkpoint holds {', '.join(sorted(SUFFIXES))} files only, and nothing pickled; "
                "move it away"
            )


def check_places(repo: Repo, folders: Iterable[str | os.PathLike] = ()) -> None:
    """Raise HubError where a text file, or the settings of a record, name a folder of this machine."""
    places = {f"{place}/" for place in (Path.home(), *(Path(folder).resolve() for folder in folders)) if place != Path("/")}
    for path, content in repo.files.items():
        if path.endswith((".py", ".png", ".safetensors")):
            continue
        text = _metadata_of(content) if path.endswith(".parquet") else content
        if found := [place for place in sorted(places) if place.encode() in text]:
            raise HubError(
                f"{path} of {repo.repo_id} would name {found[0]}, a folder of this machine: name it relatively in the recipe"
            )


def _metadata_of(content: bytes) -> bytes:
    """The metadata of a parquet file and of its columns."""
    schema = pq.read_schema(pa.BufferReader(content))
    metadata = [schema.metadata or {}, *(field.metadata or {} for field in schema)]
    return b"\n".join(text for mapping in metadata for pair in mapping.items() for text in pair)
