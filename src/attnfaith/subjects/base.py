"""What measures ask of a model, `Subject`, and what they need of any model of torch.

Shapes: B instances, L input positions, T places of attention, C classes, K attentions per instance, E embedding, H hidden,
V vocabulary.
"""

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from operator import attrgetter
from typing import Protocol

import torch

from attnfaith.data.collation import POSITION_COLUMNS, keep_positions, pad_batch
from attnfaith.data.fingerprint import digest_model
from attnfaith.data.in_memory import Rows, texts_in_memory
from attnfaith.data.subwords import tokenizer_digest
from attnfaith.subjects.attention import widened
from attnfaith.subjects.protocol import Batch, SubjectError


PARALLEL = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
DEVICES = ("cpu", "cuda", "mps", "xpu")
BOUNDLESS = 10**9
"""A tokenizer's limit from here on means that it has none."""
TOLERANCE = 1e-4
"""Largest difference, over the size of numbers or 1, that counts as rounding of float32 and float64."""
EAGER = {"_attn_implementation": "eager", "return_dict": True}
"""By `set_attn_implementation` the same takes as long, warns of models with one way, and forgets the ways of parts."""


class Subject(Protocol):
    """A model that can be measured, with its tokenizer; its subclasses and what else answers this protocol.

    T are the places that attention is over: the L input positions of a model that attends to tokens, fewer where it attends
    to sentences. Methods from `embed` on belong to capabilities, and a subject without the capability may lack them. A
    record needs RECORDED; measures do not.

    can: the capabilities that a subject of this kind may have; `lacks` gives the reason for those that it has not.
    tokenizer: needed by `encode` and `rows`; `attnfaith.load_subject` sets it.

    Raises SubjectError for a model that lies on several devices, or on none.
    """

    kind: str  # of this subject, for people
    can: frozenset[str] = frozenset()
    lacks: Mapping[str, str] = {}
    unknown_token_id: int
    mask_token_id: int | None = None  # "mask token"
    output: str  # what its logits become, see `outputs`; may be left out: "classes"
    level = "token"  # what attention is over: or "sentence", "word" of pairs
    depth: int  # how many layers have states ("token states")
    configurations: Sequence = ()
    """Configurations of parts whose attention is "eager", step by step, while the model is read."""
    device, num_labels = property(attrgetter("model.device")), property(attrgetter("config.num_labels"))

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
        """Those of CAPABILITIES that it has."""
        return self.can - self.lacks.keys()

    def setting(self, name: str, *more):
        """A value of the configuration, of that of generation or of a part, or of `more`: the first that there is."""
        parts = (getattr(self.config, part, None) for part in ("text_config", "decoder"))
        owners = self.config, getattr(self.model, "generation_config", None), *parts, *more
        return next((value for owner in owners if (value := getattr(owner, name, None)) is not None), None)

    @property
    def pad_token_id(self) -> int | None:
        """The model's own where it has a padding token, since a decoder finds the end of a text by it."""
        number = self.setting("pad_token_id", self.tokenizer)
        return None if number is None or number < 0 else int(number)

    @property
    def end_token_id(self) -> int | None:
        """The marker that ends a text; None where it is unknown."""
        number = self.setting("eos_token_id")
        return number[0] if isinstance(number, list) and number else number

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes, in their order; () where they have only the default names of transformers."""
        names = [str(self.config.id2label.get(number, number)) for number in range(self.config.num_labels)]
        return () if names == [f"LABEL_{number}" for number in range(len(names))] else tuple(names)

    def own_tokenizer(self):
        """The tokenizer. Raises SubjectError for a subject without one."""
        if self.tokenizer is None:
            raise SubjectError(f"texts need the model's tokenizer: {type(self).__name__}(model, tokenizer)")
        return self.tokenizer

    def rows(self, texts) -> Rows:
        """A data set of encoded instances from texts with the columns instance_id and text, and perhaps text_pair and label:
        instance_id, input_ids, tokens [T], labels if there are any, length (of input_ids), truncated (whether the text was
        cut), and what else `collate` needs. From `Rows` it makes `Rows`. Raises SubjectError or DatasetError for texts that
        the model cannot read.
        """

    def encode(self, texts: Sequence) -> Batch:
        """A batch from texts, or from pairs (text, second text)."""
        return self.collate(self.rows(texts_in_memory(texts)).to_list())

    def collate(self, rows: Sequence[Mapping]) -> Batch:
        """A batch from rows of `rows`, on the model's device; a text of no token has a place to fill."""
        filling = self.pad_token_id or 0  # also of a model without a padding token, which reads texts of one length
        empty = {"input_ids": [filling], **dict.fromkeys(POSITION_COLUMNS, [0]), "special_tokens_mask": [1]}
        features = [{name: row[name] or empty[name] for name in empty if row.get(name) is not None} for row in rows]
        batch = pad_batch(features, filling)
        batch["attention_mask"][[not row["input_ids"] for row in rows]] = 0  # a place to fill is no token
        batch |= {"instance_id": [row["instance_id"] for row in rows], "label": [row.get("labels") for row in rows]}
        return Batch.of(batch, self)

    def check(self, dataset) -> None:
        """Raise SubjectError where encoded instances are not made for this subject, or it cannot predict at all."""

    @contextmanager
    def evaluating(self, eager: bool = True) -> Iterator[None]:
        """Within, the model is in eval mode and its attention, where `eager`, step by step; after it, both as before."""
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            with configured(self.configurations, **EAGER) if eager and self.configurations else nullcontext():
                yield
        finally:
            for module, training in modes.items():
                module.training = training

    def attendable(self, batch: Batch) -> torch.Tensor:
        """(B,T) bool: the places that hold what attention may look at; no markers, no padding."""

    def items(self, batch: Batch) -> torch.Tensor | None:
        """(B,L): the place that an input position belongs to, -1 for none; None where places are positions."""

    def predict(self, batch: Batch, embedded: torch.Tensor | None = None, *, hold: bool = False) -> torch.Tensor:
        """Logits (B,C). Embeddings (B,L,E) are read in place of the ids; hold: attention is fixed ("held attention")."""

    def attention(self, batch: Batch) -> torch.Tensor:
        """(B,T): the weights that a person would be shown, 0 where nothing is attendable; without gradient."""

    def identity(self) -> Mapping[str, object]:
        """The fields of `attnfaith.record.Identity` that the model decides, as far as they are known; "model" at least."""

    def tokenizer_digest(self) -> str | None:
        """A fingerprint of how the tokenizer divides texts; None without a tokenizer."""
        return None if self.tokenizer is None else tokenizer_digest(self.tokenizer)

    def digest(self) -> str:
        """A fingerprint of what the model computes."""
        return digest_model(self.model)

    def embed(self, batch: Batch) -> torch.Tensor:
        """(B,L,E): rows of the table of tokens, before they are scaled and positions are added ("embeddings")."""
        return widened(torch.nn.functional.embedding(batch["input_ids"], self.vocabulary()))

    def vocabulary(self) -> torch.Tensor:
        """(V,E): the embeddings of all words ("embeddings")."""
        return self.model.get_input_embeddings().weight

    def parameters(self) -> Iterable[torch.Tensor]:
        """The parameters of the model, which measures freeze ("embeddings")."""
        return self.model.parameters()

    def keep(self, batch: Batch, stays: torch.Tensor) -> Batch:
        """The texts with the input positions `stays` (B,L) alone, not tokenised anew; what follows moves up, and a sentence
        without words is gone ("token deletion").
        """
        rest = {name: batch[name] for name in ("instance_id", "label") if name in batch}
        return Batch.of({**keep_positions(batch, stays, self.pad_token_id or 0), **rest}, self)

    def summands(self, batch: Batch) -> Iterator[tuple[int, torch.Tensor]]:
        """For each instance, by number, the vectors (S,T,H) that its T attendable tokens add to S weighted sums of attention
        ("weighed vectors"). An instance may come several times, each time with other sums.
        """

    def value_norms(self, batch: Batch) -> torch.Tensor:
        """(B,N,T): the lengths of the vectors that N sums of attention weigh, weights aside; 0 where there is no such vector
        ("weighed vectors"). Of a stack of layers markers have some too.
        """

    def states_by_layer(self, batch: Batch) -> list[torch.Tensor]:
        """The states (B,T,H) of the places of attention after each layer, first layer first ("token states")."""

    def intervene(self, batch: Batch, attention: torch.Tensor) -> torch.Tensor:
        """Logits (B,C) under another attention (B,T), or (B,K,C) under K others (B,K,T); its own gives its prediction
        ("intervention").
        """

    def attention_products(self, batch: Batch, explain) -> torch.Tensor:
        """(B,T): each weight times the slope of explain(logits (n,C), rows (n,)) -> (n,) in it ("attention gradients")."""
        attention = self.attention(batch)
        rows = torch.arange(len(attention), device=attention.device)
        with torch.enable_grad():
            weights = attention.detach().requires_grad_()
            f = explain(self.intervene(batch, weights), rows)
            # an empty batch of places depends on nothing
            slopes = torch.autograd.grad(f.sum(), [weights], materialize_grads=True)[0] if f.requires_grad else weights
        return torch.where(attention == 0, 0.0, attention.double() * slopes.double()).detach()


