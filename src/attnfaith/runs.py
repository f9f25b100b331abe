"""A recipe carried out: data, training, measurement and report, in one folder that is never mixed with another run's.

The folder of a run holds recipe.yaml (complete), run.json (what was used and how far it got), checkpoints/ while it trains,
model/ (the selected checkpoint with tokenizer and code), outputs/ (what models trained against it need), record.parquet and
report/.
"""

import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import evaluate
import pyarrow as pa
import torch
import transformers
from accelerate import PartialState
from datasets import Dataset
from transformers import AutoTokenizer, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
from transformers.utils.logging import disable_progress_bar

import attnfaith
from attnfaith import provenance, recipes, record
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.loading import ROOT_VARIABLE, SPLITS, LoadedDataset, load_splits
from attnfaith.data.registry import get_entry
from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.data.vectors import file_digest, load_vectors
from attnfaith.errors import AttnfaithError
from attnfaith.measurement import (
    MeasurementError,
    check,
    check_options,
    digest_data,
    digest_model,
    load_producers,
    measure,
    producers,
    read_outputs,
)
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.planned_identity import RECIPE, training_fields
from attnfaith.recipes import Recipe, RecipeError, model_config
from attnfaith.reporting import write_report
from attnfaith.reporting.report import run_facts
from attnfaith.training import LOWER_IS_BETTER, DivergedError, check_processes, check_selection, make_trainer


STATE, MODEL, RECORD, REPORT = "run.json", "model", "record.parquet", "report"
OUTPUTS = "outputs"
CODE, TRAINING_CODE = record.code_digest(record.CORE), record.code_digest("training")
BASES = {"guided": ("classification", "adversarial"), "adversarial": ("classification",)}  # objectives a base may have


class RunError(AttnfaithError):
    """A run that cannot start or go on. The message says why and what to do."""


def run(recipe: Recipe, *, overwrite: bool = False, resume: bool = False, remeasure: bool = False) -> Path:
    """Train, measure and report; returns the path of the report's page.

    overwrite: delete the run that lies in the output folder. resume: go on with it, from its last checkpoint and its
    measured shards; the recipe must be the same but for `measure` and `report`: with another `measure` section the trained
    model is kept and measured anew. Without either, a folder that is not empty is refused. remeasure: measure a model anew
    whose record other code made (`record.code_digest`), its outputs for other models left as they are; with resume.

    Raises RunError, RecipeError, DatasetError or MeasurementError before work is lost, and DivergedError where loss or
    weights stop being numbers: then no model is kept, nor any checkpoint.
    """
    started = time.perf_counter()
    disable_progress_bar()  # of loading and saving, which take no time; training and measuring keep theirs
    state = PartialState(cpu=recipe.training.use_cpu or not torch.cuda.is_available())
    check_options(load_producers(recipe.measure.producers), recipe.measure.options)
    _check_splits(recipe)
    folder = Path(recipe.output_dir)
    arguments = training_arguments(recipe)
    check_processes(arguments)
    model_config(recipe, get_entry(recipe.data.name).pair)
    _check_base(recipe)
    _open(folder, recipe, state, overwrite=overwrite, resume=resume)
    try:
        if not (folder / MODEL).is_dir():
            _train(recipe, arguments, folder, state)
        _measure_outputs(recipe, folder, state)
        path = folder / RECORD
        if not _is_measured(path, recipe) or (remeasure and not _is_measured_by_this_code(path)):
            path = _measure(recipe, folder, state)
        page = folder / REPORT / "index.html"
        if state.is_main_process:
            page = report(path, folder / REPORT, recipe)
            scores = faithfulness(path)
            _note(folder, status="complete", seconds=round(time.perf_counter() - started, 1), attention_faithfulness=scores)
            _print(scores)
        state.wait_for_everyone()
    except KeyboardInterrupt:
        if state.is_main_process:
            print(f"\nstopped; go on with --resume_from_checkpoint: what {folder} holds is whole", file=sys.stderr)
        raise
    return page


def _is_measured(path: Path, recipe: Recipe) -> bool:
    """Whether a whole record lies there that this recipe's `measure` section made."""
    if not path.is_file():
        return False
    try:
        made = [recipes.build(part["recipe"]).measure for part in record.settings(record.load(path))]
    except (record.RecordError, RecipeError):
        return False
    return [dataclasses.replace(part, outputs=recipe.measure.outputs) for part in made] == [recipe.measure]


