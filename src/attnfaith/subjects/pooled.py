"""The classifiers of this package as subjects: attention pools the states of an encoder for a decoder, or selects tokens.

Shapes: B instances, L input positions, T places of attention (input positions; of hierarchical models sentences), C classes,
K attentions or selections per instance, E embedding, H hidden.
"""

import copy
from collections.abc import Iterator
from operator import attrgetter

import torch

from attnfaith.data.subwords import encode_for_classifier
from attnfaith.data.tokenization import encode
from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.models.rationale_samplers import hardened
from attnfaith.subjects.base import Subject, check_finite, position_limit
from attnfaith.subjects.protocol import CAPABILITIES, MAPS, OF_TOKENIZERS, TEXT, Batch, SubjectError, cached


READ_AT_ONCE = 2**15  # padded tokens that are read together under other selections


class PackageSubject(Subject):
    """The texts, batches and embeddings of this package's classifiers."""

    parts = ("encoder", "readout", "vectors", "vectors_digest", "tokenizer_digest")
    """Fields of the configuration that an identity holds."""
    pad_token_id = property(attrgetter("config.pad_token_id"))
    unknown_token_id = property(attrgetter("config.unk_token_id"))

    def rows(self, texts):
        """Texts of a hierarchical model are divided into sentences."""
        tokenizer, pairs = self.own_tokenizer(), "text_pair" in texts.column_names
        if pairs != (getattr(self.config, "query", None) == "text"):
            found, needed = ("pairs", "single texts") if pairs else ("single texts", "pairs (text, second text)")
            raise SubjectError(f"these are {found}, and the model reads {needed}")
        return encode(texts, tokenizer)

    def check(self, dataset) -> None:
        """Raise SubjectError for rows of another hierarchy than the model's, a model of fewer than two classes, and one
        with weights that are not finite.
        """
        hierarchy, divided = getattr(self.config, "hierarchy", "none"), "words" in dataset.column_names
        if divided != (hierarchy == "sentence"):
            raise SubjectError(
                f"the model has hierarchy='{hierarchy}' and the data set {'is' if divided else 'is not'} divided into "
                "sentences: encode it with the model's own tokenizer"
            )
        if self.num_labels < 2:
            raise SubjectError(f"the model has num_labels={self.num_labels}; predictions need two classes or more")
        check_finite(self.model)

    def embed(self, batch: Batch) -> torch.Tensor:
        """(B,L,E); of selector and classifier, one after the other, where each has its own."""
        return self.model.get_input_embeddings()(batch["input_ids"])

    def identity(self) -> dict[str, object]:
        scale = self.config.embedding_std if self.config.vectors == "random" else None
        parts = {name: getattr(self.config, name) for name in self.parts}
        return {"model": self.config.model_type, "level": self.level, "vectors_scale": scale, **parts}


