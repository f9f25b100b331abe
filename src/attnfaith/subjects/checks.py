"""Checks of a model before its attention is believed: each has a name, and a model that fails one is refused.

Random texts, or pairs of a source and a target of other lengths, are read a few times.

Shapes: B instances, L input positions, S source positions, N target positions, Q queries, K keys, V vocabulary.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from attnfaith.subjects.attention import Edit, Embedded, Hook, Leaves, Map, Named, Silence, nothing
from attnfaith.subjects.base import (
    EAGER,
    TOLERANCE,
    ModelSubject,
    check_finite,
    configured,
    is_encoder_decoder,
    plainly,
    precision,
    separates,
    tolerance_of,
    vocabulary_size,
)
from attnfaith.subjects.layers import (
    LayerParts,
    Recorded,
    block_candidates,
    chained,
    decoder_parts,
    first_chain,
    is_chain,
    projected,
)
from attnfaith.subjects.pairs import UNCOUNTED, PairBatch
from attnfaith.subjects.protocol import SubjectError
from attnfaith.support.errors import excerpt


LENGTHS, PAIR_LENGTHS = (11, 7), ((11, 7), (8, 5))
"""Positions of random texts; source and target positions of random pairs."""
ROUNDING = 1e-5
"""Largest difference of values, over the largest of them or 1, that counts as none."""
ORDINARY = 2000
"""The most tokens that random texts are drawn from."""
GRADIENTS = (
    "they do not reach its last attention, as behind layers that torch quantised, and without them it is not seen which "
    "rows matter: load it without quantisation, or with weights alone quantised, as bitsandbytes does"
)
CROSS = re.compile(r"cross|encoder_attn|encdec", re.I)
TOGETHER = ("padded", "of one length", "one at a time")
"""How texts may be read together, best first; pairs are read padded."""


@dataclass(frozen=True)
class Sites:
    """What the checks learned about a model.

    layers: the numbers of the maps that a subject calls layers, first layer first: over input positions, or of a decoder's
    attention to the source. heads: how many heads each has. maps: how many maps there are in all.
    together: one of TOGETHER, the best that changes nothing. difference: the largest of logits read by the hook and of the
    model's own, in its own implementation of attention. blocks: the name of each layer's module, () where there are none.
    lacks: the capabilities that the model does not have, each with the reason.

    Of texts: token_types, whether token_type_ids are read. Of pairs: vocabulary, the number of words that logits are of;
    encoder_blocks, the modules of the encoder's layers.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    maps: int
    together: str
    difference: float
    blocks: tuple[str, ...] = ()
    lacks: dict[str, str] = field(default_factory=dict)
    token_types: bool = False
    vocabulary: int = 0
    encoder_blocks: tuple[str, ...] = ()


def checked(probe: "Texts | Pairs") -> Sites:
    """Read random input and return what was learned about the model.

    Raises SubjectError naming the check that fails:
        reading: the model reads token ids and a mask, of pairs a target too, and gives logits that are finite.
        layers: there is attention over input positions, of pairs over the source, made of a softmax that weighs values; a
            layer has one.
        logits: they are the same when the hook reads, of pairs from what the encoder made before, and as in the model's own
            implementation of attention.
        rows: weights are 0 or more, and every row sums to 1; with attention sinks, to less.
        padding: of pairs, padding changes nothing.
        use: other weights of a layer give other logits, so that these are what the model computed with.
        gradients: those of logits reach the last layer's output.
        separation: of a model that keeps impermissible tokens apart, they are, see `keeps_apart`.
    """
    model, first, configurations = probe.model, probe.inputs[0], probe.subject.configurations
    with plainly(), ModelSubject.evaluating(probe.subject), configured(configurations, return_dict=True), torch.no_grad():
        own_logits = probe.own_logits()
        with configured(configurations, **EAGER):
            with Named(model) as named:
                logits, hook = probe.run(first, named)
            layers = probe.layers(hook, named)
            names = tuple(named.names[number] for number in layers)
            difference = _difference(logits, own_logits)
            fault = f"the hook's differ from the model's own by {difference:.2g}"
            probe.check(difference <= tolerance_of(model), "logits", fault)
            for number in layers:
                _check_rows(probe, hook.maps[number])
            slopes = _slopes(probe, layers)
            for layer, name, slope in zip(layers, names, slopes, strict=True):
                moved = slope is not None and bool((slope != 0).any())
                used = moved or not torch.equal(probe.run(first, Silence(layer))[0], logits)
                probe.check(used, "use", f"logits stay the same when all weights of '{name}' are 0")
            probe.check(slopes[-1] is not None, "gradients", GRADIENTS)
            learned = probe.learn(logits, layers, names, len(hook.maps))
    heads = tuple(hook.maps[number].weights.shape[1] for number in layers)
    return Sites(tuple(layers), heads, len(hook.maps), difference=difference, **learned)