def _is_measured_by_this_code(path: Path) -> bool:
    return not any(record.stale(part["columns"]) for part in record.settings(record.load(path)))


def measure_run(folder: str | os.PathLike, recipe: Recipe, output: str | os.PathLike | None = None) -> Path:
    """Measure the model of a finished training, with the given recipe's `measure` section; returns the record's path.

    output None replaces the run's own record once the new one is whole. Outputs that the section names and the run lacks
    are made too.

    Raises RunError where no model is there, RecipeError where the recipe differs from the run's in more than `measure`.
    """
    folder = Path(folder)
    if not (folder / MODEL).is_dir():
        raise RunError(f"{folder} holds no trained model ({MODEL}/); train first")
    _check_splits(recipe)
    changed = _changed(recipe, (folder / RECIPE).read_text(encoding="utf-8"))
    if others := [key for key in changed if not key.startswith("measure.")]:
        raise RecipeError(
            f"the model in {folder} was trained with another {', '.join(others)}: a measurement may change measure.* only "
            "(the seed of a measurement is measure.seed)"
        )
    _check_base(recipe)
    state = PartialState(cpu=not torch.cuda.is_available())
    _measure_outputs(recipe, folder, state)
    return _measure(recipe, folder, state, output)


def report(path: str | os.PathLike, output: str | os.PathLike, recipe: Recipe | None = None) -> Path:
    """Tables, figures and page of a record; returns the page's path."""
    table = record.load(path)
    section = recipe.report if recipe else recipes.Report()
    facts = run_facts(table, recipe.note if recipe else None)
    return write_report(table, output, title=section.title, facts=facts, n_examples=section.examples)


def faithfulness(path: str | os.PathLike) -> dict[str, dict]:
    """The metric `attention_faithfulness` of what a record holds, by the name of the measure or experiment.

    Attention against each measure of input importance; the model's own attention and prediction against those of each
    experiment, where every draw is one row and a text without draws is one undefined row. Undefined is None, so that the
    result is JSON.
    """
    table = record.load(path)
    metric = evaluate.load("attention_faithfulness")
    own = {name: record.rows(table, name) for name in ("attention", "probs")}
    found = {}
    for name in table.column_names:
        if name.startswith("importance_") and not name.endswith("_hidden"):
            found[name.removeprefix("importance_")] = metric.compute(importance=record.rows(table, name), **own)
    for name, module in load_producers([name for name, path in producers().items() if ".experiments." in path]).items():
        compared = {}
        for argument, column in module.METRIC.items():
            if column in table.column_names:
                draws = record.rows(table, column)
                original = argument.removeprefix("counterfactual_")
                compared[argument] = [row for rows in draws for row in (rows if len(rows) else [None])]
                compared[original] = [
                    row for row, rows in zip(own[original], draws, strict=True) for _ in range(len(rows) or 1)
                ]
        if compared:
            found[name] = metric.compute(**compared)
    return {
        name: {key: None if value != value else value for key, value in scores.items()} for name, scores in found.items()
    }


