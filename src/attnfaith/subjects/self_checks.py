"""What a model is asked before its attention is believed: each check has a name, and a model that fails one is refused.

Random texts are read a few times. Attention that a library returned without a word, and that was not what the model computed
with, has misled whole comparisons: nothing is taken on trust here.
"""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers.utils import logging

from attnfaith.errors import excerpt
from attnfaith.subjects.attention_hook import Edit, Embedded, Hook, Map
from attnfaith.subjects.classifier_facts import check_finite, end_token, is_encoder_decoder, separates, vocabulary_size
from attnfaith.subjects.layer_parts import LayerParts, projected
from attnfaith.subjects.layers import blocks_of, recorded_layers
from attnfaith.subjects.plain import in_eval_mode, plainly
from attnfaith.subjects.protocol import SubjectError
from attnfaith.subjects.separation import check_separation


LENGTHS = (11, 7)
TOLERANCE = 1e-4
"""Largest difference of logits, over their size or 1, that counts as rounding."""
CROSS = re.compile(r"cross|encoder_attn|encdec", re.I)
TOGETHER = ("padded", "of one length", "one at a time")
"""How texts may be read together, best first."""


@dataclass(frozen=True)
class Sites:
    """What was learned of a model.

    layers: the numbers of the maps over input positions that `SelfAttention` calls layers. names: the module of each;
    heads: how many heads each has. maps: how many maps there are in all. together: one of TOGETHER, the best that
    changes nothing. embeddings: whether embeddings can be given, and gradients reach them. token_types: whether
    token_type_ids are read. difference: the largest of logits read by the hook and of the model's own, in its own
    implementation of attention. blocks: the name of each layer's module, () where there are none. lacks: the
    capabilities that it has not, and why.
    """

    layers: tuple[int, ...]
    names: tuple[str, ...]
    heads: tuple[int, ...]
    maps: int
    together: str
    embeddings: bool
    hides: bool
    token_types: bool
    difference: float
    blocks: tuple[str, ...] = ()
    lacks: dict[str, str] = field(default_factory=dict)


class Silence(Edit):
    """All weights of one layer are 0: other ones whatever they were, also where a row has one weight of 1."""

    def __init__(self, layer: int):
        self.layer = layer

    def weights(self, number, weights):
        return torch.zeros_like(weights) if number == self.layer else weights


class Named(Edit):
    """The module in which each map is made, and the number of its call; a context around a forward pass."""

    def __init__(self, model):
        self.model, self.names, self.calls, self._within, self._handles = model, [], [], [], []
        self._called: dict[str, int] = {}

    def weights(self, number, weights):
        self.names.append(self._within[-1] if self._within else "")
        self.calls.append(self._called.get(self.names[-1], 0))
        return weights

    def __enter__(self):
        for name, module in self.model.named_modules():
            self._handles.append(module.register_forward_pre_hook(lambda *given, name=name: self._enter(name)))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def _enter(self, name: str) -> None:
        self._called[name] = self._called.get(name, 0) + 1
        self._within.append(name)

    def _leave(self, *given) -> None:
        self._within.pop()

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()


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


