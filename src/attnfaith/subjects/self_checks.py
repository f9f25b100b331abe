"""What a model is asked before its attention is believed: each check has a name, and a model that fails one is refused.

Random texts are read a few times. Attention that a library returned without a word, and that was not what the model computed
with, has misled whole comparisons: nothing is taken on trust here.
"""

import inspect
import re
from dataclasses import dataclass

import torch

from attnfaith.subjects.attention_hook import Edit, Hook, Map
from attnfaith.subjects.given_embeddings import embedding
from attnfaith.subjects.protocol import SubjectError


LENGTHS = (11, 7)
TOLERANCE = 1e-4
"""Largest difference of logits, over their size or 1, that counts as rounding."""
CROSS = re.compile(r"cross|encoder_attn|encdec", re.I)
TOGETHER = ("padded", "of one length", "one at a time")
"""How texts may be read together, best first."""


@dataclass(frozen=True)
class Sites:
    """What was learned of a model.

    layers: the numbers of the maps over input positions that `SelfAttention` calls layers. names: the module of each.
    maps: how many maps there are in all. together: one of TOGETHER, the best that changes nothing. embeddings: whether
    embeddings can be given, and gradients reach them. token_types: whether token_type_ids are read. difference: the largest
    of logits read by the hook and of the model's own, in its own implementation of attention.
    """

    layers: tuple[int, ...]
    names: tuple[str, ...]
    maps: int
    together: str
    embeddings: bool
    hides: bool
    token_types: bool
    difference: float


class Uniform(Edit):
    """Every row uniform over what it attends to, in some layers, all by default."""

    def __init__(self, layers=None):
        self.layers = layers

    def weights(self, number, weights):
        if self.layers is not None and number not in self.layers:
            return weights
        present = (weights > 0).to(weights)
        return present / present.sum(-1, keepdim=True).clamp(min=1)


class _Named(Edit):
    """The name of the module in which each map is made; a context around a forward pass."""

    def __init__(self, model):
        self.model, self.names, self._within, self._handles = model, [], [], []

    def weights(self, number, weights):
        self.names.append(self._within[-1] if self._within else "")
        return weights

    def __enter__(self):
        for name, module in self.model.named_modules():
            self._handles.append(module.register_forward_pre_hook(lambda *given, name=name: self._within.append(name)))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def _leave(self, *given) -> None:
        self._within.pop()

    def __exit__(self, *error):
        for handle in self._handles:
            handle.remove()


def checked(subject, own: str | None) -> Sites:
    """What is learned of the model of a subject by reading random texts; own: its own implementation of attention.

    Raises SubjectError naming the check that fails:
        reading: the model reads token ids and a mask, and gives logits.
        logits: they are the same when the hook reads, and as in the model's own implementation.
        layers: attention over input positions is there, made of a softmax that weighs values.
        rows: every row is of weights from 0 on, and sums to 1; of a model with attention sinks, to less.
        use: other weights give other logits, so that these are what the model computed with.
        returned: what the model itself returns as its attention, if it does, is the same.
    """
    model = subject.model
    types = "token_type_ids" in inspect.signature(model.forward).parameters
    with subject.evaluating(), torch.no_grad():
        texts = [_text(subject, length, seed) for seed, length in enumerate((*LENGTHS, LENGTHS[0]))]
        first = texts[0]
        plain = _own_logits(model, first, own)
        with _Named(model) as named:
            logits, maps = _hooked(model, first, named)
        difference = float((logits - plain).abs().max() / plain.abs().max().clamp(min=1))
        _check(difference <= TOLERANCE, model, "logits", f"the hook's differ from the model's own by {difference:.2g}")
        layers = _layers(model, maps, named.names)
        chosen = [maps[number] for number in layers]
        _check_rows(model, chosen)
        changed, _ = _hooked(model, first, Uniform(layers))
        _check(not torch.equal(changed, logits), model, "use", "logits stay the same when all its rows are made uniform")
        _check_returned(model, first, maps)
        together = _together(subject, texts, layers)
        embeddings = _takes_embeddings(subject, first, logits)
        hides = together == TOGETHER[0] and _hides(model, first, texts[2])
    names = tuple(named.names[number] for number in layers)
    return Sites(tuple(layers), names, len(maps), together, embeddings, hides, types, difference)


def probe(subject) -> tuple[dict[str, torch.Tensor], list[str]]:
    """A random text (1,L), as the model takes it, and the names of the modules that make its maps, in their order."""
    text = _text(subject, LENGTHS[0], 0)
    with torch.no_grad(), _Named(subject.model) as named:
        _hooked(subject.model, text, named)
    return text, named.names


def _check(holds: bool, model, name: str, what: str) -> None:
    if not holds:
        raise SubjectError(
            f"the attention of {type(model).__name__} fails the check '{name}': {what}; it cannot be measured"
        )