def _print(scores: dict[str, dict]) -> None:
    def shown(name: str) -> str:
        return "undefined" if values[name] is None else f"{values[name]:.3f}"

    for name, values in scores.items():
        label = name.replace("_", " ")
        if "kendall_tau" in values:
            print(
                f"attention and {label}: Kendall's tau {shown('kendall_tau')} "
                f"[{shown('kendall_tau_ci_low')}, {shown('kendall_tau_ci_high')}], "
                f"undefined for {values['kendall_tau_undefined']} of {values['n']} texts"
            )
            continue
        parts = []
        if "tvd" in values:
            parts.append(f"TVD {shown('tvd')}, decisions flipped {shown('flip_fraction')}")
        if "jsd" in values:
            parts.append(f"JSD {shown('jsd')} nats")
        # without a draw of any text there is neither
        undefined = max((values[key] for key in ("tvd_undefined", "jsd_undefined") if key in values), default=values["n"])
        said = f"{', '.join(parts)} over {values['n'] - undefined} draws" if parts else "no draws"
        print(f"{label}: {said}, undefined for {undefined} texts")


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """transformers' TrainingArguments of a recipe. Raises ValueError for a name they do not have or a value they refuse."""
    section = recipe.training
    known = {f.name for f in dataclasses.fields(TrainingArguments)}
    ours = {f.name: getattr(section, f.name) for f in dataclasses.fields(section) if f.name in known}
    if unknown := [name for name in section.arguments if name not in known]:
        raise RecipeError(recipes.unknown("training argument", f"training.arguments.{unknown[0]}", sorted(known)))
    folder = str(Path(recipe.output_dir).absolute() / "checkpoints")
    adversarial = recipe.objective.kind == "adversarial"
    metric = ours.pop("metric_for_best_model") or ("objective" if adversarial else "accuracy")
    check_selection(metric, adversarial=adversarial)
    # Without a GPU this is what makes two launched processes one training instead of two that write one folder.
    ours["use_cpu"] = section.use_cpu or not torch.cuda.is_available()
    settled = {
        "output_dir": folder,
        "seed": recipe.seed,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "logging_strategy": "epoch",
        "save_total_limit": 1,
        "load_best_model_at_end": True,
        "metric_for_best_model": f"eval_{metric}",
        "greater_is_better": metric not in LOWER_IS_BETTER,
        "lr_scheduler_type": "constant",
        "restore_callback_states_from_checkpoint": True,  # how long early stopping has waited
        "remove_unused_columns": False,
        "length_column_name": "length",
        "ddp_find_unused_parameters": False,
        "report_to": "none",
        "dataloader_pin_memory": torch.cuda.is_available(),
    }
    if clash := sorted(set(section.arguments) & {*ours, "output_dir", "seed", "metric_for_best_model"}):
        raise RecipeError(f"training.arguments repeats {clash}: set them under training (seed and output_dir at the top)")
    if fixed := sorted(set(section.arguments) & {"load_best_model_at_end", "greater_is_better", "remove_unused_columns"}):
        raise RecipeError(f"training.arguments sets {fixed}, which every run needs as they are: leave them out")
    try:
        return TrainingArguments(**{**settled, **ours, **section.arguments})
    except (TypeError, ValueError) as error:
        raise RecipeError(f"training: transformers refuses these arguments: {error}") from error


def load_data(recipe: Recipe, limits: Mapping[str, int] | None = None) -> LoadedDataset:
    """The data set of a recipe, with its own limits or those given."""
    data = recipe.data
    limits = data.limits if limits is None else limits
    try:
        return load_splits(data.name, seed=data.seed, limits=limits, **data.arguments)
    except TypeError as error:
        if not data.arguments:
            raise
        raise RecipeError(f"data.arguments={data.arguments}: a value of a wrong type: {error}") from error


def remarks(loaded: LoadedDataset) -> list[str]:
    """What of the data cannot be used or says nothing, with counts: a user may find a mistake in the files by it."""
    source = loaded.dropped["source"]
    counts = {
        "questions are left out: their answer is not in their text": source.get("answer_not_candidate", 0),
        "questions are left out: their answer is not one of training": source.get("answer_not_in_training", 0),
        "candidates are left out: no training text has them": loaded.unknown_candidates,
        "texts have no words": sum(loaded.empty.values()),
        "second texts have no words": sum(loaded.empty_pair.values()),
    }
    return [f"{loaded.entry.name}: {count:,} {what}" for what, count in counts.items() if count]


def make_tokenizer(recipe: Recipe, loaded: LoadedDataset):
    entry, data = loaded.entry, recipe.data
    return build_tokenizer(
        loaded.vocabulary_texts,
        preprocessing=entry.preprocessing,
        min_df=entry.min_df if data.min_df is None else data.min_df,
        max_length=data.max_length,
        pair=entry.pair,
        extra_vocabulary=loaded.extra_vocabulary,
        hierarchy=recipe.model.hierarchy,
        max_sentence_length=data.max_sentence_length,
        max_sentences=data.max_sentences,
    )


def make_model(recipe: Recipe, loaded: LoadedDataset, tokenizer) -> AttentionClassifierForSequenceClassification:
    """A fresh model of the recipe for this data set, on the word vectors it names."""
    data, names = recipe.data, loaded.label_names
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }
    if recipe.model.hierarchy != "none":
        fields["sentence_token_id"] = tokenizer.sentence_token_id
    vectors = None
    if data.vectors:
        path = _vectors_path(data.vectors)
        vectors, found = load_vectors(
            path,
            tokenizer.get_vocab(),
            missing=data.missing_vectors,
            std=recipe.model.embedding_std,
            seed=recipe.seed,
        )
        fields |= {"embedding_size": vectors.shape[1], "vectors": "pretrained", "vectors_digest": file_digest(path)}
        print(f"{found.sum()} of {len(found)} vocabulary entries have a vector in {data.vectors}")
    model = AttentionClassifierForSequenceClassification(model_config(recipe, loaded.entry.pair, **fields))
    if vectors is not None:
        with torch.no_grad():
            model.get_input_embeddings().weight.copy_(torch.from_numpy(vectors))
    return model