def _difference(logits: torch.Tensor, other: torch.Tensor) -> float:
    return float((logits - other).abs().max() / other.abs().max().clamp(min=1))


def _slopes(probe, layers: Sequence[int]) -> Sequence[torch.Tensor | None]:
    """Those of logits in the weights of each layer; None where gradients do not reach it."""
    with torch.enable_grad():
        logits, hook = probe.run(probe.inputs[0], Leaves())
    weights = [hook.maps[number].weights for number in layers]
    if not logits.requires_grad:
        return [None] * len(weights)
    seed = torch.linspace(1, 2, logits.numel(), dtype=logits.dtype, device=logits.device).view_as(logits)
    return torch.autograd.grad([logits], weights, [seed], allow_unused=True)


def _check_rows(probe, read: Map) -> None:
    weights, slack = read.weights, max(1e-4, precision(probe.model))
    sums = weights.sum(-1, dtype=torch.promote_types(weights.dtype, torch.float32))
    low, high, least = float(sums.min()), float(sums.max()), float(weights.min())
    has_sink = read.scores.shape[-1] > weights.shape[-1]
    sound = least >= 0 and high <= 1 + slack and low > 0 and (has_sink or low >= 1 - slack)
    fault = f"in layer {read.number} rows sum to {low:.4g} to {high:.4g}, least weight {least:.4g}"
    probe.check(sound, "rows", fault)


def _takes_embeddings(table: Callable, ids: torch.Tensor, read: Callable, plain: torch.Tensor, tolerance: float) -> bool:
    """Whether the table's embeddings, given, are read in place of the ids alone, and gradients reach them."""
    try:
        weight = table()
        embedded = torch.nn.functional.embedding(ids, weight).detach().requires_grad_()
        with torch.enable_grad(), Embedded(weight, ids, embedded):
            again = read()
            (slope,) = torch.autograd.grad(again.square().sum(), [embedded])
        with Embedded(weight, ids, torch.zeros_like(embedded)):
            other = read()
    except (NotImplementedError, AttributeError, RuntimeError, TypeError):
        return False
    return _difference(again, plain) <= tolerance and bool((slope != 0).any()) and not torch.equal(other, plain)


def _refusal(make: Callable, layers: Iterable) -> str | None:
    """The message of the first SubjectError that make(layer) raises; None where it raises none."""
    try:
        for layer in layers:
            make(layer)
    except SubjectError as error:
        return str(error)
    return None


