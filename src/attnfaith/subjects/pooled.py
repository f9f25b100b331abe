"""The classifiers of this package as subjects: attention pools the states of an encoder for a decoder.

Shapes: B instances, L input positions, T places of attention (input positions; of hierarchical models sentences),
C classes, K attentions per instance, E embedding, H hidden.
"""

import copy
from collections.abc import Iterator, Mapping
from operator import attrgetter

import torch

from attnfaith.data.fingerprint import digest_model
from attnfaith.data.tokenization import encode
from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.subjects.attention import products_of_intervention
from attnfaith.subjects.base import ModelSubject, check_finite
from attnfaith.subjects.protocol import CAPABILITIES, MAPS, OF_TOKENIZERS, TEXT, Batch, SubjectError, cached


class PackageSubject(ModelSubject):
    """The texts, batches and embeddings of this package's classifiers."""

    parts = ("encoder", "readout", "vectors", "vectors_digest", "tokenizer_digest")
    """Fields of the configuration that an identity holds."""
    mask_token_id = None
    num_labels = property(attrgetter("config.num_labels"))
    pad_token_id = property(attrgetter("config.pad_token_id"))
    unknown_token_id = property(attrgetter("config.unk_token_id"))

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

    def attention_products(self, batch: Batch, explain) -> torch.Tensor:
        """States held fixed, and nothing renormalised."""
        return products_of_intervention(self, batch, explain)

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
    parts = (*PackageSubject.parts, "hierarchy", "alignment", "projection", "projection_parameter", "score_scale")

    def __init__(self, model, tokenizer=None):
        super().__init__(model, tokenizer)
        self.attend, self.decode, self.decoder_weights = model.attend, model.decode, model.decoder_weights
        self.lacks = {} if model.affine else {"affine read-out": "its logits are no affine function of attention"}
        self.level, self.contextual = model.level, model.contextual
        self.removal_renormalises, self.ignores_weightless = model.removal_renormalises, model.ignores_weightless

    def rows(self, texts):
        """Texts of a hierarchical model are divided into sentences."""
        if self.tokenizer is None:
            raise self.without_tokenizer()
        pairs = "text_pair" in texts.column_names
        if pairs and self.config.query != "text":
            raise SubjectError("these are pairs, and the model reads single texts")
        if not pairs and self.config.query == "text":
            raise SubjectError("these are single texts, and the model reads pairs (text, second text)")
        return encode(texts, self.tokenizer)

    def digest(self) -> str:
        return digest_model(self.model)

    def with_dtype(self, dtype: torch.dtype) -> "Pooled":
        """A copy whose weights have a dtype."""
        return Pooled(copy.deepcopy(self.model).to(dtype), self.tokenizer)

    def attendable(self, batch: Batch) -> torch.Tensor:
        return self.model.attendable(**text_of(batch))

    def items(self, batch: Batch) -> torch.Tensor | None:
        return None if self.level == "token" else self.model.items(**text_of(batch))

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
        text = text_of(batch)
        if embedded is not None:
            text |= {"input_ids": None, "inputs_embeds": embedded, "items": self.items(batch)}
            return self.model.encode(**text)
        if "encoded" not in batch.results:
            with torch.no_grad():
                batch.results["encoded"] = self.model.encode(**text)
        return batch.results["encoded"]

    def word_attention(self, batch: Batch) -> torch.Tensor | None:
        """(B,L): the weight of each word in its sentence, where attention is over sentences; else None."""
        return self.model.model.read(**text_of(batch)).word_attention if self.level == "sentence" else None


def text_of(batch: Mapping) -> dict[str, torch.Tensor | None]:
    """The arguments by which the stages of our models take a text."""
    return {name: batch.get(name) for name in TEXT}