class Pooled(PackageSubject):
    """An attention classifier, of tokens or sentences.

    Its stages are `encoded`, the states of a batch; attend(states (B,T,H), mask (B,T), query), their attention (B,T), with K
    masks (B,K,T) that of each, (B,K,T); decode(states, attention (B,T) or (B,K,T), query), logits (B,C) or (B,K,C) under any
    attention; and decoder_weights(query), where logits are W c + b for a sum c of states ("affine read-out"): W (C,H) and b,
    (C,) or (B,C) with a query.
    """

    kind = "attention classifiers of this package"
    can = frozenset(CAPABILITIES) - MAPS - OF_TOKENIZERS - {"selection"}
    depth = 1  # the states that attention is over
    parts = (*PackageSubject.parts, "hierarchy", "alignment", "projection", "projection_parameter")

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        self.attend, self.decode, self.decoder_weights = model.attend, model.decode, model.decoder_weights
        self.lacks = {} if model.affine else {"affine read-out": "its logits are no affine function of attention"}
        self.level, self.contextual = model.level, model.contextual
        self.removal_renormalises, self.ignores_weightless = model.removal_renormalises, model.ignores_weightless

    def with_dtype(self, dtype: torch.dtype) -> "Pooled":
        """A copy whose weights have a dtype."""
        return Pooled(copy.deepcopy(self.model).to(dtype), self.tokenizer)

    def attendable(self, batch: Batch) -> torch.Tensor:
        return self.model.attendable(**{name: batch.get(name) for name in TEXT})

    def items(self, batch: Batch) -> torch.Tensor | None:
        return None if self.level == "token" else self.model.items(**{name: batch.get(name) for name in TEXT})

    def predict(self, batch: Batch, embedded: torch.Tensor | None = None, *, hold: bool = False) -> torch.Tensor:
        hidden, mask, query = self.encoded(batch, embedded)
        attention = self.attention(batch) if embedded is None else self.attend(hidden, mask, query)
        return self.decode(hidden, attention.detach() if hold else attention, query)

    @cached
    def attention(self, batch: Batch) -> torch.Tensor:
        return self.attend(*self.encoded(batch))

    def intervene(self, batch: Batch, attention: torch.Tensor) -> torch.Tensor:
        """States held fixed."""
        encoded = self.encoded(batch)
        return self.decode(encoded.hidden, attention, encoded.query)

    def summands(self, batch: Batch) -> Iterator[tuple[int, torch.Tensor]]:
        """In float64: one sum, of states."""
        hidden, mask, _ = self.encoded(batch)
        attention = self.attention(batch)
        for row, inside in enumerate(mask):
            yield row, (attention[row, inside].double().unsqueeze(1) * hidden[row, inside].double()).unsqueeze(0)

    def states_by_layer(self, batch: Batch) -> list[torch.Tensor]:
        """Those that attention is over."""
        return [self.encoded(batch).hidden]

    def value_norms(self, batch: Batch) -> torch.Tensor:
        """Lengths of states."""
        hidden, mask, _ = self.encoded(batch)
        return (hidden.double().norm(dim=2) * mask).unsqueeze(1)

    def encoded(self, batch: Batch, embedded: torch.Tensor | None = None) -> Encoded:
        """Stage 1: states (B,T,H), which places there are (B,T), and the decoder's query; kept in the batch.

        Where embeddings (B,L,E) are given they are read instead, with gradients, and nothing is kept.
        """
        text = {name: batch.get(name) for name in TEXT}
        if embedded is not None:
            text |= {"input_ids": None, "inputs_embeds": embedded, "items": self.items(batch)}
            return self.model.encode(**text)
        if "encoded" not in batch.results:
            with torch.no_grad():
                batch.results["encoded"] = self.model.encode(**text)
        return batch.results["encoded"]

    def word_attention(self, batch: Batch) -> torch.Tensor | None:
        """(B,L): the weight of each word in its sentence, where attention is over sentences; else None."""
        text = {name: batch.get(name) for name in TEXT}
        return self.model.model.read(**text).word_attention if self.level == "sentence" else None