def checked(subject) -> Sites:
    """What is learned of the model of a subject by reading random texts.

    Raises SubjectError naming the check that fails:
        reading: the model reads token ids and a mask, and gives logits that are finite.
        layers: attention over input positions is there, made of a softmax that weighs values; a layer has one.
        logits: they are the same when the hook reads, and as in the model's own implementation of attention.
        rows: every row is of weights from 0 on, and sums to 1; of a model with attention sinks, to less.
        use: other weights of a layer give other logits, so that these are what the model computed with.
        returned: what the model itself returns as its attention, if it does, is the same.
        separation: of a model that keeps impermissible tokens apart, they are (`attnfaith.subjects.separation`).
    """
    model = subject.model
    types = "token_type_ids" in inspect.signature(model.forward).parameters
    with plainly(), in_eval_mode(model), configured(model, return_dict=True), torch.no_grad():
        texts = [_text(subject, length, seed) for seed, length in enumerate((*LENGTHS, LENGTHS[0]))]
        first = texts[0]
        plain = _own_logits(subject, first)
        with eager(model):
            named = Named(model)
            with named, Hook(1, named) as hook:
                logits = model(**first).logits
            maps = hook.maps
            layers = _layers(model, hook, named)
            difference = float((logits - plain).abs().max() / plain.abs().max().clamp(min=1))
            _check(difference <= TOLERANCE, model, "logits", f"the hook's differ from the model's own by {difference:.2g}")
            _check_rows(model, [maps[number] for number in layers])
            for layer in layers:
                changed, _ = _hooked(model, first, Silence(layer))
                what = f"logits stay the same when all weights of '{named.names[layer]}' are 0"
                _check(not torch.equal(changed, logits), model, "use", what)
            _check_returned(model, first, maps, layers)
            if separates(model):
                what = check_separation(model, first, texts[2]["input_ids"], layers[-1])
                _check(what is None, model, "separation", what)
            together = _together(subject, texts, layers)
            embeddings = _takes_embeddings(subject, first, logits)
            hides = together == TOGETHER[0] and _hides(model, first, texts[2])
            names = tuple(named.names[number] for number in layers)
            blocks = blocks_of(model, first, layers, names, len(maps))
            lacks = _lacks(model, first, layers, blocks)
            if embeddings and not _reads_length(model, first, logits):
                lacks["embedding length"] = (
                    "a norm follows its embeddings: gradient_norm and integrated_gradients need no length"
                )
        _check_returned(model, first, None)
    heads = tuple(maps[number].weights.shape[1] for number in layers)
    return Sites(tuple(layers), names, heads, len(maps), together, embeddings, hides, types, difference, blocks, lacks)


def _lacks(model, text, layers, blocks) -> dict[str, str]:
    """What cannot be had of its layers, and why."""
    lacks = {}
    read = recorded_layers(model, text, layers, blocks)
    try:
        for one in read:
            projected(one)
    except SubjectError as error:
        lacks["weighed vectors"] = lacks["layer parts"] = str(error)
    if not blocks:
        two = model.config.is_encoder_decoder
        why = "attention is a decoder's over an encoder" if two else "no list of modules is such a chain"
        return lacks | dict.fromkeys(
            ("layer states", "layer parts", "token states", "other states", *["stacked maps"] * two), why
        )
    try:
        for one in read:
            LayerParts(one)
    except SubjectError as error:
        lacks["layer parts"] = str(error)
    return lacks


def probe(subject) -> tuple[dict[str, torch.Tensor], list[str]]:
    """A random text (1,L), as the model takes it, and the names of the modules that make its maps, in their order."""
    text = _text(subject, LENGTHS[0], 0)
    with torch.no_grad(), Named(subject.model) as named:
        _hooked(subject.model, text, named)
    return text, named.names


def _check(holds: bool, model, name: str, what: str) -> None:
    if not holds:
        raise SubjectError(
            f"the attention of {type(model).__name__} fails the check '{name}': {what}; it cannot be measured"
        )


def _text(subject, length: int, seed: int) -> dict[str, torch.Tensor]:
    """One random text (1,L), with the end marker of an encoder–decoder, which reads its answer there; every third token is
    impermissible, where the model asks.
    """
    size = vocabulary_size(subject.model)
    others = {*subject.markers, subject.filling}
    ordinary = torch.tensor([number for number in range(min(size, 2000)) if number not in others])
    ids = ordinary[torch.randint(0, len(ordinary), (1, length), generator=torch.Generator().manual_seed(seed))]
    if (end := end_token(subject.model)) is not None:
        ids[:, -1] = end
    ids = ids.to(subject.device)
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if separates(subject.model):
        text["impermissible"] = (torch.arange(length, device=ids.device) % 3 == 2).long().unsqueeze(0)
    return text


