"""Classifiers that read a selection, as subjects: attention is what the selector gives each token.

Shapes: B instances, L input positions, T = L places of attention, C classes, K selections per instance, E embedding.
"""

import torch

from attnfaith.data.subwords import encode_for_classifier
from attnfaith.data.tokenization import encode
from attnfaith.models.rationale_samplers import hardened
from attnfaith.subjects.base import BOUNDLESS
from attnfaith.subjects.pooled import PackageSubject
from attnfaith.subjects.protocol import Batch, SubjectError, cached


READ_AT_ONCE = 2**15  # padded tokens that are read together under other selections


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
        if self.tokenizer is None:
            raise self.without_tokenizer()
        if "text_pair" in texts.column_names:
            raise SubjectError("these are pairs, and the model reads single texts")
        if self.config.text_config is None:
            return encode(texts, self.tokenizer)
        limit = self.tokenizer.model_max_length
        return encode_for_classifier(texts, self.tokenizer, max_length=limit if limit < BOUNDLESS else None)

    def identity(self) -> dict[str, object]:
        config, inner = self.config, self.config.text_config
        names = ("budget", "contiguous", "threshold", "pooling", "reads")
        identity = super().identity() | {f"selection_{name}": getattr(config, name) for name in names}
        identity |= {
            "encoder": config.encoder if inner is None else inner.model_type,
            "alignment": "selector",
            "projection": config.sampler,
            "projection_parameter": config.budget,
            "attention_kind": "selection",
            "selection_kind": config.sampler,
            "selection_encoder": config.selector_encoder if inner is None else inner.model_type,
            "selection_vectors_shared": config.share_embeddings,
        }
        if config.sampler == "budget":
            identity |= {f"selection_{name}": getattr(config, name) for name in ("transition", "temperature")}
            identity["selection_test_temperature"] = config.test_temperature or config.temperature
        return identity

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
