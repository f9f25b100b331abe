"""What a recipe may set of transformers' TrainingArguments, beside the keys of its own training section.

A recipe may come from a stranger. It says what is learned and how; what names files, loads code, reports elsewhere, starts
a debugger or a compiler, or divides the work between machines is no part of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Annotated, Literal

from pydantic import Field

from attnfaith.recipes.sections import (
    LARGEST,
    Count,
    NotNegative,
    Positive,
    RecipeError,
    Seed,
    make_section,
    section,
    unknown,
)


PLACE = "recipe.training.arguments"
When = Literal["no", "steps", "epoch"]
Beta = Annotated[float, Field(ge=0, lt=1)]


@section
class Arguments:
    """Of transformers' TrainingArguments, by their names there.

    The defaults are what a training has where a recipe is silent; `runs.training_arguments` sets them.
    """

    max_steps: Annotated[int, Field(ge=-1, le=LARGEST)] = -1
    """updates after which training ends, whatever num_train_epochs; -1: num_train_epochs says it"""
    lr_scheduler_type: str = "constant"
    """how the learning rate changes, such as linear, cosine or reduce_lr_on_plateau"""
    lr_scheduler_kwargs: dict[str, bool | int | float | str] = field(default_factory=dict)
    """keyword arguments of that schedule"""
    warmup_steps: NotNegative = 0
    """updates over which the learning rate rises; below 1, their share of all"""
    adam_beta1: Beta = 0.9
    """of Adam"""
    adam_beta2: Beta = 0.999
    """of Adam"""
    adam_epsilon: Positive = 1e-8
    """of Adam"""
    fp16: bool = False
    """train in float16, on a GPU"""
    tf32: bool = False
    """TensorFloat-32 on a GPU that has it"""
    bf16_full_eval: bool = False
    """evaluate in bfloat16"""
    fp16_full_eval: bool = False
    """evaluate in float16"""
    full_determinism: bool = False
    """only algorithms that give the same bits each time"""
    data_seed: Seed = 42
    """of the order of texts; where it is not given, the recipe's seed"""
    dataloader_drop_last: bool = False
    """leave out a last batch that is not full"""
    dataloader_num_workers: Annotated[int, Field(ge=0, le=64)] = 0
    """processes that make batches; 0: none beside the training"""
    eval_strategy: When = "epoch"
    """when the model is evaluated"""
    eval_steps: Positive = 500
    """updates between evaluations"""
    eval_delay: NotNegative = 0
    """epochs or updates before the first"""
    eval_accumulation_steps: Count = 1
    """batches of an evaluation after which outputs leave the GPU"""
    save_strategy: Literal["no", "steps", "epoch", "best"] = "epoch"
    """when a checkpoint is kept"""
    save_steps: Positive = 500
    """updates between checkpoints"""
    save_total_limit: Count = 1
    """checkpoints that are kept"""
    logging_strategy: When = "epoch"
    """when losses are logged"""
    logging_steps: Positive = 500
    """updates between logs"""
    logging_first_step: bool = False
    """log the first update too"""
    disable_tqdm: bool = False
    """no progress bar; there is none where standard error is a file"""


ALLOWED = tuple(key.name for key in fields(Arguments))
ELSEWHERE = {
    "seed": "set seed at the top of the recipe",
    "output_dir": "set output_dir at the top of the recipe",
    "hub_token": "a recipe is published, and an access token in it would be too: take it out, log in with `hf auth login` "
    "or set HF_TOKEN, and give --push_to_hub to train.py",
}
PUSHED = "a recipe says what a run is, not where it goes: take it out, and give --push_to_hub, --hub_model_id OWNER/NAME, "
PUSHED += "--hub_private_repo or --hub_revision to train.py"


def check_arguments(given: Mapping, own: Sequence[str]) -> None:
    """Raise RecipeError for the first argument that a recipe may not set, saying where it is set, and for a wrong value.

    own: the keys of the training section, which are set there.
    """
    for name in (name for name in given if name not in ALLOWED):
        where = ELSEWHERE.get(name)
        if where is None and name in own:
            where = f"set training.{name}"
        if where is None and (name == "push_to_hub" or name.startswith("hub_")):
            where = PUSHED
        if where is not None:
            raise RecipeError(f"training.arguments.{name}: {where}")
        raise RecipeError(
            f"{unknown('training argument', name, ALLOWED, 'training.arguments.')}. A recipe sets none that names files, "
            "loads code or reports elsewhere"
        )
    make_section(Arguments, given, PLACE)