def _own_logits(subject, text) -> torch.Tensor:
    model = subject.model
    try:
        logits = model(**text).logits
    except Exception as error:  # models raise many kinds
        said = f"{type(error).__name__}: {excerpt(error, 200)}"
        raise SubjectError(
            f"{type(model).__name__} fails the check 'reading': given token ids and a mask it says {said}; a classifier of "
            "texts reads these alone"
        ) from error
    if not logits.isfinite().all():
        check_finite(model)
        _check(False, model, "reading", "of a text its logits are not finite")
    return logits


def _hooked(model, text, edit: Edit | None = None) -> tuple[torch.Tensor, list[Map]]:
    with Hook(len(text["input_ids"]), edit) as hook:
        logits = model(**text).logits
    return logits, hook.maps


def _layers(model, hook: Hook, named: Named) -> list[int]:
    """The numbers of the maps over input positions: self-attention, or a decoder's attention over the encoder."""
    maps, names = hook.maps, named.names
    fused = "it computes attention by scaled_dot_product_attention also under 'eager', which never says its weights"
    none = "no softmax of it weighs values, so it has no attention that could be read"
    _check(bool(maps), model, "layers", fused if hook.fused else none)
    _check(not hook.fused, model, "layers", f"in {hook.fused} layers {fused}")
    square = [one.number for one in maps if one.weights.shape[2:] == (LENGTHS[0], LENGTHS[0])]
    seen = sorted({tuple(one.weights.shape[2:]) for one in maps})
    what = f"of a text of {LENGTHS[0]} tokens it has maps of {seen}, and none from every token to every token"
    _check(bool(square), model, "layers", what)
    if is_encoder_decoder(model):
        square = [number for number in square if CROSS.search(names[number])]
        _check(bool(square), model, "layers", "its decoder has no attention over the encoder alone")
    else:
        whole = len(square) == len(maps)
        _check(whole, model, "layers", f"only {len(square)} of its {len(maps)} maps are over all input positions ({seen})")
    places = [(names[number], named.calls[number]) for number in square]
    twice = next((name for number, (name, _) in enumerate(places) if places[number] in places[:number]), "")
    _check(not twice, model, "layers", f"'{twice}' weighs values more than once, and its attention is not one of these")
    return square


def _check_rows(model, maps: list[Map]) -> None:
    for one in maps:
        least, sums = float(one.weights.min()), one.weights.sum(-1)
        sound = least >= 0 and float(sums.max()) <= 1 + 1e-4 and float(sums.min()) > 0
        sink = one.scores.shape[-1] > one.weights.shape[-1]
        what = (
            f"in layer {one.number} rows sum to {float(sums.min()):.4g} to {float(sums.max()):.4g}, least weight {least:.4g}"
        )
        _check(sound and (sink or float(sums.min()) >= 1 - 1e-4), model, "rows", what)


def _check_returned(model, text, maps: list[Map] | None, layers: list[int] = ()) -> None:
    """Compare what the model returns as its attention, if it does, with the maps; None: look at the shapes alone.

    Every layer's map has to be among what is returned, of a decoder that keeps those over the encoder to itself any map; and
    what is returned and has rows of sum 1 has to be a map. Scores count as their map: so SqueezeBERT has it. Layers of
    linear attention return other things.
    """
    try:
        with silent():  # some say that they cannot return them, which is what is asked here
            output = model(**text, output_attentions=True)
    except Exception:  # one that cannot return them says nothing of them
        return
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    returned = [one for name in names for one in (getattr(output, name, None) or ()) if isinstance(one, torch.Tensor)]
    flat = next((tuple(one.shape) for one in returned if one.dim() < 4), None)
    name = model.config._attn_implementation
    _check(flat is None, model, "returned", f"under {name!r} it returns numbers {flat} as attention, which are no weights")
    if maps is None or not returned:
        return
    there = {
        own.number
        for own in maps
        if any(same_numbers(own.weights, one) or same_numbers(own.scores, one) for one in returned)
    }
    kept = is_encoder_decoder(model) and not getattr(output, "cross_attentions", None)
    rows = [one for one in returned if same_numbers(one.sum(-1), torch.ones_like(one[..., 0]))]
    known = all(any(same_numbers(own.weights, one) for own in maps) for one in rows)
    what = "the attention that it returns is not the one that weighed its values"
    _check(known and (bool(there) if kept else there >= set(layers)), model, "returned", what)


