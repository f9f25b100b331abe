"""Models of transformers, read by a hook, and the checks before their attention is believed.

A check has a name, and a model that fails one is refused. Random texts, or pairs of a source and a target of other lengths,
are read a few times.

Shapes: B instances, L input positions, S source positions, N target positions, Q queries, K keys, V vocabulary.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import torch

from attnfaith.data.collation import pad_batch
from attnfaith.data.pair_encoding import UNCOUNTED
from attnfaith.subjects import base
from attnfaith.subjects.attention import LEAVES, Edit, Embedded, Hook, Map, Named, Read, rows_that_matter, silence, widened
from attnfaith.subjects.layers import LayerParts, Recorded, chain_of, decoder_parts, projected
from attnfaith.subjects.protocol import SubjectError
from attnfaith.support.errors import excerpt


LENGTHS, PAIR_LENGTHS = (11, 7), ((11, 7), (8, 5))
"""Positions of random texts; source and target positions of random pairs."""
ORDINARY = 2000
"""The most tokens that random texts are drawn from."""
GRADIENTS = (
    "they do not reach its last attention, as behind layers that torch quantised, and without them it is not seen which "
    "rows matter: load it without quantisation, or with weights alone quantised, as bitsandbytes does"
)
CROSS = re.compile(r"cross|encoder_attn|encdec", re.I)


@dataclass(frozen=True)
class Sites:
    """What the checks learned about a model.

    layers: the numbers of the maps that a subject calls layers, first layer first: over input positions, or of a decoder's
    attention to the source. heads: how many heads each has. maps: how many maps there are in all. difference: the largest of
    logits read by the hook and in the model's own implementation of attention. blocks: the name of each layer's module, ()
    where there are none. lacks: the capabilities that the model does not have, each with the reason. together: how texts are
    read together, "padded", "of one length" or "one at a time", the first that changes nothing. Of pairs: vocabulary, the
    number of words that logits are of; encoder_blocks, the modules of the encoder's layers.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    maps: int
    difference: float
    blocks: tuple[str, ...]
    lacks: dict[str, str] = field(default_factory=dict)
    together: str = "padded"
    vocabulary: int = 0
    encoder_blocks: tuple[str, ...] = ()


class Hooked(base.Subject):
    """A model of transformers, which a hook reads. Subclasses have `model_inputs` and `run`, which reads a batch.

    sites: what the checks learned; None until then.
    """

    sites: Sites | None = None

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        self.configurations = base.configurations(model)
        self.own_attention = [getattr(config, "_attn_implementation", None) for config in self.configurations]

    def hooked(self, inputs: Mapping, edit: Edit | None, keep: Collection[int] | None, watch: int | None = None, start=0):
        """A `Read` of the model with its arguments, see `Hook`; where logits alone are asked for, the model's own attention
        makes them, which may be faster. Raises SubjectError for other maps than in the checks.
        """
        if self.sites is not None and edit is None and keep == () and watch is None and not start:
            with ExitStack() as stack:
                stack.enter_context(base.configured(self.configurations, return_dict=True))
                for config, own in zip(self.configurations, self.own_attention, strict=True):
                    stack.enter_context(base.configured([config], _attn_implementation=own))
                return Read(widened(self.model(**inputs).logits), [])
        hook, mask = Hook(len(inputs["attention_mask"]), edit, keep, watch, start), inputs["attention_mask"]
        with base.configured(self.configurations, **base.EAGER), hook:
            logits = widened(self.model(**inputs).logits)
        if self.sites is not None and hook.number != self.sites.maps:
            raise SubjectError(
                f"{mask.shape[1]} positions are read by {hook.number} attentions, fewer ones by "
                f"{self.sites.maps}: this model reads long texts in pieces, and only short ones can be measured"
            )
        rows = None if watch is None else rows_that_matter(logits, hook.watched, mask)
        return Read(logits, hook.maps, rows, hook.fused)

    def recorded(self, batch, blocks: Sequence[str], calls: bool = True) -> list[Map]:
        """All maps of a batch, with what `Recorded` adds to them."""
        with Recorded(self.model, blocks, calls=calls) as recorded:
            self.run(batch, recorded, ())
        return recorded.layers


