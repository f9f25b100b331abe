"""What a text classifier of transformers says of itself: whether it is one, how far it reads, its identity and digest."""

import contextlib
import json

import torch

from attnfaith.data.fingerprint import hash_of_weights
from attnfaith.errors import excerpt
from attnfaith.subjects.protocol import SubjectError


BOUNDLESS = 10**9
"""A tokenizer's limit from here on means that it has none."""
LEFT_OUT = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "auto_map")
"""What a configuration says that does not change what the model computes."""


def output_of(config) -> str:
    """What a classifier's outputs are, one of `attnfaith.subjects.protocol.OUTPUTS`."""
    kind = getattr(config, "problem_type", None)
    if kind == "multi_label_classification":
        return "labels"
    return "values" if kind == "regression" or config.num_labels < 2 else "classes"


WITHOUT_CLASSES = {
    "labels": "its labels do not exclude one another (problem_type='multi_label_classification')",
    "values": "it is a regression, whose outputs are values",
}
"""Why a classifier has no "classes", by what its outputs are."""


def check_place(model) -> None:
    """Raises SubjectError for a model that lies on several devices, or on none."""
    places = {values.device for values in model.parameters()}
    if len(places) > 1 or torch.device("meta") in places:
        raise SubjectError(
            f"{type(model).__name__} lies on {', '.join(sorted(map(str, places)))}: put the whole model on one device, "
            "model.to('cpu')"
        )


def precision(model) -> float:
    """One unit in the last place of 1, in the coarsest of a model's weights."""
    return max(torch.finfo(kind).eps for kind in {v.dtype for v in model.parameters()} if kind.is_floating_point)


def check_finite(model) -> None:
    """Raises SubjectError for a weight that is not finite."""
    for name, values in model.state_dict().items():
        # a sum of finite values overflows at worst: only then is each value looked at
        if values.is_floating_point() and not values.sum().isfinite() and not values.isfinite().all():
            raise SubjectError(
                f"weight '{name}' holds NaN or infinite values: the training diverged or the checkpoint is broken"
            )


def end_token(model) -> int | None:
    """The marker that ends a text, at which an encoder and decoder answers; None for other models."""
    own = model.config
    for config in (own, getattr(own, "text_config", None)):  # of one that is wrapped by another
        if getattr(config, "is_encoder_decoder", False):
            end = getattr(config, "eos_token_id", None)
            return end if isinstance(end, int) else None
    return None


def vocabulary_size(model) -> int:
    """How many tokens a model knows."""
    try:
        return model.get_input_embeddings().num_embeddings
    except (NotImplementedError, AttributeError):
        return int(getattr(model.config, "vocab_size", 256))


def check_tokens(model, rows) -> None:
    """Raises SubjectError for encoded texts of tokens that the model does not know, and those of an encoder and decoder
    without the one end marker at which it answers.
    """
    largest = max((max(ids, default=0) for ids in rows["input_ids"]), default=0)
    if largest >= (size := vocabulary_size(model)):
        raise SubjectError(
            f"the tokenizer is not the model's: it gives token {largest}, and the model knows {size} tokens, from 0 on"
        )
    if (end := end_token(model)) is None:
        return
    for name, ids in zip(rows["instance_id"], rows["input_ids"], strict=True):
        if ids.count(end) != 1:
            raise SubjectError(
                f"text {name!r} has {ids.count(end)} end markers (token {end}), and {type(model).__name__} answers at the "
                "one behind a text: take spelled ones out, or give the model's own tokenizer, which puts it there"
            )


def is_encoder_decoder(model) -> bool:
    """Whether texts are read by an encoder, and answered by a decoder."""
    own = model.config
    return own.is_encoder_decoder or bool(getattr(getattr(own, "text_config", None), "is_encoder_decoder", False))


def class_names_of(config) -> tuple[str, ...]:
    """The names of a model's classes, in their order; () where its configuration has only those that transformers makes up.

    Raises SubjectError where id2label leaves a class out.
    """
    names_by_id = config.id2label
    if missing := [number for number in range(config.num_labels) if number not in names_by_id]:
        raise SubjectError(
            f"id2label of the model's configuration has no class {missing[0]}; it has {excerpt(list(names_by_id))}: number "
            "the classes from 0"
        )
    names = tuple(str(names_by_id[number]) for number in range(config.num_labels))
    return () if all(name == f"LABEL_{number}" for number, name in enumerate(names)) else names


def separates(model) -> bool:
    """Whether it has to be told which tokens are impermissible, and keeps them apart from others."""
    return bool(getattr(model.config, "separate_impermissible", False))


def position_limit(subject) -> int | None:
    """The most input positions that a model reads; None where there is no bound."""
    limits = [getattr(subject.tokenizer, "model_max_length", None)]
    for name, module in subject.model.named_modules():
        if isinstance(module, torch.nn.Embedding) and "position" in name.rpartition(".")[2] and "relative" not in name:
            before = getattr(module, "offset", 0) if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - before)
    with contextlib.suppress(AttributeError, NotImplementedError):
        limits.append(getattr(subject.config, "text_config", subject.config).max_position_embeddings)
    if getattr(subject.config, "attention_type", None) == "block_sparse":  # BigBird: shorter texts it reads in full
        limits.append((5 + 2 * subject.config.num_random_blocks) * subject.config.block_size)
    bounds = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < BOUNDLESS]
    return min(bounds, default=None)


def hash_of_model(model):
    """A SHA-256 that has read a model's weights and what its configuration says of what it computes."""
    digest = hash_of_weights(model)
    config = {key: value for key, value in model.config.to_dict().items() if key not in LEFT_OUT}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    return digest