class _Probe:
    """A subject, its model, and random inputs, the first of which is read most."""

    attention: str
    input_kind: str
    hint: str
    inputs: list

    def __init__(self, subject):
        self.subject, self.model = subject, subject.model
        # for texts that one implementation reads in another way
        self.near = max(TOLERANCE, 2 * precision(self.model))

    def check(self, holds: bool, name: str, fault: str) -> None:
        if not holds:
            model = type(self.model).__name__
            raise SubjectError(f"the {self.attention} of {model} fails the check '{name}': {fault}; it cannot be measured")

    def own_logits(self) -> torch.Tensor:
        """The model's logits without the hook. Raises SubjectError where it reads something else than such inputs."""
        try:
            logits = self.call(self.inputs[0]).logits
        except Exception as error:  # models raise many kinds
            raise SubjectError(
                f"{type(self.model).__name__} fails the check 'reading': given {self.input_kind} it raises "
                f"{type(error).__name__}: {excerpt(error, 200)}; {self.hint}"
            ) from error
        if not logits.isfinite().all():
            check_finite(self.model)
            self.check(False, "reading", "its logits are not finite")
        return logits

    def draw(self, length: int, size: int, markers: set, generator: torch.Generator) -> torch.Tensor:
        """Random ids (length,), none of a marker, of a vocabulary of this size."""
        ordinary = torch.tensor([number for number in range(min(size, ORDINARY)) if number not in markers])
        return ordinary[torch.randint(0, len(ordinary), (length,), generator=generator)]

    def record(self, numbers: Sequence[int], blocks: Sequence[str]) -> list:
        """The layers of the first input: the maps of these numbers, and what follows each."""
        with Recorded(self.model, numbers, blocks) as recorded:
            self.run(self.inputs[0], recorded)
        return recorded.layers

    def check_once(self, places: list) -> None:
        """Check that no place (name of a module, ...) makes two maps."""
        twice = next((name for number, (name, *_) in enumerate(places) if places[number] in places[:number]), None)
        self.check(not twice, "layers", f"'{twice}' weighs values more than once, and its attention is not one of these")

    def hides_padding(self, maps: list[Map], layers: Sequence[int], queries: torch.Tensor, keys: torch.Tensor) -> bool:
        """Whether queries (B,Q) that are tokens have no weight on keys (B,K) that are padding."""
        wrong = ~keys[:, None, None] * queries[:, None, :, None]
        return all(number < len(maps) and float((maps[number].weights * wrong).max()) <= 1e-6 for number in layers)


