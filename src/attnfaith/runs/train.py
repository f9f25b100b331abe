"""The training of a recipe, in the folder of its run: from its last whole checkpoint, if there is one, to its model."""

import dataclasses
import json
import os
import shutil
import sys
import time
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import Trainer, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from attnfaith import training
from attnfaith.data.fingerprint import digest_data, digest_model, fingerprint
from attnfaith.data.loading import LoadedDataset
from attnfaith.measurement.engine import check
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.reporting.facts import own_data_lines
from attnfaith.runs.folder import CHECKPOINTS, UNFINISHED_MODEL, note
from attnfaith.runs.models import make_model, pretrained_facts
from attnfaith.runs.preparation import WEIGHTS, Run
from attnfaith.subjects import subject_of
from attnfaith.support.errors import AttnfaithError, FileError, excerpt
from attnfaith.support.files import MODEL, read_object, sync, write_atomically
from attnfaith.training.trainers import LOWER_IS_BETTER, BaseTrainer, check_selection


COLUMNS = ("input_ids", "token_type_ids", "labels", "length", "base_attention", "base_probs")


def trainer_class(recipe: Recipe) -> type[BaseTrainer]:
    """Return the class of a recipe's trainer; its `config_class` has the arguments."""
    if recipe.model.selector is not None:
        return training.RationaleTrainer
    if recipe.kind != "classifier":
        return training.TranslationTrainer if recipe.kind == "translator" else training.FineTuningTrainer
    against = {"guided": training.GuidedTrainer, "adversarial": training.AdversarialTrainer}
    return against.get(recipe.objective.kind, training.AttentionTrainer)


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """Return the arguments of a recipe's trainer. Raises RecipeError for values that transformers refuses."""
    section, config_class = recipe.training, trainer_class(recipe).config_class
    names = {key.name for key in dataclasses.fields(config_class)}
    own = {}
    for part in (section, recipe.objective, recipe.selection, recipe.penalties):  # the last of translators
        own |= {name: value for name, value in vars(part).items() if name in names}
    adversarial, pairs = recipe.objective.kind == "adversarial", recipe.kind == "translator"
    metric = own.pop("metric_for_best_model") or ("objective" if adversarial else "loss" if pairs else "accuracy")
    if not pairs:
        check_selection(metric, adversarial=adversarial)
    own = {name: value for name, value in own.items() if value is not None}
    # without a GPU, two launched processes are one training only with use_cpu
    own["use_cpu"] = section.use_cpu or not torch.cuda.is_available()
    fixed = {
        "output_dir": str(Path(recipe.output_dir).absolute() / CHECKPOINTS),
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
        # some pretrained ones have layers that no classifier uses, and a selector's may have no gradient in a batch
        "ddp_find_unused_parameters": recipe.kind == "pretrained" or recipe.model.selector is not None,
        "disable_tqdm": not sys.stderr.isatty(),  # a bar would fill a log file
        "dataloader_pin_memory": torch.cuda.is_available(),
    }
    try:
        return config_class(**{**fixed, **own, **section.arguments})
    except AttnfaithError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError(f"training.arguments: transformers refuses these: {excerpt(error, 300)}") from error


def train(run: Run, arguments: TrainingArguments) -> None:
    """Train the model of a run, from its last whole checkpoint, and keep it in the folder. Raises what `runs.run` raises."""
    recipe, section, started = run.recipe, run.recipe.measure, time.perf_counter()
    rows = {split: run.rows(split) for split in ("train", "validation")}
    if recipe.objective.base:
        for split, part in rows.items():
            outputs = run.base_record(part)
            for name in ("attention", "probs"):
                rows[split] = rows[split].add_column(f"base_{name}", outputs.column(name).to_pylist())
    facts, folder = _facts(run, rows), Path(arguments.output_dir)
    if run.main:
        _print_texts(run.loaded, rows)
    set_seed(recipe.seed)  # last, so that an adversary starts from the weights, and reads the batches, of its base
    model = make_model(recipe, run.loaded, run.tokenizer)
    subject = subject_of(model, run.tokenizer)
    check(subject, subject.rows(run.drawn), section.producers, options=section.options, trained=False)
    if recipe.objective.kind != "untrained":
        last = _last_checkpoint(folder, run.state)
        if recipe.base and last:
            run.check_base_unchanged()
        elif recipe.base and run.main:
            note(run.folder, base={"folder": recipe.base, WEIGHTS: digest_model(run.base)})
        if recipe.objective.frozen:
            # all but the alignment: at the base's own attention the divergence is least and has no gradient to leave it by
            alignment = {name: value for name, value in model.state_dict().items() if name.startswith("model.alignment.")}
            model.load_state_dict({**run.base.state_dict(), **alignment})
        trainer = make_trainer(recipe, model, run.tokenizer, rows, arguments)
        trainer.train(resume_from_checkpoint=last)
        model = trainer.trained_model()
        facts["epochs"] = trainer.state.epoch
        facts["best"] = {"metric": arguments.metric_for_best_model, "value": trainer.state.best_metric}
        facts["training_seconds"] = round(time.perf_counter() - started, 1)
    if run.main:
        _keep(run.folder, model, run.tokenizer, facts)
        shutil.rmtree(folder, ignore_errors=True)
    run.state.wait_for_everyone()


