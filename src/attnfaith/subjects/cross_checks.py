"""What a model from sequences to sequences is asked before its cross-attention is believed: each check has a name, and a
model that fails one is refused.

Random pairs are read a few times, the source and the target of other lengths, so that attention over the one cannot be taken
for attention over the other.
"""

from dataclasses import dataclass, field

import torch

from attnfaith.errors import excerpt
from attnfaith.subjects.attention_hook import Edit, Embedded, Hook, Map
from attnfaith.subjects.classifier_facts import check_finite, vocabulary_size
from attnfaith.subjects.cross_parts import decoder_parts
from attnfaith.subjects.layer_parts import LayerParts, projected
from attnfaith.subjects.layers import Layer, Recorded, chained, lists_around
from attnfaith.subjects.plain import in_eval_mode, plainly
from attnfaith.subjects.protocol import SubjectError
from attnfaith.subjects.self_checks import TOLERANCE, Named, Silence, configured, eager, same_numbers, silent
from attnfaith.subjects.sentence_batch import PairBatch


LENGTHS = ((11, 7), (8, 5))
"""Source and target positions of the random pairs."""
GIVEN = ("input_ids", "attention_mask", "decoder_input_ids")
"""What a model is called with."""
ORDINARY = 2000
"""The most tokens that random pairs are drawn from."""


@dataclass(frozen=True)
class CrossSites:
    """What was learned of a model.

    cross: the numbers of the decoder's maps over the source, first layer first, of `maps` in all. heads: of each. names: the
    modules that make them. vocabulary: the words that logits are of. together: "padded", or "one at a time" where padding
    changes what is said of a pair. difference: the largest of logits read by the hook and of the model's own, in its own
    implementation of attention, over their size or 1. blocks, encoder_blocks: the name of each layer's module, () where
    there are none. lacks: the capabilities that it has not, and why.
    """

    cross: tuple[int, ...]
    maps: int
    heads: int
    names: tuple[str, ...]
    vocabulary: int
    together: str
    difference: float
    blocks: tuple[str, ...] = ()
    encoder_blocks: tuple[str, ...] = ()
    lacks: dict[str, str] = field(default_factory=dict)


def checked(subject) -> CrossSites:
    """What is learned of the model of a subject by reading random pairs.

    Raises SubjectError naming the check that fails:
        reading: the model reads token ids of a source and of a target, and gives logits that are finite.
        layers: each layer of the decoder has one attention over the source, made of a softmax that weighs values.
        logits: they are the same when the hook reads, from what the encoder made before, and as in the model's own
            implementation of attention.
        rows: every row is of weights from 0 on, and sums to 1.
        use: other weights of a layer give other logits, so that these are what the model computed with.
        returned: what the model itself returns as its cross-attention, if it does, is the same.
    """
    model = subject.model
    with plainly(), in_eval_mode(model), configured(model, return_dict=True), torch.no_grad():
        return _learned(subject)


def _learned(subject) -> CrossSites:
    model = subject.model
    pairs = [_pair(subject, *lengths, seed) for seed, lengths in enumerate(LENGTHS)]
    first = pairs[0]
    plain = _own_logits(subject, first)
    with eager(model):
        encoded, encoder_names = _encoded(subject, first)
        named = Named(model)
        with named:
            logits, maps = _decoded(subject, first, encoded, named)
        cross = _cross(model, maps, named.names)
        difference = float((logits - plain).abs().max() / plain.abs().max().clamp(min=1))
        _check(difference <= TOLERANCE, model, "logits", f"the hook's differ from the model's own by {difference:.2g}")
        _check_rows(model, [maps[number] for number in cross])
        for number in cross:
            changed, _ = _decoded(subject, first, encoded, Silence(number))
            what = f"logits stay the same when all weights of '{named.names[number]}' are 0"
            _check(not torch.equal(changed, logits), model, "use", what)
        _check_returned(subject, first, [maps[number] for number in cross])
        together = _together(subject, pairs, cross)
        names = [named.names[number] for number in cross]
        blocks = _blocks(subject, first, encoded, names, len(maps))
        encoder_blocks = _outermost(model.get_encoder(), encoder_names)
        lacks = _lacks(subject, first, encoded, cross, len(maps), blocks, encoder_blocks)
    heads = {maps[number].weights.shape[1] for number in cross}
    _check(len(heads) == 1, model, "layers", f"they have {sorted(heads)} heads: one number for all is needed")
    sizes = len(maps), heads.pop(), tuple(names), logits.shape[2]
    return CrossSites(tuple(cross), *sizes, together, difference, blocks, encoder_blocks, lacks)


def _check(holds: bool, model, name: str, what: str) -> None:
    if not holds:
        raise SubjectError(
            f"the cross-attention of {type(model).__name__} fails the check '{name}': {what}; it cannot be measured"
        )