class Texts(_Probe):
    """A classifier of transformers: one text or two, and attention over all input positions."""

    attention, input_kind, hint = "attention", "token ids and a mask", "a classifier of texts reads these alone"

    def __init__(self, subject):
        super().__init__(subject)
        self.inputs = [self._text(length, seed) for seed, length in enumerate((*LENGTHS, LENGTHS[0]))]

    def _text(self, length: int, seed: int) -> dict[str, torch.Tensor]:
        """One random text (1,L), with the end marker of an encoder–decoder, which reads its answer there; every third token
        is impermissible, where the model asks.
        """
        subject, generator = self.subject, torch.Generator().manual_seed(seed)
        markers = {*subject.markers, subject.filling}
        ids = self.draw(length, vocabulary_size(self.model), markers, generator).unsqueeze(0).to(subject.device)
        if subject.end_token_id is not None:
            ids[:, -1] = subject.end_token_id
        text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if separates(self.model):
            text["impermissible"] = (torch.arange(length, device=ids.device) % 3 == 2).long().unsqueeze(0)
        return text

    def call(self, text: dict):
        return self.model(**text)

    def run(self, text: dict, edit: Edit | None = None) -> tuple[torch.Tensor, Hook]:
        with Hook(len(text["input_ids"]), edit) as hook:
            logits = self.model(**text).logits
        return logits, hook

    def layers(self, hook: Hook, named: Named) -> list[int]:
        """The numbers of the maps over input positions: self-attention, or a decoder's attention over the encoder."""
        maps, names = hook.maps, named.names
        fused = "it computes attention by scaled_dot_product_attention also under 'eager', which gives no weights"
        none = "no softmax of it weighs values, so it has no attention that could be read"
        self.check(bool(maps), "layers", fused if hook.fused else none)
        self.check(not hook.fused, "layers", f"in {hook.fused} layers {fused}")
        shapes = [tuple(attention_map.weights.shape[2:]) for attention_map in maps]
        square = [number for number, shape in enumerate(shapes) if shape == (LENGTHS[0], LENGTHS[0])]
        sizes = sorted(set(shapes))
        fault = f"of a text of {LENGTHS[0]} tokens it has maps of {sizes}, and none from every token to every token"
        self.check(bool(square), "layers", fault)
        if is_encoder_decoder(self.model):
            square = [number for number in square if CROSS.search(names[number])]
            self.check(bool(square), "layers", "its decoder has no attention over the encoder alone")
        else:
            fault = f"only {len(square)} of its {len(maps)} maps are over all input positions ({sizes})"
            self.check(len(square) == len(maps), "layers", fault)
        self.check_once([(names[number], named.calls[number]) for number in square])
        return square

    def learn(self, logits: torch.Tensor, layers: list[int], names: tuple[str, ...], maps: int) -> dict[str, object]:
        """The fields of `Sites` that texts decide."""
        model, text = self.model, self.inputs[0]
        if separates(model):
            fault = "tokens of two kinds meet elsewhere than in the first position, by another way than masked attention"
            self.check(keeps_apart(model, text, self.inputs[2]["input_ids"], layers[-1]), "separation", fault)
        blocks = ()
        if not model.config.is_encoder_decoder and len(layers) == maps:
            blocks = first_chain(model, names, lambda candidate: is_chain(model, text, layers, candidate))
        together = self._together(layers)
        return {
            "together": together,
            "token_types": "token_type_ids" in inspect.signature(model.forward).parameters,
            "blocks": blocks,
            "lacks": self._lacks(logits, layers, blocks, together),
        }

    def _lacks(self, logits: torch.Tensor, numbers: list[int], blocks: tuple[str, ...], together: str) -> dict[str, str]:
        """The capabilities that the model does not have, each with the reason."""
        text, layers, two = self.inputs[0], self.record(numbers, blocks), self.model.config.is_encoder_decoder
        lacks = {"weighed vectors": _refusal(projected, layers)}
        lacks["layer parts"] = _refusal(LayerParts, layers) if blocks else lacks["weighed vectors"]
        if not blocks:
            why = "attention is a decoder's over an encoder" if two else "no list of modules is such a chain"
            names = ("layer states", "layer parts", "token states", *["stacked maps"] * two)
            lacks |= dict.fromkeys(names, why)
        table, read = lambda: self.model.get_input_embeddings().weight, lambda: self.model(**text).logits
        if not _takes_embeddings(table, text["input_ids"], read, logits, self.near):
            needing = ("embeddings", "embedding length", "held attention", "backward rules")
            lacks |= dict.fromkeys(needing, "it looks the ids as they are up in no table of tokens")
        elif not self._reads_length(logits):
            lacks["embedding length"] = (
                "a norm follows its embeddings: gradient_norm and integrated_gradients need no length"
            )
        if together != TOGETHER[0] or not self._hides():
            lacks["token hiding"] = "its logits depend on tokens whose attention_mask is 0"
        return {name: why for name, why in lacks.items() if why}

    def _together(self, layers: list[int]) -> str:
        """How texts may be read together so that each is read as alone."""
        alone = torch.cat([self.model(**text).logits for text in self.inputs])
        scale = alone.abs().max().clamp(min=1)

        def same(rows: list[int]) -> bool:
            padded = {
                name: torch.nn.utils.rnn.pad_sequence(
                    [self.inputs[row][name][0] for row in rows],
                    batch_first=True,
                    padding_value=self.subject.filling if name == "input_ids" else 0,
                )
                for name in self.inputs[0]
            }
            mask = padded["attention_mask"].bool()
            try:
                logits, hook = self.run(padded)
            except Exception:  # such as a model without a padding token
                return False
            hidden = self.hides_padding(hook.maps, layers, mask, mask)
            return hidden and float((logits - alone[rows]).abs().max() / scale) <= self.near

        return TOGETHER[0] if same([0, 1]) else TOGETHER[1] if same([0, 2]) else TOGETHER[2]

    def _hides(self) -> bool:
        """Whether logits do not depend on tokens behind the first, the last one too, once their mask is 0."""
        text, _, other = self.inputs
        mask = text["attention_mask"].clone()
        mask[:, [3, 4, -1]] = 0
        hidden = text | {"attention_mask": mask}
        changed = hidden | {"input_ids": torch.where(mask == 0, other["input_ids"], text["input_ids"])}
        try:
            return _difference(self.model(**changed).logits, self.model(**hidden).logits) <= self.near
        except Exception:  # such as a model that takes padding at the end only
            return False

    def _reads_length(self, logits: torch.Tensor) -> bool:
        """Whether logits move when all embeddings become ten times as long."""
        text, table = self.inputs[0], self.model.get_input_embeddings().weight
        longer = 10 * torch.nn.functional.embedding(text["input_ids"], table)
        with Embedded(table, text["input_ids"], longer):
            moved = (self.model(**text).logits - logits).abs().max()
        return bool(moved > max(10 * TOLERANCE, tolerance_of(self.model)) * logits.abs().max())