def _facts(run: Run, rows: dict[str, Dataset]) -> dict:
    """The facts of a training for run.json, from its encoded splits."""
    loaded = run.loaded
    data = {"revision": loaded.revision, "fingerprint": {split: digest_data(part) for split, part in rows.items()}}
    dataset = {"name": loaded.entry.name, "revision": loaded.revision, "dropped": loaded.dropped}
    facts = {
        "status": "trained",
        "dataset": dataset | ({"about": loaded.about} if loaded.own else {}),
        "texts": {split: fingerprint(part) for split, part in loaded.splits.items()},
        "sizes": {split: len(part) for split, part in loaded.splits.items()},
        "vocabulary": len(run.tokenizer),
        "processes": run.state.num_processes,
        "provenance": run.origin(run.recipe.seed, data),
    }
    return facts | ({"pretrained": pretrained_facts(run.recipe)} if run.recipe.kind == "pretrained" else {})


def _print_texts(loaded: LoadedDataset, rows: dict[str, Dataset]) -> None:
    """Print what was read of own data, and how many pairs of sentences their encoding left out."""
    for line in own_data_lines(loaded.entry.name, loaded.about, loaded.dropped) if loaded.about else []:
        print(line)
    for split, part in rows.items():
        if left_out := len(loaded.splits[split]) - len(part):
            print(f"{loaded.entry.name}: pairs of {split} left out, empty or too long: {left_out:,}")


def make_trainer(recipe: Recipe, model, tokenizer, rows: dict[str, Dataset], arguments: TrainingArguments) -> Trainer:
    """Return the trainer of a recipe for encoded splits, on the columns that it reads."""
    if arguments.metric_for_best_model == "eval_accuracy" and recipe.training.metric_for_best_model is None:
        arguments.metric_for_best_model = "eval_roc_auc" if model.config.num_labels == 2 else "eval_accuracy"
    columns, penalties = list(rows["train"].column_names), {}
    if recipe.kind != "translator":
        apart = recipe.penalties.impermissible_mass or recipe.model.separate_impermissible
        columns = [name for name in (*COLUMNS, *(["impermissible"] if apart else [])) if name in columns]
        penalties = {"penalties": penalties_of(recipe)} if any(vars(recipe.penalties).values()) else {}
    train, validation = (rows[split].select_columns(columns) for split in ("train", "validation"))
    how = {"train_dataset": train, "eval_dataset": validation, "processing_class": tokenizer, **penalties}
    return trainer_class(recipe)(model, arguments, **how)


def penalties_of(recipe: Recipe) -> list[training.Penalty]:
    """Return the penalties of a classifier; those with weight 0 add nothing."""
    section = recipe.penalties
    return [
        training.ImpermissibleMass(section.impermissible_mass, heads=section.impermissible_heads or "mean"),
        training.Diversity(section.diversity),
        training.WordTying(section.word_tying, distance=section.word_tying_distance or "squared"),
        training.MaskedWords(section.masked_language_model, share=section.masked_share or 0.15),
    ]


def _keep(folder: Path, model, tokenizer, facts: dict) -> None:
    """Save model and tokenizer whole or not at all, and note the facts in the run's state."""
    temporary = folder / UNFINISHED_MODEL
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    sync(*temporary.iterdir())
    note(folder, **facts)
    os.replace(temporary, folder / MODEL)


def _last_checkpoint(folder: Path, state: PartialState) -> str | None:
    """The Trainer's last whole checkpoint, or None."""
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*") if state.is_main_process else ():
        try:
            progress = read_object(path / TRAINER_STATE_NAME)
        except FileError:  # it is written last, and the process was killed before
            shutil.rmtree(path)
            continue
        if best := progress.get("best_model_checkpoint"):  # an absolute path, and the folder may lie elsewhere now
            progress["best_model_checkpoint"] = str(folder / Path(best).name)
            write_atomically(path / TRAINER_STATE_NAME, json.dumps(progress, indent=2))
    state.wait_for_everyone()
    return get_last_checkpoint(str(folder)) if folder.is_dir() else None