@contextmanager
def silent() -> Iterator[None]:
    """Within, transformers warns of nothing."""
    said = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(said)


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and float((one - other).abs().max()) <= 1e-5


def _together(subject, texts, layers: list[int]) -> str:
    """How texts may be read together so that each is read as alone."""
    model = subject.model
    alone = torch.cat([model(**text).logits for text in texts])
    scale = alone.abs().max().clamp(min=1)

    def same(rows: list[int]) -> bool:
        filling = dict.fromkeys(texts[0], 0) | {"input_ids": subject.filling}
        padded = {
            name: torch.nn.utils.rnn.pad_sequence(
                [texts[row][name][0] for row in rows], batch_first=True, padding_value=filling[name]
            )
            for name in filling
        }
        mask = padded["attention_mask"].bool()
        try:
            logits, maps = _hooked(model, padded)
        except Exception:  # such as a model without a padding token
            return False
        hidden = all(
            number < len(maps)
            and float((maps[number].weights * ~mask[:, None, None] * mask[:, None, :, None]).max()) <= 1e-6
            for number in layers
        )
        return hidden and float((logits - alone[rows]).abs().max() / scale) <= TOLERANCE

    return TOGETHER[0] if same([0, 1]) else TOGETHER[1] if same([0, 2]) else TOGETHER[2]


def _hides(model, text, other) -> bool:
    """Whether tokens behind the first, the last one too, are nothing to the logits once their mask is 0."""
    mask = text["attention_mask"].clone()
    mask[:, [3, 4, -1]] = 0
    changed = torch.where(mask == 0, other["input_ids"], text["input_ids"])
    try:
        hidden = text | {"attention_mask": mask}
        one, two = (model(**hidden | {"input_ids": ids}).logits for ids in (text["input_ids"], changed))
    except Exception:  # such as a model that takes padding at the end only
        return False
    return float((one - two).abs().max()) <= TOLERANCE * float(one.abs().max().clamp(min=1))


def _reads_length(model, text, logits: torch.Tensor) -> bool:
    """Whether logits move when all embeddings become ten times as long."""
    table = model.get_input_embeddings().weight
    longer = 10 * torch.nn.functional.embedding(text["input_ids"], table)
    with Embedded(table, text["input_ids"], longer):
        moved = (model(**text).logits - logits).abs().max()
    return bool(moved > 10 * TOLERANCE * logits.abs().max())


def _takes_embeddings(subject, text, logits: torch.Tensor) -> bool:
    """Whether the table's embeddings, given, are read in place of the ids, and gradients reach them."""
    model, ids = subject.model, text["input_ids"]
    try:
        table = model.get_input_embeddings().weight
        embedded = torch.nn.functional.embedding(ids, table).detach().requires_grad_()
        with torch.enable_grad(), Embedded(table, ids, embedded):
            again = model(**text).logits
            (slope,) = torch.autograd.grad(again.square().sum(), [embedded])
        with Embedded(table, ids, torch.zeros_like(embedded)):
            other = model(**text).logits
    except (NotImplementedError, AttributeError, RuntimeError, TypeError):
        return False
    same = float((again - logits).abs().max()) <= TOLERANCE * float(logits.abs().max().clamp(min=1))
    return same and bool((slope != 0).any()) and not torch.equal(other, logits)
