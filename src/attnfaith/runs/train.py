"""The training of a recipe, in the folder of its run: from its last whole checkpoint, if there is one, to its model."""

import json
import os
import shutil
import time
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset
from transformers import Trainer, TrainingArguments, set_seed
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from attnfaith.data.fingerprint import digest_data, fingerprint
from attnfaith.data.subwords import tokenizer_facts
from attnfaith.errors import FileError
from attnfaith.files import read_object, sync_folder, write_atomically
from attnfaith.measurement.engine import check
from attnfaith.recipes import Recipe
from attnfaith.runs.base import Base, needed_outputs
from attnfaith.runs.checkpoint import measurable
from attnfaith.runs.folder import MODEL, RunError, note, origin, read_state
from attnfaith.runs.prepare import Texts, make_model, remarks, trainer_class
from attnfaith.runs.pretrained import facts_of
from attnfaith.training import DivergedError, Diversity, ImpermissibleMass, MaskedWords, Penalty, WordTying


USED = ("train", "validation")
COLUMNS = ("input_ids", "token_type_ids", "candidates", "labels", "length", "base_attention", "base_probs")


def train(recipe: Recipe, arguments: TrainingArguments, folder: Path, texts: Texts, base: Base | None, state: PartialState):
    """Train the model of a recipe and keep it in the folder; what cannot be measured is refused before.

    base: the run that it is trained against, if its objective needs one. Raises what `run` raises.
    """
    rows = _rows(recipe, texts, base)
    if state.is_main_process:
        for line in remarks(texts.loaded):
            print(line)
    section = recipe.measure
    measured = texts.measured if section.producers else None
    set_seed(recipe.seed)  # last, so that an adversary starts from the weights, and reads the batches, of its base
    model = make_model(recipe, texts.loaded, texts.tokenizer)
    if section.producers:  # what does not suit the model or its texts is refused before it is trained
        how = {"level": section.level, "options": section.options, "trained": False}
        check(measurable(model, texts.tokenizer), measured, section.producers, **how)
    check_budget(recipe, rows)
    facts = _facts(recipe, texts, rows, state)
    if state.is_main_process:
        note_provenance(recipe, folder, texts, rows, state)
    if recipe.objective.kind == "untrained":
        if state.is_main_process:
            _keep(folder, model, texts.tokenizer, **facts, epochs=0.0)
        state.wait_for_everyone()
        return
    trainer = make_trainer(recipe, model, texts.tokenizer, rows, arguments, base)
    last = last_checkpoint(recipe, arguments, state)
    if base and last:
        base.check_unchanged(folder)
    elif base and state.is_main_process:
        base.note(folder)
    fit(trainer, last, folder, texts.tokenizer, facts, state)


def last_checkpoint(recipe: Recipe, arguments: TrainingArguments, state: PartialState) -> str | None:
    """The checkpoint that a training goes on from, None where it begins; one that had stopped early stays stopped."""
    last = _last_checkpoint(Path(arguments.output_dir), state)
    _stop_where_it_stopped(recipe, arguments, last)
    return last


def fit(trainer: Trainer, last: str | None, folder: Path, tokenizer, facts: dict, state: PartialState) -> None:
    """Train to the end and keep the model in the folder, with the facts. Raises DivergedError; then nothing is kept."""
    arguments, started = trainer.args, time.perf_counter()
    try:
        trainer.train(resume_from_checkpoint=last)
    except DivergedError:
        if state.is_main_process:  # from a checkpoint it would diverge again: the next call starts anew
            shutil.rmtree(arguments.output_dir, ignore_errors=True)
        raise
    if state.is_main_process:
        _keep(
            folder,
            trainer.trained_model(),
            tokenizer,
            **facts,
            epochs=trainer.state.epoch,
            best={"metric": arguments.metric_for_best_model, "value": trainer.state.best_metric},
            training_seconds=round(time.perf_counter() - started, 1),
        )
        shutil.rmtree(arguments.output_dir)
    state.wait_for_everyone()


