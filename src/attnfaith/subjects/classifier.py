"""Any text classifier of transformers as a subject: the attention of its layers and heads, read and edited by one hook.

Texts are divided by the model's own tokenizer. Shapes: B instances, L input positions, which are the places of attention, H
heads, C classes, N copies of instances, E embedding, D the size of a head's values.
"""

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext

import torch

from attnfaith.data.fingerprint import digest_model
from attnfaith.data.subwords import encode_for_classifier
from attnfaith.models import SelfAttentionClassifierConfig
from attnfaith.subjects import base
from attnfaith.subjects.attention import HELD, Edit, Embedded, Map, Read, Reduction, joined, map_products, widened
from attnfaith.subjects.backward_rules import check_rules, shares
from attnfaith.subjects.checks import Hooked, Texts, checked
from attnfaith.subjects.layers import Prefix, Recorded, fed, projected, rows_at_once, summands
from attnfaith.subjects.protocol import MAPS, OF_TOKENIZERS, TEXT, TOKENS_AT_ONCE, Batch, SubjectError, cached


NO_CLASSES = {
    "labels": "its labels do not exclude one another (problem_type='multi_label_classification')",
    "values": "it is a regression, whose outputs are values",
}


class SelfAttention(Hooked):
    """A `…ForSequenceClassification` of transformers: encoder, decoder, or encoder and decoder; one text or two.

    model: the classifier. While it is read its attention is "eager", step by step, since other implementations do not give
    their weights; afterwards it is as before. Logits stay the same up to rounding, which is checked. tokenizer: of the
    model, for `encode` and `rows`, and to tell markers from text. reduction: how layers and heads become the attention that
    is shown, see `Reduction.of`.

    Layers are those whose attention is over input positions: self-attention; of an encoder–decoder, the decoder's attention
    over the encoder. Rows that matter are those of the last layer whose output the logits depend on: the first token's of a
    BERT, the last one's of a GPT, all where states are averaged.

    Raises SubjectError for a model that is no classifier of this kind, and where its attention cannot be trusted: the
    message names the check that failed (`attnfaith.subjects.checks`).
    """

    kind = "text classifiers of transformers"
    can = (
        MAPS
        | OF_TOKENIZERS
        | {"classes", "embeddings", "embedding length", "held attention", "attention gradients", "token deletion"}
        | {"weighed vectors", "weighted sums", "token states"}
    )
    contextual = True

    def __init__(self, model, tokenizer=None, reduction="last"):
        super().__init__(base.unwrapped(model), tokenizer)
        self.reduction = Reduction.of(reduction)
        problems = {"multi_label_classification": "labels", "regression": "values"}
        default = "classes" if self.num_labels > 1 else "values"
        self.output = problems.get(getattr(self.config, "problem_type", None), default)
        self.token_types = "token_type_ids" in inspect.signature(self.model.forward).parameters
        self._suited = set()  # inputs whose rules were checked
        self.sites = checked(Texts(self))
        self.depth = len(self.sites.layers)
        self.reduction.check(self.sites.heads, self.sites.lacks)

    def shown_by(self, reduction) -> "SelfAttention":
        """The same model under another reduction; its attention is not checked again."""
        other = copy.copy(self)
        other.reduction = Reduction.of(reduction)
        other.reduction.check(self.sites.heads, self.sites.lacks)
        return other

    @property
    def lacks(self) -> dict[str, str]:
        lacks = dict(self.sites.lacks)
        if self.output != "classes":
            lacks["classes"] = NO_CLASSES[self.output]
        if self.mask_token_id is None:
            lacks["mask token"] = "its tokenizer has none"
        if self.reduction.way != "mean":
            lacks |= dict.fromkeys(("weighed vectors", "weighted sums"), "what rollout gives weighs no vectors")
        return lacks

    @property
    def class_names(self) -> tuple[str, ...]:
        names = super().class_names
        return names or ("value",) if self.output == "values" and self.num_labels == 1 else names

    @property
    def unknown_token_id(self) -> int:
        number = getattr(self.tokenizer, "unk_token_id", None)
        return (self.pad_token_id or 0) if number is None else number

    mask_token_id = property(lambda self: getattr(self.tokenizer, "mask_token_id", None))

    @property
    def end_token_id(self) -> int | None:
        """The marker behind a text, at which an encoder–decoder answers; None for other models."""
        return super().end_token_id if base.is_encoder_decoder(self.model) else None

    @property
    def markers(self) -> frozenset[int]:
        """The ids of tokens that stand around texts: these are markers in a batch without special_tokens_mask."""
        owner = self.config if self.tokenizer is None else self.tokenizer
        ids = [getattr(owner, f"{role}_token_id", None) for role in ("cls", "sep", "bos", "eos")]
        several = (number if isinstance(number, list | tuple) else [number] for number in ids)  # an end may be one of many
        return frozenset(number for numbers in several for number in numbers if number is not None)

    def rows(self, texts):
        rows = encode_for_classifier(texts, self.own_tokenizer(), max_length=base.position_limit(self))
        base.check_ids(rows["input_ids"], base.vocabulary_size(self.model))
        end = self.end_token_id
        for name, ids in zip(rows["instance_id"], rows["input_ids"], strict=True) if end is not None else ():
            if ids.count(end) != 1:
                raise SubjectError(
                    f"text {name!r} has {ids.count(end)} end markers (token {end}), and {type(self.model).__name__} answers "
                    "at the end marker behind a text: take spelled ones out, or give the model's own tokenizer"
                )
        return rows

    def check(self, dataset) -> None:
        """Raise SubjectError for weights that are not finite, and for texts beyond the model's positions."""
        base.check_finite(self.model)
        longest, limit = max(dataset["length"], default=0), base.position_limit(self)
        if limit is not None and longest > limit:
            raise SubjectError(
                f"a text of {longest} tokens, and the model has {limit} positions: encode the texts by `rows`, "
                "which cuts them and marks them as truncated"
            )

    def attendable(self, batch: Batch) -> torch.Tensor:
        special = batch.get("special_tokens_mask")
        if special is None:
            markers = torch.tensor(sorted(self.markers), device=batch["input_ids"].device, dtype=torch.int64)
            special = torch.isin(batch["input_ids"], markers)
        return batch["attention_mask"].bool() & ~special.bool()

    def predict(self, batch: Batch, embedded: torch.Tensor | None = None, *, hold: bool = False) -> torch.Tensor:
        return self.read(batch, HELD if hold else None, embedded, keep=()).logits

    def read(
        self,
        batch: Batch,
        edit: Edit | None = None,
        embedded: torch.Tensor | None = None,
        *,
        keep: Collection[int] | None = None,
        rows: bool = False,
        after: tuple[Prefix, torch.Tensor] | None = None,
    ) -> Read:
        """Return the results of one forward pass that is edited.

        embedded (B,L,E) takes the place of the tokens' embeddings, and gradients reach it. keep: the numbers of the maps to
        return, some of `sites.layers`; None returns all of these. rows: whether to return which rows of the last layer
        matter. after: a `prefix` of the texts, and which of its instances those of the batch are; maps before it are not
        made. A model that padding disturbs reads texts of one length at a time.
        """
        keep = self.sites.layers if keep is None else keep
        groups, width = self.groups(batch), batch["input_ids"].shape[1]
        if len(groups) == 1 and groups[0][1] == width:
            return self.run(batch, edit, keep, embedded, rows, after)
        parts = []
        for chosen, length in groups:
            part = None if embedded is None else embedded[chosen, :length]
            edited = edit and edit.take(chosen, length)
            parts.append(self.run(batch.take(chosen, length), edited, keep, part, rows))
        return joined(parts, groups, width)

    def run(self, batch, edit: Edit | None = None, keep=None, embedded=None, rows: bool = False, after=None) -> Read:
        """Read texts that the model can read together; arguments of `read`, but all maps by default."""
        inputs, watch = self.model_inputs(batch), self.sites.layers[-1] if rows else None
        prefix, chosen = (None, None) if after is None else after
        instead = nullcontext() if embedded is None else Embedded(self.vocabulary(), inputs["input_ids"], embedded)
        with instead, nullcontext() if prefix is None else prefix.reused(chosen):
            return self.hooked(inputs, edit, keep, watch, 0 if prefix is None else len(prefix.modules))

    def groups(self, batch: Batch) -> list[tuple[torch.Tensor, int]]:
        """The instances that can be read together, as rows (n,), and how many input positions they have."""
        lengths, width = lengths_of(batch["attention_mask"]), batch["input_ids"].shape[1]
        rows = torch.arange(len(lengths), device=lengths.device)
        if self.sites.together == "padded":
            return [(rows, width)]
        groups = [(rows[lengths == length], int(length)) for length in lengths.unique()]
        size = 1 if self.sites.together == "one at a time" else len(rows)
        return [(part, length) for group, length in groups for part in group.split(size)]

    def model_inputs(self, batch: Batch) -> dict[str, torch.Tensor]:
        """The arguments of the model: behind texts its own padding, by which some find ends; of no text one such token.

        Raises SubjectError for a batch that does not mark impermissible tokens, where the model keeps these apart.
        """
        separates = base.separates(self.model)
        names = [*TEXT[:2], *["token_type_ids"] * self.token_types, *["impermissible"] * separates]
        if separates and batch.get("impermissible") is None:
            raise SubjectError(
                f"{type(self.model).__name__} keeps impermissible tokens apart, and this batch does not mark them: give "
                "texts of a data set that marks them, or a tensor impermissible, 0 or 1 for each of input_ids"
            )
        inputs = {name: batch[name] for name in names if batch.get(name) is not None}
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if bool(mask.all()):
            return inputs
        lengths, places = lengths_of(mask).unsqueeze(1), torch.arange(ids.shape[1], device=ids.device)
        inputs["input_ids"] = ids.masked_fill(places >= lengths, self.pad_token_id or 0)
        inputs["attention_mask"] = torch.where(mask.any(1, keepdim=True), mask, (places == 0).to(mask))
        return inputs

    @property
    def shown_maps(self) -> list[int]:
        """The numbers of the maps that the reduction takes."""
        return [self.sites.layers[layer] for layer in self.reduction.chosen(self.depth)]

    @cached
    def attention(self, batch: Batch) -> torch.Tensor:
        """(B,L): the reduction's weights on tokens of the text, without markers, divided by their sum."""
        return self.reduced(batch)[0]

    @cached
    def reduced(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights of `attention` (B,L), and the share (B,) of the reduced row on markers.

        Raises SubjectError where the logits of a text depend on no row of the last layer.
        """
        read = self.read(batch, keep=self.shown_maps, rows=True)
        batch.results |= {"matter": read.rows, "whole_logits": read.logits.detach()}
        weights = self.reduction([widened(attention_map.weights) for attention_map in read.maps], read.rows).double()
        without = ~read.rows.any(1)
        if bool(without.any()):
            raise SubjectError(
                f"the logits of {int(without.sum())} of {len(without)} texts do not depend on the last layer ("
                "such as where a ReLU gives 0 alone): no row of its attention can be shown"
            )
        inside = self.attendable(batch)
        on_text = torch.where(inside, weights, 0.0)
        total = on_text.sum(1, keepdim=True)
        uniform = inside / inside.sum(1, keepdim=True).clamp(min=1)
        return torch.where(total > 0, on_text / total, uniform), 1 - total[:, 0]

    @cached
    def matter(self, batch: Batch) -> torch.Tensor:
        """(B,L) bool: the rows of the last layer whose output the logits depend on."""
        return self.read(batch, keep=(), rows=True).rows

    def edited(self, batch: Batch, owner: torch.Tensor, edit: Edit, prefix: Prefix | None = None) -> torch.Tensor:
        """Logits (N,C) of copies `owner` (N,) of a batch's instances under an edit of these copies, as many as fit at once.
        prefix: see `prefix`; of this very batch.
        """
        width = batch["input_ids"].shape[1]
        parts = [torch.zeros(0, self.num_labels, device=self.device)]
        for some in torch.arange(len(owner), device=self.device).split(max(1, TOKENS_AT_ONCE // max(1, width))):
            if len(some):
                after = None if prefix is None else (prefix, owner[some])
                part = edit.take(some, width)
                parts.append(self.read(batch.take(owner[some]), part, keep=(), after=after).logits)
        return torch.cat(parts)

    @torch.no_grad()
    def prefix(self, batch: Batch, layer: int) -> Prefix | None:
        """The layers of a batch's forward pass before one of them, for passes that change nothing before it:
        read(copies, edit, after=(prefix, rows)) equals read(copies, edit), where copies is batch.take(rows).

        None where a pass from there gives other logits, or texts of one length are read at a time.
        """
        blocks, rows = self.sites.blocks[:layer], torch.arange(len(batch["input_ids"]), device=self.device)
        if self.sites.together != "padded" or not blocks:
            return None
        with self.evaluating():
            prefix = Prefix(self.model, blocks, len(rows))
            with prefix.reused():
                logits = self.read(batch, Edit(), keep=()).logits  # step by step, as passes from there on are
            again = self.read(batch, keep=(), after=(prefix, rows)).logits
        near = base.rounding(self.model)
        return prefix if torch.allclose(again, logits, rtol=near, atol=near) else None

    def attention_products(self, batch: Batch, explain: Callable) -> torch.Tensor:
        """Summed over the rows that matter and over the layers and heads of the reduction."""
        layers, head = self.reduction.chosen(self.depth), self.reduction.head
        whole = torch.zeros(batch["input_ids"].shape, dtype=torch.float64, device=self.device)
        for rows, length, matter, by_layer in map_products(self, batch, explain, layers):
            for products in by_layer:
                sums = (products * matter[:, None, :, None]).sum(2)
                whole[rows, :length] += sums.sum(1) if head is None else sums[:, head]
        return whole

    @torch.no_grad()
    def value_norms(self, batch: Batch) -> torch.Tensor:
        """(B,N,L): of the values (D) of each head that the reduction takes, markers included."""
        maps = self.read(batch, keep=self.shown_maps).maps
        head = slice(None) if self.reduction.head is None else [self.reduction.head]
        norms = torch.cat([attention_map.values.double().norm(dim=3)[:, head] for attention_map in maps], 1)
        return norms * batch["attention_mask"].unsqueeze(1)

    @torch.no_grad()
    def states_by_layer(self, batch: Batch) -> list[torch.Tensor]:
        """What each layer's module gives, before a norm that stands behind all layers."""
        return [layer.result for layer in self.recorded(batch, self.sites.blocks, calls=False)]

    def layers(self, batch: Batch) -> tuple[list[Map], torch.Tensor]:
        """The layers of a batch of one instance, and the rows (L,) bool of the last layer that matter ("layer states")."""
        with Recorded(self.model, self.sites.blocks) as recorded:
            read = self.read(batch, recorded, keep=(), rows=True)
        return [recorded.layers[number] for number in self.sites.layers], read.rows[0]

    def each_layer(self, batch: Batch, states: Sequence[torch.Tensor], edit: Edit) -> list[torch.Tensor]:
        """The result (N,L,E) of each layer when it is given its state (L,E), in an edited pass of N copies of an instance
        ("layer states"): so an edit of all layers changes each as if no other layer changed.
        """
        with fed(self.model, self.sites.blocks, states) as results:
            self.read(batch, edit, keep=())
        return results

    def summands(self, batch: Batch) -> Iterator[tuple[int, torch.Tensor]]:
        """The vectors that the heads of the reduction add to each row that matters, projected, without bias."""
        for row in range(len(batch["input_ids"])):
            text = batch.alone(row)
            (layers, matter), inside = self.layers(text), self.attendable(text)[0]
            for layer in (layers[number] for number in self.reduction.chosen(len(layers))):
                values = projected(layer)
                for rows in rows_at_once(matter.nonzero().squeeze(1), values[0]):
                    yield row, summands(layer, values, rows, head=self.reduction.head)[:, inside].double()

    def check_rules(self, inputs: str = "layer") -> None:
        """Raise SubjectError, from a random text, where the rules do not suit the model, or its first layer `inputs`."""
        if inputs not in self._suited:
            check_rules(self, Texts(self).inputs[0], inputs)
            self._suited.add(inputs)

    def relevance(self, batch: Batch, explain: Callable, rules: str, inputs: str = "layer") -> tuple:
        """Gradient times input, by rules, of explain(logits (n,C), rows (n,)), see `shares` ("backward rules")."""
        return shares(self, batch, explain, rules, inputs)

    def identity(self) -> dict[str, object]:
        config, reduction = self.config, self.reduction
        inner = config.text_config if config.model_type == SelfAttentionClassifierConfig.model_type else config
        return {
            "model": "self_attention",
            "encoder": inner.model_type,
            "alignment": "dot",
            "projection": getattr(config, "projection", "softmax"),
            "projection_parameter": getattr(config, "projection_parameter", None),
            "separate_impermissible": base.separates(self.model),
            "readout": "network",
            "reduction": reduction.way,
            "reduction_layers": str(reduction.layers),
            "reduction_head": reduction.head,
            "tokenizer_digest": self.tokenizer_digest(),
        }

    def digest(self) -> str:
        """A fingerprint of what the model computes, and of the reduction."""
        return digest_model(self.model, repr(self.reduction))


def lengths_of(mask: torch.Tensor) -> torch.Tensor:
    """(B,): the places up to the last that is attended to, at least 1."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.bool() * places).amax(1).clamp(min=1)