def _vectors_path(name: str) -> Path:
    root = os.environ.get(ROOT_VARIABLE)
    if root and not Path(name).exists() and (Path(root) / name).exists():
        return Path(root) / name
    return Path(name)


def _check_splits(recipe: Recipe) -> None:
    section = recipe.measure
    for name, splits in (("split", [section.split]), ("outputs", section.outputs)):
        if unknown := [split for split in splits if split not in SPLITS]:
            raise RecipeError(f"measure.{name}={unknown[0]!r} does not exist; choose one of {', '.join(SPLITS)}")


class _Base(NamedTuple):
    """The run that a model is trained against: its folder, its model and that model's digest."""

    folder: Path
    model: AttentionClassifierForSequenceClassification
    digest: str


def _needed_outputs(recipe: Recipe) -> list[str]:
    """Splits whose outputs the base must keep. Under a given attention a model cannot even be measured without them."""
    kind, section = recipe.objective.kind, recipe.measure
    needed = {"train", "validation"} if recipe.objective.needs_base else set()
    if kind == "guided":
        needed |= {section.split, *section.outputs}
    return [split for split in SPLITS if split in needed]


def _check_base(recipe: Recipe) -> None:
    """Raise RunError where the run that a recipe is trained against cannot serve, by what its folder holds."""
    objective = recipe.objective
    if not objective.needs_base:
        return
    folder, given = Path(objective.base), f"objective.base={objective.base}"
    if folder.resolve() == Path(recipe.output_dir).resolve():
        raise RunError(f"{given} is this run's own output_dir; name the run it is trained against")
    if missing := [name for name in (RECIPE, STATE, MODEL) if not (folder / name).exists()]:
        raise RunError(f"{given} is no trained run ({', '.join(missing)} missing there): train it first")
    base = recipes.load(folder / RECIPE)
    if base.objective.kind not in BASES[objective.kind]:
        raise RunError(
            f"{given} has objective {base.objective.kind}; the base of objective.kind={objective.kind!r} must be "
            f"{' or '.join(BASES[objective.kind])}"
        )
    if base.model.hierarchy != recipe.model.hierarchy:
        raise RunError(
            f"{given} has model.hierarchy={base.model.hierarchy!r} and this model {recipe.model.hierarchy!r}: they attend "
            "to different things; give both the same"
        )
    if objective.frozen and base.model != recipe.model:
        pairs = ((name, getattr(base.model, name), value) for name, value in vars(recipe.model).items())
        other = [f"model.{name}={value!r}, there {theirs!r}" for name, theirs, value in pairs if theirs != value]
        raise RunError(f"objective.frozen starts from the weights in {folder}, which is another model: {'; '.join(other)}")
    if lacking := [split for split in _needed_outputs(recipe) if not (folder / OUTPUTS / f"{split}.parquet").is_file()]:
        raise RunError(
            f"{given} keeps no outputs of {', '.join(lacking)}: go on with that run with --resume_from_checkpoint "
            f"--measure.outputs '[{', '.join(SPLITS)}]'"
        )


def _read_base(recipe: Recipe) -> _Base:
    folder = Path(recipe.objective.base)
    model = AttentionClassifierForSequenceClassification.from_pretrained(folder / MODEL)
    return _Base(folder, model, digest_model(model))


def _base_outputs(base: _Base, split: str, rows) -> pa.Table:
    """The base's outputs of an encoded split, matched by instance. Raises RunError where they are not of these texts."""
    try:
        return read_outputs(base.folder / OUTPUTS / f"{split}.parquet", rows, base.digest)
    except MeasurementError as error:
        raise RunError(f"objective.base={base.folder}: {error}") from error


def _check_same_base(folder: Path, base: _Base) -> None:
    trained = read_state(folder)["base"]["weights (SHA-256)"]
    if trained != base.digest:
        raise RunError(
            f"{base.folder} was trained anew since the run in {folder} was trained against it (weights "
            f"{base.digest[:16]}, then {trained[:16]}): run that again with --overwrite_output_dir"
        )