def _rows(recipe: Recipe, texts: Texts, base: Base | None) -> dict[str, Dataset]:
    """The encoded splits of a training, with what the base says of them."""
    rows = {split: texts.rows(split) for split in USED}
    for split in needed_outputs(recipe):  # those of other splits are looked at before work is lost, too
        outputs = base.outputs(split, texts.rows(split))
        for name in ("attention", "probs") if split in rows else ():
            rows[split] = rows[split].add_column(f"base_{name}", outputs.column(name).to_pylist())
    return rows


def _facts(recipe: Recipe, texts: Texts, rows: dict[str, Dataset], state: PartialState) -> dict:
    """What run.json says of a training, whatever becomes of it."""
    loaded = texts.loaded
    return {
        "status": "trained",
        "dataset": {
            "name": loaded.entry.name,
            "revision": loaded.revision,
            "dropped": loaded.dropped,
            "empty": loaded.empty,
            "empty_pair": loaded.empty_pair,
            "unknown_candidates": loaded.unknown_candidates,
            **({"about": loaded.about} if loaded.about else {}),
        },
        "texts": {split: fingerprint(part) for split, part in loaded.splits.items()},
        "sizes": {split: len(part) for split, part in loaded.splits.items()},
        "truncated": {split: int(sum(part["truncated"])) for split, part in rows.items()},
        "vocabulary": len(texts.tokenizer),
        **_tokenizer(recipe, texts),
        "processes": state.num_processes,
    }


def _tokenizer(recipe: Recipe, texts: Texts) -> dict[str, dict]:
    """Which tokenizer was taken over, and of which pretrained model; nothing where it is of the training texts' words."""
    data, model = recipe.data, recipe.model
    if model.pretrained is not None:
        return {
            "tokenizer": tokenizer_facts(texts.tokenizer, model.pretrained, model.revision),
            "pretrained": facts_of(recipe),
        }
    if data.tokenizer is None:
        return {}
    return {"tokenizer": tokenizer_facts(texts.tokenizer, data.tokenizer, data.tokenizer_revision)}


def note_provenance(recipe: Recipe, folder: Path, texts: Texts, rows: dict[str, Dataset], state: PartialState) -> None:
    data = {"revision": texts.loaded.revision, "fingerprint": {split: digest_data(part) for split, part in rows.items()}}
    made = {**origin(recipe.seed, state, data), "of": "training"}
    if earlier := read_state(folder).get("provenance"):  # the part that an interrupted process trained
        changed = [key for key in ("version", "commit", "dirty", "libraries") if earlier.get(key) != made[key]]
        made |= {"begun": {key: earlier.get(key) for key in changed}} if changed else {}
    note(folder, provenance=made)


def make_trainer(
    recipe: Recipe, model, tokenizer, rows: dict[str, Dataset], arguments: TrainingArguments, base: Base | None = None
) -> Trainer:
    """The trainer of a recipe for encoded splits, on the columns that it reads."""
    if recipe.objective.frozen:
        # all but the alignment: at the base's own attention the divergence is least and has no gradient to leave it by
        weights = base.model.state_dict()
        own = {name: value for name, value in model.state_dict().items() if name.startswith("model.alignment.")}
        model.load_state_dict({**weights, **own})
    if arguments.metric_for_best_model == "eval_accuracy" and recipe.training.metric_for_best_model is None:
        if model.config.num_labels == 2:
            arguments.metric_for_best_model = "eval_roc_auc"
    used = list(COLUMNS)
    if recipe.penalties.impermissible_mass or recipe.model.separate_impermissible:
        used.append("impermissible")
    if recipe.model.pretrained is not None and recipe.penalties.taken:
        used.append("special_tokens_mask")  # penalties are over words
    columns = [name for name in used if name in rows["train"].column_names]
    penalties = {"penalties": penalties_of(recipe)} if recipe.penalties.taken else {}
    return trainer_class(recipe)(
        model,
        arguments,
        train_dataset=rows["train"].select_columns(columns),
        eval_dataset=rows["validation"].select_columns(columns),
        processing_class=tokenizer,
        **penalties,
    )