class Pairs(_Probe):
    """A model of transformers from sequences to sequences, and its decoder's attention to the encoder."""

    attention, input_kind = "cross-attention", "token ids of a source and of a target"
    hint = "a model from sentences to sentences reads these alone"

    def __init__(self, subject):
        super().__init__(subject)
        self.rows = [self._row(*lengths, seed) for seed, lengths in enumerate(PAIR_LENGTHS)]
        self.inputs = [subject.collate([row]) for row in self.rows]

    def _row(self, sources: int, targets: int, seed: int) -> dict[str, object]:
        """A random pair, with the marker that ends sentences behind both."""
        subject, config, generator = self.subject, self.subject.config, torch.Generator().manual_seed(seed)
        names = ("vocab_size", "decoder_vocab_size", "tgt_vocab_size")
        sizes = [getattr(part, name, None) for part in (config, getattr(config, "decoder", None)) for name in names]
        size = min(vocabulary_size(self.model), *(size for size in sizes if isinstance(size, int) and size > 0))
        end, start = subject.end_token_id, (subject.setting(f"{name}_token_id") for name in ("bos", "decoder_start"))
        markers = {subject.pad_token_id, end, *start}
        row = {"instance_id": str(seed)}
        for ids, words, length in (("input_ids", "source_words", sources), ("labels", "target_words", targets)):
            drawn = self.draw(length, size, markers, generator).tolist()
            row[ids] = drawn if end is None else [*drawn[:-1], end]
            row[words] = [*range(length - 1), -1]
        return row

    def call(self, pair: PairBatch, **options):
        return self.model(**self.subject.model_inputs(pair), **self.subject.uncached, **options)

    def own_logits(self) -> torch.Tensor:
        logits, targets = super().own_logits(), PAIR_LENGTHS[0][1]
        check_finite(self.model)
        shape = tuple(logits.shape[:2])
        self.check(shape == (1, targets), "reading", f"of a target of {targets} tokens it has logits {shape}")
        return logits

    def _encode(self, pair: PairBatch, edit: Edit | None = None):
        with Hook(len(pair), edit, nothing):
            return self.model.get_encoder()(input_ids=pair["input_ids"], attention_mask=pair["attention_mask"])

    def run(self, pair: PairBatch, edit: Edit | None = None) -> tuple[torch.Tensor, Hook]:
        encoded = pair.once("encoded", "checks", lambda: self._encode(pair))
        with Hook(len(pair), edit) as hook:
            logits = self.call(pair, encoder_outputs=encoded).logits
        self.check(not hook.fused, "layers", "it computes attention in one piece also under 'eager'")
        return logits, hook

    def layers(self, hook: Hook, named: Named) -> list[int]:
        """The numbers of the maps over the source."""
        sources, targets = PAIR_LENGTHS[0]
        shapes = [tuple(attention_map.weights.shape[2:]) for attention_map in hook.maps]
        over_source = [number for number, shape in enumerate(shapes) if shape == (targets, sources)]
        sizes = sorted(set(shapes))
        fault = f"of {sources} source and {targets} target tokens its decoder has maps of {sizes}, none of target to source"
        self.check(bool(over_source), "layers", fault)
        self.check_once([(named.names[number],) for number in over_source])
        heads = {hook.maps[number].weights.shape[1] for number in over_source}
        self.check(len(heads) == 1, "layers", f"they have {sorted(heads)} heads: one number for all is needed")
        return over_source

    def learn(self, logits: torch.Tensor, layers: list[int], names: tuple[str, ...], maps: int) -> dict[str, object]:
        """The fields of `Sites` that pairs decide."""
        shape = self.inputs[0]["labels"].shape

        def is_decoder(candidate: tuple[str, ...]) -> bool:
            crossed = [layer for layer in self.record(range(maps), candidate) if layer.result is not None]
            return len(crossed) == len(names) and chained(crossed, shape)

        encoder = self.model.get_encoder()
        with Named(encoder) as named:
            self._encode(self.inputs[0], named)
        encoder_blocks = next(block_candidates(encoder, named.names), ())
        encoder_blocks = encoder_blocks if len(set(encoder_blocks)) == len(named.names) else ()
        blocks = first_chain(self.model, names, is_decoder)
        self._check_padding(layers)
        return {
            "together": TOGETHER[0],
            "vocabulary": logits.shape[2],
            "blocks": blocks,
            "encoder_blocks": encoder_blocks,
            "lacks": self._lacks(layers, maps, blocks, encoder_blocks),
        }

    def _lacks(self, cross: list[int], maps: int, blocks, encoder_blocks) -> dict[str, str]:
        """The capabilities that the model does not have, each with the reason."""
        pair, layers = self.inputs[0], self.record(range(maps), blocks)
        lacks = {"cross vectors": _refusal(projected, [layers[number] for number in cross])}
        plain, read = self._encode(pair)[0], lambda: self._encode(pair)[0]
        if not _takes_embeddings(self.subject.vocabulary, pair["input_ids"], read, plain, self.near):
            lacks["source embeddings"] = "it looks the ids up in no table of tokens"
        if not blocks:
            lacks["layer results"] = lacks["cross parts"] = "its layers are no chain of modules"
        elif cross != list(range(1, maps, 2)):
            lacks["cross parts"] = "its decoder's layers are not of attention to the target and then to the source"
        else:
            lacks["cross parts"] = _refusal(decoder_parts, [layers])
        lacks["stacked parts"] = lacks["cross parts"] or self._encoder_refusal(encoder_blocks)
        return {name: why for name, why in lacks.items() if why}

    def _encoder_refusal(self, blocks: tuple[str, ...]) -> str | None:
        """Why the states of the encoder's layers are no sums of vectors of tokens; None where they are such sums."""
        with Recorded(self.model.get_encoder(), range(len(blocks)), blocks) as recorded:
            self._encode(self.inputs[0], recorded)
        if not blocks or not chained(recorded.layers, self.inputs[0]["input_ids"].shape):
            return "the layers of its encoder are no chain of modules with one attention each"
        return _refusal(LayerParts, recorded.layers)

    def _check_padding(self, layers: list[int]) -> None:
        """Check that a padded pair has the logits that it has alone, and that no weight is on padding."""
        alone, both = self.call(self.inputs[1]).logits, self.subject.collate(self.rows)
        logits, hook = self.run(both)
        hidden = self.hides_padding(hook.maps, layers, both["labels"] != UNCOUNTED, both["attention_mask"].bool())
        same = _difference(logits[1:, : PAIR_LENGTHS[1][1]], alone) <= self.near
        self.check(same and hidden, "padding", "a pair that is padded has other logits than alone, or weights on padding")