def checked(probe: "Texts | Pairs") -> Sites:
    """Read random input and return what was learned about the model.

    Raises SubjectError naming the check that fails:
        reading: the model reads token ids and a mask, of pairs a target too, and gives logits that are finite.
        layers: there is attention over input positions, of pairs over the source, made of one softmax a layer.
        logits: they are the same when the hook reads, of pairs from what the encoder made before, and as in the model's own
            implementation of attention.
        rows: weights are 0 or more, and every row sums to 1; with attention sinks, to less.
        use: other weights of a layer give other logits, so that these are what the model computed with.
        gradients: those of logits reach the last layer's output.
        padding: of pairs, padding changes nothing.
        separation: of a model that keeps impermissible tokens apart, the logits depend on the first position alone.
    """
    model, subject = probe.model, probe.subject
    with base.plainly(), torch.no_grad():
        with subject.evaluating(eager=False), base.configured(subject.configurations, return_dict=True):
            own_logits = probe.own_logits()
        with subject.evaluating():
            with Named(model) as named:
                read = subject.run(probe.inputs[0], named)
            layers = probe.layers(read, named)
            names = tuple(named.calls[number][0] for number in layers)
            difference = _difference(read.logits, own_logits)
            fault = f"the hook's differ from the model's own by {difference:.2g}"
            probe.check(difference <= base.rounding(model), "logits", fault)
            for number in layers:
                probe.check_rows(read.maps[number])
            probe.check_use(read.logits, layers, names)
            learned = probe.learn(read, layers, names)
    heads = tuple(read.maps[number].weights.shape[1] for number in layers)
    learned["lacks"] = {name: reason for name, reason in learned["lacks"].items() if reason}
    return Sites(tuple(layers), heads, len(read.maps), difference, **learned)


def _difference(logits: torch.Tensor, other: torch.Tensor) -> float:
    return float((logits - other).abs().max() / other.abs().max().clamp(min=1))


def _refusal(make: Callable, layers: Iterable) -> str | None:
    """The message of the first SubjectError that make(layer) raises; None where it raises none."""
    try:
        for layer in layers:
            make(layer)
    except SubjectError as error:
        return str(error)
    return None