def penalties_of(recipe: Recipe) -> list[Penalty]:
    """The penalties whose weight is not 0."""
    section = recipe.penalties
    penalties = []
    if section.impermissible_mass:
        penalties.append(ImpermissibleMass(section.impermissible_mass, heads=section.impermissible_heads))
    if section.diversity:
        penalties.append(Diversity(section.diversity))
    if section.word_tying:
        tying = {"distance": section.word_tying_distance, "padding": section.word_tying_padding}
        penalties.append(WordTying(section.word_tying, **tying))
    if section.masked_language_model:
        penalties.append(MaskedWords(section.masked_language_model, share=section.masked_share))
    return penalties


def check_budget(recipe: Recipe, rows: dict[str, Dataset]) -> None:
    """Raise RunError for a budget that is below one token of every text: it would say nothing."""
    selector = recipe.model.selector
    if selector is None or selector.budget is None:
        return
    longest = max(len(tokens) for part in rows.values() for tokens in part["tokens"])
    if selector.budget * longest < 1:
        raise RunError(
            f"model.selector.budget={selector['budget']:g} is below one token of the longest text, which has {longest}: "
            f"give at least {1 / max(1, longest):.3g}"
        )


def _keep(folder: Path, model, tokenizer, /, **facts) -> None:
    """Save model and tokenizer whole or not at all, and note the facts in the run's state."""
    temporary = folder / f".{MODEL}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    sync_folder(temporary)
    note(folder, **facts)
    os.replace(temporary, folder / MODEL)


def _last_checkpoint(folder: Path, state: PartialState) -> str | None:
    """The last checkpoint that is whole, to go on from.

    The Trainer writes a checkpoint's state last: one without it is half-written, and deleted. So is one that has its state
    and lacks another file: it was being deleted. The state names the best checkpoint by the path it had; the folder may lie
    elsewhere now.
    """
    if state.is_main_process and folder.is_dir():
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
            try:
                reached = read_object(path / TRAINER_STATE_NAME) if _has_all_files(path, state) else None
            except FileError:
                reached = None
            if reached is None:
                shutil.rmtree(path)
                continue
            if best := reached.get("best_model_checkpoint"):
                reached["best_model_checkpoint"] = str(folder / Path(best).name)
                write_atomically(path / TRAINER_STATE_NAME, json.dumps(reached, indent=2))
    state.wait_for_everyone()
    return get_last_checkpoint(str(folder)) if folder.is_dir() else None


def _has_all_files(checkpoint: Path, state: PartialState) -> bool:
    """Whether a checkpoint has weights, optimizer, schedule, and the random state of each process."""
    several = state.num_processes > 1
    random = [f"rng_state_{rank}.pth" for rank in range(state.num_processes)] if several else ["rng_state.pth"]
    needed = {*random, TRAINING_ARGS_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, "config.json"}
    names = {path.name for path in checkpoint.iterdir()}
    if SAFE_WEIGHTS_INDEX_NAME in names:
        parts = read_object(checkpoint / SAFE_WEIGHTS_INDEX_NAME)["weight_map"].values()
        return names >= {*needed, *parts}
    return names >= {*needed, SAFE_WEIGHTS_NAME}


def _stop_where_it_stopped(recipe: Recipe, arguments: TrainingArguments, checkpoint: str | None) -> None:
    """A training that had stopped early stays stopped; the Trainer would start another epoch."""
    patience = recipe.training.early_stopping_patience
    if not (checkpoint and patience):
        return
    reached = json.loads((Path(checkpoint) / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    waited = reached["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"]["early_stopping_patience_counter"]
    if waited >= patience:
        arguments.max_steps = reached["global_step"]