def probe(subject) -> tuple[dict[str, torch.Tensor], list[str]]:
    """A random text (1,L), as the model takes it, and the names of the modules that make its maps, in their order."""
    texts = Texts(subject)
    with torch.no_grad(), Named(subject.model) as named:
        texts.run(texts.inputs[0], named)
    return texts.inputs[0], named.names


def keeps_apart(model, text, other: torch.Tensor, last: int) -> bool:
    """Whether tokens of two kinds meet in the first position alone, seen on one text (1,L) that has both.

    They do where the logits depend on the first row of the last map alone, and where a change of the tokens of one kind
    leaves the values of the other kind unchanged in every map: a model may have other ways from token to token than
    attention, such as a convolution.

    other (1,L): ids of another text. last: the number of the map whose rows the model answers from.
    """
    ids, marked = text["input_ids"], text["impermissible"][0].bool()
    first = torch.arange(len(marked), device=marked.device) == 0
    with Hook(1, watch=last) as hook:
        rows = hook.rows(model(**text).logits, text["attention_mask"])[0]
    if not torch.equal(rows, first):
        return False
    values = [attention_map.values.detach() for attention_map in hook.maps]
    for kind in (marked, ~marked & ~first):
        with torch.no_grad(), Hook(1) as again:
            model(**text | {"input_ids": torch.where(kind, other, ids)})
        for own, changed in zip(values, again.maps, strict=True):
            moved = (own - changed.values)[:, :, ~kind & ~first].abs().max()
            if float(moved) > max(ROUNDING, precision(model)) * float(own.abs().max().clamp(min=1)):
                return False
    return True