def _pair(subject, sources: int, targets: int, seed: int) -> PairBatch:
    """A random pair, with the marker that ends sentences behind both."""
    config = subject.config
    sizes = [vocabulary_size(subject.model), ORDINARY]
    sizes += [size for part in (config, getattr(config, "decoder", None)) for size in _sizes(part)]
    end = subject.end_token_id
    markers = {subject.pad_token_id, end, subject._of_config("bos_token_id"), subject._of_config("decoder_start_token_id")}
    ordinary = torch.tensor([number for number in range(min(sizes)) if number not in markers])
    generator = torch.Generator().manual_seed(seed)
    row = {"instance_id": str(seed)}
    for ids, words, length in (("input_ids", "source_words", sources), ("labels", "target_words", targets)):
        drawn = ordinary[torch.randint(0, len(ordinary), (length,), generator=generator)].tolist()
        row[ids] = drawn if end is None else [*drawn[:-1], end]
        row[words] = [*range(length - 1), -1]
    return subject.collate([row])


def _given(pair: PairBatch) -> dict[str, torch.Tensor]:
    return {name: pair[name] for name in GIVEN}


def _sizes(config) -> list[int]:
    named = (getattr(config, name, None) for name in ("vocab_size", "decoder_vocab_size", "tgt_vocab_size"))
    return [size for size in named if isinstance(size, int) and size > 0]


def _own_logits(subject, pair: PairBatch) -> torch.Tensor:
    """What the model says by itself. Raises SubjectError where it reads something else."""
    model = subject.model
    try:
        logits = model(**_given(pair), **subject.uncached).logits
    except Exception as error:  # models raise many kinds
        said = f"{type(error).__name__}: {excerpt(error, 200)}"
        raise SubjectError(
            f"{type(model).__name__} fails the check 'reading': given token ids of a source and of a target it says {said}; "
            "a model from sentences to sentences reads these alone"
        ) from error
    check_finite(model)
    _check(bool(logits.isfinite().all()), model, "reading", "of a pair its logits are not finite")
    shape = tuple(logits.shape[:2])
    _check(shape == (1, LENGTHS[0][1]), model, "reading", f"of a target of {LENGTHS[0][1]} tokens it has logits {shape}")
    return logits


def _encoded(subject, pair: PairBatch) -> tuple:
    """What the encoder makes of a source, and the modules that make its maps."""
    encoder = subject.model.get_encoder()
    with Named(encoder) as named, Hook(1, named, lambda number: False):
        encoded = encoder(input_ids=pair["input_ids"], attention_mask=pair["attention_mask"])
    return encoded, named.names


def _decoded(subject, pair: PairBatch, encoded, edit: Edit | None = None) -> tuple[torch.Tensor, list[Map]]:
    with Hook(len(pair), edit) as hook:
        logits = subject.model(encoder_outputs=encoded, **_given(pair), **subject.uncached).logits
    _check(not hook.fused, subject.model, "layers", "it computes attention in one piece also under 'eager'")
    return logits, hook.maps


def _cross(model, maps: list[Map], names: list[str]) -> list[int]:
    """The numbers of the maps over the source."""
    (sources, targets), _ = LENGTHS
    seen = sorted({tuple(one.weights.shape[2:]) for one in maps})
    over_source = [one.number for one in maps if one.weights.shape[2:] == (targets, sources)]
    what = f"of {sources} source and {targets} target tokens its decoder has maps of {seen}, none from target to source"
    _check(bool(over_source), model, "layers", what)
    twice = next((names[number] for number in over_source if names.count(names[number]) > 1), "")
    _check(not twice, model, "layers", f"'{twice}' weighs values more than once, and its attention is not one of these")
    return over_source


def _check_rows(model, maps: list[Map]) -> None:
    for layer, one in enumerate(maps):
        least, sums = float(one.weights.min()), one.weights.sum(-1)
        sound = least >= 0 and float((sums - 1).abs().max()) <= 1e-4
        said = f"{float(sums.min()):.4g} to {float(sums.max()):.4g}, least weight {least:.4g}"
        _check(sound, model, "rows", f"in layer {layer} rows sum to {said}")


def _check_returned(subject, pair: PairBatch, maps: list[Map]) -> None:
    """Compare what the model returns as its cross-attention, if it does, with the maps."""
    try:
        with silent():  # some say that they cannot return it, which is what is asked here
            output = subject.model(**_given(pair), **subject.uncached, output_attentions=True)
    except Exception:  # one that cannot return them says nothing of them
        return
    returned = [one for one in (getattr(output, "cross_attentions", None) or ()) if isinstance(one, torch.Tensor)]
    if not returned:
        return
    same = len(returned) == len(maps) and all(
        same_numbers(one.weights, other) for one, other in zip(maps, returned, strict=True)
    )
    _check(same, subject.model, "returned", "the cross-attention that it returns is not the one that weighed its values")


