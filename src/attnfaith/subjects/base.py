"""The base of this package's subjects: a model with its tokenizer, and facts from its configuration and weights."""

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import torch

from attnfaith.data.fingerprint import hash_of_weights
from attnfaith.errors import excerpt
from attnfaith.subjects.attention import widened
from attnfaith.subjects.protocol import SubjectError


BOUNDLESS = 10**9
"""A tokenizer's limit from here on means that it has none."""
LEFT_OUT = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "auto_map")
"""Keys of a configuration that do not change what the model computes."""


class ModelSubject:
    """A model and its tokenizer, as every subject of this package has them.

    tokenizer: needed by `encode` and `rows`; `attnfaith.load_subject` sets it.

    Raises SubjectError for a model that lies on several devices, or on none.
    """

    kind: str
    can: frozenset[str] = frozenset()
    lacks: Mapping[str, str] = {}
    level = "token"

    def __init__(self, model, tokenizer=None):
        places = {values.device for values in model.parameters()}
        if len(places) > 1 or torch.device("meta") in places:
            raise SubjectError(
                f"{type(model).__name__} lies on {', '.join(sorted(map(str, places)))}: put the whole model on one device, "
                "model.to('cpu')"
            )
        self.model, self.tokenizer, self.config = model, tokenizer, model.config

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of `can` that this model has; `lacks` gives the reason for each of the others."""
        return self.can - self.lacks.keys()

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in their order; () where the configuration has only the default names of transformers.

        Raises SubjectError where id2label leaves a class out.
        """
        names, count = self.config.id2label, self.config.num_labels
        if missing := [number for number in range(count) if number not in names]:
            raise SubjectError(
                f"id2label of the model's configuration has no class {missing[0]}; it has {excerpt(list(names))}: number "
                "the classes from 0"
            )
        names = tuple(str(names[number]) for number in range(count))
        return () if names == tuple(f"LABEL_{number}" for number in range(count)) else names

    def check_tokenizer(self) -> None:
        """Raise SubjectError where the subject has no tokenizer."""
        if self.tokenizer is None:
            raise SubjectError(f"texts need the model's tokenizer: {type(self).__name__}(model, tokenizer)")

    def tokenizer_digest(self) -> str | None:
        """A fingerprint of how the tokenizer divides texts; None without a tokenizer."""
        from attnfaith.data.subwords import tokenizer_digest

        return None if self.tokenizer is None else tokenizer_digest(self.tokenizer)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Within, the model is in eval mode; after it, every module is in its own mode."""
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            yield
        finally:
            for module, training in modes.items():
                module.training = training

    def parameters(self) -> Iterator[torch.Tensor]:
        return self.model.parameters()

    def vocabulary(self) -> torch.Tensor:
        return self.model.get_input_embeddings().weight

    def embed(self, batch) -> torch.Tensor:
        """(B,L,E): rows of the table of tokens, before they are scaled and positions are added."""
        return widened(torch.nn.functional.embedding(batch["input_ids"], self.vocabulary()))

    def items(self, batch) -> torch.Tensor | None:
        """None: places of attention are input positions."""
        return None

    def in_double(self):
        """A copy of the subject with its model in float64, to see what rounding does."""
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model).double()
        return other

    def digest(self) -> str:
        """SHA-256 of the weights and of the keys of the configuration that change what the model computes."""
        return hash_of_model(self.model).hexdigest()


def hash_of_model(model):
    """A SHA-256 object over a model's weights and the keys of its configuration that change what it computes."""
    digest = hash_of_weights(model)
    config = {key: value for key, value in model.config.to_dict().items() if key not in LEFT_OUT}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    return digest


def precision(model) -> float:
    """One unit in the last place of 1, in the coarsest of a model's weights."""
    return max(torch.finfo(kind).eps for kind in {v.dtype for v in model.parameters()} if kind.is_floating_point)


def check_finite(model) -> None:
    """Raise SubjectError for a weight that is not finite."""
    for name, values in model.state_dict().items():
        # a sum of finite values overflows at worst: only then is each value looked at
        if values.is_floating_point() and not values.sum().isfinite() and not values.isfinite().all():
            raise SubjectError(
                f"weight '{name}' holds NaN or infinite values: the training diverged or the checkpoint is broken"
            )


def vocabulary_size(model) -> int:
    """The number of tokens that a model knows."""
    try:
        return model.get_input_embeddings().num_embeddings
    except (NotImplementedError, AttributeError):
        return int(getattr(model.config, "vocab_size", 256))


def check_ids(ids, size: int) -> None:
    """Raise SubjectError where a list of token ids has one that a model of `size` tokens does not know."""
    largest = max((max(row, default=0) for row in ids), default=0)
    if largest >= size:
        raise SubjectError(
            f"the tokenizer is not the model's: it gives token {largest}, and the model knows {size} tokens, from 0 on"
        )


def is_encoder_decoder(model) -> bool:
    """Whether an encoder reads the texts and a decoder answers; of a model that wraps another, whether that is so."""
    config = model.config
    return config.is_encoder_decoder or bool(getattr(getattr(config, "text_config", None), "is_encoder_decoder", False))


def separates(model) -> bool:
    """Whether the model keeps impermissible tokens apart from others, and so needs to know which they are."""
    return bool(getattr(model.config, "separate_impermissible", False))


def position_limit(subject) -> int | None:
    """The most input positions that a subject's model reads; None where there is no bound."""
    limits = [getattr(subject.tokenizer, "model_max_length", None)]
    for name, module in subject.model.named_modules():
        if isinstance(module, torch.nn.Embedding) and "position" in name.rpartition(".")[2] and "relative" not in name:
            before = getattr(module, "offset", 0) if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - before)
    with suppress(AttributeError, NotImplementedError):
        limits.append(getattr(subject.config, "text_config", subject.config).max_position_embeddings)
    if getattr(subject.config, "attention_type", None) == "block_sparse":  # BigBird: shorter texts it reads in full
        limits.append((5 + 2 * subject.config.num_random_blocks) * subject.config.block_size)
    bounds = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < BOUNDLESS]
    return min(bounds, default=None)