def rounding(model, units: int = 8) -> float:
    """The largest difference, over the size of numbers or 1, that counts as rounding: `units` in the last place of 1 in the
    coarsest weights of a model, and TOLERANCE at least.
    """
    kinds = {values.dtype for values in model.parameters() if values.is_floating_point()}
    return max(TOLERANCE, units * max(torch.finfo(kind).eps for kind in kinds))


def check_finite(model) -> None:
    """Raise SubjectError for a weight that is not finite."""
    for name, values in model.state_dict().items():
        numeric = isinstance(values, torch.Tensor) and values.is_floating_point()  # quantised layers keep other things too
        if numeric and not values.sum().isfinite() and not values.isfinite().all():
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
    """Whether an encoder reads the texts and a decoder answers, in a model or in the model that it wraps."""
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


def unwrapped(model):
    """Return the model within what `torch.compile` and data parallelism put around it; a copy without the autocast that
    accelerate left, and with the adapters of a PEFT model merged into the weights.

    Raises SubjectError for weights made in inference mode, and for adapters that cannot be merged.
    """
    while isinstance(model, PARALLEL) or hasattr(model, "_orig_mod"):
        model = getattr(model, "_orig_mod", None) or model.module
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
    trainable = [parameter.requires_grad_(False) for parameter in model.parameters() if parameter.requires_grad]
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def configurations(model) -> list:
    """The different configurations of a model and of its parts, outer ones first."""
    waiting = [module.config for module in model.modules() if hasattr(type(module), "set_attn_implementation")]
    for config in waiting:  # grows as it goes
        waiting += filter(None, (getattr(config, name, None) for name in config.sub_configs))
    return list({id(config): config for config in waiting}.values())


@contextmanager
def configured(configs: Sequence, **values) -> Iterator[None]:
    """Within, `configurations` have these values; after it their own."""
    own = [(config, name, getattr(config, name, value)) for name, value in values.items() for config in configs]
    try:
        for config, name, _ in own:
            if getattr(config, name, values[name]) != values[name]:
                setattr(config, name, values[name])
        yield
    finally:
        for config, name, value in own:  # the outer one sets those within it: so they come after it
            if getattr(config, name, value) != value:
                setattr(config, name, value)


def eager(model):
    """Within, a model computes attention step by step ("eager"), so that its weights are there, and names its outputs."""
    return configured(configurations(model), **EAGER)