def _text(subject, length: int, seed: int) -> dict[str, torch.Tensor]:
    """One random text (1,L), with the end marker of an encoder–decoder, which reads its answer there."""
    size = _vocabulary(subject.model)
    ordinary = torch.tensor([number for number in range(min(size, 2000)) if number not in subject.markers])
    ids = ordinary[torch.randint(0, len(ordinary), (1, length), generator=torch.Generator().manual_seed(seed))]
    end = getattr(subject.config, "eos_token_id", None)
    if subject.config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end
    ids = ids.to(subject.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _vocabulary(model) -> int:
    try:
        return model.get_input_embeddings().num_embeddings
    except (NotImplementedError, AttributeError):
        return int(getattr(model.config, "vocab_size", 256))


def _own_logits(model, text, own: str | None) -> torch.Tensor:
    try:
        if own not in (None, "eager"):
            model.set_attn_implementation(own)
        return model(**text).logits
    except Exception as error:  # models raise many kinds
        said = f"{type(error).__name__}: {str(error)[:200]}"
        raise SubjectError(
            f"{type(model).__name__} fails the check 'reading': given token ids and a mask it says {said}; a classifier of "
            "texts reads these alone"
        ) from error
    finally:
        if own not in (None, "eager"):
            model.set_attn_implementation("eager")


def _hooked(model, text, edit: Edit | None = None) -> tuple[torch.Tensor, list[Map]]:
    with Hook(len(text["input_ids"]), edit) as hook:
        logits = model(**text).logits
    return logits, hook.maps


def _layers(model, maps: list[Map], names: list[str]) -> list[int]:
    """The numbers of the maps over input positions: self-attention, or a decoder's attention over the encoder."""
    square = [one.number for one in maps if one.weights.shape[2:] == (LENGTHS[0], LENGTHS[0])]
    _check(bool(maps), model, "layers", "no softmax of it weighs values, so it has no attention that could be read")
    seen = sorted({tuple(one.weights.shape[2:]) for one in maps})
    what = f"of a text of {LENGTHS[0]} tokens it has maps of {seen}, and none from every token to every token"
    _check(bool(square), model, "layers", what)
    if model.config.is_encoder_decoder:
        square = [number for number in square if CROSS.search(names[number])]
        _check(bool(square), model, "layers", "its decoder has no attention over the encoder")
        return square
    whole = len(square) == len(maps)
    _check(whole, model, "layers", f"only {len(square)} of its {len(maps)} maps are over all input positions ({seen})")
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


def _check_returned(model, text, maps: list[Map]) -> None:
    """Compare with what the model returns, where it returns as many maps of the same shapes."""
    try:
        output = model(**text, output_attentions=True)
    except Exception:  # one that cannot return them says nothing of them
        return
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    returned = [one for name in names for one in (getattr(output, name, None) or ()) if isinstance(one, torch.Tensor)]
    for one in returned:
        alike = [own.weights for own in maps if own.weights.shape == one.shape]
        sums = one.sum(-1)
        if not alike or float((sums - 1).abs().max()) > 1e-3:  # such as SqueezeBERT's, which are scores
            continue
        same = min(float((own - one).abs().max()) for own in alike) <= 1e-5
        _check(same, model, "returned", "the attention that it returns is not the one that weighed its values")


def _together(subject, texts, layers: list[int]) -> str:
    """How texts may be read together so that each is read as alone."""
    model = subject.model
    alone = torch.cat([model(**text).logits for text in texts])
    scale = alone.abs().max().clamp(min=1)

    def same(rows: list[int]) -> bool:
        ids = [texts[row]["input_ids"][0] for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=subject.pad_token_id)
        mask = torch.arange(padded.shape[1], device=padded.device) < torch.tensor([[len(one)] for one in ids]).to(
            padded.device
        )
        try:
            logits, maps = _hooked(model, {"input_ids": padded, "attention_mask": mask.long()})
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
        one, two = (model(input_ids=ids, attention_mask=mask).logits for ids in (text["input_ids"], changed))
    except Exception:  # such as a model that takes padding at the end only
        return False
    return float((one - two).abs().max()) <= TOLERANCE * float(one.abs().max().clamp(min=1))


def _takes_embeddings(subject, text, logits: torch.Tensor) -> bool:
    """Whether the table's embeddings, given, are read in place of the ids, and gradients reach them."""
    model, ids = subject.model, text["input_ids"]
    try:
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        with torch.enable_grad(), embedding(model, ids, embedded):
            again = model(**text).logits
            (slope,) = torch.autograd.grad(again.sum(), [embedded])
        with embedding(model, ids, torch.zeros_like(embedded)):
            other = model(**text).logits
    except (NotImplementedError, AttributeError, RuntimeError, TypeError):
        return False
    same = float((again - logits).abs().max()) <= TOLERANCE * float(logits.abs().max().clamp(min=1))
    return same and bool((slope != 0).any()) and not torch.equal(other, logits) and embedded.shape[:2] == ids.shape