def _given_attention(recipe: Recipe, folder: Path, split: str, tokenizer) -> dict | None:
    """{instance id: weights} that a guided model reads the split under; None for a model with attention of its own."""
    if recipe.objective.kind != "guided":
        return None
    base = _read_base(recipe)
    _check_same_base(folder, base)
    found = _base_outputs(base, split, encode(load_data(recipe).splits[split], tokenizer))
    return dict(zip(found.column("instance_id").to_pylist(), record.rows(found, "attention"), strict=True))


def _open(folder: Path, recipe: Recipe, state: PartialState, *, overwrite: bool, resume: bool) -> None:
    """Make the run's folder, or check that the one there may be used. Every process checks before one of them writes."""
    ours = (folder / RECIPE).is_file() and (folder / STATE).is_file()
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give another output_dir")
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    changed = []
    if found and found != {RECIPE, STATE}:  # with these two alone, a run failed before it did anything
        if not ours:
            raise RunError(f"{folder} holds files that are no run of ours; give another output_dir")
        if resume:
            changed = _changed(recipe, (folder / RECIPE).read_text(encoding="utf-8"))
            if trains := [key for key in changed if not key.startswith("measure.")]:
                raise RunError(
                    f"{folder} is a run of another recipe (different: {', '.join(trains)}); give another output_dir"
                )
        elif not overwrite:
            raise RunError(
                f"{folder} holds a run already: go on with --resume_from_checkpoint, replace it with "
                "--overwrite_output_dir, or give another --output_dir"
            )
    state.wait_for_everyone()
    if state.is_main_process:
        if overwrite and not resume and ours:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # Shards of a measurement that is no longer wanted would be refused as another one's.
        if any(key != "measure.outputs" for key in changed):
            for shards in (*folder.glob("*.shards"), *folder.glob(f"{OUTPUTS}/*.shards")):
                shutil.rmtree(shards)
        if changed and (folder / MODEL).is_dir():
            _note(folder, status="trained")
        _write(folder / RECIPE, recipes.dump(recipe))
        if not (folder / STATE).is_file():
            versions = {module.__name__: module.__version__ for module in (attnfaith, torch, transformers)}
            _write(folder / STATE, json.dumps({"status": "started", "versions": versions}, indent=1))
    state.wait_for_everyone()