class _Probe:
    """A subject, its model, and random inputs, the first of which is read most.

    Subclasses have `inputs`; shape, of the maps of layers, (queries, keys); and words of messages: attention, input_kind,
    read_as and over.
    """

    def __init__(self, subject: Hooked):
        self.subject, self.model = subject, subject.model
        self.filling = subject.pad_token_id or 0
        self.near = base.rounding(self.model, units=2)  # for texts that one implementation reads in another way

    def check(self, holds: bool, name: str, fault: str) -> None:
        if not holds:
            model = type(self.model).__name__
            raise SubjectError(f"the {self.attention} of {model} fails the check '{name}': {fault}; it cannot be measured")

    def call(self, item) -> torch.Tensor:
        """The model's logits without the hook."""
        return self.model(**self.subject.model_inputs(item)).logits

    def own_logits(self) -> torch.Tensor:
        """Those of the first input. Raises SubjectError where the model reads something else than such inputs."""
        base.check_finite(self.model)
        try:
            logits = self.call(self.inputs[0])
        except Exception as error:  # models raise many kinds
            raise SubjectError(
                f"{type(self.model).__name__} fails the check 'reading': given {self.input_kind} alone it raises "
                f"{type(error).__name__}: {excerpt(error, 200)}"
            ) from error
        self.check(bool(logits.isfinite().all()), "reading", "its logits are not finite")
        return logits

    def layers(self, read: Read, named: Named) -> list[int]:
        """The numbers of the maps that are layers."""
        fused = "it computes attention by scaled_dot_product_attention also under 'eager', which gives no weights"
        self.check(not read.fused, "layers", f"in {read.fused} layers {fused}")
        self.check(bool(read.maps), "layers", "no softmax of it weighs values, so it has no attention that could be read")
        shapes = [tuple(attention_map.weights.shape[2:]) for attention_map in read.maps]
        whole, sizes = [number for number, shape in enumerate(shapes) if shape == self.shape], sorted(set(shapes))
        self.check(bool(whole), "layers", f"{self.read_as} it has maps of {sizes}, and none {self.over}")
        layers = self.chosen(whole, read, named, sizes)
        calls = [named.calls[number] for number in layers]
        twice = next((name for number, (name, call) in enumerate(calls) if (name, call) in calls[:number]), None)
        self.check(not twice, "layers", f"'{twice}' weighs values more than once, and its attention is not one of these")
        return layers

    def check_rows(self, layer: Map) -> None:
        weights, slack = layer.weights, base.rounding(self.model, units=1)
        sums = widened(weights).sum(-1)
        low, high, least = float(sums.min()), float(sums.max()), float(weights.min())
        has_sink = layer.scores.shape[-1] > weights.shape[-1]
        sound = least >= 0 and high <= 1 + slack and low > 0 and (has_sink or low >= 1 - slack)
        fault = f"in layer {layer.number} rows sum to {low:.4g} to {high:.4g}, least weight {least:.4g}"
        self.check(sound, "rows", fault)

    def check_use(self, logits: torch.Tensor, layers: Sequence[int], names: Sequence[str]) -> None:
        with torch.enable_grad():
            again, maps, *_ = self.subject.run(self.inputs[0], LEAVES)
        slopes = [None] * len(layers)  # those of logits in weights; None where gradients do not reach a layer
        if again.requires_grad:
            seed = torch.linspace(1, 2, again.numel(), dtype=again.dtype, device=again.device).view_as(again)
            weights = [maps[number].weights for number in layers]
            slopes = torch.autograd.grad([again], weights, [seed], allow_unused=True)
        for layer, name, slope in zip(layers, names, slopes, strict=True):
            moved = slope is not None and bool((slope != 0).any())
            used = moved or not torch.equal(self.subject.run(self.inputs[0], silence(layer), ()).logits, logits)
            self.check(used, "use", f"logits stay the same when all weights of '{name}' are 0")
        self.check(slopes[-1] is not None, "gradients", GRADIENTS)

    def draw(self, length: int, size: int, markers: set, seed: int) -> torch.Tensor:
        """Random ids (length,), none of a marker, of a vocabulary of this size; the last is the end marker, if any."""
        ordinary = torch.tensor([number for number in range(min(size, ORDINARY)) if number not in markers])
        ids = ordinary[torch.randint(0, len(ordinary), (length,), generator=torch.Generator().manual_seed(seed))]
        if self.subject.end_token_id is not None:
            ids[-1] = self.subject.end_token_id
        return ids

    def hides_padding(self, maps: list[Map], layers: Sequence[int], queries: torch.Tensor, keys: torch.Tensor) -> bool:
        """Whether queries (B,Q) that are tokens have no weight on keys (B,K) that are padding."""
        wrong = ~keys[:, None, None] * queries[:, None, :, None]
        return all(number < len(maps) and float((maps[number].weights * wrong).max()) <= 1e-6 for number in layers)

    def takes_embeddings(self, ids: torch.Tensor, read: Callable, plain: torch.Tensor) -> bool:
        """Whether embeddings of the ids, given, are read in place of the ids alone, and gradients reach them."""
        try:
            weight = self.subject.vocabulary()
            embedded = torch.nn.functional.embedding(ids, weight).detach().requires_grad_()
            with torch.enable_grad(), Embedded(weight, ids, embedded):
                again = read()
                (slope,) = torch.autograd.grad(again.square().sum(), [embedded])
            with Embedded(weight, ids, torch.zeros_like(embedded)):
                other = read()
        except (NotImplementedError, AttributeError, RuntimeError, TypeError):
            return False
        return _difference(again, plain) <= self.near and bool((slope != 0).any()) and not torch.equal(other, plain)