class Rationales(PackageSubject):
    """A `RationaleClassifierForSequenceClassification`.

    Its attention is its selection, the gate of each token at test time before it is made hard, divided by the sum; where no
    token has any it is uniform. Under another attention the model reads as many tokens as it selects itself, or fewer where
    fewer have a weight: those with the most weight, of equal ones the first. So its own attention gives its own prediction.
    A gradient in attention is that in the gates of what is read, each taken to change by the number of tokens read times its
    weight: the selection changes by whole tokens.
    """

    kind = "classifiers that read a selection"
    can = frozenset(
        {"classes", "embeddings", "embedding length", "held attention", "token deletion"}
        | {"intervention", "attention gradients", "selection"}
    )

    def rows(self, texts):
        if self.config.text_config is None or "text_pair" in texts.column_names:
            return super().rows(texts)
        return encode_for_classifier(texts, self.own_tokenizer(), max_length=position_limit(self))

    def identity(self) -> dict[str, object]:
        config, inner = self.config, self.config.text_config
        names = ("budget", "threshold", "pooling", *["temperature"] * (config.sampler == "budget"))
        identity = super().identity() | {f"selection_{name}": getattr(config, name) for name in names}
        return identity | {
            "encoder": config.encoder if inner is None else inner.model_type,
            "alignment": "selector",
            "projection": config.sampler,
            "projection_parameter": config.budget,
            "attention_kind": "selection",
            "selection_kind": config.sampler,
            "selection_encoder": config.selector_encoder if inner is None else inner.model_type,
        }

    def check(self, dataset) -> None:
        """Raise SubjectError for rows of pairs, and as PackageSubject does."""
        types = dataset["token_type_ids"] if "token_type_ids" in dataset.column_names else ()
        if any(map(any, types)):
            raise SubjectError("the model selects tokens of single texts: encode them with the model's own tokenizer")
        super().check(dataset)

    def attendable(self, batch: Batch) -> torch.Tensor:
        return self.model.attendable(batch["input_ids"], batch["attention_mask"])

    def predict(self, batch: Batch, embedded: torch.Tensor | None = None, *, hold: bool = False) -> torch.Tensor:
        """Held, the selection is that of the texts as they are."""
        if embedded is None:
            return self.read_selected(batch, self.selected(batch))
        texts = self._embedded(batch, embedded)
        gates = self.selected(batch) if hold else self.model.select(texts).selected
        return self.model.read(texts, gates.to(embedded.dtype))

    def selection(self, batch: Batch) -> torch.Tensor:
        """(B,T) in float64, 0..1: the gate of each token at test time before it is made hard. Of bernoulli its probability;
        of hardkuma the likeliest of 0, 1 and the mean of the distribution that was not stretched; of a budget the relaxed
        gate.
        """
        return self._selection(batch).values.double()

    def selected(self, batch: Batch) -> torch.Tensor:
        """(B,T) bool: the tokens that the model reads at test time, those whose value is above the threshold (0.5 of
        bernoulli, else 0); of more than the budget allows, those of the largest values. There may be none.
        """
        return self._selection(batch).selected

    @cached
    def _selection(self, batch: Batch):
        return self.model.select(self._embedded(batch))

    @cached
    def attention(self, batch: Batch) -> torch.Tensor:
        values, inside = self._selection(batch).values, self.attendable(batch)
        values = torch.where((values > 0).any(1, keepdim=True), values, inside.to(values.dtype))
        sums = values.sum(1, keepdim=True)
        return values / sums.where(sums > 0, 1)

    def read_selected(self, batch: Batch, selected: torch.Tensor) -> torch.Tensor:
        """Logits (B,C) where the classifier reads the tokens `selected` (B,T) and no other, whatever it selects itself; with
        K selections (B,K,T) to (B,K,C) ("selection"). Gates may lie between 0 and 1.
        """
        gates = selected.to(self.vocabulary().dtype)
        if gates.dim() == 2:
            return self.model.read(self._embedded(batch), gates)
        count, length = gates.shape[1:]
        owner = torch.arange(len(gates), device=gates.device).repeat_interleave(count)
        size = max(1, READ_AT_ONCE // length)
        parts = zip(owner.split(size), gates.flatten(0, 1).split(size), strict=True)
        logits = [self.read_selected(batch.take(rows), selections) for rows, selections in parts if len(rows)]
        return torch.cat([gates.new_zeros(0, self.num_labels), *logits]).unflatten(0, (len(gates), count))

    def intervene(self, batch: Batch, attention: torch.Tensor) -> torch.Tensor:
        weights = attention.detach()
        own, inside, count = self.attention(batch), self.attendable(batch), self.selected(batch).sum(1)
        selected = self.selected(batch)
        if attention.dim() == 3:
            own, inside, count, selected = (values.unsqueeze(1) for values in (own, inside, count, selected))
            inside = inside.expand_as(weights)
        weighed = ((weights > 0) & inside).sum(-1)
        chosen = hardened(weights, inside, torch.minimum(count, weighed))
        chosen = torch.where((weights == own).all(-1, keepdim=True), selected, chosen)  # of values that only rounding parts
        return self.read_selected(batch, chosen.to(attention.dtype) + count.unsqueeze(-1) * (attention - weights))

    def _embedded(self, batch: Batch, embedded: torch.Tensor | None = None):
        ids, mask = batch["input_ids"], batch["attention_mask"]
        if embedded is not None:
            return self.model.embed(attention_mask=mask, inputs_embeds=embedded)
        with torch.no_grad():
            return self.model.embed(ids, mask)