def _changed(recipe: Recipe, text: str) -> list[str]:
    """Dotted keys in which a recipe differs from a written one; where the run lies and how it is reported do not count."""

    def flat(tree, prefix=""):
        for key, value in tree.items():
            if isinstance(value, dict) and value:
                yield from flat(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    new, old = dict(flat(dataclasses.asdict(recipe))), dict(flat(dataclasses.asdict(recipes.parse(text))))
    changed = sorted(key for key in {*new, *old} if new.get(key) != old.get(key))
    return [key for key in changed if key not in ("output_dir", "note") and not key.startswith("report.")]


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def read_state(folder: str | os.PathLike) -> dict:
    return json.loads((Path(folder) / STATE).read_text(encoding="utf-8"))


def _note(folder: Path, **facts) -> None:
    _write(folder / STATE, json.dumps({**read_state(folder), **facts}, indent=1))


def _train(recipe: Recipe, arguments: TrainingArguments, folder: Path, state: PartialState) -> None:
    section, objective = recipe.training, recipe.objective
    base = _read_base(recipe) if objective.needs_base else None
    with state.local_main_process_first():
        loaded = load_data(recipe)
        tokenizer = make_tokenizer(recipe, loaded)
        encoded = {split: encode(loaded.splits[split], tokenizer) for split in ("train", "validation")}
        if base:
            for split in _needed_outputs(recipe):  # those of other splits are looked at before work is lost, too
                rows = encoded[split] if split in encoded else encode(loaded.splits[split], tokenizer)
                outputs = _base_outputs(base, split, rows)
                for name in ("attention", "probs") if split in encoded else ():
                    encoded[split] = encoded[split].add_column(f"base_{name}", outputs.column(name).to_pylist())
    if state.is_main_process:
        for line in remarks(loaded):
            print(line)
    columns = ("input_ids", "token_type_ids", "candidates", "labels", "length", "base_attention", "base_probs")
    columns = [name for name in columns if name in encoded["train"].column_names]
    measured = _to_measure(recipe, tokenizer, state)[1] if recipe.measure.producers else None
    set_seed(recipe.seed)  # last, so that an adversary starts from the weights, and reads the batches, of its base
    model = make_model(recipe, loaded, tokenizer)
    if recipe.measure.producers:  # what does not suit the model or its texts is refused before it is trained
        check(model, measured, recipe.measure.producers, level=recipe.measure.level, options=recipe.measure.options)
    facts = {
        "status": "trained",
        "dataset": {
            "name": recipe.data.name,
            "revision": loaded.revision,
            "dropped": loaded.dropped,
            "empty": loaded.empty,
            "empty_pair": loaded.empty_pair,
            "unknown_candidates": loaded.unknown_candidates,
        },
        "texts": {split: fingerprint(rows) for split, rows in loaded.splits.items()},
        "sizes": {split: len(rows) for split, rows in loaded.splits.items()},
        "truncated": {split: int(sum(rows["truncated"])) for split, rows in encoded.items()},
        "vocabulary": len(tokenizer),
        "code": TRAINING_CODE,
        "processes": state.num_processes,
    }
    if state.is_main_process:
        digests = {split: digest_data(rows) for split, rows in encoded.items()}
        data = {"revision": loaded.revision, "fingerprint": digests}
        made = {**_made(recipe.seed, TRAINING_CODE, state, data), "of": "training"}
        if earlier := read_state(folder).get("provenance"):  # the part that an interrupted process trained
            changed = [key for key in ("version", "code", "commit", "dirty", "libraries") if earlier.get(key) != made[key]]
            made |= {"begun": {key: earlier.get(key) for key in changed}} if changed else {}
        _note(folder, provenance=made)
    if objective.kind == "untrained":
        if state.is_main_process:
            _keep(folder, model, tokenizer, **facts, epochs=0.0)
        state.wait_for_everyone()
        return
    if objective.frozen:
        # all but the alignment: at the base's own attention the divergence is least and has no gradient to leave it by
        weights = base.model.state_dict()
        own = {name: value for name, value in model.state_dict().items() if name.startswith("model.alignment.")}
        model.load_state_dict({**weights, **own})
    if arguments.metric_for_best_model == "eval_accuracy" and section.metric_for_best_model is None:
        if model.config.num_labels == 2:
            arguments.metric_for_best_model = "eval_roc_auc"
    adversary = {}
    if objective.kind == "adversarial":
        adversary = {name: getattr(objective, name) for name in ("weight", "divergence", "frozen")}
    trainer = make_trainer(
        model,
        tokenizer,
        encoded["train"].select_columns(columns),
        encoded["validation"].select_columns(columns),
        arguments,
        objective=objective.kind,
        patience=section.early_stopping_patience,
        balance_classes=section.balance_classes,
        loss_reduction=section.loss_reduction,
        amsgrad=section.amsgrad,
        attention_learning_rate_factor=section.attention_learning_rate_factor,
        random_erasure=section.random_erasure,
        **adversary,
    )
    last = _last_checkpoint(Path(arguments.output_dir), state)
    if last and section.early_stopping_patience:
        reached = json.loads((Path(last) / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        waited = reached["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"]["early_stopping_patience_counter"]
        if waited >= section.early_stopping_patience:  # it had stopped; the Trainer would start another epoch
            arguments.max_steps = reached["global_step"]
    if base and last:
        _check_same_base(folder, base)
    elif base and state.is_main_process:
        _note(folder, base={"folder": str(base.folder), "weights (SHA-256)": base.digest})
    started = time.perf_counter()
    try:
        trainer.train(resume_from_checkpoint=last)
    except DivergedError:
        if state.is_main_process:  # from a checkpoint it would diverge again: the next call starts anew
            shutil.rmtree(arguments.output_dir, ignore_errors=True)
        raise
    if state.is_main_process:
        _keep(
            folder,
            trainer.model,
            tokenizer,
            **facts,
            epochs=trainer.state.epoch,
            best={"metric": arguments.metric_for_best_model, "value": trainer.state.best_metric},
            training_seconds=round(time.perf_counter() - started, 1),
        )
        shutil.rmtree(arguments.output_dir)
    state.wait_for_everyone()


def _made(seed: int, code: str, state: PartialState, data: dict) -> dict:
    """Where what this process makes comes from."""
    device = torch.cuda.get_device_name(state.device) if state.device.type == "cuda" else state.device.type
    return provenance.collect(code, seed=seed, data=data, device=f"{device}, {torch.get_num_threads()} threads")


def _keep(folder: Path, model, tokenizer, **facts) -> None:
    """Save model and tokenizer whole or not at all, and note the facts in the run's state."""
    temporary = folder / f".{MODEL}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    _note(folder, **facts)
    os.replace(temporary, folder / MODEL)


def _last_checkpoint(folder: Path, state: PartialState) -> str | None:
    """The last checkpoint that is whole, to go on from.

    The Trainer writes a checkpoint's state last: one without it is half-written, and deleted. The state names the best
    checkpoint by the path it had; the folder may have moved since.
    """
    if state.is_main_process and folder.is_dir():
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
            try:
                found = json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                shutil.rmtree(path)
                continue
            if best := found["best_model_checkpoint"]:
                found["best_model_checkpoint"] = str(folder / Path(best).name)
                _write(path / TRAINER_STATE_NAME, json.dumps(found, indent=2))
    state.wait_for_everyone()
    return get_last_checkpoint(str(folder)) if folder.is_dir() else None


def _load_model(folder: Path, state: PartialState):
    tokenizer = AutoTokenizer.from_pretrained(folder / MODEL, trust_remote_code=False)
    return AttentionClassifierForSequenceClassification.from_pretrained(folder / MODEL).to(state.device), tokenizer


def _measure(recipe: Recipe, folder: Path, state: PartialState, output: str | os.PathLike | None = None) -> Path:
    section = recipe.measure
    model, tokenizer = _load_model(folder, state)
    loaded, rows = _to_measure(recipe, tokenizer, state)
    common = _common(recipe, folder, loaded)
    data = {"revision": loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
    made = _made(section.seed, CODE, state, data)
    if state.is_main_process and output is None and "provenance" not in read_state(folder):  # trained by older code
        _note(folder, provenance={**made, "of": "measurement"})
    common["settings"]["provenance"] = made
    path = measure(
        model,
        rows,
        _cell(recipe, folder, loaded, section.split),
        section.producers,
        output or folder / RECORD,
        level=section.level,
        options=section.options,
        attention=_given_attention(recipe, folder, section.split, tokenizer),
        **common,
    )
    if state.is_main_process and output is None:
        _note(folder, status="measured")
    return path


def _to_measure(recipe: Recipe, tokenizer, state: PartialState) -> tuple[LoadedDataset, Dataset]:
    """The data and, encoded, the texts that a record of this recipe holds."""
    section = recipe.measure
    limits = {**recipe.data.limits, **({} if section.limit is None else {section.split: section.limit})}
    with state.local_main_process_first():
        loaded = load_data(recipe, limits)
        return loaded, encode(loaded.splits[section.split], tokenizer)


def _measure_outputs(recipe: Recipe, folder: Path, state: PartialState) -> None:
    """Write attention and predictions of the splits in `measure.outputs`, whole, where they do not lie there already."""
    if not recipe.measure.outputs:
        return
    model, tokenizer = _load_model(folder, state)
    digest = digest_model(model)
    with state.local_main_process_first():
        loaded = load_data(recipe)
    for split in recipe.measure.outputs:
        path, rows = folder / OUTPUTS / f"{split}.parquet", encode(loaded.splits[split], tokenizer)
        try:
            read_outputs(path, rows, digest)
        except MeasurementError:
            given = _given_attention(recipe, folder, split, tokenizer)
            measure(
                model,
                rows,
                _cell(recipe, folder, loaded, split),
                [],
                path,
                attention=given,
                **_common(recipe, folder, loaded),
            )


def _cell(recipe: Recipe, folder: Path, loaded: LoadedDataset, split: str) -> record.Identity:
    return record.Identity(
        dataset=recipe.data.name,
        texts=fingerprint(loaded.splits[split]),
        training_texts=read_state(folder)["texts"]["train"],
        split=split,
        seed=recipe.seed,
        **training_fields(recipe),
    )


def _common(recipe: Recipe, folder: Path, loaded: LoadedDataset) -> dict:
    """What all measurements of a run share."""
    settings = {"recipe": dataclasses.asdict(recipe), "run": read_state(folder), "label_names": list(loaded.label_names)}
    return {"seed": recipe.measure.seed, "batch_tokens": recipe.measure.batch_tokens, "settings": settings}