def _together(subject, pairs: list[PairBatch], cross: list[int]) -> str:
    """Whether a pair that is padded, source and target, is read as alone, and nothing looks at the padding."""
    rows = [
        {name: values if name == "instance_id" else values[0].tolist() for name, values in pair.items()} for pair in pairs
    ]
    for row in rows:
        row["instance_id"] = row["instance_id"][0]
    both, (sources, targets) = subject.collate(rows), LENGTHS[1]
    alone = subject.model(**_given(pairs[1]), **subject.uncached).logits
    encoder = subject.model.get_encoder()
    try:
        encoded = encoder(input_ids=both["input_ids"], attention_mask=both["attention_mask"])
        logits, maps = _decoded(subject, both, encoded)
    except SubjectError:
        raise
    except Exception:  # such as a model without a padding token
        return "one at a time"
    scale = alone.abs().max().clamp(min=1)
    same = float((logits[1:, :targets] - alone).abs().max() / scale) <= TOLERANCE
    hidden = all(float(maps[number].weights[1, :, :targets, sources:].max()) <= 1e-6 for number in cross)
    return "padded" if same and hidden else "one at a time"


def _recorded(subject, pair, encoded, numbers, blocks) -> list[Layer]:
    with Recorded(subject.model, numbers, blocks) as recorded:
        _decoded(subject, pair, encoded, recorded)
    return recorded.layers


def _blocks(subject, pair, encoded, names: list[str], maps: int) -> tuple[str, ...]:
    """The name of each layer's module of the decoder: what it gives is what the next is given; () where there are none."""
    lists = [lists_around(subject.model, name) for name in names]
    for depth in range(min(map(len, lists))):
        blocks = tuple(around[depth] for around in lists)
        if len(set(blocks)) < len(blocks):
            continue
        try:
            layers = _recorded(subject, pair, encoded, range(maps), blocks)
            crossed = [one for one in layers if one.result is not None]
            if len(crossed) == len(names) and chained(crossed, pair["labels"].shape):
                return blocks
        except (StopIteration, TypeError, AttributeError, IndexError, RuntimeError):  # what it is given is no state
            continue
    return ()


def _outermost(encoder, names: list[str]) -> tuple[str, ...]:
    """The outermost element of a list of modules that each map of an encoder is in; () where some are in none, or share."""
    lists = [lists_around(encoder, name) for name in names]
    blocks = tuple(around[0] for around in lists if around)
    return blocks if len(blocks) == len(names) == len(set(blocks)) else ()


def _lacks(subject, pair, encoded, cross, maps: int, blocks, encoder_blocks) -> dict[str, str]:
    """What cannot be had of its layers, and why."""
    lacks = {} if _takes_embeddings(subject, pair) else {"source embeddings": "no table of tokens is asked for the ids"}
    layers = _recorded(subject, pair, encoded, range(maps), blocks)
    try:
        for number in cross:
            projected(layers[number])
    except SubjectError as error:
        lacks["cross vectors"] = str(error)
    if not blocks:
        return lacks | dict.fromkeys(("layer results", "cross parts", "stacked parts"), "its layers are no chain of modules")
    if list(cross) != list(range(1, maps, 2)):
        why = "its decoder's layers are not of attention to the target and then to the source"
        return lacks | dict.fromkeys(("cross parts", "stacked parts"), why)
    try:
        decoder_parts(layers)
    except SubjectError as error:
        return lacks | dict.fromkeys(("cross parts", "stacked parts"), str(error))
    try:
        _check_encoder(subject, pair, encoder_blocks)
    except SubjectError as error:
        lacks["stacked parts"] = str(error)
    return lacks


def _check_encoder(subject, pair, blocks) -> None:
    """Raises SubjectError where an encoder's layers are no chain, or no sums."""
    encoder, numbers = subject.model.get_encoder(), range(len(blocks))
    with Recorded(encoder, numbers, blocks) as recorded, Hook(1, recorded, lambda number: False):
        encoder(input_ids=pair["input_ids"], attention_mask=pair["attention_mask"])
    if not blocks or not chained(recorded.layers, pair["input_ids"].shape):
        raise SubjectError("the layers of its encoder are no chain of modules with one attention each")
    for one in recorded.layers:
        LayerParts(one)


def _takes_embeddings(subject, pair: PairBatch) -> bool:
    """Whether the table's embeddings, given, are read in place of the source's ids alone, and gradients reach them."""
    encoder, ids = subject.model.get_encoder(), pair["input_ids"]
    given = {"input_ids": ids, "attention_mask": pair["attention_mask"]}
    try:
        table = subject.vocabulary()
        embedded = torch.nn.functional.embedding(ids, table).detach().requires_grad_()
        plain = encoder(**given)[0]
        with torch.enable_grad(), Embedded(table, ids, embedded):
            again = encoder(**given)[0]
            (slope,) = torch.autograd.grad(again.square().sum(), [embedded])
        with Embedded(table, ids, torch.zeros_like(embedded)):
            other = encoder(**given)[0]
    except (NotImplementedError, AttributeError, RuntimeError, TypeError):
        return False
    same = float((again - plain).abs().max()) <= TOLERANCE * float(plain.abs().max().clamp(min=1))
    return same and bool((slope != 0).any()) and not torch.equal(other, plain)