class Texts(_Probe):
    """A classifier of transformers: one text or two, and attention over all input positions.

    A random text has the end marker of an encoder–decoder, which reads its answer there; every third token is impermissible,
    where the model asks.
    """

    attention, input_kind = "attention", "token ids and a mask"
    shape = LENGTHS[0], LENGTHS[0]
    read_as, over = f"of a text of {LENGTHS[0]} tokens", "from every token to every token"

    def __init__(self, subject):
        super().__init__(subject)
        self.inputs, size = [], base.vocabulary_size(self.model)
        for seed, length in enumerate((*LENGTHS, LENGTHS[0])):
            ids = self.draw(length, size, {*subject.markers, self.filling}, seed).unsqueeze(0).to(subject.device)
            text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            if base.separates(self.model):
                text["impermissible"] = (torch.arange(length, device=ids.device) % 3 == 2).long().unsqueeze(0)
            self.inputs.append(text)

    def chosen(self, square: list[int], read: Read, named: Named, sizes: list) -> list[int]:
        """Of self-attention all maps, or those of a decoder's attention over the encoder."""
        if not base.is_encoder_decoder(self.model):
            fault = f"only {len(square)} of its {len(read.maps)} maps are over all input positions ({sizes})"
            self.check(len(square) == len(read.maps), "layers", fault)
            return square
        crossed = [number for number in square if CROSS.search(named.calls[number][0])]
        self.check(bool(crossed), "layers", "its decoder has no attention over the encoder alone")
        return crossed

    def learn(self, read: Read, numbers: list[int], names: tuple[str, ...]) -> dict[str, object]:
        """The fields of `Sites` that texts decide."""
        subject, text, blocks, two = self.subject, self.inputs[0], (), self.model.config.is_encoder_decoder
        if base.separates(self.model):
            places = subject.hooked(text, None, (), numbers[-1]).rows[0].nonzero().flatten().tolist()
            fault = f"its logits depend on the positions {places} of the last layer, and tokens of two kinds meet in them"
            self.check(places == [0], "separation", fault)
        if not two and len(numbers) == len(read.maps):
            blocks = chain_of(self.model, names, text["input_ids"].shape, partial(subject.recorded, text))
        ways = {"padded": [0, 1], "of one length": [0, 2]}
        together = next((way for way, rows in ways.items() if self._same(rows, numbers)), "one at a time")
        layers = [subject.recorded(text, blocks)[number] for number in numbers]
        lacks = {"weighed vectors": _refusal(projected, layers)}
        lacks["layer parts"] = _refusal(LayerParts, layers) if blocks else lacks["weighed vectors"]
        if not blocks:
            why = "attention is a decoder's over an encoder" if two else "no list of modules is such a chain"
            names = ("layer states", "layer parts", "token states", *["stacked maps"] * two)
            lacks |= dict.fromkeys(names, why)
        if not self.takes_embeddings(text["input_ids"], lambda: subject.run(text).logits, read.logits):
            needing = ("embeddings", "embedding length", "held attention", "backward rules")
            lacks |= dict.fromkeys(needing, "it looks the ids as they are up in no table of tokens")
        elif not self._reads_length(read.logits):
            why = "a norm follows its embeddings: gradient_norm and integrated_gradients need no length"
            lacks["embedding length"] = why
        if together != "padded":
            lacks["token states"] = "padding disturbs it"
        if together != "padded" or not self._hides():
            lacks["token hiding"] = "its logits depend on tokens whose attention_mask is 0"
        return {"together": together, "blocks": blocks, "lacks": lacks}

    def _same(self, rows: list[int], layers: list[int]) -> bool:
        """Whether some of the texts are read together as each is read alone."""
        texts = [self.inputs[row] for row in rows]
        features = [{name: values[0].tolist() for name, values in text.items()} for text in texts]
        padded = {name: values.to(self.subject.device) for name, values in pad_batch(features, self.filling).items()}
        mask, alone = padded["attention_mask"].bool(), torch.cat([self.call(text) for text in texts])
        try:
            read = self.subject.hooked(padded, None, None)
        except Exception:  # such as a model without a padding token
            return False
        return self.hides_padding(read.maps, layers, mask, mask) and _difference(read.logits, alone) <= self.near

    def _hides(self) -> bool:
        """Whether logits do not depend on tokens behind the first, the last one too, once their mask is 0."""
        text, _, other = self.inputs
        mask = text["attention_mask"].index_fill(1, torch.tensor([3, 4, LENGTHS[0] - 1], device=self.subject.device), 0)
        hidden = text | {"attention_mask": mask}
        changed = hidden | {"input_ids": torch.where(mask == 0, other["input_ids"], text["input_ids"])}
        try:
            return _difference(self.model(**changed).logits, self.model(**hidden).logits) <= self.near
        except Exception:  # such as a model that takes padding at the end only
            return False

    def _reads_length(self, logits: torch.Tensor) -> bool:
        """Whether logits move when all embeddings become ten times as long."""
        text, table = self.inputs[0], self.subject.vocabulary()
        with Embedded(table, text["input_ids"], 10 * torch.nn.functional.embedding(text["input_ids"], table)):
            moved = (self.call(text) - logits).abs().max()
        return bool(moved > max(10 * base.TOLERANCE, base.rounding(self.model)) * logits.abs().max())


