"""What is refused before a run is pushed: unfinished, of code that nobody has, of several runs, with local paths."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith.hub.repo import HubError, Repo, bytes_of, stamp_of
from attnfaith.loading import ModelError, load_model
from attnfaith.models import REGISTERED, AttentionClassifierConfig, RationaleClassifierConfig
from attnfaith.subjects import subject_of


OURS = (AttentionClassifierConfig.model_type, RationaleClassifierConfig.model_type)
"""The types of model that are pushed here."""
RECORD = "record.parquet"
TRAINED = (
    "dataset",
    "texts",
    "sizes",
    "truncated",
    "vocabulary",
    "tokenizer",
    "epochs",
    "best",
    "base",
)  # of run.json, by the training
TRAVELS = {".json", ".py", ".safetensors"}  # what a checkpoint's folder may hold: nothing that is unpickled


def stamps_of(folder: Path) -> dict[Path, tuple]:
    """The stamps of all that a push reads of a run; its folders are named too, so that a new file is seen."""
    if not (folder / "run.json").is_file() or not (folder / "recipe.yaml").is_file():
        raise HubError(f"{folder} is no run (run.json, recipe.yaml): give the output_dir of one")
    named = [folder / name for name in ("run.json", "recipe.yaml", "model", "report")] + sorted(folder.glob("*.parquet"))
    named += [path for part in ("model", "report") for path in sorted((folder / part).rglob("*"))]
    return {path: stamp_of(path) for path in named if path.exists()}


def check_finished(folder: Path, state: Mapping) -> None:
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
    check_clean(folder, provenance)


def check_clean(folder: Path, provenance: Mapping) -> None:
    """Raises HubError where no commit holds the code; of an installed package the version says which code it is."""
    for part in (provenance, provenance.get("begun") or {}):
        if part.get("dirty", False) is not False and not (part["dirty"] is None and part.get("commit") is None):
            raise HubError(
                f"{folder} was made by code with uncommitted changes, so nobody could make it again: commit them, run it "
                "anew, then push"
            )


def check_one_run(folder: Path, recipe: Mapping, state: Mapping, made: Mapping[Path, Mapping]) -> None:
    """Raises HubError unless recipe.yaml, run.json and the records of a folder are of one training, and the run's own record
    is of the recipe's measurement. made: the settings of each record.
    """
    for path, settings in made.items():
        measured = settings["recipe"]
        sections = ("data", "model", "training", "objective", "selection") + (("measure",) if path.name == RECORD else ())
        other = ["seed"] if measured.get("seed") != recipe.get("seed") else []
        for section in sections:
            one, two = (dict(tree.get(section) or {}) for tree in (measured, recipe))
            other += [f"{section}.{key}" for key in sorted({*one, *two} - {"outputs"}) if one.get(key) != two.get(key)]
        if other:
            raise HubError(
                f"{path} was measured by another recipe than the recipe.yaml beside it (different: {', '.join(other)}): "
                "measure the run again, or move the record away"
            )
        trained = settings.get("run") or {}
        if other := [name for name in TRAINED if name in trained and trained[name] != state.get(name)]:
            raise HubError(
                f"{path} was measured in another run than the run.json beside it tells of (different: {', '.join(other)}): "
                "measure the run again, or move the record away"
            )


def check_model(folder: Path, measured: Mapping[Path, str]) -> None:
    """Raises HubError unless the folder holds a checkpoint of ours, with code and no pickle, and the weights that each
    record was measured with.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HubError(f"{folder} holds no model: its config.json cannot be read") from error
    kind = config.get("model_type")
    if kind not in OURS:
        raise HubError(
            f"{folder} holds a checkpoint of model type {kind!r}; only {' and '.join(map(repr, OURS))} are pushed here: "
            "use that model's own push_to_hub"
        )
    if strangers := sorted(path.name for path in folder.iterdir() if path.suffix not in TRAVELS or not path.is_file()):
        raise HubError(
            f"{folder} holds {strangers[0]}, which no run of ours wrote there ({', '.join(sorted(TRAVELS))} only: nothing "
            "pickled is pushed): move it away"
        )
    auto_map = auto_map_of(kind)
    if config.get("auto_map") != auto_map or not all(
        (folder / f"{v.partition('.')[0]}.py").exists() for v in auto_map.values()
    ):
        raise HubError(f"{folder} lacks the code that loads it elsewhere (auto_map, *.py): save the model again")
    try:
        model = load_model(folder)
    except ModelError as error:
        raise HubError(str(error)) from error
    digest = subject_of(model).digest()
    if other := [path for path, weights in measured.items() if weights != digest]:
        raise HubError(f"{folder} has other weights than {other[0]} was measured with: measure it again, then push")


def auto_map_of(kind: str) -> dict[str, str]:
    """The auto_map in the configuration of a saved model of ours: Auto class -> module.class."""
    classes = {auto.__name__: model for auto, model in REGISTERED if model.config_class.model_type == kind}
    classes["AutoConfig"] = next(iter(classes.values())).config_class
    return {auto: f"{loaded.__module__.rpartition('.')[2]}.{loaded.__name__}" for auto, loaded in classes.items()}


def refuse_places(repo: Repo, folders: Iterable[str | os.PathLike]) -> None:
    """Raise HubError where a text file, or the settings of a record, name a folder of this machine."""
    places = {f"{place}/" for place in (Path.home(), *(Path(folder).resolve() for folder in folders)) if place != Path("/")}
    for path, content in repo.files.items():
        if path.endswith((".py", ".png", ".safetensors")):
            continue
        text = _notes_of(content) if path.endswith(".parquet") else bytes_of(content)
        if place := next((place for place in sorted(places) if place.encode() in text), None):
            raise HubError(
                f"{path} of {repo.repo_id} would name {place}, a folder of this machine: name it relatively in the recipe"
            )


def _notes_of(content: Path | bytes) -> bytes:
    """The metadata of a parquet file and of its columns."""
    schema = pq.read_schema(pa.BufferReader(content) if isinstance(content, bytes) else content)
    notes = [schema.metadata or {}, *(field.metadata or {} for field in schema)]
    return b"\n".join(text for note in notes for pair in note.items() for text in pair)
