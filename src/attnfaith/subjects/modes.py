"""A model while it is measured: out of its wrappers, with eager attention, without modes that change numbers."""

import copy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from transformers.utils import logging

from attnfaith.subjects.protocol import SubjectError


PARALLEL = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
DEVICES = ("cpu", "cuda", "mps", "xpu")


def unwrapped(model):
    """Return the model within what `torch.compile` and data parallelism put around it. In place of one that a training in
    mixed precision left under autocast, return a copy without it that shares its weights; in place of a PEFT model, a copy
    with its adapters merged into the weights, which rules and norms read.

    Raises SubjectError for weights that were made in inference mode, which gradients do not pass, and for adapters that
    cannot be merged.
    """
    while isinstance(model, PARALLEL) or hasattr(model, "_orig_mod"):
        model = model.module if isinstance(model, PARALLEL) else model._orig_mod
    if not isinstance(model, torch.nn.Module):
        return model
    if any(values.is_inference() for values in model.parameters()):
        raise SubjectError(
            f"{type(model).__name__} was loaded within torch.inference_mode(), where gradients end: load it outside"
        )
    if hasattr(model, "peft_config"):
        if not hasattr(model, "merge_and_unload"):
            raise SubjectError(
                f"{type(model).__name__} has PEFT adapters that cannot be merged into its weights: measure a model with "
                "LoRA or another adapter of weights, opened as a peft.PeftModel"
            )
        merged = copy.deepcopy(model).merge_and_unload()
        vars(merged).pop("peft_config", None)
        return merged
    if "_original_forward" in vars(model):  # as accelerate keeps it
        from accelerate.utils import extract_model_from_parallel

        return extract_model_from_parallel(copy.copy(model), keep_fp32_wrapper=False)
    return model


@contextmanager
def plainly() -> Iterator[None]:
    """Within, there is no inference mode, no autocast and no default device, and what was compiled runs step by step."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for device in filter(torch.is_autocast_enabled, DEVICES):
            stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if "torch._dynamo" in sys.modules:  # else nothing was compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def frozen(model) -> Iterator[None]:
    """Within, no parameter of a model or subject requires a gradient; after it those that did before."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


@contextmanager
def configured(model, **values) -> Iterator[None]:
    """Within, the configurations of a model and of its parts have these values; after it their own."""
    configurations = {id(config): config for config in _configurations(model)}.values()
    own = [(config, name, getattr(config, name, value)) for name, value in values.items() for config in configurations]
    try:
        for config, name, value in own:
            if value != values[name]:
                setattr(config, name, values[name])
        yield
    finally:
        for config, name, value in own:  # the outer one sets those within it: so they come after it
            if getattr(config, name, value) != value:
                setattr(config, name, value)


def eager(model):
    """Within, a model computes attention step by step ("eager"), so that its weights are there, and names its outputs."""
    return configured(model, _attn_implementation="eager", return_dict=True)


def _configurations(model) -> Iterator:
    """The configurations of a model and of its parts, outer ones first."""
    waiting = [module.config for module in model.modules() if hasattr(type(module), "set_attn_implementation")]
    while waiting:
        config = waiting.pop(0)
        yield config
        waiting += [part for name in config.sub_configs if (part := getattr(config, name, None)) is not None]


@contextmanager
def silent() -> Iterator[None]:
    """Within, transformers warns of nothing."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