class Pairs(_Probe):
    """A model of transformers from sequences to sequences, and its decoder's attention to the encoder.

    A random pair has the marker that ends sentences behind both.
    """

    attention, input_kind = "cross-attention", "token ids of a source and of a target"
    shape = PAIR_LENGTHS[0][::-1]
    read_as, over = "of {} source and {} target tokens".format(*PAIR_LENGTHS[0]), "of target to source"

    def __init__(self, subject):
        super().__init__(subject)
        names = ("vocab_size", "decoder_vocab_size", "tgt_vocab_size")
        sizes = [
            getattr(part, name, None)
            for part in (subject.config, getattr(subject.config, "decoder", None))
            for name in names
        ]
        size = min(base.vocabulary_size(self.model), *(size for size in sizes if isinstance(size, int) and size > 0))
        markers = {self.filling, subject.end_token_id, *map(subject.setting, ("bos_token_id", "decoder_start_token_id"))}
        self.rows = []
        for seed, lengths in enumerate(PAIR_LENGTHS):
            ids = [self.draw(length, size, markers, 2 * seed + side).tolist() for side, length in enumerate(lengths)]
            words = [[*range(length - 1), -1] for length in lengths]
            names = ("input_ids", "labels", "source_words", "target_words")
            self.rows.append({"instance_id": str(seed), **dict(zip(names, (*ids, *words), strict=True))})
        self.inputs = [subject.collate([row]) for row in self.rows]

    def chosen(self, crossed: list[int], read: Read, named: Named, sizes: list) -> list[int]:
        """All maps over the source."""
        heads = {read.maps[number].weights.shape[1] for number in crossed}
        self.check(len(heads) == 1, "layers", f"they have {sorted(heads)} heads: one number for all is needed")
        return crossed

    def learn(self, read: Read, numbers: list[int], names: tuple[str, ...]) -> dict[str, object]:
        """The fields of `Sites` that pairs decide."""
        self._check_padding(numbers)
        subject, pair, encoder = self.subject, self.inputs[0], self.model.get_encoder()
        blocks = chain_of(self.model, names, pair["labels"].shape, partial(subject.recorded, pair))
        with Named(encoder) as named, Hook(1, named, ()):
            encoded = subject.encoded(pair)[0]
        own_names = [name for name, _ in named.calls]
        encoder_blocks = chain_of(encoder, own_names, pair["input_ids"].shape, partial(subject.recorded_encoder, pair))
        layers = subject.recorded(pair, blocks)
        lacks = {"cross vectors": _refusal(projected, [layers[number] for number in numbers])}
        if not self.takes_embeddings(pair["input_ids"], lambda: subject.encoded(pair)[0], encoded):
            lacks["source embeddings"] = "it looks the ids up in no table of tokens"
        if not blocks:
            lacks["layer results"] = lacks["stacked parts"] = "its decoder's layers are no chain of modules"
        elif not encoder_blocks:
            lacks["stacked parts"] = "its encoder's layers are no chain of modules"
        elif numbers != list(range(1, len(read.maps), 2)):
            lacks["stacked parts"] = "its decoder's layers are not of attention to the target and then to the source"
        else:
            encoder_layers = subject.recorded_encoder(pair, encoder_blocks)
            lacks["stacked parts"] = _refusal(decoder_parts, [layers]) or _refusal(LayerParts, encoder_layers)
        return {"vocabulary": read.logits.shape[2], "blocks": blocks, "encoder_blocks": encoder_blocks, "lacks": lacks}

    def _check_padding(self, layers: list[int]) -> None:
        """Check that a padded pair has the logits that it has alone, and that no weight is on padding."""
        alone, both = self.call(self.inputs[1]), self.subject.collate(self.rows)
        read = self.subject.run(both)
        hidden = self.hides_padding(read.maps, layers, both["labels"] != UNCOUNTED, both["attention_mask"].bool())
        same = _difference(read.logits[1:, : PAIR_LENGTHS[1][1]], alone) <= self.near
        self.check(same and hidden, "padding", "a pair that is padded has other logits than alone, or weights on padding")
